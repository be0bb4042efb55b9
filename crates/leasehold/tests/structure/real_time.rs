//! Compares the list of tests that wait for real time with the sources (`docs/how-we-know/real-time.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    for path in files(&root.join("crates")) {
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

/// The product refuses a shorter one, as tests show.
const REFUSED: Duration = Duration::from_millis(10);

/// The shortest limit in real time. On two cores with six busy processes, a thread that only sleeps was 249 ms late, and a request has a
/// third of a TTL.
const SHORTEST: Duration = Duration::from_secs(6);

/// A TTL whose end the test only waits for, so that no stall can make it fail.
const EXPIRES_SOON: &str = "EXPIRES_SOON";

/// The calls and words that a TTL, the limit of a request or of a wait follows.
const LIMITS: [&str; 7] = [
    ".ttl(",
    "request_timeout(",
    "outage_timeout(",
    "eventually(",
    "\"--ttl\", ",
    "\"LEASEHOLD_TTL\", ",
    "--ttl ",
];

/// The part of a text up to the first character that does not fit, and the rest.
fn split(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

/// Reads a number at the begin of a text.
fn number(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = split(text, |c| c.is_ascii_digit() || c == '_');
    Some((digits.replace('_', "").parse().ok()?, rest))
}

/// Reads a duration at the begin of a text: a call, a product, a constant of this folder, or a word as on a command line.
fn duration(text: &str, constants: &BTreeMap<String, Duration>) -> Option<Duration> {
    let text = text.trim_start().trim_start_matches(['"', '&']);
    let unit = |name: &str| match name {
        "ms" | "MS" | "millis" | "from_millis" => Some(Duration::from_millis(1)),
        "s" | "SECOND" | "seconds" | "secs" | "from_secs" => Some(Duration::from_secs(1)),
        "m" => Some(Duration::from_secs(60)),
        "h" | "HOUR" => Some(Duration::from_secs(3_600)),
        EXPIRES_SOON => None,
        name => constants.get(name).copied(),
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let last = |path: &str| path.rsplit("::").next().map(str::to_owned);
    if let Some((count, rest)) = number(text) {
        let (name, _) = split(rest.trim_start_matches(" * "), is_word);
        return unit(&last(name)?)?.checked_mul(count);
    }
    let (path, rest) = split(text, is_word);
    let factor = rest.strip_prefix('(').or_else(|| rest.strip_prefix(" * "));
    let factor = factor.map_or(Some(1), |factor| Some(number(factor)?.0));
    unit(&last(path)?)?.checked_mul(factor?)
}

/// The constants of a file.
fn constants(source: &str) -> BTreeMap<String, Duration> {
    let line = |line: &str| {
        let (_, rest) = line.split_once("const ")?;
        let (name, rest) = rest.split_once(": Duration = ")?;
        Some((name.to_owned(), duration(rest, &BTreeMap::new())?))
    };
    source.lines().filter_map(line).collect()
}

#[test]
fn limits_in_real_time_are_long() {
    let folders: Vec<String> = first_column()
        .into_iter()
        .filter(|name| name.contains('/'))
        .collect();
    let of = |path: &str| {
        folders
            .iter()
            .find(|folder| path.starts_with(&format!("{folder}/")))
    };
    let tests = tests();
    let mut known: BTreeMap<&String, BTreeMap<String, Duration>> = BTreeMap::new();
    for (path, source) in &tests {
        if let Some(folder) = of(path) {
            known.entry(folder).or_default().extend(constants(source));
        }
    }
    let (mut short, mut read) = (Vec::new(), 0);
    for (path, source) in &tests {
        let Some(folder) = of(path) else { continue };
        // The file's own constants hide those of its neighbours.
        let mut constants_here = known[folder].clone();
        constants_here.extend(constants(source));
        for limit in LIMITS {
            for (at, _) in source.match_indices(limit) {
                let Some(found) = duration(&source[at + limit.len()..], &constants_here) else {
                    continue;
                };
                read += 1;
                if found >= REFUSED && found < SHORTEST {
                    let line = source[..at].lines().count().max(1);
                    short.push(format!("{path}:{line}: {limit} {found:?}"));
                }
            }
        }
    }
    assert!(read > 100, "only {read} limits were read");
    assert!(short.is_empty(), "{short:#?}");
}
