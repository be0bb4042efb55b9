//! The requirements for a picture of a trace.

use std::fs;
use std::path::Path;

use leasehold_lab::ladder::check::RungResult;
use leasehold_lab::ladder::show::svg;
use leasehold_lab::ladder::trace::Trace;

use crate::BROKEN;
use crate::tale::{all, all_that_can_happen, crash, overdue};
use crate::xml::{elements, labels};

/// Well-formed and self-contained; labels do not overlap or leave the page.
fn is_fit_for_print(name: &str, svg: &str) {
    let elements = elements(svg).unwrap_or_else(|why| panic!("{name}: {why}"));
    let root = &elements[0];
    assert_eq!((root.name.as_str(), root.get("role")), ("svg", Some("img")));
    assert_eq!(
        (elements[1].name.as_str(), elements[2].name.as_str()),
        ("title", "desc")
    );
    assert!(!elements[1].text.is_empty() && !elements[2].text.is_empty());
    assert!(svg.len() < 40_000, "{name}: {} bytes", svg.len());
    for foreign in ["script", "image", "style", "use", "foreignObject"] {
        assert!(
            elements.iter().all(|element| element.name != foreign),
            "{name}: {foreign}"
        );
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{name}");
    let [width, height] = ["width", "height"].map(|of| root.number(of));
    let labels = labels(&elements);
    for (at, label) in labels.iter().enumerate() {
        let [left, top, right, bottom] = label.edges;
        assert!(
            left >= 0.0 && top >= 0.0 && right <= width && bottom <= height,
            "{name}: outside: {:?}",
            label.text
        );
        for other in &labels[at + 1..] {
            assert!(
                !label.meets(other),
                "{name}: {:?} meets {:?}",
                label.text,
                other.text
            );
        }
    }
}

fn texts(story: &Trace) -> Vec<String> {
    let all = elements(&svg(story)).unwrap().into_iter();
    let texts = all.filter(|element| element.name == "text");
    texts.map(|element| element.text).collect()
}

#[test]
fn pictures_are_fit_for_print() {
    for (name, story) in all() {
        is_fit_for_print(name, &svg(&story));
    }
}

/// `cargo run -p leasehold-lab --example pictures` draws them again.
#[test]
fn the_docs_have_the_pictures_that_the_models_give() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab");
    for (rung, found) in BROKEN.iter() {
        let RungResult::Broken(trace) = found else {
            panic!("{}: {found:?}", rung.name);
        };
        let drawn = svg(trace);
        is_fit_for_print(rung.name, &drawn);
        let kept = fs::read_to_string(folder.join(format!("{}.svg", rung.name)));
        let is_kept = kept.is_ok_and(|kept| kept == drawn);
        assert!(is_kept, "{}: draw it again", rung.name);
    }
}

#[test]
fn the_check_sees_labels_that_meet() {
    let label = |x| format!(r#"<text x="{x}" y="20" font-size="10">abc</text>"#);
    let of = |x| labels(&elements(&format!("<svg>{}{}</svg>", label(0), label(x))).unwrap());
    assert!(of(17)[0].meets(&of(17)[1]));
    assert!(!of(19)[0].meets(&of(19)[1]));
    for broken in [
        "<svg><a></svg>",
        "<svg>&</svg>",
        "<svg a=\"1\" a=\"2\"/>",
        "<svg/>x<svg/>",
        "<svg>",
    ] {
        assert!(elements(broken).is_err(), "{broken}");
    }
}

#[test]
fn violations_are_explained_in_words() {
    let texts = texts(&overdue()).join(" ");
    assert!(
        texts.contains("Step 6: C2 & C3 both hold the lock; <DEL> took \"c2-1\" away"),
        "{texts}"
    );
    assert!(svg(&overdue()).contains("&lt;DEL&gt;"));
}

/// An idle client has no lane, and only a delayed command is on its way.
#[test]
fn only_events_that_happen_are_drawn() {
    let has = |story: Trace, wanted: &[&str]| {
        let texts = texts(&story);
        let is_there = |text: &&str| texts.iter().any(|of| of == text);
        wanted.iter().all(is_there)
    };
    assert!(has(crash(), &["client C2"]));
    assert!(!has(crash(), &["client C3"]) && !has(crash(), &["on its way"]));
    let wanted = ["client C1", "S1", "S2", "on its way", "clock + 3 s"];
    assert!(has(all_that_can_happen(), &wanted));
    let wanted = ["restarts empty", "ends its quarantine"];
    assert!(has(all_that_can_happen(), &wanted));
}
