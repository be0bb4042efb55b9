//! `leasehold hold`: a lock for a program in any language, over pipes.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

mod wrappers;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::common::{LIMIT, Store, UNHURRIED, on_each_store, without_settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testkit::eventually;

on_each_store! {
    it_is_held_until_stdin_is_closed,
    commands_are_answered_and_nonsense_ends_nothing,
    who_closes_stdin_while_waiting_leaves_the_line,
    a_signal_releases_it,
    a_parent_that_reads_no_more_has_gone,
    the_end_is_told_whatever_it_is,
}

/// A running `leasehold hold`, and its events.
struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Value>,
}

impl Held {
    fn start(store: &Store, words: &[&str]) -> Self {
        let mut child = leasehold(store, &[&["hold"], words].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start leasehold");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (tell, events) = channel();
        thread::Builder::new()
            .spawn(move || {
                for line in stdout.lines().map_while(Result::ok) {
                    drop(tell.send(serde_json::from_str(&line).expect("JSON")));
                }
            })
            .expect("a thread");
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            events,
        }
    }

    /// The next event, which must be this one.
    #[track_caller]
    fn tells(&self, event: &str) -> Value {
        self.tells_after(&[], event)
    }

    /// The next event, which must be this one, except for events that may come before.
    #[track_caller]
    fn tells_after(&self, before: &[&str], event: &str) -> Value {
        let mut events = std::iter::repeat_with(|| self.events.recv_timeout(LIMIT));
        let told = events.find(|told| {
            !told
                .as_ref()
                .is_ok_and(|told: &Value| before.iter().any(|event| told["event"] == *event))
        });
        let told = told.and_then(Result::ok).expect("an event");
        assert_eq!(told["schema"], "leasehold.hold/1");
        assert_eq!(told["event"], event, "{told}");
        told
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("stdin"), "{line}").expect("it reads");
    }

    fn close(&mut self) {
        self.stdin = None;
    }

    #[track_caller]
    fn ends(mut self, code: i32) {
        eventually(LIMIT, "it ends", || {
            self.child.try_wait().expect("a state").is_some()
        });
        let status = self.child.wait().expect("it has ended");
        assert_eq!(status.code(), Some(code));
        assert!(
            self.events.recv_timeout(LIMIT).is_err(),
            "nothing after the last"
        );
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn leasehold(store: &Store, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(words);
    at_home(&mut command, store);
    command
}

/// A command in the test's directory with its store, and with `leasehold` on the path.
fn at_home(command: &mut Command, store: &Store) {
    without_settings(command);
    let binaries = Path::new(env!("CARGO_BIN_EXE_leasehold"))
        .parent()
        .expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{}:{path}", binaries.display()))
        .env("LEASEHOLD_URL", &store.url)
        .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED)
        .current_dir(store.dir.path());
}

/// Takes "x" for a moment. Waits far less than any TTL here.
#[track_caller]
fn is_free(store: &Store) {
    store.run(&["-w", "30s", "x", "true"]).output().is(0, &[]);
}

#[track_caller]
fn is_busy(store: &Store) {
    store
        .run(&["-n", "x", "true"])
        .output()
        .is(75, &["is busy"]);
}

/// It hears its program meanwhile.
#[test]
fn an_outage_at_the_first_contact_is_part_of_the_wait() {
    let store = Store::redis();
    store.server().kill();
    let now = Held::start(&store, &["x"]);
    assert_eq!(now.tells("error")["code"], 69);
    now.ends(69);
    let waits = || {
        let mut held = Held::start(&store, &["-w", "1h", "x", "--ttl", "1h"]);
        held.say("{\"do\":\"check\"}");
        assert_eq!(held.tells("state")["held"], false);
        held
    };
    let mut leaves = waits();
    leaves.close();
    assert_eq!(leaves.tells("cancelled")["code"], 75);
    leaves.ends(75);
    let mut stays = waits();
    store.server().restart();
    stays.tells("acquired");
    stays.close();
    stays.tells("released");
    stays.ends(0);
}

fn it_is_held_until_stdin_is_closed(store: &Store) {
    let mut first = Held::start(store, &["x", "--ttl", "1h", "--note", "the first"]);
    let acquired = first.tells("acquired");
    assert_eq!(
        (&acquired["lock"], &acquired["ttl_ms"]),
        (&"x".into(), &3_600_000.into())
    );
    assert!(
        acquired["token"]
            .as_str()
            .expect("a text")
            .starts_with("lh1.")
    );
    is_busy(store);
    store.all_vote("x", acquired["fence"].as_u64().expect("a fence"));

    let mut second = Held::start(store, &["x", "--ttl", "1h"]);
    let waiting = second.tells("waiting");
    assert_eq!(
        (&waiting["ahead"], &waiting["holder_fence"]),
        (&0.into(), &acquired["fence"])
    );
    assert!(
        waiting["holder"]
            .as_str()
            .expect("a text")
            .contains("the first")
    );
    first.close();
    assert_eq!(first.tells("released")["confirmed"], true);
    first.ends(0);
    let next = second.tells("acquired");
    assert!(next["fence"].as_u64() > acquired["fence"].as_u64());
    second.close();
    second.tells("released");
    second.ends(0);
    is_free(store);
}

fn commands_are_answered_and_nonsense_ends_nothing(store: &Store) {
    let mut held = Held::start(store, &["x", "--ttl", "1h"]);
    let acquired = held.tells("acquired");
    held.say("{\"do\":\"check\"}");
    let state = held.tells("state");
    assert_eq!(
        (&state["held"], &state["fence"]),
        (&true.into(), &acquired["fence"])
    );
    assert!(state["valid_for_ms"].as_u64() > Some(3_000_000));
    for nonsense in ["release", "{\"do\":\"dance\"}", "[]"] {
        held.say(nonsense);
        let error = held.tells("error");
        assert!(
            error["code"].is_null()
                && error["message"]
                    .as_str()
                    .expect("a text")
                    .contains("not understood")
        );
    }
    // The other verbs accept the token.
    let mut check = leasehold(store, &["check", "x"]);
    check.env(
        "LEASEHOLD_TOKEN",
        acquired["token"].as_str().expect("a text"),
    );
    assert!(check.status().expect("it runs").success());
    held.say("{\"do\":\"release\"}");
    held.tells("released");
    held.ends(0);
    is_free(store);
}

fn who_closes_stdin_while_waiting_leaves_the_line(store: &Store) {
    let mut first = Held::start(store, &["x", "--ttl", "1h"]);
    first.tells("acquired");
    let mut second = Held::start(store, &["x", "--ttl", "1h"]);
    second.tells("waiting");
    second.say("{\"do\":\"check\"}");
    assert_eq!(second.tells("state")["held"], false);
    second.close();
    assert_eq!(second.tells("cancelled")["code"], 75);
    second.ends(75);
    first.close();
    first.tells("released");
    first.ends(0);
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
}

fn a_signal_releases_it(store: &Store) {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let held = Held::start(store, &["x", "--ttl", "1h"]);
        held.tells("acquired");
        let pid = Pid::from_raw(i32::try_from(held.child.id()).expect("a process id"));
        kill(pid, signal).expect("it lives");
        held.tells("released");
        held.ends(code);
        is_free(store);
    }
}

fn a_parent_that_reads_no_more_has_gone(store: &Store) {
    let mut child = leasehold(store, &["hold", "x", "--ttl", "1h"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start leasehold");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("an event");
    assert!(line.contains("acquired"), "{line}");
    drop(stdout);
    eventually(LIMIT, "it ends", || {
        child.try_wait().expect("a state").is_some()
    });
    assert!(child.stdin.is_some(), "which is still open");
    is_free(store);
}

/// A parent that does not keep stdin open has only started it.
#[test]
fn a_launcher_that_ends_ends_no_hold() {
    let store = Store::local();
    nix::unistd::mkfifo(&store.file("stdin"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let launch =
        "leasehold hold x --ttl 1h < stdin > events & until [ -s events ]; do sleep 0.02; done";
    let mut launcher = Command::new("sh");
    launcher.args(["-c", launch]);
    at_home(&mut launcher, &store);
    let mut stdin = std::thread::scope(|scope| {
        // The other end opens with it.
        let stdin = scope.spawn(|| std::fs::File::create(store.file("stdin")).expect("a pipe"));
        assert!(launcher.status().expect("it runs").success());
        stdin.join().expect("it is open")
    });
    let events = || std::fs::read_to_string(store.file("events")).unwrap_or_default();
    assert!(events().contains("acquired"));
    // Each answer follows a look at the parent; the first look may have come before the launcher's end.
    for count in 1..=2 {
        writeln!(stdin, "{{\"do\":\"check\"}}").expect("it reads");
        eventually(LIMIT, "an answer", || {
            events().matches("\"held\":true").count() == count
        });
    }
    drop(stdin);
    eventually(LIMIT, "released", || events().contains("released"));
}

#[test]
fn a_lost_lease_is_told_and_ends_it() {
    let store = Store::redis();
    let held = Held::start(&store, &["x", "--ttl", "6s"]);
    held.tells("acquired");
    store.server().cli(&["SET", "x", "somebody"]);
    let lost = held.tells("lost");
    assert_eq!(lost["code"], 79);
    assert!(
        lost["cause"].as_str().expect("a text").contains("foreign"),
        "{lost}"
    );
    held.ends(79);
}

#[test]
fn failed_renewal_is_reported_and_so_is_the_next_success() {
    let store = Store::redis();
    let mut held = Held::start(&store, &["x", "--ttl", "15s"]);
    held.tells("acquired");
    // Well within the TTL, also on a busy machine.
    store
        .server()
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let doubtful = held.tells("doubtful");
    assert!(doubtful["valid_for_ms"].as_u64() > Some(0), "{doubtful}");
    store
        .server()
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    held.tells("renewed");
    held.close();
    held.tells("released");
    held.ends(0);
}

fn the_end_is_told_whatever_it_is(store: &Store) {
    let mut first = Held::start(store, &["x", "--ttl", "1h"]);
    first.tells("acquired");
    let busy = Held::start(store, &["-n", "x"]);
    assert_eq!(busy.tells("busy")["code"], 75);
    busy.ends(75);
    let timeout = Held::start(store, &["-w", "1", "x"]);
    assert_eq!(timeout.tells_after(&["waiting"], "timeout")["code"], 124);
    timeout.ends(124);
    for (words, code) in [
        (["a{b"].as_slice(), 64),
        (&["x", "--url", "nonsense:"], 78),
        (&["x", "--url", "redis://:S3CR3T@127.0.0.1:1/"], 69),
    ] {
        let refused = Held::start(store, words);
        let error = refused.tells("error");
        assert_eq!(error["code"], code);
        assert!(!error.to_string().contains("S3CR3T"), "{error}");
        refused.ends(code);
    }
    first.close();
    first.tells("released");
    first.ends(0);
}
