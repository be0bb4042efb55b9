//! Locks on the majority of several independent stores, the *nodes*.
//!
//! The rules of votes are in `leasehold_core::quorum`: a node votes on the fences that a client proposes, and a majority
//! of votes is a lock. This folder sends the proposals, counts the votes by core's `Round`, and gives back the votes that
//! it does not use. It knows nothing of Redis: a node is any store that votes.
//!
//! | module | what it is for |
//! |---|---|
//! | [`store`] | the interface of a store; passes events to the machine, and carries out its effects |
//! | [`machine`] | the state machine of a client; it does no I/O |
//! | [`acquire`] | an acquisition: rounds of proposals until there is a majority, or none can be had |
//! | [`settle`] | renewals and releases at all nodes; repair of a lease that lacks votes |
//! | [`effects`] | input and output of the machine |
//! | [`owners`] | the votes that each owner may have, until they are given back or have expired |
//! | [`attempt`] | the votes of one acquisition so far, and the error if no majority can be had |
//! | [`judge`] | the answers of the nodes to a step that went to all, and the answer of the quorum |
//! | [`lead`] | which node queues the waiters of a name; leads that alone refuse a lock; what is known about waiters |
//!
//! # Invariants
//!
//! - **V1** A vote that was asked for is held, given back, or is being given back until its TTL has passed. A release that keeps the lock is
//!   not repeated, since another process may have renewed it by then: where it did not arrive, the hold ends by itself.
//! - **V2** At each node a release follows the proposals of its owner at once, on the same connection, so that it frees their votes. A
//!   release that was carried out before one of them is sent again after its answer.
//! - **V3** A client without the vote of the lead keeps no other vote of a busy lock. If a majority names its holder, it keeps none.
//! - **V4** The loss of the lead delays its waiters; it never decides who holds. A node that gives no vote leads no name: a writer that
//!   waited in no queue would be passed by reader after reader.
//! - **V5** No newcomer takes the lock before the lead has answered it, or is late, unless the lead said within 3 s that nobody waits. If
//!   the lead alone holds for another, the newcomer leaves it the votes for 40 ms.
//! - **V6** A node is late if it takes 25 ms and twice its usual time longer than a majority. It then counts as one that fails.
//! - **V7** A lease that renews itself is not lost while a majority is in reach. A node is in reach if for a TTL it was connected, had a
//!   vote to give, and held for no other owner.
//! - **V8** A client that heard of waiters within 3 s, and knows of a majority that gives votes, asks the lead first. It asks the other
//!   nodes if the lead does not refuse it, or takes 25 ms and twice its usual time, and at least every 3 s. Else tries without a pause
//!   would take the votes that the first waiter needs, again and again.

mod acquire;
mod attempt;
mod effects;
mod judge;
mod lead;
mod machine;
mod owners;
mod settle;
mod store;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::effects::{EventTime, Purpose, QuorumEffect, QuorumEvent, QuorumTimer, relay};
#[cfg(test)]
pub(crate) use self::machine::QuorumMachine;
pub(super) use self::store::QuorumStore;

/// The outcome of marking the servers of a quorum.
#[cfg(feature = "redis")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuorumInit {
    /// The servers were marked as those of a new quorum, and vote at once.
    New,
    /// They were marked before, for these terms. Nothing was changed.
    Already {
        /// How long a server still gives no vote, if it was marked after a loss of its data; from the next request on, if it was started
        /// again.
        votes_in: std::time::Duration,
    },
    /// They were marked anew, and vote after this time.
    Again {
        /// How long no lock is granted.
        votes_in: std::time::Duration,
    },
}
