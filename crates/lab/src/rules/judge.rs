//! The checks on each step of the store. They compare the state before and after it, and do not compute what it should do.

use leasehold_core::{
    Block, Counter, Fence, Fences, Holder, HolderIdentity, LockName, LockState, Outcome, Owner,
    Presence, Reply, Snapshot, Step, UNHEARD_GRACE, Waiter, Wake, World,
};

use super::state::Believer;
use super::time::TICK_MS;
use crate::frame::{CallId, NOW, millis};

/// A rule that a step can break: a bit of [`super::state::State::broken`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LockRule {
    Holders = 1,
    Fences = 1 << 1,
    Strangers = 1 << 2,
    Order = 1 << 3,
    Repeats = 1 << 4,
    FreeQueue = 1 << 5,
    Answers = 1 << 6,
    Told = 1 << 7,
}

/// The locks and the counter of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept<'a> {
    pub(super) lock: &'a LockState,
    pub(super) counter: Counter,
}

impl<'a> Kept<'a> {
    pub(super) fn of(world: &'a World, name: &LockName, nothing: &'a LockState) -> Self {
        Self {
            lock: world.get(name).unwrap_or(nothing),
            counter: world.counter,
        }
    }
}

/// The state before a step.
pub(super) struct Before<'a> {
    pub(super) lock: &'a LockState,
    pub(super) counter: Counter,
    pub(super) step: &'a Step,
    pub(super) presence: &'a dyn Presence,
    /// The highest fence ever issued, before and after.
    pub(super) issued: u64,
}

impl Before<'_> {
    /// Whether a waiter may lose its place: it is silent, or its process is gone.
    pub(super) fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.seen_until_ms < NOW.millis() || self.presence.holder_gone(&waiter.owner)
    }

    /// Whether it is granted the lock when it comes first: it is alive and can be told.
    pub(super) fn is_able(&self, waiter: &Waiter) -> bool {
        let unheard = waiter.listening && self.presence.waiter_gone(waiter);
        !(self.is_dead(waiter) || unheard)
    }

    /// Whether it may be passed over: it cannot be told, and not for too long.
    pub(super) fn passes_over(&self, waiter: &Waiter) -> bool {
        let is_brief = waiter.seen_until_ms <= NOW.millis() + millis(UNHEARD_GRACE);
        !self.is_dead(waiter) && !self.is_able(waiter) && is_brief
    }
}

/// Whether this owner holds the lock.
pub(super) fn holds(lock: &LockState, owner: &Owner) -> bool {
    lock.holders.iter().any(|holder| holder.owner == *owner)
}

/// Whether a client holds by a grant of its fences, until its own deadline or longer.
pub(super) fn is_its_hold(holder: &Holder, it: Believer) -> bool {
    let has = |fence| holder.fences.contains(Fence::new(fence));
    let is_its = CallId::of(&holder.owner) == it.id && has(it.fences.first) && has(it.fences.last);
    is_its && holder.expires_at_ms >= NOW.millis() + u64::from(it.left) * TICK_MS
}

/// Which rules a step violated, given its reply and the reply to its repeat.
pub(super) fn step(
    before: &mut Before<'_>,
    first: &Outcome,
    kept: Kept<'_>,
    (second, repeated): (&Outcome, Kept<'_>),
) -> u16 {
    let (reply, after) = (&first.reply, kept.lock);
    let checks = [
        (
            LockRule::Holders,
            after.holders.len() <= 1 && (after.holders.is_empty() || after.foreign.is_none()),
        ),
        (LockRule::Fences, fences_rise(before, first, kept)),
        (
            LockRule::Strangers,
            only_its_owner_changes_a_hold(before, after),
        ),
        (LockRule::Order, is_in_order(before, after)),
        (
            LockRule::Repeats,
            may_be_repeated(before.step, (reply, kept), (second, repeated)),
        ),
        (
            LockRule::FreeQueue,
            *before.step == Step::Inspect
                || !(after.holders.is_empty() && after.foreign.is_none())
                || after.queue.iter().all(|waiter| before.passes_over(waiter)),
        ),
        (LockRule::Answers, answer_is_true(before, reply, after)),
        (LockRule::Told, all_are_told(before, first, after)),
    ];
    checks
        .iter()
        .filter(|(_, kept)| !kept)
        .fold(0, |bits, (rule, _)| bits | *rule as u16)
}

/// C2: each grant draws fences above all earlier ones, and the counter becomes the last of them; other steps leave it.
fn fences_rise(before: &mut Before<'_>, first: &Outcome, after: Kept<'_>) -> bool {
    let (mut highest, mut newest, mut risen) = (before.issued, None, true);
    let mut draws = |fences: Option<Fences>| {
        risen &= fences.is_some_and(|fences| fences.first.get() > highest);
        highest = fences.map_or(highest, |fences| fences.last().get().max(highest));
        newest = fences;
    };
    for wake in &first.wakes {
        draws(fences_of(wake.fence, wake.block));
    }
    if let (Step::Acquire { owner, .. }, Reply::Held(held)) = (before.step, &first.reply)
        && !holds(before.lock, owner)
    {
        draws(fences_of(held.fence, held.block));
    }
    before.issued = highest;
    let expected = newest.map_or(before.counter, |newest| Counter(Some(newest.last())));
    // A reply *held* names the holder's fences, and a new holder has the fences that were drawn last.
    let told = match &first.reply {
        Reply::Held(held) => Some(fences_of(held.fence, held.block)),
        _ => None,
    };
    let its_own = after.lock.holders.iter().all(|holder| {
        let is_news = !holds(before.lock, &holder.owner);
        told.is_none_or(|told| told == Some(holder.fences))
            && (!is_news || newest == Some(holder.fences))
    });
    risen && its_own && after.counter == expected && draws_what_was_asked(before, first)
}

fn fences_of(first: Option<Fence>, block: Block) -> Option<Fences> {
    first.map(|first| Fences { first, block })
}

/// The number of fences that the new holder asked for, as a waiter or with this step.
fn draws_what_was_asked(before: &Before<'_>, first: &Outcome) -> bool {
    let waits = |owner: &Owner| {
        let mut queue = before.lock.queue.iter();
        queue
            .find(|waiter| waiter.owner == *owner)
            .map(|waiter| waiter.block)
    };
    let as_asked = match (before.step, &first.reply) {
        (Step::Acquire { owner, block, .. }, Reply::Held(held)) => {
            let asked = waits(owner).unwrap_or(*block);
            holds(before.lock, owner) || held.block == asked
        }
        _ => true,
    };
    let mut wakes = first.wakes.iter();
    as_asked && wakes.all(|wake| waits(&wake.owner) == Some(wake.block))
}

/// C3: a hold changes by its owner's step, by a break that names its fence, or because its process is gone. Its fences stay.
fn only_its_owner_changes_a_hold(before: &Before<'_>, after: &LockState) -> bool {
    let (by, may_end) = match before.step {
        Step::Acquire { owner, .. } | Step::Extend { owner, .. } => (Some(owner), false),
        Step::Release { owner, keep, .. } => (
            Some(owner),
            keep.is_none() || !is_under(before.step, before.lock),
        ),
        Step::GiveBack { owner, .. } => (Some(owner), true),
        Step::Break { fence } => {
            let mut holders = before.lock.holders.iter();
            (None, holders.any(|holder| holder.fences.contains(*fence)))
        }
        // No client of this model proposes.
        Step::Propose(_) | Step::Inspect => (None, false),
    };
    before.lock.holders.iter().all(|holder| {
        let is_own = by == Some(&holder.owner);
        let same = after.holders.contains(holder);
        let mut now = after.holders.iter().filter(|now| now.owner == holder.owner);
        let stays = holds(after, &holder.owner);
        let keeps_fences = now.all(|now| now.fences == holder.fences);
        let gone = !holder.kept && before.presence.holder_gone(&holder.owner);
        let may =
            same || gone || (is_own && (stays || may_end)) || (by.is_none() && may_end && !stays);
        may && keeps_fences
    })
}

/// C4: the new holder was the first waiter that can be told, or asked just now. No living waiter leaves the queue without a
/// request, and none overtakes.
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
    // The remaining waiters are the first of the queue, in their order; new ones are behind them.
    places.iter().copied().eq(0..places.len())
}

/// C5: the same step at the same moment gets the same reply, draws no fence and changes nothing.
fn may_be_repeated(
    step: &Step,
    (reply, after): (&Reply, Kept<'_>),
    (second, repeated): (&Outcome, Kept<'_>),
) -> bool {
    let same_answer = match (step, reply, &second.reply) {
        (Step::Release { .. } | Step::Break { .. }, Reply::Released, again) => {
            matches!(again, Reply::NotHeld(_) | Reply::Released)
        }
        (_, reply, again) => reply == again,
    };
    same_answer && after == repeated && second.wakes.is_empty()
}

/// Whether a reply is true of the state after the step.
fn answer_is_true(before: &Before<'_>, reply: &Reply, after: &LockState) -> bool {
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
fn all_are_told(before: &Before<'_>, outcome: &Outcome, after: &LockState) -> bool {
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
fn is_under(step: &Step, lock: &LockState) -> bool {
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
