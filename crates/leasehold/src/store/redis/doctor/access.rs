//! The commands that a user must be allowed to use: those that this library sends, and no others.

use super::super::protocol::INDEX;
use crate::doctor::Part;
use crate::doctor::Without::{self, NoLocks, Unseen, Worse};

/// A command that the scripts, the connection or the doctor use.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) part: Part,
    /// A call that leaves nothing behind: it changes only an existing key, and a scratch key does not exist.
    /// HSET has no such form. It gets a field without a value; the server checks the permission before it refuses that.
    pub(super) words: &'static [&'static str],
}

const fn need(name: &'static str, without: Without, words: &'static [&'static str]) -> Need {
    Need {
        part: Part { name, without },
        words,
    }
}

/// Stands in [`Need::words`] for the scratch key of a string.
pub(super) const KEY: &str = "{string}";
/// Stands for the scratch key of a sorted set.
pub(super) const SET: &str = "{sorted set}";
/// Stands for the scratch key of a hash.
pub(super) const HASH: &str = "{hash}";
/// Stands for the channel of this client.
pub(super) const CHANNEL: &str = "{channel}";

/// All of them, for the features of this build. AUTH and HELLO need no permission.
#[rustfmt::skip]
pub(super) static NEEDS: &[Need] = &[
    need("eval", NoLocks, &["EVAL", "return 1", "0"]),
    need("evalsha", Worse, &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"]),
    need("exists", NoLocks, &["EXISTS", INDEX]),
    need("get", NoLocks, &["GET", KEY]),
    need("mget", NoLocks, &["MGET", KEY]),
    need("getrange", NoLocks, &["GETRANGE", KEY, "0", "0"]),
    need("set", NoLocks, &["SET", KEY, "0", "XX", "PX", "5000"]),
    need("del", NoLocks, &["DEL", KEY]),
    need("pexpire", NoLocks, &["PEXPIRE", KEY, "5000"]),
    need("pttl", NoLocks, &["PTTL", KEY]),
    need("time", NoLocks, &["TIME"]),
    need("zadd", NoLocks, &["ZADD", SET, "XX", "1", "x"]),
    need("zcard", NoLocks, &["ZCARD", SET]),
    need("zrange", NoLocks, &["ZRANGE", SET, "0", "0"]),
    need("zrank", NoLocks, &["ZRANK", SET, "x"]),
    need("zrem", NoLocks, &["ZREM", SET, "x"]),
    need("hget", NoLocks, &["HGET", HASH, "x"]),
    need("hset", NoLocks, &["HSET", HASH, "x", "x", "x"]),
    need("hdel", NoLocks, &["HDEL", HASH, "x"]),
    need("type", Worse, &["TYPE", KEY]),
    need("zremrangebyscore", Worse, &["ZREMRANGEBYSCORE", SET, "0", "0"]),
    need("publish", Worse, &["PUBLISH", CHANNEL, "doctor"]),
    need("pubsub|numsub", Worse, &["PUBSUB", "NUMSUB", CHANNEL]),
    need("subscribe", Worse, &[]),
    need("role", Worse, &["ROLE"]),
    need("script|exists", Worse, &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"]),
    need("script|load", Worse, &["SCRIPT", "LOAD", "return 1"]),
    // As old as the command itself; it names the library in CLIENT LIST.
    need("client|setinfo", Unseen, &[]),
    need("select", NoLocks, &[]),
    need("ping", Unseen, &[]),
    // The doctor misses most. A connection does not know which server it leads to: each new one may lead to another.
    need("info", Unseen, &[]),
    // An empty SETRANGE makes no key.
    #[cfg(feature = "entries")]
    need("setrange", Without::NoCache, &["SETRANGE", KEY, "0", ""]),
    #[cfg(feature = "entries")]
    need("hmget", Without::NoCache, &["HMGET", HASH, "x"]),
    #[cfg(feature = "entries")]
    need("hkeys", Without::NoCache, &["HKEYS", HASH]),
    // Without it, no notice drops a changed value from the process. `CLIENT` changes this connection only.
    #[cfg(feature = "entries")]
    need("client|tracking", Without::NoCache, &["CLIENT", "TRACKING", "OFF"]),
    #[cfg(feature = "entries")]
    need("client|caching", Without::NoCache, &["CLIENT", "CACHING", "YES"]),
];

/// The requests that the client itself sends and can do without. A proxy sees no others: the scripts run behind it.
pub(super) const DIRECT: [&str; 7] = [
    "subscribe",
    "role",
    "evalsha",
    "script|exists",
    "script|load",
    "client|tracking",
    "client|caching",
];

/// The counter of fences, as a place that a user may use.
pub(super) const COUNTER_PLACE: Part = Part {
    name: "~leasehold:fence",
    without: NoLocks,
};

/// The keys or the channel that a refused command with these words needs.
pub(super) fn place(words: &[&str]) -> Option<Part> {
    let mut places = words.iter().filter_map(|word| match *word {
        KEY => Some(("~leasehold:doctor:*", NoLocks)),
        SET | HASH => Some(("~{leasehold:doctor:*}:lh-*", NoLocks)),
        INDEX => Some(("~leasehold:index", Worse)),
        CHANNEL => Some(("&leasehold:wake:*", Worse)),
        _ => None,
    });
    let (name, without) = places.next()?;
    Some(Part { name, without })
}

/// The ACL rule of a user with the permissions that locks and cache entries need, and no others. `version` is that of the Redis whose
/// commands the server has. An older server refuses the whole rule for one command that it does not know. `keys` is the pattern of the
/// locks.
pub(super) fn line(version: Option<(u32, u32)>, database: i64, keys: &str) -> String {
    let is_wanted = |need: &&Need| match need.part.name {
        "client|setinfo" => version.is_some_and(|version| version >= (7, 2)),
        "select" => database != 0,
        _ => true,
    };
    let commands = NEEDS.iter().filter(is_wanted);
    let commands: Vec<&str> = commands.map(|need| need.part.name).collect();
    format!(
        "ACL SETUSER leasehold on >SECRET resetkeys {} resetchannels &leasehold:wake:* -@all +{}",
        all_keys(keys),
        commands.join(" +")
    )
}

/// The rule for a user of a quorum's nodes, which have keys of their own for marks and counters.
pub(super) fn of_node(line: &str) -> String {
    let counter = "~leasehold:fence ";
    line.replacen(counter, &format!("{counter}~leasehold:quorum* "), 1)
}

/// The locks' own keys, those beside them, the fence counter, and those of the index and the doctor.
fn all_keys(pattern: &str) -> String {
    if pattern == "*" {
        return "~*".into();
    }
    let (tagged, plain) = (format!("{pattern}:lh-*"), format!("{{{pattern}}}:lh-*"));
    let beside = if pattern.contains('{') {
        tagged
    } else if pattern.ends_with('*') {
        // The pattern also covers the keys beside a name with a hash tag.
        plain
    } else {
        format!("{plain} ~{tagged}")
    };
    // `{` and `}` mean nothing in a pattern of Redis'.
    format!(
        "~{pattern} ~{beside} ~leasehold:fence ~leasehold:index ~leasehold:doctor:* ~{{leasehold:doctor:*}}:lh-*"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_rule_of_a_node_has_its_own_keys() {
        let line = line(None, 0, "jobs:*");
        assert!(of_node(&line).contains(" ~leasehold:fence ~leasehold:quorum* ~leasehold:index "));
    }

    #[test]
    fn what_looks_like_a_place_is_one() {
        let words = NEEDS.iter().flat_map(|need| need.words);
        let mut places = words.filter(|word| word.starts_with('{'));
        assert!(places.all(|word| [KEY, SET, HASH, CHANNEL].contains(word)));
    }

    fn parts() -> BTreeSet<&'static str> {
        NEEDS.iter().map(|need| need.part.name).collect()
    }

    /// Every command that a script calls, as ACL rules spell it.
    fn called(lua: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let start = "call(";
        for (at, _) in lua.match_indices(start) {
            // The word may stand in the next line.
            let Some(words) = lua[at + start.len()..].trim_start().strip_prefix('\'') else {
                continue;
            };
            let mut quoted = words.split('\'');
            let word = quoted.next().unwrap().to_lowercase();
            let second = quoted.nth(1).unwrap_or_default().to_lowercase();
            found.insert(if word == "pubsub" {
                format!("{word}|{second}")
            } else {
                word
            });
        }
        found
    }

    #[test]
    fn every_command_of_the_scripts_is_needed() {
        let lua = [
            include_str!("../../../../lua/prelude.lua"),
            include_str!("../../../../lua/index.lua"),
            include_str!("../../../../lua/mutex/take.lua"),
            include_str!("../../../../lua/mutex/settle.lua"),
            include_str!("../../../../lua/mutex/acquire.lua"),
            include_str!("../../../../lua/mutex/extend.lua"),
            include_str!("../../../../lua/mutex/release.lua"),
            include_str!("../../../../lua/mutex/break.lua"),
            include_str!("../../../../lua/mutex/inspect.lua"),
            include_str!("../../../../lua/timestamp/prelude.lua"),
            include_str!("../../../../lua/timestamp/acquire.lua"),
            include_str!("../../../../lua/timestamp/extend.lua"),
            include_str!("../../../../lua/timestamp/release.lua"),
        ]
        .concat();
        let entries = [
            include_str!("../../../../lua/cache/prelude.lua"),
            include_str!("../../../../lua/cache/abandon.lua"),
            include_str!("../../../../lua/cache/begin.lua"),
            include_str!("../../../../lua/cache/commit.lua"),
            include_str!("../../../../lua/cache/invalidate.lua"),
            include_str!("../../../../lua/cache/renew.lua"),
        ]
        .concat();
        let lua = if cfg!(feature = "entries") {
            lua + &entries
        } else {
            lua
        };
        let called = called(&lua);
        assert!(called.len() > 15, "{called:?}");
        let parts = parts();
        assert!(
            called.iter().all(|part| parts.contains(part.as_str())),
            "{called:?}"
        );
        let beyond: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|part| !called.contains(*part))
            .collect();
        let of_entries = ["client|caching", "client|tracking"];
        let mut by_rust = vec![
            "client|setinfo",
            "eval",
            "evalsha",
            "info",
            "ping",
            "role",
            "script|exists",
            "script|load",
            "select",
            "subscribe",
        ];
        if cfg!(feature = "entries") {
            by_rust.extend(of_entries);
            by_rust.sort_unstable();
        }
        assert_eq!(beyond, by_rust);
    }

    /// The rules of `leasehold doctor` judge a missing command by this.
    #[test]
    fn missing_commands_have_their_consequence() {
        let without = |name: &str| {
            let need = NEEDS.iter().find(|need| need.part.name == name);
            need.map(|need| need.part.without)
        };
        for name in [
            "eval", "get", "set", "hset", "hdel", "zadd", "time", "select",
        ] {
            assert_eq!(without(name), Some(NoLocks), "{name}");
        }
        for name in [
            "publish",
            "pubsub|numsub",
            "subscribe",
            "role",
            "evalsha",
            "script|load",
            "type",
        ] {
            assert_eq!(without(name), Some(Worse), "{name}");
        }
        for name in ["ping", "info", "client|setinfo"] {
            assert_eq!(without(name), Some(Unseen), "{name}");
        }
        if cfg!(feature = "entries") {
            assert_eq!(without("hmget"), Some(Without::NoCache));
            assert_eq!(without("client|tracking"), Some(Without::NoCache));
        }
    }

    #[test]
    fn the_line_has_what_the_server_knows() {
        let old = line(Some((7, 0)), 0, "*");
        assert!(
            old.contains(" ~* ") && !old.contains("setinfo") && !old.contains("+select"),
            "{old}"
        );
        assert!(line(Some((7, 2)), 0, "*").contains("+client|setinfo"));
        assert!(!line(None, 0, "*").contains("+client|setinfo"));
        let some = line(Some((7, 0)), 3, "jobs:*");
        for part in [
            " ~jobs:* ",
            " ~{jobs:*}:lh-* ",
            " ~leasehold:fence ~leasehold:index ",
            " +select",
        ] {
            assert!(some.contains(part), "{part}: {some}");
        }
        assert!(line(None, 0, "{a}:*").contains(" ~{a}:* ~{a}:*:lh-* "));
        assert!(line(None, 0, "a:*:b").contains(" ~a:*:b ~{a:*:b}:lh-* ~a:*:b:lh-* "));
    }
}
