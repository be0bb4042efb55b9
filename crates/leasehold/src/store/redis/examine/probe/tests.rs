use std::collections::BTreeSet;

use leasehold_core::quorum::QuorumTerms;

use super::*;
use crate::store::redis::scripts::Scripts;

fn acl(version: Option<(u32, u32)>, known: &[&str], database: i64, keys: &str) -> String {
    let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    super::acl(version, &known, database, keys, Membership::Alone)
}

fn acl_of_node(known: &[String]) -> String {
    let terms = QuorumTerms {
        nodes: 3,
        longest_ttl: Ttl::new(Ttl::MAX).expect("a TTL"),
    };
    let terms = NodeTerms {
        terms,
        durable: false,
    };
    super::acl(None, known, 0, "jobs:*", Membership::Quorum(terms))
}

#[test]
fn the_rule_of_a_node_has_its_own_keys() {
    let line = acl_of_node(&[]);
    assert!(line.contains(" ~leasehold:fence ~leasehold:quorum* ~leasehold:index "));
}

#[test]
fn the_rule_in_a_cluster_has_counters_and_channels_of_slots() {
    let membership = Membership::Cluster {
        slots: &[],
        names: None,
    };
    let line = |version| super::acl(Some(version), &[], 0, "jobs:*", membership);
    let new = line((7, 0));
    assert!(
        new.contains(" ~leasehold:fence:* ~leasehold:index "),
        "{new}"
    );
    assert!(new.contains(" &leasehold:wake:* "), "{new}");
    let sharded = ["spublish", "pubsub|shardnumsub", "ssubscribe"];
    for command in ["cluster|slots", "asking"].iter().chain(&sharded) {
        assert!(new.contains(&format!(" +{command}")), "{command}: {new}");
    }
    for command in ["publish", "pubsub|numsub", "subscribe"] {
        assert!(!new.contains(&format!(" +{command}")), "{command}: {new}");
    }
    // Redis 6.2 refuses the whole line for a command that it does not know.
    let old = line((6, 2));
    assert!(old.contains(" +cluster|slots +asking"), "{old}");
    assert!(
        sharded.iter().all(|command| !old.contains(command)),
        "{old}"
    );
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
        let word = words.split('\'').next().unwrap().to_lowercase();
        // The part of it is a variable.
        if word != "pubsub" {
            found.insert(word);
        }
    }
    found
}

#[test]
fn every_command_of_the_scripts_is_needed() {
    let lua = Scripts::default().all_texts();
    let called = called(&lua);
    assert!(called.len() > 15, "{called:?}");
    let parts = parts();
    assert!(
        called.iter().all(|part| parts.contains(part.as_str())),
        "{called:?}"
    );
    // What a script chooses between, in a cluster and elsewhere.
    for word in ["PUBLISH", "SPUBLISH", "NUMSUB", "SHARDNUMSUB"] {
        assert!(lua.contains(&format!("'{word}'")), "{word}");
    }
    let beyond: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !called.contains(*part))
        .collect();
    let of_entries = ["client|caching", "client|tracking"];
    let mut by_rust = vec![
        "asking",
        "client|setinfo",
        "cluster|slots",
        "delex",
        "delifeq",
        "eval",
        "evalsha",
        "info",
        "ping",
        "publish",
        "pubsub|numsub",
        "pubsub|shardnumsub",
        "role",
        "script|exists",
        "script|load",
        "select",
        "spublish",
        "ssubscribe",
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
        "asking",
        "cluster|slots",
        "spublish",
        "pubsub|shardnumsub",
        "ssubscribe",
        "role",
        "evalsha",
        "script|load",
        "type",
    ] {
        assert_eq!(without(name), Some(Worse), "{name}");
    }
    for name in ["ping", "info", "client|setinfo", "delifeq", "delex"] {
        assert_eq!(without(name), Some(Unseen), "{name}");
    }
    if cfg!(feature = "entries") {
        assert_eq!(without("hmget"), Some(Without::NoCache));
        assert_eq!(without("client|tracking"), Some(Without::NoCache));
    }
}

#[test]
fn the_line_has_what_the_server_knows() {
    let old = acl(Some((7, 0)), &[], 0, "*");
    assert!(
        old.contains(" ~* ") && !old.contains("setinfo") && !old.contains("+select"),
        "{old}"
    );
    assert!(acl(Some((7, 2)), &[], 0, "*").contains("+client|setinfo"));
    assert!(!acl(None, &[], 0, "*").contains("+client|setinfo"));
    let known = ["wait", "delifeq"];
    let new = acl(Some((7, 2)), &known, 0, "*");
    assert!(
        new.contains(" +delifeq ") && !new.contains("delex"),
        "{new}"
    );
    assert!(!old.contains("delifeq"), "{old}");
    assert!(!acl_of_node(&["delifeq".to_owned()]).contains("delifeq"));
    let some = acl(Some((7, 0)), &[], 3, "jobs:*");
    for part in [
        " ~jobs:* ",
        " ~{jobs:*}:lh-* ",
        " ~leasehold:fence ~leasehold:index ",
        " +select",
    ] {
        assert!(some.contains(part), "{part}: {some}");
    }
    assert!(acl(None, &[], 0, "{a}:*").contains(" ~{a}:* ~{a}:*:lh-* "));
    assert!(acl(None, &[], 0, "a:*:b").contains(" ~a:*:b ~{a:*:b}:lh-* ~a:*:b:lh-* "));
}
