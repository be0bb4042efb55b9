//! Checks the pages: links lead somewhere, the first two pages are short, and all pages together have fewer words than before.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::files;

/// The number of words in all pages in spring 2026, which was too high.
const MOST_WORDS: usize = 54_000;

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

#[test]
fn first_pages_are_short() {
    for page in ["README.md", "ARCHITECTURE.md"] {
        let lines = fs::read_to_string(root().join(page))
            .unwrap()
            .lines()
            .count();
        assert!(lines <= 150, "{page} has {lines} lines");
    }
}

#[test]
fn pages_have_fewer_words_than_before() {
    let words = |(_, text): &(PathBuf, String)| text.split_whitespace().count();
    let all: usize = pages().iter().map(words).sum();
    assert!(all < MOST_WORDS, "{all} words");
}
