//! `inspect`: holders and waiters.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::{RedisServer, eventually};

use crate::common::pty::Session;
use crate::common::{LEASEHOLD, LIMIT, Store, Words, json, on_each_store, tool};

on_each_store! {
    inspect_shows_who_holds_a_lock_and_who_waits,
    inspect_shows_many_locks_in_a_table,
    inspect_lists_held_or_awaited_locks_and_forgets_free_ones,
}

fn inspect_shows_who_holds_a_lock_and_who_waits(store: &Store) {
    let done = store.verb("inspect", "x").prints(0, "\"x\" is free\n");
    let warnings = done.stderr.matches("this host only").count();
    assert_eq!(warnings, usize::from(store.is_local()));

    let holder = store.hold();
    let fence = store.number("fence");
    let waiter = store.queue_up();
    // All lines are compared in `src/inspect.rs`.
    let done = store.verb("inspect", "x").is(0, &[]);
    let url = store.pasted_url();
    done.shows(&[
        "\"x\" is held\n",
        &format!("(pid {}: sh)\n    fence   {fence}\n", holder.pid()),
        &format!("(pid {}: next), alive", waiter.pid()),
        &format!("leasehold break --if-fence {fence} --url {url} x\n"),
    ]);

    let report = store.json("ls", "x", 0);
    assert_eq!(report["schema"], "leasehold.inspect/1");
    let lock = &report["locks"][0];
    for (path, value) in [
        ("/name", Value::from("x")),
        ("/state", "held".into()),
        ("/holder/kind", "leasehold".into()),
        ("/holder/pid", holder.pid().as_raw().into()),
        ("/holder/note", "sh".into()),
        ("/fence", fence.into()),
        ("/queue/0/place", 1.into()),
        ("/queue/0/pid", waiter.pid().as_raw().into()),
    ] {
        assert_eq!(lock.pointer(path), Some(&value), "{path}: {lock}");
    }
    let left = lock["lease_ms"].as_u64().expect("a lease");
    assert!((1..=30_000).contains(&left), "{lock}");
    assert!(lock["held_for_ms"].is_u64(), "{lock}");

    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
    let free = &store.json("inspect", "x", 0)["locks"][0];
    assert_eq!(free["state"], "free");
    for field in ["holder", "fence"] {
        assert_eq!(free[field], Value::Null);
    }
}

/// The names of the locks that `inspect` lists.
fn listed(store: &Store, words: &str) -> Vec<Value> {
    let report = store.json("inspect", words, 0);
    let locks = report["locks"].as_array().expect("a list");
    locks.iter().map(|lock| lock["name"].clone()).collect()
}

/// Waits until "x" is listed: the client writes the index in separate requests, perhaps later.
fn until_listed(store: &Store) {
    eventually(LIMIT, "it is listed", || listed(store, "--all") == ["x"]);
}

fn inspect_shows_many_locks_in_a_table(store: &Store) {
    let _holder = store.hold();
    let done = store.verb("inspect", &["free\u{202e} one", "x"]).output();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [titles, free, held] = lines[..] else {
        panic!("{done:?}")
    };
    let fence = store.number("fence").to_string();
    assert!(titles.starts_with("NAME ") && titles.ends_with("FENCE"));
    assert!(free.starts_with("\"free\\u{202e} one\"  free"), "{free}");
    assert!(held.starts_with("x ") && held.ends_with(&fence), "{held}");
}

fn inspect_lists_held_or_awaited_locks_and_forgets_free_ones(store: &Store) {
    let done = store.verb("inspect", "").is(0, &["no lock is known"]);
    assert_eq!(done.stdout, "");

    let holder = store.hold();
    let waiter = store.queue_up();
    until_listed(store);
    let none = store.json("inspect", "--limit 0", 0);
    assert_eq!(none["locks"], json("[]"));
    assert_eq!(none["omitted"], 1);

    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
    assert!(listed(store, "--all").is_empty());
}

#[test]
fn a_million_other_keys_do_not_slow_the_list_down() {
    let server = RedisServer::builder().option("enable-debug-command", "yes");
    let store = Store::on(server.start());
    let holder = store.hold();
    let waiter = store.queue_up();
    until_listed(&store);
    let server = store.server();
    let filled = server.cli(&["DEBUG", "POPULATE", "1000000", "other", "8"]);
    assert_eq!(filled.text(), "OK");

    // A busy machine makes single runs slow, but not all; a scan of a million keys takes seconds each time.
    let mut best = LIMIT;
    eventually(LIMIT, "50 ms are enough", || {
        let begun = Instant::now();
        let done = tool(LEASEHOLD, &["inspect", "--url", &store.url]);
        best = best.min(begun.elapsed());
        assert!(done.status.success(), "{done:?}");
        let shown = String::from_utf8_lossy(&done.stdout);
        assert!(shown.contains("\nx "), "{shown}");
        best < Duration::from_millis(50)
    });
    println!("inspect among a million keys: {best:?}");
    let stats = server.cli(&["INFO", "commandstats"]).text();
    for search in ["cmdstat_scan", "cmdstat_keys"] {
        assert!(!stats.contains(search), "{stats}");
    }
    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
}

#[test]
fn what_makes_no_sense_is_shown_as_unknown_beside_what_does() {
    let store = Store::redis();
    let server = store.server();
    server.cli(&["SET", "{odd}:lh-queue", "7"]);
    let inspect = store.verb("inspect", "odd even");
    let done = inspect.is(78, &["unexpected answer"]);
    done.shows(&["\nodd   ?", "\neven  free"]);
    assert_eq!(done.stdout.lines().count(), 3, "{done:?}");
    // An invalid name in the index is not a lock.
    server.cli(&["SET", "a\u{1b}b", "1"]);
    server.cli(&["ZADD", "leasehold:index", "9e15", "a\u{1b}b"]);
    store.verb("inspect", "").is(0, &["no lock is known"]);
}

#[test]
fn a_namespace_is_taken_off_the_names_and_hides_the_others() {
    let store = Store::local();
    let holders = ["app", "other"].map(|namespace| {
        let file = format!("{namespace}-up");
        let script = format!("touch {file}; while ! [ -e let-go ]; do sleep 0.02; done");
        let words = format!("--namespace {namespace} x");
        let holder = store.script(&words, &script).start();
        store.until(&file);
        holder
    });
    assert_eq!(listed(&store, "--namespace app"), ["x"]);
    assert_eq!(listed(&store, ""), ["app:x", "other:x"]);
    store.let_go();
    for holder in holders {
        holder.ends(0, &[]);
    }
}

#[test]
fn a_table_fits_the_terminal() {
    let store = Store::local();
    let long = "a-name-that-is-far-too-long-for-a-terminal-as-narrow-as-this-one";
    let url = &store.url;
    let script = format!("stty cols 60; exec {LEASEHOLD} inspect --url {url} {long} b");
    let mut session = Session::start(&["sh", "-c", &script], |_| {});
    session.until("NAME");
    session.until("\r\nb ");
    assert_eq!(session.end().code(), Some(0));
    let shown = session.shown();
    let table = &shown[shown.find("NAME").expect("a table")..];
    assert!(table.contains('…'), "{shown}");
    let fits = table.lines().all(|line| line.chars().count() <= 60);
    assert!(fits, "{shown}");
}

/// The server refuses writes, like one with a full disk. Operators inspect locks in such situations.
#[test]
fn a_server_that_takes_no_writes_can_be_looked_at() {
    let store = Store::redis();
    let holder = store.hold();
    let waiter = store.queue_up();
    until_listed(&store);
    let server = store.server();
    // A free lock in the index: removing it needs a write.
    server.cli(&["ZADD", "leasehold:index", "9e15", "gone"]);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = server.cli(&["SET", "any", "1"]);
    let is_refused = refused
        .error()
        .is_some_and(|it| it.starts_with("NOREPLICAS"));
    assert!(is_refused, "{refused:?}");
    for words in ["--all", "x"] {
        assert_eq!(listed(&store, words)[0], "x");
    }
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
}

/// The index has the names of all users of the server.
#[test]
fn who_has_few_rights_sees_what_is_his() {
    let mut store = Store::redis();
    let url = store.url.clone();
    let port = store.server().port();
    let acl = store.verb("doctor", "--quick --acl --keys x*").output();
    let rules = acl.stdout.trim().replace(">SECRET", ">pw");
    assert_eq!(store.server().cli(&rules.list()).text(), "OK");
    store.url = format!("redis://leasehold:pw@127.0.0.1:{port}/");
    let job = store.hold();
    for foreign in ["team2:a", "team2:b"] {
        let set = ["SET", foreign, "theirs", "PX", "3600000"];
        store.server().cli(&set);
    }
    let names = "ZADD leasehold:index 1 x 2 team2:a 3 team2:b 4 gone";
    store.server().cli(&names.list());

    // A name that may be stale counts too: this user may not look.
    let hidden = "3 more names are not shown: this user may not read the keys";
    let seen = store.verb("inspect", "").is(0, &[hidden]);
    assert_eq!(seen.stdout.lines().count(), 2, "{seen:?}");
    assert!(!seen.stderr.contains("NOPERM"), "{seen:?}");
    let told = store.json("inspect", "", 0);
    assert_eq!(told["hidden"], 3);
    assert_eq!(told["locks"][0]["name"], "x");
    for (pattern, hidden) in [("x*", false), ("*", true)] {
        let watch = store.verb("watch", pattern).start();
        watch.until_it_writes("x");
        watch.signal(Signal::SIGTERM);
        let said = watch.end().stderr;
        assert_eq!(
            said.contains("3 more names are not shown"),
            hidden,
            "{said}"
        );
    }
    let report = store.verb("doctor", "--quick --all --keys x*").is(0, &[]);
    report.shows(&["3 more, which this user may not read"]);
    // The lock of another user, by its name.
    store.verb("inspect", "team2:a").is(77, &["(exit 77)"]);
    store.let_go();
    job.ends(0, &[]);
    // This is about the user, and not about a lock.
    let forbids = ["ACL", "SETUSER", "leasehold", "-eval", "-evalsha"];
    store.server().cli(&forbids);
    store.verb("inspect", "").is(77, &["(exit 77)"]);
    store.url = url;
    assert_eq!(store.json("inspect", "", 0)["hidden"], 0);
}
