//! The facts about a store that decide whether it is fit for locks. The library gathers them and judges none: the command
//! `leasehold doctor` has the rules.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::doctor::{Examination, Facts};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let url = "memory:"; // in your program: redis://127.0.0.1/
//! let scope = Examination::new(Duration::from_secs(30));
//! let examined = leasehold::Client::builder().examine(url, &scope).await?;
//! if let Facts::Server(server) = &examined.facts {
//!     println!("{}: {:?}", examined.store, server.engine());
//! }
//! # Ok(()) }
//! ```

mod server;

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::quorum::quarantine;

use crate::error::StoreError;

pub use self::server::{Fields, IndexedKey, Part, Probe, ServerFacts, Transport, Without};

/// The scope of an examination.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Examination {
    /// The TTL that the locks will have: most limits are a share of it.
    pub ttl: Duration,
    /// Leaves out the measurements that take seconds: evictions under way, jumps of a clock, stalls of this host.
    pub quick: bool,
    /// Sends one `INFO` only, and writes nothing. All other facts are unknown then.
    pub glance: bool,
    /// The names of the locks, as a pattern of the server's, for [`ServerFacts::acl`]; the client's namespace and template go around it.
    /// Default: `*`, all names, and so all keys where neither is set.
    pub keys: String,
}

impl Examination {
    /// Everything, for locks with this TTL.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            quick: false,
            glance: false,
            keys: "*".into(),
        }
    }

    /// Sets whether to leave out the measurements that take seconds.
    #[must_use]
    pub fn quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// Restricts the examination to one `INFO`, as for a check at each start of a program.
    #[must_use]
    pub fn glance(self) -> Self {
        Self {
            quick: true,
            glance: true,
            ..self
        }
    }

    /// The pattern of the locks' names.
    #[must_use]
    pub fn keys(self, pattern: impl Into<String>) -> Self {
        Self {
            keys: pattern.into(),
            ..self
        }
    }
}

/// A store, and its facts.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examined {
    /// The store's address, without user and password.
    pub store: String,
    /// The facts, by kind of store.
    pub facts: Facts,
}

impl Examined {
    pub(crate) fn new(store: impl Into<String>, facts: Facts) -> Self {
        let store = store.into();
        Self { store, facts }
    }
}

/// The facts about a store, by its kind. A new kind of store needs rules of its own, so the compiler asks for them.
#[derive(Debug)]
pub enum Facts {
    /// A Redis, a Valkey, or a server that speaks their protocol.
    Server(Box<ServerFacts>),
    /// A quorum of servers.
    Quorum(Box<QuorumFacts>),
    /// A file of `local:`.
    File(FileFacts),
    /// The memory of one client.
    Memory,
}

/// The facts about a file of locks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileFacts {
    /// The file.
    pub path: PathBuf,
    /// The version of SQLite that reads it.
    pub sqlite: String,
    /// The number of locks in it.
    pub locks: usize,
    /// True if this user may write the file and its directory, and there is space.
    pub is_writable: bool,
    /// Why the file could only be read, if it was not opened for writing.
    pub refusal: Option<String>,
    /// The kind of its file system, if it is known to be one that hosts do not share.
    pub file_system: Option<String>,
}

impl FileFacts {
    /// Facts for a test of rules.
    pub fn new(path: impl Into<PathBuf>, sqlite: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            sqlite: sqlite.into(),
            locks: 0,
            is_writable: true,
            refusal: None,
            file_system: None,
        }
    }
}

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
