//! The settings of a cache.

use std::time::Duration;

use leasehold::entries::{random, within};
use leasehold_core::cache::Header;
use leasehold_core::{Invalid, Ttl};

/// How long values are fresh and stale, how long a reader waits, and how loads are limited.
///
/// ```
/// use std::time::Duration;
/// use leasehold_cache::Policy;
///
/// let policy = Policy::default()
///     .fresh_for(Duration::from_secs(60))
///     .stale_for(Duration::from_secs(3600))
///     .wait_at_most(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "settings do nothing until a cache or a call is given them"]
pub struct Policy {
    pub(crate) fresh_for: Duration,
    pub(crate) stale_for: Duration,
    pub(crate) wait_at_most: Duration,
    pub(crate) must_be_fresh: bool,
    pub(crate) stale_if_error: bool,
    pub(crate) lease: Duration,
    pub(crate) load_at_most: Duration,
    pub(crate) back_off: Duration,
    pub(crate) jitter: f64,
    pub(crate) eagerness: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            fresh_for: Duration::from_secs(60),
            stale_for: Duration::from_secs(600),
            wait_at_most: Duration::from_secs(30),
            must_be_fresh: false,
            stale_if_error: true,
            lease: Duration::from_secs(2),
            load_at_most: Duration::from_secs(60),
            back_off: Duration::from_secs(1),
            jitter: 0.1,
            eagerness: 1.0,
        }
    }
}

/// The size limit of a stored value, in encoded bytes. By default Redis closes the connection of a subscriber that is sent more than 32 MB
/// at once, so a larger value could not be read again. A larger value is returned to the waiting callers and not stored.
pub const MOST_BYTES: usize = 24 << 20;

/// The longest a value is fresh, or stale.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The longest back-off, however often a load has failed in a row; or the first one, if that is longer.
const MOST_BACK_OFF: Duration = Duration::from_secs(30);

impl Policy {
    /// How long a value is fresh. 1 ms to 366 days; default 60 s. A random part of up to a tenth is subtracted, so values that were loaded
    /// together do not expire together: see [`Policy::jitter`].
    pub fn fresh_for(mut self, duration: Duration) -> Self {
        self.fresh_for = duration;
        self
    }

    /// How long a value may still be used after it was fresh: while one reader refreshes it, or when that fails. Up to 366 days; default
    /// 10 min.
    pub fn stale_for(mut self, duration: Duration) -> Self {
        self.stale_for = duration;
        self
    }

    /// How long a reader waits for another caller's load. Then it gets `Error::Busy` and does not load by itself. Default 30 s.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.wait_at_most = limit;
        self
    }

    /// Whether a reader waits for a fresh value instead of taking a stale one. Default: no.
    pub fn must_be_fresh(mut self, must: bool) -> Self {
        self.must_be_fresh = must;
        self
    }

    /// Whether a reader takes a stale value if the load fails, even with [`Policy::must_be_fresh`]. Default: yes.
    pub fn stale_if_error(mut self, take: bool) -> Self {
        self.stale_if_error = take;
        self
    }

    /// The lease of a load. If the loading process dies, another caller takes over after this time. The lease is renewed while the load
    /// lasts. 10 ms to 24 h; default 2 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long the lease of a load is renewed. A load that takes longer goes on, and its value is stored if no newer one exists, but
    /// another caller may load meanwhile. Default 60 s; with zero it is never renewed.
    pub fn load_at_most(mut self, limit: Duration) -> Self {
        self.load_at_most = limit;
        self
    }

    /// The back-off after a failed load: no caller in the fleet loads meanwhile. It doubles with each failure in a row, up to 30 s. A random
    /// part of up to a half is subtracted. 20 ms to 24 h; default 1 s.
    pub fn back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }

    /// The largest part of the fresh time that is subtracted at random: 0 to 0.9; default 0.1.
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = part;
        self
    }

    /// How early one reader in the fleet refreshes a value before it expires: the beta of `XFetch`. 0 to 100, where 0 is never; default 1.
    pub fn eagerness(mut self, eagerness: f64) -> Self {
        self.eagerness = eagerness;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let least = Duration::from_millis(1);
        within("fresh time", self.fresh_for, least, LONGEST)?;
        within("stale time", self.stale_for, Duration::ZERO, LONGEST)?;
        within("lease of a load", self.lease, Ttl::MIN, Ttl::MAX)?;
        within("back-off", self.back_off, Ttl::MIN * 2, Ttl::MAX)?;
        let number = |what, value: f64, most: f64| {
            if (0.0..=most).contains(&value) {
                return Ok(());
            }
            let why = format!("must be from 0 to {most}");
            Err(Invalid::new(what, &value.to_string(), why))
        };
        number("jitter", self.jitter, 0.9)?;
        number("eagerness", self.eagerness, 100.0)
    }

    pub(crate) fn lease_ttl(&self) -> Ttl {
        Ttl::clamped(self.lease)
    }

    /// The back-off after `failures` earlier failures in a row, with jitter.
    pub(crate) fn back_off_after(&self, failures: u32) -> Ttl {
        let most = MOST_BACK_OFF.max(self.back_off);
        let whole = self.back_off.saturating_mul(1 << failures.min(16));
        Ttl::clamped(whole.min(most).mul_f64(1.0 - random() / 2.0))
    }

    /// How long a value loaded now is fresh, with jitter.
    pub(crate) fn fresh_ms(&self, fresh_for: Duration) -> u64 {
        let fresh_for = fresh_for.min(LONGEST);
        let off = fresh_for.mul_f64(random() * self.jitter);
        millis(fresh_for.saturating_sub(off)).max(u64::from(!fresh_for.is_zero()))
    }

    /// Whether this reader refreshes a fresh value early.
    pub(crate) fn draws(&self, header: &Header, now_ms: u64) -> bool {
        header.is_due_early(now_ms, random(), self.eagerness)
    }
}

/// In whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_offs_double_up_to_30_s_and_stay_above_half() {
        let policy = Policy::default().back_off(Duration::from_secs(1));
        for (failures, whole) in [(0, 1), (1, 2), (4, 16), (5, 30), (40, 30)] {
            let whole = Duration::from_secs(whole);
            let back_off = policy.back_off_after(failures).get();
            assert!(
                back_off <= whole && back_off + Duration::from_millis(1) >= whole / 2,
                "{failures}: {back_off:?}"
            );
        }
        let long = Policy::default().back_off(Duration::from_secs(60));
        assert!(long.back_off_after(9).get() >= Duration::from_secs(29));
    }

    #[test]
    fn settings_have_bounds_and_errors_name_them() {
        let bad = [
            (Policy::default().fresh_for(Duration::ZERO), "fresh time"),
            (Policy::default().stale_for(Duration::MAX), "stale time"),
            (
                Policy::default().lease(Duration::from_millis(9)),
                "lease of a load",
            ),
            (
                Policy::default().back_off(Duration::from_millis(19)),
                "back-off",
            ),
            (Policy::default().jitter(1.0), "jitter"),
            (Policy::default().eagerness(f64::NAN), "eagerness"),
        ];
        for (policy, what) in bad {
            assert_eq!(policy.check().unwrap_err().what, what);
        }
        assert!(Policy::default().check().is_ok());
    }

    #[test]
    fn jitter_only_takes_off() {
        let policy = Policy::default().jitter(0.5);
        let fresh_ms = policy.fresh_ms(Duration::from_secs(10));
        assert!((5_000..=10_000).contains(&fresh_ms), "{fresh_ms}");
        assert_eq!(
            Policy::default()
                .jitter(0.0)
                .fresh_ms(Duration::from_secs(10)),
            10_000
        );
    }
}
