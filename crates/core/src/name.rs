//! Lock names. Must never let two names share a key, or the keys of one name land in two slots of a cluster.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::Invalid;

/// Ends of the auxiliary keys; a lock may not be called like one.
pub const RESERVED_SUFFIXES: [&str; 4] = [":lh-fence", ":lh-queue", ":lh-waiters", ":lh-holders"];

/// The key that lists names worth showing; a lock may not be called like it.
const INDEX: &str = "leasehold:index";

/// A prefix for every lock of a client: 1 to 128 bytes, no control characters, no braces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks the rules above.
    ///
    /// # Errors
    /// [`Invalid`], naming the input.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        const WHAT: &str = "namespace";
        if text.is_empty() || text.len() > 128 {
            return Err(Invalid::new(
                WHAT,
                text,
                format!("must be 1 to 128 bytes, is {}", text.len()),
            ));
        }
        if text.chars().any(|c| c.is_control() || c == '{' || c == '}') {
            return Err(Invalid::new(
                WHAT,
                text,
                "must not hold control characters or braces",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The prefix, without its colon.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The checked name of a lock: 1 to 512 bytes of UTF-8, no control characters, braces only as one cluster hash tag.
///
/// A tag (`{user}:42`) must enclose at least one character and must not be the whole name: `{a}` and `a` would share
/// their auxiliary keys.
///
/// Two names are the same when their keys are, wherever a namespace ends: `b` within `a` is `a:b`.
#[derive(Debug, Clone)]
pub struct LockName {
    /// Namespace, colon and name: what stores use as the key.
    key: Arc<str>,
    /// Where the name begins in `key`.
    start: usize,
}

impl LockName {
    /// The longest name, in bytes, without its namespace.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name that stands alone.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        check(name)?;
        Ok(Self {
            key: name.into(),
            start: 0,
        })
    }

    /// Checks a name inside of a namespace.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn within(namespace: &Namespace, name: &str) -> Result<Self, Invalid> {
        check(name)?;
        let key = format!("{}:{name}", namespace.0);
        if key == INDEX {
            return Err(reserved(name));
        }
        Ok(Self {
            key: key.into(),
            start: namespace.0.len() + 1,
        })
    }

    /// The name whose [`LockName::key`] is `key`, as a store gives it back. Not checked: it was, on the way in.
    pub fn from_key(key: &str) -> Self {
        Self {
            key: key.into(),
            start: 0,
        }
    }

    /// The name as the user typed it.
    pub fn as_str(&self) -> &str {
        &self.key[self.start..]
    }

    /// The name with its namespace: the key that holds the lock itself.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key of something kept beside the lock, in the same slot of a cluster. `suffix` is one of [`RESERVED_SUFFIXES`].
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
    if name == INDEX
        || RESERVED_SUFFIXES
            .iter()
            .any(|suffix| name.ends_with(suffix))
    {
        return Err(reserved(name));
    }
    Ok(())
}

fn reserved(name: &str) -> Invalid {
    let why = "is the name of a key that locks keep beside them; choose another";
    Invalid::new("lock name", name, why)
}

/// One `{`, then at least one character, then one `}`, and something outside of them.
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
    fn refuses_what_cannot_be_a_key_and_names_it() {
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

    #[test]
    fn a_namespace_is_a_prefix_of_the_key_and_not_of_the_name() {
        let namespace = Namespace::new("prod").unwrap();
        let name = LockName::within(&namespace, "{user}:42").unwrap();
        assert_eq!((name.as_str(), name.key()), ("{user}:42", "prod:{user}:42"));
        // A store keeps one lock for one key, however the name was put together.
        assert_eq!(name, LockName::new("prod:{user}:42").unwrap());
        assert_eq!(name, LockName::from_key(name.key()));
        let ours = Namespace::new("leasehold").unwrap();
        LockName::within(&ours, "index").unwrap_err();
        for bad in ["", "a{", "a\n", &"n".repeat(129)] {
            Namespace::new(bad).unwrap_err();
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
