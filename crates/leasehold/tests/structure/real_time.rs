//! Compares the list of tests that wait for real time with the sources (`docs/how-we-know/real-time.md`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::files;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in the first column of the page's tables.
fn first_column() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/how-we-know/real-time.md")).unwrap();
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    page.lines().filter_map(cell).collect()
}

/// The sources of all tests and examples, by their path from the root.
fn tests() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for path in files(&root.join("crates"), "rs") {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        if name.contains("/tests/") || name.contains("/examples/") {
            found.push((name.to_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(found.len() > 200, "{}", found.len());
    found
}

/// Calls that wait in real time: virtual time does not move a thread that sleeps. Sleeps of a runtime are not among them, since its time
/// may be virtual.
const WAITS: [&str; 2] = ["thread::sleep(", "eventually("];

#[test]
fn each_folder_of_tests_that_waits_is_listed_and_no_other() {
    let listed: BTreeSet<String> = first_column().into_iter().collect();
    let mut unused: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    unused.retain(|name| name.contains('/'));
    let mut missing = Vec::new();
    for (path, source) in tests() {
        let is_here = path.ends_with("structure/real_time.rs");
        if is_here || !WAITS.iter().any(|wait| source.contains(wait)) {
            continue;
        }
        let row = listed
            .iter()
            .find(|folder| path.starts_with(&format!("{folder}/")));
        match row {
            Some(row) => drop(unused.remove(row.as_str())),
            None => missing.push(path),
        }
    }
    assert_eq!(missing, [""; 0], "not in docs/how-we-know/real-time.md");
    assert!(unused.is_empty(), "these do not wait: {unused:?}");
}

#[test]
fn each_listed_test_exists() {
    let tests = tests();
    for name in first_column().iter().filter(|name| !name.contains('/')) {
        let head = format!("fn {name}(");
        let is_there = tests.iter().any(|(_, source)| source.contains(&head));
        assert!(is_there, "docs/how-we-know/real-time.md names {name}");
    }
}
