//! The facts about a quorum: those of each node, and what a node says of the quorum.

use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::quorum::quarantine;

use super::server::ServerFacts;
use crate::error::StoreError;

/// The facts about a quorum.
#[derive(Debug)]
#[non_exhaustive]
pub struct QuorumFacts {
    /// The longest TTL that this client counts with.
    pub longest_ttl: Duration,
    /// How long a server keeps out that was started again, or has lost its data.
    pub quarantine: Duration,
    /// This client was told that each node writes a change to its disk before it answers.
    pub durable: bool,
    /// The nodes, in the order of the URL.
    pub nodes: Vec<NodeFacts>,
}

impl QuorumFacts {
    /// Facts for a test of rules.
    pub fn new(longest_ttl: Ttl, durable: bool, nodes: Vec<NodeFacts>) -> Self {
        Self {
            longest_ttl: longest_ttl.get(),
            quarantine: quarantine(longest_ttl),
            durable,
            nodes,
        }
    }
}

/// The facts about a node.
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeFacts {
    /// Its address, without user and password.
    pub server: String,
    /// The facts about the server, or why there are none.
    pub facts: Result<Box<ServerFacts>, StoreError>,
    /// Its mark; `None` if it has none, or did not tell.
    pub mark: Option<MarkFacts>,
    /// Its clock.
    pub clock: Option<ClockFacts>,
}

impl NodeFacts {
    /// Facts for a test of rules.
    pub fn new(server: impl Into<String>, facts: Result<Box<ServerFacts>, StoreError>) -> Self {
        Self {
            server: server.into(),
            facts,
            mark: None,
            clock: None,
        }
    }
}

/// The mark of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkFacts {
    /// How many nodes the quorum has.
    pub nodes: u8,
    /// The longest TTL of its leases.
    pub longest_ttl: Duration,
    /// How long the node still gives no vote to names that it has no counter for; zero if it votes.
    pub votes_in: Duration,
}

/// The clock of a node, beside the clock of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockFacts {
    /// How far it is ahead, in microseconds; negative if it is behind.
    pub ahead_us: i64,
    /// How exact that is.
    pub error: Duration,
}
