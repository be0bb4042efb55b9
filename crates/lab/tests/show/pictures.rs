//! The requirements for a picture of a trace.

use leasehold_lab::ladder::show::svg;

use crate::tale::{all, crash, delayed, overdue, quorum, summary};
use crate::xml::{Element, elements, labels};

pub(crate) fn picture(story: &leasehold_lab::ladder::trace::Trace) -> String {
    svg(&summary(story)).expect("it goes wrong")
}

/// Well-formed and self-contained; labels do not overlap or leave the page.
pub(crate) fn is_fit_for_print(name: &str, svg: &str) {
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
    let [width, height] =
        ["width", "height"].map(|of| root.get(of).unwrap().parse::<f64>().unwrap());
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

fn texts(svg: &str) -> Vec<String> {
    let all = elements(svg).unwrap();
    let texts = all
        .into_iter()
        .filter(|element: &Element| element.name == "text");
    texts.map(|element| element.text).collect()
}

#[test]
fn pictures_are_fit_for_print() {
    for (name, story) in all() {
        is_fit_for_print(name, &picture(&story));
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
    let svg = picture(&overdue());
    let texts = texts(&svg).join(" ");
    assert!(
        texts.contains("Step 6: C2 & C3 both hold the lock; <DEL> took \"c2-1\" away"),
        "{texts}"
    );
    assert!(svg.contains("&lt;DEL&gt;"));
}

/// An idle client has no lane, and only a delayed command is on its way.
#[test]
fn only_events_that_happen_are_drawn() {
    let of = |story| texts(&picture(&story));
    let has = |texts: &[String], text: &str| texts.iter().any(|of| of == text);
    let crash = of(crash());
    assert!(
        has(&crash, "client C2") && !has(&crash, "client C3"),
        "{crash:?}"
    );
    assert!(!has(&crash, "on its way"), "{crash:?}");
    let delayed = of(delayed());
    assert!(
        has(&delayed, "client C3") && has(&delayed, "on its way"),
        "{delayed:?}"
    );
    let quorum = of(quorum());
    assert!(
        ["S1", "S2", "S3", "restarts empty", "clock + 3 s"]
            .iter()
            .all(|text| has(&quorum, text)),
        "{quorum:?}"
    );
}
