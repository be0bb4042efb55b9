//! The store's knowledge of each client, and its consequences for a waiter.

use leasehold_core::{Now, Owner, Presence, UNHEARD_GRACE, Waiter};

use crate::run::micros;

/// The store's knowledge of each client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clients {
    pub(crate) crashed: [bool; 3],
    pub(crate) deaf: [bool; 3],
}

impl Clients {
    pub(crate) fn crashed(self, owner: &Owner) -> bool {
        self.crashed[usize::try_from(owner.client().get()).unwrap()]
    }

    /// C4: it asked in time, and its process is not gone.
    pub(crate) fn alive(self, waiter: &Waiter, now: Now) -> bool {
        waiter.seen_until_ms >= now.millis() && !self.crashed(&waiter.owner)
    }

    /// C4: alive, and it can be told of a grant.
    pub(crate) fn able(self, waiter: &Waiter, now: Now) -> bool {
        self.alive(waiter, now) && !(waiter.listening && self.waiter_gone(waiter))
    }

    /// C6: alive but unreachable, and not for too long.
    pub(crate) fn passed_over(self, waiter: &Waiter, now: Now) -> bool {
        let until = now.millis() + micros(UNHEARD_GRACE) / 1_000;
        self.alive(waiter, now) && !self.able(waiter, now) && waiter.seen_until_ms <= until
    }
}

impl Presence for Clients {
    fn holder_gone(&self, owner: &Owner) -> bool {
        self.crashed(owner)
    }

    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let client = usize::try_from(waiter.owner.client().get()).unwrap();
        self.crashed[client] || self.deaf[client]
    }
}
