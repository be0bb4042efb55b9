//! Stories of single votes and single rounds.

use std::time::Duration;

use leasehold_core::quorum::{
    Mark, NoVote, Proposal, Proposer, QuorumTerms, Refusal, Round, Verdict, bucket, quarantine,
};
use leasehold_core::{
    Acceptable, Block, ClientId, Counter, Fence, Fences, Held, LockName, Now, Owner, Reply, Step,
    Ttl, UnknownPresence, World,
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

fn marked() -> World {
    World::node(Some(Mark {
        terms: terms(3),
        made_at_ms: 0,
    }))
}

fn proposal(owner: u128, first: u64) -> Proposal {
    Proposal {
        owner: Owner::new(owner, ClientId::new(1), "h", 1, "").unwrap(),
        is_shared: false,
        ttl: ttl(10),
        fences: Fences {
            first: Fence::new(first),
            block: Block::nearest(4),
        },
        terms: terms(3),
        wait: None,
    }
}

/// The node's reply to a proposal, so long after the begin.
fn vote(node: &mut World, after_us: u64, proposal: &Proposal) -> Reply {
    let name = LockName::new("stock").unwrap();
    let now = Now::at_micros(NOW_US + after_us);
    let step = Step::Propose(proposal.clone());
    node.apply(now, &name, &step, &UnknownPresence).reply
}

fn held(first: Fence) -> Reply {
    Reply::Held(Held {
        fence: Some(first),
        slot: None,
        block: Block::nearest(4),
        queued: 0,
    })
}

fn bounds(least: u64, most: u64) -> Acceptable {
    Acceptable {
        least: Fence::new(least),
        most: Fence::new(most),
    }
}

/// A block of fences.
fn from(first: u64) -> Fences {
    Fences {
        first: Fence::new(first),
        block: Block::nearest(4),
    }
}

#[test]
fn a_vote_is_for_exactly_the_proposed_fences_or_none() {
    let mut node = marked();
    let ahead = NOW_US + 10 * SECOND;
    let answer = vote(&mut node, 0, &proposal(1, ahead + 1));
    assert_eq!(
        answer,
        Reply::NoVote(NoVote::Behind(bounds(0, ahead))),
        "a new quorum"
    );
    let held = held(Fence::new(NOW_US + 5));
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
        Reply::Busy(_)
    ));
}

#[test]
fn a_raise_is_for_the_holder_and_never_takes_the_lock() {
    let mut node = marked();
    vote(&mut node, 0, &proposal(1, NOW_US));
    let raised = vote(&mut node, 0, &proposal(1, NOW_US + 100));
    assert_eq!(raised, held(Fence::new(NOW_US + 100)));
    let too_far = vote(&mut node, 0, &proposal(1, NOW_US + 11 * SECOND));
    let now = bounds(NOW_US + 104, NOW_US + 10 * SECOND);
    assert_eq!(too_far, Reply::NoVote(NoVote::NotRaised(now)));
    // After the hold, the counter has passed both blocks.
    let after = 11 * SECOND;
    let behind = vote(&mut node, after, &proposal(2, NOW_US + 103));
    let acceptable = bounds(NOW_US + 104, NOW_US + after + 10 * SECOND);
    assert_eq!(behind, Reply::NoVote(NoVote::Behind(acceptable)));
}

/// Found by `scripts/soak`, as history 12419270958597 of whole clients.
#[test]
fn a_late_proposal_shortens_no_renewed_hold() {
    let mut node = marked();
    let name = LockName::new("stock").unwrap();
    let (early, late) = (proposal(1, NOW_US), proposal(1, NOW_US + 100));
    vote(&mut node, 0, &late);
    let longer = Step::Extend {
        owner: late.owner.clone(),
        ttl: ttl(60),
        fence: Some(late.fences.first),
    };
    node.apply(Now::at_micros(NOW_US), &name, &longer, &UnknownPresence);
    for repeat in [&early, &late] {
        assert_eq!(vote(&mut node, SECOND, repeat), held(late.fences.first));
    }
    let raise = proposal(1, NOW_US + 200);
    assert_eq!(vote(&mut node, SECOND, &raise), held(raise.fences.first));
    let other = proposal(2, NOW_US + 500);
    let after = vote(&mut node, 59 * SECOND, &other);
    assert!(matches!(after, Reply::Busy(_)), "{after:?}");
    // A repeat may extend it.
    vote(&mut node, 59 * SECOND, &raise);
    let after = vote(&mut node, 68 * SECOND, &other);
    assert!(matches!(after, Reply::Busy(_)), "{after:?}");
    let after = vote(&mut node, 70 * SECOND, &other);
    assert!(matches!(after, Reply::Held(_)), "{after:?}");
}

/// A reader's proposal.
fn read(owner: u128, number: u64) -> Proposal {
    let fences = Fences {
        first: Fence::new(number),
        block: Block::ONE,
    };
    Proposal {
        is_shared: true,
        fences,
        ..proposal(owner, number)
    }
}

/// The node votes for a reader with this number.
fn reads(number: u64) -> Reply {
    let Reply::Held(held) = held(Fence::new(number)) else {
        unreachable!("it is held")
    };
    Reply::Held(Held {
        block: Block::ONE,
        ..held
    })
}

#[test]
fn readers_that_overtake_each_other_all_have_votes() {
    let mut node = marked();
    for (owner, number) in [(1, NOW_US + 9), (2, NOW_US + 5), (3, NOW_US + 7)] {
        let vote = vote(&mut node, 0, &read(owner, number));
        assert_eq!(vote, reads(number));
    }
    let higher = vote(&mut node, 1, &read(2, NOW_US + 6));
    assert_eq!(higher, reads(NOW_US + 6), "a raise, below the counter");
    let writer = vote(&mut node, 1, &proposal(4, NOW_US + 20));
    assert!(matches!(writer, Reply::Busy(_)), "{writer:?}");
    // Its fence is above the numbers of all.
    let after = 11 * SECOND;
    let behind = vote(&mut node, after, &proposal(4, NOW_US + 9));
    let acceptable = bounds(NOW_US + 10, NOW_US + after + 10 * SECOND);
    assert_eq!(behind, Reply::NoVote(NoVote::Behind(acceptable)));
    vote(&mut node, after, &proposal(4, NOW_US + 10));
    let reader = vote(&mut node, after, &read(5, NOW_US + after));
    assert!(matches!(reader, Reply::Busy(_)), "{reader:?}");
}

/// The votes of a reader were broken, a writer has come and gone, and other readers hold (QR10).
#[test]
fn a_late_proposal_of_a_reader_comes_to_nothing_after_a_writer() {
    let (mut node, name) = (marked(), LockName::new("stock").unwrap());
    let late = read(1, NOW_US + 50);
    vote(&mut node, 0, &read(2, NOW_US + 9));
    vote(&mut node, 0, &late);
    for number in [50, 9] {
        let fence = Fence::new(NOW_US + number);
        let broken = Step::Break { fence };
        let outcome = node.apply(Now::at_micros(NOW_US), &name, &broken, &UnknownPresence);
        assert_eq!(outcome.reply, Reply::Released);
    }
    let writer = proposal(3, NOW_US + 51);
    assert!(matches!(vote(&mut node, 1, &writer), Reply::Held(_)));
    let other = read(4, NOW_US + 11 * SECOND);
    let after = 11 * SECOND;
    assert_eq!(vote(&mut node, after, &other), reads(NOW_US + 11 * SECOND));
    let behind = vote(&mut node, after, &late);
    let acceptable = bounds(NOW_US + 55, NOW_US + after + 10 * SECOND);
    assert_eq!(behind, Reply::NoVote(NoVote::Behind(acceptable)));
}

#[test]
fn a_vote_of_a_reader_is_given_back_by_its_number() {
    let (mut node, name) = (marked(), LockName::new("stock").unwrap());
    let (early, again) = (read(1, NOW_US), read(1, NOW_US + 7));
    vote(&mut node, 0, &early);
    vote(&mut node, 0, &read(2, NOW_US + 3));
    assert_eq!(vote(&mut node, 0, &again), reads(NOW_US + 7));
    let mut back = |proposal: &Proposal| {
        let step = Step::GiveBack {
            owner: proposal.owner.clone(),
            fence: proposal.fences.first,
        };
        (node.apply(Now::at_micros(NOW_US), &name, &step, &UnknownPresence)).reply
    };
    assert!(matches!(back(&early), Reply::NotHeld(_)), "a late one");
    assert_eq!(back(&again), Reply::Released);
    let state = node.get(&name).unwrap();
    let others: Vec<_> = state.holders.iter().map(|hold| hold.vote).collect();
    assert_eq!(others, [Some(Fence::new(NOW_US + 3))]);
}

/// Its client asks again by this number.
#[test]
fn a_refused_renewal_tells_a_reader_of_its_own_vote() {
    let (mut node, name) = (marked(), LockName::new("stock").unwrap());
    let one = read(1, NOW_US + 7);
    vote(&mut node, 0, &one);
    vote(&mut node, 5_000, &read(2, NOW_US + 3));
    let step = Step::Extend {
        owner: one.owner.clone(),
        ttl: one.ttl,
        fence: Some(Fence::new(NOW_US)),
    };
    let now = Now::at_micros(NOW_US + 6_000);
    let reply = node.apply(now, &name, &step, &UnknownPresence).reply;
    let Reply::NotHeld(Some(named)) = reply else {
        panic!("{reply:?}")
    };
    assert!(named.is(&one.owner), "{named:?}");
    assert_eq!(named.fence, Some(one.fences.first));
}

/// A reader that the lead has granted the lock out of its queue has no vote until it claims it.
#[test]
fn a_reader_waits_behind_a_writer_and_claims_its_vote() {
    let (mut node, name) = (marked(), LockName::new("stock").unwrap());
    let wait = Some(leasehold_core::Wait { listening: false });
    vote(&mut node, 0, &read(1, NOW_US));
    let writer = Proposal {
        wait,
        ..proposal(2, NOW_US + 10)
    };
    assert!(matches!(vote(&mut node, 1, &writer), Reply::Busy(_)));
    let reader = Proposal {
        wait,
        ..read(3, NOW_US + 20)
    };
    let refused = vote(&mut node, 2, &reader);
    assert!(matches!(refused, Reply::Busy(busy) if busy.ahead == 1));
    for (at, leaves) in [(3, &read(1, NOW_US)), (4, &writer)] {
        let step = Step::Release {
            owner: leaves.owner.clone(),
            keep: None,
            fence: None,
        };
        node.apply(Now::at_micros(NOW_US + at), &name, &step, &UnknownPresence);
    }
    let state = node.get(&name).unwrap();
    let granted = &state.holders[0];
    assert_eq!((&granted.owner, granted.vote), (&reader.owner, None));
    let number = granted.fences.first.get();
    assert!(number < NOW_US + 20, "{number}");
    assert_eq!(vote(&mut node, 5, &read(3, number)), reads(number));
    assert_eq!(vote(&mut node, 6, &reader), reads(NOW_US + 20));
}

/// A node that has lost a counter takes no number of a reader as a sign that it remembers (QR8).
#[test]
fn a_reader_does_not_lower_the_floor_of_a_lost_counter() {
    let made_at_ms = NOW_US / 1_000;
    let mut node = World::node(Some(Mark {
        terms: terms(3),
        made_at_ms,
    }));
    let name = LockName::new("stock").unwrap();
    let floor = NOW_US + 61 * SECOND;
    let at = 70 * SECOND;
    assert_eq!(vote(&mut node, at, &read(1, floor + 5)), reads(floor + 5));
    node.entry(&name).holders[0].fences.first = Fence::new(7);
    *node.node.as_mut().unwrap().counter(&name) = Counter::default();
    let low = vote(&mut node, at, &read(2, floor - 1));
    let acceptable = bounds(floor, NOW_US + at + 10 * SECOND);
    assert_eq!(low, Reply::NoVote(NoVote::Behind(acceptable)));
    assert_eq!(vote(&mut node, at, &read(2, floor)), reads(floor));
}

#[test]
fn a_node_without_memory_votes_after_its_quarantine() {
    let mut node = World::node(None);
    let full = Duration::from_secs(61);
    assert_eq!(quarantine(ttl(60)), full);
    assert_eq!(quarantine(ttl(1)), Duration::from_secs(13));
    assert_eq!(
        vote(&mut node, 0, &proposal(1, NOW_US)),
        Reply::NoVote(NoVote::Quarantined(full))
    );
    let left = Reply::NoVote(NoVote::Quarantined(Duration::from_secs(1)));
    let last = proposal(1, NOW_US + 60 * SECOND);
    assert_eq!(vote(&mut node, 60 * SECOND, &last), left);
    let low = proposal(1, NOW_US + 61 * SECOND - 1);
    let acceptable = bounds(NOW_US + 61 * SECOND, NOW_US + 71 * SECOND);
    assert_eq!(
        vote(&mut node, 61 * SECOND, &low),
        Reply::NoVote(NoVote::Behind(acceptable))
    );
    let over = proposal(1, NOW_US + 61 * SECOND);
    let held = held(Fence::new(NOW_US + 61 * SECOND));
    assert_eq!(vote(&mut node, 61 * SECOND, &over), held);
}

#[test]
fn clients_of_another_quorum_are_refused() {
    let mut node = marked();
    let mut other = proposal(1, NOW_US);
    other.terms = terms(5);
    assert_eq!(
        vote(&mut node, 0, &other),
        Reply::NoVote(NoVote::OtherTerms(terms(3)))
    );
    vote(&mut node, 0, &proposal(2, NOW_US));
    assert_eq!(
        vote(&mut node, 0, &other),
        Reply::NoVote(NoVote::OtherTerms(terms(3))),
        "a used bucket"
    );
    // They get no other step either.
    let (now, name) = (Now::at_micros(NOW_US), LockName::new("stock").unwrap());
    let mut reply = |nodes| {
        let step = Step::Inspect;
        (node.apply_by(terms(nodes), now, &name, &step, &UnknownPresence)).reply
    };
    assert_eq!(reply(5), Reply::NoVote(NoVote::OtherTerms(terms(3))));
    assert!(matches!(reply(3), Reply::Seen(_)));
}

#[test]
fn a_certificate_is_a_majority_of_this_round() {
    let (five, six) = (Fence::new(5), Fence::new(6));
    let mut round = Round::new(5, from(6));
    assert_eq!(round.heard(0, six, &held(six)), Verdict::Open);
    assert_eq!(round.heard(0, six, &held(six)), Verdict::Open, "a repeat");
    assert_eq!(round.heard(1, five, &held(five)), Verdict::Open, "late");
    assert_eq!(round.heard(9, six, &held(six)), Verdict::Open, "no node");
    assert_eq!(round.silent(4), Verdict::Open);
    assert_eq!(round.heard(1, six, &held(six)), Verdict::Open);
    assert_eq!(round.heard(2, six, &held(six)), Verdict::Certified);
}

#[test]
fn nodes_that_are_behind_name_the_next_number() {
    let six = Fence::new(6);
    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &held(six)), Verdict::Open);
    let behind = Reply::NoVote(NoVote::Behind(bounds(900, 2_000)));
    let again = Verdict::Again(bounds(900, 2_000));
    assert_eq!(round.heard(1, six, &behind), again);
    let far = Reply::NoVote(NoVote::Behind(bounds(3_000, 4_000)));
    assert_eq!(round.heard(2, six, &far), again, "one of two majorities");

    // A waiter proposes below the fences with which the node has granted it the lock.
    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &held(Fence::new(90))), Verdict::Open);
    let above = Verdict::Again(Acceptable {
        least: Fence::new(94),
        most: Fence::MAX,
    });
    assert_eq!(round.heard(1, six, &held(six)), Verdict::Open);
    assert_eq!(round.silent(2), above);

    // A number too far ahead of two clocks: the client comes down to them, and leaves the third out.
    let lower = Reply::NoVote(NoVote::Behind(bounds(2, 4)));
    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &held(six)), Verdict::Open);
    assert_eq!(round.heard(1, six, &lower), Verdict::Open);
    assert_eq!(round.heard(2, six, &lower), Verdict::Again(bounds(2, 4)));

    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &lower), Verdict::Open);
    assert_eq!(round.heard(1, six, &behind), Verdict::Open);
    let apart = Verdict::Refused(Refusal::ClocksApart);
    assert_eq!(round.heard(2, six, &far), apart);
}

#[test]
fn the_next_number_is_one_that_most_nodes_accept() {
    let six = Fence::new(6);
    let mut round = Round::new(5, from(6));
    let mut hear = |node, least, most| {
        let behind = NoVote::Behind(bounds(least, most));
        round.heard(node, six, &Reply::NoVote(behind))
    };
    assert_eq!(hear(0, 10, 100), Verdict::Open);
    assert_eq!(hear(1, 50, 200), Verdict::Open);
    assert_eq!(hear(2, 60, 200), Verdict::Again(bounds(60, 100)));
    assert_eq!(hear(3, 90, 300), Verdict::Again(bounds(90, 100)));
}

/// How many rounds a lone client needs if each message takes half a millisecond.
fn rounds_needed(nodes: [u64; 3], client: u64, used: bool) -> Option<u32> {
    let name = LockName::new("stock").unwrap();
    let mut states = [marked(), marked(), marked()];
    let mut proposer = Proposer::default();
    let mut at = 0;
    let mut rounds = 0;
    for acquisition in 1..=3 {
        let mut bounds = None;
        for _ in 0..4 {
            rounds += 1;
            let fences = proposer.propose(Block::ONE, NOW_US + client + at, bounds);
            let mut round = Round::new(3, fences);
            let mut verdict = Verdict::Open;
            for (node, state) in states.iter_mut().enumerate() {
                let now = Now::at_micros(NOW_US + nodes[node] + at + 500);
                if used && acquisition == 1 && rounds == 1 {
                    state.node.as_mut().unwrap().counter(&name).0 =
                        Some(Fence::new(NOW_US + nodes[node]));
                }
                let mut proposal = proposal(acquisition, 0);
                proposal.fences = fences;
                let step = Step::Propose(proposal);
                let vote = state.apply(now, &name, &step, &UnknownPresence).reply;
                if verdict == Verdict::Open {
                    verdict = round.heard(node, fences.first, &vote);
                }
            }
            at += 1_000;
            match verdict {
                Verdict::Certified => return Some(rounds),
                Verdict::Again(next) => {
                    proposer.learn(NOW_US + client + at, next);
                    bounds = Some(next);
                }
                Verdict::Open | Verdict::Refused(_) => break,
            }
        }
    }
    None
}

#[test]
fn a_lone_client_gets_the_lock_however_its_clock_differs() {
    for nodes in [[0, 0, 0], [0, 0, 15], [15, 0, 0], [0, 5, 9], [0, 5, 15]] {
        let nodes = nodes.map(|seconds| 30 * SECOND + seconds * SECOND);
        for client in [0, 15, 25, 29, 30, 31, 35, 42, 60, 4_000] {
            for used in [false, true] {
                let rounds = rounds_needed(nodes, client * SECOND, used);
                assert!(
                    rounds.is_some_and(|rounds| rounds <= 4),
                    "{nodes:?} {client} {used}: {rounds:?}"
                );
            }
        }
    }
}

#[test]
fn a_round_is_refused_as_soon_as_no_majority_can_be_had() {
    let six = Fence::new(6);
    let mut node = marked();
    vote(&mut node, 0, &proposal(1, NOW_US));
    let busy = vote(&mut node, 0, &proposal(2, NOW_US));
    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &busy), Verdict::Open);
    assert_eq!(round.heard(1, six, &busy), Verdict::Refused(Refusal::Busy));

    // A node that is down hides whether the lock is busy, until the last one has replied.
    let mut round = Round::new(3, from(6));
    assert_eq!(round.silent(0), Verdict::Open);
    assert_eq!(round.heard(1, six, &busy), Verdict::Open);
    assert_eq!(round.heard(2, six, &busy), Verdict::Refused(Refusal::Busy));

    // With the node that is busy, the one that voted would have been a majority.
    let mut round = Round::new(3, from(6));
    assert_eq!(round.heard(0, six, &held(six)), Verdict::Open);
    assert_eq!(round.silent(1), Verdict::Open);
    assert_eq!(round.heard(2, six, &busy), Verdict::Refused(Refusal::Busy));

    let mut round = Round::new(5, from(6));
    for down in [0, 1] {
        assert_eq!(round.silent(down), Verdict::Open);
    }
    assert_eq!(round.heard(2, six, &held(six)), Verdict::Open);
    assert_eq!(round.heard(3, six, &busy), Verdict::Open);
    assert_eq!(round.heard(4, six, &busy), Verdict::Refused(Refusal::Busy));

    let mut round = Round::new(3, from(6));
    assert_eq!(round.silent(0), Verdict::Open);
    let unavailable = Verdict::Refused(Refusal::Unavailable);
    assert_eq!(round.silent(1), unavailable);
    for node in 0..3 {
        // Its votes are being given back (QR9).
        assert_eq!(round.heard(node, six, &held(six)), unavailable);
    }

    // The clock of one node is far ahead. The others agree, but for those that vote for another owner.
    let behind = |least, most| Reply::NoVote(NoVote::Behind(bounds(least, most)));
    for (votes, refusal) in [(true, Refusal::Busy), (false, Refusal::ClocksApart)] {
        let mut round = Round::new(5, from(6));
        assert_eq!(round.heard(0, six, &behind(3_000, 4_000)), Verdict::Open);
        for node in [1, 2] {
            assert_eq!(round.heard(node, six, &behind(2, 4)), Verdict::Open);
        }
        let mut rest = |node| {
            if votes {
                round.heard(node, six, &busy)
            } else {
                round.silent(node)
            }
        };
        assert_eq!(rest(3), Verdict::Open);
        assert_eq!(rest(4), Verdict::Refused(refusal));
    }
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
fn clock_far_ahead_proposes_a_number_that_counts() {
    let proposed = Proposer::default().propose(Block::MOST, u64::MAX, None);
    assert!(!Counter(Some(proposed.last())).is_lost());
}

#[test]
fn buckets_are_crc16_of_the_key_modulo_1024() {
    let name = LockName::new("123456789").unwrap();
    assert_eq!(bucket(&name), 0x31c3 % 1_024);
}
