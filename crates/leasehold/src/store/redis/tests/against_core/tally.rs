//! Counts the outcomes that the random steps have reached. Without it, the comparison could pass without comparing anything.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposal};
use leasehold_core::{Busy, Fence, Fences, HolderIdentity, LockState, Outcome, Owner, Reply, Step};

use super::CASES;
use super::model::passed_over;
use super::node::{Role, wants};
use crate::store::redis::protocol::Kind;

/// How often each outcome occurred.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    pub(super) steps: usize,
    pub(super) acquired: usize,
    pub(super) acquired_again: usize,
    pub(super) woken: usize,
    pub(super) silent_dropped: usize,
    pub(super) passed_over: usize,
    pub(super) taken_past_the_line: usize,
    pub(super) told_first: usize,
    pub(super) told_of_short_claims: usize,
    pub(super) extended: usize,
    pub(super) not_extended: usize,
    pub(super) kept: usize,
    /// Releases that `hand_over.lua` may do, if they come in the long form.
    pub(super) handed_over: usize,
    pub(super) not_released: usize,
    pub(super) broken: usize,
    pub(super) not_broken: usize,
    pub(super) expired: usize,
    pub(super) claims_expired: usize,
    pub(super) foreign_seen: usize,
    /// Holders and waiters that name the fence of another hold.
    pub(super) held_otherwise: usize,
    pub(super) freed_otherwise: usize,
    pub(super) left_otherwise: usize,
    pub(super) fence_ahead: usize,
    pub(super) queues_forgotten: usize,
    pub(super) told: usize,
    pub(super) told_of_more: usize,
    pub(super) wanted: usize,
    /// Grants of more than one fence, and steps by another fence than the first.
    pub(super) blocks: usize,
    pub(super) held_by_another: usize,
    pub(super) broken_by_another: usize,
    /// Steps for which a short form was tried, and those that it fitted: acquires, and the others.
    pub(super) tried_short: [usize; 2],
    pub(super) fitted: [usize; 2],
    pub(super) first_polls: usize,
    pub(super) polls_at_the_end: usize,
    pub(super) given_back: usize,
    pub(super) not_given_back: usize,
    /// Raises of the holder's fences.
    pub(super) raised: usize,
    /// Proposals that were behind, not raised, or refused in a quarantine.
    pub(super) no_votes: [usize; 3],
    /// Proposals of clients of another quorum, and other steps of theirs.
    pub(super) other_terms: [usize; 2],
    pub(super) batches: usize,
    pub(super) batched: usize,
    /// The owner that was granted the lock and has not claimed it yet.
    unclaimed: Option<Owner>,
}

impl Tally {
    /// Counts the effects of a step.
    pub(super) fn note(
        &mut self,
        now_ms: u64,
        step: &Step,
        before: &LockState,
        after: &LockState,
        outcome: &Outcome,
    ) {
        self.steps += 1;
        self.woken += outcome.wakes.len();
        if let Some(wake) = outcome.wakes.last() {
            self.unclaimed = Some(wake.owner.clone());
        }
        for waiter in &before.queue {
            let queued = after.queue.iter().any(|other| other.owner == waiter.owner);
            let woken = outcome.wakes.iter().any(|wake| wake.owner == waiter.owner);
            let asked = wants(step) == Some(&waiter.owner)
                || matches!(step, Step::Release { owner, .. } if *owner == waiter.owner);
            if !queued && !woken && !asked {
                assert!(waiter.seen_until_ms < now_ms, "nobody else is dropped");
                self.silent_dropped += 1;
            }
        }
        self.passed_over += passed_over(before, after).count();
        let foreign = usize::from(after.foreign.is_some());
        let first = usize::from(outcome.first.is_some());
        self.told_first += first * foreign;
        self.told_of_short_claims += first * (1 - foreign);
        match (step, &outcome.reply) {
            (
                Step::Acquire { owner, .. }
                | Step::Propose(Proposal { owner, .. })
                | Step::Extend { owner, .. },
                Reply::Held(_),
            ) => {
                let again = held(before, owner);
                self.unclaimed = None;
                let fences = after.holders[0].fences;
                match step {
                    Step::Extend { fence, .. } => {
                        self.extended += 1;
                        let is_another = |fence| fence != fences.first;
                        self.held_by_another += usize::from(fence.is_some_and(is_another));
                    }
                    _ if again => {
                        self.acquired_again += 1;
                        self.raised += usize::from(before.holders[0].fences != fences);
                    }
                    _ => {
                        self.acquired += 1;
                        self.blocks += usize::from(fences.block.get() > 1);
                        self.taken_past_the_line += usize::from(!after.queue.is_empty());
                    }
                }
            }
            (Step::Extend { owner, .. }, _) => {
                self.not_extended += 1;
                self.held_otherwise += usize::from(held(after, owner));
            }
            (Step::Release { keep, fence, .. }, Reply::Released) => {
                self.kept += usize::from(keep.is_some());
                let next = before.queue.front().filter(|next| {
                    let is_woken = outcome.wakes.iter().any(|wake| wake.owner == next.owner);
                    is_woken && next.listening && next.ttl.millis() >= 1_000
                });
                let is_short = keep.is_none() && fence.is_some() && next.is_some();
                self.handed_over += usize::from(is_short);
            }
            (Step::Release { owner, .. }, _) => {
                self.not_released += 1;
                self.freed_otherwise += usize::from(held(before, owner));
                self.left_otherwise += usize::from(waits(before, owner));
            }
            (Step::Break { fence }, Reply::Released) => {
                self.broken += 1;
                let is_another = |fences: Fences| *fence != fences.first;
                let holder = before.holders.first();
                let by_another = holder.is_some_and(|holder| is_another(holder.fences));
                self.broken_by_another += usize::from(by_another);
            }
            (Step::Break { .. }, Reply::NotHeld(Some(_))) => self.not_broken += 1,
            (Step::GiveBack { .. }, Reply::Released) => self.given_back += 1,
            (Step::GiveBack { owner, .. }, _) => {
                self.not_given_back += usize::from(held(before, owner));
            }
            (Step::Propose(_), Reply::NoVote(reason)) => {
                self.no_votes[match reason {
                    NoVote::Behind(_) => 0,
                    NoVote::NotRaised(_) => 1,
                    NoVote::Quarantined(_) => 2,
                    NoVote::OtherTerms(_) | NoVote::NotANode => panic!("{reason:?}"),
                }] += 1;
            }
            _ => {}
        }
        if let Reply::Busy(busy) = &outcome.reply {
            self.first_polls += usize::from(busy.poll_after == Duration::from_secs(1));
            let at_the_end = |left: Duration| busy.poll_after > left;
            self.polls_at_the_end +=
                usize::from(busy.ahead > 0 && busy.holder.expires_in.is_some_and(at_the_end));
        }
        if let Reply::Busy(Busy { holder, .. }) | Reply::NotHeld(Some(holder)) = &outcome.reply {
            self.foreign_seen += usize::from(matches!(holder.who, HolderIdentity::Foreign { .. }));
            // True until the clock has caught up.
            let ahead = |fence: Fence| fence.get() / 1_000 > now_ms;
            self.fence_ahead += usize::from(holder.fence.is_some_and(ahead));
        }
    }

    /// Counts a step of a client of another quorum that the node has refused.
    pub(super) fn note_other_terms(&mut self, step: &Step) {
        self.steps += 1;
        self.other_terms[usize::from(!matches!(step, Step::Propose(_)))] += 1;
    }

    /// Counts the messages of a step.
    pub(super) fn note_messages(&mut self, outcome: &Outcome) {
        self.told += outcome.wakes.len();
        self.told_of_more += outcome.wakes.iter().filter(|wake| wake.queued > 0).count();
        self.wanted += usize::from(outcome.wanted.is_some());
    }

    /// Counts the steps of a request, and which of them the short form fits.
    pub(super) fn note_fits(&mut self, kind: Kind, fits: &[bool]) {
        if !kind.is_long() {
            let which = usize::from(kind.settles());
            self.tried_short[which] += fits.len();
            self.fitted[which] += fits.iter().filter(|fits| **fits).count();
        }
    }

    /// Counts a request with this many steps.
    pub(super) fn note_batch(&mut self, steps: usize) {
        self.batches += 1;
        self.batched += steps;
    }

    /// Counts the effects of time.
    pub(super) fn note_time(&mut self, before: &LockState, after: &LockState) {
        let lost = |before: bool, after: bool| usize::from(before && !after);
        self.queues_forgotten += lost(!before.queue.is_empty(), !after.queue.is_empty());
        self.expired += lost(!before.holders.is_empty(), !after.holders.is_empty());
        if let Some(holder) = before.holders.first().filter(|_| after.holders.is_empty()) {
            self.claims_expired +=
                usize::from(self.unclaimed.take().as_ref() == Some(&holder.owner));
        }
    }

    /// Panics if an outcome occurred too seldom. The floors are those of 400 sequences, a third or less of the usual numbers.
    pub(super) fn check(&self, role: Role) {
        let [behind, not_raised, quarantined] = self.no_votes;
        let [proposals, others] = self.other_terms;
        let of_node = [
            (self.raised, 20, "raised fences"),
            (behind, 100, "proposals behind"),
            (not_raised, 20, "raises outside of the bounds"),
            (quarantined, 100, "proposals in a quarantine"),
            (proposals, 100, "proposals by clients of another quorum"),
            (others, 100, "other steps of such clients"),
        ];
        let of_node = of_node.into_iter().filter(|_| role == Role::Node);
        let floors = [
            (self.steps, 10000, "steps"),
            (self.acquired, 600, "locks taken"),
            (self.acquired_again, 300, "repeated acquires"),
            (self.woken, 200, "grants by wake"),
            (self.silent_dropped, 50, "silent waiters dropped"),
            (
                self.passed_over,
                70,
                "waiters passed over because nobody heard",
            ),
            (
                self.taken_past_the_line,
                20,
                "locks taken while some wait who cannot be told",
            ),
            (self.told_first, 10, "waiters told that they are the first"),
            (self.told_of_short_claims, 8, "waiters told of short claims"),
            (self.extended, 200, "extensions"),
            (self.not_extended, 500, "refused extensions"),
            (self.kept, 100, "releases that keep"),
            (self.handed_over, 10, "releases to a waiter that hears"),
            (self.not_released, 500, "refused releases"),
            (self.broken, 100, "breaks"),
            (self.not_broken, 200, "refused breaks"),
            (self.expired, 300, "expired leases"),
            (self.claims_expired, 40, "grants not claimed"),
            (self.foreign_seen, 700, "foreign holders seen"),
            (self.held_otherwise, 40, "extensions by another fence"),
            (self.freed_otherwise, 40, "releases by another fence"),
            (
                self.left_otherwise,
                20,
                "releases of waiters that believe to hold",
            ),
            (self.fence_ahead, 150, "fences ahead of the clock"),
            (self.queues_forgotten, 60, "forgotten queues"),
            (self.told, 150, "grants heard of"),
            (self.told_of_more, 40, "grants while more wait"),
            (self.wanted, 600, "holders told that they are waited for"),
            (self.blocks, 200, "grants of several fences"),
            (
                self.held_by_another,
                10,
                "extensions by another fence of the block",
            ),
            (
                self.broken_by_another,
                20,
                "breaks by another fence of the block",
            ),
            (self.tried_short[0], 1000, "acquires in the short form"),
            (self.fitted[0], 300, "acquires that it fitted"),
            (self.tried_short[1], 300, "settlements in the short form"),
            (self.fitted[1], 40, "settlements that it fitted"),
            (self.first_polls, 500, "waiters to be woken within a second"),
            (
                self.polls_at_the_end,
                100,
                "waiters behind the first to ask when the lease ends",
            ),
            (self.given_back, 40, "votes given back"),
            (self.not_given_back, 40, "votes given back by another fence"),
            (self.batches, 600, "batches"),
            (self.batched, 3000, "steps in batches"),
        ];
        for (count, floor, what) in floors.into_iter().chain(of_node) {
            let floor = floor * CASES as usize / 400;
            assert!(
                count >= floor,
                "only {count} {what}, expected {floor}: {self:#?}"
            );
        }
    }
}

fn waits(state: &LockState, owner: &Owner) -> bool {
    state.queue.iter().any(|waiter| waiter.owner == *owner)
}

fn held(state: &LockState, owner: &Owner) -> bool {
    state.holders.iter().any(|holder| holder.owner == *owner)
}
