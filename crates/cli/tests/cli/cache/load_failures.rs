//! Commands that fail to make a value, and stores that do not answer.

use super::{about, cache, load, refreshers, runs};
use crate::common::{Store, on_each_store_of_entries, rows};

on_each_store_of_entries! {
    a_failure_is_told_and_no_host_tries_again_for_a_while,
    a_stale_value_serves_in_place_of_a_failure,
    every_way_to_fail_has_its_code,
    a_host_without_the_command_prints_what_others_bring,
    another_load_is_waited_for_no_longer_than_was_said,
}

const FAIL: &str = "echo run >> runs; echo partly; echo why >&2; exit 7";

fn a_failure_is_told_and_no_host_tries_again_for_a_while(store: &Store) {
    let fails = || load(store, "--back-off 1h", FAIL);
    let nothing = "Nothing was stored; no host tries again for ";
    let says = ["why\n", "\"k\": sh exited with 7, on ", nothing];
    let done = fails().is(7, &says);
    let before = "a moment ago, sh exited with 7, on ";
    let other = fails().is(75, &[before, "The command was not run"]);
    assert_eq!(done.stdout + &other.stdout, "");
    assert_eq!(runs(store), 1);
    cache(store, "get", "k").is(66, &[]);
}

fn a_stale_value_serves_in_place_of_a_failure(store: &Store) {
    load(store, "", "echo old").is(0, &[]);
    cache(store, "invalidate", "k").is(0, &[]);
    // First the load fails here, then the failure is reported from the store.
    for _ in 0..2 {
        let says = ["sh exited with 7, on ", "; the stored value is printed, "];
        let done = load(store, "--back-off 1h --refresh inline", FAIL).is(0, &says);
        assert_eq!(done.stdout, "old\n");
    }
    let done = load(store, "--must-be-fresh", FAIL).is(75, &["exited with 7"]);
    assert_eq!((&*done.stdout, runs(store), refreshers(store)), ("", 1, 0));
}

fn every_way_to_fail_has_its_code(store: &Store) {
    let table = "
                         | 137 | was ended by SIGKILL   | kill -KILL $$
        --timeout 100ms  | 124 | was stopped after 0.1s | echo x; exec sleep 60
        --max-size 1k    | 78  | more than 1024 bytes   | head -c 1025 /dev/zero; exec sleep 60
                         | 75  | exited with 75         | exit 75
    ";
    for (key, [words, code, what, script]) in (1..).zip(rows(table)) {
        let key = format!("k{key}");
        let load = cache(store, "get-or-refresh", words);
        let load = load.words(&[&*key, "--", "sh", "-c", script]);
        let done = load.is(code.parse().unwrap(), &[what]);
        assert_eq!(done.stdout, "", "{key}");
        cache(store, "get", &key).is(66, &[]);
    }
    // The output has exactly the maximal size.
    let done = load(store, "--max-size 1k", "head -c 1024 /dev/zero").output();
    assert_eq!((done.code(), done.stdout.len()), (0, 1024));
}

fn a_host_without_the_command_prints_what_others_bring(store: &Store) {
    let missing = || cache(store, "get-or-refresh", "k -- ./no-such").output();
    missing().is(127, &["./no-such", "no such file"]);
    // The failed process does not block the others.
    load(store, "", "echo v").prints(0, "v\n");
    assert_eq!(missing().stdout, "v\n");
    cache(store, "invalidate", "k").is(0, &[]);
    let done = missing();
    done.is(0, &["no such file; the stored value is printed"]);
    assert_eq!((&*done.stdout, refreshers(store)), ("v\n", 0));
}

fn another_load_is_waited_for_no_longer_than_was_said(store: &Store) {
    let script = "echo run >> runs; while ! [ -e go ]; do sleep 0.02; done; echo v";
    let loader = load(store, "-w 0", script).start();
    store.until("runs");
    let still = "\"k\": another process still loads it after 0.1s";
    let load_again = load(store, "-w 100ms", "echo run >> runs");
    load_again.is(124, &[still, "The command was not run"]);
    load(store, "-w 0", "echo run >> runs").is(124, &["another process still loads it"]);
    store.touch("go");
    // The time of the own command does not count as waiting.
    assert_eq!((&*loader.end().stdout, runs(store)), ("v\n", 1));
}

#[test]
fn wrong_use_is_64_and_runs_nothing() {
    let store = &Store::local();
    let run = "echo run >> runs";
    load(store, "--fresh 0", run).is(64, &["at least 10ms"]);
    load(store, "--max-size much", run).is(64, &["16MiB"]);
    load(store, "--max-size 25MiB", run).is(64, &["more than 24 MiB"]);
    cache(store, "get-or-refresh", "k").is(64, &["CMD"]);
    cache(store, "get-or-refresh", &["", "--", "sh", "-c", run]).is(64, &["cache key"]);
    cache(store, "get", &[""]).is(64, &["cache key"]);
    assert_eq!(runs(store), 0);
}

#[test]
fn without_a_store_nothing_runs_unless_that_was_asked_for() {
    let store = Store::redis();
    load(&store, "", "echo v").is(0, &[]);
    store.server().kill();
    let unknown = "The state of the value is not known";
    let done = load(&store, "", FAIL).is(69, &["The command was not run", unknown]);
    assert!(!done.stderr.contains("lock"), "{done:?}");
    assert_eq!((&*done.stdout, runs(&store)), ("", 0));
    let (anyway, says) = (
        "--if-unavailable run",
        "running the command without the cache",
    );
    let done = load(&store, anyway, "echo v").is(0, &[says]);
    assert_eq!(done.stdout, "v\n");
    let done = load(&store, anyway, FAIL).is(7, &[says, "sh exited with 7"]);
    assert_eq!((&*done.stdout, runs(&store)), ("", 1));
    for verb in ["get", "invalidate"] {
        let done = cache(&store, verb, &["k"]).is(69, &[]);
        let misleads = ["lock", "command"].map(|word| done.stderr.contains(word));
        assert_eq!(misleads, [false; 2], "{done:?}");
    }
}

#[test]
fn what_is_loaded_when_the_store_goes_is_printed_all_the_same() {
    let store = Store::redis();
    let script = "echo run >> runs; while ! [ -e go ]; do sleep 0.02; done; echo v";
    let loader = load(&store, "", script).start();
    store.until("runs");
    store.server().kill();
    store.touch("go");
    loader.prints(0, "v\n");
    assert_eq!(runs(&store), 1);
}

#[test]
fn a_user_of_the_doctors_line_may_use_the_cache() {
    let store = Store::redis();
    let line = store.verb("doctor", "--acl").output().stdout;
    let rules = line
        .trim()
        .trim_start_matches("ACL SETUSER leasehold on >SECRET ");
    let as_user = |rules: &[&str], words: &str| {
        let user = ["ACL", "SETUSER", "u", "reset", "on", ">pw"];
        let user = [&user, rules].concat();
        assert_eq!(store.server().cli(&user).error(), None);
        let url = format!("redis://u:pw@127.0.0.1:{}/", store.server().port());
        let run = store.leasehold("cache").words(words);
        run.env("LEASEHOLD_URL", &url)
    };
    let rules: Vec<&str> = rules.split(' ').collect();
    let mut fewer = rules.clone();
    fewer.retain(|rule| *rule != "+getrange");
    let loads = "get-or-refresh k -- echo v";
    as_user(&fewer, loads).is(77, &["The command was not run"]);
    as_user(&rules, loads).prints(0, "v\n");
    as_user(&rules, "invalidate k").is(0, &[]);
    as_user(&rules, "get --must-be-fresh k").is(66, &["is stale"]);
}

#[test]
fn what_is_no_value_of_ours_is_left_alone() {
    let store = Store::redis();
    store.server().cli(&["SET", "k", "precious"]);
    let says = ["something else stands under this key", "choose another key"];
    load(&store, "", "echo run >> runs").is(78, &says);
    cache(&store, "invalidate", "k").is(78, &["something else"]);
    assert_eq!(store.server().cli(&["GET", "k"]).text(), "precious");
    assert_eq!(about(&store)["state"], "none");
    assert_eq!(runs(&store), 0);
}
