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

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::quorum::quarantine;

pub use crate::error::NotAMark;
use crate::error::{StoreError, StoreErrorKind};

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
    /// Writes nothing, not even a scratch lock, so what this user may do stays unknown.
    pub read_only: bool,
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
            read_only: false,
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

    /// Sets that nothing is written, as for a user who only looks.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            read_only: true,
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
    /// A cluster of Redis or Valkey servers.
    Cluster(Box<ClusterFacts>),
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

/// The facts about a cluster.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClusterFacts {
    /// The TTL that the locks will have.
    pub ttl: Duration,
    /// The nodes: first those that have slots, in the order of these, then their replicas. Those of the URL, if the nodes do not tell.
    pub nodes: Vec<NodeFacts>,
}

impl ClusterFacts {
    /// Facts for a test of rules.
    pub fn new(ttl: Duration, nodes: Vec<NodeFacts>) -> Self {
        Self { ttl, nodes }
    }
}

/// The facts about a node of a quorum or of a cluster.
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeFacts {
    /// Its address, without user and password.
    pub server: String,
    /// The facts about the server, or why there are none.
    pub facts: Result<Box<ServerFacts>, StoreError>,
    /// How many slots of a cluster it has, a replica none; `None` if this is not known, and in a quorum.
    pub slots: Option<u16>,
    /// Its mark in a quorum; `None` if it has none, or did not tell. The error: its key holds something else.
    pub mark: Result<Option<MarkFacts>, NotAMark>,
    /// Its clock.
    pub clock: Option<ClockFacts>,
}

impl NodeFacts {
    /// Facts for a test of rules.
    pub fn new(server: impl Into<String>, facts: Result<Box<ServerFacts>, StoreError>) -> Self {
        Self {
            server: server.into(),
            facts,
            slots: None,
            mark: Ok(None),
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
    /// The mark names another start of the server, or another server. The next request begins a quarantine.
    pub of_another_start: bool,
    /// How long the node still gives no vote to names that it has no counter for; zero if it votes. From the next request on, if that
    /// begins a quarantine.
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

/// The facts about a server, as far as this user may see them. `None` means that the server did not tell, or was not asked.
#[derive(Debug, Default, Clone)]
#[non_exhaustive]
pub struct ServerFacts {
    /// The TTL that the locks will have.
    pub ttl: Duration,
    /// The connection.
    pub transport: Transport,
    /// The reply to `INFO`.
    pub info: Option<Fields>,
    /// The reply to a second `INFO`, two seconds later.
    pub later: Option<Fields>,
    /// The settings that the server told; empty values as well.
    pub config: Option<Fields>,
    /// The first word of the reply to `ROLE`.
    pub role: Option<String>,
    /// The reply to `CLUSTER INFO` of a node of a cluster.
    pub cluster: Option<Fields>,
    /// The reply to `ACL WHOAMI`.
    pub user: Option<String>,
    /// The commands that only some servers have, and that this one has.
    pub commands: Option<Vec<String>>,
    /// The reply to `LATENCY LATEST`: each event and its longest duration, in ms.
    pub latency: Option<Vec<(String, u64)>>,
    /// The round trip time that 99 of 100 requests did not exceed.
    pub ping: Option<Duration>,
    /// The difference between the server's clock and this host's, and the error of that measurement.
    pub offset: Option<(Duration, Duration)>,
    /// The change of that difference within five seconds.
    pub step: Option<Duration>,
    /// The longest delay of a timer on this host.
    pub stall: Option<Duration>,
    /// The outcome of using a scratch lock.
    pub probe: Probe,
    /// The newest keys of the index of locks, as far as this user may read them.
    pub locks: Option<Vec<IndexedKey>>,
    /// How many of the newest keys this user may not read.
    pub hidden_locks: usize,
    /// The ACL rule of a user with the permissions that locks need, and no others.
    pub acl: String,
}

/// The connection to a server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// True for TLS and for a Unix socket.
    pub is_private: bool,
    /// True if the server's address is one of this host.
    pub is_loopback: bool,
    /// True if the client logs in with a password.
    pub has_password: bool,
}

/// The consequence of a command that a user may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// There are no locks.
    NoLocks,
    /// Waiters poll, operators see less, the client detects a replica late, or it sends scripts in full.
    Worse,
    /// Locks work, cache entries do not.
    NoCache,
    /// An examination learns less.
    Unseen,
}

/// What the scripts, the connection or the examination use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its name, as ACL rules spell it: a command without its plus, `~` and a pattern of keys, `&` and a pattern of channels.
    pub name: &'static str,
    /// The consequence of its absence.
    pub without: Without,
}

/// The outcome of using a scratch lock as this user.
#[derive(Debug, Default, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// Commands, key patterns and channels that this user may not use.
    pub denied: Vec<Part>,
    /// Commands that the server does not know.
    pub missing: Vec<Part>,
    /// Commands that the server, or a proxy before it, refuses in words of its own, and these words.
    pub refused: Vec<(Part, String)>,
    /// The pattern of the locks, if this user may not use such keys or those beside them.
    pub barred: Option<String>,
    /// The uses of the lock that failed: verb, kind and the server's message.
    pub failed: Vec<(&'static str, StoreErrorKind, String)>,
    /// True if a notification of a script arrived.
    pub heard: bool,
    /// No lock was used: a replica in a cluster has none, and neither has a node without slots.
    pub untried: bool,
    /// Nothing was tried, neither a lock nor a command: the examination only reads.
    pub left_out: bool,
}

impl Probe {
    /// The first message of a failed use that contains `word`.
    pub fn refused_by(&self, word: &str) -> Option<&str> {
        let mut failed = self.failed.iter().map(|(_, _, said)| said.as_str());
        failed.find(|said| said.contains(word))
    }
}

/// A key of the index of locks.
#[derive(Debug, Clone)]
pub struct IndexedKey {
    /// The key.
    pub name: String,
    /// The reply to `TYPE`.
    pub kind: String,
    /// The reply to `PTTL` in ms; -1 if the key never expires.
    pub left: i64,
}

/// Names and values, as in the replies to `INFO` and `CONFIG GET`.
#[derive(Debug, Default, Clone)]
pub struct Fields(pub BTreeMap<String, String>);

impl Fields {
    /// Reads `name:value` lines.
    pub fn of_info(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    /// The value of a field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a field that is a whole number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

impl ServerFacts {
    /// A field of `INFO` that is not empty.
    pub fn info(&self, name: &str) -> Option<&str> {
        self.info
            .as_ref()?
            .text(name)
            .filter(|text| !text.is_empty())
    }

    /// A field of `INFO` that is a whole number.
    pub fn info_number(&self, name: &str) -> Option<u64> {
        self.info.as_ref()?.number(name)
    }

    /// A setting.
    pub fn config(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.text(name)
    }

    /// A setting that is a whole number.
    pub fn config_number(&self, name: &str) -> Option<u64> {
        self.config.as_ref()?.number(name)
    }

    /// The growth of a counter between the two replies to `INFO`; `None` without the second one.
    pub fn rise(&self, name: &str) -> Option<u64> {
        let later = self.later.as_ref()?.number(name)?;
        Some(later.saturating_sub(self.info_number(name)?))
    }

    /// `master`, `slave` or `sentinel`.
    pub fn role(&self) -> Option<&str> {
        let sentinel = (self.mode() == Some("sentinel")).then_some("sentinel");
        sentinel
            .or(self.role.as_deref())
            .or_else(|| self.info("role"))
    }

    /// `standalone`, `cluster` or `sentinel`.
    pub fn mode(&self) -> Option<&str> {
        if self.info("cluster_enabled") == Some("1") {
            return Some("cluster");
        }
        self.info("redis_mode").or_else(|| self.info("server_mode"))
    }

    /// The name of the server software and its version. A Valkey also calls itself an old Redis.
    pub fn engine(&self) -> Option<(String, String)> {
        if let Some(version) = self.info("valkey_version") {
            return Some(("Valkey".into(), version.into()));
        }
        for (field, engine) in [
            ("dragonfly_version", "Dragonfly"),
            ("kvrocks_version", "Kvrocks"),
        ] {
            if let Some(version) = self.info(field) {
                return Some((engine.into(), version.trim_start_matches("df-v").into()));
            }
        }
        let version = self.info("redis_version")?.to_owned();
        Some(match self.info("server_name") {
            Some(name) if !name.eq_ignore_ascii_case("redis") => (name.to_owned(), version),
            _ => ("Redis".into(), version),
        })
    }

    /// The version of Redis whose commands the server has.
    pub fn redis_version(&self) -> Option<(u32, u32)> {
        let mut parts = self
            .info("redis_version")?
            .split('.')
            .map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(info: &str) -> ServerFacts {
        ServerFacts {
            info: Some(Fields::of_info(info)),
            ..ServerFacts::default()
        }
    }

    #[test]
    fn a_valkey_that_calls_itself_redis_is_a_valkey() {
        let valkey = facts(
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:standalone\r\n",
        );
        assert_eq!(valkey.engine(), Some(("Valkey".into(), "9.1.2".into())));
        assert_eq!(valkey.redis_version(), Some((7, 2)));
        assert_eq!(valkey.mode(), Some("standalone"));
        let redis = facts("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n");
        assert_eq!(redis.engine(), Some(("Redis".into(), "7.0.15".into())));
        assert_eq!(facts("").engine(), None);
    }

    #[test]
    fn a_counter_rises_only_if_it_was_seen_twice() {
        let mut facts = facts("evicted_keys:5");
        assert_eq!(facts.rise("evicted_keys"), None);
        facts.later = Some(Fields::of_info("evicted_keys:7"));
        assert_eq!(facts.rise("evicted_keys"), Some(2));
        assert_eq!(facts.rise("other"), None);
    }
}
