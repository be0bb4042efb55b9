//! The advice in error messages: it fits the error, or there is none.

#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test runs the other side of a connection"
)]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::thread;

use testkit::RedisServer;

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
    let step = "next    name a new file, or a lock file of leasehold";
    run.output().is(78, &[step]);
    doctor(&url, 78, &[step]);
}

/// A limit of the size of files stands for a full disk: it binds root too.
#[test]
fn a_file_without_writes_is_read_and_says_so() {
    let store = Store::local();
    let holder = store.hold();
    let limited = |words: &[&str]| {
        let script = r#"trap '' XFSZ; ulimit -f 0; exec "$@""#;
        let mut all = vec!["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold")];
        all.extend(words);
        let done = tool("sh", &all);
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        (done.status.code(), said.into_owned())
    };
    let url = store.url.clone();
    let kept = store.verb("acquire", &["--ttl", "1h", "kept"]).output();
    let token = kept.stdout.trim();
    let (code, said) = limited(&["inspect", "--url", &url]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("kept"), "{said}");
    let (code, said) = limited(&["check", "--url", &url, "--token", token, "kept"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = limited(&["doctor", "--quick", "--url", &url]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("the file cannot be written"), "{said}");
    let release = &["release", "--url", &url, "--token", token, "kept"][..];
    for (words, next) in [
        (
            &["run", "-n", "--url", &url, "other", "true"][..],
            "next    check its disk",
        ),
        (release, "The release is not confirmed: try again"),
    ] {
        let (code, said) = limited(words);
        assert_eq!(code, Some(69), "{said}");
        for words in ["the file cannot be written", next] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!said.contains("server") && !said.contains("port"), "{said}");
    }
    drop(holder);
}

/// The doctor has nothing to examine at this URL.
#[track_caller]
fn doctor(url: &str, code: i32, says: &[&str]) {
    let words = ["doctor", "--quick", "--url", url];
    let done = tool(env!("CARGO_BIN_EXE_leasehold"), &words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
}

/// A server that says why it closes the connection.
#[test]
fn what_a_server_says_before_it_closes_comes_with_a_step_that_fits() {
    let store = Store::local();
    let both = |url: &str, code, says: &[&str]| {
        let run = Run::new(store.dir.path()).words(&["-n", "--url", url, "x", "true"]);
        let done = run.output();
        done.is(code, says);
        assert!(!done.stderr.contains("right port"), "{done:?}");
        doctor(url, code, says);
    };
    let full = RedisServer::start();
    // The kit's own first connection may not be closed yet, so the limit is set by the one that has to count.
    let mut only = full.connection();
    only.command(&["CONFIG", "SET", "maxclients", "1"]);
    let step = "next    close connections that nobody uses";
    both(
        &full.url(),
        69,
        &["and said: ERR max number of clients reached", step],
    );
    for (said, code, step) in [
        (
            "DENIED Redis is running in protected mode because ...",
            77,
            "next    on the server, set a password and the addresses",
        ),
        (
            "ERR no more tenants here",
            69,
            "next    ask who runs this server, or a proxy before it",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let line = format!("-{said}\r\n");
                stream.unwrap().write_all(line.as_bytes()).ok();
            }
        });
        let (_, words) = said.split_once(' ').unwrap();
        both(&url, code, &[words, step]);
    }
}
