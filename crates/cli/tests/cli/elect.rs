//! `elect`: a leader among all that campaign; and `leader`, which tells who it is.

use std::fs;

use nix::sys::signal::Signal;
use testkit::{FaultProxy, eventually};

use crate::common::{LEASEHOLD, LIMIT, Running, Store, lives, on_each_store};

on_each_store! {
    a_killed_leader_is_followed,
    a_leader_that_ends_is_followed_at_once,
    a_lost_term_is_followed_by_another_one,
    leadership_goes_round,
    the_leader_is_told,
}

/// Writes its term and its process id, and stays.
const WORK: &str = "echo $LEASEHOLD_TERM $$ >> terms; exec sleep 1000";

/// What the commands wrote: their terms, and their process ids.
fn terms(store: &Store) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(store.file("terms")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let pair = |line: &str| {
        let (term, pid) = line.split_once(' ').expect("two numbers");
        (
            term.parse().expect("a term"),
            pid.parse().expect("a process id"),
        )
    };
    whole.lines().map(pair).collect()
}

/// The terms once there are so many.
fn until_terms(store: &Store, count: usize) -> Vec<(u64, u64)> {
    eventually(LIMIT, "terms", || terms(store).len() >= count);
    let terms = terms(store);
    assert!(terms.is_sorted_by(|a, b| a.0 < b.0), "{terms:?}");
    terms
}

fn campaign(store: &Store, words: &str, script: &str) -> Running {
    let words = format!("{words} x");
    store
        .verb("elect", &words)
        .words(&["sh", "-c", script])
        .start()
}

fn a_killed_leader_is_followed(store: &Store) {
    let leader = campaign(store, "--ttl 6s", WORK);
    let first = until_terms(store, 1);
    let next = campaign(store, "--ttl 6s", WORK);
    next.until_it_says("1st in line");
    leader.signal(Signal::SIGKILL);
    leader.end();
    eventually(LIMIT, "its command is dead", || !lives(first[0].1));
    until_terms(store, 2);
    next.signal(Signal::SIGTERM);
    next.ends(143, &["got \"x\" after "]);
}

/// Long before the end of its term.
fn a_leader_that_ends_is_followed_at_once(store: &Store) {
    let script =
        format!("{WORK} & while ! [ -e let-go ]; do sleep 0.02; done; kill $!; wait; exit 79");
    let leader = campaign(store, "--ttl 1h", &script.replace("exec ", ""));
    until_terms(store, 1);
    let next = campaign(store, "--ttl 1h", WORK);
    next.until_it_says("1st in line");
    campaign(store, "-n", WORK).ends(75, &["is busy", "leasehold elect -w 5m "]);
    store.let_go();
    // It is the status of the command.
    let done = leader.ends(79, &[]);
    assert!(!done.stderr.contains("campaigning again"), "{done:?}");
    let all = until_terms(store, 2);
    next.signal(Signal::SIGTERM);
    next.ends(143, &[]);
    eventually(LIMIT, "its command is dead", || !lives(all[1].1));
}

fn a_lost_term_is_followed_by_another_one(store: &Store) {
    let leader = campaign(store, "--report report", WORK);
    for count in 1..=3 {
        let all = until_terms(store, count);
        let (term, pid) = all[count - 1];
        store.all_vote("x", term);
        if count == 3 {
            break;
        }
        let fence = term.to_string();
        store
            .verb("break", &["x", "--if-fence", &fence])
            .is(0, &["was broken"]);
        until_terms(store, count + 1);
        assert!(!lives(pid), "the command of the term before");
    }
    leader.signal(Signal::SIGTERM);
    let says = [
        "the lease on \"x\" (fence ",
        "was lost",
        "; campaigning again",
    ];
    let done = leader.ends(143, &says);
    assert_eq!(
        done.stderr.matches("campaigning again").count(),
        2,
        "{done:?}"
    );
    let report = store.document("report");
    assert_eq!(
        (&report["outcome"], &report["command_signal"]),
        (&"ended".into(), &15.into())
    );
    assert_eq!(report["fence"], terms(store)[2].0);
    assert!(report["lost_cause"].is_null(), "{report}");

    // A signal ends the pause after a loss, and there is no other term.
    let leader = campaign(store, "--report report", WORK);
    let term = until_terms(store, 4)[3].0.to_string();
    store
        .verb("break", &["x", "--if-fence", &term])
        .is(0, &["was broken"]);
    leader.until_it_says("campaigning again");
    leader.signal(Signal::SIGTERM);
    leader.ends(143, &[]);
    assert_eq!(terms(store).len(), 4);
    assert_eq!(store.document("report")["outcome"], "interrupted");
}

fn leadership_goes_round(store: &Store) {
    let script = |name: &str| format!("echo {name} >> names; {WORK}");
    let start = |name: &str| campaign(store, "--ttl 6s --max-term 2s", &script(name));
    let (a, b) = (start("a"), start("b"));
    until_terms(store, 5);
    let names = fs::read_to_string(store.file("names")).expect("names");
    let names: Vec<&str> = names.lines().collect();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    for leader in [a, b] {
        leader.signal(Signal::SIGTERM);
        leader.ends(
            143,
            &[
                "reached its time limit (2.0s, --max-term)",
                "; campaigning again",
            ],
        );
    }
}

fn the_leader_is_told(store: &Store) {
    let none = store
        .verb("leader", "x")
        .is(75, &["\"x\" has no leader (exit 75)", "leasehold elect "]);
    assert_eq!(none.stdout, "");
    assert!(store.json("leader", "x", 75)["holder"].is_null());
    store
        .verb("leader", "--wait 1 x")
        .is(124, &["no leader after 1.", "(exit 124)"]);
    let waits = store.verb("leader", "--wait 1h x").start();
    let watches = store.verb("leader", "--watch --interval 50ms x").start();
    watches.until_it_writes("Z no leader\n");

    let leader = campaign(store, "--note 10.0.0.7:8080", WORK);
    let term = until_terms(store, 1)[0].0;
    let line = format!(
        "(pid {}: 10.0.0.7:8080), term {term}, since 20",
        leader.pid()
    );
    assert!(waits.ends(0, &[]).stdout.contains(&line));
    watches.until_it_writes(&line);
    let told = store.json("leader", "x", 0);
    assert_eq!(
        (&told["fence"], &told["error"]),
        (&term.into(), &serde_json::Value::Null)
    );
    assert_eq!(told["holder"]["note"], "10.0.0.7:8080");
    leader.signal(Signal::SIGTERM);
    leader.ends(143, &[]);
    let ended =
        || watches.written().ends_with("Z no leader\n") && watches.written().contains(&line);
    eventually(LIMIT, "there is none", ended);
    watches.signal(Signal::SIGTERM);
    watches.ends(143, &[]);
}

/// A leader whose command reads its settings again leads on, and then campaigns as before. Who waits has no command, and ends.
#[test]
fn a_hangup_ends_a_wait_and_no_term() {
    let store = Store::local();
    let script =
        "trap 'touch settings' HUP; echo $LEASEHOLD_TERM $$ >> terms; while :; do sleep 0.02; done";
    let leader = campaign(&store, "", script);
    let (term, _) = until_terms(&store, 1)[0];
    let waits = campaign(&store, "", WORK);
    waits.until_it_says("1st in line");
    for one in [&waits, &leader] {
        one.signal(Signal::SIGHUP);
    }
    waits.ends(129, &[]);
    store.until("settings");
    let broken = store.verb("break", &["x", "--if-fence", &term.to_string()]);
    broken.is(0, &["was broken"]);
    until_terms(&store, 2);
    leader.signal(Signal::SIGTERM);
    leader.ends(143, &["campaigning again"]);
}

/// The URL has a password, so each command has a file with it.
#[test]
fn the_command_of_each_term_finds_its_store() {
    let store = Store::with_password();
    let script = format!("{LEASEHOLD} check || exit 7; echo $LEASEHOLD_TTL_MS >> ttl; {WORK}");
    let leader = campaign(&store, "--max-term 2s", &script);
    until_terms(&store, 3);
    leader.signal(Signal::SIGTERM);
    leader.ends(143, &[]);
    let ttl = fs::read_to_string(store.file("ttl")).expect("TTLs");
    assert!(ttl.lines().all(|ttl| ttl == "10000"), "{ttl}");
}

#[test]
fn a_leader_outlives_an_outage_of_the_store() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    store.url = proxy.url();
    let leader = campaign(&store, "--ttl 6s", WORK);
    let pid = until_terms(&store, 1)[0].1;
    let watches = store.verb("leader", "--watch --interval 50ms x").start();
    watches.until_it_writes("term ");
    proxy.refuse(true);
    proxy.cut();
    watches.until_it_writes("unanswered: ");
    eventually(LIMIT, "the command is stopped", || !lives(pid));
    // It has lost its term, and then asks in vain.
    let again = || leader.said().matches("; campaigning again").count();
    eventually(LIMIT, "it campaigns", || again() > 1);
    store
        .verb("leader", "x")
        .is(69, &["(exit 69)", "this is not known"]);
    proxy.refuse(false);
    until_terms(&store, 2);
    leader.signal(Signal::SIGTERM);
    leader.ends(143, &["cannot connect"]);
}

#[test]
fn what_makes_no_leader_is_refused() {
    let store = Store::local();
    for (words, says) in [
        ("--on-lost warn x true", "two leaders"),
        ("--max-term 5ms x true", "10ms"),
        ("--once a x true", "--once"),
        ("--also y x true", "--also"),
        ("x", "leasehold elect [OPTIONS] NAME"),
        ("--grace 1s --max-term 1s x true", "less than --max-term"),
    ] {
        store.verb("elect", words).is(64, &[says, "(exit 64)"]);
    }
    store
        .verb("elect", "x no-such-command")
        .is(127, &["not found"]);
    store
        .verb("leader", "--watch --wait 1 x")
        .is(64, &["--wait"]);
    store
        .verb("leader", &["a\nb"])
        .is(64, &["invalid lock name"]);
}
