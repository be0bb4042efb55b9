//! `leasehold hold`: a lock for a program in any language, over pipes.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

mod wrappers;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::thread;

use crate::common::{LIMIT, Running, Store, Words, json, on_each_store};
use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::eventually;

on_each_store! {
    it_is_held_until_stdin_is_closed,
    commands_are_answered_and_nonsense_ends_nothing,
    who_closes_stdin_while_waiting_leaves_the_line,
    a_signal_releases_it,
    a_parent_that_reads_no_more_has_gone,
    the_end_is_told_whatever_it_is,
    several_are_held_or_none,
    one_process_holds_many_locks,
}

/// A quorum has no slots.
mod kinds {
    use super::readers_and_slots_are_held_beside_each_other;
    use crate::common::on_each_store_of_entries;

    on_each_store_of_entries! {
        readers_and_slots_are_held_beside_each_other,
    }
}

/// A running `leasehold hold`.
struct Held {
    running: Running,
    stdin: Option<ChildStdin>,
    /// How many of its events have been read.
    read: Cell<usize>,
}

impl Held {
    fn start(store: &Store, words: &(impl Words + ?Sized)) -> Self {
        let hold = store.leasehold("hold").words(words);
        let mut running = hold.stdin(Stdio::piped()).start();
        let stdin = running.child.stdin.take();
        let read = Cell::new(0);
        Self {
            running,
            stdin,
            read,
        }
    }

    /// Of "x", for so long that the lease does not end.
    fn long(store: &Store) -> Self {
        Self::start(store, "x --ttl 1h")
    }

    /// The next event, which must be this one.
    #[track_caller]
    fn tells(&self, event: &str) -> Value {
        let told = self.next();
        assert_eq!(told["event"], event, "{told}");
        told
    }

    #[track_caller]
    fn next(&self) -> Value {
        let mut line = None;
        eventually(LIMIT, "an event", || {
            let written = self.running.written();
            let (whole, _) = written.rsplit_once('\n').unwrap_or_default();
            line = whole.lines().nth(self.read.get()).map(str::to_owned);
            line.is_some()
        });
        self.read.set(self.read.get() + 1);
        let told = json(&line.expect("an event"));
        assert_eq!(told["schema"], "leasehold.hold/1");
        told
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("stdin"), "{line}").expect("it reads");
    }

    fn close(&mut self) {
        self.stdin = None;
    }

    /// Nothing comes after the last event.
    #[track_caller]
    fn ends(self, code: i32) {
        let done = self.running.ends(code, &[]);
        assert_eq!(done.stdout.lines().count(), self.read.get(), "{done:?}");
    }

    /// The program lets it go, and hears that this lock was lost before.
    #[track_caller]
    fn lets_go_of_lost(mut self, name: &str) {
        self.close();
        let lost = self.tells("lost");
        assert_eq!((&lost["lock"], &lost["code"]), (&name.into(), &79.into()));
        self.ends(79);
    }

    /// The program lets it go.
    #[track_caller]
    fn lets_go(mut self) -> Value {
        self.close();
        let released = self.tells("released");
        self.ends(0);
        released
    }
}

/// Takes "x" for a moment. Waits far less than any TTL here.
#[track_caller]
fn is_free(store: &Store) {
    store.run("-w 30s x true").is(0, &[]);
}

/// It hears its program meanwhile.
#[test]
fn an_outage_at_the_first_contact_is_part_of_the_wait() {
    let store = Store::redis();
    store.server().kill();
    let now = Held::start(&store, "x");
    assert_eq!(now.tells("error")["code"], 69);
    now.ends(69);
    let waits = || {
        let mut held = Held::start(&store, "-w 1h x --ttl 1h");
        held.say("{\"do\":\"check\"}");
        assert_eq!(held.tells("state")["held"], false);
        held
    };
    let mut leaves = waits();
    leaves.close();
    assert_eq!(leaves.tells("cancelled")["code"], 75);
    leaves.ends(75);
    let stays = waits();
    store.server().restart();
    stays.tells("acquired");
    stays.lets_go();
}

fn readers_and_slots_are_held_beside_each_other(store: &Store) {
    let acquired = |words: &str| {
        let held = Held::start(store, &format!("{words} x --ttl 1h"));
        let told = held.tells("acquired");
        (held, told)
    };
    let (one, told) = acquired("--shared");
    let (mut other, same) = acquired("-s");
    for told in [&told, &same] {
        assert_eq!(
            (&told["mode"], &told["slot"]),
            (&"shared".into(), &Value::Null)
        );
        assert_eq!(
            (&told["token"], &told["locks"]),
            (&Value::Null, &Value::Null)
        );
    }
    assert_eq!(told["fence"], same["fence"]);
    other.say("{\"do\":\"check\"}");
    assert_eq!(other.tells("state")["fence"], same["fence"]);
    let busy = Held::start(store, "-n x");
    assert_eq!(busy.tells("busy")["code"], 75);
    busy.ends(75);
    one.lets_go();
    store.is_busy();
    let writer = Held::long(store);
    let waiting = writer.tells("waiting");
    assert_eq!(waiting["holder_fence"], same["fence"]);
    other.lets_go();
    assert_eq!(writer.tells("acquired")["mode"], "exclusive");
    writer.lets_go();

    let (one, told) = acquired("--slots 2");
    let (other, same) = acquired("--slots 2");
    let fence = |told: &Value| told["fence"].as_u64().expect("of its slot");
    assert!(fence(&told) != fence(&same));
    let slots = [told, same].map(|told| (told["mode"].clone(), told["slot"].clone()));
    assert_eq!(slots, [1, 2].map(|slot| ("slot/2".into(), slot.into())));
    store.run("-n --slots 2 x true").is(75, &["is busy"]);
    one.lets_go();
    let (again, told) = acquired("--slots 2");
    assert_eq!(told["slot"], 1);
    again.lets_go();
    other.lets_go();
}

fn several_are_held_or_none(store: &Store) {
    let other = Held::start(store, "y --ttl 1h");
    other.tells("acquired");
    let busy = Held::start(store, "-n --also y x");
    let told = busy.tells("busy");
    assert_eq!(told["message"], "\"y\" is busy (exit 75)");
    busy.ends(75);
    is_free(store);
    let both = Held::start(store, "--also y x --ttl 1h");
    let waiting = both.tells("waiting");
    assert_eq!(waiting["lock"], "y");
    other.lets_go();
    let told = both.tells("acquired");
    assert_eq!(
        (&told["lock"], &told["mode"]),
        (&"x".into(), &"exclusive".into())
    );
    let locks = told["locks"].as_array().expect("both");
    let names: Vec<_> = locks.iter().map(|lock| lock["name"].as_str()).collect();
    assert_eq!(names, [Some("x"), Some("y")]);
    assert_eq!(locks[0]["fence"], told["fence"]);
    store.is_busy();
    let fence = &locks[1]["fence"];
    // It renews "y" when it is asked to, and else after a third of the hour.
    store
        .verb("break", &format!("--if-fence {fence} y"))
        .is(0, &["was broken"]);
    store.run("-w 30s y true").is(0, &[]);
    both.lets_go_of_lost("y");
    is_free(store);
    let refused = Held::start(store, "--also x x");
    let told = refused.tells("error");
    assert!(
        told["message"].to_string().contains("is there twice"),
        "{told}"
    );
    refused.ends(64);
}

fn one_process_holds_many_locks(store: &Store) {
    let mut held = Held::start(store, "--many --ttl 1h");
    held.tells("ready");
    let ask = |held: &mut Held, id: u64, lock: &str, more: &str| {
        held.say(&format!(
            r#"{{"do":"acquire","id":{id},"lock":"{lock}"{more}}}"#
        ));
    };
    // A request behind another one of this process may be told of it, or not.
    let tells = |held: &Held, id: u64, event: &str| {
        let mut told = held.next();
        while told["event"] == "waiting" {
            told = held.next();
        }
        assert_eq!(
            (&told["id"], &told["event"]),
            (&id.into(), &event.into()),
            "{told}"
        );
        told
    };
    ask(&mut held, 1, "x", "");
    let first = tells(&held, 1, "acquired");
    assert_eq!(first["ttl_ms"], 3_600_000);
    ask(&mut held, 2, "y", r#","ttl_ms":6000"#);
    assert_eq!(tells(&held, 2, "acquired")["ttl_ms"], 6_000);
    store.is_busy();
    // A number is free after the end of its lock only.
    ask(&mut held, 1, "z", "");
    assert!(
        held.tells("error")["message"]
            .to_string()
            .contains("number 1")
    );
    for (id, lock, more, event, code) in [
        (3, "x", r#","wait_ms":0"#, "busy", 75),
        (3, "x", r#","wait_ms":100"#, "timeout", 124),
        (3, "a{b", "", "error", 64),
        (3, "z", r#","mode":"slot/0""#, "error", 64),
        (3, "z", r#","mode":"shared","also":["y"]"#, "error", 64),
        (3, "z", r#","ttl_ms":1"#, "error", 64),
    ] {
        ask(&mut held, id, lock, more);
        assert_eq!(tells(&held, id, event)["code"], code);
    }
    for line in [r#"{"do":"release"}"#, r#"{"do":"acquire","id":4}"#] {
        held.say(line);
        let error = held.tells("error");
        assert!(error["code"].is_null() && error["id"].is_null(), "{error}");
    }
    ask(&mut held, 3, "x", "");
    held.say(r#"{"do":"check","id":3}"#);
    assert_eq!(tells(&held, 3, "state")["held"], false);
    held.say(r#"{"do":"release","id":1}"#);
    tells(&held, 1, "released");
    assert!(tells(&held, 3, "acquired")["fence"].as_u64() > first["fence"].as_u64());
    held.say(r#"{"do":"check","id":3}"#);
    assert_eq!(tells(&held, 3, "state")["held"], true);
    held.say(r#"{"do":"check","id":1}"#);
    assert_eq!(tells(&held, 1, "state")["held"], false);
    held.close();
    let last = [held.tells("released"), held.tells("released")];
    assert!(last.iter().all(|told| told["id"] != 1), "{last:?}");
    assert_eq!(held.tells("ended")["code"], 0);
    held.ends(0);
    is_free(store);
}

fn it_is_held_until_stdin_is_closed(store: &Store) {
    let note = ["x", "--ttl", "1h", "--note", "the first"];
    let first = Held::start(store, &note);
    let acquired = first.tells("acquired");
    assert_eq!(acquired["lock"], "x");
    assert_eq!(acquired["ttl_ms"], 3_600_000);
    let token = acquired["token"].as_str();
    assert!(token.is_some_and(|token| token.starts_with("lh1.")));
    store.is_busy();
    store.all_vote("x", acquired["fence"].as_u64().expect("a fence"));

    let second = Held::long(store);
    let waiting = second.tells("waiting");
    assert_eq!(waiting["ahead"], 0);
    assert_eq!(waiting["holder_fence"], acquired["fence"]);
    assert!(waiting["holder"].to_string().contains("the first"));
    assert_eq!(first.lets_go()["confirmed"], true);
    let next = second.tells("acquired");
    assert!(next["fence"].as_u64() > acquired["fence"].as_u64());
    second.lets_go();
    is_free(store);
}

fn commands_are_answered_and_nonsense_ends_nothing(store: &Store) {
    let mut held = Held::long(store);
    let acquired = held.tells("acquired");
    held.say("{\"do\":\"check\"}");
    let state = held.tells("state");
    assert_eq!(state["held"], true);
    assert_eq!(state["fence"], acquired["fence"]);
    assert!(state["valid_for_ms"].as_u64() > Some(3_000_000));
    for nonsense in ["release", "{\"do\":\"dance\"}", "[]"] {
        held.say(nonsense);
        let error = held.tells("error");
        assert!(error["code"].is_null());
        assert!(error["message"].to_string().contains("not understood"));
    }
    // The other verbs accept the token.
    let token = acquired["token"].as_str().expect("a text");
    let check = store.leasehold("check x").env("LEASEHOLD_TOKEN", token);
    check.is(0, &[]);
    held.say("{\"do\":\"release\"}");
    held.tells("released");
    held.ends(0);
    is_free(store);
}

fn who_closes_stdin_while_waiting_leaves_the_line(store: &Store) {
    let first = Held::long(store);
    first.tells("acquired");
    let mut second = Held::long(store);
    second.tells("waiting");
    second.say("{\"do\":\"check\"}");
    assert_eq!(second.tells("state")["held"], false);
    second.close();
    assert_eq!(second.tells("cancelled")["code"], 75);
    second.ends(75);
    first.lets_go();
    store.is_free();
}

fn a_signal_releases_it(store: &Store) {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let held = Held::long(store);
        held.tells("acquired");
        held.running.signal(signal);
        held.tells("released");
        held.ends(code);
        is_free(store);
    }
}

fn a_parent_that_reads_no_more_has_gone(store: &Store) {
    let hold = store.leasehold("hold x --ttl 1h").stdin(Stdio::piped());
    let mut child = hold.spawn();
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

#[test]
fn a_parent_of_many_locks_may_read_late() {
    let store = Store::local();
    let holder = store.hold();
    let hold = store.leasehold("hold --many --ttl 1h");
    let mut child = hold.stdin(Stdio::piped()).spawn();
    let mut stdin = child.stdin.take().expect("stdin");
    let mut events = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut next = || json(&events.next().expect("an event").expect("a line"));
    assert_eq!(next()["event"], "ready");
    for _ in 0..10_000 {
        writeln!(stdin, r#"{{"do":"check","id":1}}"#).expect("it reads");
    }
    writeln!(stdin, r#"{{"do":"acquire","id":1,"lock":"x"}}"#).expect("it reads");
    eventually(LIMIT, "it waits", || {
        let seen = store.json("inspect", "x", 0);
        seen["locks"][0]["queue"][0].is_object()
    });
    store.let_go();
    holder.ends(0, &[]);
    for _ in 0..10_000 {
        assert_eq!(next()["held"], false);
    }
    // Its wait was left out.
    assert_eq!(next()["event"], "acquired");
    // But not never.
    let check = br#"{"do":"check","id":1}"#;
    while stdin
        .write_all(check)
        .and_then(|()| stdin.write_all(b"\n"))
        .is_ok()
    {}
    child.wait().expect("it ends");
    is_free(&store);
}

/// A parent that does not keep stdin open has only started it.
#[test]
fn a_launcher_that_ends_ends_no_hold() {
    let store = Store::local();
    nix::unistd::mkfifo(&store.file("stdin"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let launch =
        "leasehold hold x --ttl 1h < stdin > events & until [ -s events ]; do sleep 0.02; done";
    let launcher = store.program(&["sh", "-c", launch]);
    let mut stdin = thread::scope(|scope| {
        // The other end opens with it.
        let stdin = scope.spawn(|| std::fs::File::create(store.file("stdin")).expect("a pipe"));
        launcher.env("LEASEHOLD_URL", &store.url).is(0, &[]);
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
    let held = Held::start(&store, "x --ttl 6s");
    held.tells("acquired");
    store.server().cli(&["SET", "x", "somebody"]);
    let lost = held.tells("lost");
    assert_eq!(lost["code"], 79);
    assert!(lost["cause"].to_string().contains("foreign"), "{lost}");
    held.ends(79);
}

#[test]
fn failed_renewal_is_reported_and_so_is_the_next_success() {
    let store = Store::redis();
    let held = Held::start(&store, "x --ttl 15s");
    held.tells("acquired");
    let writes = |replicas: &str| {
        let server = store.server();
        server.cli(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    };
    // Well within the TTL, also on a busy machine.
    writes("1");
    let doubtful = held.tells("doubtful");
    assert!(doubtful["valid_for_ms"].as_u64() > Some(0), "{doubtful}");
    writes("0");
    held.tells("renewed");
    held.lets_go();
}

fn the_end_is_told_whatever_it_is(store: &Store) {
    let first = Held::long(store);
    first.tells("acquired");
    for (words, event, code) in [
        ("-n x", "busy", 75),
        ("-w 1 x", "timeout", 124),
        ("a{b", "error", 64),
        ("x --url nonsense:", "error", 78),
        ("x --url redis://:S3CR3T@127.0.0.1:1/", "error", 69),
    ] {
        let held = Held::start(store, words);
        let mut told = held.next();
        while event == "timeout" && told["event"] == "waiting" {
            told = held.next();
        }
        assert_eq!(told["event"], event, "{told}");
        assert_eq!(told["code"], code);
        assert!(!told.to_string().contains("S3CR3T"), "{told}");
        held.ends(code);
    }
    first.lets_go();
}
