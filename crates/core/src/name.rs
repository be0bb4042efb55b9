//! Lock names. Two names never share a key, and all keys of one name are in one slot of a cluster.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::invalid::Invalid;

/// Suffixes of the auxiliary keys; a lock name must not end in one.
pub const RESERVED_SUFFIXES: [&str; 5] = [
    ":lh-fence",
    ":lh-queue",
    ":lh-waiters",
    ":lh-holders",
    ":lh-cache",
];

/// The keys of the name index, of the fence counter and of a quorum's mark; a lock must not have one of these names.
const SHARED: [&str; 3] = ["leasehold:index", "leasehold:fence", "leasehold:quorum"];

/// How the keys of a quorum's counters begin.
const COUNTERS: &str = "leasehold:quorum:";

/// The checked name of a lock: 1 to 512 bytes of UTF-8, no control characters, braces only as one cluster hash tag.
///
/// A tag (`{user}:42`) must enclose at least one character and must not be the whole name: `{a}` and `a` would share
/// their auxiliary keys.
///
/// Two names are equal when their keys are equal, wherever a namespace ends: `b` within `a` equals `a:b`.
#[derive(Debug, Clone)]
pub struct LockName {
    /// The name with the prefix and suffix of a client's [`Naming`](crate::Naming): the key in the store.
    key: Arc<str>,
    /// The range of the name in `key`.
    at: Range<usize>,
}

impl LockName {
    /// The longest name, in bytes, without namespace and template.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name that stands alone.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        Self::between("", name, "")
    }

    /// Checks a name and composes its key from `before` and `after`, neither with a brace.
    pub(crate) fn between(before: &str, name: &str, after: &str) -> Result<Self, Invalid> {
        check(name)?;
        let key = [before, name, after].concat();
        if is_reserved(&key) {
            return Err(reserved(name));
        }
        Ok(Self {
            key: key.into(),
            at: before.len()..before.len() + name.len(),
        })
    }

    /// The name whose [`LockName::key`] is `key`, as a store returns it. It was checked when it was stored.
    pub fn from_key(key: &str) -> Self {
        Self {
            key: key.into(),
            at: 0..key.len(),
        }
    }

    /// The name as the user typed it.
    pub fn as_str(&self) -> &str {
        &self.key[self.at.clone()]
    }

    /// The name with its namespace and template: the key that holds the lock itself.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key of auxiliary data of this lock, in the same slot of a cluster. `suffix` is one of [`RESERVED_SUFFIXES`].
    pub fn beside(&self, suffix: &str) -> String {
        if self.key.contains('{') {
            [&self.key, suffix].concat()
        } else {
            ["{", &self.key, "}", suffix].concat()
        }
    }
}

fn check(name: &str) -> Result<(), Invalid> {
    let refuse = |why: String| Err(Invalid::new("lock name", name, why));
    if name.is_empty() {
        return refuse("is empty; is a variable unset?".into());
    }
    if name.len() > LockName::MAX_BYTES {
        return refuse(format!(
            "must be at most {} bytes, is {}",
            LockName::MAX_BYTES,
            name.len()
        ));
    }
    if name.chars().any(char::is_control) {
        return refuse("must not hold control characters".into());
    }
    if name.contains(['{', '}']) && !has_one_tag(name) {
        return refuse("braces must form one hash tag around part of the name, as in {user}:42; or leave them out".into());
    }
    if is_reserved(name) {
        return Err(reserved(name));
    }
    Ok(())
}

fn is_reserved(key: &str) -> bool {
    SHARED.contains(&key)
        || key.starts_with(COUNTERS)
        || RESERVED_SUFFIXES.iter().any(|suffix| key.ends_with(suffix))
}

fn reserved(name: &str) -> Invalid {
    let why = "is the name of a key that locks keep beside them; choose another";
    Invalid::new("lock name", name, why)
}

/// True for one `{`, at least one character, one `}`, and something outside of them.
fn has_one_tag(name: &str) -> bool {
    let (Some(open), Some(close)) = (name.find('{'), name.find('}')) else {
        return false;
    };
    let single = name.rfind('{') == Some(open) && name.rfind('}') == Some(close);
    single && close > open + 1 && close - open + 1 < name.len()
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for LockName {}

impl PartialOrd for LockName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
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
}
