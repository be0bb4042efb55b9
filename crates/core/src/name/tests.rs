use std::hash::{BuildHasher, RandomState};

use proptest::prelude::*;

use super::*;

/// What Redis hashes of a key: the first non-empty tag, else all of it.
fn hashed(key: &str) -> &str {
    let Some(open) = key.find('{') else {
        return key;
    };
    match key[open + 1..].find('}') {
        Some(length) if length > 0 => &key[open + 1..open + 1 + length],
        _ => key,
    }
}

#[test]
fn invalid_key_is_refused_and_named() {
    let long = "x".repeat(513);
    for bad in [
        "",
        &long,
        "a\nb",
        "a\u{7f}",
        "{}",
        "{}x",
        "}x{",
        "a{b",
        "a}b",
        "{a}",
        "{a}{b}x",
        "{a}}x",
        "{{a}x",
        "x:lh-queue",
        "leasehold:index",
        "leasehold:fence",
    ] {
        let refused = LockName::new(bad).unwrap_err();
        assert_eq!(refused.what, "lock name");
        assert!(refused.to_string().len() < 400, "{refused}");
    }
    for good in [
        "a",
        "orders:42",
        "{user}:42",
        "x{y}",
        "ключ",
        &"x".repeat(512),
    ] {
        assert_eq!(LockName::new(good).unwrap().as_str(), good);
    }
}

proptest! {
    #[test]
    fn all_keys_of_a_name_share_a_slot(name in "[a-c:{}]{1,8}") {
        if let Ok(name) = LockName::new(&name) {
            for suffix in RESERVED_SUFFIXES {
                let beside = name.beside(suffix);
                prop_assert_eq!(hashed(name.key()), hashed(&beside));
            }
        }
    }

    #[test]
    fn no_two_names_share_a_key(a in "[a-b{}]{1,5}", b in "[a-b{}]{1,5}") {
        if let (Ok(left), Ok(right)) = (LockName::new(&a), LockName::new(&b)) && a != b {
            prop_assert_ne!(left.key(), right.key());
            prop_assert_ne!(left.beside(":lh-queue"), right.beside(":lh-queue"));
        }
    }
}

#[test]
fn names_differ_as_their_keys_do() {
    let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
    assert_ne!(a, b);
    assert_eq!(a.partial_cmp(&b), Some(Ordering::Less));
    let random = RandomState::new();
    assert_ne!(random.hash_one(&a), random.hash_one(&b));
    assert_eq!(a.to_string(), "a");
}

#[test]
fn namespace_and_template_are_shown_as_written() {
    assert_eq!(Namespace::new("prod").unwrap().as_str(), "prod");
    assert_eq!(KeyTemplate::new("lock:{}").unwrap().as_str(), "lock:{}");
}

fn naming(template: Option<&str>, namespace: Option<&str>) -> Naming {
    let template = template.map(|text| KeyTemplate::new(text).unwrap());
    let namespace = namespace.map(|text| Namespace::new(text).unwrap());
    Naming::new(template.as_ref(), namespace.as_ref())
}

#[test]
fn a_namespace_is_a_prefix_of_the_key_and_not_of_the_name() {
    let name = naming(None, Some("prod")).name("{user}:42").unwrap();
    assert_eq!((name.as_str(), name.key()), ("{user}:42", "prod:{user}:42"));
    // A store keeps one lock per key, however the key was composed.
    assert_eq!(name, LockName::new("prod:{user}:42").unwrap());
    assert_eq!(name, LockName::from_key(name.key()));
    naming(None, Some("leasehold")).name("index").unwrap_err();
    for bad in ["", "a{", "a\n", &"n".repeat(129)] {
        Namespace::new(bad).unwrap_err();
    }
}

#[test]
fn a_template_stands_around_the_namespace_and_the_name() {
    for (template, namespace, name, key, fence) in [
        (None, None, "x", "x", "{x}:lh-fence"),
        (Some("{}"), None, "x", "x", "{x}:lh-fence"),
        (Some("lock:{}"), None, "x", "lock:x", "{lock:x}:lh-fence"),
        (Some("a:{}:b"), None, "x", "a:x:b", "{a:x:b}:lh-fence"),
        (
            Some("lock:{}"),
            Some("prod"),
            "x",
            "lock:prod:x",
            "{lock:prod:x}:lh-fence",
        ),
        (
            Some("lock:{}"),
            None,
            "{u}:4",
            "lock:{u}:4",
            "lock:{u}:4:lh-fence",
        ),
    ] {
        let naming = naming(template, namespace);
        let lock = naming.name(name).unwrap();
        assert_eq!((lock.as_str(), lock.key()), (name, key));
        assert_eq!(lock.beside(":lh-fence"), fence);
        assert_eq!(naming.name_in(key), Some(name));
    }
    assert_eq!(naming(Some("lock:{}"), None).name_in("mutex:x"), None);
    assert_eq!(naming(Some("a:{}:b"), None).name_in("a:x:c"), None);
    assert_eq!(naming(Some("lock:{}"), None).name_in("lock:"), None);
    // A key of another client, which no name of this client has.
    assert_eq!(naming(Some("lock:{}"), None).name_in("lock:{u}"), None);
    assert_eq!(naming(None, None).name_in("x:lh-fence"), None);
}

#[test]
fn template_that_splits_or_shares_keys_is_refused_and_named() {
    let long = format!("{}{{}}", "x".repeat(127));
    for bad in [
        "",
        "lock:",
        "{lock}:",
        "{}{}",
        "{}:{}",
        "{{}}",
        "{a}:{}",
        "a}{}",
        "a\n{}",
        "{}:lh-fence",
        &long,
    ] {
        assert_eq!(
            KeyTemplate::new(bad).unwrap_err().what,
            "key template",
            "{bad}"
        );
    }
    // If only some names make the key invalid, the name is refused.
    naming(Some("{}fence"), None).name("x:lh-").unwrap_err();
    naming(Some("leasehold:{}"), None)
        .name("index")
        .unwrap_err();
    naming(Some("lock:{}"), None).name("x").unwrap();
}

#[test]
fn a_pattern_of_names_becomes_one_of_keys() {
    for (template, namespace, names, keys) in [
        (None, None, "jobs:*", "jobs:*"),
        (Some("lock:{}"), None, "jobs:*", "lock:jobs:*"),
        (Some("a:{}:b"), Some("prod"), "*", "a:prod:*:b"),
        (Some("[a] {}"), Some("b*"), "[xy]", "?a??b?:[xy]"),
    ] {
        assert_eq!(naming(template, namespace).pattern(names), keys);
    }
}

proptest! {
    #[test]
    fn with_a_template_all_keys_of_a_name_share_a_slot(name in "[a-c:{}]{1,8}", template in "[a-c:]{0,3}\\{\\}[a-c:]{0,3}") {
        let naming = naming(Some(&template), None);
        if let Ok(name) = naming.name(&name) {
            for suffix in RESERVED_SUFFIXES {
                let beside = name.beside(suffix);
                prop_assert_eq!(hashed(name.key()), hashed(&beside));
            }
        }
    }
}

/// Values from a real server: `CLUSTER KEYSLOT`.
#[test]
fn a_slot_is_that_of_the_hash_tag() {
    for (key, of) in [
        ("123456789", 12_739),
        ("foo", 12_182),
        ("{foo}.bar", 12_182),
        ("a{foo}b{other}", 12_182),
        ("{}foo", 9_500),
        ("foo{}{bar}", 8_363),
        ("foo{{bar}}zap", 4_015),
        ("{foo", 13_308),
        ("", 0),
    ] {
        assert_eq!(slot(key), of, "{key}");
    }
}

#[test]
fn the_keys_of_a_name_share_a_slot() {
    for name in ["orders", "{user}:42", "orders:{7}"] {
        let name = LockName::new(name).unwrap();
        let firing = [BEFORE_FIRING, "{x}"].concat();
        for suffix in RESERVED_SUFFIXES.iter().chain([&&*firing]) {
            assert_eq!(slot(&name.beside(suffix)), slot(name.key()));
        }
    }
}

#[test]
fn no_lock_has_the_key_of_a_firing_or_one_beside_it() {
    let nightly = LockName::new("nightly").unwrap();
    for firing in ["x", "lh-queue"] {
        let key = nightly.beside(&[BEFORE_FIRING, firing].concat());
        LockName::new(&key).unwrap_err();
        // As beside a lock of this name.
        LockName::new(key.trim_end_matches(":lh-queue")).unwrap_err();
    }
}
