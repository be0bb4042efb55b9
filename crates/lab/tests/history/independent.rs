//! The judge shares no code with what it judges.

use std::fs;
use std::path::{Path, PathBuf};

/// The sources in a folder and below.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn the_judge_uses_nothing_of_leasehold_and_of_the_lab() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/history");
    let sources = sources(&folder);
    assert!(sources.len() > 10, "{sources:?}");
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        let others = text.replace("crate::history", "");
        for other in ["crate::", "leasehold::", "leasehold_core", "redis::"] {
            assert!(!others.contains(other), "{}: {other}", path.display());
        }
        assert!(!text.contains("super::super"), "{}", path.display());
    }
}
