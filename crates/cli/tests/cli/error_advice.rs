//! The advice in error messages: it fits the error, or there is none.

#![cfg(target_os = "linux")]

use std::fs;

use crate::common::{Run, Store, tool};

#[test]
fn no_tip_leads_astray() {
    let store = Store::local();
    for (words, says) in [
        (
            ["-w", "-1", "x", "true"].as_slice(),
            "'-1' for '--wait <DUR>': write 30s",
        ),
        (
            &["--max-waiters", "-1", "x", "true"],
            "'-1' for '--max-waiters",
        ),
        (
            &["--lock", "x", "true"],
            "unexpected argument '--lock' found",
        ),
        (&["x"], "leasehold hold LOCK"),
    ] {
        let done = store.run(words).output();
        done.is(64, &[says, "(exit 64)"]);
        assert!(!done.stderr.contains("tip:"), "{done:?}");
    }
    let done = tool(env!("CARGO_BIN_EXE_leasehold"), &["completions", "tcsh"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("zsh]") && !said.contains("similar"), "{said}");
}

/// Only a user can delete this key, and a waiter would wait for ever.
#[test]
fn a_foreign_lock_that_never_ends_is_not_to_be_waited_for() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "somebody"]);
    let done = store.run(&["-n", "x", "true"]).output();
    done.is(
        75,
        &["never ends", "next    find the program that set this key"],
    );
    assert!(!done.stderr.contains("leasehold run"), "{done:?}");
}

#[test]
fn a_file_that_is_no_store_is_named_as_such() {
    let store = Store::local();
    fs::write(
        store.file("notes"),
        "these are no locks, however long they are",
    )
    .unwrap();
    let url = format!("local:{}", store.file("notes").display());
    let run = Run::new(store.dir.path()).words(&["--url", &url, "x", "true"]);
    run.output().is(
        78,
        &["next    name a new file, or a lock file of leasehold"],
    );
}
