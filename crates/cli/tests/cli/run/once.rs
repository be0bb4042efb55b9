//! `--once`: a command that runs once among all hosts.

use std::fs;

use nix::sys::signal::Signal;
use testkit::{FaultProxy, RedisServer, eventually};

use crate::common::{LEASEHOLD, LIMIT, Running, Store, lives, on_each_store_of_entries};

on_each_store_of_entries! {
    work_is_done_once,
    failed_work_is_tried_again,
    work_is_done_once_under_kills_at_every_point,
    a_period_is_that_of_the_store,
}

fn lines(store: &Store, file: &str) -> usize {
    let text = fs::read_to_string(store.file(file)).unwrap_or_default();
    text.lines().count()
}

fn work_is_done_once(store: &Store) {
    let work = |words: &str, firing: &str| {
        let run = store
            .run(words)
            .words(&["--once", firing, "--report", "report", "x"]);
        run.words(&["sh", "-c", "echo $LEASEHOLD_FIRING >> done"])
    };
    work("", "2026-11-27 nightly").is(0, &[]);
    let report = store.document("report");
    assert_eq!(report["firing"], "2026-11-27 nightly");
    assert_eq!(
        (&report["firing_run"], &report["outcome"]),
        (&1.into(), &"ended".into())
    );
    let done = work("", "2026-11-27 nightly").output();
    done.is(
        80,
        &[
            "\"x\" is done for \"2026-11-27 nightly\" (exit 80)",
            "by ",
            "sh",
            " ago (",
        ],
    );
    let report = store.document("report");
    assert_eq!(
        (&report["outcome"], &report["started"]),
        (&"done".into(), &false.into())
    );
    work("--skip", "2026-11-27 nightly").says_nothing(0);
    // A mark is told also while the lock is held.
    let holder = store.hold();
    work("", "2026-11-27 nightly").is(80, &["is done"]);
    work("-n", "2026-11-28").is(75, &["is busy"]);
    store.let_go();
    holder.ends(0, &[]);
    work("", "2026-11-28").is(0, &[]);
    assert_eq!(lines(store, "done"), 2);
    // Without --once, it is a lock like any other, and an outer firing is not told.
    let inner = format!("{LEASEHOLD} run y sh -c 'echo ${{LEASEHOLD_FIRING-none}}'");
    let outer = store.script("--once a x", &inner).output();
    outer.shows(&["none"]);
}

fn failed_work_is_tried_again(store: &Store) {
    let fail = |words: &str| store.script(&format!("{words} --once a x"), "exit 3");
    for _ in 0..2 {
        fail("--once-tries 2").is(3, &[]);
    }
    let spent = fail("--once-tries 2 --skip --report report").output();
    spent.is(
        81,
        &[
            "\"x\" has failed for \"a\" in 2 tries (exit 81)",
            "higher --once-tries",
        ],
    );
    assert_eq!(store.document("report")["outcome"], "spent");
    store.is_free();
    fail("--once-tries 3").is(3, &[]);
    store.run("--once a x true").is(0, &[]);
    fail("").is(80, &["is done"]);
}

/// Eight hosts want the same firing. The runs of the first four end in another way each, and the fifth is successful.
fn work_is_done_once_under_kills_at_every_point(store: &Store) {
    let script = format!(
        r"
        echo run >> runs
        case $(wc -l < runs) in
        1) echo $PPID > victim1; kill -9 $PPID; sleep 60 ;;
        2) exit 3 ;;
        3) {LEASEHOLD} break --if-fence $LEASEHOLD_FENCE x; sleep 60 ;;
        4) echo work >> work; echo $PPID > victim4; kill -9 $PPID ;;
        *) echo work >> work ;;
        esac"
    );
    let host = |_| store.script("--ttl 6s --once a x", &script).start();
    let hosts: Vec<_> = (0..8).map(host).collect();
    for victim in ["victim1", "victim4"] {
        let pid = store.number(victim);
        eventually(LIMIT, "it is dead", || !lives(pid));
        // Nobody waits for the TTL of a dead holder.
        store.ends_in("x", 1);
    }
    let ends = hosts.into_iter().map(|host| host.end().status.code());
    let mut codes: Vec<_> = ends.collect();
    codes.sort_unstable();
    let done = Some(80);
    assert_eq!(
        codes,
        [None, None, Some(0), Some(3), Some(79), done, done, done]
    );
    assert_eq!((lines(store, "runs"), lines(store, "work")), (5, 2));
}

fn a_period_is_that_of_the_store(store: &Store) {
    let daily = |words: &str| store.script(&format!("{words} x"), "echo $LEASEHOLD_FIRING");
    let first = daily("--once-per 200d --once-zone Asia/Tokyo").output();
    first.is(0, &[]);
    let firing = first.stdout.trim();
    assert!(firing.ends_with("/200d[Asia/Tokyo]"), "{first:?}");
    daily("--once-per 200d --once-zone Asia/Tokyo").is(80, &["is done"]);
    let part = daily("--once-per 12h").output();
    let firing = part.stdout.trim();
    assert!(firing.ends_with(":00:00+00:00/12h"), "{part:?}");
}

#[test]
fn a_period_follows_the_clock_of_the_server() {
    let store = Store::on(RedisServer::builder().virtual_clock().start());
    let daily = |code| {
        let words = "--once-per 1d --once-zone Europe/Berlin x";
        let done = store.script(words, "echo $LEASEHOLD_FIRING").output();
        done.is(code, &[]);
        done.stdout.trim().to_owned()
    };
    // 2033-05-18T21:58:00Z, two minutes before midnight in Berlin.
    let evening = 2_000_066_280_000_000;
    for (minutes, code, day) in [(0, 0, "2033-05-18"), (1, 80, ""), (2, 0, "2033-05-19")] {
        store.server().clock().set(evening + minutes * 60_000_000);
        assert!(daily(code).starts_with(day), "after {minutes} minutes");
    }
}

/// The server stops when the work is done, and the mark cannot be written.
#[test]
fn a_signal_ends_the_marking() {
    let store = Store::redis();
    let script = "echo $$ > works; while ! [ -e let-go ]; do sleep 0.02; done";
    let mut marks = store.script("--once c x", script).start();
    let worker = store.number("works");
    store.server().pause();
    store.let_go();
    eventually(LIMIT, "the work ends", || !lives(worker));
    // The first signal may come before the marking.
    eventually(LIMIT, "it ends", || {
        marks.signal(Signal::SIGTERM);
        marks.has_ended()
    });
    store.server().resume();
    let says = [
        "\"x\" has run for \"c\", but is not marked as done",
        "may repeat it",
    ];
    marks.end().is(79, &says);
}

/// The lock is deleted before the run begins: after the grant, and after a grant that was waited for.
#[test]
fn a_lease_that_is_lost_before_the_run_is_reported() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    let direct = std::mem::replace(&mut store.url, proxy.url());
    let is_lost = |run: Running| {
        eventually(LIMIT, "its next request is held", || proxy.is_holding());
        store.server().cli(&["DEL", "x"]);
        proxy.go_on();
        run.ends(79, &["was lost", "no one holds it", "(exit 79)"]);
        let report = store.document("report");
        assert_eq!(
            (&report["outcome"], &report["started"]),
            (&"lost".into(), &false.into())
        );
        let cause = report["lost_cause"].as_str().expect("a cause");
        assert!(cause.contains("no one holds it"), "{report}");
        assert!(!store.file("ran").exists());
    };
    // It asks whether the firing is done, for the lock, and for the begin of the run.
    proxy.hold_after("EVALSHA");
    let first = store.run("--report report --once a x touch ran").start();
    eventually(LIMIT, "it asks for the lock", || proxy.is_holding());
    proxy.hold_after("EVALSHA");
    eventually(LIMIT, "it has the lock", || {
        !store.server().cli(&["GET", "x"]).is_nil()
    });
    is_lost(first);

    let hold = "touch held; while ! [ -e let-go ]; do sleep 0.02; done";
    let holder = store
        .leasehold(&["run", "--url", &direct, "x", "sh", "-c", hold])
        .start();
    store.until("held");
    let waits = store.run("--report report --ttl 60s x touch ran").start();
    waits.until_it_says("1st in line");
    proxy.hold_at("EVALSHA");
    store.let_go();
    holder.ends(0, &[]);
    is_lost(waits);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let store = Store::local();
    for (words, says) in [
        ("--once-tries 2 x true", "--once-tries requires --once"),
        ("--once-keep 2d x true", "--once-keep requires --once"),
        (
            "--once-per 2d --once-keep 1d x true",
            "shorter than --once-per",
        ),
        ("--once-zone UTC x true", "--once-per"),
        ("--once a --once-per 1d x true", "cannot be used with"),
        (
            "--once a --protocol timestamp x true",
            "its locks have no owner",
        ),
        ("--once-per 7h x true", "divides a day"),
        (
            "--once-per 1d --once-zone Mars/Olympus x true",
            "no time zone",
        ),
        ("--once a --once-keep 401d x true", "1 s to 400 days"),
        ("--once a --once-tries 0 x true", "--once-tries"),
    ] {
        store.run(words).is(64, &[says]);
    }
    store
        .run(&["--once", "", "x", "true"])
        .is(64, &["firing", "is empty"]);
    Store::quorum()
        .run("--once a x true")
        .is(78, &["keeps no firings"]);
}
