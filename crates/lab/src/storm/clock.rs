//! The wall clock of a soak test's servers: the host's, plus an offset that jumps. No other clock is affected, and a server
//! counts as following it only after a check.

use std::path::PathBuf;

use testkit::{ClockOffset, RedisServer};

use crate::host_time;
use crate::server::time_us;

/// The initial offset, which shows whether a server follows the clock.
const AHEAD_NS: i64 = 10_000_000_000;

/// One clock for all servers of a soak test.
#[derive(Debug)]
pub(super) struct ServerClock {
    offset: ClockOffset,
    offset_ns: i64,
    /// The latest time that it showed before it was last set back.
    latest_ns: i64,
}

impl ServerClock {
    /// Makes a clock, or says why it is not possible here.
    pub(super) fn make() -> Result<Self, String> {
        let mut clock = Self {
            offset: ClockOffset::try_new()?,
            offset_ns: 0,
            latest_ns: 0,
        };
        clock.set(AHEAD_NS)?;
        Ok(clock)
    }

    /// The environment of a server that follows this clock.
    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        self.offset.environment()
    }

    /// Jumps forward or back. The servers' next reading of the clock includes it.
    pub(super) fn jump(&mut self, by_ns: i64) -> Result<(), String> {
        self.latest_ns = self.latest_ns.max(self.now_ns());
        self.set(self.offset_ns.saturating_add(by_ns))
    }

    /// Shows the host's time from now on, as if it had never shown another.
    pub(super) fn show_the_hosts(&mut self) -> Result<(), String> {
        self.latest_ns = 0;
        self.set(0)
    }

    /// Whether it shows no time that it has shown before.
    pub(super) fn has_caught_up(&self) -> bool {
        self.now_ns() > self.latest_ns
    }

    /// Whether a server shows this clock.
    pub(super) fn is_shown_by(&self, server: &RedisServer) -> Result<bool, String> {
        let before = host_time::wall_ns();
        let shown_ns = time_us(server)? * 1_000;
        Ok(self.is_shown([before, host_time::wall_ns()], shown_ns))
    }

    /// Whether a server time, read between two times of the host, is the time of this clock.
    const fn is_shown(&self, asked: [i64; 2], shown_ns: i64) -> bool {
        // A server counts in microseconds, and may use the system's coarse clock, which ticks less often.
        let host_ns = shown_ns - self.offset_ns;
        host_ns >= asked[0] - 10_000_000 && host_ns <= asked[1]
    }

    fn now_ns(&self) -> i64 {
        host_time::wall_ns().saturating_add(self.offset_ns)
    }

    fn set(&mut self, offset_ns: i64) -> Result<(), String> {
        // Jumps are whole microseconds.
        self.offset.try_set(offset_ns / 1_000)?;
        self.offset_ns = offset_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn clock_set_back_catches_up_clock_set_forward_is_done() {
        let mut clock = ServerClock::make().unwrap();
        assert!(clock.has_caught_up());
        clock.jump(-3_600_000_000_000).unwrap();
        assert!(!clock.has_caught_up());
        clock.jump(3_599_000_000_000).unwrap();
        assert!(!clock.has_caught_up());
        clock.jump(2_000_000_000).unwrap();
        assert!(clock.has_caught_up());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_time_is_this_clocks_or_the_hosts() {
        let clock = ServerClock::make().unwrap();
        let now = host_time::wall_ns();
        assert!(clock.is_shown([now, now + 1_000], now + AHEAD_NS));
        assert!(!clock.is_shown([now, now + 1_000], now));
        assert!(!clock.is_shown([now, now + 1_000], now + AHEAD_NS + 2_000));
    }
}
