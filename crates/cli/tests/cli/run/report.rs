//! `--report`: the document about the end of a run.

use std::fs;
use std::process::Command;

use testkit::eventually;

use super::report;
use crate::common::{self, Done, LIMIT, Store};

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
