//! What every single step of the store must keep. Must never be asked what a step should do: it judges what one did, by what
//! there was before and after.

use leasehold_core::{
    Fence, LockState, Outcome, Owner, Presence, Reply, Step, UNHEARD_GRACE, Waiter,
};

use super::time::NOW;
use super::told;

/// A rule that a step can break: a bit of [`super::state::State::broken`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Broken {
    Holders = 1,
    Fences = 1 << 1,
    Strangers = 1 << 2,
    Order = 1 << 3,
    Repeats = 1 << 4,
    FreeQueue = 1 << 5,
    Answers = 1 << 6,
    Told = 1 << 7,
}

/// What there was before a step.
pub(super) struct Before<'a> {
    pub(super) lock: &'a LockState,
    pub(super) step: &'a Step,
    pub(super) presence: &'a dyn Presence,
    /// The highest fence ever issued; afterwards, too.
    pub(super) issued: u64,
}

impl Before<'_> {
    /// Whether a waiter has been silent, or its process is gone: it may lose its place.
    fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.seen_until_ms < NOW.millis() || self.presence.holder_gone(&waiter.owner)
    }

    /// Whether it is granted the lock when it comes first: it is alive and can be told.
    pub(super) fn is_able(&self, waiter: &Waiter) -> bool {
        let unheard = waiter.listening && self.presence.waiter_gone(waiter);
        !(self.is_dead(waiter) || unheard)
    }

    /// Whether it may stand in line while those behind it are granted the lock: it cannot be told, and that not for long.
    fn passes_over(&self, waiter: &Waiter) -> bool {
        let grace = u64::try_from(UNHEARD_GRACE.as_millis()).unwrap_or(u64::MAX);
        let is_brief = waiter.seen_until_ms <= NOW.millis().saturating_add(grace);
        !self.is_dead(waiter) && !self.is_able(waiter) && is_brief
    }
}

/// Which rules a step broke, of those that it gave this answer, and of its repeat.
pub(super) fn step(
    before: &mut Before<'_>,
    first: &Outcome,
    after: &LockState,
    (second, repeated): (&Outcome, &LockState),
) -> u16 {
    let reply = &first.reply;
    let checks = [
        (
            Broken::Holders,
            after.holders.len() <= 1 && (after.holders.is_empty() || after.foreign.is_none()),
        ),
        (Broken::Fences, fences_rise(before, first, after)),
        (
            Broken::Strangers,
            only_its_owner_changes_a_hold(before, after),
        ),
        (Broken::Order, is_in_order(before, after)),
        (
            Broken::Repeats,
            may_be_repeated(before.step, (reply, after), (second, repeated)),
        ),
        (
            Broken::FreeQueue,
            *before.step == Step::Inspect
                || !(after.holders.is_empty() && after.foreign.is_none())
                || after.queue.iter().all(|waiter| before.passes_over(waiter)),
        ),
        (Broken::Answers, told::answer_is_true(before, reply, after)),
        (Broken::Told, told::all_are_told(before, first, after)),
    ];
    checks
        .iter()
        .filter(|(_, kept)| !kept)
        .fold(0, |bits, (rule, _)| bits | *rule as u16)
}

/// C2: a fence that was not there before is above all that were issued; a grant brings one; what is stored is not below.
fn fences_rise(before: &mut Before<'_>, first: &Outcome, after: &LockState) -> bool {
    let highest = before.issued;
    let (old, new) = (before.lock.fence, after.fence);
    let granted = after
        .holders
        .iter()
        .filter(|holder| !holds(before.lock, &holder.owner))
        .count();
    let Some(last) = new else {
        // A step forgets nothing, and grants nothing without a fence.
        return old.is_none() && granted == 0;
    };
    before.issued = highest.max(last.fence.get());
    let is_news = old.is_none_or(|old| (old.fence, old.granted) != (last.fence, last.granted));
    // All that a holder was given is below the next one's: the last fence, and what belongs to its block.
    let next = if highest == 0 {
        1
    } else {
        highest + Fence::BLOCK
    };
    let risen = !is_news || last.fence.get() >= next;
    let with_its_own = granted == 0 || last.granted.get() >= next && last.granted <= last.fence;
    let block = matches!(before.step, Step::Extend { block: true, .. });
    let told = match &first.reply {
        Reply::Held(held) if block => held.fence == Some(last.fence),
        Reply::Held(held) => held.fence == Some(last.granted),
        _ => true,
    };
    let woken = first
        .wakes
        .iter()
        .all(|wake| wake.fence.is_some_and(|fence| fence.get() > highest));
    last.fence.get() >= highest && risen && with_its_own && told && woken
}

/// C3: a hold changes by its owner's step, by a break that names its fence, or because its process is gone.
fn only_its_owner_changes_a_hold(before: &Before<'_>, after: &LockState) -> bool {
    let last = before.lock.fence;
    let named = |fence: Fence| {
        last.is_some_and(|last| {
            last.granted <= fence && fence.get() < last.fence.get() + Fence::BLOCK
        })
    };
    let (by, may_end) = match before.step {
        Step::Acquire { owner, .. } | Step::Extend { owner, .. } => (Some(owner), false),
        Step::Release { owner, keep, .. } => (
            Some(owner),
            keep.is_none() || !told::is_under(before.step, before.lock),
        ),
        Step::Break { fence } => (None, named(*fence)),
        Step::Inspect => (None, false),
    };
    before.lock.holders.iter().all(|holder| {
        let is_own = by == Some(&holder.owner);
        let same = after.holders.contains(holder);
        let stays = holds(after, &holder.owner);
        let gone = !holder.kept && before.presence.holder_gone(&holder.owner);
        same || gone || (is_own && (stays || may_end)) || (by.is_none() && may_end && !stays)
    })
}

/// C4: who is granted the lock was first of those that can be told, or asked for it just now; nobody alive leaves the queue
/// unasked, and nobody overtakes.
fn is_in_order(before: &Before<'_>, after: &LockState) -> bool {
    let (by, asks) = match before.step {
        Step::Release { owner, .. } => (Some(owner), None),
        Step::Acquire { owner, .. } => (None, Some(owner)),
        _ => (None, None),
    };
    let queued = |owner: &Owner| after.queue.iter().position(|waiter| waiter.owner == *owner);
    let is_news = |owner: &Owner| holds(after, owner) && !holds(before.lock, owner);
    let first = before
        .lock
        .queue
        .iter()
        .position(|waiter| is_news(&waiter.owner));
    let someone = after.holders.iter().any(|holder| is_news(&holder.owner));
    let until = first.unwrap_or(if someone { before.lock.queue.len() } else { 0 });
    let mut places = Vec::new();
    for (at, waiter) in before.lock.queue.iter().enumerate() {
        let may_go = before.is_dead(waiter) || by == Some(&waiter.owner);
        let may_have = before.is_able(waiter) || asks == Some(&waiter.owner);
        match queued(&waiter.owner) {
            None if is_news(&waiter.owner) && may_have => {}
            None if !is_news(&waiter.owner) && may_go => {}
            None => return false,
            Some(place) if at < until && !before.passes_over(&after.queue[place]) => return false,
            Some(place) => places.push(place),
        }
    }
    // Those who stay are the first of the queue, in their order; who joined is behind them.
    places.iter().copied().eq(0..places.len())
}

/// C5: the same step at the same moment answers the same and changes nothing.
fn may_be_repeated(
    step: &Step,
    (reply, after): (&Reply, &LockState),
    (second, repeated): (&Outcome, &LockState),
) -> bool {
    let same_answer = match (step, reply, &second.reply) {
        (Step::Extend { block: true, .. }, Reply::Held(_), Reply::Held(_)) => true,
        (Step::Release { .. } | Step::Break { .. }, Reply::Released, again) => {
            matches!(again, Reply::NotHeld(_) | Reply::Released)
        }
        (_, reply, again) => reply == again,
    };
    let draws = matches!(step, Step::Extend { block: true, .. });
    let same_state = if draws {
        (&after.holders, &after.queue, &after.foreign)
            == (&repeated.holders, &repeated.queue, &repeated.foreign)
    } else {
        after == repeated
    };
    same_answer && same_state && second.wakes.is_empty()
}

pub(super) fn holds(lock: &LockState, owner: &Owner) -> bool {
    lock.holders.iter().any(|holder| holder.owner == *owner)
}
