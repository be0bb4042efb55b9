//! Runs the production state machines of clients and of their quorum in many random histories, in virtual time: a few clients, three or
//! five nodes with clocks of their own, and a network between each client and each node. One seed gives one history.
//!
//! The clocks of nodes and clients are up to 10 s apart, in some histories 20 s, and run at different speeds. The network delays, loses
//! and repeats messages. Nodes stop for a while, are started again with all their data, with old data or without any, and operators
//! break locks. Clients crash and pause, and other names use the fence counter. Users leave at any point. Half of the histories have the
//! [rare choices](super::rare) of one server, but no late answers. A second row of histories has readers and writers.
//!
//! # Checked in every history
//!
//! - No two users rely on leases of one lock, unless both are readers (QR1). Broken leases are excused. A reader has no fence (QR10).
//! - No two leases share a fence (QR2). Fences rise from lease to lease (QR3), also over losses of data (QR4).
//! - While no node loses data and no lock is broken, a majority holds the lock for each lease in use (QR6).
//! - A client knows each owner for which a node keeps a vote or a place in its queue, or a message about it is on its way (V1).
//! - A client serves its waiters in their order (Q3). Every waiter gets a reply, in time if it has a limit (Q2, Q4).
//! - A lease that renews itself is not lost while a majority is [in reach](reach) (V7).
//! - A lost lease stays lost (L3), its user is told in time, and a lease is renewed only on its terms (RN2), as for one server.
//! - A release is only reported as a loss if nodes lost data, or the lock was broken. It is only reported as done if a majority has
//!   released the owner, or does not hold for it (U2). A proposal that comes later gets a vote that the client takes back (V1).
//! - At the end the machines remember nothing, and the nodes keep nothing of a living client (V1).
//!
//! `LEASEHOLD_SEED=<number>` replays one history and prints it; `LEASEHOLD_SEEDS=<number>` says how many there are.

mod checks;
mod network;
mod node;
mod parts;
mod reach;
mod rolling;
mod sim;
mod trouble;

use leasehold_core::quorum::{Proposal, QuorumTerms};
use leasehold_core::{Block, ClientId, Fence, Fences, LockName, Owner, Step, Ttl};

use self::node::{Node, are_free};
use self::sim::{LONGEST_TTL, QuorumSimulation};
use super::rare::Rare;
use super::sim::SECOND;
use super::{Outcome, each_history};

/// How many histories a test run tries. `scripts/soak` tries more.
const SEEDS: u64 = 20_000;

/// How many more it tries with readers and writers.
const READER_SEEDS: u64 = 5_000;

/// How many histories a weaker rule may pass before one fails.
const CONTROL_SEEDS: u64 = 20_000;

/// The rules of a history: those that ship, or a weaker variant. Each variant has a fault that a server may have in truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    Sound,
    /// A node that lost its data votes at once.
    NoQuarantine,
    /// A node that was started with old data, or with those of another node, votes at once.
    OldDataIsTrusted,
    /// Every second node stores a proposal only for a moment, though it has voted for it.
    VotesDoNotLast,
    /// A node gives its vote to no owner of a lease.
    VotesDoNotComeBack,
    /// Every second node answers a release, and keeps the vote.
    ReleasesAreLost,
}

fn outcome(rules: Rules, seed: u64, told: bool) -> Outcome {
    super::outcome(
        || QuorumSimulation::new(seed, rules, Rare::of(seed), told),
        QuorumSimulation::run,
        QuorumSimulation::story,
    )
}

#[test]
fn every_history_of_a_quorum_keeps_the_invariants() {
    each_history(SEEDS, |seed, told| outcome(Rules::Sound, seed, told));
}

/// The choices of a history with readers.
fn with_readers(seed: u64) -> Rare {
    Rare::of(seed).with_readers(seed)
}

#[test]
fn every_history_of_readers_and_writers_keeps_the_invariants() {
    each_history(READER_SEEDS, |seed, told| {
        super::outcome(
            || QuorumSimulation::new(seed, Rules::Sound, with_readers(seed), told),
            QuorumSimulation::run,
            QuorumSimulation::story,
        )
    });
}

/// As for one server.
#[test]
fn histories_of_a_quorum_that_had_a_fault_have_none() {
    for seed in [
        134_677,
        5_542_970,
        1_125_411_738_319,
        12_419_270_958_597,
        14_916_975_440_787,
        16_593_025_663_638,
        38_473_682_148_171,
        40_693_085_593_933,
        41_883_731_436_166,
        66_492_925_389_860,
    ] {
        for rare in [Rare::default(), Rare::of(seed)] {
            let fault = QuorumSimulation::new(seed, Rules::Sound, rare, false).run();
            assert_eq!(fault, Ok(()), "LEASEHOLD_SEED={seed}");
        }
    }
}

/// Found as history 63388. A node has released a lease, another one never held it, and the third does not answer. Then a late proposal
/// of the owner gets a vote, so that a majority holds again. That is no lost release: the client takes the vote back (V1).
#[test]
fn a_vote_that_comes_after_its_release_is_no_lost_release() {
    let terms = QuorumTerms {
        nodes: 3,
        longest_ttl: Ttl::new(LONGEST_TTL).unwrap(),
    };
    let mut nodes = [0; 3].map(|_| Node::new(terms, 2 * SECOND, 1_000));
    let name = LockName::new("a").unwrap();
    let owner = Owner::new(1, ClientId::new(1), "test", 1, "").unwrap();
    let proposal = Step::Propose(Proposal {
        owner: owner.clone(),
        is_shared: false,
        ttl: terms.longest_ttl,
        fences: Fences {
            first: Fence::new(3 * SECOND),
            block: Block::ONE,
        },
        terms,
        wait: None,
    });
    let release = Step::Release {
        owner: owner.clone(),
        keep: None,
        fence: None,
    };
    let mut after = |node: usize, step| {
        nodes[node].step(0, &name, step);
        let held = nodes.iter().filter(|it| it.holds_for(0, &name, &owner));
        (held.count(), are_free(&nodes, 0, &name, &owner))
    };
    assert_eq!(after(0, &proposal), (1, true));
    assert_eq!(after(1, &proposal), (2, false));
    assert_eq!(after(1, &release), (1, true));
    assert_eq!(after(2, &release), (1, true));
    assert_eq!(after(2, &proposal), (2, true));
}

#[test]
fn each_weaker_rule_of_a_quorum_fails() {
    for (rules, expected) in [
        (Rules::NoQuarantine, "QR1"),
        (Rules::NoQuarantine, "QR3"),
        (Rules::OldDataIsTrusted, "QR1"),
        (Rules::VotesDoNotLast, "QR1"),
        (Rules::VotesDoNotComeBack, "V7"),
        (Rules::ReleasesAreLost, "U2"),
    ] {
        let fails = |seed, told| {
            outcome(rules, seed, told).filter(|(fault, _)| fault.starts_with(expected))
        };
        let seed = (0..CONTROL_SEEDS).find(|seed| fails(*seed, false).is_some());
        let seed = seed.unwrap_or_else(|| panic!("{rules:?} does not violate {expected}"));
        let (fault, story) = fails(seed, true).unwrap();
        println!("{rules:?}, seed {seed}: {fault}");
        // The events before the fault.
        let from = story.len().saturating_sub(60);
        println!("{}\n", story[from..].join("\n"));
    }
}

#[test]
fn a_seed_is_one_history_of_a_quorum() {
    let mut lines = 0;
    for seed in 0..20 {
        let story = || {
            let rare = Rare::of(seed);
            let mut simulation = QuorumSimulation::new(seed, Rules::Sound, rare, true);
            simulation.run().unwrap();
            simulation.story()
        };
        assert_eq!(story(), story());
        lines += story().len();
    }
    assert!(lines > 1_000, "something happens: {lines}");
}
