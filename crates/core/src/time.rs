//! Time as an argument: this crate reads no clock.

use std::time::Duration;

use crate::invalid::Invalid;

/// The time at which a store takes a step, by the store's own clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on the clock that judges expiry. Redis has only wall time; a store on one host uses a clock that
    /// counts suspend and never steps.
    pub clock_us: u64,
    /// Microseconds since the Unix epoch: the floor of fences and the age shown to people, never an expiry.
    pub wall_us: u64,
}

impl Now {
    /// A time for stores whose two clocks are the same one, such as Redis.
    pub const fn at_micros(micros: u64) -> Self {
        Self {
            clock_us: micros,
            wall_us: micros,
        }
    }

    /// Milliseconds on the expiry clock, rounded down as Redis does.
    pub const fn millis(self) -> u64 {
        self.clock_us / 1_000
    }
}

/// How long a lease lasts from one extension to the next: 10 ms to 24 h, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest TTL. Below it, the time of a round trip decides who holds the lock.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest TTL. Beyond it, a crashed holder blocks the others for too long.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks the bounds; parts of a millisecond are cut off.
    ///
    /// # Errors
    /// [`Invalid`] outside of [`Ttl::MIN`] to [`Ttl::MAX`].
    pub fn new(ttl: Duration) -> Result<Self, Invalid> {
        if ttl < Self::MIN || ttl > Self::MAX {
            return Err(Invalid::new(
                "TTL",
                &format!("{ttl:?}"),
                "must be from 10 ms to 24 h",
            ));
        }
        Ok(Self::clamped(ttl))
    }

    /// The TTL that is nearest to `ttl`, within the bounds; parts of a millisecond are cut off.
    pub fn clamped(ttl: Duration) -> Self {
        let within = ttl.clamp(Self::MIN, Self::MAX);
        Self(u32::try_from(within.as_millis()).unwrap_or(u32::MAX))
    }

    /// The TTL in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0 as u64
    }

    /// The TTL as a duration.
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.millis())
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
    fn ttl_has_bounds() {
        for bad in [
            Duration::ZERO,
            Duration::from_millis(9),
            Ttl::MAX + Duration::from_millis(1),
            Duration::MAX,
        ] {
            let refused = Ttl::new(bad).unwrap_err();
            assert!(refused.to_string().contains("10 ms to 24 h"), "{refused}");
        }
        assert_eq!(Ttl::new(Ttl::MIN).unwrap().millis(), 10);
        assert_eq!(Ttl::new(Ttl::MAX).unwrap().get(), Ttl::MAX);
        let clamped = [Duration::ZERO, Duration::MAX].map(Ttl::clamped);
        assert_eq!(clamped.map(Ttl::get), [Ttl::MIN, Ttl::MAX]);
    }
}
