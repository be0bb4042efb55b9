//! What a running command is allowed, and how its run can end. Pure, but for a look at the lease. Must never allow more time
//! than the lease has.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Lost, Moment};

use super::args::OnLost;
use super::lock_guard::LockGuard;
use super::stop::StopLimits;

/// How the command ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// By itself, with the lease held.
    Ended(ExitStatus),
    /// By itself, after the lease.
    TooLate(Lost),
    /// It was asked to stop, and did, or was killed (S2).
    Stopped(StopReason),
    /// The same, but it does not die.
    Undead(StopReason),
}

/// Why the command was stopped.
#[derive(Debug)]
pub(crate) enum StopReason {
    /// The lease was lost. The cause, if the store or the clock has said so: it is not known of a lease that could not be
    /// renewed so far.
    Lost(Option<Lost>),
    /// It had the lock for as long as it may.
    MaxHold,
    /// This process did not get to run, and the guardian acted.
    Guardian(Option<Lost>),
}

/// What the command is allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) limits: StopLimits,
    pub(crate) on_lost: OnLost,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) release_on_exit: bool,
}

/// Time until the command must be killed, if there is an end to its time.
///
/// Not by `valid_for`, which is zero as soon as the lease is lost: what was left of it then is the time that the command gets
/// to stop.
pub(crate) fn until_kill(
    lease: &LockGuard,
    rules: Policy,
    now: Moment,
    begun: Moment,
) -> Option<Duration> {
    let of_lease = (rules.on_lost != OnLost::Warn).then(|| {
        lease
            .valid_until()
            .since(now)
            .saturating_sub(rules.limits.margin())
    });
    let of_hold = rules
        .max_hold
        .map(|max_hold| max_hold.saturating_sub(now.since(begun)));
    [of_lease, of_hold].into_iter().flatten().min()
}

/// What is said, or done, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    Lost,
    RestLives,
    Interrupted,
    Replaced,
    Unguarded,
    MaxHold,
}

/// What was said already.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<Notice>);

impl Notices {
    /// Whether this is the first time; it is not the next time.
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
