//! Locks on the majority of several independent stores, the *nodes*.
//!
//! The rules of votes are in `leasehold_core::quorum`: a node votes on the fences that a client proposes, and a majority
//! of votes is a lock. This folder sends the proposals, counts the votes by core's `Round`, and gives back the votes that
//! it does not use. It knows nothing of Redis: a node is any store that votes.
//!
//! | module | what it is for |
//! |---|---|
//! | [`store`] | the interface of a store |
//! | [`driver`] | passes events to the machine, and carries out its effects |
//! | [`machine`] | the state machine of a client; it does no I/O |
//! | [`acquire`] | an acquisition: rounds of proposals until there is a majority, or none can be had |
//! | [`settle`] | renewals and releases at all nodes; repair of a lease that lacks votes |
//! | [`effects`] | input and output of the machine |
//! | [`refusal`] | the error where no majority can be had |
//! | `look` | the view of each node, for an operator |
//! | [`gather`] | the answers of the nodes to a step that went to all |
//! | [`judge`] | the answer of the quorum to a renewal, a release, a break or a look |
//! | [`owners`] | the votes that each owner may have, until they are given back or have expired |
//! | [`attempt`] | the votes of one acquisition so far |
//! | `init` | the outcome of marking the nodes |
//! | [`lead`], [`stuck`] | which node queues the waiters of a name; leads that alone refuse a lock |
//! | [`wanted`] | locks for which other clients wait |
//!
//! # Invariants
//!
//! - **V1** A vote that was asked for is held, given back, or is being given back until its TTL has passed.
//! - **V2** At each node a release follows the answers to the proposals of its owner, so that it frees their votes. The next
//!   owner of this client asks after it.
//! - **V3** A client without the vote of the lead keeps no other vote of a busy lock.
//! - **V4** The loss of the lead delays its waiters; it never decides who holds.
//! - **V5** While others wait, no newcomer takes the lock before the lead has answered it.

mod acquire;
mod attempt;
mod driver;
mod effects;
mod gather;
#[cfg(feature = "redis")]
mod init;
mod judge;
mod lead;
mod look;
mod machine;
mod owners;
mod refusal;
mod settle;
mod store;
mod stuck;
#[cfg(test)]
mod tests;
mod wanted;

#[cfg(test)]
pub(crate) use self::effects::{EventTime, Purpose, QuorumEffect, QuorumEvent, QuorumTimer, relay};
#[cfg(feature = "redis")]
pub use self::init::QuorumInit;
#[cfg(test)]
pub(crate) use self::machine::QuorumMachine;
pub(in crate::store) use self::store::QuorumStore;
