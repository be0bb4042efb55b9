use std::collections::BTreeSet;

use super::*;
use crate::store::redis::scripts::Scripts;

#[test]
fn the_rule_of_a_node_has_its_own_keys() {
    let line = acl(None, &[], 0, "jobs:*", true);
    assert!(line.contains(" ~leasehold:fence ~leasehold:quorum* ~leasehold:index "));
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
    let lua = Scripts::default().all_texts();
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
        "delex",
        "delifeq",
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
    let old = acl(Some((7, 0)), &[], 0, "*", false);
    assert!(
        old.contains(" ~* ") && !old.contains("setinfo") && !old.contains("+select"),
        "{old}"
    );
    assert!(acl(Some((7, 2)), &[], 0, "*", false).contains("+client|setinfo"));
    assert!(!acl(None, &[], 0, "*", false).contains("+client|setinfo"));
    let known = ["wait".to_owned(), "delifeq".to_owned()];
    let new = acl(Some((7, 2)), &known, 0, "*", false);
    assert!(
        new.contains(" +delifeq ") && !new.contains("delex"),
        "{new}"
    );
    assert!(!old.contains("delifeq"), "{old}");
    assert!(!acl(None, &known, 0, "*", true).contains("delifeq"));
    let some = acl(Some((7, 0)), &[], 3, "jobs:*", false);
    for part in [
        " ~jobs:* ",
        " ~{jobs:*}:lh-* ",
        " ~leasehold:fence ~leasehold:index ",
        " +select",
    ] {
        assert!(some.contains(part), "{part}: {some}");
    }
    assert!(acl(None, &[], 0, "{a}:*", false).contains(" ~{a}:* ~{a}:*:lh-* "));
    assert!(acl(None, &[], 0, "a:*:b", false).contains(" ~a:*:b ~{a:*:b}:lh-* ~a:*:b:lh-* "));
}
