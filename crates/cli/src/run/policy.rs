//! The limits of a running command, and the possible ends of its run. Pure, except for reading the lease.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Lost, Moment};

use super::args::OnLost;
use super::lock_guard::LockGuard;
use super::stop::StopLimits;
use crate::messages::{quoted, span};

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

/// The limits and options for a running command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) limits: StopLimits,
    pub(crate) on_lost: OnLost,
    pub(crate) max_hold: Option<Duration>,
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
            .saturating_sub(policy.limits.margin())
    });
    let of_hold = policy
        .max_hold
        .map(|max_hold| max_hold.saturating_sub(now.since(begun)));
    [of_lease, of_hold].into_iter().flatten().min()
}

/// The message for a command that has ended while processes of its group run.
pub(crate) fn when_rest_lives(lease: &LockGuard) -> String {
    let name = quoted(lease.name());
    let lock = if lease.is_lost() {
        format!("{name} was lost, and they go on WITHOUT it")
    } else {
        format!("{name} is kept until they end\n    (--release-on-exit gives it back at once)")
    };
    format!("the command has ended, but processes that it started are still running: {lock}")
}

/// The message for a command that job control stopped.
pub(crate) fn when_stopped(lease: &LockGuard, policy: Policy) -> String {
    let (name, left) = (quoted(lease.name()), span(lease.valid_for()));
    if lease.is_lost() {
        return format!("stopped; {name} was lost before");
    }
    let end = if policy.on_lost == OnLost::Warn {
        "the lock becomes free and the command goes on WITHOUT it"
    } else {
        "the command is killed and the lock becomes free"
    };
    format!("stopped; {name} is kept for {left}: continue within that time (fg), or {end}")
}

/// A message or an action that happens once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    Lost,
    RestLives,
    Interrupted,
    Replaced,
    Unguarded,
    MaxHold,
}

/// The messages that were already given.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<Notice>);

impl Notices {
    /// True at the first call for a notice.
    pub(crate) fn first(&mut self, saying: Notice) -> bool {
        let is_first = !self.has(saying);
        if is_first {
            self.0.push(saying);
        }
        is_first
    }

    pub(crate) fn has(&self, saying: Notice) -> bool {
        self.0.contains(&saying)
    }
}
