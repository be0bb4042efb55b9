//! The output of `-v`, its destination, and the secrets that it never shows.

#![cfg(target_os = "linux")]

use crate::common::pty::Session;
use crate::common::{LEASEHOLD, Store, on_each_store};
use testkit::{RedisServer, ReservedPort};

const CANARY: &str = "C4N4RY-s3cr3t";

on_each_store! {
    once_shows_the_way_to_the_lock_and_back,
    twice_shows_renewals,
    shows_who_is_waited_for,
}

/// The lines of `-v`, without program name and time.
#[track_caller]
fn events(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines().filter_map(|line| {
        let (time, event) = line.strip_prefix("leasehold: ")?.split_once(' ')?;
        // 03:12:45.123Z
        let is_time = time.len() == 13 && time.as_bytes()[8] == b'.' && time.ends_with('Z');
        is_time.then_some(event)
    });
    lines.collect()
}

fn once_shows_the_way_to_the_lock_and_back(store: &Store) {
    for words in ["-v x", "--verbose x"] {
        let done = store.script(words, "echo $LEASEHOLD_FENCE").is(0, &[]);
        let fence = done.stdout.trim();
        let events = events(&done.stderr);
        let starts = [
            format!("connecting {}", shown(store)),
            format!("connected {}", shown(store)),
            format!("acquired \"x\", fence {fence}, waited "),
            format!("released \"x\", fence {fence}"),
        ];
        assert_eq!(events.len(), starts.len(), "{done:?}");
        for (event, start) in events.iter().zip(&starts) {
            assert!(event.starts_with(start), "{start:?}: {done:?}");
        }
        assert!(!done.stderr.contains('\x1b'), "{done:?}");
    }
}

/// The name of the store.
fn shown(store: &Store) -> String {
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    if store.quorum.is_empty() {
        return plain(&store.url);
    }
    let servers = store.quorum.iter().map(|server| plain(&server.url()));
    format!("quorum of 3: {}", servers.collect::<Vec<_>>().join(", "))
}

fn twice_shows_renewals(store: &Store) {
    let script = "touch ready; while ! [ -e let-go ]; do sleep 0.02; done";
    let running = store.script("-vv --ttl 6s x", script).start();
    running.until_it_says(" renewed \"x\", fence ");
    store.let_go();
    running.ends(0, &[" released \"x\""]);
}

fn shows_who_is_waited_for(store: &Store) {
    let holder = store.hold();
    let waiter = store.run("-v x true").start();
    let holder_is = format!("(pid {}: sh)", holder.pid());
    waiter.until_it_says(" in line \"x\", ahead 0, holder ");
    store.let_go();
    waiter.ends(0, &[&holder_is, " acquired \"x\", fence "]);
    holder.ends(0, &[]);
}

#[test]
fn verbose_off_is_silent_and_after_lock_belongs_to_command() {
    let store = Store::local();
    assert_eq!(store.run("x echo -v").prints(0, "-v\n").stderr, "");
    // The option may also stand before the verb.
    let before = store.leasehold("-v run x true");
    before.is(0, &[" acquired \"x\""]);
}

#[test]
fn a_loss_and_a_server_that_goes_are_warnings() {
    let store = Store::redis();
    let start = || {
        let running = store.run("-v --ttl 6s x sleep 1000").start();
        running.until_it_says(" acquired \"x\"");
        running
    };
    let running = start();
    store.server().cli(&["DEL", "x"]);
    running.ends(79, &[" WARNING lease lost \"x\", fence "]);

    let running = start();
    store.server().kill();
    running.until_it_says(" WARNING connection lost ");
    running.until_it_says(" WARNING renewal failed \"x\", fence ");
    running.ends(79, &[]);
}

#[test]
fn no_password_is_shown_whatever_goes_wrong() {
    let guarded = RedisServer::builder().password("another one").start();
    let open = RedisServer::builder().password(CANARY).start();
    let (nobody, store) = (ReservedPort::new(), Store::local());
    for (port, code) in [
        (nobody.number(), 69),
        (guarded.port(), 77),
        (open.port(), 0),
    ] {
        let url = format!("redis://:{CANARY}@127.0.0.1:{port}/");
        let run = store.leasehold("run -vv -w 20s x env");
        let connecting = format!(" connecting redis://127.0.0.1:{port}");
        let done = run.env("LEASEHOLD_URL", &url).is(code, &[&connecting]);
        assert!(!done.stderr.contains(CANARY), "{done:?}");
    }
}

/// Log lines would break a line that is rewritten.
#[test]
fn at_a_terminal_every_line_is_whole() {
    let store = Store::local();
    let holder = store.hold();
    let words = [LEASEHOLD, "run", "-v", "--url", &store.url, "x", "true"];
    let mut session = Session::start(&words, |command| {
        command.current_dir(store.dir.path());
    });
    session.until(" in line \"x\"");
    session.until("leasehold: waiting for \"x\", 1st in line");
    store.let_go();
    session.until("leasehold: got \"x\"");
    assert_eq!(session.end().code(), Some(0));
    holder.ends(0, &[]);
    let shown = session.shown();
    assert!(!shown.contains('\x1b'), "{shown:?}");
    for line in shown.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("leasehold: "), "{shown:?}");
    }
}
