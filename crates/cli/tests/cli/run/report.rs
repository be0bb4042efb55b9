//! `--report`: the document about the end of a run.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::eventually;

use crate::common::{Done, LEASEHOLD, LIMIT, Store, on_each_store};

on_each_store! {
    a_run_without_the_lock_reports_who_has_it,
}

/// The report of a run, which it ends with.
fn told(store: &Store) -> Value {
    let told = store.document("report");
    fs::remove_file(store.file("report")).expect("it is there");
    told
}

fn a_run_without_the_lock_reports_who_has_it(store: &Store) {
    let holder = store.hold();
    store.all_vote("x", store.number("fence"));
    let held = store.json("inspect", "x", 0)["locks"][0].clone();
    assert_eq!(held["holder"]["note"], "sh");
    let names_holder = |outcome: &str| {
        let told = told(store);
        assert_eq!(told["outcome"], outcome, "{told}");
        assert_eq!(told["holder"], held["holder"], "{told}");
        assert_eq!(told["holder_fence"], held["fence"], "{told}");
        let since = |told: &Value| told["held_for_ms"].as_u64();
        assert!(since(&told) >= since(&held), "{told}");
        assert!(told["fence"].is_null() && told["held_ms"].is_null());
        told["waited_ms"].as_u64().expect("a number")
    };
    let to_report = |words: &str| store.run("--report report").words(words).words("x true");
    for words in ["-n", "-q -n", "-n -E 4", "--skip", "--max-waiters 0"] {
        to_report(words).output();
        names_holder("busy");
    }
    for words in ["-w 1", "--skip -w 1"] {
        to_report(words).output();
        assert!(names_holder("timeout") >= 1_000);
    }
    let waiting = to_report("").start();
    waiting.until_it_says("waiting for");
    waiting.signal(Signal::SIGTERM);
    waiting.end();
    names_holder("interrupted");
    store.let_go();
    holder.ends(0, &[]);

    // A lock that an outer run holds is refused.
    let leasehold = LEASEHOLD;
    let inner = format!("{leasehold} run --report inner y true; {leasehold} inspect --json y");
    let outer = store.script("--report outer y", &inner).output();
    let inner = store.document("inner");
    assert_eq!(inner["outcome"], "refused");
    let of_outer = store.document("outer");
    assert_eq!(inner["holder_fence"], of_outer["fence"]);
    assert_eq!(inner["holder"], outer.json()["locks"][0]["holder"]);
    assert!(of_outer["holder"].is_null());
}

/// Such a lock has no owner and no fence.
#[test]
fn a_busy_timestamp_lock_reports_the_wait() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "99999999999"]);
    let words = "--report report --protocol timestamp -w 1 x true";
    store.run(words).is(124, &[]);
    let told = told(&store);
    assert!(told["waited_ms"].as_u64() >= Some(1_000), "{told}");
    assert!(told["holder"].is_null(), "{told}");
}

#[test]
fn the_report_tells_all_ends_apart() {
    let store = Store::local();
    let run = |words: &[&str]| -> (Done, Value) {
        let done = store.run("--report report").words(words).output();
        (done, told(&store))
    };
    let (_, ended) = run(&["x", "sh", "-c", "exit 75"]);
    for field in ["fence", "held_ms"] {
        assert!(ended[field].is_u64(), "{field}: {ended}");
    }
    for (field, value) in [
        ("schema", "\"leasehold.report/1\""),
        ("outcome", "\"ended\""),
        ("exit_code", "75"),
        ("command_code", "75"),
        ("command_signal", "null"),
        ("lock", "\"x\""),
        ("started", "true"),
        ("released", "true"),
        ("lost_cause", "null"),
    ] {
        assert_eq!(ended[field].to_string(), value, "{field}: {ended}");
    }
    let (_, killed) = run(&["x", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(killed["command_signal"], 9);
    assert_eq!(killed["exit_code"], 137);

    let _holder = store.hold();
    for (words, outcome, code) in [
        (&["-n", "x", "true"][..], "busy", 75),
        (&["-n", "-E", "4", "x", "true"], "busy", 4),
        (&["--skip", "x", "true"], "busy", 0),
        (&["-w", "1", "x", "true"], "timeout", 124),
        (&["", "true"], "refused", 64),
        (&["x", "no-such-command"], "not_found", 127),
        (&["x", "/"], "not_executable", 126),
    ] {
        let (done, report) = run(words);
        assert_eq!(done.code(), code, "{report}");
        assert_eq!(report["outcome"], outcome, "{report}");
        assert_eq!(report["exit_code"], code, "{report}");
        assert_eq!(report["started"], false);
    }
    let words = "--url redis://127.0.0.1:1/ --report report x true";
    let nobody = crate::common::Run::new(store.dir.path()).words(words);
    nobody.is(69, &[]);
    assert_eq!(told(&store)["outcome"], "unavailable");
    // No temporary file is left.
    let mut left = fs::read_dir(store.dir.path()).unwrap().flatten();
    let is_ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".report");
    assert!(!left.any(is_ours));
}

#[test]
fn unwritable_report_is_an_error_before_the_lock_is_taken() {
    let store = Store::local();
    for to in ["no/such/directory/report", "fd:77", "fd:x", ""] {
        let run = store.run(&["--report", to, "x", "touch", "ran"]);
        run.is(78, &["the report cannot be written", "(exit 78)"]);
    }
    assert!(!store.file("ran").exists());
    // To a file descriptor, which the command does not get.
    let line = format!(
        "{} run --url {} --report fd:5 x sh -c '! [ -e /proc/self/fd/5 ]' 5> report",
        LEASEHOLD, store.url
    );
    let mut sh = Command::new("sh");
    let status = sh
        .args(["-c", &line])
        .current_dir(store.dir.path())
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    eventually(LIMIT, "the report", || store.file("report").exists());
    assert_eq!(told(&store)["outcome"], "ended");
}

#[test]
fn a_report_is_not_written_through_a_link_that_others_have_laid() {
    let store = Store::local();
    fs::write(store.file("victim"), "precious").unwrap();
    let script = format!(
        "ln -s victim .report.$$ && exec {} run --url '{}' --report report x true",
        LEASEHOLD, store.url
    );
    store.script("y", &script).says_nothing(0);
    let victim = fs::read_to_string(store.file("victim")).unwrap();
    assert_eq!(victim, "precious");
    assert_eq!(told(&store)["outcome"], "ended");
}
