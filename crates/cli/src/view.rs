//! A lock as operators see it: text fragments and the JSON of all reading verbs. The value of a foreign lock may
//! be a secret, so only a short prefix is shown.

use std::time::Duration;

use leasehold::{
    Fence, ForeignFormat, HolderIdentity, HolderView, Mode, NodeView, Owner, Snapshot, WaiterView,
};
use serde::Serialize;

use crate::messages::span;

/// The length of the prefix of a foreign value that is shown, and the minimal length of such a value.
const PREFIX: usize = 4;
const PREFIX_OF: usize = 4 * PREFIX;

/// The program name for cache entries of Leasehold.
const CACHE: &str = "leasehold cache";

/// True if the lock has no holder and no live waiter.
pub(crate) fn is_free(snapshot: &Snapshot) -> bool {
    snapshot.holder.is_none() && !snapshot.queue.iter().any(is_alive)
}

/// True if the waiter can still be granted the lock.
pub(crate) fn is_alive(waiter: &WaiterView) -> bool {
    !waiter.seen_for.is_zero()
}

/// True if the lease has no TTL. Only the program that set the key can end it.
pub(crate) fn never_expires(holder: &HolderView) -> bool {
    holder.expires_in.is_none()
}

/// The holder as text: `deploy@web-3 (pid 4121: migrate.sh)`, or a description of a foreign client.
pub(crate) fn who(holder: &HolderView) -> String {
    match &holder.who {
        HolderIdentity::Owner(owner) => owner.to_string(),
        HolderIdentity::Foreign { kind, value } if is_cache_entry(kind, value) => {
            "a cache entry of leasehold, which is not a lock".into()
        }
        HolderIdentity::Foreign { kind, value } => match ForeignFormat::guess(kind, value) {
            Some(format) => format!("a foreign client ({kind}, looks like {format}'s)"),
            None => format!("a foreign client ({})", kind.escape_debug()),
        },
    }
}

/// The first digits of the owner's id. Others see no more: with all of them and the fence, a program could release the lock.
const ID: usize = 12;

/// The first digits of the id by which a holder is named; `None` for a foreign one.
pub(crate) fn id_of(holder: &HolderView) -> Option<&str> {
    match &holder.who {
        HolderIdentity::Owner(owner) => owner.id().get(..ID),
        HolderIdentity::Foreign { .. } => None,
    }
}

/// `, fence 41`, or nothing if the fence is not known.
pub(crate) fn fence_of(holder: &HolderView) -> String {
    let text = holder.fence.map(|fence| format!(", fence {fence}"));
    text.unwrap_or_default()
}

/// `, held 3m12s`, or nothing if the time is not known.
pub(crate) fn held_of(holder: &HolderView) -> String {
    let text = holder.held_for.map(|held| format!(", held {}", span(held)));
    text.unwrap_or_default()
}

/// `24s left, unless renewed`, or `endless` for a lease without a TTL.
pub(crate) fn lease_of(holder: &HolderView, endless: &str) -> String {
    let left = holder
        .expires_in
        .map(|left| format!("{} left, unless renewed", span(left)));
    left.unwrap_or_else(|| endless.to_owned())
}

/// True if both are the same lease: a token is never reused. Of a lock that several hold, another one of them may be shown: readers of
/// one phase are the same, and so are permits.
pub(crate) fn is_same_lease(one: &HolderView, other: &HolderView) -> bool {
    match (one.mode, other.mode) {
        (Mode::Slot(_), Mode::Slot(_)) => true,
        (Mode::Shared, Mode::Shared) => one.fence == other.fence,
        _ => one.who == other.who && one.fence == other.fence,
    }
}

/// How many hold the lock.
pub(crate) fn holders(snapshot: &Snapshot) -> usize {
    snapshot.holders().count() + usize::try_from(snapshot.omitted).unwrap_or(usize::MAX)
}

/// `12 readers` or `3 of 4 slots`; `None` for a lock that one holds alone.
pub(crate) fn several(snapshot: &Snapshot) -> Option<String> {
    let count = holders(snapshot);
    match snapshot.holder.as_ref()?.mode {
        Mode::Exclusive => None,
        Mode::Shared if count == 1 => Some("1 reader".into()),
        Mode::Shared => Some(format!("{count} readers")),
        Mode::Slot(_) => {
            // Each request has a number of its own.
            let numbers = snapshot.holders().filter_map(|holder| match holder.mode {
                Mode::Slot(slots) => Some(slots.get()),
                Mode::Exclusive | Mode::Shared => None,
            });
            Some(format!("{count} of {} slots", numbers.max()?))
        }
    }
}

/// The number of readers, if there are several: they have one fence, so a break ends all of them.
pub(crate) fn phase(snapshot: &Snapshot) -> Option<String> {
    let is_shared = snapshot.holder.as_ref()?.mode == Mode::Shared;
    several(snapshot).filter(|_| is_shared && holders(snapshot) > 1)
}

/// Describes a foreign lock: `hash, looks like Redisson's`, `string d2f1..., looks like redis-py's (...)`.
pub(crate) fn foreign(kind: &str, value: &[u8]) -> String {
    let shown = prefix(value).map(|prefix| format!(" {}...", prefix.escape_debug()));
    let format = ForeignFormat::guess(kind, value);
    let looks = format.map(|format| format!(", looks like {format}'s ({})", format.form()));
    let (shown, looks) = (shown.unwrap_or_default(), looks.unwrap_or_default());
    format!("{}{shown}{looks}", kind.escape_debug())
}

/// True for a cache entry of Leasehold. It uses the same Redis key as a lock of that name:
/// `docs/reference/cache-protocol.md`.
pub(crate) fn is_cache_entry(kind: &str, value: &[u8]) -> bool {
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
fn prefix(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    (text.len() >= PREFIX_OF)
        .then(|| text.get(..PREFIX))
        .flatten()
}

/// The holder of a lock, as JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum HolderJson {
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
pub(crate) struct OwnerJson {
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
            id: owner.id().chars().take(ID).collect(),
        }
    }
}

impl HolderJson {
    pub(crate) fn of(who: &HolderIdentity) -> Self {
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
pub(crate) struct WaiterJson {
    place: usize,
    #[serde(flatten)]
    party: OwnerJson,
    mode: String,
    ttl_ms: u64,
    alive_for_ms: u64,
}

/// The holder of a lock, as fields of a JSON document. They are null for a free lock.
#[derive(Debug, Serialize)]
pub(crate) struct HolderFields {
    holder: Option<HolderJson>,
    fence: Option<u64>,
}

impl HolderFields {
    pub(crate) fn of(holder: Option<&HolderView>) -> Self {
        Self {
            holder: holder.map(|holder| HolderJson::of(&holder.who)),
            fence: holder.and_then(|holder| holder.fence).map(Fence::get),
        }
    }
}

/// The holder of a lock and its lease, as fields of a JSON document. They are null for a free lock.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseFields {
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
    pub(crate) fn of(holder: Option<&HolderView>) -> Self {
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
pub(crate) struct LockJson<'a> {
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
    pub(crate) fn of(name: &'a str, snapshot: &Snapshot) -> Self {
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
pub(crate) struct NodeJson<'a> {
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
    pub(crate) fn of(view: &'a NodeView) -> Self {
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
pub(crate) fn state(snapshot: &Snapshot) -> &'static str {
    if snapshot.holder.is_some() {
        "held"
    } else {
        "free"
    }
}

/// A duration in whole milliseconds, the unit of all durations in JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod samples {
    //! Sample locks for tests.

    use leasehold::{ClientId, Slots, Ttl};

    use super::*;

    pub(crate) fn owner(random: u128, note: &str) -> Owner {
        Owner::new(random, ClientId::new(9), "deploy@web-3", 4121, note).unwrap()
    }

    pub(crate) fn held(fence: u64) -> Snapshot {
        Snapshot::new(
            Some(HolderView::new(
                HolderIdentity::Owner(owner(u128::from(fence), "migrate.sh")),
                Some(Fence::new(fence)),
                Some(Duration::from_secs(192)),
                Some(Duration::from_secs(24)),
            )),
            Vec::new(),
        )
    }

    pub(crate) fn foreign(kind: &str, value: &[u8]) -> Snapshot {
        Snapshot::new(
            Some(HolderView::new(
                HolderIdentity::Foreign {
                    kind: kind.into(),
                    value: value.to_vec(),
                },
                None,
                None,
                None,
            )),
            Vec::new(),
        )
    }

    /// A semaphore of four slots, of which these are held.
    pub(crate) fn slots(numbers: &[u16]) -> Snapshot {
        let mode = Mode::Slot(Slots::new(4).unwrap());
        let holder = |number: &u16| {
            let holder = held(40 + u64::from(*number)).holder.unwrap();
            holder.in_mode(mode, Some(*number))
        };
        let mut holders = numbers.iter().map(holder);
        Snapshot::new(holders.next(), Vec::new()).with_others(holders.collect(), 0)
    }

    /// So many readers, of one phase.
    pub(crate) fn readers(count: usize) -> Snapshot {
        let reader = || held(43).holder.unwrap().in_mode(Mode::Shared, None);
        let others = (1..count).map(|_| reader()).collect();
        Snapshot::new(Some(reader()), Vec::new()).with_others(others, 0)
    }

    pub(crate) fn free() -> Snapshot {
        Snapshot::new(None, Vec::new())
    }

    pub(crate) fn with_queue(mut snapshot: Snapshot, alive_for: &[u64]) -> Snapshot {
        snapshot.queue = (100..)
            .zip(alive_for)
            .map(|(random, seconds)| {
                WaiterView::new(
                    owner(random, "next"),
                    Mode::Exclusive,
                    Ttl::new(Duration::from_secs(30)).unwrap(),
                    Duration::from_secs(*seconds),
                )
            })
            .collect();
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{foreign as of_another, free, held, readers, slots, with_queue};
    use super::*;

    #[test]
    fn holders_are_counted_by_the_largest_number_of_slots() {
        let of = |slots| Mode::Slot(leasehold::Slots::new(slots).unwrap());
        let mut seen = slots(&[1, 3, 2]);
        let holder = seen.holder.take().unwrap();
        seen.holder = Some(holder.in_mode(of(2), Some(1)));
        assert_eq!(several(&seen).as_deref(), Some("3 of 4 slots"));
        assert_eq!(phase(&seen), None);
        assert_eq!(phase(&readers(2)).as_deref(), Some("2 readers"));
        assert_eq!(phase(&readers(1)), None);
    }

    #[test]
    fn foreign_formats_are_named_and_values_are_not_given_away() {
        for (kind, value, shown) in [
            ("hash", "", "hash, looks like Redisson's (a hash)"),
            ("list", "", "list"),
            ("string", "hunter2", "string"),
            (
                "string",
                "d2f1c9a08c3b41ef9d3c0242ac120002",
                "string d2f1..., looks like node-redlock's (32 hexadecimal digits)",
            ),
            (
                "string",
                "\u{1b}[2Jsecret-secret-secret",
                "string \\u{1b}[2J...",
            ),
            ("string", "ééééééééé", "string éé..."),
        ] {
            assert_eq!(foreign(kind, value.as_bytes()), shown);
        }
        let json = serde_json::to_string(&LockJson::of(
            "x",
            &of_another("string", b"0123456789abcdef0123"),
        ))
        .unwrap();
        assert!(
            json.contains("\"prefix\":\"0123\"") && !json.contains("01234"),
            "{json}"
        );
    }

    #[test]
    fn documents_have_their_fields_in_order() {
        let lock = serde_json::to_string(&LockJson::of("x", &free())).unwrap();
        assert_eq!(
            lock,
            r#"{"name":"x","state":"free","holder":null,"fence":null,"held_for_ms":null,"lease_ms":null,"mode":null,"slot":null,"others":[],"others_omitted":0,"queue":[]}"#
        );
        let view = NodeView::new("redis://a", Ok(free()));
        let node = serde_json::to_string(&NodeJson::of(&view)).unwrap();
        assert_eq!(
            node,
            r#"{"node":"redis://a","state":"free","holder":null,"fence":null,"lease_ms":null,"queue":0,"error":null}"#
        );
    }

    #[test]
    fn a_lock_on_its_way_to_a_waiter_is_not_free() {
        assert!(is_free(&free()));
        assert!(is_free(&with_queue(free(), &[0, 0])));
        assert!(!is_free(&with_queue(free(), &[0, 5])));
        assert!(!is_free(&held(41)));
    }
}
