//! The identity of a server, and whether it is the previous one. Another server may not know the previous one's locks.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::quorum::quarantine;
use redis::Value;

use crate::error::Replaced;
use crate::store::redis::codec::words::MARK_ID;
use crate::store::redis::scripts::NodeTerms;

/// The first version that understands flags of scripts.
const FLAGS: u32 = 7;

/// The reply to HELLO, which needs no permission.
#[derive(Debug, Default)]
pub(super) struct HelloReply(HashMap<String, Value>);

impl HelloReply {
    pub(super) fn read(answer: Option<Value>) -> Self {
        let fields = answer.and_then(|answer| redis::from_redis_value(answer).ok());
        Self(fields.unwrap_or_default())
    }

    fn text(&self, field: &str) -> Option<String> {
        redis::from_redis_value_ref(self.0.get(field)?).ok()
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.text("mode").is_some_and(|mode| mode == "cluster")
    }

    /// True if the server is too old for scripts with flags; `None` if it does not report its version.
    pub(super) fn is_old(&self) -> Option<bool> {
        let version = self.text("version")?;
        let major: u32 = version.split('.').next()?.parse().ok()?;
        Some(major < FLAGS)
    }
}

/// A field of a reply to `INFO`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| *key == name);
    found.map(|(_, value)| value.trim().to_owned())
}

/// The identity of a server and of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerId {
    /// Drawn at each start of the server (`run_id`).
    run: String,
    /// Drawn for each history of the data (`master_replid`). Replicas share it. `before` is the history that this one
    /// continues.
    history: String,
    before: String,
}

impl ServerId {
    /// Reads the replies to `INFO server` and `INFO replication`.
    pub(super) fn read(server: Option<Value>, replication: Option<Value>) -> Option<Self> {
        let text = |answer: Option<Value>| redis::from_redis_value::<String>(answer?).ok();
        let (server, replication) = (text(server)?, text(replication)?);
        Some(Self {
            run: field(&server, "run_id")?,
            history: field(&replication, "master_replid")?,
            before: field(&replication, "master_replid2").unwrap_or_default(),
        })
    }
}

/// When a server was started, and which start it was.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Started {
    run: String,
    ago: Duration,
}

impl Started {
    /// Reads the reply to `INFO server`.
    pub(in crate::store::redis) fn read(server: &Value) -> Option<Self> {
        let text: String = redis::from_redis_value_ref(server).ok()?;
        Some(Self {
            run: field(&text, "run_id")?,
            ago: Duration::from_secs(field(&text, "uptime_in_seconds")?.parse().ok()?),
        })
    }

    /// The identity of this start of the server.
    pub(in crate::store::redis) fn into_run(self) -> String {
        self.run
    }

    /// How long a client asks this node for no votes: as long as after a loss of all data, since the last changes may be
    /// lost. If the mark names this start of the server, nothing can be lost. Without a mark all is lost: the first proposal
    /// makes one, and the node keeps out by itself.
    pub(super) fn untrusted_for(&self, node: NodeTerms, mark: &MarkSeen) -> Duration {
        let is_safe = match mark {
            MarkSeen::None => true,
            MarkSeen::Unknown => false,
            MarkSeen::Text(mark) => {
                let id = mark.rsplit(' ').next().unwrap_or_default();
                id.len() == MARK_ID && self.run.starts_with(id)
            }
        };
        if node.durable || is_safe {
            return Duration::ZERO;
        }
        quarantine(node.terms.longest_ttl).saturating_sub(self.ago)
    }
}

/// The mark of a node, as far as this user may see it.
#[derive(Debug)]
pub(super) enum MarkSeen {
    /// There is none.
    None,
    Text(String),
    Unknown,
}

/// How the server `now` replaced the server `before`; `None` if it is the same. A server that was a replica in between
/// has another history.
pub(super) fn replaced(before: Option<&ServerId>, now: Option<&ServerId>) -> Option<Replaced> {
    let (Some(before), Some(now)) = (before, now) else {
        return Some(Replaced::Unknown);
    };
    if before.run == now.run && before.history == now.history {
        None
    } else if now.before == before.history || now.history == before.history {
        Some(Replaced::Successor)
    } else {
        Some(Replaced::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server(run: &str, history: &str, before: &str) -> Option<ServerId> {
        let server = format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{run}\r\n");
        let replication = format!(
            "# Replication\r\nrole:master\r\nmaster_replid:{history}\r\nmaster_replid2:{before}\r\n"
        );
        ServerId::read(Some(info(&server)), Some(info(&replication)))
    }

    #[test]
    fn a_server_is_known_again_by_its_run_and_its_history() {
        let known = server("run", "history", "000");
        assert!(known.is_some());
        let by = |now: Option<ServerId>| replaced(known.as_ref(), now.as_ref());
        assert_eq!(by(server("run", "history", "000")), None);
        // A replica was promoted, or the server was restarted with its data.
        assert_eq!(
            by(server("other", "new", "history")),
            Some(Replaced::Successor)
        );
        assert_eq!(
            by(server("other", "history", "000")),
            Some(Replaced::Successor)
        );
        // The server was a replica of another one for a while.
        assert_eq!(by(server("run", "new", "foreign")), Some(Replaced::Other));
        assert_eq!(by(server("other", "new", "000")), Some(Replaced::Other));
        assert_eq!(by(None), Some(Replaced::Unknown));
        assert_eq!(replaced(None, known.as_ref()), Some(Replaced::Unknown));
    }

    #[test]
    fn node_that_was_started_again_is_not_trusted_at_once() {
        let server = "run_id:0123456789abcdef0123\r\nuptime_in_seconds:5\r\n";
        let started = Started::read(&info(server)).unwrap();
        let longest_ttl = leasehold_core::Ttl::new(Duration::from_secs(60)).unwrap();
        let terms = leasehold_core::quorum::QuorumTerms {
            nodes: 3,
            longest_ttl,
        };
        let left = |durable, mark: Option<&str>| {
            let node = NodeTerms { terms, durable };
            let mark = mark.map(str::to_owned);
            let mark = mark.map_or(MarkSeen::None, MarkSeen::Text);
            started.untrusted_for(node, &mark).as_secs()
        };
        assert_eq!(left(false, None), 0, "it has lost everything, or is new");
        assert_eq!(left(true, Some("3 60000 0 fedcba9876543210")), 0);
        assert_eq!(left(false, Some("3 60000 0 fedcba9876543210")), 56);
        assert_eq!(
            left(false, Some("3 60000 0 0123456789abcdef")),
            0,
            "marked since then"
        );
        assert_eq!(left(false, Some("3 60000 0 ")), 56);
        let long = Started {
            ago: Duration::from_secs(61),
            ..started
        };
        let node = NodeTerms {
            terms,
            durable: false,
        };
        assert_eq!(long.untrusted_for(node, &MarkSeen::Unknown), Duration::ZERO);
    }

    #[test]
    fn server_without_identity_is_unknown() {
        assert_eq!(ServerId::read(None, None), None);
        assert_eq!(
            ServerId::read(Some(info("run_id:x\r\n")), Some(info("role:master\r\n"))),
            None
        );
    }

    #[test]
    fn the_version_says_whether_scripts_may_have_flags() {
        let hello = |version: &str| {
            let field = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let fields = vec![
                (field("version"), field(version)),
                (field("mode"), field("standalone")),
                (field("modules"), Value::Array(Vec::new())),
            ];
            HelloReply::read(Some(Value::Map(fields)))
        };
        for (version, is_old) in [("6.2.14", true), ("7.0.15", false), ("9.1.2", false)] {
            let hello = hello(version);
            assert_eq!((hello.is_old(), hello.is_cluster()), (Some(is_old), false));
        }
        assert_eq!(hello("df-1").is_old(), None);
        assert_eq!(HelloReply::read(None).is_old(), None);
    }
}
