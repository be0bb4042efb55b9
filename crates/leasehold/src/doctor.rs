//! What an examination of a store asks for, and what it found. Must never hold a secret, nor call a store bad because it
//! does not let itself be looked at: that is [`State::Unknown`].
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::doctor::{Examination, Purpose, State};
//!
//! # async fn example() -> Result<(), leasehold::Error> {
//! let how = Examination::new(Duration::from_secs(30));
//! let report = leasehold::Client::builder().examine("redis://127.0.0.1/", &how).await?;
//! for finding in &report.findings {
//!     if finding.state(Purpose::Correctness) == State::Fail {
//!         println!("{}: {}; {}", finding.id, finding.text, finding.remedy);
//!     }
//! }
//! # Ok(()) }
//! ```

use std::time::Duration;

/// What to look for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Examination {
    /// The TTL that the locks will have: most limits are a share of it.
    pub ttl: Duration,
    /// Leaves out what takes seconds: whether keys are being evicted, whether a clock jumps, whether this host stalls.
    pub quick: bool,
    /// Asks only what the server says of itself by one `INFO`, and writes nothing: what that does not show is *unknown*.
    pub glance: bool,
    /// The names of the locks, as a pattern of the server's, for [`Report::acl`]; the client's namespace and template go around it.
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

    /// Whether to leave out what takes seconds.
    #[must_use]
    pub fn quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// Only what one `INFO` shows, for a look at every start of a program.
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

/// What the locks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// To save double work. Two holders at once are a cost.
    Efficiency,
    /// To prevent damage. Two holders at once are a fault.
    Correctness,
}

/// How a check came out, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// The server does not say, or this user may not ask. Never a failure.
    Unknown,
    /// Locks work, and will cause trouble some day.
    Warn,
    /// Locks do not work here, or do not do what they are for.
    Fail,
}

impl State {
    /// One lower-case word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The check, as in `docs/reference/doctor.md`.
    pub id: &'static str,
    /// How bad it is for locks that save work.
    pub efficiency: State,
    /// How bad it is for locks that prevent damage.
    pub correctness: State,
    /// What was seen, and what follows from it.
    pub text: String,
    /// What to do; empty when there is nothing to do.
    pub remedy: String,
}

impl Finding {
    /// How bad it is for locks of this purpose.
    pub const fn state(&self, purpose: Purpose) -> State {
        match purpose {
            Purpose::Efficiency => self.efficiency,
            Purpose::Correctness => self.correctness,
        }
    }
}

/// What an examination found.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// The store's address, without user and password.
    pub store: String,
    /// What it is.
    pub server: Server,
    /// In the order of `docs/reference/doctor.md`.
    pub findings: Vec<Finding>,
    /// On Redis and Valkey: the line that makes a user who may do what locks need, and nothing else.
    pub acl: Option<String>,
}

/// What a server says of itself; empty or `None` where it says nothing.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Server {
    /// `Redis`, `Valkey`, `SQLite file`, ...
    pub engine: String,
    /// Its version.
    pub version: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: String,
    /// `master` or `slave`.
    pub role: String,
    /// Since when it runs. As `uptime_ms`, in whole milliseconds, where `serde` writes it.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "uptime_ms", serialize_with = "in_ms")
    )]
    pub uptime: Option<Duration>,
}

#[cfg(feature = "serde")]
#[allow(clippy::ref_option, reason = "serde's signature")]
fn in_ms<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let millis = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    serde::Serialize::serialize(&millis, serializer)
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_written_as_it_reads() {
        let finding = Finding {
            id: "scope.process",
            efficiency: State::Ok,
            correctness: State::Warn,
            text: "seen".into(),
            remedy: String::new(),
        };
        let report = Report {
            store: "memory:".into(),
            server: Server {
                engine: "memory".into(),
                uptime: Some(Duration::from_micros(1_999)),
                ..Server::default()
            },
            findings: vec![finding],
            acl: None,
        };
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            serde_json::json!({
                "store": "memory:",
                "server": {"engine": "memory", "version": "", "mode": "", "role": "", "uptime_ms": 1},
                "findings": [{"id": "scope.process", "efficiency": "ok", "correctness": "warn", "text": "seen", "remedy": ""}],
                "acl": null,
            })
        );
    }
}
