//! The rungs themselves, each as table, picture and JSON, and the pictures in the docs.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use leasehold_lab::ladder::check::{RungResult, find_out};
use leasehold_lab::ladder::rungs::{Rung, all};
use leasehold_lab::ladder::show::{RungSummary, json, list, svg, table};

use crate::pictures::is_fit_for_print;
use crate::tables::is_a_page;

/// The violated rungs with their traces: computed once, for two tests.
static BROKEN: LazyLock<Vec<(&Rung, RungResult)>> = LazyLock::new(|| {
    let broken = all().iter().filter(|rung| rung.breaks.is_some());
    broken.map(|rung| (*rung, find_out(rung))).collect()
});

fn summary() -> Vec<RungSummary<'static>> {
    let summary = BROKEN
        .iter()
        .map(|(rung, found)| RungSummary::of(rung, found));
    summary.collect()
}

#[test]
fn each_rung_that_goes_wrong_is_told_in_all_forms() {
    assert!(summary().len() > 12, "{}", summary().len());
    for (summary, (rung, found)) in summary().iter().zip(BROKEN.iter()) {
        let RungResult::Broken(_, trace) = found else {
            panic!("{}: {found:?}", rung.name);
        };
        let page = table(summary, false);
        is_a_page(rung.name, &page);
        assert_eq!(page.matches("<-- ").count(), 1, "{page}");
        let document: serde_json::Value = serde_json::from_str(&json(summary)).unwrap();
        let lines = document["story"]["lines"].as_array().unwrap();
        let why = trace.lines.last().unwrap().wrong.as_deref().unwrap();
        assert_eq!(lines.last().unwrap()["wrong"], why);
        is_fit_for_print(rung.name, &svg(summary).unwrap());
    }
    is_a_page("list", &list(&summary(), false));
}

/// `cargo run -p leasehold-lab --example pictures` draws them again.
#[test]
fn the_docs_have_the_pictures_that_the_models_give() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab");
    for summary in summary() {
        let kept = fs::read_to_string(folder.join(format!("{}.svg", summary.name)));
        let drawn = svg(&summary).unwrap();
        assert!(
            kept.is_ok_and(|kept| kept == drawn),
            "{}: draw it again",
            summary.name
        );
    }
}

/// The trace in the docs is the one that the command prints.
#[test]
fn the_docs_quote_a_story_as_it_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab.md");
    let docs = fs::read_to_string(docs).unwrap();
    let summary = summary();
    let quoted = summary
        .iter()
        .find(|summary| summary.name == "set-ex-del")
        .unwrap();
    let page = table(quoted, false);
    assert!(docs.contains(&page), "{page}");
}
