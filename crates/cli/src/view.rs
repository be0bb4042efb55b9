//! A lock as operators see it: text fragments. The value of a foreign lock may be a secret, so only a short prefix is shown.

use leasehold::{ForeignFormat, HolderIdentity, HolderView, Mode, Snapshot};
pub(crate) use leasehold_serve::changes::{holders, is_same_lease};
pub(crate) use leasehold_serve::documents::{
    HolderFields, HolderJson, LockJson, id, is_cache_entry, millis, prefix, state,
};
pub(crate) use leasehold_serve::look::{is_alive, is_free, never_expires};

use crate::messages::span;

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

/// The first digits of the id by which a holder is named; `None` for a foreign one.
pub(crate) fn id_of(holder: &HolderView) -> Option<&str> {
    match &holder.who {
        HolderIdentity::Owner(owner) => Some(id(owner)),
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

/// The number of readers, if there are several with one fence: a break ends all of them. On a quorum, each has a number of its own.
pub(crate) fn phase(snapshot: &Snapshot) -> Option<String> {
    let first = snapshot.holder.as_ref()?;
    let is_shared = first.mode == Mode::Shared;
    let is_one = snapshot
        .others
        .iter()
        .all(|other| other.fence == first.fence);
    several(snapshot).filter(|_| is_shared && is_one && holders(snapshot) > 1)
}

/// Describes a foreign lock: `hash, looks like Redisson's`, `string d2f1..., looks like redis-py's (...)`.
pub(crate) fn foreign(kind: &str, value: &[u8]) -> String {
    let shown = prefix(value).map(|prefix| format!(" {}...", prefix.escape_debug()));
    let format = ForeignFormat::guess(kind, value);
    let looks = format.map(|format| format!(", looks like {format}'s ({})", format.form()));
    let (shown, looks) = (shown.unwrap_or_default(), looks.unwrap_or_default());
    format!("{}{shown}{looks}", kind.escape_debug())
}

#[cfg(test)]
pub(crate) mod samples {
    //! Sample locks for tests.

    use std::time::Duration;

    use leasehold::{ClientId, Fence, Owner, Slots, Ttl, WaiterView};

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
    use leasehold::NodeView;
    use leasehold_serve::documents::NodeJson;

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
