//! One step of a lock under way: what it works on, and the grant. Must never let anyone become a holder but by [`Turn::grant`],
//! which draws the fences in the same step.

use crate::fence::{Block, Counter, Fences};
use crate::mode::Mode;
use crate::owner::Owner;
use crate::presence::Presence;
use crate::state::{Holder, LockState};
use crate::step::Wake;
use crate::time::{Now, Ttl};

/// One step under way.
pub(crate) struct Turn<'a> {
    pub(crate) lock: &'a mut LockState,
    counter: &'a mut Counter,
    pub(crate) now: Now,
    pub(crate) presence: &'a dyn Presence,
    pub(crate) wakes: Vec<Wake>,
    pub(crate) wanted: Option<Owner>,
    pub(crate) first: Option<Owner>,
}

impl<'a> Turn<'a> {
    /// Begins a step that has done nothing yet.
    pub(crate) fn new(
        (lock, counter): (&'a mut LockState, &'a mut Counter),
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

    /// The only place where anyone becomes a holder; it draws the fences in the same step.
    pub(crate) fn grant(
        &mut self,
        owner: &Owner,
        (mode, ttl, block): (Mode, Ttl, Block),
    ) -> Fences {
        let fences = self.counter.draw(block, self.now.wall_us);
        self.lock.holders.push(Holder {
            owner: owner.clone(),
            mode,
            fences,
            expires_at_ms: self.now.millis() + ttl.millis(),
            kept: false,
        });
        fences
    }

    /// Whether a request of this mode may join those who hold now.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        self.lock.foreign.is_none() && mode.admits(&self.lock.holders)
    }
}

/// Whether a hold has ended with its owner's process.
pub(crate) fn is_gone(holder: &Holder, presence: &dyn Presence) -> bool {
    !holder.kept && presence.holder_gone(&holder.owner)
}

/// How many, as replies say it.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
