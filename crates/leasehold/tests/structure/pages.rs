//! Checks the pages: links lead somewhere, and the table of invariants names the files that define them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::{crates, files};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages of the repository, with their text.
fn pages() -> Vec<(PathBuf, String)> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let entries = fs::read_dir(root()).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(is_page)
        .collect();
    found.extend(files(&root().join("docs"), "md"));
    found.push(root().join("bench/README.md"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text: String = heading.trim().to_lowercase().chars().filter(kept).collect();
    text.replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// The targets of a page's links.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for part in line.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            found.push(target.to_owned());
        }
    }
    found
}

#[test]
fn links_of_pages_lead_somewhere() {
    let (mut broken, mut read) = (Vec::new(), 0);
    for (page, text) in pages() {
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            read += 1;
            let (path, part) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            let is_there = if part.is_empty() {
                target.exists()
            } else {
                fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(part))
            };
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(read > 100, "only {read} links were read");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The table of invariants in `ARCHITECTURE.md` has one row for each prefix, which names all files that define its numbers.
#[test]
fn invariant_prefix_belongs_to_one_group() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = page.split_once("<!-- invariants -->").expect("a table");
    let rows = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        let prefix = row.split('|').nth(1).unwrap().trim().to_owned();
        let twice = places.insert(prefix.clone(), row.to_owned());
        assert_eq!(twice, None, "{prefix} has two rows");
    }
    let mut unlisted = Vec::new();
    let mut defined = BTreeSet::new();
    for (_, head) in crates() {
        for path in files(head.parent().unwrap(), "rs") {
            for prefix in prefixes(&fs::read_to_string(&path).unwrap()) {
                let listed = places.get(&prefix).is_some_and(|row| {
                    let files = row.split('`').skip(1).step_by(2);
                    files.into_iter().any(|file| path.ends_with(file))
                });
                if !listed {
                    unlisted.push(format!("{}: {prefix}", path.display()));
                }
                defined.insert(prefix);
            }
        }
    }
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    let listed: BTreeSet<String> = places.into_keys().collect();
    assert_eq!(defined, listed, "each row has a definition");
}

/// The prefixes of the numbers that a file defines, as in `//! - **C1** ...`.
fn prefixes(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter_map(|line| {
        let line = line
            .strip_prefix("//!")
            .or_else(|| line.strip_prefix("//"))?;
        let (number, _) = line.trim().strip_prefix("- **")?.split_once("**")?;
        let digits = number.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        let prefix = &number[..number.len() - digits.len()];
        (is_number && !prefix.is_empty()).then(|| prefix.to_owned())
    });
    heads.collect()
}
