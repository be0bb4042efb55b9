//! `break`, and the common rules of the operator's verbs.

use serde_json::Value;

use crate::common::{Running, Store, on_each_store};

on_each_store! {
    break_frees_what_was_meant_and_nothing_else,
}

/// What an operator is told who has not named the holder's fence.
fn next_step(store: &Store, holder: &Running) -> [String; 2] {
    let (fence, url) = (store.number("fence"), store.pasted_url());
    [
        format!("(pid {}: sh), held ", holder.pid()),
        format!("next    leasehold break --if-fence {fence} --url {url} x"),
    ]
}

fn break_frees_what_was_meant_and_nothing_else(store: &Store) {
    let free = store.verb("break", "x --if-fence 1");
    free.is(0, &["\"x\" is free already: nothing was broken"]);

    let holder = store.hold();
    let fence = store.number("fence");
    let wrong = format!("x --if-fence {}", fence - 1);
    let not_held = format!("with fence {}: nothing was broken (exit 75)", fence - 1);
    let [held_by, next] = next_step(store, &holder);
    store
        .verb("break", &wrong)
        .is(75, &[&not_held, &held_by, &next]);
    assert!(store.is_held("x"));
    let report = store.json("break", &wrong, 75);
    assert_eq!(report["outcome"], "held");
    assert_eq!(report["fence"], fence);

    // The holder cannot learn of the break for now.
    holder.stop();
    let right = store.verb("break", &format!("--json x --if-fence {fence}"));
    let broken = "\"x\" was broken: it was held by ";
    let done = right.is(0, &[broken, "at its next renewal, within "]);
    let report = done.json();
    assert_eq!(report["schema"], "leasehold.break/1");
    assert_eq!(report["outcome"], "broken");
    assert_eq!(report["holder"]["pid"], holder.pid().as_raw());
    assert!(report["told_within_ms"].is_u64(), "{report}");
    assert!(!store.is_held("x"));
}

#[test]
fn break_without_a_fence_says_what_to_type() {
    let store = &Store::local();
    let missing = "--if-fence or --holder is missing";
    store
        .verb("break", "x")
        .is(64, &[missing, "nothing to break"]);
    let holder = store.hold();
    let [held_by, next] = next_step(store, &holder);
    store.verb("break", "x").is(64, &[missing, &held_by, &next]);
    assert_eq!(store.json("break", "x", 64)["outcome"], "refused");
    assert!(store.is_held("x"));
}

#[test]
fn names_that_break_a_rule_are_refused() {
    let store = Store::local();
    for verb in ["inspect", "wait", "watch", "break"] {
        store.verb(verb, &[""]).is(64, &["lock name"]);
    }
    store
        .verb("watch", "--interval 1ms")
        .is(64, &["at least 50ms"]);
}

#[test]
fn another_program_s_lock_is_named_and_never_broken() {
    let store = Store::redis();
    let server = store.server();
    let token = "d2f1c9a08c3b11ef9d3c0242ac120002";
    server.cli(&["SET", "py", token, "PX", "60000"]);
    server.cli(&["HSET", "jvm", "9b2e6f0a-6f0c-4c52-a5a6-3a2f6f6f0e11:1", "1"]);
    server.cli(&["SET", "secret", "hunter2"]);

    let py = "a foreign lock: string d2f1..., looks like redis-py's (";
    let jvm = "a foreign lock: hash, looks like Redisson's";
    for (names, shown) in [
        ("py", &[py][..]),
        ("jvm", &[jvm, "NEVER ENDS"]),
        ("py jvm secret", &["(foreign hash: Redisson?)", "FOR EVER"]),
    ] {
        let done = store.verb("inspect", names).output();
        done.shows(shown);
        let tells = ["hunter2", &token[..5]].map(|value| done.stdout.contains(value));
        assert_eq!(tells, [false; 2], "{done:?}");
    }
    let report = store.json("inspect", "jvm", 0);
    let lock = &report["locks"][0];
    assert_eq!(lock["holder"]["kind"], "foreign");
    assert_eq!(lock["holder"]["format"], "Redisson");
    assert_eq!(lock["lease_ms"], Value::Null);

    for words in ["jvm", "py --if-fence 5"] {
        let says = [
            "another program",
            "never breaks a foreign lock",
            "looks like ",
        ];
        store.verb("break", words).is(78, &says);
    }
    assert_eq!(server.cli(&["GET", "py"]).text(), token);
    assert_eq!(server.cli(&["HLEN", "jvm"]).int(), 1);

    let watching = store.verb("watch", "--interval 50ms jvm").start();
    watching.until_it_writes("held        \"jvm\", a foreign client (hash, looks like Redisson's)");
    watching.until_it_writes("immortal    \"jvm\"");
}

#[test]
fn silent_store_is_exit_69_without_mention_of_a_command() {
    let nobody = testkit::ReservedPort::new();
    let mut store = Store::local();
    store.url = format!("redis://:C4N4RY@127.0.0.1:{}/", nobody.number());
    for verb in ["inspect", "wait", "watch", "break"] {
        let done = store.verb(verb, "x").is(69, &["cannot connect"]);
        let misleads = ["command", "C4N4RY"].map(|word| done.stderr.contains(word));
        assert_eq!(misleads, [false; 2], "{done:?}");
    }
}
