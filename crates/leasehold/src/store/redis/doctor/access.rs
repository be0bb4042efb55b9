//! The commands that a user must be allowed to use: those that this library sends, and no others.

use crate::doctor::{Part, Without};

/// A word of a command that tries it; see [`Need::words`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    /// As it is.
    Text(&'static str),
    /// The key of a string, of a sorted set, or of a hash, all scratch.
    String,
    Set,
    Hash,
    /// The index.
    Index,
    /// The channel of this client.
    Channel,
}

use Word::{Channel, Hash, Index, Set, String as Key, Text};

/// A command that the scripts, the connection or the doctor use.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) part: Part,
    /// A call that leaves nothing behind: it changes only an existing key, and a scratch key does not exist.
    /// HSET has no such form. It gets a field without a value; the server checks the permission before it refuses that.
    pub(super) words: &'static [Word],
}

const fn need(name: &'static str, without: Without, words: &'static [Word]) -> Need {
    Need {
        part: Part { name, without },
        words,
    }
}

use Without::{NoCache, NoLocks, Unseen, Worse};

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
pub(super) fn place(words: &[Word]) -> Option<Part> {
    let part = |name, without| Some(Part { name, without });
    words.iter().find_map(|word| match word {
        Text(_) => None,
        Key => part("~leasehold:doctor:*", NoLocks),
        Set | Hash => part("~{leasehold:doctor:*}:lh-*", NoLocks),
        Index => part("~leasehold:index", Worse),
        Channel => part("&leasehold:wake:*", Worse),
    })
}

/// All of them, for the features of this build. AUTH and HELLO need no permission.
pub(super) fn needs() -> impl Iterator<Item = &'static Need> {
    let entries: &[Need] = if cfg!(feature = "cache") {
        ENTRIES
    } else {
        &[]
    };
    LOCKS.iter().chain(entries)
}

/// Of locks, the connection and the doctor.
#[rustfmt::skip]
const LOCKS: &[Need] = &[
    need("eval", NoLocks, &[Text("EVAL"), Text("return 1"), Text("0")]),
    need("evalsha", Worse, &[Text("EVALSHA"), Text("e0e1f9fabfc9d4800c877a703b823ac0578ff8db"), Text("0")]),
    need("exists", NoLocks, &[Text("EXISTS"), Index]),
    need("get", NoLocks, &[Text("GET"), Key]),
    need("mget", NoLocks, &[Text("MGET"), Key]),
    need("getrange", NoLocks, &[Text("GETRANGE"), Key, Text("0"), Text("0")]),
    need("set", NoLocks, &[Text("SET"), Key, Text("0"), Text("XX"), Text("PX"), Text("5000")]),
    need("del", NoLocks, &[Text("DEL"), Key]),
    need("pexpire", NoLocks, &[Text("PEXPIRE"), Key, Text("5000")]),
    need("pttl", NoLocks, &[Text("PTTL"), Key]),
    need("time", NoLocks, &[Text("TIME")]),
    need("zadd", NoLocks, &[Text("ZADD"), Set, Text("XX"), Text("1"), Text("x")]),
    need("zcard", NoLocks, &[Text("ZCARD"), Set]),
    need("zrange", NoLocks, &[Text("ZRANGE"), Set, Text("0"), Text("0")]),
    need("zrank", NoLocks, &[Text("ZRANK"), Set, Text("x")]),
    need("zrem", NoLocks, &[Text("ZREM"), Set, Text("x")]),
    need("hget", NoLocks, &[Text("HGET"), Hash, Text("x")]),
    need("hset", NoLocks, &[Text("HSET"), Hash, Text("x"), Text("x"), Text("x")]),
    need("hdel", NoLocks, &[Text("HDEL"), Hash, Text("x")]),
    need("type", Worse, &[Text("TYPE"), Key]),
    need("zremrangebyscore", Worse, &[Text("ZREMRANGEBYSCORE"), Set, Text("0"), Text("0")]),
    need("publish", Worse, &[Text("PUBLISH"), Channel, Text("doctor")]),
    need("pubsub|numsub", Worse, &[Text("PUBSUB"), Text("NUMSUB"), Channel]),
    need("subscribe", Worse, &[]),
    need("role", Worse, &[Text("ROLE")]),
    need("script|exists", Worse, &[Text("SCRIPT"), Text("EXISTS"), Text("e0e1f9fabfc9d4800c877a703b823ac0578ff8db")]),
    need("script|load", Worse, &[Text("SCRIPT"), Text("LOAD"), Text("return 1")]),
    // As old as the command itself; it names the library in CLIENT LIST.
    need("client|setinfo", Unseen, &[]),
    need("select", NoLocks, &[]),
    need("ping", Unseen, &[]),
    // The doctor misses most. A connection does not know which server it leads to: each new one may lead to another.
    need("info", Unseen, &[]),
];

/// Of cache entries, beyond that. `CLIENT` changes this connection only, which ends with the examination; an empty
/// SETRANGE makes no key.
#[rustfmt::skip]
const ENTRIES: &[Need] = &[
    need("setrange", NoCache, &[Text("SETRANGE"), Key, Text("0"), Text("")]),
    need("hmget", NoCache, &[Text("HMGET"), Hash, Text("x")]),
    need("hkeys", NoCache, &[Text("HKEYS"), Hash]),
    // Without it, no notice drops a changed value from the process.
    need("client|tracking", NoCache, &[Text("CLIENT"), Text("TRACKING"), Text("OFF")]),
    need("client|caching", NoCache, &[Text("CLIENT"), Text("CACHING"), Text("YES")]),
];

/// The inputs of the ACL rule.
#[derive(Debug)]
pub(super) struct For<'a> {
    /// The version of Redis whose commands the server has; `None` if it does not say.
    pub(super) version: Option<(u32, u32)>,
    /// The number of the database.
    pub(super) database: i64,
    /// The keys of the locks, as a pattern.
    pub(super) keys: &'a str,
}

/// The ACL rule of a user with the permissions that locks and cache entries need, and no others. An older server refuses the whole rule for one
/// command that it does not know.
pub(super) fn line(what: &For<'_>) -> String {
    let is_wanted = |need: &&Need| match need.part.name {
        "client|setinfo" => what.version.is_some_and(|version| version >= (7, 2)),
        "select" => what.database != 0,
        _ => true,
    };
    let commands: Vec<String> = needs()
        .filter(is_wanted)
        .map(|need| format!("+{}", need.part.name))
        .collect();
    format!(
        "ACL SETUSER leasehold on >SECRET resetkeys {} resetchannels &leasehold:wake:* -@all {}",
        keys(what.keys),
        commands.join(" ")
    )
}

/// The rule for a user of a quorum's nodes, which have keys of their own for marks and counters.
pub(super) fn of_node(line: &str) -> String {
    line.replacen(COUNTER_KEY, &format!("{COUNTER_KEY}~leasehold:quorum* "), 1)
}

/// The key of the counter in a rule.
const COUNTER_KEY: &str = "~leasehold:fence ";

/// The locks' own keys, those beside them, the fence counter, and those of the index and the doctor.
fn keys(pattern: &str) -> String {
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
        let line = line(&For {
            version: None,
            database: 0,
            keys: "jobs:*",
        });
        assert!(of_node(&line).contains(" ~leasehold:fence ~leasehold:quorum* ~leasehold:index "));
    }

    fn parts() -> BTreeSet<&'static str> {
        needs().map(|need| need.part.name).collect()
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
        let lua = if cfg!(feature = "cache") {
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
        if cfg!(feature = "cache") {
            by_rust.extend(of_entries);
            by_rust.sort_unstable();
        }
        assert_eq!(beyond, by_rust);
    }

    /// The rules of `leasehold doctor` judge a missing command by this.
    #[test]
    fn missing_commands_have_their_consequence() {
        let without = |name: &str| {
            let need = needs().find(|need| need.part.name == name);
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
        if cfg!(feature = "cache") {
            assert_eq!(without("hmget"), Some(NoCache));
            assert_eq!(without("client|tracking"), Some(NoCache));
        }
    }

    #[test]
    fn the_line_has_what_the_server_knows() {
        let line = |version, database, keys| {
            line(&For {
                version,
                database,
                keys,
            })
        };
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
