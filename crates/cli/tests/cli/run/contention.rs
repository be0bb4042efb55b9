//! Eight real processes contend for one lock. One is killed while it waits, one while it holds. A counter under
//! the lock loses no update, and no process waits long for the killed ones.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time")]

use std::fs;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Done, Running, Store, on_each_store};
use nix::sys::signal::Signal;

/// Reads the counter, takes 5 to 10 ms, and writes it; then writes down fence, begin and end (nanoseconds since 1970).
const COUNT: &str =
    "begin=$(date +%s%N); n=$(cat counter); sleep 0.00$((5 + n % 5)); echo $((n + 1)) > counter
    echo $LEASEHOLD_FENCE $begin $(date +%s%N) >> log";

const UNTIL_GO: &str = "touch held; while ! [ -e go ]; do sleep 0.01; done";

const WORKERS: usize = 6;
const ROUNDS: usize = 6;

on_each_store! {
    a_counter_loses_nothing_when_processes_are_killed,
    nobody_waits_for_a_dead_waiter,
}

fn a_counter_loses_nothing_when_processes_are_killed(store: &Store) {
    fs::write(store.file("counter"), "0").expect("write the counter");

    // All eight run before the first one ends: a holder that counts too, six workers, and one that dies waiting.
    let first = count(store, &format!("{UNTIL_GO}; {COUNT}"));
    store.until("held");
    let killed_waiting = contend(store, "echo died waiting >> log");
    killed_waiting.until_it_says("1st in line");
    let workers: Vec<Running> = (0..WORKERS).map(|_| count(store, COUNT)).collect();
    for worker in &workers {
        worker.until_it_says("in line: held");
    }
    killed_waiting.signal(Signal::SIGKILL);
    store.touch("go");

    let (ends, killed_at) = thread::scope(|scope| {
        let rounds = workers.into_iter().map(|first_run| {
            let later = (1..ROUNDS).map(move |_| count(store, COUNT));
            let all = std::iter::once(first_run).chain(later);
            scope.spawn(|| all.map(Running::end).collect::<Vec<Done>>())
        });
        let rounds: Vec<_> = rounds.collect();
        // Among them, one that dies while it holds.
        let holder = contend(store, "touch holding; exec sleep 1000");
        store.until("holding");
        let killed_at = now();
        holder.signal(Signal::SIGKILL);
        // No worker's lease ends, and that of the dead one only now.
        store.ends_in("counter", 1);
        let done =
            |rounds: ScopedJoinHandle<'_, _>| rounds.join().expect("a worker that ends well");
        let ends = rounds.into_iter().flat_map(done);
        let ends: Vec<Done> = ends.chain([first.end()]).collect();
        (ends, killed_at)
    });

    let counted = usize::try_from(store.number("counter")).expect("a small number");
    for done in &ends {
        assert_eq!(done.code(), 0, "{done:?}");
    }
    assert_eq!((ends.len(), counted), (WORKERS * ROUNDS + 1, ends.len()));
    let holds = log(store);
    assert_eq!(holds.len(), counted);
    for pair in holds.windows(2) {
        let ([fence, _, end], [next_fence, next_begin, _]) = (pair[0], pair[1]);
        assert!(fence < next_fence && end <= next_begin, "{pair:?}");
    }
    let mut begins = holds.iter().map(|[_, begin, _]| *begin);
    let next = begins.find(|begin| *begin > killed_at);
    let waited = Duration::from_nanos(next.expect("someone went on") - killed_at);
    // The next one looks each second, and not only after the lease of which it knows.
    assert!(
        waited <= Duration::from_secs(15),
        "{waited:?} for a dead holder"
    );
}

/// The next waiter is dead: the following one gets the lock before the claim window of 3 s ends. A busy machine delays single
/// runs; a claim window delays each.
fn nobody_waits_for_a_dead_waiter(store: &Store) {
    let soon = Duration::from_millis(2_500);
    let mut gaps = Vec::new();
    while gaps.len() < 4 && gaps.last().is_none_or(|gap| *gap > soon) {
        gaps.push(gap_after_a_dead_waiter(store));
    }
    let is_soon = gaps.last().is_some_and(|gap| *gap <= soon);
    assert!(is_soon, "waited {gaps:?} for a dead waiter");
}

/// The time between two holds, with a killed waiter between them.
fn gap_after_a_dead_waiter(store: &Store) -> Duration {
    for file in ["held", "go", "log"] {
        fs::remove_file(store.file(file)).ok();
    }
    let stamp = "echo 1 $(date +%s%N) $(date +%s%N) >> log";
    let holder = contend(store, &format!("{UNTIL_GO}; {stamp}"));
    store.until("held");
    let dead = contend(store, "true");
    dead.until_it_says("1st in line");
    let next = contend(store, stamp);
    next.until_it_says("2nd in line");
    // It is reaped before the lock is free: a process that was only sent the signal might still be granted the
    // lock.
    dead.signal(Signal::SIGKILL);
    drop(dead);
    store.touch("go");
    holder.ends(0, &[]);
    next.ends(0, &[]);
    let [[_, _, end], [_, begin, _]] = log(store)[..] else {
        panic!("two holds were to be logged")
    };
    Duration::from_nanos(begin - end)
}

/// `script` under the lock. Its lease is long, so that it does not end.
fn contend(store: &Store, script: &str) -> Running {
    store.script("counter", script).start()
}

/// The command for a script that counts.
fn count(store: &Store, script: &str) -> Running {
    contend(store, &format!("set -e; {script}"))
}

/// Fence, begin and end of each hold, in the order of their begins.
fn log(store: &Store) -> Vec<[u64; 3]> {
    let log = fs::read_to_string(store.file("log")).expect("the log");
    let read = |line: &str| -> [u64; 3] {
        let numbers = line
            .split(' ')
            .map(|number| number.parse().expect("a number"));
        let numbers: Vec<u64> = numbers.collect();
        numbers.try_into().expect("three numbers")
    };
    let mut holds: Vec<[u64; 3]> = log.lines().map(read).collect();
    holds.sort_by_key(|[_, begin, _]| *begin);
    holds
}

fn now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970");
    u64::try_from(now.as_nanos()).expect("a time before 2554")
}
