//! The context of one step: the lock, the time, and the grant. [`Turn::grant_with`] alone makes a holder, with fences that were
//! drawn or accepted in the same step.

use crate::fence::{Block, Counter, Fences};
use crate::owner::Owner;
use crate::presence::Presence;
use crate::state::{Holder, LockState, Mode};
use crate::step::{Outcome, Reply, Wake};
use crate::time::{Now, Ttl};

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
}

/// Whether the holder's process is gone and the hold ends with it.
pub(crate) fn is_gone(holder: &Holder, presence: &dyn Presence) -> bool {
    !holder.kept && presence.holder_gone(&holder.owner)
}

/// A count, in the type that replies use.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
