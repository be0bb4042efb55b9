//! Readable input, and the errors for unreadable input.

use leasehold_lab::history::{Modes, Status, parse};
use serde_json::json;

use crate::text::{Text, campaign, complete, held, invoke};

fn small() -> Text {
    let mut text = Text::new(campaign(100));
    text.worker(1, invoke(1, 1, "acquire", "m1", "a", 10));
    text.worker(1, held(1, 1, 64, 90_000_000, 20));
    text
}

fn complaint(text: &Text) -> String {
    parse(&text.files()).unwrap_err().to_string()
}

#[test]
fn a_complaint_names_the_file_and_the_line() {
    let mut text = small();
    text.worker(1, json!({"ev": "dance", "proc": 1, "at_ns": 30}));
    let complaint = complaint(&text);
    assert!(
        complaint.starts_with("worker-1.jsonl:3: unknown variant `dance`"),
        "{complaint}"
    );
}

#[test]
fn conflicting_options_are_refused() {
    for (line, why) in [
        (complete(1, 2, "ok", 30), "the end of what never began"),
        (complete(1, 1, "ok", 30), "ended twice"),
        (
            invoke(1, 1, "release", "m1", "a", 30),
            "the number of this operation is taken",
        ),
        (
            invoke(2, 2, "release", "m1", "a", 30),
            "the line of another process",
        ),
    ] {
        let mut text = small();
        text.worker(1, line);
        assert_eq!(complaint(&text), format!("worker-1.jsonl:3: {why}"));
    }
}

#[test]
fn torn_line_is_skipped_only_at_end_of_killed_worker() {
    let mut text = small();
    let torn = |text: &Text, tear: &str| {
        let mut files = text.files();
        files.get_mut("worker-1.jsonl").unwrap().push_str(tear);
        parse(&files).map(|_| ())
    };
    assert!(torn(&text, "{\"ev\":\"inv").is_err(), "nobody killed it");
    let fault = json!({"ev": "fault", "kind": "kill-worker", "target": "worker-1", "at_ns": 50});
    text.add("nemesis.jsonl", fault);
    assert!(torn(&text, "{\"ev\":\"inv").is_ok());
    assert!(torn(&text, "{\"ev\":\"inv\n").is_err(), "a whole line");
    assert!(
        torn(&text, "{\"ev\":\"inv\n{}").is_err(),
        "not the last line"
    );
}

#[test]
fn a_history_in_which_nothing_happened_is_invalid() {
    let text = Text::new(campaign(100));
    let verdict = text.judge().unwrap();
    let Status::Invalid(why) = verdict.status else {
        panic!("{verdict}");
    };
    assert!(why.contains("no lock was ever acquired"), "{why}");
}

#[test]
fn the_clock_of_a_process_does_not_go_back() {
    let mut text = small();
    // With its release before its acquire, a lease would be valid for no time, and two could be so at once.
    text.worker(1, invoke(1, 2, "release", "m1", "a", 19));
    assert_eq!(complaint(&text), "worker-1.jsonl:3: the clock goes back");
}

#[test]
fn an_owner_is_of_one_process_and_a_process_has_one_file() {
    let mut text = small();
    text.worker(2, invoke(2, 1, "acquire", "m1", "a", 30));
    assert_eq!(
        complaint(&text),
        "worker-2.jsonl:1: the owner of another process's acquisition"
    );
    for twin in ["worker-01.jsonl", "worker-+1.jsonl"] {
        let mut text = small();
        text.add(twin, invoke(1, 1, "acquire", "m1", "b", 30));
        assert_eq!(complaint(&text), format!("{twin}: no number of a process"));
    }
}

#[test]
fn fault_hits_only_possible_targets() {
    for (kind, target) in [
        ("kill-worker", "server"),
        ("kill-worker", "worker-x"),
        ("kill-server", "worker-1"),
        ("memory", "sever"),
        ("stop-worker", "node-1"),
        ("flush", "node-01"),
    ] {
        let mut text = small();
        text.add(
            "nemesis.jsonl",
            json!({"ev": "fault", "kind": kind, "target": target, "at_ns": 5}),
        );
        assert_eq!(
            complaint(&text),
            "nemesis.jsonl:1: nothing that this can happen to"
        );
    }
}

#[test]
fn modes_and_slots_are_read_or_refused() {
    let of = |mode: &str, slot: Option<u64>| {
        let mut text = Text::new(campaign(100));
        let mut begin = invoke(1, 1, "acquire", "m1", "a", 10);
        begin["mode"] = mode.into();
        let mut end = held(1, 1, 64, 90_000_000, 20);
        end["slot"] = slot.into();
        text.worker(1, begin);
        text.worker(1, end);
        text
    };
    for (mode, slot) in [("exclusive", None), ("shared", None), ("slot/4", Some(2))] {
        let counts = of(mode, slot).judge().unwrap().counts;
        let Modes {
            exclusive,
            shared,
            slots,
        } = counts.acquired;
        assert_eq!(exclusive + shared + slots, 1, "{mode}");
    }
    for mode in ["slot", "slot/x", "slot/04", "slot/65536", "Shared", ""] {
        let complaint = complaint(&of(mode, Some(2)));
        let says = format!("worker-1.jsonl:1: unknown mode `{mode}`");
        assert!(complaint.starts_with(&says), "{complaint}");
    }
    for (mode, slot) in [
        ("slot/4", None),
        ("shared", Some(1)),
        ("exclusive", Some(1)),
    ] {
        let why = "worker-1.jsonl:2: a slot has a number, and nothing else has";
        assert_eq!(complaint(&of(mode, slot)), why);
    }
}

#[test]
fn first_format_is_read_and_later_ones_are_refused() {
    for (format, is_known) in [(0, false), (1, true), (2, true), (3, false)] {
        let mut text = small();
        text.0.get_mut("campaign.json").unwrap()[0]["format"] = format.into();
        let read = parse(&text.files()).map(drop);
        assert_eq!(read.is_ok(), is_known, "format {format}: {read:?}");
    }
}

#[test]
fn break_without_its_lock_or_fence_is_refused() {
    let whole = json!({"ev": "fault", "kind": "break-lock", "target": "server", "at_ns": 5, "lock": "m1", "fence": 64});
    for left_out in ["lock", "fence"] {
        let mut line = whole.clone();
        line[left_out] = serde_json::Value::Null;
        let mut text = small();
        text.add("nemesis.jsonl", line);
        let why = "nemesis.jsonl:1: a lock is broken by its name and a fence";
        assert_eq!(complaint(&text), why);
    }
    let mut text = small();
    text.add("nemesis.jsonl", whole);
    assert!(parse(&text.files()).is_ok());
}
