//! `inspect`: holders and waiters.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::{RedisServer, eventually};

use super::json;
use crate::common::pty::Session;
use crate::common::{LIMIT, Store, on_each_store};

on_each_store! {
    inspect_shows_who_holds_a_lock_and_who_waits,
    inspect_shows_many_locks_in_a_table,
    inspect_lists_held_or_awaited_locks_and_forgets_free_ones,
}

fn inspect_shows_who_holds_a_lock_and_who_waits(store: &Store) {
    let done = store.verb("inspect", &["x"]).output();
    assert_eq!((done.code(), done.stdout.as_str()), (0, "\"x\" is free\n"));
    assert_eq!(
        done.stderr.matches("this host only").count(),
        usize::from(store.url.starts_with("local:"))
    );

    let holder = store.hold();
    let fence = store.number("fence");
    let waiter = store.queue_up();
    let done = store.verb("inspect", &["x"]).output();
    assert_eq!(done.code(), 0);
    for words in [
        "\"x\" is held\n",
        &format!("(pid {}: sh)\n", holder.pid()),
        &format!("fence   {fence}\n"),
        "held ",
        "s left, unless renewed\n",
        "queue   1 waiting\n",
        &format!("(pid {}: next), alive", waiter.pid()),
        &format!(
            "leasehold break --if-fence {fence} --url {} x\n",
            store.pasted_url()
        ),
    ] {
        assert!(done.stdout.contains(words), "{words:?}: {done:?}");
    }

    let report = store.json("ls", &["x"], 0);
    let lock = &report["locks"][0];
    assert_eq!(report["schema"], "leasehold.inspect/1");
    assert_eq!(
        (&lock["name"], &lock["state"]),
        (&"x".into(), &"held".into())
    );
    assert_eq!(lock["holder"]["kind"], "leasehold");
    assert_eq!(lock["holder"]["pid"], holder.pid().as_raw());
    assert_eq!(lock["holder"]["note"], "sh");
    assert_eq!(lock["fence"], fence);
    let left = lock["lease_ms"].as_u64().expect("a lease");
    assert!(left > 0 && left <= 30_000, "{lock}");
    assert!(lock["held_for_ms"].is_u64(), "{lock}");
    assert_eq!(lock["queue"][0]["place"], 1);
    assert_eq!(lock["queue"][0]["pid"], waiter.pid().as_raw());

    store.let_go();
    holder.end().is(0, &[]);
    waiter.end().is(0, &[]);
    let free = &store.json("inspect", &["x"], 0)["locks"][0];
    assert_eq!(
        (&free["state"], &free["holder"]),
        (&"free".into(), &Value::Null)
    );
    assert_eq!(free["fence"], Value::Null);
}

fn inspect_shows_many_locks_in_a_table(store: &Store) {
    let holder = store.hold();
    let done = store.verb("inspect", &["free\u{202e} one", "x"]).output();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [titles, free, held] = lines[..] else {
        panic!("{done:?}")
    };
    assert!(
        titles.starts_with("NAME ") && titles.ends_with("FENCE"),
        "{titles}"
    );
    assert!(free.starts_with("\"free\\u{202e} one\"  free"), "{free}");
    assert!(
        held.starts_with("x ") && held.ends_with(&store.number("fence").to_string()),
        "{held}"
    );
    store.let_go();
    holder.end().is(0, &[]);
}

fn inspect_lists_held_or_awaited_locks_and_forgets_free_ones(store: &Store) {
    let done = store.verb("inspect", &[]).output();
    done.is(0, &["no lock is known"]);
    assert_eq!(done.stdout, "");

    let holder = store.hold();
    let waiter = store.queue_up();
    // The client writes the index in separate requests, perhaps later.
    let listed = || {
        let report = store.json("inspect", &["--all"], 0);
        let locks = report["locks"].as_array().expect("a list").clone();
        let names = locks.iter().map(|lock| lock["name"].clone());
        names.collect::<Vec<_>>()
    };
    eventually(LIMIT, "the lock is listed", || listed() == ["x"]);
    let none = store.json("inspect", &["--limit", "0"], 0);
    assert_eq!((&none["locks"], &none["omitted"]), (&json("[]"), &1.into()));

    store.let_go();
    holder.end().is(0, &[]);
    waiter.end().is(0, &[]);
    assert!(listed().is_empty());
}

#[test]
fn a_million_other_keys_do_not_slow_the_list_down() {
    let mut store = Store::redis();
    let server = RedisServer::builder()
        .option("enable-debug-command", "yes")
        .start();
    store.url = server.url();
    store.redis = Some(server);
    let holder = store.hold();
    let waiter = store.queue_up();
    eventually(LIMIT, "the lock is listed", || {
        store.verb("inspect", &[]).output().stdout.contains("\nx ")
    });
    let server = store.server();
    let filled = server.cli(&["DEBUG", "POPULATE", "1000000", "other", "8"]);
    assert_eq!(filled.text(), "OK");

    // A busy machine makes single runs slow, but not all; a scan of a million keys takes seconds each time.
    let mut best = LIMIT;
    eventually(LIMIT, "50 ms are enough", || {
        let begun = Instant::now();
        let done = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["inspect", "--url", &store.url])
            .output()
            .expect("start leasehold");
        best = best.min(begun.elapsed());
        assert!(done.status.success(), "{done:?}");
        assert!(
            String::from_utf8_lossy(&done.stdout).contains("\nx "),
            "{done:?}"
        );
        best < Duration::from_millis(50)
    });
    println!("inspect among a million keys: {best:?}");
    let stats = server.cli(&["INFO", "commandstats"]).text();
    for search in ["cmdstat_scan", "cmdstat_keys"] {
        assert!(!stats.contains(search), "{stats}");
    }
    store.let_go();
    holder.end().is(0, &[]);
    waiter.end().is(0, &[]);
}

#[test]
fn what_makes_no_sense_is_shown_as_unknown_beside_what_does() {
    let store = Store::redis();
    let server = store.server();
    server.cli(&["SET", "{odd}:lh-queue", "7"]);
    let done = store.verb("inspect", &["odd", "even"]).output();
    done.is(78, &["unexpected answer"]);
    let rows: Vec<&str> = done.stdout.lines().skip(1).collect();
    assert!(
        rows.len() == 2 && rows[0].starts_with("odd   ?") && rows[1].starts_with("even  free"),
        "{done:?}"
    );
    // An invalid name in the index is not a lock.
    server.cli(&["SET", "a\u{1b}b", "1"]);
    server.cli(&["ZADD", "leasehold:index", "9e15", "a\u{1b}b"]);
    let done = store.verb("inspect", &[]).output();
    done.is(0, &["no lock is known"]);
}

#[test]
fn a_namespace_is_taken_off_the_names_and_hides_the_others() {
    let store = Store::local();
    let holders = ["app", "other"].map(|namespace| {
        let file = format!("{namespace}-up");
        let script = format!("touch {file}; while ! [ -e let-go ]; do sleep 0.02; done");
        let holder = store
            .run(&["--namespace", namespace, "x", "sh", "-c", &script])
            .start();
        store.until(&file);
        holder
    });
    let names = |words: &[&str]| {
        let report = store.json("inspect", words, 0);
        let locks = report["locks"].as_array().expect("a list");
        let names = locks
            .iter()
            .map(|lock| lock["name"].as_str().unwrap_or("?").to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&["--namespace", "app"]), ["x"]);
    assert_eq!(names(&[]), ["app:x", "other:x"]);
    store.let_go();
    for holder in holders {
        holder.end().is(0, &[]);
    }
}

#[test]
fn a_table_fits_the_terminal() {
    let store = Store::local();
    let long = "a-name-that-is-far-too-long-for-a-terminal-as-narrow-as-this-one";
    let script = format!(
        "stty cols 60; exec {} inspect --url {} {long} b",
        env!("CARGO_BIN_EXE_leasehold"),
        store.url
    );
    let mut session = Session::start(&["sh", "-c", &script], |_| {});
    session.until("NAME");
    session.until("\r\nb ");
    assert_eq!(session.end().code(), Some(0));
    let shown = session.shown();
    let table = &shown[shown.find("NAME").expect("a table")..];
    assert!(table.contains('…'), "{shown}");
    assert!(
        table.lines().all(|line| line.chars().count() <= 60),
        "{shown}"
    );
}

/// The server refuses writes, like one with a full disk. Operators inspect locks in such situations.
#[test]
fn a_server_that_takes_no_writes_can_be_looked_at() {
    let store = Store::redis();
    let holder = store.hold();
    let waiter = store.queue_up();
    eventually(LIMIT, "the lock is listed", || {
        store.verb("inspect", &[]).output().stdout.contains("\nx ")
    });
    let server = store.server();
    // A free lock in the index: removing it needs a write.
    server.cli(&["ZADD", "leasehold:index", "9e15", "gone"]);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = server.cli(&["SET", "any", "1"]);
    assert!(
        refused
            .error()
            .is_some_and(|error| error.starts_with("NOREPLICAS")),
        "{refused:?}"
    );
    for words in [["--all"], ["x"]] {
        let report = store.json("inspect", &words, 0);
        assert_eq!(report["locks"][0]["name"], "x");
    }
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    store.let_go();
    holder.end().is(0, &[]);
    waiter.end().is(0, &[]);
}

/// The index has the names of all users of the server.
#[test]
fn who_has_few_rights_sees_what_is_his() {
    let mut store = Store::redis();
    let url = store.url.clone();
    let port = store.server().port();
    let acl = store
        .verb("doctor", &["--quick", "--acl", "--keys", "x*"])
        .output();
    let rules: Vec<&str> = acl.stdout.trim().split(' ').collect();
    let rules = rules
        .iter()
        .map(|rule| if *rule == ">SECRET" { ">pw" } else { rule });
    assert_eq!(store.server().cli(&rules.collect::<Vec<_>>()).text(), "OK");
    store.url = format!("redis://leasehold:pw@127.0.0.1:{port}/");
    let job = store.hold();
    for foreign in ["team2:a", "team2:b"] {
        store
            .server()
            .cli(&["SET", foreign, "theirs", "PX", "3600000"]);
    }
    let names = [
        "ZADD",
        "leasehold:index",
        "1",
        "x",
        "2",
        "team2:a",
        "3",
        "team2:b",
        "4",
        "gone",
    ];
    store.server().cli(&names);

    let seen = store.verb("inspect", &[]).output();
    // A name that may be stale counts too: this user may not look.
    seen.is(
        0,
        &["3 more names are not shown: this user may not read the keys"],
    );
    assert_eq!(seen.stdout.lines().count(), 2, "{seen:?}");
    assert!(!seen.stderr.contains("NOPERM"), "{seen:?}");
    let told = store.json("inspect", &[], 0);
    assert_eq!(
        (told["hidden"].as_u64(), told["locks"][0]["name"].as_str()),
        (Some(3), Some("x"))
    );
    for (pattern, hidden) in [("x*", false), ("*", true)] {
        let watch = store.verb("watch", &[pattern]).start();
        watch.until_it_writes("x");
        watch.signal(Signal::SIGTERM);
        let done = watch.end();
        assert_eq!(
            done.stderr.contains("3 more names are not shown"),
            hidden,
            "{done:?}"
        );
    }
    let report = store
        .verb("doctor", &["--quick", "--all", "--keys", "x*"])
        .output();
    report.is(0, &[]);
    assert!(
        report
            .stdout
            .contains("3 more, which this user may not read"),
        "{report:?}"
    );
    // The lock of another user, by its name.
    store
        .verb("inspect", &["team2:a"])
        .output()
        .is(77, &["(exit 77)"]);
    store.let_go();
    assert_eq!(job.end().code(), 0);
    // This is about the user, and not about a lock.
    store
        .server()
        .cli(&["ACL", "SETUSER", "leasehold", "-eval", "-evalsha"]);
    store.verb("inspect", &[]).output().is(77, &["(exit 77)"]);
    store.url = url;
    assert_eq!(store.json("inspect", &[], 0)["hidden"].as_u64(), Some(0));
}
