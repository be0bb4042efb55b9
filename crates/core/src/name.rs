//! Lock names, and the text around a name in its key: namespaces and key templates.
//!
//! Two names of one client never share a key, and all keys of a name are in one slot of a cluster.

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

/// Stands between the name of a lock and a [firing](crate::once::Firing) in the key of the firing. A lock name must not have it, not even
/// at its end: keys beside such a lock would be those of firings.
pub const BEFORE_FIRING: &str = ":lh-once:";

/// The keys of the name index, of the fence counter and of a quorum's mark; a lock must not have one of these names.
const SHARED: [&str; 3] = ["leasehold:index", "leasehold:fence", "leasehold:quorum"];

/// How the keys of the counters of a cluster and of a quorum begin.
const COUNTERS: [&str; 2] = ["leasehold:fence:", "leasehold:quorum:"];

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// The slot of a key in a cluster: CRC-16/XMODEM of its hash tag, if it has one, else of the whole key, modulo 16,384
/// (the specification of Redis Cluster, *hash tags*).
pub fn slot(key: &str) -> u16 {
    let tagged = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tagged.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    crc16(hashed.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
pub(crate) fn crc16(text: &str) -> u16 {
    text.bytes().fold(0, |crc, byte| {
        (crc << 8) ^ CRC[usize::from((crc >> 8) ^ u16::from(byte))]
    })
}

/// The remainders that [`crc16`] looks up: one for each value of its upper byte.
const CRC: [u16; 256] = {
    let (mut table, mut at, mut byte) = ([0; 256], 0, 0_u16);
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ (0x1021 * (crc >> 15));
            bit += 1;
        }
        table[at] = crc;
        (at, byte) = (at + 1, byte + 1);
    }
    table
};

/// The checked name of a lock: 1 to 512 bytes of UTF-8, no control characters, braces only as one cluster hash tag.
///
/// A tag (`{user}:42`) must enclose at least one character and must not be the whole name: `{a}` and `a` would share
/// their auxiliary keys.
///
/// Two names are equal when their keys are equal, wherever a namespace ends: `b` within `a` equals `a:b`.
#[derive(Debug, Clone)]
pub struct LockName {
    /// The name with the prefix and suffix of a client's [`Naming`]: the key in the store.
    key: Arc<str>,
    /// The range of the name in `key`. Small, since each lease has several of these.
    at: Range<u32>,
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
            at: offset(before.len())..offset(before.len() + name.len()),
        })
    }

    /// The name whose [`LockName::key`] is `key`, as a store returns it. It was checked when it was stored.
    pub fn from_key(key: &str) -> Self {
        Self {
            key: key.into(),
            at: 0..offset(key.len()),
        }
    }

    /// The name as the user typed it.
    pub fn as_str(&self) -> &str {
        &self.key[self.at.start as usize..self.at.end as usize]
    }

    /// The name with its namespace and template: the key that holds the lock itself.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key of auxiliary data of this lock, in the same slot of a cluster. `suffix` is one of [`RESERVED_SUFFIXES`].
    pub fn beside(&self, suffix: &str) -> String {
        self.beside_in_parts(suffix).concat()
    }

    /// The key of [`LockName::beside`], as parts that follow each other.
    pub fn beside_in_parts<'a>(&'a self, suffix: &'a str) -> [&'a str; 4] {
        let [open, close] = if self.key.contains('{') {
            ["", ""]
        } else {
            ["{", "}"]
        };
        [open, &self.key, close, suffix]
    }
}

/// An offset in a key, which no store lets grow to 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
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
        || COUNTERS.iter().any(|begin| key.starts_with(begin))
        || RESERVED_SUFFIXES.iter().any(|suffix| key.ends_with(suffix))
        || key.contains(BEFORE_FIRING.trim_end_matches(':'))
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

/// A prefix for every lock of a client: 1 to 128 bytes, no control characters, no braces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks the rules above.
    ///
    /// # Errors
    /// [`Invalid`], naming the input.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let refuse = |why: String| Err(Invalid::new("namespace", text, why));
        if text.is_empty() || text.len() > 128 {
            return refuse(format!("must be 1 to 128 bytes, is {}", text.len()));
        }
        if text.chars().any(|c| c.is_control() || c == '{' || c == '}') {
            return refuse("must not hold control characters or braces".into());
        }
        Ok(Self(text.into()))
    }

    /// The prefix, without its colon.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of a lock as other programs write it, with `{}` for its name: `lock:{}`. 2 to 128 bytes, `{}` exactly once, no other
/// braces, no control characters.
///
/// It goes around the namespace: `x` within the namespace `prod` has the key `lock:prod:x`. A hash tag belongs in the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyTemplate {
    text: Arc<str>,
    /// Where `{}` begins.
    at: usize,
}

/// The place of the name.
const PLACE: &str = "{}";

impl KeyTemplate {
    /// Checks the rules above.
    ///
    /// # Errors
    /// [`Invalid`], naming the input.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let refuse = |why: String| Err(Invalid::new("key template", text, why));
        if text.len() > 128 {
            return refuse(format!("must be at most 128 bytes, is {}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return refuse("must not hold control characters".into());
        }
        let Some(at) = text.find(PLACE) else {
            return refuse("must say where the name stands, as in lock:{}".into());
        };
        let template = Self {
            text: text.into(),
            at,
        };
        if template.before().contains(['{', '}']) || template.after().contains(['{', '}']) {
            return refuse(
                "must have {} once and no other braces; a hash tag belongs in the name".into(),
            );
        }
        // Keys with these suffixes belong to other locks, so every name would be refused.
        if LockName::between(template.before(), "name", template.after()).is_err() {
            return refuse("ends like a key that locks keep beside them".into());
        }
        Ok(template)
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn before(&self) -> &str {
        &self.text[..self.at]
    }

    fn after(&self) -> &str {
        &self.text[self.at + PLACE.len()..]
    }
}

/// The mapping between the names of a client and its keys.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    before: String,
    after: String,
}

impl Naming {
    /// The template around the namespace around the name; by default the key is the name.
    pub fn new(template: Option<&KeyTemplate>, namespace: Option<&Namespace>) -> Self {
        let (before, after) = template.map_or(("", ""), |t| (t.before(), t.after()));
        let within = namespace.map_or(String::new(), |namespace| format!("{}:", namespace.0));
        Self {
            before: before.to_owned() + &within,
            after: after.to_owned(),
        }
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn name(&self, name: &str) -> Result<LockName, Invalid> {
        LockName::between(&self.before, name, &self.after)
    }

    /// The name that has this key; `None` if no name of this client has it.
    pub fn name_in<'key>(&self, key: &'key str) -> Option<&'key str> {
        let name = key
            .strip_prefix(&*self.before)?
            .strip_suffix(&*self.after)?;
        self.name(name).is_ok().then_some(name)
    }

    /// The Redis pattern for the keys of all names that match the pattern `names`. Namespace and template are matched literally;
    /// a character of them that is special in a pattern, or ends a word of `redis-cli`, is matched by `?`.
    pub fn pattern(&self, names: &str) -> String {
        let means_more = |c: char| c.is_ascii_whitespace() || r#"*?[]\"'"#.contains(c);
        let literal = |text: &str| text.replace(means_more, "?");
        [&literal(&self.before), names, &literal(&self.after)].concat()
    }
}

#[cfg(test)]
mod tests;
