//! Several users of a host share a `local:` file if they want to, and no configuration.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

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

/// The end of a command, and what it says.
fn end(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn two_users_share_a_file_that_was_made_for_their_group() {
    let Some((folder, leasehold)) = everybodys_leasehold() else {
        eprintln!("skipped: two_users_share_a_file needs root and setpriv");
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
    let holds = ["--url", &shared, "x", "sh", "-c", &script];
    let mut first = run_as("65534", &leasehold, &holds).spawn().unwrap();
    let begun = locks.join("begun");
    eventually(LIMIT, "the first user holds", || begun.exists());
    for name in ["shared.db", "shared.db-wal", "shared.db-shm"] {
        let mode = fs::metadata(locks.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660, "{name}");
    }
    let takes = |user: &str, url: &str| {
        end(&mut run_as(
            user,
            &leasehold,
            &["--url", url, "--try", "x", "true"],
        ))
    };
    let (code, said) = takes("65533", &shared);
    assert_eq!(code, Some(75), "{said}");
    fs::write(locks.join("over"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    // A file without a mode is for its user only.
    let own = url("own.db");
    for (user, url) in [
        ("65533", &shared),
        ("65533", &shared),
        ("65534", &shared),
        ("65533", &own),
    ] {
        let (code, said) = takes(user, url);
        assert_eq!(code, Some(0), "{user} {url}: {said}");
    }
    // The other user gets advice.
    let (code, said) = takes("65534", &own);
    assert_eq!(code, Some(77), "{said}");
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
    command.env("HOME", folder.path());
    let (code, said) = end(command.args(["run", "--url", &url, "x", "true"]));
    assert_eq!(code, Some(78), "{said}");
    for words in [
        "cannot read the configuration",
        "Permission denied",
        "next    set HOME to the home of this user, or choose a configuration: --config FILE",
    ] {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
}
