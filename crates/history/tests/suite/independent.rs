//! The judge depends on no crate that implements locks.

use std::process::Command;

#[test]
fn no_crate_of_leasehold_is_used_by_the_judge() {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "leasehold-history",
            "-e",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        cargo.status.success(),
        "{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let tree = String::from_utf8(cargo.stdout).unwrap();
    let ours: Vec<&str> = tree
        .lines()
        .filter(|line| line.starts_with("leasehold"))
        .collect();
    assert_eq!(ours.len(), 1, "{tree}");
    assert!(ours[0].starts_with("leasehold-history "), "{tree}");
    assert!(tree.contains("serde_json "), "{tree}");
}
