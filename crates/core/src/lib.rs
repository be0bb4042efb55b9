//! The rules of Leasehold as pure code: who holds a lock, who waits, and which fence a grant draws.
//!
//! This crate does no I/O, reads no clock, draws no random number and depends on no other crate (the features `serde` and
//! `rusqlite` only add conversions). Time arrives as a [`Now`], random bits arrive inside an [`Owner`], and knowledge about
//! crashed clients arrives as a [`Presence`]. Therefore one function, [`LockState::apply`], decides for the embedded stores, is
//! the oracle for the Redis scripts, and is the next-state function of a model checker. [`World::apply`] calls it for a lock by name;
//! what a node of a quorum is proposed is decided by the rules of [`quorum`].
//!
//! ```
//! use leasehold_core::{Block, ClientId, LockName, Mode, UnknownPresence, Now, Owner, Reply, Step, Ttl, World};
//! use std::time::Duration;
//!
//! let mut world = World::default();
//! let name = LockName::new("orders:42")?;
//! let owner = Owner::new(7, ClientId::new(1), "web-3", 4121, "nightly")?;
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//!
//! let step = Step::Acquire { owner: owner.clone(), mode: Mode::Exclusive, ttl, block: Block::ONE, wait: None };
//! let outcome = world.apply(Now::at_micros(1_000_000), &name, &step, &UnknownPresence);
//! assert!(matches!(outcome.reply, Reply::Held(_)));
//! # Ok::<(), leasehold_core::Invalid>(())
//! ```
//!
//! # Invariants
//!
//! These hold after every step; the tests and the comments cite them by number.
//!
//! - **C1** The unexpired holders admit each other: one exclusive holder alone, only shared holders, or only holders of slots. A
//!   request for one of N slots is granted only if fewer than N hold.
//! - **C2** Fences strictly rise from phase to phase, also across names, and the counter is never below a fence that was drawn. An
//!   exclusive grant, a grant of a slot, and the grants of shared holders that hold together are a phase. All grants of a phase have
//!   its fence.
//!   The exception: the counter is lost while the wall clock has not yet passed the last fence (the clock went back, or more
//!   than a million fences were drawn in a second).
//! - **C3** A hold ends only by its owner's release, by expiry, by the end of its process, or by a break that names its fence;
//!   outside of the rules also by loss of the store's data or by a foreign client's write. No step of another client changes
//!   it.
//! - **C4** Waiters are granted in the order in which they joined, whatever their modes. A waiter is passed over only if it is
//!   dead or cannot be told. One that cannot be told keeps its place for [`UNHEARD_GRACE`], and longer if it asks again; this
//!   applies to the first [`PASSED_OVER`] of them.
//! - **C5** Every step may be repeated. A repeat changes only deadlines, draws no fence, and wakes no waiter. A repeated
//!   acquire, extend or inspect gets the same answer. A repeated release or break gets *not held*, or again *released* while
//!   the lock is kept. The exception: a step that granted to [`GRANTS_MOST`] waiters leaves those behind them to the next step,
//!   which may be its repeat.
//! - **C6** After a step other than inspect, the first waiter is not admitted beside the holders. Those that cannot be told do not
//!   count, each for at most [`UNHEARD_GRACE`]. The exception is that of C5.
//! - **C7** A client that hands a lock on inside its process gives each lease its own fence, higher than all before it and
//!   lower than any that the store issues later. While other clients are known to wait, it hands on at most [`HAND_OVERS`]
//!   times and for at most [`HAND_OVER_FOR`]; so it does with readers that join others.
//! - **C8** An extension or a release that names a fence is answered *held* or *released* only if its owner holds by a grant
//!   of that fence. Otherwise (for example after a rollback of the store) the extension changes nothing, and the release frees
//!   the hold or the place that the owner has.
//! - **C9** The slots of unexpired holders have different numbers, each at most the number of slots of the grant. A grant takes
//!   the smallest number that is free.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod cache;
mod fence;
mod hand_over;
mod invalid;
mod lock;
mod name;
pub mod once;
mod owner;
pub mod quorum;
#[cfg(feature = "serde")]
mod shown;
mod state;
mod step;
mod time;
pub mod timestamp;
mod world;

pub use fence::{Acceptable, Block, Counter, Fence, Fences};
pub use hand_over::{HAND_OVER_FOR, HAND_OVERS, NoHandOver, Session, block_for};
pub use invalid::Invalid;
pub use lock::{
    CLAIM_WINDOW, GRANTS_MOST, LockState, PASSED_OVER, Presence, UNHEARD_GRACE, UnknownPresence,
    WAITER_GRACE, poll_after,
};
pub use name::{
    BEFORE_FIRING, KeyTemplate, LockName, Namespace, Naming, RESERVED_SUFFIXES, SLOTS, slot,
};
pub use owner::{ClientId, Label, Owner, VALUE_SHOWN};
pub use state::{Foreign, Holder, Mode, Slots, Waiter};
pub use step::{
    Busy, Held, HolderIdentity, HolderView, Outcome, Reply, Snapshot, Step, Wait, WaiterView, Wake,
};
pub use time::{Now, Ttl};
pub use world::World;

/// The page at the registry has a program, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RegistryPage;
