//! A file that cannot be written, since the disk is full or its file system is read-only.
//!
//! A limit of the size of files (`ulimit -f`) stands for the full disk: it needs no privilege, and binds root too. It
//! binds a whole process, so each test runs its story in a process of its own.

use std::env;

use super::*;

const DIRECTORY: &str = "LEASEHOLD_TEST_UNWRITABLE";

/// Runs the ignored test with this name in a process that cannot make the files in `host` longer than `kib`.
fn in_a_process_that_writes(kib: u64, host: &Host, story: &str) {
    let script = r#"trap '' XFSZ; ulimit -f "$1"; shift; exec "$@""#;
    // POSIX counts in blocks of 512 bytes.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", script, "sh", &(2 * kib).to_string()])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture"])
        .arg(format!("store::local::tests::unwritable::{story}"))
        .env(DIRECTORY, host.dir.path());
    let told = limited.output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout) + String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success() && text.contains("1 passed"), "{text}");
}

/// The host of the test that started this process.
fn inherited() -> String {
    format!("{}/locks.db", env::var(DIRECTORY).unwrap())
}

#[test]
fn a_holder_renews_for_ever_in_the_space_that_it_has() {
    let host = Host::still();
    in_a_process_that_writes(48, &host, "renewing");
}

#[test]
#[ignore = "run by the test above"]
fn renewing() {
    let host = Host::still();
    let a = host.open(&inherited(), 1).unwrap();
    assert!(a.takes(30));
    for round in 0..500 {
        host.passes(10);
        let reply = a.extend();
        assert!(matches!(reply, Ok(Reply::Held(_))), "{round}: {reply:?}");
    }
}

/// So renewing needs no space on the disk, ever.
#[test]
fn the_file_has_its_pages_as_soon_as_a_step_is_answered() {
    let host = Host::still();
    let a = host.peer(1);
    assert!(a.takes(30));
    let pages = host.number("PRAGMA page_count");
    let bytes = fs::metadata(host.file()).unwrap().len();
    assert_eq!(bytes, u64::try_from(pages).unwrap() * 1024);
}

#[test]
fn a_file_that_cannot_be_written_can_be_read() {
    let host = Host::still();
    let a = host.peer(1);
    assert!(a.takes(30));
    in_a_process_that_writes(0, &host, "reading");
    drop(a);
    // No process has it open: there is no log.
    in_a_process_that_writes(0, &host, "reading");
}

#[test]
#[ignore = "run by the test above"]
fn reading() {
    let host = Host::still();
    let b = host.open(&inherited(), 2).unwrap();
    assert!(b.fence().is_some());
    assert_eq!(b.names(), [NAME]);
    let refused = b.release(None).unwrap_err();
    is_unwritable(&refused);
    assert!(!refused.may_have_taken_effect);
}

fn is_unwritable(refused: &StoreError) {
    assert_eq!(refused.kind, StoreErrorKind::Unavailable);
    let said = refused.to_string();
    assert!(said.contains("cannot be written"), "{said}");
}

#[test]
fn a_file_that_cannot_be_made_is_no_file_without_locks() {
    let host = Host::still();
    in_a_process_that_writes(0, &host, "making");
}

#[test]
#[ignore = "run by the test above"]
fn making() {
    let host = Host::still();
    let Err(Error::Store(refused)) = host.open(&inherited(), 1) else {
        panic!("opened")
    };
    is_unwritable(&refused);
}
