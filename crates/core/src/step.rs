//! The steps that a client can ask of a lock, and their replies. Neither carries a client's clock.

use std::time::Duration;

use crate::fence::{Acceptable, Block, Fence, Fences};
use crate::owner::Owner;
#[cfg(feature = "serde")]
use crate::shown;
use crate::state::{Mode, Waiter};
use crate::time::Ttl;

/// One atomic step of a store: one round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take the lock, or confirm that this owner holds it already (so that a retry after a lost reply is safe).
    Acquire {
        /// The owner that asks; fresh for each acquisition, and repeated by each retry of it.
        owner: Owner,
        /// The mode of the request; each retry has the same.
        mode: Mode,
        /// The lease wanted.
        ttl: Ttl,
        /// How many fences to draw with the grant: with more than one, the client can hand the lock on inside its process.
        block: Block,
        /// Join or refresh the queue when the lock is busy; `None` asks once and does not wait.
        wait: Option<Wait>,
    },
    /// Vote for fences that a client of a quorum proposes: take the lock with exactly these, or raise those of its hold.
    Propose(Proposal),
    /// Give the lease a new deadline if it is still held. An expired lock is not taken again.
    Extend {
        /// The holder.
        owner: Owner,
        /// The lease from now on.
        ttl: Ttl,
        /// Any fence of the grant by which the owner believes to hold. Without that hold the reply is *not held* (C8). `None` if
        /// the owner knows no fence, or compares that of the reply itself, as holders do that are not alone.
        fence: Option<Fence>,
    },
    /// Free the lock, or leave the queue.
    Release {
        /// The holder or waiter.
        owner: Owner,
        /// Free the lock only after this long (at-least-hold).
        keep: Option<Ttl>,
        /// Any fence of the grant by which the owner believes to hold, as in [`Step::Extend`]. The owner gives up its hold or its
        /// place in any case.
        fence: Option<Fence>,
    },
    /// Give back a vote: free the lock if the owner holds it by the grant of this fence. Unlike a release, it frees no later vote for
    /// this owner and keeps the owner's place in the queue.
    GiveBack {
        /// The holder.
        owner: Owner,
        /// A fence of the vote.
        fence: Fence,
    },
    /// Free the lock of a holder that cannot do so itself, by an operator who has seen its fence.
    Break {
        /// Any fence of that holder: that of its grant, which others see, or one that it has handed out since.
        fence: Fence,
    },
    /// Look, without changing anything.
    Inspect,
}

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Whether its client is subscribed to wakes, so that a store may find it unreachable. A client that only polls says `false`.
    pub listening: bool,
}

/// The terms of a quorum. All of its clients must agree on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuorumTerms {
    /// How many nodes there are.
    pub nodes: u8,
    /// The longest TTL of a lease.
    pub longest_ttl: Ttl,
}

/// A proposal to a node of a quorum: a client's request to take a lock with fences of its own choice, or to raise the fences of its hold.
/// For a reader it has a single number, which tells this vote from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The owner that asks; fresh for each acquisition.
    pub owner: Owner,
    /// It asks as a reader, beside others, and not alone.
    pub is_shared: bool,
    /// The lease wanted; at most the longest TTL of the quorum.
    pub ttl: Ttl,
    /// The fences: exactly these, or no hold.
    pub fences: Fences,
    /// The terms of the client's quorum.
    pub terms: QuorumTerms,
    /// Join or refresh the queue of this node when the lock is busy. A client waits at one node only, the lead.
    pub wait: Option<Wait>,
}

impl Proposal {
    /// The mode in which the owner wants the lock.
    pub fn mode(&self) -> Mode {
        if self.is_shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        }
    }
}

/// The reply to a step. It is small, since each one goes through many hands: views of holders are in boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The owner holds the lock, for the TTL it asked for.
    Held(Held),
    /// Another owner or program holds the lock.
    Busy(Box<Busy>),
    /// The proposal got no vote. Its owner holds the lock at most as it did before.
    NoVote(NoVote),
    /// The lock was freed, or the waiter has left the queue.
    Released,
    /// The owner (or, for a break, the fence) does not hold the lock. Names the holder, if any.
    NotHeld(Option<Box<HolderView>>),
    /// The answer of [`Step::Inspect`].
    Seen(Box<Snapshot>),
}

/// A lease, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The first fence of the owner's grant. A retry after a lost reply gets it again.
    pub fence: Option<Fence>,
    /// The number of the owner's slot, for a mode with slots; the same after a retry.
    pub slot: Option<u16>,
    /// How many fences were drawn with the grant: the first and those that follow it belong to the owner.
    pub block: Block,
    /// How many waiters the lock has now.
    pub queued: u32,
}

/// A refusal: the lock is held now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The holder; if there are several, the one whose end the request waits for.
    pub holder: HolderView,
    /// How many hold the lock besides that one.
    pub others: u32,
    /// How many waiters are before this one, including those that cannot be told now. For a request that does not wait, the
    /// length of the queue.
    pub ahead: u32,
    /// How long to wait for a wake before asking again.
    pub poll_after: Duration,
    /// The time of the reply, in microseconds on the store's expiry clock. Only its difference to [`Wake::at_us`] has a meaning.
    pub at_us: u64,
}

/// The reason why a proposal got no vote, or why a node refused another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVote {
    /// The owner holds the lock with lower fences than it proposed, and no longer than before: the proposal is outside of these bounds.
    NotRaised(Acceptable),
    /// The lock is free, or held by readers as the owner is one, and the proposal is outside of these bounds.
    Behind(Acceptable),
    /// The node may have forgotten holds and fences. It gives no vote for this long.
    Quarantined(Duration),
    /// The node belongs to a quorum of other terms. It refuses each step.
    OtherTerms(QuorumTerms),
    /// The store is no node of a quorum.
    NotANode,
}

/// A holder as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HolderView {
    /// Its identity.
    pub who: HolderIdentity,
    /// How it holds the lock; a foreign program holds it alone.
    pub mode: Mode,
    /// The number of its slot, if its mode has slots.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub slot: Option<u16>,
    /// A fence of the holder, if it has one. A store knows the fence of the grant. If the holder's process has handed the lock on
    /// from task to task, the current lease has a higher one. Either of them breaks the lock. Readers that hold together have one.
    pub fence: Option<Fence>,
    /// How long it has held the lock, counted by the store from the grant; `None` when the store cannot know, as of a reader.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "held_for_ms", serialize_with = "shown::some_ms")
    )]
    pub held_for: Option<Duration>,
    /// How long until the lease ends unless extended; `None` means never, which only a foreign client can cause.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "expires_in_ms", serialize_with = "shown::some_ms")
    )]
    pub expires_in: Option<Duration>,
}

impl HolderView {
    /// Makes a view of a holder that is alone, for tests and tools.
    pub const fn new(
        who: HolderIdentity,
        fence: Option<Fence>,
        held_for: Option<Duration>,
        expires_in: Option<Duration>,
    ) -> Self {
        Self {
            who,
            mode: Mode::Exclusive,
            slot: None,
            fence,
            held_for,
            expires_in,
        }
    }

    /// The same holder in this mode, and in the slot of this number.
    #[must_use]
    pub fn in_mode(self, mode: Mode, slot: Option<u16>) -> Self {
        Self { mode, slot, ..self }
    }

    /// Whether `owner` is the holder.
    pub fn is(&self, owner: &Owner) -> bool {
        matches!(&self.who, HolderIdentity::Owner(holder) if holder == owner)
    }
}

/// The identity of a holder: a client of this protocol, or another program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind"))]
pub enum HolderIdentity {
    /// A client of this protocol.
    #[cfg_attr(feature = "serde", serde(rename = "leasehold"))]
    Owner(Owner),
    /// Another program that uses the same key.
    #[cfg_attr(feature = "serde", serde(rename = "foreign"))]
    Foreign {
        /// The Redis type under the name (`string`, `hash`, `zset`, ...).
        #[cfg_attr(feature = "serde", serde(rename = "type"))]
        kind: String,
        /// The value of a foreign string, which is its owner's token: the first [`VALUE_SHOWN`](crate::VALUE_SHOWN) bytes at most.
        /// Empty for other types.
        #[cfg_attr(feature = "serde", serde(skip))]
        value: Vec<u8>,
    },
}

/// One lock as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The holder, if any; of several, the one whose lease ends last.
    pub holder: Option<HolderView>,
    /// The other holders of a lock that several hold, the last to end first; at most [`SHOWN`](Self::SHOWN) less one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub others: Vec<HolderView>,
    /// How many further holders there are.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub omitted: u32,
    /// The waiters, first in line first.
    pub queue: Vec<WaiterView>,
}

impl Snapshot {
    /// The most holders that are shown.
    pub const SHOWN: usize = 100;

    /// Makes a view of a lock with at most one holder, for tests and tools.
    pub const fn new(holder: Option<HolderView>, queue: Vec<WaiterView>) -> Self {
        Self {
            holder,
            others: Vec::new(),
            omitted: 0,
            queue,
        }
    }

    /// The same lock with these holders besides the first, and so many more.
    #[must_use]
    pub fn with_others(self, others: Vec<HolderView>, omitted: u32) -> Self {
        Self {
            others,
            omitted,
            ..self
        }
    }

    /// All holders that are shown, the last to end first.
    pub fn holders(&self) -> impl Iterator<Item = &HolderView> {
        self.holder.iter().chain(&self.others)
    }

    // Items with `doc(hidden)` are for stores.

    /// Whether `owner` holds the lock, by the grant of `fence` (C8).
    #[doc(hidden)]
    pub fn is_held_under(&self, owner: &Owner, fence: Fence) -> bool {
        self.holders()
            .any(|holder| holder.is(owner) && holder.fence == Some(fence))
    }
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A waiter as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaiterView {
    /// Its identity.
    pub owner: Owner,
    /// The mode that it asks for.
    pub mode: Mode,
    /// The lease it wants.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "ttl_ms", serialize_with = "shown::ttl_ms")
    )]
    pub ttl: Ttl,
    /// How long it still counts as alive if it does not ask again.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "seen_for_ms", serialize_with = "shown::ms")
    )]
    pub seen_for: Duration,
}

impl WaiterView {
    /// Makes a view of a waiter, for tests and tools.
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

/// A hint to a waiter that the store has granted it the lock. Safety never depends on it: a waiter also polls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// The waiter that was granted the lock, for the claim window.
    pub owner: Owner,
    /// The fence of the grant.
    pub fence: Option<Fence>,
    /// The number of its slot, for a mode with slots.
    pub slot: Option<u16>,
    /// How many fences were drawn with it.
    pub block: Block,
    /// The time of the grant, in microseconds on the store's expiry clock.
    pub at_us: u64,
    /// How many waiters the lock has now.
    pub queued: u32,
}

impl Wake {
    /// Takes the fence away, so that the waiter claims the grant: the store that sent this wake may not know best any more.
    #[must_use]
    pub fn without_fence(self) -> Self {
        Self {
            fence: None,
            slot: None,
            block: Block::ONE,
            ..self
        }
    }
}

/// The effects of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The reply to the caller.
    pub reply: Reply,
    /// The waiters to wake. For a mutex at most one, or two if the first left at the moment of its grant; else at most
    /// [`GRANTS_MOST`](crate::GRANTS_MOST) for each time that the step advances.
    pub wakes: Vec<Wake>,
    /// The holders to notify that another client waits: of the 16 that end last, one for each client. The store says so each time the
    /// first in line asks, so that a client that hands the lock on among its own tasks gives it back. A hint, like a wake.
    pub wanted: Vec<Owner>,
    /// The waiter to notify that it is the first in line now, so that it polls at once. One cause: the waiters before it left
    /// while a foreign program holds the lock, which sends no wake. The other: the waiter before it was granted the lock for
    /// less than a second, and this one would not have polled soon after. A hint, like a wake; only for subscribed clients.
    pub first: Option<Owner>,
}
