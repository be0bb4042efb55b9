//! The checks on the replies of a step (they must be true) and on its notices (the right clients must be told).

use leasehold_core::{
    Fence, HolderIdentity, LockState, Outcome, Owner, Reply, Snapshot, Step, Waiter, Wake,
};

use super::judge::{Before, holds};
use crate::frame::{NOW, millis};

/// Whether a reply is true of the state after the step.
pub(super) fn answer_is_true(before: &Before<'_>, reply: &Reply, after: &LockState) -> bool {
    let is_left = |owner: &Owner| !holds(after, owner) && place(after, owner).is_none();
    match (before.step, reply) {
        (Step::Acquire { owner, ttl, .. } | Step::Extend { owner, ttl, .. }, Reply::Held(_)) => {
            holds_until(after, owner, NOW.millis() + ttl.millis()) && is_under(before.step, after)
        }
        (Step::Acquire { owner, wait, .. }, Reply::Busy(busy)) => {
            let asked = match wait {
                Some(_) => place(after, owner),
                None => Some(after.queue.len()),
            };
            let stays = wait.is_none() || outlives_its_next_poll(after, owner, busy.poll_after);
            !holds(after, owner) && asked == usize::try_from(busy.ahead).ok() && stays
        }
        (Step::Release { owner, keep, .. }, Reply::Released) => {
            let kept = keep.is_some_and(|keep| {
                holds_until(after, owner, NOW.millis() + keep.millis())
                    && after.holders.iter().all(|holder| holder.kept)
            });
            had_what_it_believes(before, owner) && (kept || is_left(owner))
        }
        (Step::Release { owner, .. }, Reply::NotHeld(_)) => {
            // A silent waiter may be dropped first.
            let held = holds(before.lock, owner) && is_under(before.step, before.lock);
            is_left(owner) && !held
        }
        (Step::Extend { owner, .. }, Reply::NotHeld(_)) => {
            let untouched = !holds(before.lock, owner) || after.holders == before.lock.holders;
            untouched && !(holds(after, owner) && is_under(before.step, after))
        }
        (Step::Break { .. }, Reply::Released) => {
            let old = |holder| before.lock.holders.contains(holder);
            !before.lock.holders.is_empty() && !after.holders.iter().any(old)
        }
        (Step::Break { .. }, Reply::NotHeld(_)) => true,
        (Step::Inspect, Reply::Seen(seen)) => after == before.lock && shows_who_holds(seen, after),
        _ => false,
    }
}

/// Whether exactly the right clients are told: a waiter that was granted the lock, the holder that the first in line waits, and
/// a waiter that became the first behind a foreign lock.
pub(super) fn all_are_told(before: &Before<'_>, outcome: &Outcome, after: &LockState) -> bool {
    let asked = match before.step {
        Step::Acquire { owner, .. } => Some(owner),
        _ => None,
    };
    let was_queued = |wake: &Wake| place(before.lock, &wake.owner).is_some();
    let is_told = |owner: &Owner| {
        outcome
            .wakes
            .last()
            .is_some_and(|wake| wake.owner == *owner)
    };
    let mut given = after.holders.iter().map(|holder| &holder.owner);
    let wanted = match (before.step, &outcome.reply) {
        (Step::Acquire { wait: Some(_), .. }, Reply::Busy(busy)) if busy.ahead == 0 => {
            match &busy.holder.who {
                HolderIdentity::Owner(holder) => Some(holder),
                HolderIdentity::Foreign { .. } => None,
            }
        }
        _ => None,
    };
    outcome.wakes.iter().all(was_queued)
        && given.all(|owner| holds(before.lock, owner) || asked == Some(owner) || is_told(owner))
        && outcome.wanted.as_ref() == wanted
        && outcome.first.as_ref() == first_to_tell(before, after, asked)
}

/// The reachable waiter that has become the first behind a foreign lock. Short claims, which are announced as well, do not
/// occur here: each grant lasts for a tick, which is more than a second.
fn first_to_tell<'a>(
    before: &Before<'_>,
    after: &'a LockState,
    asked: Option<&Owner>,
) -> Option<&'a Owner> {
    let counts = |waiter: &&Waiter| asked == Some(&waiter.owner) || before.is_able(waiter);
    let first = after.queue.iter().find(counts)?;
    let stood = place(before.lock, &first.owner)?;
    let mut earlier = before.lock.queue.iter().take(stood);
    let is_news = earlier.any(|waiter| place(after, &waiter.owner).is_none());
    let is_told = after.foreign.is_some() && is_news && first.listening;
    (is_told && asked != Some(&first.owner)).then_some(&first.owner)
}

/// Whether a releasing owner held by the fence that it names; without one, whether it held or waited.
fn had_what_it_believes(before: &Before<'_>, owner: &Owner) -> bool {
    let knows = matches!(before.step, Step::Release { fence: Some(_), .. });
    if holds(before.lock, owner) {
        is_under(before.step, before.lock)
    } else {
        !knows && place(before.lock, owner).is_some()
    }
}

/// Whether the fence that a step names, if any, belongs to the holder's grant (C8).
pub(super) fn is_under(step: &Step, lock: &LockState) -> bool {
    let (Step::Extend { fence, .. } | Step::Release { fence, .. }) = step else {
        return true;
    };
    let of_holder = |fence: Fence| {
        let mut holders = lock.holders.iter();
        holders.all(|holder| holder.fences.contains(fence))
    };
    fence.is_none_or(of_holder)
}

/// An inspection shows each hold by the fence of its grant, and by no other.
fn shows_who_holds(seen: &Snapshot, lock: &LockState) -> bool {
    lock.holders.iter().all(|holder| {
        let is_under = |fence| seen.is_held_under(&holder.owner, fence);
        let first = holder.fences.first;
        is_under(first) && !is_under(Fence::new(first.get() + 1))
    })
}

/// A waiter that polls as told, at most 10 % later, polls before it counts as silent.
fn outlives_its_next_poll(lock: &LockState, owner: &Owner, poll: std::time::Duration) -> bool {
    let latest = NOW.millis() + millis(poll + poll / 10);
    let mut queue = lock.queue.iter();
    queue.any(|waiter| waiter.owner == *owner && waiter.seen_until_ms >= latest)
}

fn holds_until(lock: &LockState, owner: &Owner, ms: u64) -> bool {
    let mut holders = lock.holders.iter();
    holders.any(|holder| holder.owner == *owner && holder.expires_at_ms == ms)
}

fn place(lock: &LockState, owner: &Owner) -> Option<usize> {
    lock.queue.iter().position(|waiter| waiter.owner == *owner)
}
