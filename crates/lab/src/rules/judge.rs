//! The checks on each step of the store, and the liveness of waiters. The checks compare the state before and after a step, and do not
//! compute what it should do.

use std::ops::ControlFlow;
use std::slice;

use leasehold_core::{
    Block, Busy, CLAIM_WINDOW, Counter, Fence, Fences, Holder, HolderIdentity, LockState, Outcome,
    Owner, Presence, Reply, Snapshot, Step, UNHEARD_GRACE, UnknownPresence, Waiter, Wake, World,
};

use super::model::{Lock, LockModel, TICK_MS};
use super::state::{Believer, Phase, RequestKind, State};
use crate::frame::{CallId, NOW, millis, waits_alone};

/// A rule that a step can break: a bit of [`super::state::State::broken`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    Holders = 1,
    Fences = 1 << 1,
    Strangers = 1 << 2,
    Order = 1 << 3,
    Repeats = 1 << 4,
    FreeQueue = 1 << 5,
    Answers = 1 << 6,
    Told = 1 << 7,
}

/// A step that the store took, and took again at the same moment.
pub(super) struct Taken<'a> {
    step: &'a Step,
    presence: &'a dyn Presence,
    pub(super) before: LockState,
    pub(super) first: Outcome,
    after: LockState,
    second: Outcome,
    again: LockState,
    /// The counter before it, after it, and after the second time.
    counters: [Counter; 3],
}

impl<'a> Taken<'a> {
    /// The store takes a step.
    pub(super) fn of(
        world: &mut World,
        subject: &Lock,
        step: &'a Step,
        presence: &'a dyn Presence,
    ) -> Self {
        let lock = |world: &World| world.get(&subject.name).cloned().unwrap_or_default();
        let (before, counter) = (lock(world), world.counter);
        let first = subject.execute(world, NOW, step, presence);
        let mut repeated = world.clone();
        let second = subject.execute(&mut repeated, NOW, step, presence);
        Self {
            step,
            presence,
            before,
            first,
            after: lock(world),
            second,
            again: lock(&repeated),
            counters: [counter, world.counter, repeated.counter],
        }
    }

    /// Which rules it violated, and the highest fence that was ever issued, which was `issued` before.
    pub(super) fn judge(&self, issued: u64) -> (u16, u64) {
        let LockState {
            holders,
            foreign,
            queue,
        } = &self.after;
        let is_free = holders.is_empty() && foreign.is_none();
        let one_holds = holders.len() <= 1 && (holders.is_empty() || foreign.is_none());
        let is_left = !queue.iter().all(|waiter| self.passes_over(waiter));
        let (fences_rise, issued) = self.fences_rise(issued);
        let checks = [
            (Rule::Holders, one_holds),
            (Rule::Fences, fences_rise),
            (Rule::Strangers, self.only_its_owner_changes_a_hold()),
            (Rule::Order, self.is_in_order()),
            (Rule::Repeats, self.may_be_repeated()),
            (
                Rule::FreeQueue,
                *self.step == Step::Inspect || !is_free || !is_left,
            ),
            (Rule::Answers, self.answer_is_true()),
            (Rule::Told, self.all_are_told()),
        ];
        let violated = checks.iter().filter(|(_, is_kept)| !is_kept);
        let broken = violated.fold(0, |bits, (rule, _)| bits | *rule as u16);
        (broken, issued)
    }

    /// Whether a waiter may lose its place: it is silent, or its process is gone.
    fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.seen_until_ms < NOW.millis() || self.presence.holder_gone(&waiter.owner)
    }

    /// Whether it is granted the lock when it comes first: it is alive and can be told.
    fn is_able(&self, waiter: &Waiter) -> bool {
        let unheard = waiter.listening && self.presence.waiter_gone(waiter);
        !(self.is_dead(waiter) || unheard)
    }

    /// Whether it may be passed over: it cannot be told, and not for too long.
    fn passes_over(&self, waiter: &Waiter) -> bool {
        let is_brief = waiter.seen_until_ms <= NOW.millis() + millis(UNHEARD_GRACE);
        !self.is_dead(waiter) && !self.is_able(waiter) && is_brief
    }

    /// C2: each grant draws fences above all earlier ones, and the counter becomes the last of them; other steps leave it.
    fn fences_rise(&self, issued: u64) -> (bool, u64) {
        let (before, after) = (&self.before, &self.after);
        let (mut highest, mut newest, mut risen) = (issued, None, true);
        let mut draws = |fences: Option<Fences>| {
            risen &= fences.is_some_and(|fences| fences.first.get() > highest);
            highest = fences.map_or(highest, |fences| fences.last().get().max(highest));
            newest = fences;
        };
        for wake in &self.first.wakes {
            draws(fences_of(wake.fence, wake.block));
        }
        // A reply *held* names the holder's fences, and a new holder has the fences that were drawn last.
        let told = match &self.first.reply {
            Reply::Held(held) => Some(fences_of(held.fence, held.block)),
            _ => None,
        };
        if let (Step::Acquire { owner, .. }, Some(told)) = (self.step, told)
            && !holds(before, owner)
        {
            draws(told);
        }
        let [was, is, _] = self.counters;
        let expected = newest.map_or(was, |newest| Counter(Some(newest.last())));
        let its_own = after.holders.iter().all(|holder| {
            let is_news = !holds(before, &holder.owner);
            told.is_none_or(|told| told == Some(holder.fences))
                && (!is_news || newest == Some(holder.fences))
        });
        let is_counted = is == expected;
        (
            risen && its_own && is_counted && self.draws_what_was_asked(),
            highest,
        )
    }

    /// The number of fences that the new holder asked for, as a waiter or with this step.
    fn draws_what_was_asked(&self) -> bool {
        let before = &self.before;
        let waits = |owner: &Owner| {
            let mut queue = before.queue.iter();
            let waiter = queue.find(|waiter| waiter.owner == *owner);
            waiter.map(|waiter| waiter.block)
        };
        let as_asked = match (self.step, &self.first.reply) {
            (Step::Acquire { owner, block, .. }, Reply::Held(held)) => {
                let asked = waits(owner).unwrap_or(*block);
                holds(before, owner) || held.block == asked
            }
            _ => true,
        };
        let mut wakes = self.first.wakes.iter();
        as_asked && wakes.all(|wake| waits(&wake.owner) == Some(wake.block))
    }

    /// C3: a hold changes by its owner's step, by a break that names its fence, or because its process is gone. Its fences stay.
    fn only_its_owner_changes_a_hold(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let (by, may_end) = match self.step {
            Step::Acquire { owner, .. } | Step::Extend { owner, .. } => (Some(owner), false),
            Step::Release { owner, keep, .. } => {
                (Some(owner), keep.is_none() || !is_under(self.step, before))
            }
            Step::GiveBack { owner, .. } => (Some(owner), true),
            Step::Break { fence } => {
                let mut holders = before.holders.iter();
                (None, holders.any(|holder| holder.fences.contains(*fence)))
            }
            // No client of this model proposes.
            Step::Propose(_) | Step::Inspect => (None, false),
        };
        before.holders.iter().all(|holder| {
            let is_own = by == Some(&holder.owner);
            let same = after.holders.contains(holder);
            let mut now = after.holders.iter().filter(|now| now.owner == holder.owner);
            let stays = holds(after, &holder.owner);
            let keeps_fences = now.all(|now| now.fences == holder.fences);
            let gone = !holder.kept && self.presence.holder_gone(&holder.owner);
            let may = same
                || gone
                || (is_own && (stays || may_end))
                || (by.is_none() && may_end && !stays);
            may && keeps_fences
        })
    }

    /// C4: the new holder was the first waiter that can be told, or asked just now. No living waiter leaves the queue without a
    /// request, and none overtakes.
    fn is_in_order(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let (by, asks) = match self.step {
            Step::Release { owner, .. } => (Some(owner), None),
            Step::Acquire { owner, .. } => (None, Some(owner)),
            _ => (None, None),
        };
        let is_news = |owner: &Owner| holds(after, owner) && !holds(before, owner);
        let first = before
            .queue
            .iter()
            .position(|waiter| is_news(&waiter.owner));
        let someone = after.holders.iter().any(|holder| is_news(&holder.owner));
        let until = first.unwrap_or(if someone { before.queue.len() } else { 0 });
        let mut places = Vec::new();
        for (at, waiter) in before.queue.iter().enumerate() {
            let may_go = self.is_dead(waiter) || by == Some(&waiter.owner);
            let may_have = self.is_able(waiter) || asks == Some(&waiter.owner);
            match place(after, &waiter.owner) {
                None if is_news(&waiter.owner) && may_have => {}
                None if !is_news(&waiter.owner) && may_go => {}
                None => return false,
                Some(place) if at < until && !self.passes_over(&after.queue[place]) => {
                    return false;
                }
                Some(place) => places.push(place),
            }
        }
        // The remaining waiters are the first of the queue, in their order; new ones are behind them.
        places.iter().copied().eq(0..places.len())
    }

    /// C5: the same step at the same moment gets the same reply, draws no fence and changes nothing.
    fn may_be_repeated(&self) -> bool {
        let same_answer = match (self.step, &self.first.reply, &self.second.reply) {
            (Step::Release { .. } | Step::Break { .. }, Reply::Released, again) => {
                matches!(again, Reply::NotHeld(_) | Reply::Released)
            }
            (_, reply, again) => reply == again,
        };
        let [_, after, again] = self.counters;
        same_answer && self.after == self.again && after == again && self.second.wakes.is_empty()
    }

    /// Whether a reply is true of the state after the step.
    fn answer_is_true(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let is_left = |owner: &Owner| !holds(after, owner) && place(after, owner).is_none();
        match (self.step, &self.first.reply) {
            (
                Step::Acquire { owner, ttl, .. } | Step::Extend { owner, ttl, .. },
                Reply::Held(_),
            ) => {
                holds_until(after, owner, NOW.millis() + ttl.millis()) && is_under(self.step, after)
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
                self.had_what_it_believes(owner) && (kept || is_left(owner))
            }
            (Step::Release { owner, .. }, Reply::NotHeld(_)) => {
                // A silent waiter may be dropped first.
                let held = holds(before, owner) && is_under(self.step, before);
                is_left(owner) && !held
            }
            (Step::Extend { owner, .. }, Reply::NotHeld(_)) => {
                let untouched = !holds(before, owner) || after.holders == before.holders;
                untouched && !(holds(after, owner) && is_under(self.step, after))
            }
            (Step::Break { .. }, Reply::Released) => {
                let old = |holder| before.holders.contains(holder);
                !before.holders.is_empty() && !after.holders.iter().any(old)
            }
            (Step::Break { .. }, Reply::NotHeld(_)) => true,
            (Step::Inspect, Reply::Seen(seen)) => after == before && shows_who_holds(seen, after),
            _ => false,
        }
    }

    /// Whether exactly the right clients are told: a waiter that was granted the lock, the holder that the first in line waits, and
    /// a waiter that became the first behind a foreign lock.
    fn all_are_told(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let outcome = &self.first;
        let asked = match self.step {
            Step::Acquire { owner, .. } => Some(owner),
            _ => None,
        };
        let was_queued = |wake: &Wake| place(before, &wake.owner).is_some();
        let is_told = |owner: &Owner| {
            outcome
                .wakes
                .last()
                .is_some_and(|wake| wake.owner == *owner)
        };
        let mut given = after.holders.iter().map(|holder| &holder.owner);
        let wanted = match (self.step, &outcome.reply) {
            (Step::Acquire { wait: Some(_), .. }, Reply::Busy(busy)) if busy.ahead == 0 => {
                match &busy.holder.who {
                    HolderIdentity::Owner(holder) => slice::from_ref(holder),
                    HolderIdentity::Foreign { .. } => &[],
                }
            }
            _ => &[],
        };
        outcome.wakes.iter().all(was_queued)
            && given.all(|owner| holds(before, owner) || asked == Some(owner) || is_told(owner))
            && outcome.wanted == wanted
            && outcome.first.as_ref() == self.first_to_tell(asked)
    }

    /// The reachable waiter that has become the first behind a foreign lock. Short claims, which are announced as well, do not
    /// occur here: each grant lasts for a tick, which is more than a second.
    fn first_to_tell(&self, asked: Option<&Owner>) -> Option<&Owner> {
        let (before, after) = (&self.before, &self.after);
        let counts = |waiter: &&Waiter| asked == Some(&waiter.owner) || self.is_able(waiter);
        let first = after.queue.iter().find(counts)?;
        let stood = place(before, &first.owner)?;
        let mut earlier = before.queue.iter().take(stood);
        let is_news = earlier.any(|waiter| place(after, &waiter.owner).is_none());
        let is_told = after.foreign.is_some() && is_news && first.listening;
        (is_told && asked != Some(&first.owner)).then_some(&first.owner)
    }

    /// Whether a releasing owner held by the fence that it names; without one, whether it held or waited.
    fn had_what_it_believes(&self, owner: &Owner) -> bool {
        let before = &self.before;
        let knows = matches!(self.step, Step::Release { fence: Some(_), .. });
        if holds(before, owner) {
            is_under(self.step, before)
        } else {
            !knows && place(before, owner).is_some()
        }
    }
}

/// Whether this owner holds the lock.
fn holds(lock: &LockState, owner: &Owner) -> bool {
    lock.holders.iter().any(|holder| holder.owner == *owner)
}

/// Whether a client holds by a grant of its fences, until its own deadline or longer.
pub(super) fn is_its_hold(holder: &Holder, it: Believer) -> bool {
    let has = |fence| holder.fences.contains(Fence::new(fence));
    let is_its = CallId::of(&holder.owner) == it.id && has(it.fences.first) && has(it.fences.last);
    is_its && holder.expires_at_ms >= NOW.millis() + u64::from(it.left) * TICK_MS
}

/// Whether the store holds the lock for each client that believes so and was not robbed, by the grant of its fences, until its deadline.
pub(super) fn holds_what_it_believes(_: &LockModel, state: &State) -> bool {
    state.believers().filter(|it| !it.robbed).all(|it| {
        let mut holders = state.lock().into_iter().flat_map(|lock| &lock.holders);
        holders.any(|holder| is_its_hold(holder, it))
    })
}

fn fences_of(first: Option<Fence>, block: Block) -> Option<Fences> {
    first.map(|first| Fences { first, block })
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

/// Liveness of one waiter: all other clients stop. This is the worst case: the store does not know that any client is gone.
impl LockModel {
    /// R4: a waiter gets the lock once the current lease is over, plus one claim window for each waiter before it, plus the
    /// delay of its polls.
    pub(super) fn waits_end(&self, state: &State) -> bool {
        self.waiting(state).all(|id| {
            let (ms, first) = self.alone(state, id);
            let Some(first) = first else {
                return ms.is_some();
            };
            // A foreign lock without a TTL has no bound.
            let Some(left) = first.holder.expires_in else {
                return true;
            };
            let left = millis(left);
            let ahead = u64::from(first.ahead);
            let late: u64 = (0..=ahead).map(late).sum();
            left <= self.subject.ttl.millis()
                && ms.is_some_and(|ms| ms <= left + ahead * self.claim_ms() + late)
        })
    }

    /// R5: if the granted waiter is silent, the next one has the lock when the claim window is over.
    pub(super) fn dead_grants_end(&self, state: &State) -> bool {
        let Some(age) = state.unclaimed else {
            return true;
        };
        let next = state.lock().and_then(|lock| lock.queue.front());
        let next = next.map(|waiter| CallId::of(&waiter.owner));
        let Some(next) = next.filter(|next| self.waiting(state).any(|id| id == *next)) else {
            return true;
        };
        let left = self.claim_ms().saturating_sub(u64::from(age) * TICK_MS);
        let (ms, _) = self.alone(state, next);
        ms.is_some_and(|ms| ms <= left + late(0))
    }

    /// A client that wants the lock and polls.
    fn waiting(&self, state: &State) -> impl Iterator<Item = CallId> {
        let waits = self.setup.waits;
        let asks = |client: &u8| matches!(state.client(*client).phase, Phase::Asking(_));
        let clients = (0..self.setup.clients).filter(move |client| waits && asks(client));
        clients.map(|client| state.id(client))
    }

    /// After how many milliseconds a waiter that polls alone holds the lock, if ever, and its first refusal.
    fn alone(&self, state: &State, id: CallId) -> (Option<u64>, Option<Busy>) {
        let step = self.asks(id, RequestKind::Wait, 0);
        let (mut world, mut first) = (state.world.clone(), None);
        let subject = &self.subject;
        let ms = waits_alone(|now| {
            let outcome = subject.execute(&mut world, now, &step, &UnknownPresence);
            let Reply::Busy(busy) = outcome.reply else {
                return ControlFlow::Break(true);
            };
            // Clients add up to 10 % jitter to their polls, except the first in line.
            let pause = millis(busy.poll_after);
            let jitter = if busy.ahead == 0 { 0 } else { pause / 10 };
            let never = busy.holder.expires_in.is_none();
            first.get_or_insert(busy);
            if never {
                ControlFlow::Break(false)
            } else {
                ControlFlow::Continue(pause + jitter)
            }
        });
        (ms, first)
    }

    fn claim_ms(&self) -> u64 {
        millis(CLAIM_WINDOW).min(self.subject.ttl.millis())
    }
}

/// How long after the end of a lease a waiter with so many before it polls: 10 ms later for each of them, and 10 % later than
/// told, which is at most one second times its place.
fn late(ahead: u64) -> u64 {
    let foreign = 50;
    let jitter = if ahead == 0 { 0 } else { (ahead + 1) * 100 };
    1 + foreign + 11 * ahead + jitter
}
