//! What counts as an outcome of the random steps, and how often each has to occur. [`super::broken`] shows what they find.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposal};
use leasehold_core::{Busy, Fence, HolderIdentity, LockState, Outcome, Owner, Reply, Step};

use super::model::{Role, passed_over, wants};
use crate::store::redis::protocol::Kind;
use crate::store::redis::tests::Tally;

/// The floors of 400 sequences, a third or less of the usual numbers.
const OF_A_LOCK: [(&str, usize); 38] = [
    ("steps", 10_000),
    ("locks taken", 600),
    ("repeated acquires", 300),
    ("grants by wake", 200),
    ("silent waiters dropped", 50),
    ("waiters passed over because nobody heard", 70),
    ("locks taken while some wait who cannot be told", 20),
    ("waiters told that they are the first", 10),
    ("waiters told of short claims", 8),
    ("extensions", 200),
    ("refused extensions", 500),
    ("releases that keep", 100),
    ("releases to a waiter that hears", 10),
    ("refused releases", 500),
    ("breaks", 100),
    ("refused breaks", 200),
    ("expired leases", 300),
    ("foreign holders seen", 700),
    ("extensions by another fence", 40),
    ("releases by another fence", 40),
    ("releases of waiters that believe to hold", 20),
    ("fences ahead of the clock", 150),
    ("forgotten queues", 60),
    ("grants heard of", 150),
    ("grants while more wait", 40),
    ("holders told that they are waited for", 600),
    ("grants of several fences", 200),
    ("extensions by another fence of the block", 10),
    ("breaks by another fence of the block", 20),
    ("acquires in the short form", 1_000),
    ("acquires that it fitted", 300),
    ("settlements in the short form", 300),
    ("settlements that it fitted", 40),
    ("waiters to be woken within a second", 500),
    ("waiters behind the first to ask when the lease ends", 100),
    ("votes given back", 40),
    ("votes given back by another fence", 40),
    ("batches", 600),
];

const OF_A_NODE: [(&str, usize); 6] = [
    ("raised fences", 20),
    ("proposals behind", 100),
    ("raises outside of the bounds", 20),
    ("proposals in a quarantine", 100),
    ("proposals by clients of another quorum", 100),
    ("other steps of such clients", 100),
];

/// The floors of so many sequences.
pub(super) fn floors(role: Role, cases: u32) -> impl Iterator<Item = (&'static str, usize)> {
    let of_node = OF_A_NODE.into_iter().filter(move |_| role == Role::Node);
    let all = OF_A_LOCK.into_iter().chain(of_node);
    all.map(move |(what, floor)| (what, floor * cases as usize / 400))
}

/// Counts the effects of a step.
pub(super) fn note(
    tally: &mut Tally,
    now_ms: u64,
    step: &Step,
    before: &LockState,
    after: &LockState,
    outcome: &Outcome,
) {
    tally.note("steps", true);
    tally.add("grants by wake", outcome.wakes.len());
    note_queue(tally, now_ms, step, before, after, outcome);
    let is_told = outcome.first.is_some();
    let is_foreign = after.foreign.is_some();
    tally.note(
        "waiters told that they are the first",
        is_told && is_foreign,
    );
    tally.note("waiters told of short claims", is_told && !is_foreign);
    match (step, &outcome.reply) {
        (Step::Extend { fence, .. }, Reply::Held(_)) => {
            tally.note("extensions", true);
            let is_another = fence.is_some_and(|fence| fence != after.holders[0].fences.first);
            tally.note("extensions by another fence of the block", is_another);
        }
        (Step::Extend { owner, .. }, _) => {
            tally.note("refused extensions", true);
            tally.note("extensions by another fence", held(after, owner));
        }
        (Step::Acquire { owner, .. } | Step::Propose(Proposal { owner, .. }), Reply::Held(_)) => {
            let (again, fences) = (held(before, owner), after.holders[0].fences);
            tally.note("repeated acquires", again);
            tally.note("raised fences", again && before.holders[0].fences != fences);
            tally.note("locks taken", !again);
            tally.note("grants of several fences", !again && fences.block.get() > 1);
            let is_past_the_line = !again && !after.queue.is_empty();
            let what = "locks taken while some wait who cannot be told";
            tally.note(what, is_past_the_line);
        }
        (Step::Release { keep, fence, .. }, Reply::Released) => {
            tally.note("releases that keep", keep.is_some());
            let next = before.queue.front().filter(|next| {
                let is_woken = outcome.wakes.iter().any(|wake| wake.owner == next.owner);
                is_woken && next.listening && next.ttl.millis() >= 1_000
            });
            // `hand_over.lua` may do them, if they come in the long form.
            let is_short = keep.is_none() && fence.is_some() && next.is_some();
            tally.note("releases to a waiter that hears", is_short);
        }
        (Step::Release { owner, .. }, _) => {
            tally.note("refused releases", true);
            tally.note("releases by another fence", held(before, owner));
            let waits = before.queue.iter().any(|waiter| waiter.owner == *owner);
            tally.note("releases of waiters that believe to hold", waits);
        }
        (Step::Break { fence }, Reply::Released) => {
            tally.note("breaks", true);
            let holder = before.holders.first();
            let is_another = holder.is_some_and(|holder| *fence != holder.fences.first);
            tally.note("breaks by another fence of the block", is_another);
        }
        (Step::Break { .. }, Reply::NotHeld(Some(_))) => tally.note("refused breaks", true),
        (Step::GiveBack { .. }, Reply::Released) => tally.note("votes given back", true),
        (Step::GiveBack { owner, .. }, _) => {
            tally.note("votes given back by another fence", held(before, owner));
        }
        (Step::Propose(_), Reply::NoVote(reason)) => {
            let what = match reason {
                NoVote::Behind(_) => "proposals behind",
                NoVote::NotRaised(_) => "raises outside of the bounds",
                NoVote::Quarantined(_) => "proposals in a quarantine",
                NoVote::OtherTerms(_) | NoVote::NotANode => panic!("{reason:?}"),
            };
            tally.note(what, true);
        }
        _ => {}
    }
    note_refusal(tally, now_ms, &outcome.reply);
}

/// Counts the effects on waiters.
fn note_queue(
    tally: &mut Tally,
    now_ms: u64,
    step: &Step,
    before: &LockState,
    after: &LockState,
    outcome: &Outcome,
) {
    for waiter in &before.queue {
        let queued = after.queue.iter().any(|other| other.owner == waiter.owner);
        let woken = outcome.wakes.iter().any(|wake| wake.owner == waiter.owner);
        let asked = wants(step) == Some(&waiter.owner)
            || matches!(step, Step::Release { owner, .. } if *owner == waiter.owner);
        if !queued && !woken && !asked {
            assert!(waiter.seen_until_ms < now_ms, "nobody else is dropped");
            tally.note("silent waiters dropped", true);
        }
    }
    let passed = passed_over(before, after).count();
    tally.add("waiters passed over because nobody heard", passed);
}

/// Counts what a refusal says.
fn note_refusal(tally: &mut Tally, now_ms: u64, reply: &Reply) {
    if let Reply::Busy(busy) = reply {
        let is_first = busy.poll_after == Duration::from_secs(1);
        tally.note("waiters to be woken within a second", is_first);
        let at_the_end = |left: Duration| busy.poll_after > left;
        let at_the_end = busy.ahead > 0 && busy.holder.expires_in.is_some_and(at_the_end);
        let what = "waiters behind the first to ask when the lease ends";
        tally.note(what, at_the_end);
    }
    if let Reply::Busy(Busy { holder, .. }) | Reply::NotHeld(Some(holder)) = reply {
        let is_foreign = matches!(holder.who, HolderIdentity::Foreign { .. });
        tally.note("foreign holders seen", is_foreign);
        // True until the clock has caught up.
        let ahead = |fence: Fence| fence.get() / 1_000 > now_ms;
        tally.note("fences ahead of the clock", holder.fence.is_some_and(ahead));
    }
}

/// Counts a step of a client of another quorum that the node has refused.
pub(super) fn note_other_terms(tally: &mut Tally, step: &Step) {
    tally.note("steps", true);
    let is_proposal = matches!(step, Step::Propose(_));
    tally.note("proposals by clients of another quorum", is_proposal);
    tally.note("other steps of such clients", !is_proposal);
}

/// Counts the steps of a request, and which of them the short form fits.
pub(super) fn note_fits(tally: &mut Tally, kind: Kind, fits: &[bool]) {
    let [tried, fitted] = match kind {
        kind if kind.is_long() => return,
        kind if kind.settles() => [
            "settlements in the short form",
            "settlements that it fitted",
        ],
        _ => ["acquires in the short form", "acquires that it fitted"],
    };
    tally.add(tried, fits.len());
    tally.add(fitted, fits.iter().filter(|fits| **fits).count());
}

/// Counts the effects of time.
pub(super) fn note_time(tally: &mut Tally, before: &LockState, after: &LockState) {
    let lost = |before: bool, after: bool| before && !after;
    tally.note(
        "forgotten queues",
        lost(!before.queue.is_empty(), !after.queue.is_empty()),
    );
    tally.note(
        "expired leases",
        lost(!before.holders.is_empty(), !after.holders.is_empty()),
    );
}

fn held(state: &LockState, owner: &Owner) -> bool {
    state.holders.iter().any(|holder| holder.owner == *owner)
}
