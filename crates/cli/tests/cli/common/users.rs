//! Another user of this host, where the tests have the permission to act as one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::tool;

/// A copy of the command that every user of this host may run, with its directory; `None` if the tests cannot
/// act as another user.
pub(crate) fn everybodys_leasehold() -> Option<(TempDir, PathBuf)> {
    let as_another = Command::new("setpriv")
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "true",
        ])
        .output();
    if !as_another.is_ok_and(|tried| tried.status.success()) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("open the directory");
    let copy = folder.path().join("leasehold");
    // By another process: a child that another test starts meanwhile would inherit a file of this one that is open for writing, and
    // the copy could not be run.
    let made = tool(
        "cp",
        &[env!("CARGO_BIN_EXE_leasehold"), &copy.to_string_lossy()],
    );
    assert!(made.status.success(), "{made:?}");
    Some((folder, copy))
}
