//! A lock on the majority of several independent stores, the *nodes*, with fences that rise over all of them.
//!
//! One node draws a fence from its own counter. Several nodes count apart, so here the client proposes the fence. A node accepts a
//! proposal above its counter and not far ahead of its clock. A majority that stores exactly this number is the *certificate*. Two
//! majorities share a node, and the counter of that node orders their fences.
//!
//! A node is a store with a [`NodeMemory`](crate::World::node): it votes on proposals, and keeps out after a loss of memory. [`Round`]
//! is the client's part: it counts the votes for a proposal. [`Proposer`] chooses the next number. All are pure, as the rest of this
//! crate.
//!
//! Readers are voted for in the same way: a majority that stores the number of one reader is its certificate. A node votes for readers
//! beside each other, and for a writer alone. So the theorems hold for each two leases of which one is a writer's, but for the fences:
//! QR2 and QR3 speak of writers only.
//!
//! # Theorems
//!
//! They hold if all clients count by equal terms, no lease is longer than the longest TTL, and the rates of all clocks differ by at most
//! 1 %. No node's clock is set forward, nor back while the node loses its memory. A node that has other data than before has another name.
//! They do not need clocks that agree.
//!
//! - **QR1** The validity of two leases of a name never overlaps. *Two majorities share a node. There the second hold began after the
//!   deadline or the release of the first (C1). Each hold lasts for a TTL from a moment after its request was sent.*
//! - **QR2** Two leases of a name share no fence. On each node that certified both, the earlier hold has the lower fences. *The
//!   counter of that node passed the first lease's fences while that lease was held, and does not fall.*
//! - **QR3** If a lease was handed out before the first request for another one was sent, its fences are lower. *On a common node the
//!   first hold began before the second.*
//! - **QR4** QR1 to QR3 survive that a node loses its data, starts with older data, or gets the data of another node. *Its mark then is
//!   missing, or names another start or server. So it grants and extends nothing for a [`quarantine`] on its own clock (QR8). No lease
//!   counts on a hold there for longer: each was last extended before, and each proposal of before has run out. It accepts no fence below
//!   the end of the quarantine, which is above each fence that it had accepted. A hold that came with other data only refuses others
//!   until then. Later it is one vote for its owner, as any hold: the node names one holder at a time, and raises it above the floor.*
//!
//! # Invariants
//!
//! - **QR5** A certificate counts only replies to the current proposal.
//! - **QR6** Without a certificate there is no lease.
//! - **QR7** A raise of a fence is an extension: it never takes a lock. A release by the fence of the grant frees the hold that was raised.
//! - **QR8** A node that may have forgotten its holds or its fences grants and extends nothing until its quarantine ends. The mark is made
//!   under the name of the server's start. Under another name, the store counts all data as lost: it drops the counters, and grants the
//!   lock to no waiter that came with them.
//! - **QR9** A round that was refused is over: the client gives back its votes, so that none of them may count later.
//! - **QR10** A reader's vote has a number of its own, which is above each exclusive fence that the node has accepted, and below each later
//!   one. It is no fence: of readers that hold together, a later one may have a lower number, or the same. A late proposal of a reader does not join the readers after
//!   a writer.

mod node;
mod round;

pub use self::node::{AHEAD, BUCKETS, Mark, NodeMemory, bucket, quarantine};
pub(crate) use self::node::{raised, vote};
pub use self::round::{Proposer, Refusal, Round, Verdict};
pub use crate::step::{NoVote, Proposal, QuorumTerms};
