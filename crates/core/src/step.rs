//! What a client can ask of a lock and what it is answered. Must never carry a client's clock.

use std::time::Duration;

use crate::fence::{Block, Fence};
use crate::mode::Mode;
use crate::owner::Owner;
use crate::state::Waiter;
use crate::time::Ttl;

/// One atomic step of a store: one round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take the lock, or find that this owner has it already (so that a retry after a lost reply is safe).
    Acquire {
        /// Who asks; fresh for each acquisition, the same for each retry of it.
        owner: Owner,
        /// What is asked for.
        mode: Mode,
        /// The lease wanted.
        ttl: Ttl,
        /// How many fences to draw with the grant: more than one lets the client hand the lock on inside its process.
        block: Block,
        /// Join or refresh the queue when the lock is busy; `None` asks once.
        wait: Option<Wait>,
    },
    /// Give the lease a new deadline, only while it is held. Never takes an expired lock again.
    Extend {
        /// The holder.
        owner: Owner,
        /// The lease from now on.
        ttl: Ttl,
        /// Any fence of the grant by which the owner believes to hold: without that hold it is answered *not held* (C8). `None`
        /// says that it knows none.
        fence: Option<Fence>,
    },
    /// Free the lock, or leave the queue.
    Release {
        /// The holder or waiter.
        owner: Owner,
        /// Free the lock only after this long (at-least-hold).
        keep: Option<Ttl>,
        /// As in [`Step::Extend`]. The owner lets go of whatever it has in any case.
        fence: Option<Fence>,
    },
    /// Free the lock of a holder that cannot, by an operator who has seen its fence.
    Break {
        /// Any fence of the holder that is meant: that of its grant, which others see, or one that it has handed out since.
        fence: Fence,
    },
    /// Look, without changing anything.
    Inspect,
}

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Its client listens for wakes, so that a store may find that it cannot be told. A client that only polls says `false`.
    pub listening: bool,
}

/// What a step answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The owner holds the lock, for the TTL it asked for.
    Held(Held),
    /// Someone else holds it.
    Busy(Busy),
    /// The lock was freed or the queue left.
    Released,
    /// The owner (or, for a break, the fence) does not hold the lock. Says who does.
    NotHeld(Option<HolderView>),
    /// The answer of [`Step::Inspect`].
    Seen(Snapshot),
}

/// A lease, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The fence of the owner's grant, for exclusive modes, so that a retry after a lost reply is answered by the same.
    pub fence: Option<Fence>,
    /// How many fences were drawn with the grant: that one and those that follow it are the owner's.
    pub block: Block,
    /// How many wait for the lock now.
    pub queued: u32,
}

/// A refusal for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Who holds the lock.
    pub holder: HolderView,
    /// How many waiters stand before this one, also those that cannot be told now; for a request that does not wait, how many
    /// wait at all.
    pub ahead: u32,
    /// Ask again after this long, if nothing is heard before.
    pub poll_after: Duration,
    /// When the store answered, in microseconds on its expiry clock. Only a difference to a [`Wake`]'s has a meaning.
    pub at_us: u64,
}

/// A holder as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderView {
    /// Who it is.
    pub who: HolderIdentity,
    /// A fence of it, if it has one. A store knows that of the grant; if the lock is handed on inside the holder's process, the
    /// lease of the moment has a higher one. Either breaks the lock.
    pub fence: Option<Fence>,
    /// How long it has held the lock; `None` when the store cannot know. A store counts from the grant.
    pub held_for: Option<Duration>,
    /// How long until the lease ends unless extended; `None` means never, which only a foreign client can do.
    pub expires_in: Option<Duration>,
}

impl HolderView {
    /// A holder, for those who show or play one.
    pub const fn new(
        who: HolderIdentity,
        fence: Option<Fence>,
        held_for: Option<Duration>,
        expires_in: Option<Duration>,
    ) -> Self {
        Self {
            who,
            fence,
            held_for,
            expires_in,
        }
    }

    /// Whether it is this owner.
    pub fn is(&self, owner: &Owner) -> bool {
        matches!(&self.who, HolderIdentity::Owner(holder) if holder == owner)
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderIdentity {
    /// A client of this protocol.
    Owner(Owner),
    /// Another program that uses the same key.
    Foreign {
        /// The Redis type under the name (`string`, `hash`, `zset`, ...).
        kind: String,
        /// The value of a foreign string, which is its owner's token, or the first [`VALUE_SHOWN`](crate::VALUE_SHOWN) bytes
        /// of it; empty for other types.
        value: Vec<u8>,
    },
}

/// One lock as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Who holds it.
    pub holder: Option<HolderView>,
    /// Who waits, first in line first.
    pub queue: Vec<WaiterView>,
}

impl Snapshot {
    /// A lock, for those who show or play one.
    pub const fn new(holder: Option<HolderView>, queue: Vec<WaiterView>) -> Self {
        Self { holder, queue }
    }

    // Hidden are the rules of stores.

    /// Whether `owner` holds the lock, by the grant of `fence` (C8).
    #[doc(hidden)]
    pub fn is_held_under(&self, owner: &Owner, fence: Fence) -> bool {
        let mut holder = self.holder.iter();
        holder.any(|holder| holder.is(owner) && holder.fence == Some(fence))
    }
}

/// A waiter as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterView {
    /// Who it is.
    pub owner: Owner,
    /// What it asks for.
    pub mode: Mode,
    /// The lease it wants.
    pub ttl: Ttl,
    /// How long it still counts as alive if nothing more is heard of it.
    pub seen_for: Duration,
}

impl WaiterView {
    /// A waiter, for those who show or play one.
    pub const fn new(owner: Owner, mode: Mode, ttl: Ttl, seen_for: Duration) -> Self {
        Self {
            owner,
            mode,
            ttl,
            seen_for,
        }
    }

    pub(crate) fn of(waiter: &Waiter, now_ms: u64) -> Self {
        Self {
            owner: waiter.owner.clone(),
            mode: waiter.mode,
            ttl: waiter.ttl,
            seen_for: Duration::from_millis(waiter.seen_until_ms.saturating_sub(now_ms)),
        }
    }
}

/// A hint to a waiter that the store has given it the lock. Never needed for safety: a waiter also polls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// Whom the lock was given to, for the claim window.
    pub owner: Owner,
    /// The fence of the grant.
    pub fence: Option<Fence>,
    /// How many were drawn with it.
    pub block: Block,
    /// When it was given, in microseconds on the store's expiry clock.
    pub at_us: u64,
    /// How many wait for the lock now.
    pub queued: u32,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to the one who asked.
    pub reply: Reply,
    /// The waiters to tell. For a mutex one, or two when the first gave up the moment it was granted.
    pub wakes: Vec<Wake>,
    /// The holder to tell that another client waits: said for the first in line each time it asks, so that a client that
    /// keeps the lock for its own tasks learns to give it up. A hint like a wake.
    pub wanted: Option<Owner>,
    /// The waiter to tell that it is the first in line now, so that it asks at once. Either those before it left, and a foreign
    /// program holds the lock, which will wake nobody. Or the one before it was just granted the lock for less than a second,
    /// and this one would not have asked soon after. A hint like a wake; only to one that listens.
    pub first: Option<Owner>,
}
