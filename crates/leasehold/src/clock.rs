//! Time as a value. Only this module reads clocks and sleeps; `clippy.toml` forbids it elsewhere.
//!
//! Deadlines are judged by a clock that **counts suspend**: `CLOCK_BOOTTIME` on Linux. `std::time::Instant` stops while a laptop
//! sleeps, so an expired lease would still look valid. Timers stop too, so [`Clock::sleep_until`] sleeps in slices.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_core::Now;
use nix::time::{ClockId, clock_gettime};

/// How late a suspended host may notice, once it runs again, that a deadline has passed.
const SLICE: Duration = Duration::from_millis(100);

/// A point in time on a [`Clock`], in microseconds. Compare it only with moments of the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(
    /// One more than the time, so that an `Option` of it takes no more room.
    NonZeroU64,
);

impl Moment {
    pub(crate) const fn from_micros(micros: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(micros))
    }

    pub(crate) const fn as_micros(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to this moment. Zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The moment that is `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    pub(crate) fn before(self, duration: Duration) -> Self {
        Self::from_micros(self.as_micros().saturating_sub(micros(duration)))
    }
}

/// The source of time of a client.
///
/// With [`Clock::virtual_time`] a test of hours runs in milliseconds:
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Client, Clock, Memory};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), leasehold::Error> {
/// // In a test: #[tokio::test(start_paused = true)]
/// let clock = Clock::virtual_time();
/// let memory = Memory::new(clock.clone());
/// let client = Client::builder().clock(clock.clone()).embedded(&memory)?;
/// let lease = client.mutex("orders").ttl(Duration::from_secs(30)).acquire().await?;
///
/// tokio::time::sleep(Duration::from_secs(3600)).await; // the client renews the lease meanwhile
/// assert!(!lease.is_lost());
/// clock.suspend(Duration::from_secs(60));              // a laptop sleeps for longer than the TTL
/// assert!(lease.is_lost());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Clock(ClockSource);

#[derive(Clone)]
enum ClockSource {
    System,
    Virtual(Arc<Virtual>),
    #[cfg(any(test, feature = "simulation"))]
    Manual(Arc<Manual>),
}

/// Time that passes when a test or a simulation says so.
#[cfg(any(test, feature = "simulation"))]
struct Manual {
    now_us: AtomicU64,
    passed: tokio::sync::Notify,
}

struct Virtual {
    origin: tokio::time::Instant,
    /// Added to the runtime's time: the pauses of `suspend`, which no timer notices.
    jumped_us: AtomicU64,
    /// Added to wall time only: the changes by `step_wall`.
    wall_us: AtomicU64,
}

/// The first moment of virtual time, 2026-01-01: fences then have realistic values.
const VIRTUAL_EPOCH_US: u64 = 1_767_225_600_000_000;

impl Clock {
    /// The clock of this host. It counts suspend.
    pub const fn system() -> Self {
        Self(ClockSource::System)
    }

    /// A clock for tests that follows the current tokio runtime. On a paused runtime (`start_paused`) time moves only when all tasks
    /// wait. A client with this clock works on that runtime and starts no thread. Without a runtime, building the client fails with
    /// [`Error::Invalid`](crate::Error::Invalid).
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that follows the runtime's time"
    )]
    pub fn virtual_time() -> Self {
        let origin = tokio::time::Instant::now();
        let (jumped_us, wall_us) = (AtomicU64::new(0), AtomicU64::new(VIRTUAL_EPOCH_US));
        Self(ClockSource::Virtual(Arc::new(Virtual {
            origin,
            jumped_us,
            wall_us,
        })))
    }

    /// A clock that moves only by [`Clock::advance`], for simulations without a tokio runtime, and for tests of a real server whose clock
    /// the test moves too. Limits of requests stay in real time.
    #[doc(hidden)]
    #[cfg(any(test, feature = "simulation"))]
    pub fn manual() -> Self {
        Self(ClockSource::Manual(Arc::new(Manual {
            now_us: AtomicU64::new(1_000_000),
            passed: tokio::sync::Notify::new(),
        })))
    }

    /// Lets time pass on a manual clock.
    #[doc(hidden)]
    #[cfg(any(test, feature = "simulation"))]
    pub fn advance(&self, duration: Duration) {
        if let ClockSource::Manual(clock) = &self.0 {
            clock.now_us.fetch_add(micros(duration), Ordering::SeqCst);
            clock.passed.notify_waiters();
        }
    }

    /// Simulates a suspended host: the clock jumps, and no timer fires. No effect on the system's clock.
    pub fn suspend(&self, duration: Duration) {
        if let ClockSource::Virtual(clock) = &self.0 {
            clock
                .jumped_us
                .fetch_add(micros(duration), Ordering::SeqCst);
        }
    }

    /// Simulates an administrator or NTP that sets wall time back. No effect on the system's clock.
    pub fn step_wall_back(&self, duration: Duration) {
        if let ClockSource::Virtual(clock) = &self.0 {
            clock.wall_us.fetch_sub(micros(duration), Ordering::SeqCst);
        }
    }

    /// The time now.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that reads the runtime's time"
    )]
    pub fn now(&self) -> Moment {
        match &self.0 {
            ClockSource::System => Moment::from_micros(boot_micros()),
            ClockSource::Virtual(clock) => {
                let awake = micros(tokio::time::Instant::now().duration_since(clock.origin));
                // Not from zero, so that a deadline before the first moment can be told apart.
                Moment::from_micros(1_000_000 + awake + clock.jumped_us.load(Ordering::SeqCst))
            }
            #[cfg(any(test, feature = "simulation"))]
            ClockSource::Manual(clock) => Moment::from_micros(clock.now_us.load(Ordering::SeqCst)),
        }
    }

    /// The time of day, for people. It may go back, so the library decides nothing by it.
    pub fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.store_now().wall_us)
    }

    /// The time as a store on this host judges it.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that reads wall time"
    )]
    pub(crate) fn store_now(&self) -> Now {
        let clock_us = self.now().as_micros();
        let wall_us = match &self.0 {
            ClockSource::System => SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, micros),
            ClockSource::Virtual(clock) => clock.wall_us.load(Ordering::SeqCst) + clock_us,
            #[cfg(any(test, feature = "simulation"))]
            ClockSource::Manual(_) => VIRTUAL_EPOCH_US + clock_us,
        };
        Now { clock_us, wall_us }
    }

    /// Waits until `deadline`, and notices within 100 ms of resuming if the host slept past it.
    #[doc(hidden)]
    pub async fn sleep_until(&self, deadline: Moment) {
        loop {
            let left = deadline.since(self.now());
            if left.is_zero() {
                return;
            }
            #[cfg(any(test, feature = "simulation"))]
            if let ClockSource::Manual(clock) = &self.0 {
                let mut passed = std::pin::pin!(clock.passed.notified());
                // Listen first: another thread may move the clock between the look and the wait.
                passed.as_mut().enable();
                if !deadline.since(self.now()).is_zero() {
                    passed.await;
                }
                continue;
            }
            tokio::time::sleep(left.min(SLICE)).await;
        }
    }

    /// Waits until a moment that no deadline depends on. A host that slept past it may notice late.
    pub(crate) async fn sleep_until_about(&self, moment: Moment) {
        #[cfg(any(test, feature = "simulation"))]
        if let ClockSource::Manual(_) = self.0 {
            // The clock may move between two looks at it.
            return self.sleep_until(moment).await;
        }
        self.sleep(moment.since(self.now())).await;
    }

    /// Waits for a duration that no deadline depends on: a back-off, a poll.
    #[doc(hidden)]
    pub async fn sleep(&self, duration: Duration) {
        #[cfg(any(test, feature = "simulation"))]
        if let ClockSource::Manual(_) = self.0 {
            return self.sleep_until(self.now().after(duration)).await;
        }
        tokio::time::sleep(duration).await;
    }

    /// The output of `future`, or `None` if it takes longer than `limit`.
    #[doc(hidden)]
    pub async fn within<F: std::future::Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Option<F::Output> {
        tokio::time::timeout(limit, future).await.ok()
    }

    /// Whether timers follow the current runtime, so that all work must be done there.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.0, ClockSource::Virtual(_))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_virtual() {
            "Clock(virtual)"
        } else {
            "Clock(system)"
        })
    }
}

/// Elsewhere than on Linux, `CLOCK_MONOTONIC` counts suspend.
#[cfg(any(target_os = "linux", target_os = "android"))]
const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_MONOTONIC;

fn boot_micros() -> u64 {
    // Fails only for a clock that the system does not have; the end of time then makes every lease look expired, never held.
    clock_gettime(COUNTS_SUSPEND).map_or(u64::MAX, |time| micros(Duration::from(time)))
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
