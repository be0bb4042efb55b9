//! Imports form no circle: the entries of a folder never import each other, neither directly nor through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::modules::{Crate, crates};

/// The circles among the entries of each folder, as lists of names.
fn circles(of: &Crate) -> Vec<String> {
    let mut circles = Vec::new();
    for (folder, arrows) in of.arrows() {
        for part in parts(&arrows) {
            circles.push(format!("{}: {}", folder.join("/"), part.join(", ")));
        }
    }
    circles
}

/// The strongly connected parts of more than one entry: each entry reaches every other.
fn parts(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for to in arrows.get(&next).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = arrows.keys().map(|name| (name, reach(name))).collect();
    let mut parts = BTreeSet::new();
    for (name, to) in &reached {
        let both = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*name));
        let part: Vec<_> = to.iter().filter(both).cloned().collect();
        if part.len() > 1 {
            parts.insert(part);
        }
    }
    parts.into_iter().collect()
}

#[test]
fn no_folder_has_a_circle_of_imports() {
    let (mut found, mut files, mut imports) = (Vec::new(), 0, 0);
    for (name, root) in crates() {
        let all = Crate::read(&root);
        files += all.files.len();
        imports += all.imports.len();
        found.extend(
            circles(&all)
                .into_iter()
                .map(|circle| format!("{name}/{circle}")),
        );
    }
    let read = format!("{files} files with {imports} imports were read");
    assert!(files > 250 && imports > 1_500, "only {read}");
    assert!(found.is_empty(), "circles:\n{found:#?}");
}

#[test]
fn a_circle_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c; use a::A;");
    write("a.rs", "use crate::b::B; pub struct A;");
    write("b.rs", "use super::{c::C}; pub struct B;");
    write(
        "c.rs",
        "pub struct C; #[cfg(test)] mod tests { use crate::a::A; }",
    );
    let circles = || circles(&Crate::read(&folder.path().join("lib.rs")));
    assert!(circles().is_empty(), "a test may look at everything");
    write("c.rs", "pub fn c() { use crate::a::A; }");
    assert_eq!(circles(), [": a, b, c"]);
    write("c.rs", "use super::X;");
    assert_eq!(circles(), [": (head), a, b, c"]);
}
