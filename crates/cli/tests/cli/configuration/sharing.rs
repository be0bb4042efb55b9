//! Several users of a host share a `local:` file if they want to, and no configuration.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use testkit::eventually;

use crate::common::LIMIT;
use crate::common::users::everybodys_leasehold;

/// A group that contains both users, and that is not the group of their own files.
const GROUP: &str = "65532";

/// `leasehold` as another user, with the usual umask.
fn as_user(user: &str, leasehold: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .args(["--reuid", user, "--regid", user, "--groups", GROUP])
        .args(["sh", "-c", "umask 022; exec \"$@\"", "sh"])
        .arg(leasehold)
        .current_dir("/");
    command
}

/// `leasehold run` as another user, without any configuration.
fn run_as(user: &str, leasehold: &Path, words: &[&str]) -> Command {
    let mut command = as_user(user, leasehold);
    command.args(["run", "--config", "/dev/null"]).args(words);
    command
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn two_users_share_a_file_that_was_made_for_their_group() {
    let Some((folder, leasehold)) = everybodys_leasehold() else {
        eprintln!(
            "skipped: two_users_share_a_file_that_was_made_for_their_group needs root and setpriv"
        );
        return;
    };
    let locks = folder.path().join("locks");
    fs::create_dir(&locks).unwrap();
    chown(&locks, None, Some(GROUP.parse().unwrap())).unwrap();
    fs::set_permissions(&locks, fs::Permissions::from_mode(0o2770)).unwrap();
    let url = |file: &str| format!("local:{}/{file}", locks.display());
    let shared = url("shared.db?mode=0660");
    let script = format!(
        "touch {0}/begun; while ! [ -e {0}/over ]; do sleep 0.02; done",
        locks.display()
    );
    let mut first = run_as(
        "65534",
        &leasehold,
        &["--url", &shared, "x", "sh", "-c", &script],
    )
    .spawn()
    .unwrap();
    eventually(LIMIT, "the first user holds", || {
        locks.join("begun").exists()
    });
    for name in ["shared.db", "shared.db-wal", "shared.db-shm"] {
        let mode = fs::metadata(locks.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660, "{name}");
    }
    let second = |words: &[&str]| run_as("65533", &leasehold, words).output().unwrap();
    let busy = second(&["--url", &shared, "--try", "x", "true"]);
    assert_eq!(code(&busy), Some(75), "{busy:?}");
    fs::write(locks.join("over"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    for _ in 0..2 {
        let done = second(&["--url", &shared, "x", "true"]);
        assert_eq!(code(&done), Some(0), "{done:?}");
    }
    let done = run_as("65534", &leasehold, &["--url", &shared, "x", "true"]).output();
    assert_eq!(code(&done.unwrap()), Some(0));

    // A file without a mode is for its user only, and the other user gets advice.
    let own = url("own.db");
    let done = second(&["--url", &own, "x", "true"]);
    assert_eq!(code(&done), Some(0), "{done:?}");
    let denied = run_as("65534", &leasehold, &["--url", &own, "x", "true"])
        .output()
        .unwrap();
    assert_eq!(code(&denied), Some(77), "{denied:?}");
    let said = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(
        said.contains("?mode=0660") && !said.contains("ACL"),
        "{said}"
    );
}

/// Like a change of the user that keeps `HOME`.
#[test]
fn a_configuration_of_another_user_is_not_passed_over() {
    let Some((folder, leasehold)) = everybodys_leasehold() else {
        eprintln!("skipped: a_configuration_of_another_user needs root and setpriv");
        return;
    };
    let config = folder.path().join(".config/leasehold/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "namespace = 'theirs'").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    let url = format!("local:{}/locks.db", folder.path().display());
    let mut command = as_user("65534", &leasehold);
    let done = command
        .env("HOME", folder.path())
        .args(["run", "--url", &url, "x", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(code(&done), Some(78), "{said}");
    for words in [
        "cannot read the configuration",
        "Permission denied",
        "next    set HOME to the home of this user, or choose a configuration: --config FILE",
    ] {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
}
