//! `watch`: changes of locks.

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::{FaultProxy, eventually};

use crate::common::{LEASEHOLD, LIMIT, Store, json, on_each_store};

on_each_store! {
    watch_tells_of_each_change_and_ends_by_a_signal,
}

fn watch_tells_of_each_change_and_ends_by_a_signal(store: &Store) {
    let watching = store.verb("watch", "--json --interval 50ms x").start();
    let words = store.verb("watch", "--interval 0.05 x").start();
    let told_that = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        let mut found = Value::Null;
        eventually(LIMIT, what, || {
            let text = watching.written();
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            found = whole.lines().map(json).find(is_it).unwrap_or_default();
            !found.is_null()
        });
        found
    };
    let told = |event: &str, fence: Option<u64>| {
        let has_fence = |one: &Value| fence.is_none_or(|fence| one["fence"] == fence);
        told_that(event, &|one| one["event"] == event && has_fence(one))
    };
    let told_released = |fence: u64| {
        let is_it = |one: &Value| one["event"] == "released" && one["before"]["fence"] == fence;
        told_that("released", &is_it);
    };
    let free = told("free", None);
    words.until_it_writes("free        \"x\"");
    assert_eq!(free["initial"], true);
    assert_eq!(free["schema"], "leasehold.watch/1");
    let time = free["time"].as_str().expect("a time");
    assert!(time.ends_with('Z'), "{time}");

    let holder = store.hold();
    let fence = store.number("fence");
    let acquired = told("acquired", Some(fence));
    words.until_it_writes("acquired    \"x\"");
    assert_eq!(acquired["initial"], false);
    assert_eq!(acquired["name"], "x");
    assert_eq!(acquired["holder"]["pid"], holder.pid().as_raw());

    let script = "echo $LEASEHOLD_FENCE > second; while ! [ -e done ]; do sleep 0.02; done";
    let waiter = store.script("x", script).start();
    assert_eq!(told("queue", None)["queue"], 1);
    store.let_go();
    let second = store.number("second");
    let handed_over = told_that("the second holds", &|one| {
        let is_held = one["event"] == "handed_over" || one["event"] == "acquired";
        is_held && one["fence"] == second
    });
    // Between the votes of two nodes, no majority holds the lock. Elsewhere the hand-over is one step.
    if handed_over["event"] == "acquired" {
        assert!(!store.quorum.is_empty(), "{handed_over}");
        told_released(fence);
    } else {
        assert_eq!(handed_over["before"]["fence"], fence);
    }
    assert_eq!(handed_over["holder"]["pid"], waiter.pid().as_raw());
    store.touch("done");
    told_released(second);
    holder.ends(0, &[]);
    waiter.ends(0, &[]);

    watching.signal(Signal::SIGTERM);
    watching.ends(143, &[]);
    words.until_it_writes("released    \"x\", fence ");
    words.signal(Signal::SIGINT);
    let done = words.ends(130, &[]);
    assert_eq!(done.stderr, "");
    let acquired = format!("Z acquired    \"x\", fence {fence}, ");
    done.shows(&["Z free        \"x\"\n", &acquired]);
}

#[test]
fn watch_outlives_a_store_that_fails_for_a_while() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    let direct = std::mem::replace(&mut store.url, proxy.url());
    let watching = store.verb("watch", "--interval 50ms --json x").start();
    store.url = direct;
    watching.until_it_writes("\"event\":\"free\"");
    proxy.refuse(true);
    proxy.cut();
    watching.until_it_writes("\"event\":\"unanswered\"");
    proxy.refuse(false);
    watching.until_it_writes("\"event\":\"answered\"");
    let holder = store.hold();
    watching.until_it_writes("\"event\":\"acquired\"");
    let text = watching.written();
    let outages = text.matches("\"event\":\"unanswered\"").count();
    assert_eq!(outages, 1, "{text}");
    store.let_go();
    holder.ends(0, &[]);
}

#[test]
fn watch_finds_by_a_pattern_what_is_in_the_index() {
    let store = Store::local();
    let watching = store.verb("watch", "--interval 50ms a*").start();
    for name in ["b1", "a1"] {
        let file = format!("{name}-go");
        let script = format!("while ! [ -e {file} ]; do sleep 0.02; done");
        let holder = store.script(name, &script).start();
        eventually(LIMIT, "it is held", || store.is_held(name));
        if name == "a1" {
            watching.until_it_writes("acquired    \"a1\"");
        }
        store.touch(&file);
        holder.ends(0, &[]);
    }
    watching.until_it_writes("released    \"a1\"");
    assert!(!watching.written().contains("b1"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let store = Store::local();
    let url = &store.url;
    let script = format!(
        "{LEASEHOLD} watch --url {url} --interval 50ms x | head -n 1; echo ${{PIPESTATUS[0]}}"
    );
    let mut reader = store.program(&["bash", "-c", &script]).start();
    // `watch` ends at its next line, since no process reads it.
    eventually(LIMIT, "it ends", || {
        store.run("x sleep 0.2").is(0, &[]);
        reader.has_ended()
    });
    let text = reader.end().stdout;
    assert!(text.ends_with("\n0\n"), "{text:?}");
}

#[test]
fn watch_never_reports_lock_of_unknown_state_as_free() {
    let store = Store::redis();
    let server = store.redis.as_ref().expect("a Redis");
    server.cli(&["SET", "{odd}:lh-queue", "7"]);
    let done = store
        .verb("watch", "odd")
        .is(78, &["a key beside the lock holds something else"]);
    assert_eq!(done.stdout, "");
}
