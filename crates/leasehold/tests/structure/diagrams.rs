//! Checks the diagrams of `ARCHITECTURE.md`: each names all files of its folder, and all imports go downwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::modules::{Crate, HEAD};

const PAGE: &str = include_str!("../../../../ARCHITECTURE.md");

/// A diagram's lines, from the top, without their comments.
fn drawn(folder: &str) -> Vec<Vec<String>> {
    let mark = format!("<!-- diagram:{folder} -->");
    let (_, after) = PAGE.split_once(&mark).expect("a diagram");
    let block = after.split("```").nth(1).expect("a block");
    let lines = block.lines().skip(1).filter(|line| !line.trim().is_empty());
    let names = |line: &str| -> Vec<String> {
        let names = line.split('#').next().unwrap_or_default();
        names.split_whitespace().map(str::to_owned).collect()
    };
    lines.map(names).collect()
}

/// The diagram's lines according to the imports: each entry stands as low as its imports allow.
fn computed(folder: &str) -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let all = Crate::read(&root);
    let folder: Vec<String> = folder.split('/').map(str::to_owned).collect();
    let arrows = all.arrows().remove(&folder).expect("a folder with imports");
    let inside = |module: &Vec<String>| module.starts_with(&folder) && module.len() > folder.len();
    let files = all.files.keys().filter(|module| inside(module));
    let mut left: BTreeSet<String> = files.map(|module| module[folder.len()].clone()).collect();
    let mut below: BTreeMap<String, BTreeSet<String>> = arrows;
    below.remove(HEAD);
    let mut lines = Vec::new();
    while !left.is_empty() {
        let is_free = |name: &&String| {
            let imports = below.get(*name).into_iter().flatten();
            imports
                .filter(|to| *to != HEAD)
                .all(|to| !left.contains(to))
        };
        let line: BTreeSet<String> = left.iter().filter(is_free).cloned().collect();
        assert!(!line.is_empty(), "a circle among {left:?}");
        left.retain(|name| !line.contains(name));
        lines.insert(0, line.into_iter().collect());
    }
    lines
}

fn sorted(lines: Vec<Vec<String>>) -> Vec<BTreeSet<String>> {
    lines
        .into_iter()
        .map(|line| line.into_iter().collect())
        .collect()
}

fn is_drawn(folder: &str) {
    let computed = computed(folder);
    let text: Vec<String> = computed.iter().map(|line| line.join("  ")).collect();
    assert_eq!(
        sorted(drawn(folder)),
        sorted(computed),
        "{folder} is:\n{}",
        text.join("\n")
    );
}

#[test]
fn diagram_of_lease_shows_its_imports() {
    is_drawn("lease");
}

#[test]
fn diagram_of_redis_store_shows_its_imports() {
    is_drawn("store/redis");
}
