//! The identity of a server, and whether it is the previous one. Another server may not know the previous one's locks.

use std::collections::HashMap;

use leasehold_core::quorum::QuorumTerms;
use redis::Value;

use crate::error::Replaced;
use crate::store::redis::codec::words::MARK_ID;

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
    /// The identity of this start of the server.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

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

/// The start of a server as the mark of a node names it: the begin of its `run_id`. `None` if the reply to `INFO server` has none.
pub(in crate::store::redis) fn start_of(server: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(server).ok()?;
    Some(field(&text, "run_id")?.get(..MARK_ID)?.to_owned())
}

/// The mark of a node that was started again with all its data: it names the new start. `None` if nothing is to be changed: the mark
/// names this start already, it is of another quorum, or the server was a replica since its start, so its data may be those of another one.
pub(super) fn adopted(
    mark: &str,
    terms: QuorumTerms,
    start: &str,
    replication: &Value,
) -> Option<String> {
    let text: String = redis::from_redis_value_ref(replication).ok()?;
    let was_a_replica = field(&text, "second_repl_offset")? != "-1";
    let counted = format!("{} {} ", terms.nodes, terms.longest_ttl.millis());
    let (made_at, rest) = mark.strip_prefix(&counted)?.split_once(' ')?;
    let (named, state) = rest.split_at_checked(MARK_ID)?;
    if named == start || was_a_replica || !matches!(state, "" | " young") {
        return None;
    }
    Some(format!("{counted}{made_at} {start}{state}"))
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
    fn mark_is_adopted_only_by_a_server_that_never_was_a_replica() {
        let start = start_of(&info(
            "run_id:0123456789abcdef0123\r\nuptime_in_seconds:5\r\n",
        ));
        let start = start.unwrap();
        assert_eq!(start, "0123456789abcdef");
        let longest_ttl = leasehold_core::Ttl::new(std::time::Duration::from_secs(60)).unwrap();
        let terms = QuorumTerms {
            nodes: 3,
            longest_ttl,
        };
        let adopted = |mark, offset| {
            let replication = format!("role:master\r\nsecond_repl_offset:{offset}\r\n");
            adopted(mark, terms, &start, &info(&replication))
        };
        let own = "3 60000 0 0123456789abcdef";
        assert_eq!(adopted(own, "-1"), None);
        let before = "3 60000 0 fedcba9876543210";
        assert_eq!(adopted(before, "-1").as_deref(), Some(own));
        assert_eq!(adopted(before, "4711"), None);
        // Of another quorum, or of no known form.
        for mark in [
            "5 60000 0 fedcba9876543210",
            "3 50000 0 fedcba9876543210",
            "3 60000 0 fedcba9876543210 old",
            "3 60000 0 fedcba",
            "3 60000 0",
            "",
        ] {
            assert_eq!(adopted(mark, "-1"), None, "{mark:?}");
        }
        let young = "3 60000 17 fedcba9876543210 young";
        let adopted = adopted(young, "-1");
        assert_eq!(
            adopted.as_deref(),
            Some("3 60000 17 0123456789abcdef young")
        );
        assert_eq!(start_of(&info("run_id:0123\r\n")), None);
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
