//! The checks on each step of the store, and the liveness of waiters. The checks compare the state before and after a step, and do not
//! compute what it should do.

use std::ops::ControlFlow;

use leasehold_core::{
    Block, Busy, CLAIM_WINDOW, ClientId, Counter, Fence, Fences, Holder, HolderIdentity, LockState,
    Mode, Outcome, Owner, Presence, Reply, Snapshot, Step, UNHEARD_GRACE, UnknownPresence, Waiter,
    Wake, World,
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
    Slots = 1 << 8,
}

/// A grant, as it was told.
struct Grant<'a> {
    /// Its place in the line before the step; behind all for an owner that did not wait.
    place: usize,
    owner: &'a Owner,
    mode: Mode,
    fences: Option<Fences>,
    slot: Option<u16>,
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
        let grants = self.grants();
        let one_program = holders.is_empty() || foreign.is_none();
        let first = queue.iter().find(|waiter| !self.passes_over(waiter));
        let is_left = foreign.is_none() && first.is_some_and(|first| admits(first.mode, holders));
        let (fences_rise, issued) = self.fences_rise(&grants, issued);
        let checks = [
            (
                Rule::Holders,
                one_program && self.all_admit_each_other(&grants),
            ),
            (Rule::Slots, self.slots_differ(&grants)),
            (Rule::Fences, fences_rise),
            (Rule::Strangers, self.only_its_owner_changes_a_hold()),
            (Rule::Order, self.is_in_order()),
            (Rule::Repeats, self.may_be_repeated()),
            (Rule::FreeQueue, *self.step == Step::Inspect || !is_left),
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

    /// The grants of the step, first in line first.
    fn grants(&self) -> Vec<Grant<'_>> {
        let before = &self.before;
        let mut grants = Vec::new();
        for wake in &self.first.wakes {
            // A wake of who did not wait violates another rule.
            let waiter = place(before, &wake.owner).map(|place| (place, &before.queue[place]));
            grants.extend(waiter.map(|(place, waiter)| Grant {
                place,
                owner: &wake.owner,
                mode: waiter.mode,
                fences: fences_of(wake.fence, wake.block),
                slot: wake.slot,
            }));
        }
        if let (Step::Acquire { owner, mode, .. }, Reply::Held(held)) =
            (self.step, &self.first.reply)
            && !holds(before, owner)
        {
            grants.push(Grant {
                place: place(before, owner).unwrap_or(usize::MAX),
                owner,
                mode: *mode,
                fences: fences_of(held.fence, held.block),
                slot: held.slot,
            });
        }
        grants.sort_by_key(|grant| grant.place);
        grants
    }

    /// C1: the holders admit each other, and each was admitted beside those before it that are there still.
    fn all_admit_each_other(&self, grants: &[Grant<'_>]) -> bool {
        let after = &self.after.holders;
        let alone = after.iter().all(|holder| holder.mode == Mode::Shared);
        let slots = after.iter().all(|holder| holder.slot.is_some());
        let mut held = self.before.holders.clone();
        held.retain(|holder| holds(&self.after, &holder.owner));
        let mut each = grants.iter().map(|grant| {
            let is_admitted = admits(grant.mode, &held);
            held.extend(hold(&self.after, grant.owner).cloned());
            is_admitted
        });
        (after.len() <= 1 || alone || slots) && each.all(|is_admitted| is_admitted)
    }

    /// C9: the numbers differ and are within the limit, and a grant has the smallest that was free. A step that ends a hold grants before
    /// that and after it.
    fn slots_differ(&self, grants: &[Grant<'_>]) -> bool {
        let numbers = |lock: &LockState| -> Vec<_> {
            let holders = lock.holders.iter();
            holders.map(|holder| (holder.mode, holder.slot)).collect()
        };
        let all = numbers(&self.after);
        let each_fits = all.iter().enumerate().all(|(at, slot)| match slot {
            (Mode::Slot(of), Some(number)) => {
                let mut others = all[at + 1..].iter();
                (1..=of.get()).contains(number) && others.all(|other| other.1 != slot.1)
            }
            (mode, number) => !matches!(mode, Mode::Slot(_)) && number.is_none(),
        });
        let is_free = |taken: &[Option<u16>], number: u16| {
            !taken.contains(&Some(number)) && (1..number).all(|less| taken.contains(&Some(less)))
        };
        let (mut ever, mut held) = (Vec::new(), Vec::new());
        for holder in &self.before.holders {
            ever.push(holder.slot);
            held.extend(holds(&self.after, &holder.owner).then_some(holder.slot));
        }
        let mut each = grants.iter().map(|grant| {
            let is_smallest =
                (grant.slot).is_none_or(|number| is_free(&ever, number) || is_free(&held, number));
            ever.push(grant.slot);
            held.extend(hold(&self.after, grant.owner).map(|holder| holder.slot));
            is_smallest
        });
        each_fits && each.all(|is_smallest| is_smallest)
    }

    /// C2: each grant draws fences above all earlier ones, unless it joins a phase of readers; the counter becomes the last of them; other
    /// steps leave it.
    fn fences_rise(&self, grants: &[Grant<'_>], issued: u64) -> (bool, u64) {
        let after = &self.after;
        let mut readers = self.before.holders.iter();
        let reader = readers.find(|holder| holder.mode == Mode::Shared);
        let mut phase = reader.map(|reader| reader.fences);
        // A break ends a phase before it lets in others.
        phase.take_if(|phase| matches!(self.step, Step::Break { fence } if phase.contains(*fence)));
        let (mut highest, mut newest, mut risen) = (issued, None, true);
        for Grant { mode, fences, .. } in grants {
            if *mode == Mode::Shared && phase.is_some() {
                risen &= *fences == phase;
                continue;
            }
            risen &= fences.is_some_and(|fences| fences.first.get() > highest);
            highest = fences.map_or(highest, |fences| fences.last().get().max(highest));
            newest = *fences;
            phase = fences.filter(|_| *mode == Mode::Shared);
        }
        // A new holder has the fences that its grant told, and a reply *held* names the holder's.
        let mut is_told = after.holders.iter().map(|holder| {
            let mut told = grants.iter().filter(|grant| *grant.owner == holder.owner);
            let is_news = !holds(&self.before, &holder.owner);
            told.next_back().map_or(!is_news, |grant| {
                grant.fences == Some(holder.fences) && grant.slot == holder.slot
            })
        });
        let its_own = match (self.step, &self.first.reply) {
            (Step::Acquire { owner, .. } | Step::Extend { owner, .. }, Reply::Held(held)) => {
                let told = (fences_of(held.fence, held.block), held.slot);
                hold(after, owner).is_some_and(|it| told == (Some(it.fences), it.slot))
            }
            _ => true,
        };
        let one_phase = after.holders.windows(2).all(|pair| {
            let is_shared = pair[0].mode == Mode::Shared;
            !is_shared || pair[0].fences == pair[1].fences
        });
        let [was, is, _] = self.counters;
        let expected = newest.map_or(was, |newest| Counter(Some(newest.last())));
        let is_counted = is == expected;
        (
            risen
                && is_told.all(|is_so| is_so)
                && its_own
                && one_phase
                && is_counted
                && self.draws_what_was_asked(),
            highest,
        )
    }

    /// The number of fences that the new holder asked for, as a waiter or with this step.
    fn draws_what_was_asked(&self) -> bool {
        let before = &self.before;
        let waits = |owner: &Owner| {
            let mut queue = before.queue.iter();
            let waiter = queue.find(|waiter| waiter.owner == *owner);
            waiter.map(|waiter| as_drawn(waiter.mode, waiter.block))
        };
        let as_asked = match (self.step, &self.first.reply) {
            (
                Step::Acquire {
                    owner, mode, block, ..
                },
                Reply::Held(held),
            ) => {
                let asked = waits(owner).unwrap_or(as_drawn(*mode, *block));
                holds(before, owner) || held.block == asked
            }
            _ => true,
        };
        let mut wakes = self.first.wakes.iter();
        as_asked && wakes.all(|wake| waits(&wake.owner) == Some(wake.block))
    }

    /// C3: a hold changes by its owner's step, by a break that names its fence, or because its process is gone. Its fences and its slot stay.
    fn only_its_owner_changes_a_hold(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let (by, may_end) = match self.step {
            Step::Acquire { owner, .. } | Step::Extend { owner, .. } => (Some(owner), false),
            Step::Release { owner, keep, .. } => {
                (Some(owner), keep.is_none() || !is_under(self.step, before))
            }
            Step::GiveBack { owner, .. } => (Some(owner), true),
            // No client of this model proposes.
            Step::Break { .. } | Step::Propose(_) | Step::Inspect => (None, false),
        };
        before.holders.iter().all(|holder| {
            let is_own = by == Some(&holder.owner);
            let same = after.holders.contains(holder);
            let mut now = after.holders.iter().filter(|now| now.owner == holder.owner);
            let stays = holds(after, &holder.owner);
            let keeps_fences = now.all(|now| {
                (now.fences, now.slot, now.mode) == (holder.fences, holder.slot, holder.mode)
            });
            let named =
                matches!(self.step, Step::Break { fence } if holder.fences.contains(*fence));
            let gone = !holder.kept && self.presence.holder_gone(&holder.owner);
            let may = same || gone || (is_own && (stays || may_end)) || (named && !stays);
            may && keeps_fences
        })
    }

    /// C4: the new holders were the first waiters that can be told, or asked just now behind all of them. No living waiter leaves the queue
    /// without a request, and none overtakes, whatever its mode.
    fn is_in_order(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let (by, asks) = match self.step {
            Step::Release { owner, .. } => (Some(owner), None),
            Step::Acquire { owner, .. } => (None, Some(owner)),
            _ => (None, None),
        };
        let is_news = |owner: &Owner| holds(after, owner) && !holds(before, owner);
        let last = before
            .queue
            .iter()
            .rposition(|waiter| is_news(&waiter.owner));
        let mut holders = after.holders.iter().map(|holder| &holder.owner);
        let new = holders.any(|owner| is_news(owner) && place(before, owner).is_none());
        let until = if new {
            before.queue.len()
        } else {
            last.unwrap_or(0)
        };
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
                let is_placed = asked == usize::try_from(busy.ahead).ok();
                !holds(after, owner) && is_placed && stays && shows_a_holder(busy, after)
            }
            (Step::Release { owner, keep, .. }, Reply::Released) => {
                let kept = keep.is_some_and(|keep| {
                    holds_until(after, owner, NOW.millis() + keep.millis())
                        && hold(after, owner).is_some_and(|holder| holder.kept)
                });
                self.had_what_it_believes(owner) && (kept || is_left(owner))
            }
            (Step::Release { owner, .. }, Reply::NotHeld(_)) => {
                // A silent waiter may be dropped first.
                let held = holds(before, owner) && is_under(self.step, before);
                is_left(owner) && !held
            }
            (Step::Extend { owner, .. }, Reply::NotHeld(_)) => {
                let untouched = !holds(before, owner) || hold(after, owner) == hold(before, owner);
                untouched && !(holds(after, owner) && is_under(self.step, after))
            }
            (Step::Break { fence }, reply @ (Reply::Released | Reply::NotHeld(_))) => {
                let named = |holder: &Holder| holder.fences.contains(*fence);
                let is_freed = before.holders.iter().any(named);
                is_freed == (*reply == Reply::Released) && !after.holders.iter().any(named)
            }
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
        let is_told = |owner: &Owner| outcome.wakes.iter().any(|wake| wake.owner == *owner);
        let mut given = after.holders.iter().map(|holder| &holder.owner);
        // One holder of each client.
        let clients = |owners: &mut dyn Iterator<Item = &Owner>| -> Vec<ClientId> {
            let mut clients: Vec<_> = owners.map(Owner::client).collect();
            clients.sort_unstable();
            clients
        };
        let mut wanted = match (self.step, &outcome.reply) {
            (Step::Acquire { wait: Some(_), .. }, Reply::Busy(busy))
                if busy.ahead == 0 && after.foreign.is_none() =>
            {
                clients(&mut after.holders.iter().map(|holder| &holder.owner))
            }
            _ => vec![],
        };
        wanted.dedup();
        let holds_now = |owner: &Owner| holds(after, owner);
        outcome.wakes.iter().all(was_queued)
            && given.all(|owner| holds(before, owner) || asked == Some(owner) || is_told(owner))
            && outcome.wanted.iter().all(holds_now)
            && clients(&mut outcome.wanted.iter()) == wanted
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

/// The hold of this owner.
fn hold<'a>(lock: &'a LockState, owner: &Owner) -> Option<&'a Holder> {
    let mut holders = lock.holders.iter();
    holders.find(|holder| holder.owner == *owner)
}

/// Whether this owner holds the lock.
fn holds(lock: &LockState, owner: &Owner) -> bool {
    hold(lock, owner).is_some()
}

/// Whether a request of this mode is admitted beside these holders (C1), in words other than core's.
pub(super) fn admits(mode: Mode, holders: &[Holder]) -> bool {
    let (mut readers, mut slots) = (0, 0);
    for holder in holders {
        match holder.mode {
            Mode::Exclusive => return false,
            Mode::Shared => readers += 1,
            Mode::Slot(_) => slots += 1,
        }
    }
    match mode {
        Mode::Exclusive => readers + slots == 0,
        Mode::Shared => slots == 0,
        Mode::Slot(of) => readers == 0 && slots < of.get(),
    }
}

/// How many fences are drawn for a request of so many: a phase of readers has one.
fn as_drawn(mode: Mode, block: Block) -> Block {
    if mode == Mode::Shared {
        Block::ONE
    } else {
        block
    }
}

/// A refusal shows who holds, and counts the others.
fn shows_a_holder(busy: &Busy, lock: &LockState) -> bool {
    match &busy.holder.who {
        HolderIdentity::Foreign { .. } => lock.foreign.is_some() && busy.others == 0,
        HolderIdentity::Owner(owner) => {
            let all = usize::try_from(busy.others).map(|others| others + 1);
            holds(lock, owner) && all == Ok(lock.holders.len())
        }
    }
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

/// Whether the fence that a step names, if any, belongs to the grant by which its owner holds (C8).
fn is_under(step: &Step, lock: &LockState) -> bool {
    let (Step::Extend { owner, fence, .. } | Step::Release { owner, fence, .. }) = step else {
        return true;
    };
    let its = |fence| hold(lock, owner).is_none_or(|holder| holder.fences.contains(fence));
    fence.is_none_or(its)
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
            let Some((first, last_ms)) = first else {
                return ms.is_some();
            };
            // A foreign lock without a TTL has no bound.
            let Some(left) = first.holder.expires_in else {
                return true;
            };
            // It may have to wait for all that hold.
            let left = last_ms.saturating_sub(NOW.millis()).max(millis(left));
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

    /// After how many milliseconds a waiter that polls alone holds the lock, if ever; its first refusal, and when the last hold ended then.
    fn alone(&self, state: &State, id: CallId) -> (Option<u64>, Option<(Box<Busy>, u64)>) {
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
            let holders = world
                .get(&subject.name)
                .map_or(&[][..], |lock| &lock.holders);
            let last_ms = holders.iter().map(|holder| holder.expires_at_ms).max();
            first.get_or_insert((busy, last_ms.unwrap_or_default()));
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
