//! Simulates clients of a quorum over real nodes of `leasehold-core`: theorems QR1 to QR4 in many histories, and weaker rules that break
//! each of them. A seed is one history.
//!
//! In each second history, clients are readers or writers by chance; a reader has no fence, so QR1 alone says something of it.
//!
//! Clocks of nodes and clients differ by up to 20 s and run at rates up to 1 % apart. Messages are late, lost, repeated and reordered.
//! Nodes lose their data, start with older data, or get those of another node. Operators break locks, other names use the same fence
//! counter, and a client may count another quorum.
//!
//! `LEASEHOLD_SEED=<number>` prints one history. `LEASEHOLD_SEEDS=<number>` says how many to try, and
//! `LEASEHOLD_SEEDS=<first>..<end>` which.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod client;
mod clock;
mod judge;
mod sim;
mod stories;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::judge::Violation;
use crate::sim::{Rules, Simulation};

/// How many histories a test run tries.
const SEEDS: u64 = 20_000;

/// How many histories may pass before a weaker rule fails.
const CONTROL_SEEDS: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect(name))
}

/// The seeds of this run.
fn seeds() -> Range<u64> {
    let text = std::env::var("LEASEHOLD_SEEDS").unwrap_or_else(|_| SEEDS.to_string());
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let [first, end] = [first, end].map(|number| number.parse().expect("LEASEHOLD_SEEDS"));
    first..end
}

/// One of these histories that violates a theorem, and how many leases there were.
fn first_violation(rules: Rules, seeds: &Range<u64>) -> (Option<(u64, Violation)>, u64) {
    let (next, leases) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let found = Mutex::new(None);
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || found.lock().unwrap().is_some() {
                return;
            }
            let mut simulation = Simulation::new(seed, rules, false);
            simulation.run();
            leases.fetch_add(simulation.leases.len() as u64, Ordering::Relaxed);
            if let Some(violation) = judge::first(&simulation.leases) {
                found.lock().unwrap().get_or_insert((seed, violation));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(search);
        }
    });
    (found.into_inner().unwrap(), leases.into_inner())
}

/// The story of a seed.
fn story(seed: u64, rules: Rules) -> String {
    let mut simulation = Simulation::new(seed, rules, true);
    simulation.run();
    simulation.story.join("\n")
}

#[test]
fn qr1_to_qr4_hold_in_every_history() {
    if let Some(seed) = number("LEASEHOLD_SEED") {
        let mut simulation = Simulation::new(seed, Rules::Sound, true);
        simulation.run();
        println!("{}", simulation.story.join("\n"));
        assert_eq!(judge::first(&simulation.leases), None);
        return;
    }
    let seeds = seeds();
    let (found, leases) = first_violation(Rules::Sound, &seeds);
    if let Some((seed, violation)) = found {
        let story = story(seed, Rules::Sound);
        let again = format!("LEASEHOLD_SEED={seed} cargo test -p leasehold-core --test quorum");
        panic!("{story}\nseed {seed}: {violation:?}\nrepeat it: {again}");
    }
    let count = seeds.end - seeds.start;
    assert!(
        leases >= 2 * count && count > 0,
        "{leases} leases in {count} histories"
    );
}

/// Each weaker rule violates one of these theorems in some history, which is printed.
#[test]
fn each_weaker_rule_fails() {
    for (rules, expected) in [
        (Rules::NoQuarantine, &["QR1"][..]),
        (Rules::NoQuarantine, &["QR2", "QR3"]),
        (Rules::QuarantineOfOneTtl, &["QR2", "QR3"]),
        (Rules::NoFloorAfterLoss, &["QR2", "QR3"]),
        (Rules::NoCounter, &["QR2", "QR3"]),
        (Rules::HighestVote, &["QR2", "QR3"]),
        (Rules::LateVotesCount, &["QR2", "QR3"]),
        (Rules::RefusedRoundCounts, &["QR1"]),
        (Rules::ValidFromTheReply, &["QR1"]),
        (Rules::MinorityIsEnough, &["QR1"]),
        (Rules::MinorityReads, &["QR1"]),
        (Rules::LowestVote, &["QR2", "QR3"]),
        (Rules::RoundNotAwaited, &["QR1"]),
        (Rules::RoundNotAwaited, &["QR2", "QR3"]),
        (Rules::RaiseTakes, &["QR1"]),
        (Rules::ExtensionTakes, &["QR1"]),
        (Rules::OldDataIsTrusted, &["QR1"]),
        (Rules::OldDataIsTrusted, &["QR2", "QR3"]),
        (Rules::OtherDataIsTrusted, &["QR1"]),
        (Rules::OtherDataIsTrusted, &["QR2", "QR3"]),
        (Rules::ServerCountsTwice, &["QR1"]),
        (Rules::OtherTermsCount, &["QR1"]),
    ] {
        let found = (0..CONTROL_SEEDS).find_map(|seed| {
            let mut simulation = Simulation::new(seed, rules, false);
            simulation.run();
            let mut all = judge::all(&simulation.leases);
            let violation = all.find(|violation| expected.contains(&violation.theorem))?;
            Some((seed, violation))
        });
        let (seed, violation) =
            found.unwrap_or_else(|| panic!("{rules:?} violates no {expected:?}"));
        let (theorem, leases) = (violation.theorem, violation.leases);
        println!("{rules:?}: seed {seed} violates {theorem}: {leases}");
        println!("{}\n", story(seed, rules));
    }
}

#[test]
fn a_history_does_what_it_says() {
    let mut simulation = Simulation::new(8, Rules::Sound, true);
    simulation.run();
    assert!(simulation.leases.len() > 3, "{}", simulation.leases.len());
    assert_eq!(
        simulation.story.join("\n"),
        story(8, Rules::Sound),
        "one seed is one history"
    );
}
