//! What each broken rule would do, around the sound one: it asks for another step, finds another state, or leaves one.
//! Must never be needed to read the rules themselves.

use std::time::Duration;

use super::Mutation;
use crate::lock::WAITER_GRACE;
use crate::{
    Block, Counter, Fence, Fences, Held, LockState, Now, Outcome, Owner, Presence, Reply, Step,
    Ttl, Waiter,
};

impl Mutation {
    /// Takes one step as the broken rule does.
    pub(crate) fn apply(
        self,
        (lock, counter): (&mut LockState, &mut Counter),
        now: Now,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let mut before = lock.clone();
        before.expire(now);
        (before.holders).retain(|holder| holder.kept || !presence.holder_gone(&holder.owner));
        let step = self.asked(step, &before);
        self.find((lock, counter), &before, now, &step, presence);
        let drawn = *counter;
        let outcome = if self == Self::DeafWaiterGranted {
            lock.take(counter, now, &step, &AllHear(presence))
        } else {
            lock.take(counter, now, &step, presence)
        };
        let mut done = Done {
            lock,
            counter,
            before,
            drawn,
            now,
            step: &step,
            presence,
            outcome,
        };
        done.leave(self);
        done.outcome
    }

    /// The step that is taken instead.
    fn asked(self, step: &Step, before: &LockState) -> Step {
        let mut step = step.clone();
        let holder = before.holders.first().map(|holder| &holder.owner);
        match (self, &mut step, holder) {
            (Self::ReleaseWithoutOwnerCheck, Step::Release { owner, .. }, Some(holder))
            | (Self::ExtendWithoutOwnerCheck, Step::Extend { owner, .. }, Some(holder)) => {
                owner.clone_from(holder);
            }
            (Self::KeepIgnored, Step::Release { keep, .. }, _) => *keep = None,
            (Self::ExtendIgnoresFence, Step::Extend { fence, .. }, _)
            | (Self::ReleaseIgnoresFence, Step::Release { fence, .. }, _) => *fence = None,
            (Self::BreakIgnoresFence, Step::Break { fence }, Some(_)) => {
                *fence = before
                    .holders
                    .first()
                    .map_or(*fence, |holder| holder.fences.first);
            }
            _ => {}
        }
        step
    }

    /// Changes the state that the step is taken on.
    fn find(
        self,
        (lock, counter): (&mut LockState, &mut Counter),
        before: &LockState,
        now: Now,
        step: &Step,
        presence: &dyn Presence,
    ) {
        let ms = now.millis();
        match self {
            Self::LeaseEndsEarly => lock.holders.retain(|holder| holder.expires_at_ms != ms),
            Self::LeaseEndsLate => {
                for holder in &mut lock.holders {
                    holder.expires_at_ms += u64::from(holder.expires_at_ms + 1 == ms);
                }
            }
            Self::NoExclusion if overruns(step, before) => lock.holders.clear(),
            Self::QueueSkipped if before.holders.is_empty() && !before.queue.is_empty() => {
                if let Step::Acquire {
                    owner,
                    mode,
                    ttl,
                    block,
                    ..
                } = step
                {
                    lock.queue.retain(|waiter| waiter.owner != *owner);
                    lock.queue.push_front(Waiter {
                        owner: owner.clone(),
                        mode: *mode,
                        ttl: *ttl,
                        block: *block,
                        listening: false,
                        seen_until_ms: ms,
                    });
                }
            }
            Self::LastComeFirstServed => {
                let mut tried = lock.clone();
                tried.take(&mut counter.clone(), now, step, presence);
                if tried
                    .holders
                    .iter()
                    .any(|holder| waits(before, &holder.owner))
                {
                    lock.queue.rotate_right(1);
                }
            }
            Self::SilentWaiterGranted if *step != Step::Inspect => {
                for waiter in &mut lock.queue {
                    waiter.seen_until_ms = waiter.seen_until_ms.max(ms);
                }
            }
            Self::FenceResetOnRelease if matches!(step, Step::Release { owner, keep: None, .. } if holds(before, owner)) =>
            {
                counter.0 = None;
            }
            _ => {}
        }
    }
}

/// A step that was taken, and what it was taken on: without what had expired.
struct Done<'a> {
    lock: &'a mut LockState,
    counter: &'a mut Counter,
    before: LockState,
    /// The counter before it.
    drawn: Counter,
    now: Now,
    step: &'a Step,
    presence: &'a dyn Presence,
    outcome: Outcome,
}

impl Done<'_> {
    /// Changes what the step has left and what it answers.
    fn leave(&mut self, mutation: Mutation) {
        match mutation {
            Mutation::NoExclusion if overruns(self.step, &self.before) => {
                let others = self.before.holders.clone();
                self.lock.holders.splice(0..0, others);
            }
            Mutation::ReleaseAlwaysSucceeds if matches!(self.step, Step::Release { .. }) => {
                self.outcome.reply = Reply::Released;
            }
            Mutation::WaiterReleaseFreesHolder => self.free_for_waiter(),
            Mutation::ExtendRetakes | Mutation::ExtendAlwaysSucceeds => self.extend(mutation),
            Mutation::InspectGrants if *self.step == Step::Inspect => {
                // Of nobody, so all it does is to advance.
                let advance = Step::Break {
                    fence: Fence::new(0),
                };
                self.outcome = self.takes(&advance);
                self.outcome.reply = self.takes(self.step).reply;
            }
            Mutation::WakeForgotten => self.outcome.wakes.clear(),
            Mutation::WakeToAnother => {
                let behind = self.lock.queue.front().map(|waiter| &waiter.owner);
                if let (Some(wake), Some(behind)) = (self.outcome.wakes.last_mut(), behind) {
                    wake.owner.clone_from(behind);
                }
            }
            Mutation::WantedForgotten => self.outcome.wanted = None,
            Mutation::FirstNotTold => self.outcome.first = None,
            Mutation::PlaceLostWhenNotTold
            | Mutation::PassedOverBlocks
            | Mutation::PassedOverStays => self.passed_over(mutation),
            Mutation::PollAtOnce => {
                if let Reply::Busy(busy) = &mut self.outcome.reply {
                    busy.poll_after = Duration::ZERO;
                }
            }
            Mutation::BusyNotQueued
            | Mutation::RefreshMovesToTheEnd
            | Mutation::GraceForgotten
            | Mutation::GrantedStaysQueued => self.queue(mutation),
            Mutation::GrantForFullTtl => self.grant_for_full_ttl(),
            _ => self.fence(mutation),
        }
    }

    fn takes(&mut self, step: &Step) -> Outcome {
        self.lock.take(self.counter, self.now, step, self.presence)
    }

    fn free_for_waiter(&mut self) {
        let Step::Release { owner, .. } = self.step else {
            return;
        };
        let holder = self.lock.holders.first().map(|holder| holder.owner.clone());
        if let Some(holder) = holder
            && waits(&self.before, owner)
        {
            let free = Step::Release {
                owner: holder,
                keep: None,
                fence: None,
            };
            let freed = self.takes(&free);
            self.outcome.wakes.extend(freed.wakes);
        }
    }

    fn extend(&mut self, mutation: Mutation) {
        let Step::Extend { owner, ttl, .. } = self.step else {
            return;
        };
        match &self.outcome.reply {
            Reply::NotHeld(None) if mutation == Mutation::ExtendRetakes => {
                let again = acquire(owner, *ttl);
                self.outcome = self.takes(&again);
            }
            Reply::NotHeld(_) if mutation == Mutation::ExtendAlwaysSucceeds => {
                self.outcome.reply = Reply::Held(Held {
                    fence: self.drawn.0,
                    block: Block::ONE,
                    queued: 0,
                });
            }
            _ => {}
        }
    }

    /// What becomes of those whom the step passed over, and of those behind them.
    fn passed_over(&mut self, mutation: Mutation) {
        let earlier = self.before.queue.clone();
        let was = |waiter: &Waiter| earlier.iter().find(|was| was.owner == waiter.owner);
        let is_passed = |waiter: &Waiter| {
            was(waiter).is_some_and(|was| was.seen_until_ms > waiter.seen_until_ms)
        };
        match mutation {
            Mutation::PlaceLostWhenNotTold => self.lock.queue.retain(|waiter| !is_passed(waiter)),
            Mutation::PassedOverStays => {
                for waiter in self
                    .lock
                    .queue
                    .iter_mut()
                    .filter(|waiter| is_passed(waiter))
                {
                    waiter.seen_until_ms = was(waiter).map_or(0, |was| was.seen_until_ms);
                }
            }
            _ => {
                let Some(wake) = self.outcome.wakes.last() else {
                    return;
                };
                // Its own extension may have claimed the grant already.
                let claimed = matches!(self.outcome.reply, Reply::Held(_));
                let granted = earlier.iter().position(|was| was.owner == wake.owner);
                if let Some(at) =
                    granted.filter(|_| !claimed && self.lock.queue.iter().any(is_passed))
                {
                    self.lock
                        .holders
                        .retain(|holder| holder.owner != wake.owner);
                    let before = |waiter: &&Waiter| {
                        earlier.iter().take(at).any(|was| was.owner == waiter.owner)
                    };
                    let place = self.lock.queue.iter().filter(before).count();
                    self.lock.queue.insert(place, earlier[at].clone());
                    self.outcome.wakes.clear();
                }
            }
        }
    }

    fn queue(&mut self, mutation: Mutation) {
        if mutation == Mutation::GrantedStaysQueued {
            let granted = |waiter: &&Waiter| holds(self.lock, &waiter.owner);
            if let Some(granted) = self.before.queue.iter().find(granted).cloned() {
                self.lock.queue.push_front(granted);
            }
            return;
        }
        let Step::Acquire { owner, .. } = self.step else {
            return;
        };
        let place =
            |state: &LockState| state.queue.iter().position(|waiter| waiter.owner == *owner);
        let Some(at) = place(self.lock) else {
            return;
        };
        match (mutation, place(&self.before)) {
            (Mutation::BusyNotQueued, None) => {
                self.lock.queue.remove(at);
            }
            (Mutation::RefreshMovesToTheEnd, Some(_)) => {
                let waiter = self.lock.queue.remove(at);
                self.lock.queue.extend(waiter);
            }
            (Mutation::GraceForgotten, _) => {
                let grace = u64::try_from(WAITER_GRACE.as_millis()).unwrap_or_default();
                self.lock.queue[at].seen_until_ms -= grace;
            }
            _ => {}
        }
    }

    fn grant_for_full_ttl(&mut self) {
        let Some(wake) = self.outcome.wakes.last() else {
            return;
        };
        // Its own extension may have claimed the grant already.
        let claimed = matches!(self.outcome.reply, Reply::Held(_));
        let asked = self
            .before
            .queue
            .iter()
            .find(|waiter| waiter.owner == wake.owner);
        if let (Some(asked), Some(holder), false) = (asked, self.lock.holders.last_mut(), claimed) {
            holder.expires_at_ms = self.now.millis() + asked.ttl.millis();
        }
    }

    fn fence(&mut self, mutation: Mutation) {
        let new = self
            .lock
            .holders
            .last()
            .filter(|last| !holds(&self.before, &last.owner));
        let granted = new.map(|holder| holder.fences.block);
        let repeated =
            matches!(self.step, Step::Acquire { owner, .. } if holds(&self.before, owner));
        match (mutation, granted, self.drawn.0) {
            (Mutation::GrantWithoutFence, Some(block), Some(last)) => {
                self.set_fences(Fences { first: last, block });
            }
            (Mutation::BlockNotCounted, Some(_), _) => {
                let first = self.lock.holders.last().map(|holder| holder.fences.first);
                self.counter.0 = first;
            }
            (Mutation::FenceWithoutClock, Some(block), last) => {
                let first = Fence::new(last.map_or(1, |last| last.get() + 1));
                let fences = Fences { first, block };
                self.counter.0 = Some(fences.last());
                self.set_fences(fences);
            }
            (Mutation::RepeatDrawsFence, _, Some(_)) if repeated => {
                let fences = self.counter.draw(Block::ONE, self.now.wall_us);
                self.set_fences(fences);
            }
            _ => {}
        }
    }

    /// Gives the holder other fences, also for who is told of them.
    fn set_fences(&mut self, fences: Fences) {
        if let Some(holder) = self.lock.holders.last_mut() {
            holder.fences = fences;
        }
        match &mut self.outcome.reply {
            Reply::Held(held) => held.fence = Some(fences.first),
            Reply::Busy(busy) => busy.holder.fence = Some(fences.first),
            _ => {}
        }
        if let Some(wake) = self.outcome.wakes.last_mut() {
            wake.fence = Some(fences.first);
        }
    }
}

/// Whether a broken exclusion lets this acquire through.
fn overruns(step: &Step, before: &LockState) -> bool {
    matches!(step, Step::Acquire { owner, .. } if !holds(before, owner) && before.queue.is_empty())
}

fn acquire(owner: &Owner, ttl: Ttl) -> Step {
    Step::Acquire {
        owner: owner.clone(),
        mode: crate::Mode::Exclusive,
        ttl,
        block: Block::ONE,
        wait: None,
    }
}

fn holds(state: &LockState, owner: &Owner) -> bool {
    state.holders.iter().any(|holder| holder.owner == *owner)
}

fn waits(state: &LockState, owner: &Owner) -> bool {
    state.queue.iter().any(|waiter| waiter.owner == *owner)
}

/// A presence to which every waiter listens.
struct AllHear<'a>(&'a dyn Presence);

impl Presence for AllHear<'_> {
    fn holder_gone(&self, owner: &Owner) -> bool {
        self.0.holder_gone(owner)
    }
}
