//! Fresh values cached in this process: reading a hot entry costs no request.
//!
//! # Invariants
//!
//! - **LC1** A value is returned for at most [`Limits::max_age`] after the read that found it, whatever notices arrive.
//! - **LC2** After the store's notice that an entry changed, its old value is not returned any more. If notices may have been missed, no
//!   value is returned.
//! - **LC3** A read that is under way when a notice arrives stores nothing here: its answer may be older than the change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Moment;
use leasehold_core::LockName;
use leasehold_core::cache::{Standing, Value};
use moka::sync::Cache;

use crate::policy::millis;

/// The limits of the local cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The size of values and keys, in bytes.
    pub(crate) max_bytes: u64,
    /// The longest time that a value is returned without a request.
    pub(crate) max_age: Duration,
}

/// The stored value of an entry, if there is one, at this time of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lookup {
    pub(crate) value: Option<Value>,
    pub(crate) now_ms: u64,
}

/// The local values of a cache.
pub(crate) struct LocalCache {
    kept: Cache<LockName, CachedEntry>,
    max_age: Duration,
    /// Counts the changes among the keys that share a number (LC3). Reads may be discarded without need, but never kept wrongly.
    changes: [AtomicU64; NUMBERS],
}

const NUMBERS: usize = 256;

/// The approximate overhead of an entry, in bytes.
const OVERHEAD: usize = 128;

#[derive(Clone)]
struct CachedEntry {
    value: Value,
    /// The store's time at the read, in milliseconds, and the client's time when it began.
    now_ms: u64,
    asked: Moment,
}

/// A read under way. Its result is stored only if the entry has not changed since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTicket(u64);

impl LocalCache {
    pub(crate) fn new(limits: Limits) -> Self {
        let weigh = |key: &LockName, kept: &CachedEntry| {
            let bytes = key.key().len() + kept.value.body.len() + OVERHEAD;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder()
            .max_capacity(limits.max_bytes)
            .weigher(weigh)
            .build();
        Self {
            kept,
            max_age: limits.max_age,
            changes: [const { AtomicU64::new(0) }; NUMBERS],
        }
    }

    /// A fresh value, with the estimated time of the store.
    pub(crate) fn get(&self, key: &LockName, now: Moment) -> Option<Lookup> {
        let kept = self.kept.get(key)?;
        let passed = now.since(kept.asked);
        if passed > self.max_age {
            return None;
        }
        let now_ms = kept.now_ms.saturating_add(millis(passed));
        let is_fresh = kept.value.header.standing(now_ms) == Standing::Fresh;
        is_fresh.then_some(Lookup {
            value: Some(kept.value),
            now_ms,
        })
    }

    /// Call this before a read.
    pub(crate) fn ticket(&self, key: &LockName) -> ReadTicket {
        ReadTicket(self.changes_of(key).load(Ordering::SeqCst))
    }

    /// Stores the result of the read that began at `asked` with this ticket.
    pub(crate) fn put(&self, key: &LockName, found: &Lookup, asked: Moment, ticket: ReadTicket) {
        let changes = self.changes_of(key);
        let is_valid = || changes.load(Ordering::SeqCst) == ticket.0;
        let (now_ms, value) = (found.now_ms, found.value.as_ref());
        let Some(value) = value.filter(|value| value.header.standing(now_ms) == Standing::Fresh)
        else {
            return;
        };
        if !is_valid() {
            return;
        }
        let kept = CachedEntry {
            value: value.clone(),
            now_ms,
            asked,
        };
        self.kept.insert(key.clone(), kept);
        // A notice may have arrived in between and found nothing to drop.
        if !is_valid() {
            self.kept.invalidate(key);
        }
    }

    /// This entry changed.
    pub(crate) fn forget(&self, key: &LockName) {
        self.changes_of(key).fetch_add(1, Ordering::SeqCst);
        self.kept.invalidate(key);
    }

    /// Anything may have changed.
    pub(crate) fn forget_all(&self) {
        for changes in &self.changes {
            changes.fetch_add(1, Ordering::SeqCst);
        }
        self.kept.invalidate_all();
    }

    fn changes_of(&self, key: &LockName) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let number = hasher.finish() % NUMBERS as u64;
        &self.changes[usize::try_from(number).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Clock;
    use leasehold_core::cache::{Format, Header, Version};

    use super::*;

    fn layer() -> LocalCache {
        LocalCache::new(Limits {
            max_bytes: 10_000,
            max_age: Duration::from_secs(5),
        })
    }

    /// A value that is fresh until 61 s, found at this time of the store.
    fn found(size: usize, now_ms: u64) -> Lookup {
        let header = Header {
            invalidated: false,
            version: Version::new(1),
            stored_ms: 1_000,
            soft_ms: 61_000,
            load_ms: 1,
            format: Format::Raw,
        };
        let body = vec![7; size].into();
        let value = Some(Value { header, body });
        Lookup { value, now_ms }
    }

    fn at(seconds: u64) -> Moment {
        Clock::manual().now().after(Duration::from_secs(seconds))
    }

    fn key(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn a_value_serves_for_its_bound_and_only_while_it_is_fresh() {
        let (layer, home) = (layer(), key("home"));
        layer.put(&home, &found(1, 1_000), at(10), layer.ticket(&home));
        let kept = layer.get(&home, at(12));
        assert_eq!(kept.map(|kept| kept.now_ms), Some(3_000));
        assert!(layer.get(&home, at(15)).is_some());
        assert!(layer.get(&home, at(16)).is_none());
        layer.put(&home, &found(1, 58_000), at(20), layer.ticket(&home));
        assert!(layer.get(&home, at(22)).is_some());
        assert!(layer.get(&home, at(23)).is_none());
        let old = key("old");
        layer.put(&old, &found(1, 61_000), at(20), layer.ticket(&old));
        assert!(layer.get(&old, at(20)).is_none());
    }

    #[test]
    fn a_look_that_was_overtaken_by_a_change_leaves_nothing() {
        let (layer, home) = (layer(), key("home"));
        for change in [
            |layer: &LocalCache| layer.forget(&key("home")),
            LocalCache::forget_all,
        ] {
            let ticket = layer.ticket(&home);
            change(&layer);
            layer.put(&home, &found(1, 1_000), at(10), ticket);
            assert!(layer.get(&home, at(10)).is_none());
            layer.put(&home, &found(1, 1_000), at(10), layer.ticket(&home));
            assert!(layer.get(&home, at(10)).is_some());
            change(&layer);
            assert!(layer.get(&home, at(10)).is_none());
        }
    }

    #[test]
    fn it_does_not_grow_past_its_size() {
        let layer = layer();
        for number in 0..1_000 {
            let key = key(&format!("home:{number}"));
            layer.put(&key, &found(1_000, 1_000), at(10), layer.ticket(&key));
        }
        layer.kept.run_pending_tasks();
        assert!(layer.kept.weighted_size() <= 10_000);
    }
}
