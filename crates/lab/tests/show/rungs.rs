//! The rungs themselves, each as table, picture and JSON, and the pictures in the docs.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use leasehold_lab::ladder::check::{Found, find_out};
use leasehold_lab::ladder::rungs::{Rung, all};
use leasehold_lab::ladder::show::{Told, json, list, svg, table};

use crate::pictures::is_fit_for_print;
use crate::tables::is_a_page;

/// The rungs that go wrong, and how: found once, for two tests.
static BROKEN: LazyLock<Vec<(&Rung, Found)>> = LazyLock::new(|| {
    let broken = all().iter().filter(|rung| rung.breaks.is_some());
    broken.map(|rung| (*rung, find_out(rung))).collect()
});

fn told() -> Vec<Told<'static>> {
    let told = BROKEN.iter().map(|(rung, found)| Told::of(rung, found));
    told.collect()
}

#[test]
fn each_rung_that_goes_wrong_is_told_in_all_forms() {
    assert!(told().len() > 12, "{}", told().len());
    for (told, (rung, found)) in told().iter().zip(BROKEN.iter()) {
        let Found::Broken(_, trace) = found else {
            panic!("{}: {found:?}", rung.name);
        };
        let page = table(told, false);
        is_a_page(rung.name, &page);
        assert_eq!(page.matches("<-- ").count(), 1, "{page}");
        let document: serde_json::Value = serde_json::from_str(&json(told)).unwrap();
        let lines = document["story"]["lines"].as_array().unwrap();
        let why = trace.lines.last().unwrap().wrong.as_deref().unwrap();
        assert_eq!(lines.last().unwrap()["wrong"], why);
        is_fit_for_print(rung.name, &svg(told).unwrap());
    }
    is_a_page("list", &list(&told(), false));
}

/// `cargo run -p leasehold-lab --example pictures` draws them again.
#[test]
fn the_docs_have_the_pictures_that_the_models_give() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab");
    for told in told() {
        let kept = fs::read_to_string(folder.join(format!("{}.svg", told.name)));
        let drawn = svg(&told).unwrap();
        assert!(
            kept.is_ok_and(|kept| kept == drawn),
            "{}: draw it again",
            told.name
        );
    }
}

/// The story that the docs quote is the one that is printed.
#[test]
fn the_docs_quote_a_story_as_it_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab.md");
    let docs = fs::read_to_string(docs).unwrap();
    let told = told();
    let quoted = told.iter().find(|told| told.name == "set-ex-del").unwrap();
    let page = table(quoted, false);
    assert!(docs.contains(&page), "{page}");
}
