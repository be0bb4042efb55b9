//! `--report`: the document about the end of a run.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use testkit::eventually;

use super::report;
use crate::common::{self, Done, LIMIT, Store, on_each_store};

on_each_store! {
    a_run_without_the_lock_reports_who_has_it,
}

fn a_run_without_the_lock_reports_who_has_it(store: &Store) {
    let holder = store.hold();
    store.all_vote("x", store.number("fence"));
    let inspected = |lock: &str| {
        let done = store.verb("inspect", &["--json", lock]).output();
        report(&done.stdout)["locks"][0].clone()
    };
    let held = inspected("x");
    assert_eq!(held["holder"]["note"], "sh");
    let read = |name: &str| report(&fs::read_to_string(store.file(name)).expect("a report"));
    let names_holder = |outcome: &str| {
        let told = read("report");
        fs::remove_file(store.file("report")).expect("it is there");
        assert_eq!(told["outcome"], outcome, "{told}");
        assert_eq!(told["holder"], held["holder"], "{told}");
        assert_eq!(told["holder_fence"], held["fence"], "{told}");
        let since = |told: &serde_json::Value| told["held_for_ms"].as_u64();
        assert!(since(&told) >= since(&held), "{told}");
        assert!(told["fence"].is_null() && told["held_ms"].is_null());
        told["waited_ms"].as_u64().expect("a number")
    };
    let to_report = |words: &[&str]| store.run(&["--report", "report"]).words(words);
    for words in [
        ["-n"].as_slice(),
        &["-q", "-n"],
        &["-n", "-E", "4"],
        &["--skip"],
        &["--max-waiters", "0"],
    ] {
        to_report(words).words(&["x", "true"]).output();
        names_holder("busy");
    }
    for words in [["-w", "1"].as_slice(), &["--skip", "-w", "1"]] {
        to_report(words).words(&["x", "true"]).output();
        assert!(names_holder("timeout") >= 1_000);
    }
    let waiting = to_report(&["x", "true"]).start();
    waiting.until_it_says("waiting for");
    waiting.signal(Signal::SIGTERM);
    waiting.end();
    names_holder("interrupted");
    store.let_go();
    holder.end().is(0, &[]);

    // A lock that an outer run holds is refused.
    let inner = format!(
        "{} run --report inner y true; {0} inspect --json y",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let words = ["--report", "outer", "y", "sh", "-c", &inner];
    let outer = store.run(&words).output();
    let inner = read("inner");
    assert_eq!(inner["outcome"], "refused");
    assert_eq!(inner["holder_fence"], read("outer")["fence"]);
    let held = &report(&outer.stdout)["locks"][0];
    assert_eq!(inner["holder"], held["holder"]);
    assert!(read("outer")["holder"].is_null());
}

/// Such a lock has no owner and no fence.
#[test]
fn a_busy_timestamp_lock_reports_the_wait() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "99999999999"]);
    let words = ["--report", "report", "--protocol", "timestamp", "-w", "1"];
    let done = store.run(&words).words(&["x", "true"]).output();
    assert_eq!(done.code(), 124, "{done:?}");
    let told = report(&fs::read_to_string(store.file("report")).unwrap());
    assert!(told["waited_ms"].as_u64() >= Some(1_000), "{told}");
    assert!(told["holder"].is_null(), "{told}");
}

#[test]
fn the_report_tells_all_ends_apart() {
    let store = Store::local();
    let told = |words: &[&str]| -> (Done, serde_json::Value) {
        let done = store.run(&["--report", "report"]).words(words).output();
        let text = fs::read_to_string(store.file("report")).unwrap();
        fs::remove_file(store.file("report")).unwrap();
        (done, report(&text))
    };
    let (_, ended) = told(&["x", "sh", "-c", "exit 75"]);
    assert!(
        ended["fence"].as_u64().is_some() && ended["held_ms"].as_u64().is_some(),
        "{ended}"
    );
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
    let (_, killed) = told(&["x", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(
        (
            killed["command_signal"].as_i64(),
            killed["exit_code"].as_i64()
        ),
        (Some(9), Some(137))
    );

    let _holder = store.hold();
    for (words, outcome, code) in [
        (["-n", "x", "true"].as_slice(), "busy", 75),
        (&["-n", "-E", "4", "x", "true"], "busy", 4),
        (&["--skip", "x", "true"], "busy", 0),
        (&["-w", "1", "x", "true"], "timeout", 124),
        (&["", "true"], "refused", 64),
        (&["x", "no-such-command"], "not_found", 127),
        (&["x", "/"], "not_executable", 126),
    ] {
        let (done, report) = told(words);
        assert_eq!(
            (
                report["outcome"].as_str(),
                report["exit_code"].as_i64(),
                done.code()
            ),
            (Some(outcome), Some(code.into()), code),
            "{report}"
        );
        assert_eq!(report["started"], false);
    }
    let done = common::Run::new(store.dir.path())
        .words(&[
            "--url",
            "redis://127.0.0.1:1/",
            "--report",
            "report",
            "x",
            "true",
        ])
        .output();
    assert_eq!(done.code(), 69);
    assert_eq!(
        report(&fs::read_to_string(store.file("report")).unwrap())["outcome"],
        "unavailable"
    );
    // No temporary file is left.
    let left = fs::read_dir(store.dir.path()).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".report")
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn unwritable_report_is_an_error_before_the_lock_is_taken() {
    let store = Store::local();
    for to in ["no/such/directory/report", "fd:77", "fd:x", ""] {
        store
            .run(&["--report", to, "x", "touch", "ran"])
            .output()
            .is(78, &["the report cannot be written", "(exit 78)"]);
    }
    assert!(!store.file("ran").exists());
    // To a file descriptor, which the command does not get.
    let line = format!(
        "{} run --url {} --report fd:5 x sh -c '! [ -e /proc/self/fd/5 ]' 5> report",
        env!("CARGO_BIN_EXE_leasehold"),
        store.url
    );
    let status = Command::new("sh")
        .args(["-c", &line])
        .current_dir(store.dir.path())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    eventually(LIMIT, "the report", || store.file("report").exists());
    assert_eq!(
        report(&fs::read_to_string(store.file("report")).unwrap())["outcome"],
        "ended"
    );
}

#[test]
fn a_report_is_not_written_through_a_link_that_others_have_laid() {
    let store = Store::local();
    fs::write(store.file("victim"), "precious").unwrap();
    let script = format!(
        "ln -s victim .report.$$ && exec {} run --url '{}' --report report x true",
        env!("CARGO_BIN_EXE_leasehold"),
        store.url
    );
    let done = store.run(&["y", "sh", "-c", &script]).output();
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""), "{done:?}");
    let read = |name: &str| fs::read_to_string(store.file(name)).unwrap();
    assert_eq!(read("victim"), "precious");
    assert_eq!(report(&read("report"))["outcome"], "ended");
}
