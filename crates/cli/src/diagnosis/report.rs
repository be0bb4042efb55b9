//! The outcome of an examination.

use std::time::Duration;

/// The use of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The locks save double work. Two holders at once are a cost.
    Efficiency,
    /// The locks prevent damage. Two holders at once are a fault.
    Correctness,
}

/// The result of one check, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// In order.
    Ok,
    /// Worth knowing.
    Info,
    /// The server does not say, or this user may not ask. Never a failure.
    Unknown,
    /// Locks work, and will cause trouble some day.
    Warn,
    /// Locks do not work here, or do not serve their purpose.
    Fail,
}

impl State {
    /// One lower-case word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The check, as in `docs/reference/doctor.md`.
    pub(crate) id: &'static str,
    /// The state for locks that save work.
    pub(crate) efficiency: State,
    /// The state for locks that prevent damage.
    pub(crate) correctness: State,
    /// The observation and its consequence.
    pub(crate) text: String,
    /// The advice; empty if there is nothing to do.
    pub(crate) remedy: String,
}

impl Finding {
    /// The state for locks of this purpose.
    pub(crate) const fn state(&self, purpose: Purpose) -> State {
        match purpose {
            Purpose::Efficiency => self.efficiency,
            Purpose::Correctness => self.correctness,
        }
    }
}

/// The outcome of all checks of one store.
#[derive(Debug)]
pub(crate) struct Report {
    /// The store's address, without user and password.
    pub(crate) store: String,
    pub(crate) server: Server,
    pub(crate) findings: Vec<Finding>,
    /// On Redis and Valkey: the ACL rule of a user with the permissions that locks need, and no others.
    pub(crate) acl: Option<String>,
}

/// The description that a server gives of itself; empty or `None` where it gives none.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// `Redis`, `Valkey`, `SQLite file`, ...
    pub(crate) engine: String,
    pub(crate) version: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) mode: String,
    /// `master` or `slave`.
    pub(crate) role: String,
    pub(crate) uptime: Option<Duration>,
}

impl Server {
    pub(crate) fn named(engine: &str, version: &str) -> Self {
        Self {
            engine: engine.into(),
            version: version.into(),
            ..Self::default()
        }
    }
}
