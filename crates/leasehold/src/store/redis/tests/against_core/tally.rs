//! How often the random steps have to reach an outcome for which no mistake of [`super::broken`] stands: those are noticed only if the steps
//! reach what they break.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposal};
use leasehold_core::{Holder, HolderIdentity, LockState, Mode, Outcome, Owner, Reply, Step};

use super::model::Role;
use super::steps::Kinds;
use crate::store::redis::tests::Tally;

/// The floors of 400 sequences, a third or less of the usual numbers.
const OF_A_LOCK: [(&str, usize); 17] = [
    ("repeated acquires", 300),
    ("locks taken while some wait who cannot be told", 20),
    ("extensions", 200),
    ("releases that keep", 100),
    ("refused releases", 500),
    ("breaks", 100),
    ("refused breaks", 200),
    ("foreign holders seen", 700),
    ("releases by another fence", 40),
    ("releases of waiters that believe to hold", 20),
    ("forgotten queues", 60),
    ("extensions by another fence of the block", 10),
    ("breaks by another fence of the block", 20),
    ("waiters to be woken within a second", 500),
    ("waiters behind the first to ask when the lease ends", 100),
    ("votes given back", 40),
    ("votes given back by another fence", 40),
];

const OF_A_NODE: [(&str, usize); 4] = [
    ("raised fences", 20),
    ("raises outside of the bounds", 20),
    ("proposals by clients of another quorum", 100),
    ("other steps of such clients", 100),
];

const OF_READERS: [(&str, usize); 8] = [
    ("readers that join others", 80),
    ("votes for readers below the counter", 20),
    ("raised votes of readers", 20),
    ("votes of readers given back", 20),
    ("extensions beside others", 40),
    ("releases beside others", 28),
    ("readers broken beside others", 10),
    ("ends of some of several holders", 55),
];

const OF_SEVERAL: [(&str, usize); 11] = [
    ("readers that join others", 80),
    ("slots taken beside others", 110),
    ("refusals by several", 70),
    ("several clients told that one waits", 40),
    ("extensions beside others", 40),
    ("releases beside others", 28),
    ("phases of readers broken", 10),
    ("slots broken beside others", 20),
    ("slots granted to waiters", 40),
    ("ends of some of several holders", 55),
    ("locks of several that another program overwrites", 30),
];

/// The floors of so many sequences.
pub(super) fn floors(
    role: Role,
    kinds: Kinds,
    cases: u32,
) -> impl Iterator<Item = (&'static str, usize)> {
    let (of_one, of_node): (&[_], &[_]) = match (kinds, role) {
        (Kinds::OfOne, Role::Alone) => (&OF_A_LOCK, &[]),
        (Kinds::OfOne, Role::Node) => (&OF_A_LOCK, &OF_A_NODE),
        (Kinds::OfSeveral, _) => (&OF_SEVERAL, &[]),
        (Kinds::ReadWrite, _) => (&OF_A_NODE, &OF_READERS),
    };
    let all = of_one.iter().chain(of_node);
    all.map(move |(what, floor)| (*what, floor * cases as usize / 400))
}

/// Counts the effects of a step.
pub(super) fn note(
    tally: &mut Tally,
    step: &Step,
    before: &LockState,
    after: &LockState,
    outcome: &Outcome,
) {
    let reply = &outcome.reply;
    let fences = |state: &LockState| state.holders.first().map(|holder| holder.fences);
    let held = |owner: &Owner| before.holders.iter().any(|holder| holder.owner == *owner);
    note_several(tally, step, before, after, outcome);
    match (step, reply) {
        (Step::Extend { fence, .. }, Reply::Held(_)) => {
            tally.note("extensions", true);
            let Reply::Held(held) = reply else { return };
            let is_another = fence.is_some() && *fence != held.fence;
            tally.note("extensions by another fence of the block", is_another);
        }
        (Step::Acquire { owner, .. } | Step::Propose(Proposal { owner, .. }), Reply::Held(_)) => {
            let again = held(owner);
            tally.note("repeated acquires", again);
            tally.note("raised fences", again && fences(before) != fences(after));
            let what = "locks taken while some wait who cannot be told";
            tally.note(what, !again && !after.queue.is_empty());
        }
        (Step::Release { keep, .. }, Reply::Released) => {
            tally.note("releases that keep", keep.is_some());
        }
        (Step::Release { owner, .. }, _) => {
            tally.note("refused releases", true);
            tally.note("releases by another fence", held(owner));
            let waits = before.queue.iter().any(|waiter| waiter.owner == *owner);
            tally.note("releases of waiters that believe to hold", waits);
        }
        (Step::Break { fence }, Reply::Released) => {
            tally.note("breaks", true);
            let is_another = fences(before).is_some_and(|fences| *fence != fences.first);
            tally.note("breaks by another fence of the block", is_another);
        }
        (Step::Break { .. }, Reply::NotHeld(Some(_))) => tally.note("refused breaks", true),
        (Step::GiveBack { .. }, Reply::Released) => tally.note("votes given back", true),
        (Step::GiveBack { owner, .. }, _) => {
            tally.note("votes given back by another fence", held(owner));
        }
        (Step::Propose(_), Reply::NoVote(NoVote::NotRaised(_))) => {
            tally.note("raises outside of the bounds", true);
        }
        _ => {}
    }
    let holder = match reply {
        Reply::Busy(busy) => {
            let is_first = busy.poll_after == Duration::from_secs(1);
            tally.note("waiters to be woken within a second", is_first);
            let at_the_end = |left: Duration| busy.poll_after > left;
            let at_the_end = busy.ahead > 0 && busy.holder.expires_in.is_some_and(at_the_end);
            let what = "waiters behind the first to ask when the lease ends";
            tally.note(what, at_the_end);
            Some(&busy.holder)
        }
        Reply::NotHeld(holder) => holder.as_deref(),
        _ => None,
    };
    let is_foreign =
        holder.is_some_and(|holder| matches!(holder.who, HolderIdentity::Foreign { .. }));
    tally.note("foreign holders seen", is_foreign);
}

/// Counts what happens to a lock that several hold.
fn note_several(
    tally: &mut Tally,
    step: &Step,
    before: &LockState,
    after: &LockState,
    outcome: &Outcome,
) {
    let together = |state: &LockState| state.holders.len() > 1;
    match (step, &outcome.reply) {
        (Step::Propose(proposal), Reply::Held(_)) if proposal.is_shared => {
            let is_own = |holder: &&Holder| holder.owner == proposal.owner;
            let was = before.holders.iter().find(is_own);
            tally.note("readers that join others", was.is_none() && together(after));
            let first = proposal.fences.first;
            let mut others = before.holders.iter();
            let is_below = was.is_none() && others.any(|holder| holder.vote > Some(first));
            tally.note("votes for readers below the counter", is_below);
            let is_raised = was.is_some_and(|holder| holder.vote < Some(first));
            tally.note("raised votes of readers", is_raised);
        }
        (Step::GiveBack { .. }, Reply::Released) => {
            let mut readers = before.holders.iter();
            let is_vote = readers.any(|holder| holder.vote.is_some());
            tally.note("votes of readers given back", is_vote);
        }
        (Step::Acquire { owner, mode, .. }, Reply::Held(held)) => {
            let again = before.holders.iter().any(|holder| holder.owner == *owner);
            let joins = !again && together(after);
            tally.note("readers that join others", joins && *mode == Mode::Shared);
            tally.note("slots taken beside others", joins && held.slot.is_some());
        }
        (Step::Acquire { .. }, Reply::Busy(busy)) => {
            tally.note("refusals by several", busy.others > 0);
            let clients = outcome.wanted.len();
            tally.note("several clients told that one waits", clients > 1);
        }
        (Step::Extend { .. }, Reply::Held(_)) => {
            tally.note("extensions beside others", together(after));
        }
        (Step::Release { .. }, Reply::Released) => {
            let leaves = before.holders.len() > after.holders.len();
            tally.note(
                "releases beside others",
                leaves && !after.holders.is_empty(),
            );
        }
        (Step::Break { .. }, Reply::Released) => {
            let of =
                |mode: fn(&Holder) -> bool| together(before) && before.holders.iter().any(mode);
            tally.note(
                "phases of readers broken",
                of(|holder| holder.slot.is_none()),
            );
            let are_left = of(|holder| holder.vote.is_some()) && !after.holders.is_empty();
            tally.note("readers broken beside others", are_left);
            tally.note(
                "slots broken beside others",
                of(|holder| holder.slot.is_some()),
            );
        }
        _ => {}
    }
    let has_slot = outcome.wakes.iter().any(|wake| wake.slot.is_some());
    tally.note("slots granted to waiters", has_slot);
}

/// Counts a step of a client of another quorum that the node has refused.
pub(super) fn note_other_terms(tally: &mut Tally, step: &Step) {
    let is_proposal = matches!(step, Step::Propose(_));
    tally.note("proposals by clients of another quorum", is_proposal);
    tally.note("other steps of such clients", !is_proposal);
}
