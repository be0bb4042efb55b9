//! Who of a line is next. Must never grant a lock to a waiter that nobody could tell, nor let one keep others from it.

use std::time::Duration;

use crate::owner::Owner;
use crate::state::Waiter;
use crate::step::Wake;
use crate::time::{Ttl, millis};
use crate::turn::{Turn, count, is_gone};

/// How long a waiter that was granted the lock has to extend it to its full TTL (or its TTL, if that is less). One that is
/// dead or paused delays the queue by that, and until the next step of anyone: [`poll_after`](crate::poll_after) says when that is.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(3);

/// How long after its next poll was due a waiter still counts as alive.
pub const WAITER_GRACE: Duration = Duration::from_secs(15);

/// How long a waiter that could not be told of its turn keeps its place, unless it counts as silent before: its client may be
/// connecting anew. It is passed over meanwhile, so one that is dead delays nobody.
pub const UNHEARD_GRACE: Duration = Duration::from_secs(2);

/// How many of those that cannot be told one step passes over. Each has to be looked for at each step on a free lock, which
/// holds up a store that serves many locks; those behind them lose their places.
pub const PASSED_OVER: usize = 32;

/// A claim window below this may end long before the next in line asks, who asked last behind another lease.
const SHORT_CLAIM: Duration = Duration::from_secs(1);

/// Who asks this long after the end of a claim window is soon enough.
const SOON: Duration = Duration::from_millis(50);

/// What is found of a waiter.
enum WaiterStatus {
    /// It is silent, or its process is gone: it loses its place.
    Dead,
    /// It is alive as far as anybody knows, but cannot be told: it is passed over and keeps its place for [`UNHEARD_GRACE`].
    Unheard,
    /// It is alive and can be told, or only polls.
    Able,
}

impl Turn<'_> {
    /// Drops the expired and the gone, then grants to the first able waiter for as long as it is admitted (C4, C6). A grant
    /// lasts for the claim window; `caller` needs no wake, since it is about to be answered.
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

    /// While a foreign program holds the lock, nobody is woken when it ends: the first in line looks often. So that one has
    /// to be able. Returns how many were passed over before it, or before `caller` if that one comes first. Whoever became the
    /// first just now is told: since one before it was dropped, or since the waiter at the place `left` has left.
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

    /// Drops those at the front that lose their places, up to `caller`: they would have it wait for its poll as one further
    /// behind, and keep the holder from hearing that it waits.
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

    /// Asked last, `waiter_gone` may be what tells it.
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

    /// A waiter that is passed over counts as alive for [`UNHEARD_GRACE`] at most, unless it asks again.
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
        let fences = self.grant(&waiter.owner, (waiter.mode, window, waiter.block));
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

    /// The first of those from `place` on who can be told, if the grant before it is a short one and it would sleep past its
    /// end: it is told, asks, and learns when the claim ends. It need not be, if one before it asks in time.
    fn sleeper(&self, place: usize, caller: Option<&Owner>, window: Ttl) -> Option<&Owner> {
        if window.get() >= SHORT_CLAIM {
            return None;
        }
        let now = self.now.millis();
        // Each counts as alive for so long after its next poll is due. Who is late by that may not ask at all.
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
