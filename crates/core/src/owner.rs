//! The owner of an acquisition. Two acquisitions never compare equal.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::fence::Fence;
use crate::invalid::Invalid;

/// How many bytes of a foreign value are read. A foreign value may have megabytes; every token of this protocol is shorter.
pub const VALUE_SHOWN: usize = 1_024;

/// The part of `value` that others are shown.
pub(crate) fn shown(value: &[u8]) -> Vec<u8> {
    value[..value.len().min(VALUE_SHOWN)].to_vec()
}

/// The first characters of every token of this protocol.
const PREFIX: &str = "lh1.";

/// Separates a token from the fence of a hold; it occurs in no token.
const BEFORE_FENCE: char = '#';

/// The identity of a client: one process, one connection, one wake channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// A client id of 64 random bits.
    pub const fn new(random: u64) -> Self {
        Self(random)
    }

    /// The bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A host or a note of an owner: checked, and encoded as in a token. An empty one takes no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Label(Option<Arc<str>>);

impl Label {
    /// Checks `text`; `what` names it in the error.
    ///
    /// # Errors
    /// [`Invalid`] when it is longer than [`Owner::MAX_META_BYTES`].
    pub fn new(what: &'static str, text: &str) -> Result<Self, Invalid> {
        if text.len() > Owner::MAX_META_BYTES {
            let why = format!(
                "must be at most {} bytes, is {}",
                Owner::MAX_META_BYTES,
                text.len()
            );
            return Err(Invalid::new(what, text, why));
        }
        let mut encoded = String::with_capacity(text.len());
        encode(text, &mut encoded);
        Ok(Self((!encoded.is_empty()).then(|| encoded.into())))
    }

    fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The identity of one acquisition: 128 random bits, and information about the holder for people.
///
/// Its text is `lh1.<32 hex>.<16 hex client id>.<host>:<pid>:<note>`. The value of the lock's key begins with it, followed by
/// the fence. Owners are compared as whole texts.
/// In host and note, `%`, `:`, `#`, spaces, control characters and all characters outside ASCII are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

/// Half of the identity is enough: the last 64 bits differ in all owners of a client.
impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0.as_bytes()[PREFIX.len() + 16..PREFIX.len() + 32]);
    }
}

impl Owner {
    /// The longest host and the longest note, in bytes.
    pub const MAX_META_BYTES: usize = 128;

    /// An owner whose identity is `random`: bits that no other acquisition has.
    ///
    /// # Errors
    /// [`Invalid`] when host or note is longer than [`Owner::MAX_META_BYTES`].
    pub fn new(
        random: u128,
        client: ClientId,
        host: &str,
        pid: u32,
        note: &str,
    ) -> Result<Self, Invalid> {
        let (host, note) = (Label::new("host", host)?, Label::new("note", note)?);
        Ok(Self::labelled(random, client, &host, pid, &note))
    }

    /// An owner made of labels that were checked before.
    pub fn labelled(random: u128, client: ClientId, host: &Label, pid: u32, note: &Label) -> Self {
        let (host, note) = (host.text(), note.text());
        Self(format!("{PREFIX}{random:032x}.{client}.{host}:{pid}:{note}").into())
    }

    /// The owner of another acquisition by the client of this one. Its identity is `random`, and its text is put together in `room`.
    /// Each acquisition makes one, so this goes without `fmt` and allocates the result only.
    #[must_use]
    pub fn another(&self, random: u128, note: &Label, room: &mut String) -> Self {
        let rest = &self.0[PREFIX.len() + 32..];
        let (client, _) = rest.rsplit_once(':').unwrap_or_default();
        let digits = hex(random.to_be_bytes());
        let digits = std::str::from_utf8(digits.as_flattened()).unwrap_or_default();
        room.clear();
        for part in [PREFIX, digits, client, ":", note.text()] {
            room.push_str(part);
        }
        Self(room.as_str().into())
    }

    /// Parses a token; `None` if it is not a token of this protocol.
    pub fn parse(token: &str) -> Option<Self> {
        let mut parts = token.strip_prefix(PREFIX)?.splitn(3, '.');
        let (id, client, meta) = (parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        // Only digits, as in the scripts: `parse` would also accept a sign.
        let numbered = meta
            .split(':')
            .nth(1)
            .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
        let complete = token.len() < VALUE_SHOWN
            && hex(id, 32)
            && hex(client, 16)
            && meta.split(':').count() == 3
            && numbered
            && meta.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        complete.then(|| Self(token.into()))
    }

    /// The whole token, as stores keep and compare it.
    pub fn token(&self) -> &str {
        &self.0
    }

    /// The token and the fence of a hold, `<token>#<fence>`. With it, one can extend or release that hold, and no other hold of
    /// this owner.
    pub fn with_fence(&self, fence: Fence) -> String {
        format!("{}{BEFORE_FENCE}{fence}", self.token())
    }

    /// Parses the text of [`Owner::with_fence`]; `None` for anything else, including a token without a fence.
    pub fn parse_with_fence(text: &str) -> Option<(Self, Fence)> {
        let (token, digits) = text.split_once(BEFORE_FENCE)?;
        let (owner, fence) = (Self::parse(token)?, digits.parse::<Fence>().ok()?);
        // Each number has one notation only.
        (fence.to_string() == digits).then_some((owner, fence))
    }

    /// The 32 hexadecimal digits that make this acquisition unique.
    pub fn id(&self) -> &str {
        &self.0[PREFIX.len()..PREFIX.len() + 32]
    }

    /// The client this acquisition belongs to.
    pub fn client(&self) -> ClientId {
        let start = PREFIX.len() + 33;
        ClientId(u64::from_str_radix(&self.0[start..start + 16], 16).unwrap_or_default())
    }

    /// The host it runs on, with the user if known: `deploy@web-3`.
    pub fn host(&self) -> String {
        decode(self.meta().next().unwrap_or_default())
    }

    /// Its process id on that host.
    pub fn pid(&self) -> u32 {
        self.meta()
            .nth(1)
            .and_then(|pid| pid.parse().ok())
            .unwrap_or_default()
    }

    /// The note: the holder's description of its work; may be empty.
    pub fn note(&self) -> String {
        decode(self.meta().nth(2).unwrap_or_default())
    }

    fn meta(&self) -> impl Iterator<Item = &str> {
        self.0[PREFIX.len() + 50..].split(':')
    }
}

/// For people: `deploy@web-3 (pid 4121: nightly)`. Control characters were encoded and stay escaped.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = self.note();
        write!(f, "{} (pid {}", self.host().escape_debug(), self.pid())?;
        if !note.is_empty() {
            write!(f, ": {}", note.escape_debug())?;
        }
        f.write_char(')')
    }
}

/// The hexadecimal digits of these bytes.
fn hex(bytes: [u8; 16]) -> [[u8; 2]; 16] {
    let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
    bytes.map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
}

fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"%:#".contains(&byte) {
            into.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _infallible = write!(into, "%{byte:02x}");
        }
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%').then(|| tail.get(..2)).flatten();
        let value = escaped
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_as_a_person_would_say_it() {
        let owner = Owner::new(
            5,
            ClientId::new(9),
            "deploy@web-3.example",
            41,
            "v2.3: roll out",
        )
        .unwrap();
        assert_eq!(
            owner.to_string(),
            "deploy@web-3.example (pid 41: v2.3: roll out)"
        );
        assert_eq!(
            owner.token(),
            "lh1.00000000000000000000000000000005.0000000000000009.deploy@web-3.example:41:v2.3%3a%20roll%20out"
        );
        assert_eq!((owner.client(), owner.pid()), (ClientId::new(9), 41));
        assert_eq!(owner.id(), "00000000000000000000000000000005");
        Owner::new(5, ClientId::new(9), "h", 1, &"n".repeat(129)).unwrap_err();
    }

    #[test]
    fn another_owner_of_a_client_differs_in_bits_and_note() {
        let of = |random, note| Owner::new(random, ClientId::new(9), "a@b:c", 41, note).unwrap();
        let mut room = String::from("before");
        for (random, note) in [(6, ""), (u128::MAX - 0xabc, "x: y"), (7, "z")] {
            let label = Label::new("note", note).unwrap();
            let another = of(5, "first: one").another(random, &label, &mut room);
            assert_eq!(another, of(random, note));
        }
    }

    #[test]
    fn foreign_tokens_are_not_ours() {
        for foreign in [
            "",
            "lh1.",
            "lh1.x.y.z",
            "d2f1c9a08c3b11ef9d3c0242ac120002",
            "lh1.05.0000000000000009.h:1:",
            "lh1.0000000000000000000000000000000g.0000000000000009.h:1:",
            "lh1.00000000000000000000000000000005.0000000000000009.h",
            "lh1.00000000000000000000000000000005.0000000000000009.h:+1:",
            "lh1.00000000000000000000000000000005.0000000000000009.h::",
            "lh1.00000000000000000000000000000005.0000000000000009.h:1:a b",
            "lh1.00000000000000000000000000000005.0000000000000009.h:1:#7",
        ] {
            assert_eq!(Owner::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_token_is_shorter_than_what_is_read_of_a_value() {
        let short = Owner::new(5, ClientId::new(9), "h", 1, "").unwrap();
        let of = |length| format!("{:n<length$}", short.token());
        Owner::parse(&of(VALUE_SHOWN - 1)).unwrap();
        assert_eq!(Owner::parse(&of(VALUE_SHOWN)), None);
    }

    #[test]
    fn owners_are_told_apart_by_their_hash() {
        let of = |random| Owner::new(random, ClientId::new(9), "h", 1, "").unwrap();
        let hasher = RandomState::new();
        assert_ne!(hasher.hash_one(of(5)), hasher.hash_one(of(6)));
        assert_eq!(hasher.hash_one(of(5)), hasher.hash_one(of(5)));
    }

    #[test]
    fn a_token_with_a_fence_is_read_whole_or_not_at_all() {
        let owner = Owner::new(5, ClientId::new(9), "h", 1, "fix #12").unwrap();
        let token = owner.token();
        assert!(token.ends_with("fix%20%2312"), "{token}");
        let text = owner.with_fence(Fence::new(7));
        assert_eq!(text, format!("{token}#7"));
        assert_eq!(
            Owner::parse_with_fence(&text),
            Some((owner.clone(), Fence::new(7)))
        );
        for fence in [
            "",
            "#",
            "#07",
            "#+7",
            "#7 ",
            "#x",
            "#7#7",
            "#9007199254740992",
        ] {
            let text = format!("{token}{fence}");
            assert_eq!(Owner::parse_with_fence(&text), None, "{text}");
        }
        assert_eq!(Owner::parse_with_fence("#7"), None);
    }

    proptest! {
        #[test]
        fn tokens_round_trip(random: u128, client: u64, host in ".{0,20}", pid: u32, note in ".{0,20}") {
            let owner = Owner::new(random, ClientId::new(client), &host, pid, &note).unwrap();
            let again = Owner::parse(owner.token()).unwrap();
            prop_assert_eq!(again.client(), ClientId::new(client));
            prop_assert_eq!((again.host(), again.pid(), again.note()), (host, pid, note));
            prop_assert!(again.token().bytes().all(|b| b.is_ascii_graphic()));
        }
    }
}
