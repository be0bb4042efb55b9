//! The output and the status of `leasehold-lab judge`.

use std::path::Path;
use std::process::{Command, Output};

use crate::simulator::simulate;
use crate::text::Text;

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold-lab"))
        .arg("judge")
        .args(words)
        .output()
        .unwrap()
}

fn write(dir: &Path, text: &Text) {
    for (name, text) in text.files() {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

#[test]
fn the_status_tells_clean_from_violated_from_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(run(&[path]).status.code(), Some(64), "no campaign.json");

    let mut text = simulate(1);
    write(dir.path(), &text);
    let clean = run(&[path]);
    let report = String::from_utf8(clean.stdout).unwrap();
    assert_eq!(clean.status.code(), Some(0), "{report}");
    assert!(report.contains("bounds the rate at 3/"), "{report}");

    let decisions = text.0.get_mut("resource.jsonl").unwrap();
    let write_decision = decisions
        .iter_mut()
        .find(|line| line["what"] == "write")
        .unwrap();
    write_decision["base"] = 77.into();
    write(dir.path(), &text);
    let violated = run(&[path]);
    let report = String::from_utf8(violated.stdout).unwrap();
    assert_eq!(violated.status.code(), Some(70), "{report}");
    assert!(report.contains("I5 no lost update: 1 times"), "{report}");

    let json = run(&[path, "--json"]);
    assert_eq!(json.status.code(), Some(70));
    let verdict: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(verdict["status"], "violated");
    assert_eq!(verdict["found"]["I5"], 1);
    let place = verdict["violations"][0]["window"][0]["place"]
        .as_str()
        .unwrap();
    assert!(place.starts_with("resource.jsonl:"), "{place}");
}

#[test]
fn an_unknown_option_is_refused() {
    assert_eq!(run(&["--what"]).status.code(), Some(64));
}
