//! The transition function of one lock: state, step and time in; state and reply out. It reads only its arguments.
//!
//! Each step but a look *advances*, before its own work or (a break) after it: it drops what has expired, and grants the lock to the
//! first waiters that are alive and can be told, while the holders admit them. A step by the holder of a live lock therefore changes
//! no other hold (C3), and who is admitted does not wait (C6). Expiry is strict: at `expires_at_ms` itself a lease still counts, as in Redis.
//!
//! [`Turn::grant_with`] alone makes a holder, with fences that were drawn or accepted in the same step. Safety never depends on
//! when a waiter polls: polls bound the delay if wakes are lost.

use std::time::Duration;

use crate::fence::{Block, Counter, Fence, Fences};
use crate::owner::{Owner, shown};
use crate::state::{Foreign, Holder, Mode, Waiter};
use crate::step::{
    Busy, Held, HolderIdentity, HolderView, NoVote, Outcome, Reply, Snapshot, Step, Wait,
    WaiterView, Wake,
};
use crate::time::{Now, Ttl, millis};
use std::collections::VecDeque;

/// All that a store keeps of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockState {
    /// The holders, in the order of their grants; at most one for a mutex (C1).
    pub holders: Vec<Holder>,
    /// Another program's lock under the same name. Stores without foreign clients leave it empty.
    pub foreign: Option<Foreign>,
    /// The waiters, first in line first (C4). No owner is both here and among the holders.
    pub queue: VecDeque<Waiter>,
}

impl LockState {
    /// Takes one step at `now`. A grant draws its fences from `counter`, which all locks of the store share.
    pub fn apply(
        &mut self,
        counter: &mut Counter,
        now: Now,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let mut turn = Turn::new(self, counter, now, presence);
        let reply = match step {
            Step::Acquire {
                owner,
                mode,
                ttl,
                block,
                wait,
            } => {
                let (mode, ttl, block) = (*mode, *ttl, *block);
                turn.acquire(owner, Request { mode, ttl, block }, *wait)
            }
            // Only a node has the memory for it: see `quorum::vote`.
            Step::Propose(_) => Reply::NoVote(NoVote::NotANode),
            Step::Extend { owner, ttl, fence } => turn.extend(owner, *ttl, *fence),
            Step::GiveBack { owner, fence } => turn.give_back(owner, *fence),
            Step::Release { owner, keep, fence } => turn.release(owner, *keep, *fence),
            Step::Break { fence } => turn.break_hold(*fence),
            Step::Inspect => Reply::Seen(Box::new(turn.inspect())),
        };
        turn.end(reply)
    }

    /// Whether the state is empty.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.foreign.is_none() && self.queue.is_empty()
    }

    /// Whether `owner` holds the lock at `now`, by the grant of `fence` (C8).
    pub(crate) fn is_held(&self, now: Now, owner: &Owner, fence: Fence) -> bool {
        let is_holder =
            |holder: &Holder| holder.expires_at_ms >= now.millis() && holder.is(owner, Some(fence));
        self.foreign.is_none() && self.holders.iter().any(is_holder)
    }

    /// Drops what has expired, as Redis does without a request. Grants nothing.
    pub fn expire(&mut self, now: Now) {
        let ms = now.millis();
        self.holders.retain(|holder| holder.expires_at_ms >= ms);
        self.foreign
            .take_if(|foreign| foreign.expires_at_ms.is_some_and(|at| at < ms));
    }

    /// Drops the waiters of a free lock if all of them are silent, as the next step would. An abandoned queue has no next
    /// step.
    pub(crate) fn forget_silent(&mut self, now: Now) {
        let free = self.holders.is_empty() && self.foreign.is_none();
        if free && self.queue.iter().all(|waiter| waiter.is_silent(now)) {
            self.queue.clear();
        }
    }
}

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

/// The most waiters that a step grants the lock each time it advances: the release of a writer before thousands of readers must
/// not hold up the store. The last of them is not told its fence if others wait: it claims the grant at once, and its claim advances
/// further.
pub const GRANTS_MOST: usize = 64;

/// The most holders that are notified of a waiter: those that end last.
const WANTED_MOST: usize = 16;

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
    pub(crate) wanted: Vec<Owner>,
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
            wanted: Vec::new(),
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

    /// Makes `owner` a holder and draws its fences. Readers that hold together are a phase: it has one fence, which the first of them
    /// draws (C2). Returns the holder's place.
    pub(crate) fn grant(&mut self, owner: &Owner, request: Request) -> usize {
        let (holders, wall_us) = (&self.lock.holders, self.now.wall_us);
        let fences = match request.mode {
            Mode::Shared => holders.first().map(|holder| holder.fences),
            Mode::Exclusive | Mode::Slot(_) => None,
        };
        let block = match request.mode {
            Mode::Shared => Block::ONE,
            Mode::Exclusive | Mode::Slot(_) => request.block,
        };
        let fences = fences.unwrap_or_else(|| self.counter.draw(block, wall_us));
        self.grant_with(owner, request.mode, request.ttl, fences)
    }

    /// Makes `owner` a holder with fences that the counter has drawn or accepted. No other function makes a holder. Returns its place.
    pub(crate) fn grant_with(
        &mut self,
        owner: &Owner,
        mode: Mode,
        ttl: Ttl,
        fences: Fences,
    ) -> usize {
        let slot = match mode {
            Mode::Exclusive | Mode::Shared => None,
            Mode::Slot(_) => Some(free_slot(&self.lock.holders)),
        };
        self.lock.holders.push(Holder {
            owner: owner.clone(),
            mode,
            fences,
            slot,
            vote: None,
            expires_at_ms: self.now.millis() + ttl.millis(),
            kept: false,
        });
        self.lock.holders.len() - 1
    }

    /// Whether a request of this mode is admitted beside the current holders.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        self.lock.foreign.is_none() && mode.admits(&self.lock.holders)
    }

    /// Drops expired holders and dead waiters, then grants to each able waiter in order while it is admitted (C4, C6). A grant
    /// lasts for the claim window. `caller` needs no wake: its reply follows. Returns the place of the first able waiter that is left.
    pub(crate) fn advance(&mut self, caller: Option<&Owner>) -> usize {
        self.drop_ended();
        let (mut place, mut grants) = (0, 0);
        while let Some(waiter) = self.lock.queue.get(place) {
            let is_admitted = self.admits(waiter.mode);
            // A holder that is alone lets nobody in, so the waiters behind it need not be examined.
            if grants == GRANTS_MOST || !is_admitted && self.is_held_alone() {
                break;
            }
            match self.find(waiter, caller) {
                WaiterStatus::Unheard if place < PASSED_OVER => {
                    self.pass_over(place);
                    place += 1;
                }
                WaiterStatus::Dead | WaiterStatus::Unheard => drop(self.lock.queue.remove(place)),
                // Nobody passes it.
                WaiterStatus::Able if !is_admitted => break,
                WaiterStatus::Able => {
                    grants += 1;
                    self.grant_to(place, caller, grants == GRANTS_MOST);
                }
            }
        }
        place
    }

    fn drop_ended(&mut self) {
        self.lock.expire(self.now);
        let presence = self.presence;
        let holders = &mut self.lock.holders;
        holders.retain(|holder| !is_gone(holder, presence));
    }

    fn is_held_alone(&self) -> bool {
        let first = self.lock.holders.first();
        self.lock.foreign.is_some() || first.is_some_and(|first| first.mode == Mode::Exclusive)
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

    /// `is_last`: of this step.
    fn grant_to(&mut self, place: usize, caller: Option<&Owner>, is_last: bool) {
        let Some(waiter) = self.lock.queue.remove(place) else {
            return;
        };
        let window = claim_ttl(waiter.ttl);
        let request = Request {
            mode: waiter.mode,
            ttl: window,
            block: waiter.block,
        };
        let at = self.grant(&waiter.owner, request);
        let (fences, slot) = (self.lock.holders[at].fences, self.lock.holders[at].slot);
        self.first = self.sleeper(place, caller, window).cloned();
        if caller != Some(&waiter.owner) {
            let wake = Wake {
                fence: Some(fences.first),
                slot,
                block: fences.block,
                owner: waiter.owner,
                at_us: self.now.clock_us,
                queued: count(self.lock.queue.len()),
            };
            let must_claim = is_last && place < self.lock.queue.len();
            let wake = if must_claim {
                wake.without_fence()
            } else {
                wake
            };
            self.wakes.push(wake);
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

    fn acquire(&mut self, owner: &Owner, request: Request, wait: Option<Wait>) -> Reply {
        let place = self.advance(Some(owner));
        if let Some(at) = self.holder(owner) {
            // A retry after a lost reply, or the claim of a grant (C5).
            return Reply::Held(self.hold_until(at, request.ttl));
        }
        if self.admits(request.mode) && place == self.lock.queue.len() {
            // The waiters that remain are passed over: they cannot be told, so they do not block this request.
            let at = self.grant(owner, request);
            return Reply::Held(self.held(at));
        }
        Reply::Busy(Box::new(self.refuse(owner, request, wait)))
    }

    /// Refuses a request for a lock that another holds. The request joins the queue, or keeps its place, if it waits.
    pub(crate) fn refuse(&mut self, owner: &Owner, request: Request, wait: Option<Wait>) -> Busy {
        let mut passed = 0;
        if wait.is_some() && self.lock.foreign.is_some() {
            passed = self.find_first(Some(owner), None);
        } else if wait.is_some() {
            self.drop_dead(owner);
        }
        let queued = self.waiter(owner);
        let ahead = count(queued.unwrap_or(self.lock.queue.len()));
        let listening = wait.is_some_and(|wait| wait.listening);
        let busy = self.busy(request.mode, ahead, count(passed), listening);
        if let Some(Wait { listening }) = wait {
            if ahead == 0 && self.lock.foreign.is_none() {
                self.wanted = clients(&ordered(&self.lock.holders));
            }
            let seen_until_ms = self.now.millis() + millis(busy.poll_after + WAITER_GRACE);
            let waiter = Waiter {
                owner: owner.clone(),
                mode: request.mode,
                ttl: request.ttl,
                block: request.block,
                listening,
                seen_until_ms,
            };
            match queued.and_then(|at| self.lock.queue.get_mut(at)) {
                Some(place) => *place = waiter,
                None => self.lock.queue.push_back(waiter),
            }
        }
        busy
    }

    fn extend(&mut self, owner: &Owner, ttl: Ttl, fence: Option<Fence>) -> Reply {
        self.advance(None);
        match self.holder(owner) {
            Some(at) if self.lock.holders[at].is_under(fence) => {
                Reply::Held(self.hold_until(at, ttl))
            }
            // A hold of its own by another grant, whoever holds beside it: a client of a quorum learns its number there.
            Some(at) => {
                let own = view_of(&self.lock.holders[at], self.now);
                Reply::NotHeld(Some(Box::new(own)))
            }
            None => self.not_held(),
        }
    }

    fn release(&mut self, owner: &Owner, keep: Option<Ttl>, fence: Option<Fence>) -> Reply {
        self.advance(None);
        // A release answers *released* only under the grant of `fence` (C8). It frees the lock in any case: owners are used once.
        let as_believed;
        if let Some(at) = self.holder(owner) {
            as_believed = self.lock.holders[at].is_under(fence);
            match keep.filter(|_| as_believed) {
                Some(keep) => {
                    let expires_at_ms = self.now.millis() + keep.millis();
                    let holder = &mut self.lock.holders[at];
                    (holder.expires_at_ms, holder.kept) = (expires_at_ms, true);
                }
                None => {
                    self.lock.holders.remove(at);
                }
            }
        } else if let Some(at) = self.waiter(owner) {
            self.lock.queue.remove(at);
            as_believed = fence.is_none();
            if self.lock.foreign.is_some() {
                self.find_first(None, Some(at));
            }
        } else {
            return self.not_held();
        }
        self.advance(None);
        if as_believed {
            Reply::Released
        } else {
            self.not_held()
        }
    }

    fn break_hold(&mut self, fence: Fence) -> Reply {
        self.free(|holder| holder.is_under(Some(fence)))
    }

    fn give_back(&mut self, owner: &Owner, fence: Fence) -> Reply {
        // What this grants beside a reader's vote is the hold of another owner, or has another number.
        self.advance(None);
        self.free(|holder| holder.is(owner, Some(fence)))
    }

    /// Frees the lock of the holders that are meant, and of no other one. Readers of a phase have one fence. It grants afterwards only: a
    /// reader that joined the phase by this step would be told of a hold that has ended.
    fn free(&mut self, is_meant: impl Fn(&Holder) -> bool) -> Reply {
        self.drop_ended();
        let before = self.lock.holders.len();
        self.lock.holders.retain(|holder| !is_meant(holder));
        let is_freed = self.lock.holders.len() < before;
        self.advance(None);
        if is_freed {
            Reply::Released
        } else {
            self.not_held()
        }
    }

    fn inspect(&self) -> Snapshot {
        let mut seen = self.lock.clone();
        seen.expire(self.now);
        seen.holders
            .retain(|holder| !is_gone(holder, self.presence));
        let ms = self.now.millis();
        let queue = seen.queue.iter();
        let queue = queue.map(|waiter| WaiterView::of(waiter, ms)).collect();
        let holders = ordered(&seen.holders);
        let others = holders.iter().skip(1).take(Snapshot::SHOWN - 1);
        let others = others.map(|holder| view_of(holder, self.now)).collect();
        let omitted = count(holders.len().saturating_sub(Snapshot::SHOWN));
        Snapshot::new(view(&seen, self.now), queue).with_others(others, omitted)
    }

    pub(crate) fn hold_until(&mut self, at: usize, ttl: Ttl) -> Held {
        let holder = &mut self.lock.holders[at];
        holder.expires_at_ms = self.now.millis() + ttl.millis();
        self.held(at)
    }

    pub(crate) fn held(&self, at: usize) -> Held {
        let holder = &self.lock.holders[at];
        Held {
            fence: Some(holder.number()),
            slot: holder.slot,
            block: holder.fences.block,
            queued: count(self.lock.queue.len()),
        }
    }

    pub(crate) fn holder(&self, owner: &Owner) -> Option<usize> {
        let mut holders = self.lock.holders.iter();
        holders.position(|holder| holder.owner == *owner)
    }

    fn waiter(&self, owner: &Owner) -> Option<usize> {
        let mut queue = self.lock.queue.iter();
        queue.position(|waiter| waiter.owner == *owner)
    }

    fn view(&self) -> Option<HolderView> {
        view(self.lock, self.now)
    }

    fn not_held(&self) -> Reply {
        Reply::NotHeld(self.view().map(Box::new))
    }

    /// Refuses a request that has `ahead` waiters before it, of which `passed` cannot be told and therefore do not count.
    fn busy(&self, mode: Mode, ahead: u32, passed: u32, listening: bool) -> Busy {
        let holders = ordered(&self.lock.holders);
        let holder = mode
            .waits_for(&holders)
            .filter(|_| self.lock.foreign.is_none());
        let holder = holder.map(|holder| view_of(holder, self.now));
        // After `advance`, a lock that refuses a request has a holder.
        let holder = holder.or_else(|| self.view()).unwrap_or_else(|| {
            let kind = "none".into();
            let value = Vec::new();
            let who = HolderIdentity::Foreign { kind, value };
            HolderView::new(who, None, None, Some(Duration::ZERO))
        });
        let foreign = matches!(holder.who, HolderIdentity::Foreign { .. });
        Busy {
            poll_after: poll_after(ahead - passed, holder.expires_in, foreign, listening),
            ahead,
            others: count(holders.len().saturating_sub(1)),
            holder,
            at_us: self.now.clock_us,
        }
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

/// The smallest number of a slot that no holder has (C9).
fn free_slot(holders: &[Holder]) -> u16 {
    let mut taken: Vec<_> = holders.iter().filter_map(|holder| holder.slot).collect();
    taken.sort_unstable();
    let gap = (1..).zip(&taken).find(|(number, slot)| number < *slot);
    gap.map_or_else(
        || taken.last().map_or(1, |last| last + 1),
        |(number, _)| number,
    )
}

/// These holders in the order in which others see them.
fn ordered(holders: &[Holder]) -> Vec<&Holder> {
    let mut ordered: Vec<_> = holders.iter().collect();
    ordered.sort_by(|a, b| a.order().cmp(&b.order()));
    ordered
}

/// The first owner of each client among the first of these holders.
fn clients(holders: &[&Holder]) -> Vec<Owner> {
    let mut clients = Vec::new();
    for holder in holders.iter().take(WANTED_MOST) {
        let client = holder.owner.client();
        if clients.iter().all(|other: &Owner| other.client() != client) {
            clients.push(holder.owner.clone());
        }
    }
    clients
}

/// The holder as others see it: the last to end of several.
fn view(lock: &LockState, now: Now) -> Option<HolderView> {
    let Some(foreign) = &lock.foreign else {
        let last = lock.holders.iter().min_by(|a, b| a.order().cmp(&b.order()));
        return last.map(|holder| view_of(holder, now));
    };
    let who = HolderIdentity::Foreign {
        kind: foreign.kind.clone(),
        value: shown(&foreign.value),
    };
    let left = |at: u64| Duration::from_millis(at.saturating_sub(now.millis()));
    Some(HolderView::new(
        who,
        None,
        None,
        foreign.expires_at_ms.map(left),
    ))
}

/// Its fence was drawn at the time of the grant and in its microseconds, so it also tells since when; it runs ahead of the clock only
/// where the clock went back or many fences are drawn in a moment. The fence of a reader tells of the first one of its phase.
fn view_of(holder: &Holder, now: Now) -> HolderView {
    let fence = holder.number();
    let held_for = Duration::from_micros(now.wall_us.saturating_sub(fence.get()));
    let expires_in = Duration::from_millis(holder.expires_at_ms.saturating_sub(now.millis()));
    HolderView::new(
        HolderIdentity::Owner(holder.owner.clone()),
        Some(fence),
        (holder.mode != Mode::Shared).then_some(held_for),
        Some(expires_in),
    )
    .in_mode(holder.mode, holder.slot)
}
