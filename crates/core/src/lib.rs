//! What a lock *is*: the words and the rules of Leasehold as pure code.
//!
//! Everything that decides who holds a lock is here and nowhere else. The crate must never do I/O, read a clock, draw a
//! random number or depend on another crate (the features `serde` and `rusqlite` only say how others write a fence): time arrives as a [`Now`], random bits arrive inside an [`Owner`], and what
//! the world knows about crashed clients arrives as a [`Presence`]. That is what lets one function,
//! [`World::apply`], be four things at once: the embedded stores, the oracle that the Redis scripts are compared
//! with, the next-state function of a model checker, and the text behind `docs/reference/protocol.md`.
//!
//! ```
//! use leasehold_core::{Block, ClientId, LockName, Mode, Nobody, Now, Owner, Reply, Step, Ttl, World};
//! use std::time::Duration;
//!
//! let mut world = World::default();
//! let name = LockName::new("orders:42")?;
//! let owner = Owner::new(7, ClientId::new(1), "web-3", 4121, "nightly")?;
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//!
//! let step = Step::Acquire { owner: owner.clone(), mode: Mode::Exclusive, ttl, block: Block::ONE, wait: None };
//! let outcome = world.apply(Now::at_micros(1_000_000), &name, &step, &Nobody);
//! assert!(matches!(outcome.reply, Reply::Held(_)));
//! # Ok::<(), leasehold_core::Invalid>(())
//! ```
//!
//! # Invariants
//!
//! The rules keep these after every step; the tests and the comments below cite them by number.
//!
//! - **C1** At most one unexpired exclusive holder.
//! - **C2** Fences strictly rise from grant to grant, also across names, and the counter is never below one that was drawn,
//!   unless the counter is lost while the wall clock has not yet passed the last one drawn (it went back, or more than a
//!   million were drawn in a second).
//! - **C3** A hold ends only by its owner's release, by expiry, by its process being gone, or by a break that names
//!   its fence; outside of the rules also by loss of the store's data or a foreign client's write. No other client's
//!   step changes it.
//! - **C4** Waiters are granted in the order they joined; only a waiter that is not alive, or cannot be told, is passed over.
//!   One that cannot be told keeps its place for [`UNHEARD_GRACE`], and longer if it asks again; of many, the first
//!   [`PASSED_OVER`].
//! - **C5** Every step may be repeated: a repeat changes nothing but deadlines, draws no fence, and wakes nobody. Acquire, extend and inspect answer the same again; a release or break that was done answers *not held*, or *released* again while the
//!   lock is kept.
//! - **C6** After a step other than inspect, a lock that is free has no waiter but those that could not be told, each for at
//!   most [`UNHEARD_GRACE`].
//! - **C7** A client that hands a lock on inside its process gives each lease a fence of its own, above all before it and
//!   below any that the store issues later; and while other clients are known to wait, it does so at most [`HAND_OVERS`]
//!   times and for at most [`HAND_OVER_FOR`].
//! - **C8** An extension or a release that names a fence is answered *held* or *released* only if its owner holds by the grant
//!   of that fence. Otherwise, as after the store was rolled back, the extension changes
//!   nothing, and the release frees whatever the owner has.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod apply;
pub mod cache;
mod fence;
mod fence_forms;
mod foreign;
mod hand_over;
mod invalid;
mod kind;
mod line;
mod lock;
mod mode;
#[cfg(all(leasehold_mutations, debug_assertions))]
mod mutation;
mod name;
mod naming;
mod owner;
mod poll;
mod presence;
#[cfg(feature = "serde")]
mod shown;
mod state;
mod step;
mod time;
pub mod timestamp;
mod turn;
mod world;

pub use fence::{Block, Counter, Fence, Fences};
pub use foreign::{Foreign, VALUE_SHOWN};
pub use hand_over::{HAND_OVER_FOR, HAND_OVERS, NoHandOver, Session, block_for};
pub use invalid::Invalid;
pub use line::{CLAIM_WINDOW, PASSED_OVER, UNHEARD_GRACE, WAITER_GRACE};
pub use mode::Mode;
#[cfg(all(leasehold_mutations, debug_assertions))]
pub use mutation::Mutation;
pub use name::{LockName, RESERVED_SUFFIXES};
pub use naming::{KeyTemplate, Namespace, Naming};
pub use owner::{ClientId, Label, Owner};
pub use poll::poll_after;
pub use presence::{Presence, UnknownPresence};
pub use state::{Holder, LockState, Waiter};
pub use step::{
    Busy, Held, HolderIdentity, HolderView, Outcome, Reply, Snapshot, Step, Wait, WaiterView, Wake,
};
pub use time::{Now, Ttl};
pub use world::World;
