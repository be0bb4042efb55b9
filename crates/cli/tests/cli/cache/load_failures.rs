//! Commands that fail to make a value, and stores that do not answer.

use std::fs;

use super::{about, cache, load, refreshers, runs};
use crate::common::{Run, Store, on_each_store_of_entries};

on_each_store_of_entries! {
    a_failure_is_told_and_no_host_tries_again_for_a_while,
    a_stale_value_serves_in_place_of_a_failure,
    every_way_to_fail_has_its_code,
    a_host_without_the_command_prints_what_others_bring,
    another_load_is_waited_for_no_longer_than_was_said,
}

const FAIL: &str = "echo run >> runs; echo partly; echo why >&2; exit 7";

fn a_failure_is_told_and_no_host_tries_again_for_a_while(store: &Store) {
    let words = ["--back-off", "1h"];
    let done = load(store, &words, FAIL).output();
    done.is(
        7,
        &[
            "why\n",
            "\"k\": sh exited with 7, on ",
            "Nothing was stored; no host tries again for ",
        ],
    );
    let other = load(store, &words, FAIL).output();
    other.is(
        75,
        &[
            "a moment ago, sh exited with 7, on ",
            "The command was not run",
        ],
    );
    assert_eq!(
        (done.stdout + &other.stdout, runs(store)),
        (String::new(), 1)
    );
    cache(store, "get", &["k"]).output().is(66, &[]);
}

fn a_stale_value_serves_in_place_of_a_failure(store: &Store) {
    load(store, &[], "echo old").output().is(0, &[]);
    cache(store, "invalidate", &["k"]).output().is(0, &[]);
    // First the load fails here, then the failure is reported from the store.
    for _ in 0..2 {
        let words = ["--back-off", "1h", "--refresh", "inline"];
        let done = load(store, &words, FAIL).output();
        done.is(
            0,
            &["sh exited with 7, on ", "; the stored value is printed, "],
        );
        assert_eq!(done.stdout, "old\n");
    }
    let done = load(store, &["--must-be-fresh"], FAIL).output();
    done.is(75, &["exited with 7"]);
    assert_eq!((&*done.stdout, runs(store), refreshers(store)), ("", 1, 0));
}

fn every_way_to_fail_has_its_code(store: &Store) {
    let cases: [(&str, &[&str], &str, i32, &str); 4] = [
        ("a", &[], "kill -KILL $$", 137, "was ended by SIGKILL"),
        (
            "b",
            &["--timeout", "100ms"],
            "echo x; exec sleep 60",
            124,
            "was stopped after 0.1s",
        ),
        (
            "c",
            &["--max-size", "1k"],
            "head -c 1025 /dev/zero; exec sleep 60",
            78,
            "more than 1024 bytes",
        ),
        ("d", &[], "exit 75", 75, "exited with 75"),
    ];
    for (key, words, script, code, what) in cases {
        let done = cache(store, "get-or-refresh", words)
            .words(&[key, "--", "sh", "-c", script])
            .output();
        done.is(code, &[what]);
        assert_eq!(done.stdout, "", "{key}");
        cache(store, "get", &[key]).output().is(66, &[]);
    }
    // The output has exactly the maximal size.
    let done = load(store, &["--max-size", "1k"], "head -c 1024 /dev/zero").output();
    assert_eq!((done.code(), done.stdout.len()), (0, 1024));
}

fn a_host_without_the_command_prints_what_others_bring(store: &Store) {
    let missing = || cache(store, "get-or-refresh", &["k", "--", "./no-such"]).output();
    missing().is(127, &["./no-such", "no such file"]);
    // The failed process does not block the others.
    let done = load(store, &[], "echo v").output();
    assert_eq!((done.code(), &*done.stdout), (0, "v\n"), "{done:?}");
    assert_eq!(missing().stdout, "v\n");
    cache(store, "invalidate", &["k"]).output().is(0, &[]);
    let done = missing();
    done.is(0, &["no such file; the stored value is printed"]);
    assert_eq!((&*done.stdout, refreshers(store)), ("v\n", 0));
}

fn another_load_is_waited_for_no_longer_than_was_said(store: &Store) {
    let script = "echo run >> runs; while ! [ -e go ]; do sleep 0.02; done; echo v";
    let loader = load(store, &["-w", "0"], script).start();
    store.until("runs");
    let done = load(store, &["-w", "100ms"], "echo run >> runs").output();
    done.is(
        124,
        &[
            "\"k\": another process still loads it after 0.1s",
            "The command was not run",
        ],
    );
    load(store, &["-w", "0"], "echo run >> runs")
        .output()
        .is(124, &["another process still loads it"]);
    store.touch("go");
    // The time of the own command does not count as waiting.
    assert_eq!((&*loader.end().stdout, runs(store)), ("v\n", 1));
}

#[test]
fn wrong_use_is_64_and_runs_nothing() {
    let store = &Store::local();
    let run = "echo run >> runs";
    load(store, &["--fresh", "0"], run)
        .output()
        .is(64, &["at least 10ms"]);
    load(store, &["--max-size", "much"], run)
        .output()
        .is(64, &["16MiB"]);
    cache(store, "get-or-refresh", &["k"])
        .output()
        .is(64, &["CMD"]);
    cache(store, "get-or-refresh", &["", "--", "sh", "-c", run])
        .output()
        .is(64, &["cache key"]);
    cache(store, "get", &[""]).output().is(64, &["cache key"]);
    assert_eq!(runs(store), 0);
}

#[test]
fn without_a_store_nothing_runs_unless_that_was_asked_for() {
    let store = Store::redis();
    load(&store, &[], "echo v").output().is(0, &[]);
    store.server().kill();
    let done = load(&store, &[], FAIL).output();
    done.is(
        69,
        &[
            "The command was not run",
            "The state of the value is not known",
        ],
    );
    assert!(!done.stderr.contains("lock"), "{done:?}");
    assert_eq!((&*done.stdout, runs(&store)), ("", 0));
    let anyway = ["--if-unavailable", "run"];
    let done = load(&store, &anyway, "echo v").output();
    done.is(0, &["running the command without the cache"]);
    assert_eq!(done.stdout, "v\n");
    let done = load(&store, &anyway, FAIL).output();
    done.is(
        7,
        &["running the command without the cache", "sh exited with 7"],
    );
    assert_eq!((&*done.stdout, runs(&store)), ("", 1));
    for verb in ["get", "invalidate"] {
        let done = cache(&store, verb, &["k"]).output();
        assert_eq!(done.code(), 69, "{done:?}");
        assert!(
            !done.stderr.contains("lock") && !done.stderr.contains("command"),
            "{done:?}"
        );
    }
}

#[test]
fn what_is_loaded_when_the_store_goes_is_printed_all_the_same() {
    let store = Store::redis();
    let script = "echo run >> runs; while ! [ -e go ]; do sleep 0.02; done; echo v";
    let loader = load(&store, &[], script).start();
    store.until("runs");
    store.server().kill();
    store.touch("go");
    let done = loader.end();
    assert_eq!(
        (done.code(), &*done.stdout, runs(&store)),
        (0, "v\n", 1),
        "{done:?}"
    );
}

#[test]
fn a_user_of_the_doctors_line_may_use_the_cache() {
    let store = Store::redis();
    let line = store.verb("doctor", &["--acl"]).output().stdout;
    let rules = line
        .trim()
        .trim_start_matches("ACL SETUSER leasehold on >SECRET ");
    let as_user = |rules: &[&str], verb: &str, words: &[&str]| {
        let user = ["ACL", "SETUSER", "u", "reset", "on", ">pw"];
        let user = [&user, rules].concat();
        assert_eq!(store.server().cli(&user).error(), None);
        let url = format!("redis://u:pw@127.0.0.1:{}/", store.server().port());
        let run = Run::verb(store.dir.path(), "cache").words(&[verb]);
        run.words(words).env("LEASEHOLD_URL", &url).output()
    };
    let rules: Vec<&str> = rules.split(' ').collect();
    let fewer: Vec<&str> = rules
        .iter()
        .copied()
        .filter(|rule| *rule != "+getrange")
        .collect();
    as_user(&fewer, "get-or-refresh", &["k", "--", "echo", "v"])
        .is(77, &["The command was not run"]);
    let done = as_user(&rules, "get-or-refresh", &["k", "--", "echo", "v"]);
    assert_eq!((done.code(), &*done.stdout), (0, "v\n"), "{done:?}");
    as_user(&rules, "invalidate", &["k"]).is(0, &[]);
    as_user(&rules, "get", &["--must-be-fresh", "k"]).is(66, &["is stale"]);
}

#[test]
fn what_is_no_value_of_ours_is_left_alone() {
    let store = Store::redis();
    store.server().cli(&["SET", "k", "precious"]);
    let done = load(&store, &[], "echo run >> runs").output();
    done.is(
        78,
        &["something else stands under this key", "choose another key"],
    );
    cache(&store, "invalidate", &["k"])
        .output()
        .is(78, &["something else"]);
    assert_eq!(store.server().cli(&["GET", "k"]).text(), "precious");
    assert_eq!((runs(&store), &about(&store)["state"]), (0, &"none".into()));
    assert!(!fs::exists(store.file("runs")).unwrap());
}

#[test]
fn more_than_can_be_stored_is_refused_before_anything_runs() {
    let store = Store::local();
    let done = load(&store, &["--max-size", "25MiB"], "echo run >> runs").output();
    done.is(64, &["more than 24 MiB"]);
    assert_eq!(runs(&store), 0);
}
