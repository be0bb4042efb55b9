//! Stories of single votes and single rounds.

use std::time::Duration;

use leasehold_core::quorum::{
    Mark, Proposal, Proposer, QuorumNode, QuorumTerms, Refusal, Round, Verdict, Vote, bucket,
    quarantine,
};
use leasehold_core::{
    Acceptable, Block, ClientId, Fence, Fences, LockName, Now, Owner, Ttl, UnknownPresence,
};

const NOW_US: u64 = 1_790_000_000_000_000;
const SECOND: u64 = 1_000_000;

fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

fn terms(nodes: u8) -> QuorumTerms {
    QuorumTerms {
        nodes,
        longest_ttl: ttl(60),
    }
}

fn marked() -> QuorumNode {
    QuorumNode::marked(Mark {
        terms: terms(3),
        made_at_ms: 0,
    })
}

fn proposal(owner: u128, first: u64) -> Proposal {
    Proposal {
        owner: Owner::new(owner, ClientId::new(1), "h", 1, "").unwrap(),
        ttl: ttl(10),
        fences: Fences {
            first: Fence::new(first),
            block: Block::nearest(4),
        },
        terms: terms(3),
    }
}

/// The node's vote on a proposal, so long after the begin.
fn vote(node: &mut QuorumNode, after_us: u64, proposal: &Proposal) -> Vote {
    let name = LockName::new("stock").unwrap();
    let now = Now::at_micros(NOW_US + after_us);
    node.propose(now, &name, proposal, &UnknownPresence)
}

fn bounds(least: u64, most: u64) -> Acceptable {
    Acceptable {
        least: Fence::new(least),
        most: Fence::new(most),
    }
}

#[test]
fn a_vote_is_for_exactly_the_proposed_fences_or_none() {
    let mut node = marked();
    let ahead = NOW_US + 10 * SECOND;
    let first_bounds = bounds(NOW_US, ahead);
    for refused in [NOW_US - 1, ahead + 1] {
        let answer = vote(&mut node, 0, &proposal(1, refused));
        assert_eq!(answer, Vote::Behind(first_bounds));
    }
    let held = Vote::Held(Fence::new(NOW_US + 5));
    assert_eq!(vote(&mut node, 0, &proposal(1, NOW_US + 5)), held);
    assert_eq!(
        vote(&mut node, 1, &proposal(1, NOW_US + 5)),
        held,
        "a repeat"
    );
    assert_eq!(
        vote(&mut node, 1, &proposal(1, NOW_US)),
        held,
        "a late request"
    );
    assert!(matches!(
        vote(&mut node, 1, &proposal(2, ahead)),
        Vote::Busy(_)
    ));
}

#[test]
fn a_raise_is_for_the_holder_and_never_takes_the_lock() {
    let mut node = marked();
    vote(&mut node, 0, &proposal(1, NOW_US));
    let raised = vote(&mut node, 0, &proposal(1, NOW_US + 100));
    assert_eq!(raised, Vote::Held(Fence::new(NOW_US + 100)));
    let too_far = vote(&mut node, 0, &proposal(1, NOW_US + 11 * SECOND));
    let now = bounds(NOW_US + 104, NOW_US + 10 * SECOND);
    assert_eq!(too_far, Vote::NotRaised(now));
    // After the hold, the counter has passed both blocks.
    let after = 11 * SECOND;
    let behind = vote(&mut node, after, &proposal(2, NOW_US + 103));
    let acceptable = bounds(NOW_US + 104, NOW_US + after + 10 * SECOND);
    assert_eq!(behind, Vote::Behind(acceptable));
}

#[test]
fn a_node_without_memory_votes_after_its_quarantine() {
    let mut node = QuorumNode::default();
    let full = Duration::from_secs(61);
    assert_eq!(quarantine(ttl(60)), full);
    assert_eq!(quarantine(ttl(1)), Duration::from_secs(13));
    assert_eq!(
        vote(&mut node, 0, &proposal(1, NOW_US)),
        Vote::Quarantined(full)
    );
    let left = Vote::Quarantined(Duration::from_secs(1));
    let last = proposal(1, NOW_US + 60 * SECOND);
    assert_eq!(vote(&mut node, 60 * SECOND, &last), left);
    let over = proposal(1, NOW_US + 61 * SECOND);
    let held = Vote::Held(Fence::new(NOW_US + 61 * SECOND));
    assert_eq!(vote(&mut node, 61 * SECOND, &over), held);
}

#[test]
fn clients_of_another_quorum_are_refused() {
    let mut node = marked();
    let mut other = proposal(1, NOW_US);
    other.terms = terms(5);
    assert_eq!(vote(&mut node, 0, &other), Vote::OtherTerms(terms(3)));
}

#[test]
fn a_certificate_is_a_majority_of_this_round() {
    let (five, six) = (Fence::new(5), Fence::new(6));
    let mut round = Round::new(5, six);
    assert_eq!(round.heard(0, six, &Vote::Held(six)), Verdict::Open);
    assert_eq!(
        round.heard(0, six, &Vote::Held(six)),
        Verdict::Open,
        "a repeat"
    );
    assert_eq!(
        round.heard(1, five, &Vote::Held(five)),
        Verdict::Open,
        "late"
    );
    assert_eq!(
        round.heard(9, six, &Vote::Held(six)),
        Verdict::Open,
        "no node"
    );
    assert_eq!(round.silent(4), Verdict::Open);
    assert_eq!(round.heard(1, six, &Vote::Held(six)), Verdict::Open);
    assert_eq!(round.heard(2, six, &Vote::Held(six)), Verdict::Certified);
}

#[test]
fn nodes_that_are_behind_name_the_next_number() {
    let six = Fence::new(6);
    let mut round = Round::new(3, six);
    assert_eq!(round.heard(0, six, &Vote::Held(six)), Verdict::Open);
    let behind = Vote::Behind(bounds(900, 2_000));
    let again = Verdict::Again(bounds(900, 2_000));
    assert_eq!(round.heard(1, six, &behind), again);
    let far = Vote::Behind(bounds(3_000, 4_000));
    let apart = Verdict::Refused(Refusal::ClocksApart);
    assert_eq!(round.heard(2, six, &far), apart);

    // A number too far ahead of all clocks: the client comes down, unless a node has voted for it.
    let lower = Vote::Behind(bounds(2, 4));
    let mut round = Round::new(3, six);
    assert_eq!(round.heard(0, six, &lower), Verdict::Open);
    assert_eq!(round.heard(1, six, &lower), Verdict::Again(bounds(2, 4)));
    assert_eq!(round.heard(2, six, &Vote::Held(six)), apart);
}

#[test]
fn a_round_is_refused_as_soon_as_no_majority_can_be_had() {
    let six = Fence::new(6);
    let mut node = marked();
    vote(&mut node, 0, &proposal(1, NOW_US));
    let busy = vote(&mut node, 0, &proposal(2, NOW_US));
    let mut round = Round::new(3, six);
    assert_eq!(round.heard(0, six, &busy), Verdict::Open);
    assert_eq!(round.heard(1, six, &busy), Verdict::Refused(Refusal::Busy));

    let mut round = Round::new(3, six);
    assert_eq!(round.silent(0), Verdict::Open);
    let unavailable = Verdict::Refused(Refusal::Unavailable);
    assert_eq!(round.silent(1), unavailable);
    assert_eq!(
        round.heard(1, six, &Vote::Held(six)),
        Verdict::Open,
        "it was late"
    );
}

#[test]
fn a_client_learns_how_far_its_clock_is_off() {
    let mut proposer = Proposer::default();
    let block = Block::nearest(4);
    let propose = |proposer: &mut Proposer, wall| proposer.propose(block, wall, None).first.get();
    assert_eq!(propose(&mut proposer, 1_000), 1_000);
    assert_eq!(propose(&mut proposer, 1_000), 1_004, "never twice");
    proposer.learn(2_000, bounds(9_000, 20_000));
    assert_eq!(propose(&mut proposer, 2_000), 9_000);
    assert_eq!(propose(&mut proposer, 3_000), 10_000);
    // A clock that is too far ahead of the nodes comes down to the highest number that they accept.
    let nodes = bounds(2_000, 3_000);
    proposer.learn(9_000, nodes);
    assert_eq!(
        proposer.propose(block, 9_000, Some(nodes)).first.get(),
        3_000
    );
    assert_eq!(propose(&mut proposer, 10_000), 4_000);
}

#[test]
fn buckets_are_crc16_of_the_key_modulo_1024() {
    let name = LockName::new("123456789").unwrap();
    assert_eq!(bucket(&name), 0x31c3 % 1_024);
}
