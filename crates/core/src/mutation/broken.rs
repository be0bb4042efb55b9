//! The broken rules: each wraps the sound rule, and changes the step, the state before it, or the state after it.

use super::Mutation;
use super::after::TakenStep;
use super::queries::{holds, overruns, waits};
use crate::fence::Counter;
use crate::owner::Owner;
use crate::presence::Presence;
use crate::state::{LockState, Waiter};
use crate::step::{Outcome, Step};
use crate::time::Now;

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
        let done = TakenStep {
            lock,
            counter,
            before,
            drawn,
            now,
            step: &step,
            presence,
            outcome,
        };
        done.leave(self)
    }

    /// The step that the broken rule takes instead.
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

    /// Changes the state on which the step is taken.
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

/// A presence in which every waiter is subscribed.
struct AllHear<'a>(&'a dyn Presence);

impl Presence for AllHear<'_> {
    fn holder_gone(&self, owner: &Owner) -> bool {
        self.0.holder_gone(owner)
    }
}
