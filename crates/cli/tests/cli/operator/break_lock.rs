//! `break`, and the common rules of the operator's verbs.

use serde_json::Value;

use super::json;
use crate::common::{self, Store, on_each_store};

on_each_store! {
    break_frees_what_was_meant_and_nothing_else,
}

fn break_frees_what_was_meant_and_nothing_else(store: &Store) {
    let done = store.verb("break", &["x", "--if-fence", "1"]).output();
    done.is(0, &["\"x\" is free already: nothing was broken"]);

    let holder = store.hold();
    let fence = store.number("fence");
    let (wrong, right) = ((fence - 1).to_string(), fence.to_string());
    let done = store.verb("break", &["x", "--if-fence", &wrong]).output();
    done.is(
        75,
        &[
            &format!("\"x\" is not held with fence {wrong}: nothing was broken (exit 75)"),
            &format!("(pid {}: sh), held ", holder.pid()),
            &format!(
                "next    leasehold break --if-fence {right} --url {} x",
                store.pasted_url()
            ),
        ],
    );
    assert!(store.is_held("x"));
    let report = store.json("break", &["x", "--if-fence", &wrong], 75);
    assert_eq!(
        (&report["outcome"], &report["fence"]),
        (&"held".into(), &fence.into())
    );

    // The holder cannot learn of the break for now.
    holder.stop();
    let done = store
        .verb("break", &["--json", "x", "--if-fence", &right])
        .output();
    done.is(
        0,
        &[
            "\"x\" was broken: it was held by ",
            "at its next renewal, within ",
        ],
    );
    let report = json(&done.stdout);
    assert_eq!(report["schema"], "leasehold.break/1");
    assert_eq!(report["outcome"], "broken");
    assert_eq!(report["holder"]["pid"], holder.pid().as_raw());
    assert!(report["told_within_ms"].is_u64(), "{report}");
    assert!(!store.is_held("x"));
}

#[test]
fn break_without_a_fence_says_what_to_type() {
    let store = &Store::local();
    store
        .verb("break", &["x"])
        .output()
        .is(64, &["--if-fence is missing", "nothing to break"]);
    let holder = store.hold();
    let fence = store.number("fence");
    store.verb("break", &["x"]).output().is(
        64,
        &[
            "--if-fence is missing",
            "(exit 64)",
            &format!("(pid {}: sh), held ", holder.pid()),
            &format!(
                "next    leasehold break --if-fence {fence} --url {} x",
                store.pasted_url()
            ),
        ],
    );
    assert_eq!(store.json("break", &["x"], 64)["outcome"], "refused");
    assert!(store.is_held("x"));
    store.let_go();
    holder.end().is(0, &[]);
}

#[test]
fn names_that_break_a_rule_are_refused() {
    let store = Store::local();
    for verb in ["inspect", "wait", "watch", "break"] {
        store.verb(verb, &[""]).output().is(64, &["lock name"]);
    }
    store
        .verb("watch", &["--interval", "1ms"])
        .output()
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

    let done = store.verb("inspect", &["py"]).output();
    assert!(
        done.stdout
            .contains("a foreign lock: string d2f1..., looks like redis-py's (")
            && !done.stdout.contains(&token[..5]),
        "{done:?}"
    );
    let done = store.verb("inspect", &["jvm"]).output();
    assert!(
        done.stdout
            .contains("a foreign lock: hash, looks like Redisson's")
            && done.stdout.contains("NEVER ENDS"),
        "{done:?}"
    );
    let done = store.verb("inspect", &["py", "jvm", "secret"]).output();
    assert!(
        done.stdout.contains("(foreign hash: Redisson?)")
            && done.stdout.contains("FOR EVER")
            && !done.stdout.contains("hunter2"),
        "{done:?}"
    );
    let report = store.json("inspect", &["jvm"], 0);
    let lock = &report["locks"][0];
    assert_eq!(lock["holder"]["kind"], "foreign");
    assert_eq!(lock["holder"]["format"], "Redisson");
    assert_eq!(lock["lease_ms"], Value::Null);

    for words in [
        ["break", "jvm"].as_slice(),
        &["break", "py", "--if-fence", "5"],
    ] {
        let (verb, rest) = words.split_first().expect("a verb");
        store.verb(verb, rest).output().is(
            78,
            &[
                "another program",
                "never breaks a foreign lock",
                "looks like ",
            ],
        );
    }
    assert_eq!(server.cli(&["GET", "py"]).text(), token);
    assert_eq!(server.cli(&["HLEN", "jvm"]).int(), 1);

    let watching = store.verb("watch", &["--interval", "50ms", "jvm"]).start();
    watching.until_it_writes("held        \"jvm\", a foreign client (hash, looks like Redisson's)");
    watching.until_it_writes("immortal    \"jvm\"");
}

#[test]
fn silent_store_is_exit_69_without_mention_of_a_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let nobody = testkit::ReservedPort::new();
    let url = format!("redis://:C4N4RY@127.0.0.1:{}/", nobody.number());
    for verb in ["inspect", "wait", "watch", "break"] {
        let done = common::Run::verb(dir.path(), verb)
            .words(&["--url", &url, "x"])
            .output();
        done.is(69, &["cannot connect"]);
        assert!(
            !done.stderr.contains("command") && !done.stderr.contains("C4N4RY"),
            "{done:?}"
        );
    }
}
