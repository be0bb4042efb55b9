//! Model checks of a quorum: sound rules hold in every state, and each weaker rule is found by the property that it violates. Each model
//! must reach its situations.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[macro_use]
mod common;

use std::collections::BTreeSet;

use leasehold_core::quorum::{Mark, QuorumTerms, quarantine};
use leasehold_core::{Block, Fence, Fences, Holder, LockName, Mode, Reply, Step, World};
use leasehold_lab::quorum::{ClientRules, Counting, QuorumRules, check_one, names};
use leasehold_lab::rules::{Apply, Bounds};

/// Every property holds in every state of a model, which reaches its situations.
#[track_caller]
fn holds_in(model: &str) {
    let found = check_one(Bounds::Ci, model, QuorumRules::SOUND).unwrap();
    common::holds(found, 6, (25_000, 30));
}

models! {
    every_property_holds_within_the_bounds_of holds_in {
        quorum "quorum"
        renewal "quorum renewal"
        repair "quorum repair"
        lead_unreachable "quorum lead unreachable"
        readers "quorum readers"
    }
    in_soak {
        giving_up "quorum giving up"
        lost_message "quorum lost message"
        late_request "quorum late request"
        crash "quorum crash"
        queue "quorum queue"
        newcomer "quorum newcomer"
        clocks_apart "quorum clocks apart"
        lost_memory "quorum lost memory"
        operator_break "quorum break"
        clock_jump "quorum clock jump"
        endless_vote "quorum endless vote"
        foreign_vote "quorum foreign vote"
        reader_queue "quorum reader queue"
    }
}

#[test]
fn every_model_has_a_test() {
    let tested: BTreeSet<&str> = TESTED.iter().copied().collect();
    for bounds in [Bounds::Ci, Bounds::Deep] {
        let all: BTreeSet<&str> = names(bounds).into_iter().collect();
        assert_eq!(all, tested);
    }
}

#[track_caller]
fn finds(property: &str, model: &str, rules: QuorumRules) {
    common::finds(check_one(Bounds::Ci, model, rules).unwrap(), property);
}

fn with_node(node: Apply) -> QuorumRules {
    QuorumRules {
        node,
        ..QuorumRules::SOUND
    }
}

fn with_client(client: ClientRules) -> QuorumRules {
    QuorumRules {
        client,
        ..QuorumRules::SOUND
    }
}

fn with_counting(counting: Counting) -> QuorumRules {
    QuorumRules {
        counting,
        ..QuorumRules::SOUND
    }
}

/// One test for each.
macro_rules! found {
    ($($test:ident $property:literal in $model:literal by $rules:expr;)*) => {
        $(#[test]
        fn $test() {
            finds($property, $model, $rules);
        })*
    };
}

found! {
    vq2_the_highest_vote_without_a_certificate_is_found "VQ2" in "quorum lost message"
        by with_counting(Counting::HighestVote);
    vq2_votes_of_a_refused_round_are_found "VQ2" in "quorum late request"
        by with_counting(Counting::RefusedRounds);
    vq1_a_minority_is_found "VQ1" in "quorum"
        by with_counting(Counting::Minority);
    vq1_a_lease_that_counts_from_the_reply_is_found "VQ1" in "quorum"
        by with_client(ClientRules::ValidFromReply);
    vq1_a_renewal_that_counts_from_the_reply_is_found "VQ1" in "quorum renewal"
        by with_client(ClientRules::RenewsFromReply);
    vq1_a_renewal_by_one_node_is_found "VQ1" in "quorum renewal"
        by with_client(ClientRules::RenewsByMinority);
    vq4_votes_of_a_refused_round_that_are_kept_are_found "VQ4" in "quorum"
        by with_client(ClientRules::KeepsVotes);
    vq4_votes_of_a_waiter_without_the_lead_are_found "VQ4" in "quorum queue"
        by with_client(ClientRules::WaitsWithoutLead);
    vq4_a_release_that_passes_a_proposal_is_found "VQ4" in "quorum newcomer"
        by with_client(ClientRules::ReleasesAtOnce);
    vq6_a_newcomer_that_passes_waiters_is_found "VQ6" in "quorum newcomer"
        by with_client(ClientRules::PassesWaiters);
}

#[test]
fn vq1_a_node_that_votes_at_once_after_a_loss_is_found() {
    let lost = |terms, _| {
        let made_at_ms = 0;
        Some(Mark { terms, made_at_ms })
    };
    let rules = QuorumRules {
        lost,
        ..QuorumRules::SOUND
    };
    finds("VQ1", "quorum lost memory", rules);
}

#[test]
fn vq2_a_quarantine_of_one_ttl_is_found() {
    let lost = |terms: QuorumTerms, now_ms| {
        let full = quarantine(terms.longest_ttl);
        let full = u64::try_from(full.as_millis()).unwrap();
        let made_at_ms = now_ms - full + terms.longest_ttl.millis();
        Some(Mark { terms, made_at_ms })
    };
    let rules = QuorumRules {
        lost,
        ..QuorumRules::SOUND
    };
    finds("VQ2", "quorum lost memory", rules);
}

/// Takes the floor of the counter away before a vote.
fn vote_from_zero(world: &mut World, name: &LockName) {
    world.node.as_mut().unwrap().counter(name).0 = Some(Fence::new(0));
}

#[test]
fn vq2_a_node_without_a_floor_after_a_loss_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        let node = world.node.as_mut().unwrap();
        let is_over = |mark: Mark| mark.made_at_ms > 0 && mark.quarantined_for(now).is_none();
        if node.mark.is_some_and(is_over) && node.counter(name).is_lost() {
            vote_from_zero(world, name);
        }
        world.apply(now, name, step, presence)
    });
    finds("VQ2", "quorum lost memory", rules);
}

#[test]
fn vq3_a_node_that_counts_no_fences_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        vote_from_zero(world, name);
        world.apply(now, name, step, presence)
    });
    finds("VQ3", "quorum", rules);
}

#[test]
fn vq1_a_higher_number_that_takes_the_lock_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Propose(proposal), Reply::Busy(_)) = (step, &outcome.reply) {
            let holders = &mut world.entry(name).holders;
            if holders
                .first()
                .is_some_and(|holder| holder.fences.first < proposal.fences.first)
            {
                *holders = vec![Holder {
                    owner: proposal.owner.clone(),
                    mode: Mode::Exclusive,
                    fences: proposal.fences,
                    slot: None,
                    vote: None,
                    expires_at_ms: now.millis() + proposal.ttl.millis(),
                    kept: false,
                }];
                return world.apply(now, name, step, presence);
            }
        }
        outcome
    });
    finds("VQ1", "quorum", rules);
}

#[test]
fn vq1_a_reader_beside_a_writer_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        let reads = matches!(step, Step::Propose(proposal) if proposal.is_shared);
        let holders = std::mem::take(&mut world.entry(name).holders);
        let is_hidden = |holder: &Holder| reads && holder.mode == Mode::Exclusive;
        let (hidden, seen): (Vec<_>, Vec<_>) = holders.into_iter().partition(is_hidden);
        world.entry(name).holders = seen;
        let outcome = world.apply(now, name, step, presence);
        world.entry(name).holders.extend(hidden);
        outcome
    });
    finds("VQ1", "quorum readers", rules);
}

#[test]
fn vq3_a_reader_below_the_writers_before_it_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        if matches!(step, Step::Propose(proposal) if proposal.is_shared) {
            vote_from_zero(world, name);
        }
        world.apply(now, name, step, presence)
    });
    finds("VQ3", "quorum readers", rules);
}

#[test]
fn vq4_a_release_that_frees_nothing_is_found() {
    let rules = with_node(|world, now, name, step, presence| {
        let before = world.clone();
        let outcome = world.apply(now, name, step, presence);
        if matches!(step, Step::Release { .. }) {
            *world = before;
        }
        outcome
    });
    finds("VQ4", "quorum", rules);
}

#[test]
fn vq5_a_lead_that_is_always_obeyed_is_found() {
    for model in ["quorum endless vote", "quorum foreign vote"] {
        finds("VQ5", model, with_client(ClientRules::ObeysLead));
    }
}

/// Each takes ten seconds and more; `scripts/soak` runs them.
mod in_soak {
    use super::*;

    found! {
        vq2_votes_of_an_earlier_round_are_found "VQ2" in "quorum lost message"
            by with_counting(Counting::EarlierRounds);
        vq1_a_proposal_of_a_vote_that_is_given_back_is_found "VQ1" in "quorum queue"
            by with_client(ClientRules::ForgetsVotes);
    }

    #[test]
    fn vq5_a_counter_that_accepts_no_number_is_found() {
        let rules = with_node(|world, now, name, step, presence| {
            if let Step::Propose(proposal) = step {
                let mut proposal = proposal.clone();
                proposal.fences = Fences {
                    first: Fence::new(1),
                    block: Block::ONE,
                };
                return world.apply(now, name, &Step::Propose(proposal), presence);
            }
            world.apply(now, name, step, presence)
        });
        finds("VQ5", "quorum", rules);
    }
}
