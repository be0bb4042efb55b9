//! Estimates the server's clock, without a request for each look at a cache entry.
//!
//! The estimate is never behind the server's clock by more than the drift between two samples. Otherwise a value would
//! count as fresh for too long.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// The age at which a sample is renewed. If the server's clock is set, the old sample is used for at most this long.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// The age at which a sample is no longer used. Until then one reader renews it for all, so that a burst of reads does
/// not cause a burst of requests.
const USELESS: Duration = Duration::from_secs(60);

/// How long a reader waits for the renewal by another reader before it asks too.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last sample of the clock of one connection's server.
#[derive(Debug, Default)]
pub(super) struct ServerTime(Mutex<Option<Sample>>);

/// The server's clock showed `server_us` at `sent` or later.
#[derive(Debug, Clone, Copy)]
struct Sample {
    server_us: u64,
    sent: Moment,
    /// When a reader last asked for the next sample.
    asked: Moment,
}

impl ServerTime {
    /// True if the caller has to ask for a new sample.
    pub(super) fn is_to_be_asked(&self, now: Moment) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sample) = known.as_mut() else {
            return true;
        };
        let age = now.since(sample.sent);
        let is_due = age > GOOD_FOR && (age > USELESS || now.since(sample.asked) > PATIENCE);
        if is_due {
            sample.asked = now;
        }
        is_due
    }

    /// Records that a request sent at `sent` was answered at `server_us` on the server's clock.
    pub(super) fn learn(&self, server_us: u64, sent: Moment) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|sample| sent >= sample.sent) {
            let asked = sent;
            *known = Some(Sample {
                server_us,
                sent,
                asked,
            });
        }
    }

    /// Records an answer in milliseconds, which the server has rounded down.
    pub(super) fn learn_ms(&self, server_ms: u64, sent: Moment) {
        self.learn(server_ms.saturating_mul(1_000).saturating_add(999), sent);
    }

    /// The server's clock at `now`, in milliseconds: behind it by drift at most, and ahead by one round trip at most.
    /// Without any sample it is `u64::MAX`: every value counts as stale, and the server decides.
    pub(super) fn now_ms(&self, now: Moment) -> u64 {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known else {
            return u64::MAX;
        };
        let passed = u64::try_from(now.since(known.sent).as_micros()).unwrap_or(u64::MAX);
        known.server_us.saturating_add(passed) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn the_clock_of_the_server_goes_on_from_when_it_was_asked() {
        let time = ServerTime::default();
        assert!(time.is_to_be_asked(at(0)));
        assert_eq!(time.now_ms(at(0)), u64::MAX);
        time.learn(7_000_000, at(1_000));
        assert_eq!(time.now_ms(at(1_000)), 7_000);
        assert_eq!(time.now_ms(at(1_999)), 7_000);
        assert_eq!(time.now_ms(at(2_000)), 7_001);
        // In milliseconds it was 8.0 to 8.999 s/1000 then.
        time.learn_ms(8_000, at(2_000));
        assert_eq!(time.now_ms(at(2_000)), 8_000);
        assert_eq!(time.now_ms(at(2_001)), 8_001);
    }

    #[test]
    fn sample_is_renewed_after_ten_seconds_and_older_one_ignored() {
        let time = ServerTime::default();
        time.learn(7_000_000, at(5_000));
        assert!(!time.is_to_be_asked(at(10_005_000)));
        assert!(time.is_to_be_asked(at(10_005_001)));
        time.learn(1_000_000, at(4_999));
        assert_eq!(time.now_ms(at(5_000)), 7_000);
    }

    #[test]
    fn one_reader_asks_for_all_until_what_is_known_is_useless() {
        let time = ServerTime::default();
        // Without a sample, every reader has to ask.
        assert!(time.is_to_be_asked(at(0)) && time.is_to_be_asked(at(0)));
        time.learn(7_000_000, at(0));
        assert!(time.is_to_be_asked(at(11_000_000)));
        assert!(!time.is_to_be_asked(at(11_000_000)));
        // The reader that asked got no answer.
        assert!(!time.is_to_be_asked(at(12_000_000)));
        assert!(time.is_to_be_asked(at(12_000_001)));
        assert!(time.is_to_be_asked(at(60_000_001)) && time.is_to_be_asked(at(60_000_001)));
    }
}
