//! `--also`: several locks, all or none.

use nix::sys::signal::Signal;
use testkit::eventually;

use crate::common::{LEASEHOLD, LIMIT, Running, Store, json, lives, on_each_store};

on_each_store! {
    all_locks_are_held_and_told,
    a_busy_lock_leaves_none,
    the_loss_of_the_second_lock_stops_the_command,
}

/// Holds `lock` until the test lets it go.
fn hold(store: &Store, lock: &str) -> Running {
    let script = "echo $LEASEHOLD_FENCE > fence; while ! [ -e let-go ]; do sleep 0.02; done";
    let holder = store.script(lock, script).start();
    store.all_vote(lock, store.number("fence"));
    holder
}

fn are_free(store: &Store, locks: &[&str]) {
    for lock in locks {
        store.run(&["-n", *lock, "true"]).is(0, &[]);
    }
}

fn all_locks_are_held_and_told(store: &Store) {
    let script = format!(
        r#"
        echo "$LEASEHOLD_LOCKS"
        echo "$LEASEHOLD_LOCK $LEASEHOLD_FENCE"
        {LEASEHOLD} check && {LEASEHOLD} inspect --json c a b
        for lock in a b c; do {LEASEHOLD} run -w 1h $lock true; echo $?; done
        {LEASEHOLD} run d sh -c 'echo ${{LEASEHOLD_LOCKS-none}}'"#
    );
    let words = "--report report --also a --also c b";
    let done = store
        .script(words, &script)
        .is(0, &["you already hold this lock"]);
    let mut lines = done.stdout.lines();
    let locks = json(lines.next().expect("the locks"));
    let names = || locks.as_array().expect("a list").iter();
    assert!(names().map(|it| &it["name"]).eq(["b", "a", "c"]), "{locks}");
    assert!(names().all(|it| it["mode"] == "exclusive"), "{locks}");
    let first = format!("b {}", locks[0]["fence"]);
    assert_eq!(lines.next(), Some(first.as_str()));
    let inspected = json(lines.next().expect("a document"));
    for (held, at) in inspected["locks"]
        .as_array()
        .expect("a list")
        .iter()
        .zip([2, 1, 0])
    {
        assert_eq!(held["holder"]["note"], "sh", "{held}");
        if store.quorum.is_empty() {
            assert_eq!(held["fence"], locks[at]["fence"], "{held}");
        }
    }
    assert!(lines.eq(["64", "64", "64", "none"]), "{done:?}");
    let report = store.document("report");
    assert_eq!((&report["lock"], &report["locks"]), (&"b".into(), &locks));
    assert_eq!(report["outcome"], "ended");
    assert!(report["lost_lock"].is_null(), "{report}");
    are_free(store, &["a", "b", "c"]);
}

fn a_busy_lock_leaves_none(store: &Store) {
    let holder = hold(store, "b");
    let both = |words: &str| {
        store
            .run(words)
            .words("--report report --also b --also c a touch ran")
    };
    let says = [
        "\"b\" is busy (exit 75)",
        "holder ",
        "run --also=b --also=c -w 5m ",
    ];
    both("-n").is(75, &says);
    both("-w 1").is(124, &["\"b\" is still busy after ", "(exit 124)"]);
    for outcome in ["timeout", "busy"] {
        let report = store.document("report");
        assert_eq!(
            (&report["outcome"], &report["busy_lock"]),
            (&outcome.into(), &"b".into())
        );
        assert_eq!(report["holder"]["note"], "sh");
        both("-q -n").says_nothing(75);
    }
    both("--max-waiters 0").is(75, &["\"b\" is busy, and 0 wait already"]);
    both("--skip").says_nothing(0);
    are_free(store, &["a", "c"]);
    let waits = both("").start();
    waits.until_it_says("waiting for \"b\", 1st in line");
    // While it waits, it holds what comes before.
    store.run("-n c true").is(0, &[]);
    store.run("-n a true").is(75, &[]);
    store.let_go();
    holder.ends(0, &[]);
    waits.ends(0, &["got \"a\" after "]);
    assert!(store.file("ran").exists());
}

fn the_loss_of_the_second_lock_stops_the_command(store: &Store) {
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let words = "--ttl 6s --report report --also b a";
    let running = store.script(words, script).start();
    let pid = store.number("pid");
    let fence = store.json("inspect", "b", 0)["locks"][0]["fence"].to_string();
    store
        .verb("break", &["b", "--if-fence", &fence])
        .is(0, &["was broken"]);
    let says = [
        "\"b\" was lost, stopping",
        "the lease on \"b\" (fence ",
        "(exit 79)",
    ];
    running.ends(79, &says);
    eventually(LIMIT, "it is dead", || !lives(pid));
    let report = store.document("report");
    assert_eq!(
        (&report["outcome"], &report["lost_lock"]),
        (&"lost".into(), &"b".into())
    );
    are_free(store, &["a", "b"]);
}

#[test]
fn options_count_for_all_locks() {
    let store = Store::local();
    let kept = store.run("--at-least 1h --also b a true");
    kept.is(0, &[]);
    store.run("-n a true").is(75, &[]);
    store.run("-n b true").is(75, &["left, unless renewed"]);
    let words = "--max-hold 500ms --also d --report report c sleep 1000";
    let says = "\"c\" (with \"d\") reached its time limit";
    store.run(words).is(79, &[says, "--max-hold"]);
    assert!(store.document("report")["lost_lock"].is_null());
    are_free(&store, &["c", "d"]);
    let script = "while ! [ -e go ]; do sleep 0.02; done & touch ready";
    let running = store.script("--also d c", script).start();
    running.until_it_says("\"c\" (with \"d\") is kept until they end");
    running.signal(Signal::SIGTERM);
    running.end();
    are_free(&store, &["c", "d"]);
}

#[test]
fn what_cannot_be_taken_together_is_refused() {
    let store = Store::local();
    let many: Vec<String> = (0..32).map(|n| format!("--also={n}")).collect();
    store
        .run(&format!("{} x touch ran", many.join(" ")))
        .is(64, &["33", "1 to 32 locks"]);
    store
        .run(&format!("{} x true", many[1..].join(" ")))
        .is(0, &[]);
    for (words, says) in [
        ("--also x x touch ran", "\"x\": is there twice"),
        ("--also y --also y x touch ran", "\"y\": is there twice"),
        ("--also y --once a x touch ran", "checks one lock only"),
        ("--also y --protocol timestamp x touch ran", "no queue"),
        ("--also= x touch ran", "is empty"),
    ] {
        store.run(words).is(64, &[says, "(exit 64)"]);
    }
    assert!(!store.file("ran").exists());
}
