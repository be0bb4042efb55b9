//! The effects of the broken rules after the sound step: changed state and changed replies.

use std::time::Duration;

use super::Mutation;
use super::queries::{holds, overruns, waits};
use crate::fence::{Block, Counter, Fence, Fences};
use crate::line::WAITER_GRACE;
use crate::mode::Mode;
use crate::owner::Owner;
use crate::presence::Presence;
use crate::state::{LockState, Waiter};
use crate::step::{Held, Outcome, Reply, Step};
use crate::time::{Now, Ttl};

/// A step that was taken, and the state before it without expired entries.
pub(super) struct TakenStep<'a> {
    pub(super) lock: &'a mut LockState,
    pub(super) counter: &'a mut Counter,
    pub(super) before: LockState,
    /// The counter before the step.
    pub(super) drawn: Counter,
    pub(super) now: Now,
    pub(super) step: &'a Step,
    pub(super) presence: &'a dyn Presence,
    pub(super) outcome: Outcome,
}

impl TakenStep<'_> {
    /// Changes the state after the step, and its reply.
    pub(super) fn leave(mut self, mutation: Mutation) -> Outcome {
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
                // A release by an unknown owner: it only advances the lock.
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
        self.outcome
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

    /// Changes the places of the waiters that the step passed over, and of those behind them.
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

    /// Gives the holder other fences, also in the replies and wakes that name them.
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

fn acquire(owner: &Owner, ttl: Ttl) -> Step {
    Step::Acquire {
        owner: owner.clone(),
        mode: Mode::Exclusive,
        ttl,
        block: Block::ONE,
        wait: None,
    }
}
