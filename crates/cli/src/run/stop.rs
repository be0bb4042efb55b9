//! The schedule for stopping a command before the lease can end, and the possible ends of its run. Pure, except for
//! reading the lease: the time is an argument.
//!
//! ```text
//! last renewal                                    TERM ------ grace ------ KILL - margin - the lease may end
//! ```
//!
//! When the key expires, Redis grants the lock to the next client. So the command is asked to stop before that,
//! and killed if it does not stop. A renewal meanwhile extends the lease, but a command that was asked to stop
//! is stopped anyway.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Lost, Moment};
use nix::sys::signal::Signal;

use crate::held::LockGuard;
use crate::messages::{quoted, span};
use crate::session::Released;

/// The interval of clock checks: timers do not count the time during which a host is suspended.
const SLICE: Duration = Duration::from_millis(100);

/// If this process did not run for this long (stopped, suspended, starved), its renewals did not run either.
/// They get the same time again before the command is stopped.
const STALL: Duration = Duration::from_millis(300);

/// The time a killed command may take to die. One that waits for a dead disk may never die.
const DEATH_LIMIT: Duration = Duration::from_secs(1);

/// The action on a lost lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// Send this signal, and KILL after the grace.
    Ask(Signal),
    Kill,
    /// The command continues.
    Warn,
}

impl OnLost {
    /// Parses an action.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "term" => Ok(Self::Ask(Signal::SIGTERM)),
            "kill" => Ok(Self::Kill),
            "warn" => Ok(Self::Warn),
            _ => text
                .strip_prefix("signal:")
                .and_then(signal)
                .map(Self::Ask)
                .ok_or_else(|| "write term, kill, warn, or signal:NAME such as signal:INT".into()),
        }
    }
}

/// `INT`, `SIGINT` or `int`.
fn signal(name: &str) -> Option<Signal> {
    let name = name.to_ascii_uppercase();
    let short = name.strip_prefix("SIG").unwrap_or(&name);
    format!("SIG{short}").parse().ok()
}

/// The lead times before the end of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopLimits {
    /// Between TERM and KILL.
    grace: Duration,
    /// Between KILL and the end of the lease.
    pub(crate) margin: Duration,
}

/// The progress of the stop, with the time since its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopPhase {
    /// The command runs.
    Running,
    /// It was asked to stop.
    Asked(Duration),
    /// It was killed.
    Killed(Duration),
}

/// The input of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopState {
    /// The progress of the stop.
    pub(crate) phase: StopPhase,
    /// The lease has ended or cannot be renewed any more.
    pub(crate) lost: bool,
    /// The time until the lease ends, or would have ended.
    pub(crate) left: Duration,
    /// The time since the last [stall](StopLimits::is_stall) ended.
    pub(crate) since_stall: Option<Duration>,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopAction {
    /// Wait for at most this long.
    Rest(Duration),
    /// Send the stop signal.
    Ask,
    /// Send SIGKILL.
    Kill,
    /// The command does not die: give up.
    GiveUp,
}

impl StopLimits {
    /// The limits for a lease of `ttl`, held for at most `max_hold`.
    pub(crate) fn of(ttl: Duration, max_hold: Option<Duration>) -> Self {
        let time = max_hold.map_or(ttl, |max_hold| max_hold.min(ttl));
        let grace = Duration::from_secs(5).min(time / 6);
        let margin = (ttl / 100).max(Duration::from_millis(50).min(ttl / 10));
        Self { grace, margin }
    }

    /// Replaces the grace.
    pub(crate) fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// True if a lease of `ttl` that is renewed each third of it stays far from its limits.
    pub(crate) fn leave_time(self, ttl: Duration) -> bool {
        self.grace + self.margin < ttl / 3
    }

    /// True if a lease that ends after `left` needs no action.
    pub(crate) fn are_far(self, left: Duration) -> bool {
        left > self.grace + self.margin
    }

    /// True if the time between two checks is so long that renewals may not have run either.
    pub(crate) fn is_stall(between: Duration) -> bool {
        between > STALL
    }

    pub(crate) fn act(self, now: StopState) -> StopAction {
        let Self { grace, margin } = self;
        let to_kill = now.left.saturating_sub(margin);
        let to_ask = to_kill.saturating_sub(grace);
        match now.phase {
            StopPhase::Running | StopPhase::Asked(_) if to_kill.is_zero() => StopAction::Kill,
            StopPhase::Running if now.lost => StopAction::Ask,
            StopPhase::Running if !to_ask.is_zero() => StopAction::Rest(SLICE.min(to_ask)),
            StopPhase::Running if now.since_stall.is_some_and(|since| since < STALL) => {
                StopAction::Rest(to_kill.min(SLICE / 10))
            }
            StopPhase::Running => StopAction::Ask,
            StopPhase::Asked(since) if since >= grace => StopAction::Kill,
            StopPhase::Asked(since) => {
                StopAction::Rest(SLICE.min(to_kill).min(grace.saturating_sub(since)))
            }
            StopPhase::Killed(since) if since >= DEATH_LIMIT => StopAction::GiveUp,
            StopPhase::Killed(since) => {
                StopAction::Rest(SLICE.min(DEATH_LIMIT.saturating_sub(since)))
            }
        }
    }
}

/// The end of the command.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It ended by itself while the lease was held.
    Ended(ExitStatus),
    /// It ended by itself after the lease was lost.
    TooLate(Lost),
    /// It was asked to stop, and then ended or was killed (SV2).
    Stopped(StopReason),
    /// It was killed but does not die.
    Undead(StopReason),
}

impl Verdict {
    /// True if the command ended under the lease, with a code.
    pub(crate) fn is_own_end(&self) -> bool {
        matches!(self, Self::Ended(status) if status.code().is_some())
    }

    /// True if the command ended under the lease, with success.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Ended(status) if status.success())
    }
}

/// The reason for stopping the command.
#[derive(Debug)]
pub(crate) enum StopReason {
    /// The lease was lost. Has the cause, unless the lease merely could not be renewed so far.
    Lost(Option<Lost>),
    /// It held the lock for `--max-hold`.
    MaxHold,
    /// This process did not run in time, so the guardian acted.
    Guardian(Option<Lost>),
}

impl StopReason {
    /// The known loss, which the release may have shown.
    pub(crate) fn loss<'a>(&'a self, released: &'a Released) -> Option<&'a Lost> {
        let known = match self {
            Self::MaxHold => return None,
            Self::Lost(known) | Self::Guardian(known) => known.as_ref(),
        };
        known.or(match released {
            Released::WasLost(lost) => Some(lost),
            Released::Yes | Released::Unconfirmed(_) => None,
        })
    }
}

/// The limits and options for a running command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) limits: StopLimits,
    pub(crate) on_lost: OnLost,
    pub(crate) max_hold: Option<Duration>,
    /// The option that says so.
    pub(crate) max_hold_option: &'static str,
    pub(crate) release_on_exit: bool,
}

/// The time until the command must be killed, if there is a limit.
///
/// Not computed from `valid_for`, which is zero as soon as the lease is lost. The rest of the lease is the time
/// that the command gets to stop.
pub(crate) fn until_kill(
    lease: &LockGuard,
    policy: Policy,
    now: Moment,
    begun: Moment,
) -> Option<Duration> {
    let of_lease = (policy.on_lost != OnLost::Warn).then(|| {
        lease
            .valid_until()
            .since(now)
            .saturating_sub(policy.limits.margin)
    });
    let of_hold = policy
        .max_hold
        .map(|max_hold| max_hold.saturating_sub(now.since(begun)));
    [of_lease, of_hold].into_iter().flatten().min()
}

/// The message for a command that has ended while processes of its group run.
pub(crate) fn when_rest_lives(lease: &LockGuard) -> String {
    let lock = if lease.is_lost() {
        let name = quoted(lease.endangered());
        format!("{name} was lost, and they go on WITHOUT it")
    } else {
        let names = lease.names();
        format!("{names} is kept until they end\n    (--release-on-exit gives it back at once)")
    };
    format!("the command has ended, but processes that it started are still running: {lock}")
}

/// The message for a command that job control stopped.
pub(crate) fn when_stopped(lease: &LockGuard, policy: Policy) -> String {
    let left = span(lease.valid_for());
    if lease.is_lost() {
        let name = quoted(lease.endangered());
        return format!("stopped; {name} was lost before");
    }
    let end = if policy.on_lost == OnLost::Warn {
        "the lock becomes free and the command goes on WITHOUT it"
    } else {
        "the command is killed and the lock becomes free"
    };
    let names = lease.names();
    format!("stopped; {names} is kept for {left}: continue within that time (fg), or {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(phase: StopPhase, left: u64) -> StopState {
        StopState {
            phase,
            lost: false,
            left: MS(left),
            since_stall: None,
        }
    }

    #[test]
    fn the_contract_for_30_seconds() {
        use StopAction::{Ask, GiveUp, Kill, Rest};
        use StopPhase::{Asked, Killed, Running};
        let limits = StopLimits::of(MS(30_000), None);
        assert_eq!((limits.grace, limits.margin), (MS(5_000), MS(300)));
        for (phase, left, action) in [
            (Running, 20_000, Rest(MS(100))),
            (Running, 5_310, Rest(MS(10))),
            (Running, 5_300, Ask),
            (Asked(MS(4_000)), 1_300, Rest(MS(100))),
            (Asked(MS(4_990)), 310, Rest(MS(10))),
            (Asked(MS(5_000)), 300, Kill),
            // A renewal does not save a command that was asked.
            (Asked(MS(5_000)), 29_000, Kill),
            (Killed(MS(999)), 0, Rest(MS(1))),
            (Killed(MS(1_000)), 0, GiveUp),
        ] {
            let state = at(phase, left);
            assert_eq!(limits.act(state), action, "{state:?}");
        }
        // A loss asks at once, and kills after the grace or when the time is up.
        for (phase, left, action) in [
            (Running, 25_000, Ask),
            (Asked(MS(5_000)), 20_000, Kill),
            (Asked(MS(1_000)), 300, Kill),
            (Running, 0, Kill),
        ] {
            let lost = StopState {
                lost: true,
                ..at(phase, left)
            };
            assert_eq!(limits.act(lost), action, "{lost:?}");
        }
        // After a stall renewals get time, but never past the margin.
        for (left, since, action) in [
            (4_000, 0, Rest(MS(10))),
            (3_700, 299, Rest(MS(10))),
            (3_700, 300, Ask),
            (300, 0, Kill),
        ] {
            let stalled = StopState {
                since_stall: Some(MS(since)),
                ..at(Running, left)
            };
            assert_eq!(limits.act(stalled), action, "{stalled:?}");
        }
    }

    #[test]
    fn every_ttl_leaves_time_to_renew_and_kills_before_lease_end() {
        for ttl in [10, 50, 100, 1_000, 2_000, 30_000, 86_400_000].map(MS) {
            let limits = StopLimits::of(ttl, None);
            assert!(
                limits.margin > Duration::ZERO && limits.grace + limits.margin < ttl / 3,
                "{ttl:?}"
            );
            // Whatever the TTL, the decisions go from TERM to KILL before the end.
            let (mut left, mut phase) = (ttl, StopPhase::Running);
            loop {
                let moment = StopState {
                    phase,
                    lost: false,
                    left,
                    since_stall: None,
                };
                let passed = match limits.act(moment) {
                    StopAction::Rest(rest) => {
                        assert!(rest > Duration::ZERO && rest <= left, "{ttl:?} {moment:?}");
                        rest
                    }
                    StopAction::Ask => {
                        phase = StopPhase::Asked(Duration::ZERO);
                        continue;
                    }
                    _ => break,
                };
                // Skips the time in which nothing is decided.
                let far = left.saturating_sub(limits.grace + limits.margin + SLICE);
                left -= passed.max(far);
                if let StopPhase::Asked(since) = &mut phase {
                    *since += passed;
                }
            }
            assert!(
                left >= limits.margin && matches!(phase, StopPhase::Asked(_)),
                "{ttl:?} {left:?} {phase:?}"
            );
        }
    }
}
