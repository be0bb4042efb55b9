//! `leasehold cache` with real processes and stores. The tests wait for files and process ends, never for a
//! fixed time.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

mod interrupts;
mod load_failures;

use std::fs;
use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::eventually;

use crate::common::{LIMIT, Run, Store, Words, lives, on_each_store_of_entries};

on_each_store_of_entries! {
    a_fresh_value_is_printed_as_it_is_and_nothing_runs,
    twenty_that_miss_it_run_the_command_once,
    a_stale_value_is_printed_while_one_refreshes_it,
    inline_waits_for_the_new_value,
    a_large_value_is_stored_before_the_process_ends,
    a_store_that_is_named_by_a_pipe_is_asked_inline,
    what_a_program_has_stored_is_printed_and_never_replaced,
}

/// `leasehold cache VERB --url URL words...`, in the directory of the test.
fn cache(store: &Store, verb: &str, words: &(impl Words + ?Sized)) -> Run {
    Run::verb(store.dir.path(), "cache")
        .words(&[verb, "--url", &store.url])
        .words(words)
}

/// `get-or-refresh words... k -- sh -c SCRIPT`.
fn load(store: &Store, words: &(impl Words + ?Sized), script: &str) -> Run {
    cache(store, "get-or-refresh", words).words(&["k", "--", "sh", "-c", script])
}

/// A shell script, with `leasehold` on its path and the URL as `$0`.
fn shell(store: &Store, script: &str) -> Output {
    // A left process with an open pipe would block the test.
    let bash = store.program("timeout 30 bash -c");
    bash.words(&[script, &store.url]).raw()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of `get --json`.
fn about(store: &Store) -> Value {
    cache(store, "get", "--json k").output().json()
}

/// The number of recorded runs of the test's script.
fn runs(store: &Store) -> usize {
    let runs = fs::read_to_string(store.file("runs"));
    runs.map_or(0, |runs| runs.lines().count())
}

/// The live background refreshes of this test.
fn refreshers(store: &Store) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ours = processes.filter(|entry| {
        let name = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let place = fs::read_link(entry.path().join("cwd"));
        let pid = entry.file_name().to_string_lossy().parse();
        name.starts_with(b"leasehold-refresh\0")
            && place.is_ok_and(|place| place == store.dir.path())
            && pid.is_ok_and(lives)
    });
    ours.count()
}

fn a_fresh_value_is_printed_as_it_is_and_nothing_runs(store: &Store) {
    let script = r"leasehold cache get-or-refresh --url $0 k -- sh -c 'echo run >> runs; printf ''\\000\\377\\n\\n'''";
    for _ in 0..3 {
        let done = shell(store, script);
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        assert_eq!(done.stdout, b"\0\xff\n\n");
    }
    assert_eq!(runs(store), 1);
    let got = shell(store, "leasehold cache get --url $0 k");
    assert_eq!(got.stdout, b"\0\xff\n\n");
    let about = about(store);
    assert_eq!(about["state"], "fresh");
    assert_eq!(about["bytes"], 4);
    assert_eq!(about["key"], "k");
}

fn twenty_that_miss_it_run_the_command_once(store: &Store) {
    let script = "echo run >> runs; while ! [ -e go ]; do sleep 0.02; done; echo v";
    let all: Vec<_> = (0..20).map(|_| load(store, "", script).start()).collect();
    store.until("runs");
    store.touch("go");
    for one in all {
        one.prints(0, "v\n");
    }
    assert_eq!(runs(store), 1);
}

fn a_stale_value_is_printed_while_one_refreshes_it(store: &Store) {
    load(store, "", "echo old").is(0, &[]);
    cache(store, "invalidate", "k").is(0, &[]);
    assert_eq!(about(store)["state"], "stale");
    // The command substitution ends when no process has its pipe open, under any descriptor.
    let script = r#"x=$(exec 3>&1; leasehold cache get-or-refresh --url $0 --refresh-log log k -- sh -c '
        echo run >> runs; echo said >&2; while ! [ -e go ]; do sleep 0.02; done; echo new'); echo "got $x""#;
    for _ in 0..4 {
        let done = shell(store, script);
        assert_eq!(text(&done.stdout), "got old\n");
        assert_eq!(text(&done.stderr), "");
    }
    // The first process refreshes; the others have noticed that and ended.
    store.until("runs");
    eventually(LIMIT, "one refresher is left", || refreshers(store) == 1);
    store.touch("go");
    eventually(LIMIT, "the new value", || {
        cache(store, "get", "k").output().stdout == "new\n"
    });
    eventually(LIMIT, "no refresher is left", || refreshers(store) == 0);
    assert_eq!(about(store)["state"], "fresh");
    assert_eq!(runs(store), 1);
    assert_eq!(fs::read_to_string(store.file("log")).unwrap(), "said\n");
}

fn inline_waits_for_the_new_value(store: &Store) {
    load(store, "", "echo old").is(0, &[]);
    for (word, value) in [("--must-be-fresh", "new"), ("--refresh=inline", "newer")] {
        cache(store, "invalidate", "k").is(0, &[]);
        load(store, word, &format!("echo {value}")).prints(0, &format!("{value}\n"));
    }
    cache(store, "invalidate", "k").is(0, &[]);
    cache(store, "get", "--must-be-fresh k").is(66, &["\"k\": the value is stale"]);
    cache(store, "invalidate", "--remove k other").is(0, &[]);
    cache(store, "get", "k").is(66, &["\"k\": there is no value"]);
    assert_eq!(about(store)["state"], "none");
    assert_eq!(refreshers(store), 0);
}

fn a_large_value_is_stored_before_the_process_ends(store: &Store) {
    let script =
        "leasehold cache get-or-refresh --url $0 k -- head -c 12000000 /dev/zero | head -c 1";
    assert_eq!(shell(store, script).stdout, b"\0");
    assert_eq!(about(store)["bytes"], 12_000_000);
}

fn a_store_that_is_named_by_a_pipe_is_asked_inline(store: &Store) {
    load(store, "", "echo old").is(0, &[]);
    cache(store, "invalidate", "k").is(0, &[]);
    let script = "leasehold cache get-or-refresh --url-file <(echo $0) k -- echo new";
    assert_eq!(text(&shell(store, script).stdout), "new\n");
    assert_eq!(refreshers(store), 0);
}

#[test]
fn the_command_has_no_stdin() {
    let store = &Store::local();
    let reads = load(store, "", "cat; echo end");
    reads.stdin(Stdio::piped()).prints(0, "end\n");
}

fn what_a_program_has_stored_is_printed_and_never_replaced(store: &Store) {
    let url = &store.url;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = leasehold::Client::connect(url).await.unwrap();
        let loader = || async { Ok::<_, std::io::Error>(vec![1, 2]) };
        let cache = leasehold_cache::Cache::new(&client);
        cache.get_or_refresh("k", loader).await.unwrap();
        client.close().await;
    });
    cache(store, "get", "k").prints(0, "[1,2]");
    load(store, "", "echo run >> runs").is(78, &["is written as Json", "choose another key"]);
    assert_eq!(runs(store), 0);
    cache(store, "get", "k").prints(0, "[1,2]");
}

#[test]
fn of_several_keys_none_is_invalidated_if_one_can_be_no_key() {
    let store = &Store::local();
    load(store, "", "echo v").is(0, &[]);
    cache(store, "invalidate", &["k", ""]).is(64, &["invalid cache key", "is empty"]);
    assert_eq!(about(store)["state"], "fresh");
}

#[test]
fn invalidate_names_the_key_that_failed_among_several() {
    let store = Store::redis();
    load(&store, "", "echo v").is(0, &[]);
    store.server().cli(&["RPUSH", "list", "x"]);
    cache(&store, "get", "list").is(66, &["\"list\": there is no value"]);
    cache(&store, "invalidate", "k list other")
        .is(78, &["of type list", "at \"list\", 2 of 3 keys"]);
    assert_eq!(about(&store)["state"], "stale");
}

#[test]
fn without_a_store_each_verb_says_how_it_goes_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    for (words, line) in [
        (
            "get-or-refresh k -- true",
            "get-or-refresh --url local: KEY -- CMD",
        ),
        ("get k", "get --url local: KEY\n"),
        ("invalidate k", "invalidate --url local: KEY\n"),
    ] {
        let none = "no store given: where are the values kept?";
        let run = Run::verb(dir.path(), "cache").words(words);
        run.is(78, &[none, &format!("leasehold cache {line}")]);
    }
}

#[test]
fn the_command_sees_no_password_of_ours() {
    let store = Store::with_password();
    let print = |words: &str| {
        let run = store.leasehold("cache get-or-refresh").words(words);
        run.words("k -- env").is(0, &[]).stdout
    };
    let plain = print("");
    assert!(
        plain.contains("PATH=") && !plain.contains("S3CR3T"),
        "{plain}"
    );
    // The namespace also applies to a nested command.
    assert!(print("--namespace n").contains("LEASEHOLD_NAMESPACE=n"));
}

#[test]
fn an_entry_in_the_way_of_a_lock_is_called_one() {
    let store = Store::redis();
    cache(&store, "get-or-refresh", "k -- echo v").is(0, &[]);
    store
        .run("--try k true")
        .is(75, &["cache entry of leasehold"]);
    let inspect = |words: &str| store.verb("inspect", words).is(0, &[]).stdout;
    let said = inspect("k");
    assert!(said.contains("cache entry of leasehold"), "{said}");
    assert!(!said.contains("foreign"), "{said}");
    let said = inspect("k j");
    assert!(said.contains("(a cache entry)"), "{said}");
    let json = store.json("inspect", "k", 0);
    assert_eq!(json["locks"][0]["holder"]["format"], "leasehold cache");
    let broken = store.verb("break", "--if-fence 1 k");
    broken.is(78, &["name of a cache entry of leasehold", "locks only"]);
}

/// Runs the script of `docs/reference/cache.md`, and checks the effects that its comments promise.
#[test]
fn the_documented_script_runs() {
    let store = Store::redis();
    let document = include_str!("../../../../../docs/reference/cache.md");
    let (_, section) = document.split_once("## Command line").unwrap();
    let (_, script) = section.split_once("```sh\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let report = "#!/bin/sh\necho run >> runs\necho a report\n";
    fs::write(store.file("report.sh"), report).unwrap();
    let script = script.replace("redis://cache.internal:6379/", "$0");
    let prepared = format!("chmod +x report.sh; set -eu\n{script}");
    let done = shell(&store, &prepared);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let printed = text(&done.stdout);
    assert_eq!(printed.matches("a report").count(), 3, "{printed}");
    assert!(printed.contains("leasehold.cache-get/1"), "{printed}");
    eventually(LIMIT, "it was refreshed in the background", || {
        runs(&store) == 2 && refreshers(&store) == 0
    });
}
