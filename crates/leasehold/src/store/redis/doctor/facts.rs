//! What was seen of a server, before it is judged. Must never hold a verdict: `None` says that the server refused to tell.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::StoreErrorKind;

/// All that the rules may know.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The TTL that the locks will have.
    pub(super) ttl: Duration,
    pub(super) way: Way,
    /// INFO, and INFO two seconds later.
    pub(super) info: Option<Fields>,
    pub(super) later: Option<Fields>,
    /// The settings that were asked for and told; empty ones as well.
    pub(super) config: Option<Fields>,
    /// The first word of ROLE.
    pub(super) role: Option<String>,
    /// ACL WHOAMI.
    pub(super) user: Option<String>,
    /// Which of the commands that some servers lack are known here.
    pub(super) commands: Option<Vec<String>>,
    /// LATENCY LATEST: event and its longest, in ms.
    pub(super) latency: Option<Vec<(String, u64)>>,
    /// 99 of 100 answers took no longer.
    pub(super) ping: Option<Duration>,
    /// How far the server's clock is from this host's, and by how much it may be more or less.
    pub(super) offset: Option<(Duration, Duration)>,
    /// How much more or less time passed there than here, in some seconds.
    pub(super) step: Option<Duration>,
    /// How long this host let a timer wait beyond its time.
    pub(super) stall: Option<Duration>,
    pub(super) probe: Probe,
    /// The locks in the index, as far as this user may see them.
    pub(super) locks: Option<Vec<Lock>>,
    /// The line that `acl.*` recommend.
    pub(super) acl: String,
}

/// How the server is reached.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Encrypted, or a Unix socket.
    pub(super) is_private: bool,
    pub(super) is_loopback: bool,
    pub(super) has_password: bool,
}

/// What came of using a scratch lock as this user.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Commands that this user may not use, as ACL rules spell them.
    pub(super) denied: Vec<&'static str>,
    /// Commands that the server does not know.
    pub(super) missing: Vec<&'static str>,
    /// Which use of the lock failed, and how.
    pub(super) failed: Vec<(&'static str, StoreErrorKind, String)>,
    /// A message of a script arrived.
    pub(super) told: bool,
}

impl Probe {
    /// Whether an answer had this word, and what it said.
    pub(super) fn refused_by(&self, word: &str) -> Option<&str> {
        let mut failed = self.failed.iter().map(|(_, _, said)| said.as_str());
        failed.find(|said| said.contains(word))
    }
}

/// A name of the index.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) name: String,
    /// What TYPE says.
    pub(super) kind: String,
    /// What PTTL says: -1 for ever.
    pub(super) left: i64,
}

/// Names and values, as INFO and CONFIG GET have them.
#[derive(Debug, Default, Clone)]
pub(super) struct Fields(pub(super) BTreeMap<String, String>);

impl Fields {
    /// Reads `name:value` lines.
    pub(super) fn of_info(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

impl Facts {
    /// A field of INFO that says something.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info
            .as_ref()?
            .text(name)
            .filter(|text| !text.is_empty())
    }

    pub(super) fn info_number(&self, name: &str) -> Option<u64> {
        self.info.as_ref()?.number(name)
    }

    pub(super) fn config(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.text(name)
    }

    pub(super) fn config_number(&self, name: &str) -> Option<u64> {
        self.config.as_ref()?.number(name)
    }

    /// By how much a counter of INFO rose in the seconds between; `None` unless it was looked at twice.
    pub(super) fn rise(&self, name: &str) -> Option<u64> {
        let later = self.later.as_ref()?.number(name)?;
        Some(later.saturating_sub(self.info_number(name)?))
    }

    /// `master`, `slave` or `sentinel`.
    pub(super) fn role(&self) -> Option<&str> {
        let sentinel = (self.mode() == Some("sentinel")).then_some("sentinel");
        sentinel
            .or(self.role.as_deref())
            .or_else(|| self.info("role"))
    }

    /// `standalone`, `cluster` or `sentinel`.
    pub(super) fn mode(&self) -> Option<&str> {
        if self.info("cluster_enabled") == Some("1") {
            return Some("cluster");
        }
        self.info("redis_mode").or_else(|| self.info("server_mode"))
    }

    /// Its name and its own version. Valkey calls itself an old Redis as well.
    pub(super) fn engine(&self) -> Option<(String, String)> {
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

    /// The version of Redis whose commands it has.
    pub(super) fn redis_version(&self) -> Option<(u32, u32)> {
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

    fn facts(info: &str) -> Facts {
        Facts {
            info: Some(Fields::of_info(info)),
            ..Facts::default()
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
