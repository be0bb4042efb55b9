//! Shortages of this process or host: exit 70 with the cause, never a panic, and never blamed on the store or
//! the command.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::process::{Command, Output};

use crate::common::{LEASEHOLD, Store, on_each_store, tool};

on_each_store! {
    too_few_files_are_70_or_enough,
}

/// `leasehold run` of the lock "x", by a shell that first runs `before`. Files that the test program inherited would count, too.
fn run_after(store: &Store, before: &str) -> Output {
    let close = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-;";
    let run = format!("{LEASEHOLD} run --url {} x true", store.url);
    let script = format!("{close} {before} {run}");
    Command::new("sh")
        .args(["-c", &script])
        .current_dir("/")
        .env("XDG_CONFIG_HOME", store.file("config"))
        .env_remove("REDIS_URL")
        .output()
        .unwrap()
}

/// True if the command ran; otherwise checks the message.
#[track_caller]
fn is_70_or_ran(done: &Output, cause: &str) -> bool {
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.code() {
        Some(0) => true,
        Some(70) => {
            assert!(said.contains(cause) && said.contains("(exit 70)"), "{said}");
            assert!(!said.contains("panicked"), "{said}");
            false
        }
        other => panic!("{other:?}: {said}"),
    }
}

fn too_few_files_are_70_or_enough(store: &Store) {
    let ran: Vec<bool> = (5..=26)
        .map(|files| {
            let done = run_after(store, &format!("ulimit -n {files}; exec"));
            is_70_or_ran(&done, "Too many open files")
        })
        .collect();
    assert!(!ran[0] && ran[21], "{ran:?}");
}

/// The limit does not apply to root, so root becomes another user here.
#[test]
fn too_few_processes_are_70_or_enough() {
    let store = Store::redis();
    let drops = "setpriv --reuid=64999 --regid=64999 --clear-groups";
    if !tool("sh", &["-c", &format!("{drops} {LEASEHOLD} --version")])
        .status
        .success()
    {
        eprintln!(
            "not tried: only root can become another user, who must be able to run what is built here"
        );
        return;
    }
    let ran: Vec<bool> = (1..=12)
        .map(|processes| {
            let before = format!("exec {drops} prlimit --nproc={processes}");
            is_70_or_ran(
                &run_after(&store, &before),
                "Resource temporarily unavailable",
            )
        })
        .collect();
    assert!(!ran[0] && ran[11], "{ran:?}");
}
