//! Whose turn it is: the step in progress, the queue (C4), and the grant.
//!
//! [`Turn::grant_with`] alone makes a holder, with fences that were drawn or accepted in the same step. Safety never depends on
//! when a waiter polls: polls bound the delay if wakes are lost.

use std::time::Duration;

use crate::fence::{Block, Counter, Fences};
use crate::owner::Owner;
use crate::state::{Holder, LockState, Mode, Waiter};
use crate::step::{Outcome, Reply, Wake};
use crate::time::{Now, Ttl, millis};

/// A store's knowledge of which clients are gone. The rules ask it while the lock advances.
///
/// Both answers default to "not known", which is always safe: the deadline then decides.
pub trait Presence {
    /// True only if this owner's process is certainly gone. Then its lease is not waited out, and a waiter is not granted the
    /// lock. Only a store on one host can know.
    fn holder_gone(&self, _owner: &Owner) -> bool {
        false
    }

    /// True if this waiter cannot be told of a grant now: its client is gone, or is reconnecting. In Redis, `PUBSUB NUMSUB`
    /// counts the subscribers of its channel before anything is published.
    fn waiter_gone(&self, _waiter: &Waiter) -> bool {
        false
    }
}

/// A presence that knows nothing: no client counts as gone.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnknownPresence;

impl Presence for UnknownPresence {}

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

/// The hold that an owner asks for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    pub(crate) block: Block,
}

/// One step in progress.
pub(crate) struct Turn<'a> {
    pub(crate) lock: &'a mut LockState,
    pub(crate) counter: &'a mut Counter,
    pub(crate) now: Now,
    pub(crate) presence: &'a dyn Presence,
    pub(crate) wakes: Vec<Wake>,
    pub(crate) wanted: Option<Owner>,
    pub(crate) first: Option<Owner>,
}

impl<'a> Turn<'a> {
    /// Begins a step without effects so far.
    pub(crate) fn new(
        lock: &'a mut LockState,
        counter: &'a mut Counter,
        now: Now,
        presence: &'a dyn Presence,
    ) -> Self {
        Self {
            lock,
            counter,
            now,
            presence,
            wakes: Vec::new(),
            wanted: None,
            first: None,
        }
    }

    /// Ends the step with this reply.
    pub(crate) fn end(self, reply: Reply) -> Outcome {
        Outcome {
            reply,
            wakes: self.wakes,
            wanted: self.wanted,
            first: self.first,
        }
    }

    /// Makes `owner` a holder and draws its fences.
    pub(crate) fn grant(&mut self, owner: &Owner, request: Request) -> Fences {
        let fences = self.counter.draw(request.block, self.now.wall_us);
        self.grant_with(owner, request.mode, request.ttl, fences);
        fences
    }

    /// Makes `owner` a holder with fences that the counter has drawn or accepted. No other function makes a holder.
    pub(crate) fn grant_with(&mut self, owner: &Owner, mode: Mode, ttl: Ttl, fences: Fences) {
        self.lock.holders.push(Holder {
            owner: owner.clone(),
            mode,
            fences,
            expires_at_ms: self.now.millis() + ttl.millis(),
            kept: false,
        });
    }

    /// Whether a request of this mode is admitted beside the current holders.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        self.lock.foreign.is_none() && mode.admits(&self.lock.holders)
    }

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

/// Whether the holder's process is gone and the hold ends with it.
pub(crate) fn is_gone(holder: &Holder, presence: &dyn Presence) -> bool {
    !holder.kept && presence.holder_gone(&holder.owner)
}

/// A count, in the type that replies use.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn claim_ttl(ttl: Ttl) -> Ttl {
    Ttl::new(CLAIM_WINDOW).map_or(ttl, |window| window.min(ttl))
}

/// Milliseconds per place in the queue between two polls, for a waiter that is subscribed to wakes and for one that is not;
/// the longest poll interval; the delay per place after the end of the lease.
const POLL_PER_PLACE: u64 = 1_000;
const POLL_PER_PLACE_UNSUBSCRIBED: u64 = 250;
const POLL_MAX: u64 = 15_000;
const POLL_STAGGER: u64 = 10;

/// The poll interval of the first waiter behind a foreign holder, and of the [`PASSED_OVER`] waiters behind it. With the 10 %
/// jitter that clients add, it is below 100 ms. Further back, it grows by [`POLL_FOREIGN`] for each place.
const POLL_FOREIGN: u64 = 50;
const POLL_FOREIGN_NEAR: u64 = 90;

/// How long a waiter with `ahead` waiters before it sleeps before it polls again, if it receives no wake.
///
/// - In general: one second per place (250 ms if it is not `listening` for wakes), at most 15 s.
/// - If the holder's lease ends sooner: at the end of the lease, plus 10 ms for each waiter ahead.
/// - Behind a `foreign` holder: see below. A foreign holder sends no wake when it ends.
///
/// Behind a foreign holder, the first waiter polls each 50 ms, and the next [`PASSED_OVER`] waiters each 90 ms. Thus the first
/// of them that is alive has the lock within 100 ms. Further back the interval is 50 ms for each waiter ahead, less 30 of
/// them, at most 15 s.
///
/// Every waiter takes the end of the lease into account, not only the first. A waiter receives nothing while it moves up, so
/// the waiter that is first when a lease expires may have polled last from far behind. The staggered polls arrive one by one,
/// and the first of them advances the queue for all. If the last reply named a holder in its [`CLAIM_WINDOW`] (as in a fast
/// queue), an unclaimed grant costs that window, 10 ms for each waiter ahead, and the jitter. If the last reply named a holder
/// with a longer lease, the place decides, and the delay may be 15 s.
///
/// [`CLAIM_WINDOW`]: crate::CLAIM_WINDOW
pub fn poll_after(
    ahead: u32,
    expires_in: Option<Duration>,
    foreign: bool,
    listening: bool,
) -> Duration {
    let places = u64::from(ahead);
    let by_place = match (foreign, listening) {
        (true, _) => behind_foreign(places),
        (false, true) => POLL_PER_PLACE * (places + 1),
        (false, false) => POLL_PER_PLACE_UNSUBSCRIBED * (places + 1),
    };
    let by_place = Duration::from_millis(by_place.min(POLL_MAX));
    // One more millisecond, since a lease still counts at its last one.
    let past = Duration::from_millis(1 + POLL_STAGGER * places);
    expires_in.map_or(by_place, |left| by_place.min(left.saturating_add(past)))
}

fn behind_foreign(ahead: u64) -> u64 {
    const NEAR: u64 = PASSED_OVER as u64;
    match ahead {
        0 => POLL_FOREIGN,
        1..=NEAR => POLL_FOREIGN_NEAR,
        _ => POLL_FOREIGN * (ahead + 2 - NEAR),
    }
}
