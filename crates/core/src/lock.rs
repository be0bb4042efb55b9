//! The transition function of one lock: state, step and time in; state and reply out. It reads only its arguments.
//!
//! Each step but a look first *advances*: it drops what has expired and hands a free lock to the first waiter that is alive and
//! can be told (`turn.rs`). A step by the holder of a live lock therefore changes nothing but its own deadline (C3), and a free
//! lock keeps no other waiter (C6). Expiry is strict: at `expires_at_ms` itself a lease still counts, as in Redis.

use std::time::Duration;

use crate::fence::{Counter, Fence, Fences};
use crate::owner::{Owner, shown};
use crate::state::{Holder, LockState, Mode, Waiter};
use crate::step::{
    Busy, Held, HolderIdentity, HolderView, NoVote, Outcome, Reply, Snapshot, Step, Wait,
    WaiterView,
};
use crate::time::{Now, Ttl, millis};
use crate::turn::{Presence, Request, Turn, WAITER_GRACE, count, is_gone, poll_after};

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
            Step::Inspect => Reply::Seen(turn.inspect()),
        };
        turn.end(reply)
    }
}

impl Turn<'_> {
    fn acquire(&mut self, owner: &Owner, request: Request, wait: Option<Wait>) -> Reply {
        self.advance(Some(owner));
        if let Some(at) = self.holder(owner) {
            // A retry after a lost reply, or the claim of a grant (C5).
            return Reply::Held(self.hold_until(at, request.ttl));
        }
        if self.admits(request.mode) {
            // The waiters that remain are passed over: they cannot be told, so they do not block this request.
            let fences = self.grant(owner, request);
            return Reply::Held(self.held(fences));
        }
        Reply::Busy(self.refuse(owner, request, wait))
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
        let busy = self.busy(ahead, count(passed), listening);
        if let Some(Wait { listening }) = wait {
            if let (0, HolderIdentity::Owner(holder)) = (ahead, &busy.holder.who) {
                self.wanted = Some(holder.clone());
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
        let mut holders = self.lock.holders.iter();
        match holders.position(|holder| holder.is(owner, fence)) {
            Some(at) => Reply::Held(self.hold_until(at, ttl)),
            None => Reply::NotHeld(self.view()),
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
            return Reply::NotHeld(self.view());
        }
        self.advance(None);
        if as_believed {
            Reply::Released
        } else {
            Reply::NotHeld(self.view())
        }
    }

    fn break_hold(&mut self, fence: Fence) -> Reply {
        self.free(|holder| holder.mode == Mode::Exclusive && holder.fences.contains(fence))
    }

    fn give_back(&mut self, owner: &Owner, fence: Fence) -> Reply {
        self.free(|holder| holder.is(owner, Some(fence)))
    }

    /// Frees the lock of the holder that is meant, and of no other one.
    fn free(&mut self, is_meant: impl Fn(&Holder) -> bool) -> Reply {
        self.advance(None);
        match self.lock.holders.iter().position(is_meant) {
            Some(at) => {
                self.lock.holders.remove(at);
                self.advance(None);
                Reply::Released
            }
            None => Reply::NotHeld(self.view()),
        }
    }

    fn inspect(&self) -> Snapshot {
        let mut seen = self.lock.clone();
        seen.expire(self.now);
        seen.holders
            .retain(|holder| !is_gone(holder, self.presence));
        let ms = self.now.millis();
        Snapshot {
            holder: view(&seen, self.now),
            queue: seen
                .queue
                .iter()
                .map(|waiter| WaiterView::of(waiter, ms))
                .collect(),
        }
    }

    pub(crate) fn hold_until(&mut self, at: usize, ttl: Ttl) -> Held {
        let holder = &mut self.lock.holders[at];
        holder.expires_at_ms = self.now.millis() + ttl.millis();
        let fences = holder.fences;
        self.held(fences)
    }

    pub(crate) fn held(&self, fences: Fences) -> Held {
        Held {
            fence: Some(fences.first),
            block: fences.block,
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

    /// Refuses a request that has `ahead` waiters before it, of which `passed` cannot be told and therefore do not count.
    fn busy(&self, ahead: u32, passed: u32, listening: bool) -> Busy {
        // After `advance`, a lock that refuses a request has a holder.
        let holder = self.view().unwrap_or_else(|| HolderView {
            who: HolderIdentity::Foreign {
                kind: "none".into(),
                value: Vec::new(),
            },
            fence: None,
            held_for: None,
            expires_in: Some(Duration::ZERO),
        });
        let foreign = matches!(holder.who, HolderIdentity::Foreign { .. });
        Busy {
            poll_after: poll_after(ahead - passed, holder.expires_in, foreign, listening),
            ahead,
            holder,
            at_us: self.now.clock_us,
        }
    }
}

/// The holder as others see it. Its fence was drawn at the time of the grant and in its microseconds, so it also tells
/// since when; it runs ahead of the clock only where the clock went back or many fences are drawn in a moment.
fn view(lock: &LockState, now: Now) -> Option<HolderView> {
    if let Some(foreign) = &lock.foreign {
        return Some(HolderView {
            who: HolderIdentity::Foreign {
                kind: foreign.kind.clone(),
                value: shown(&foreign.value),
            },
            fence: None,
            held_for: None,
            expires_in: foreign
                .expires_at_ms
                .map(|at| Duration::from_millis(at.saturating_sub(now.millis()))),
        });
    }
    let holder = lock.holders.first()?;
    let fence = holder.fences.first;
    Some(HolderView {
        who: HolderIdentity::Owner(holder.owner.clone()),
        fence: Some(fence),
        held_for: Some(Duration::from_micros(
            now.wall_us.saturating_sub(fence.get()),
        )),
        expires_in: Some(Duration::from_millis(
            holder.expires_at_ms.saturating_sub(now.millis()),
        )),
    })
}
