//! The queue of a lock: which waiter is granted next (C4).

use std::time::Duration;

use crate::owner::Owner;
use crate::state::Waiter;
use crate::step::Wake;
use crate::time::{Ttl, millis};
use crate::turn::{Request, Turn, count, is_gone};

/// How long a waiter that was granted the lock has to extend it to its full TTL (at most its TTL). A dead or paused waiter
/// delays the queue by that, and until the next step of any client: see [`poll_after`](crate::poll_after).
pub const CLAIM_WINDOW: Duration = Duration::from_secs(3);

/// How long after its next poll was due a waiter still counts as alive.
pub const WAITER_GRACE: Duration = Duration::from_secs(15);

/// How long a waiter that cannot be told of its turn keeps its place, unless it counts as silent before: its client may be
/// reconnecting. The queue passes it over meanwhile, so a dead waiter delays no other.
pub const UNHEARD_GRACE: Duration = Duration::from_secs(2);

/// The most unreachable waiters that one step passes over. Each step on a free lock examines them all, which delays a store
/// that serves many locks; unreachable waiters behind them lose their places.
pub const PASSED_OVER: usize = 32;

/// A claim window shorter than this may end long before the next waiter polls, since it last polled behind a longer lease.
const SHORT_CLAIM: Duration = Duration::from_secs(1);

/// A poll within this time after the end of a claim window is soon enough.
const SOON: Duration = Duration::from_millis(50);

/// Whether a waiter can be granted the lock now.
enum WaiterStatus {
    /// It is silent, or its process is gone: it loses its place.
    Dead,
    /// It counts as alive but cannot be told: it is passed over and keeps its place for [`UNHEARD_GRACE`].
    Unheard,
    /// It is alive, and can be told or only polls.
    Able,
}

impl Turn<'_> {
    /// Drops expired holders and dead waiters, then grants to each able waiter in order while it is admitted (C4, C6). A grant
    /// lasts for the claim window. `caller` needs no wake: its reply follows.
    pub(crate) fn advance(&mut self, caller: Option<&Owner>) {
        self.lock.expire(self.now);
        let presence = self.presence;
        let holders = &mut self.lock.holders;
        holders.retain(|holder| !is_gone(holder, presence));
        let mut place = 0;
        while let Some(waiter) = self.lock.queue.get(place) {
            if !self.admits(waiter.mode) {
                break;
            }
            match self.find(waiter, caller) {
                WaiterStatus::Unheard if place < PASSED_OVER => {
                    self.pass_over(place);
                    place += 1;
                }
                WaiterStatus::Dead | WaiterStatus::Unheard => drop(self.lock.queue.remove(place)),
                WaiterStatus::Able => self.grant_to(place, caller),
            }
        }
    }

    /// Finds the first able waiter behind a foreign holder, and drops the dead ones before it. A foreign holder wakes no waiter
    /// when it ends, so the first in line polls often. Returns how many waiters were passed over before that one, or before
    /// `caller` if that comes first. If a waiter became the first just now, because one before it was dropped or because the
    /// waiter at place `left` has left, it is told.
    pub(crate) fn find_first(&mut self, caller: Option<&Owner>, left: Option<usize>) -> usize {
        let (mut place, mut dropped) = (0, false);
        while let Some(waiter) = self.lock.queue.get(place) {
            match self.find(waiter, caller) {
                WaiterStatus::Unheard if place < PASSED_OVER => {
                    self.pass_over(place);
                    place += 1;
                }
                WaiterStatus::Dead | WaiterStatus::Unheard => {
                    self.lock.queue.remove(place);
                    dropped = true;
                }
                WaiterStatus::Able => break,
            }
        }
        if dropped || left.is_some_and(|left| left <= place) {
            let first = self.lock.queue.get(place);
            let hears = |first: &&Waiter| first.listening && caller != Some(&first.owner);
            self.first = first.filter(hears).map(|first| first.owner.clone());
        }
        place
    }

    /// Drops dead waiters at the front, up to `caller`. They would lengthen the caller's poll interval, and hide from the holder
    /// that the caller waits.
    pub(crate) fn drop_dead(&mut self, caller: &Owner) {
        while let Some(front) = self.lock.queue.front()
            && caller != &front.owner
            && self.is_dead(front)
        {
            self.lock.queue.pop_front();
        }
    }

    fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.is_silent(self.now) || self.presence.holder_gone(&waiter.owner)
    }

    /// `waiter_gone` is asked last, since to ask it may also tell the waiter.
    fn find(&self, waiter: &Waiter, caller: Option<&Owner>) -> WaiterStatus {
        if caller == Some(&waiter.owner) {
            WaiterStatus::Able
        } else if self.is_dead(waiter) {
            WaiterStatus::Dead
        } else if waiter.listening && self.presence.waiter_gone(waiter) {
            WaiterStatus::Unheard
        } else {
            WaiterStatus::Able
        }
    }

    /// Shortens the time for which a waiter counts as alive to [`UNHEARD_GRACE`]. If it asks again, that is undone.
    fn pass_over(&mut self, place: usize) {
        let until = self.now.millis() + millis(UNHEARD_GRACE);
        if let Some(waiter) = self.lock.queue.get_mut(place) {
            waiter.seen_until_ms = waiter.seen_until_ms.min(until);
        }
    }

    fn grant_to(&mut self, place: usize, caller: Option<&Owner>) {
        let Some(waiter) = self.lock.queue.remove(place) else {
            return;
        };
        let window = claim_ttl(waiter.ttl);
        let request = Request {
            mode: waiter.mode,
            ttl: window,
            block: waiter.block,
        };
        let fences = self.grant(&waiter.owner, request);
        self.first = self.sleeper(place, caller, window).cloned();
        if caller != Some(&waiter.owner) {
            self.wakes.push(Wake {
                fence: Some(fences.first),
                block: fences.block,
                owner: waiter.owner,
                at_us: self.now.clock_us,
                queued: count(self.lock.queue.len()),
            });
        }
    }

    /// The first waiter from `place` on that should be told to poll, because the grant before it is short and it would sleep
    /// past the end of that grant. `None` if a waiter before it polls in time.
    fn sleeper(&self, place: usize, caller: Option<&Owner>, window: Ttl) -> Option<&Owner> {
        if window.get() >= SHORT_CLAIM {
            return None;
        }
        let now = self.now.millis();
        // A waiter counts as alive for `WAITER_GRACE` after its next poll is due. One that is late by that may not poll at all.
        let grace = millis(WAITER_GRACE);
        let in_time = now + grace..=now + window.millis() + millis(SOON) + grace;
        for waiter in self.lock.queue.iter().skip(place).take(PASSED_OVER) {
            if caller == Some(&waiter.owner) || in_time.contains(&waiter.seen_until_ms) {
                return None;
            }
            if waiter.listening && matches!(self.find(waiter, caller), WaiterStatus::Able) {
                return Some(&waiter.owner);
            }
        }
        None
    }
}

fn claim_ttl(ttl: Ttl) -> Ttl {
    Ttl::new(CLAIM_WINDOW).map_or(ttl, |window| window.min(ttl))
}
