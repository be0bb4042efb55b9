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

use testkit::{RedisCluster, RedisServer};

use crate::common::{LEASEHOLD, Store, rows, tool};

#[test]
fn no_tip_leads_astray() {
    let store = Store::local();
    let table = "
        -w -1 x true            | '-1' for '--wait <DUR>': write 30s
        --max-waiters -1 x true | '-1' for '--max-waiters
        --lock x true           | unexpected argument '--lock' found
        x                       | leasehold hold LOCK
    ";
    for [words, says] in rows(table) {
        let done = store.run(words).is(64, &[says, "(exit 64)"]);
        assert!(!done.stderr.contains("tip:"), "{done:?}");
    }
    let done = store.leasehold("completions tcsh").is(64, &["zsh]"]);
    assert!(!done.stderr.contains("similar"), "{done:?}");
}

/// Only a user can delete this key, and a waiter would wait for ever.
#[test]
fn a_foreign_lock_that_never_ends_is_not_to_be_waited_for() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "somebody"]);
    let step = "next    find the program that set this key";
    let done = store.run("-n x true").is(75, &["never ends", step]);
    assert!(!done.stderr.contains("leasehold run"), "{done:?}");
}

#[test]
fn a_file_that_is_no_store_is_named_as_such() {
    let mut store = Store::local();
    let text = "these are no locks, however long they are";
    fs::write(store.file("notes"), text).unwrap();
    store.url = format!("local:{}", store.file("notes").display());
    let step = "next    name a new file, or a lock file of leasehold";
    for line in ["run x true", "doctor --quick"] {
        store.leasehold(line).is(78, &[step]);
    }
}

/// A limit of the size of files stands for a full disk: it binds root too.
#[test]
fn a_file_without_writes_is_read_and_says_so() {
    let store = Store::local();
    let _holder = store.hold();
    let kept = store.leasehold("acquire --ttl 1h kept").output();
    let url = &store.url;
    let with_token = format!("--url {url} --token {} kept", kept.stdout.trim());
    let unwritten = "the file cannot be written";
    for (line, code, says) in [
        (format!("inspect --url {url}"), 0, &["kept"][..]),
        (format!("check {with_token}"), 0, &[]),
        (format!("doctor --quick --url {url}"), 78, &[unwritten]),
        (
            format!("run -n --url {url} other true"),
            69,
            &[unwritten, "next    check its disk"],
        ),
        (
            format!("release {with_token}"),
            69,
            &[unwritten, "The release is not confirmed: try again"],
        ),
    ] {
        let script = format!("trap '' XFSZ; ulimit -f 0; exec 2>&1; exec {LEASEHOLD} {line}");
        let done = tool("sh", &["-c", &script]);
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.status.code(), Some(code), "{said}");
        for words in says {
            assert!(said.contains(words), "{said}");
        }
        let misleads = ["server", "port"].map(|word| said.contains(word));
        assert!(code != 69 || misleads == [false; 2], "{said}");
    }
}

/// A server that says why it closes the connection.
#[test]
fn what_a_server_says_before_it_closes_comes_with_a_step_that_fits() {
    let store = Store::local();
    let both = |url: &str, code, says: &[&str]| {
        for line in ["run -n x true", "doctor --quick"] {
            let done = store.leasehold(line).env("LEASEHOLD_URL", url);
            let done = done.is(code, says);
            assert!(!done.stderr.contains("right port"), "{done:?}");
        }
    };
    let full = RedisServer::start();
    // The kit's own first connection may not be closed yet, so the limit is set by the one that has to count.
    let mut only = full.connection();
    only.command(&["CONFIG", "SET", "maxclients", "1"]);
    let step = "next    close connections that nobody uses";
    let said = "and said: ERR max number of clients reached";
    both(&full.url(), 69, &[said, step]);
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

/// The lock may be taken at the primary, and no attempt succeeds before the replicas are back.
#[test]
fn a_grant_that_no_replica_confirms_comes_with_what_to_repair() {
    let (store, server) = (Store::local(), RedisServer::start());
    let url = format!("{}?replicas=1&replicas_timeout=50ms", server.url());
    let done = store.leasehold("run -n x true").env("LEASEHOLD_URL", &url);
    let done = done.is(
        69,
        &[
            "0 of 1 replicas confirmed it within 50.0ms; the primary has executed it",
            "next    bring the replicas back",
            "until its TTL ends",
        ],
    );
    assert!(!done.stderr.contains("try again"), "{done:?}");
}

#[test]
fn passwords_and_databases_are_advised_where_they_belong() {
    let store = Store::local();
    let (asks, alone) = (RedisServer::start(), RedisCluster::start(1, 0));
    asks.cli(&["CONFIG", "SET", "requirepass", "S3CR3T"]);
    let asks = asks.address();
    let node = alone.nodes()[0].address();
    for (url, code, step) in [
        // Twice the same sentinel: it is quoted once.
        (
            format!("redis+sentinel://{asks},{asks}/main"),
            77,
            "next    give the password of the sentinels",
        ),
        (
            format!("redis://{asks}/"),
            77,
            "next    give the password: ",
        ),
        (
            format!("redis://{node}/3"),
            78,
            "next    leave the database out of the URL",
        ),
    ] {
        let done = store.leasehold("run -n x true").env("LEASEHOLD_URL", &url);
        let done = done.is(code, &[step]);
        assert!(done.stderr.matches("NOAUTH").count() < 2, "{done:?}");
    }
}
