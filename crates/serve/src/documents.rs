//! The JSON documents of locks, as `docs/reference/json.md` describes them. The command writes them, and the server sends them.
//!
//! The value of a foreign lock may be a secret, so only a short prefix is shown. Of an owner, the first digits of its id are.

use std::fmt::{self, Write as _};
use std::time::Duration;

use humantime::{format_rfc3339_millis, format_rfc3339_seconds};
use leasehold::{
    Clock, Error, Fence, ForeignFormat, HolderIdentity, HolderView, NodeView, Owner, Snapshot,
};
use serde::Serialize;

use crate::look::InspectedLock;

/// The length of the prefix of a foreign value that is shown, and the minimal length of such a value.
const PREFIX: usize = 4;
const PREFIX_OF: usize = 4 * PREFIX;

/// The program name for cache entries of Leasehold.
const CACHE: &str = "leasehold cache";

/// The first digits of the owner's id. Others see no more: with all of them and the fence, a program could release the lock.
const ID: usize = 12;

/// The first digits of the id of an owner, by which it is named.
pub fn id(owner: &Owner) -> &str {
    let id = owner.id();
    id.get(..ID).unwrap_or(id)
}

/// True for a cache entry of Leasehold. It uses the same Redis key as a lock of that name:
/// `docs/reference/cache-protocol.md`.
pub fn is_cache_entry(kind: &str, value: &[u8]) -> bool {
    kind == "string" && value.starts_with(b"lhc1 ")
}

/// The program that a foreign lock looks like.
fn format(kind: &str, value: &[u8]) -> Option<&'static str> {
    if is_cache_entry(kind, value) {
        return Some(CACHE);
    }
    ForeignFormat::guess(kind, value).map(ForeignFormat::program)
}

/// A prefix that distinguishes two values and reveals neither.
pub fn prefix(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    (text.len() >= PREFIX_OF)
        .then(|| text.get(..PREFIX))
        .flatten()
}

/// The holder of a lock, as JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HolderJson {
    /// A Leasehold client.
    Leasehold(OwnerJson),
    /// Another program.
    Foreign {
        /// The type of the key.
        #[serde(rename = "type")]
        kind: String,
        /// The program it looks like, if any.
        format: Option<&'static str>,
        /// The first characters of its value, if it is long enough.
        prefix: Option<String>,
    },
}

/// The owner of a lease or of a place in the queue, as JSON.
#[derive(Debug, Serialize)]
pub struct OwnerJson {
    host: String,
    pid: u32,
    note: String,
    client: String,
    /// The first digits of its id.
    id: String,
}

impl OwnerJson {
    fn of(owner: &Owner) -> Self {
        Self {
            host: owner.host(),
            pid: owner.pid(),
            note: owner.note(),
            client: owner.client().to_string(),
            id: id(owner).to_owned(),
        }
    }
}

impl HolderJson {
    /// The document of this holder.
    pub fn of(who: &HolderIdentity) -> Self {
        match who {
            HolderIdentity::Owner(owner) => Self::Leasehold(OwnerJson::of(owner)),
            HolderIdentity::Foreign { kind, value } => Self::Foreign {
                kind: kind.clone(),
                format: format(kind, value),
                prefix: prefix(value).map(str::to_owned),
            },
        }
    }
}

/// A waiter in the queue, as JSON.
#[derive(Debug, Serialize)]
pub struct WaiterJson {
    place: usize,
    #[serde(flatten)]
    party: OwnerJson,
    mode: String,
    ttl_ms: u64,
    alive_for_ms: u64,
}

/// The holder of a lock, as fields of a JSON document. They are null for a free lock.
#[derive(Debug, Serialize)]
pub struct HolderFields {
    holder: Option<HolderJson>,
    fence: Option<u64>,
}

impl HolderFields {
    /// Those of this holder.
    pub fn of(holder: Option<&HolderView>) -> Self {
        Self {
            holder: holder.map(|holder| HolderJson::of(&holder.who)),
            fence: holder.and_then(|holder| holder.fence).map(Fence::get),
        }
    }
}

/// The holder of a lock and its lease, as fields of a JSON document. They are null for a free lock.
#[derive(Debug, Serialize)]
pub struct LeaseFields {
    #[serde(flatten)]
    holder: HolderFields,
    held_for_ms: Option<u64>,
    lease_ms: Option<u64>,
    /// How it holds: `exclusive`, `shared` or `slot/<how many>`.
    mode: Option<String>,
    /// The number of its slot.
    slot: Option<u16>,
}

impl LeaseFields {
    /// Those of this holder.
    pub fn of(holder: Option<&HolderView>) -> Self {
        Self {
            holder: HolderFields::of(holder),
            held_for_ms: holder.and_then(|holder| holder.held_for).map(millis),
            lease_ms: holder.and_then(|holder| holder.expires_in).map(millis),
            mode: holder.map(|holder| holder.mode.to_string()),
            slot: holder.and_then(|holder| holder.slot),
        }
    }
}

/// One lock, as JSON.
#[derive(Debug, Serialize)]
pub struct LockJson<'a> {
    name: &'a str,
    state: &'static str,
    #[serde(flatten)]
    lease: LeaseFields,
    /// The other holders of a lock that several hold, and how many more there are.
    others: Vec<LeaseFields>,
    others_omitted: u32,
    queue: Vec<WaiterJson>,
}

impl<'a> LockJson<'a> {
    /// The document of a lock that was inspected.
    pub fn of(name: &'a str, snapshot: &Snapshot) -> Self {
        let queue = snapshot.queue.iter().enumerate();
        Self {
            name,
            state: state(snapshot),
            lease: LeaseFields::of(snapshot.holder.as_ref()),
            others: (snapshot.others.iter().map(Some).map(LeaseFields::of)).collect(),
            others_omitted: snapshot.omitted,
            queue: queue
                .map(|(ahead, waiter)| WaiterJson {
                    place: ahead + 1,
                    party: OwnerJson::of(&waiter.owner),
                    mode: waiter.mode.to_string(),
                    ttl_ms: waiter.ttl.millis(),
                    alive_for_ms: millis(waiter.seen_for),
                })
                .collect(),
        }
    }
}

/// A lock as one node of a quorum sees it, as JSON.
#[derive(Debug, Serialize)]
pub struct NodeJson<'a> {
    node: &'a str,
    state: &'static str,
    #[serde(flatten)]
    holder: HolderFields,
    lease_ms: Option<u64>,
    /// The number of waiters; `None` if the node did not tell.
    queue: Option<usize>,
    error: Option<String>,
}

impl<'a> NodeJson<'a> {
    /// The document of this view.
    pub fn of(view: &'a NodeView) -> Self {
        let seen = view.seen.as_ref();
        let holder = seen.ok().and_then(|seen| seen.holder.as_ref());
        Self {
            node: &view.node,
            state: seen.map_or("unknown", state),
            holder: HolderFields::of(holder),
            lease_ms: holder.and_then(|holder| holder.expires_in).map(millis),
            queue: seen.ok().map(|seen| seen.queue.len()),
            error: seen.err().map(ToString::to_string),
        }
    }
}

/// `held` or `free`.
pub fn state(snapshot: &Snapshot) -> &'static str {
    if snapshot.holder.is_some() {
        "held"
    } else {
        "free"
    }
}

/// A duration in whole milliseconds, the unit of all durations in JSON.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The document `leasehold.inspect/1`.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.inspect/1")]
pub struct InspectReport<'a> {
    /// The address of the store.
    pub store: &'a str,
    /// The locks.
    pub locks: Vec<InspectEntry<'a>>,
    /// How many were left out by a limit.
    pub omitted: usize,
    /// How many names of the index this user may not look at.
    pub hidden: usize,
}

/// One of its locks.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum InspectEntry<'a> {
    /// Its state is known.
    Known {
        /// Its state.
        #[serde(flatten)]
        lock: Box<LockJson<'a>>,
        /// The views of the nodes of a quorum.
        nodes: Option<Vec<NodeJson<'a>>>,
    },
    /// The store gave no verdict about it.
    Unknown {
        /// Its name.
        name: &'a str,
        /// `unknown`.
        state: &'static str,
        /// Why.
        error: String,
        /// The views of the nodes of a quorum.
        nodes: Option<Vec<NodeJson<'a>>>,
    },
}

impl<'a> InspectEntry<'a> {
    /// The entry of a lock that was asked for.
    pub fn of(found: &'a InspectedLock) -> Self {
        let nodes = found.nodes.as_ref();
        let nodes = nodes.map(|nodes| nodes.nodes.iter().map(NodeJson::of).collect());
        match &found.outcome {
            Ok(snapshot) => Self::Known {
                lock: Box::new(LockJson::of(&found.name, snapshot)),
                nodes,
            },
            Err(error) => Self::Unknown {
                name: &found.name,
                state: "unknown",
                error: error.to_string(),
                nodes,
            },
        }
    }
}

/// The document `leasehold.acquire/1`.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.acquire/1")]
pub struct Acquired<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The token that renews and releases the lease.
    pub token: &'a str,
    /// The fence.
    pub fence: u64,
    /// The TTL that was asked for.
    pub ttl_ms: u64,
    /// How long the caller waited.
    pub waited_ms: u64,
    /// How long the lease is certain.
    pub expires_in_ms: u64,
}

/// The document `leasehold.check/1`.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.check/1")]
pub struct Checked<'a> {
    /// The lock.
    pub lock: &'a str,
    /// True if the lease is held for at least `min_ms` more.
    pub ok: bool,
    /// Whether the lease is held.
    pub held: bool,
    /// How long the lease is certain.
    pub expires_in_ms: u64,
    /// The rest that is required.
    pub min_ms: u64,
    /// The fence, if the lease is held.
    pub fence: Option<u64>,
}

/// The leader, or why none is known. `holder` is null if there is none, or the store does not answer, which has an `error`.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.leader/1")]
pub struct LeaderDocument<'a> {
    /// When it was asked, by the clock of this host.
    pub time: String,
    /// The address of the store.
    pub store: &'a str,
    /// The election.
    pub name: &'a str,
    /// The leader and its lease.
    #[serde(flatten)]
    pub lease: LeaseFields,
    /// Since when it leads, by the clock of this host.
    pub since: Option<String>,
    /// Why the leader is not known.
    pub error: Option<String>,
}

impl<'a> LeaderDocument<'a> {
    /// The document of a leader that was asked for now.
    pub fn of(
        store: &'a str,
        name: &'a str,
        leader: Option<&HolderView>,
        error: Option<&Error>,
    ) -> Self {
        let wall = Clock::system().wall();
        let held = leader.and_then(|leader| leader.held_for);
        let since = held.and_then(|held| wall.checked_sub(held));
        Self {
            time: format_rfc3339_millis(wall).to_string(),
            store,
            name,
            lease: LeaseFields::of(leader),
            since: since.map(|since| format_rfc3339_seconds(since).to_string()),
            error: error.map(ToString::to_string),
        }
    }
}

/// A JSON document on one line, with the end of the line. Characters that control a terminal or change the text
/// direction are escaped, since people read JSON too.
pub fn json(document: &impl Serialize) -> String {
    // Strings and numbers can always be serialized.
    escape_unsafe(&serde_json::to_string(document).unwrap_or_default()) + "\n"
}

/// Escapes control characters. They can only occur in strings, where an escape has the same meaning.
pub fn escape_unsafe(json: &str) -> String {
    json.chars().fold(String::new(), |mut escaped, c| {
        if steers(c) {
            // Writing to a string cannot fail.
            let _written: fmt::Result = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
        escaped
    })
}

/// True for DEL, C1 controls, line separators and text direction marks.
const fn steers(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Advice that the library adds to a failed first connection. It misleads after a connection has worked.
const ADVICE: [&str; 2] = [
    "; is it the right host and port, and with or without TLS?",
    "; is it the right port, and with or without TLS?",
];

/// Removes the advice that is meant for a first connection.
pub fn without_advice(text: &str) -> String {
    let text = text.to_owned();
    ADVICE
        .iter()
        .fold(text, |text, advice| text.replace(advice, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_nothing_that_steers_a_terminal() {
        let text = "\u{1b}[31m\u{7f}\u{9b}31m\u{202e}\u{2069}\u{feff}é\u{1f600}";
        let line = json(&text);
        assert_eq!(
            line,
            "\"\\u001b[31m\\u007f\\u009b31m\\u202e\\u2069\\ufeffé\u{1f600}\"\n"
        );
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }

    #[test]
    fn advice_for_a_first_connection_is_left_out() {
        let told =
            "it said nothing for 2.0s; is it the right host and port, and with or without TLS? (x)";
        assert_eq!(without_advice(told), "it said nothing for 2.0s (x)");
    }
}
