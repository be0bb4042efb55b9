//! The command under the lease, from its start to its end. Must never let it run on without the lease, and never stop by
//! itself while it runs.
//!
//! # Invariants
//!
//! - **S1** The command, and all of its group, is dead before the lease can have ended, as far as this process gets to run; a command that is
//!   stopped (Ctrl-Z) is not continued unless the lease is good.
//! - **S2** Once it was asked to stop, its own status does not count.
//! - **S3** This process stops only after the command has stopped.
//! - **S4** The guardian knows until when the command may run, before that time is moved by anything else.
//!
//! With `--on-lost warn`, S1 and S2 hold for the end that `--max-hold` sets alone.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Clock, Moment};
use nix::sys::signal::Signal;

use super::args::OnLost;
use super::child::{Child, ChildChange};
use super::guardian::Guardian;
use super::lock_guard::LockGuard;
use super::policy::{Notice, Notices, Policy, StopReason, Verdict, until_kill};
use super::stop::{StopAction, StopLimits, StopPhase, StopState};
use crate::messages::{quoted, say, span};
use crate::signals::Signals;
use crate::sys;
use crate::terminal::Terminal;

/// How soon to look again whether the rest of a process group has gone.
const REST_OF_GROUP: Duration = Duration::from_millis(10);

/// How long a command that was stopped in the background stays stopped at least.
const BACKGROUND: Duration = Duration::from_millis(100);

/// How long a guardian lives at least before it is replaced, whoever kills one after the other.
const REPLACEMENT: Duration = Duration::from_millis(20);

/// One command, its lease, and how far things have come.
pub(crate) struct Supervisor<'a> {
    child: &'a mut Child,
    lease: &'a LockGuard,
    terminal: Option<&'a Terminal>,
    guardian: &'a mut Guardian,
    rules: Policy,
    clock: Clock,
    /// When the lock was acquired.
    begun: Moment,
    stopping: Stopping,
    /// When the loop last ran, and when it last ran after a gap.
    looked: Moment,
    stalled: Option<Moment>,
    /// Stopped by job control, until this moment, and to be continued.
    suspended: Option<Moment>,
    /// The end of the lease that the guardian was told.
    told: Option<Moment>,
    /// When the guardian was replaced.
    replaced: Option<Moment>,
    said: Notices,
}

#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    Asked(Moment),
    Killed(Moment),
}

impl<'a> Supervisor<'a> {
    /// For a command that is about to be started, under a lease that was acquired at `begun`. Tells the guardian until when
    /// it may run.
    pub(crate) fn brief(guardian: &mut Guardian, lease: &LockGuard, rules: Policy, begun: Moment) {
        let now = Clock::system().now();
        // No command begins without a lease, also not one that may go on without.
        guardian.admit(lease.valid_until().since(now));
        guardian.allow(until_kill(lease, rules, now, begun));
    }

    pub(crate) fn new(
        child: &'a mut Child,
        lease: &'a LockGuard,
        terminal: Option<&'a Terminal>,
        guardian: &'a mut Guardian,
        rules: Policy,
        begun: Moment,
    ) -> Self {
        let clock = Clock::system();
        let looked = clock.now();
        guardian.watches(child.group());
        Self {
            child,
            lease,
            terminal,
            guardian,
            rules,
            clock,
            begun,
            stopping: Stopping::No,
            looked,
            stalled: None,
            suspended: None,
            told: None,
            replaced: None,
            said: Notices::default(),
        }
    }

    /// Watches until the command, and what it leaves in its group, is gone.
    pub(crate) async fn until_end(mut self, signals: &mut Signals) -> Verdict {
        loop {
            self.tell_guardian();
            self.replace_guardian();
            if let Some(ChildChange::Stopped(signal)) = self.child.change() {
                self.stopped(signal);
            }
            if let Some(verdict) = self.verdict() {
                return verdict;
            }
            let rest = match self.look() {
                StopAction::Rest(rest) => rest,
                StopAction::Ask => {
                    self.ask();
                    continue;
                }
                StopAction::Kill => {
                    self.kill();
                    continue;
                }
                StopAction::GiveUp => return Verdict::Undead(self.why()),
            };
            self.resume();
            let has_ended = self.child.status().is_some();
            let rest = if has_ended {
                rest.min(REST_OF_GROUP)
            } else {
                rest
            };
            let heeds_loss = matches!(self.stopping, Stopping::No) && !self.said.has(Notice::Lost);
            tokio::select! {
                () = self.child.news() => {}
                signal = signals.next() => self.pass_on(signal),
                _ = self.lease.lost(), if heeds_loss => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// How it ended, if it has.
    fn verdict(&mut self) -> Option<Verdict> {
        let status = self.child.status()?;
        let is_gone = !self.child.group_lives();
        // Killed by the guardian, it may have ended before we could ask.
        let stopped = !matches!(self.stopping, Stopping::No) || self.guardian.has_killed();
        match (is_gone, stopped) {
            (true, true) => Some(Verdict::Stopped(self.why())),
            // They are dying.
            (false, true) => None,
            (false, false) if !self.rules.release_on_exit => {
                self.rest_lives();
                None
            }
            (_, false) => Some(self.ended(status)),
        }
    }

    fn ended(&self, status: ExitStatus) -> Verdict {
        self.lease
            .loss()
            .map_or(Verdict::Ended(status), Verdict::TooLate)
    }

    fn why(&mut self) -> StopReason {
        let loss = self.lease.loss();
        if self.said.has(Notice::MaxHold) {
            StopReason::MaxHold
        } else if matches!(self.stopping, Stopping::No) && self.guardian.has_killed() {
            StopReason::Guardian(loss)
        } else {
            StopReason::Lost(loss)
        }
    }

    /// The command is gone, and others of its group are not: the lock is theirs as long as they live.
    fn rest_lives(&mut self) {
        if !self.said.first(Notice::RestLives) {
            return;
        }
        say(&format!(
            "the command has ended, but processes that it started are still running: {} is kept until they end
    (--release-on-exit gives it back at once)",
            quoted(self.lease.name())
        ));
        if let Some(terminal) = self.terminal {
            // Nobody in the background reads from it, and Ctrl-C is to reach us.
            terminal.take_from(self.child.group());
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        let is_rest = self.child.status().is_some();
        match signal {
            // Ctrl-C again: whoever runs in the background often ignores the first.
            Signal::SIGINT if is_rest && !self.said.first(Notice::Interrupted) => {
                self.child.signal(Signal::SIGKILL);
            }
            // There is no command to decide that any more.
            Signal::SIGTSTP if is_rest => {
                self.child.signal(signal);
                sys::stop_own_group();
                self.child.signal(Signal::SIGCONT);
            }
            _ => self.child.signal(signal),
        }
    }

    /// Tells the guardian when the end has moved (S4).
    fn tell_guardian(&mut self) {
        let until = self.lease.valid_until();
        if self.told != Some(until) {
            self.told = Some(until);
            let left = until_kill(self.lease, self.rules, self.clock.now(), self.begun);
            self.guardian.allow(left);
        }
    }

    /// Puts another guardian in the place of one that was killed.
    fn replace_guardian(&mut self) {
        let now = self.clock.now();
        if (self.replaced).is_some_and(|last| now.since(last) < REPLACEMENT) {
            return;
        }
        match self.guardian.replace_if_gone() {
            Ok(false) => {}
            Ok(true) => {
                self.replaced = Some(now);
                if self.said.first(Notice::Replaced) {
                    say("the process lease-guardian was killed; another one has taken its place");
                }
            }
            Err(error) => {
                if self.said.first(Notice::Unguarded) {
                    say(&format!(
                        "the process lease-guardian was killed, and the system refuses another one for now: {error}
    if this process is killed or stopped as well, the command may outlive the lease"
                    ));
                }
            }
        }
    }

    /// What is to be done now.
    fn look(&mut self) -> StopAction {
        let now = self.clock.now();
        if StopLimits::is_stall(now.since(self.looked)) {
            self.stalled = Some(now);
        }
        self.looked = now;
        let phase = match self.stopping {
            Stopping::No => StopPhase::Running,
            Stopping::Asked(at) => StopPhase::Asked(now.since(at)),
            Stopping::Killed(at) => StopPhase::Killed(now.since(at)),
        };
        let since_stall = self.stalled.map(|at| now.since(at));
        let mut lost = self.lease.is_lost();
        if self.rules.on_lost == OnLost::Warn {
            self.warn(lost);
            lost = false;
        }
        self.rules.limits.act(StopState {
            phase,
            lost,
            left: self.left(now),
            since_stall,
        })
    }

    fn warn(&mut self, lost: bool) {
        if lost && self.said.first(Notice::Lost) {
            say(&format!(
                "{} was lost; the command goes on WITHOUT it (--on-lost warn)",
                quoted(self.lease.name())
            ));
        }
    }

    fn ask(&mut self) {
        let lock = quoted(self.lease.name());
        // In short: the whole reason is told at the end.
        if self.lease.is_lost() && self.rules.on_lost != OnLost::Warn {
            say(&format!("{lock} was lost, stopping the command"));
        } else if self.is_held_too_long() {
            self.said.first(Notice::MaxHold);
            say(&format!(
                "{lock} was held for as long as it may be ({}, --max-hold), stopping the command",
                span(self.rules.max_hold.unwrap_or_default())
            ));
        } else {
            say(&format!(
                "{lock} could not be renewed and ends in {}, stopping the command",
                span(self.lease.valid_for())
            ));
        }
        let signal = match self.rules.on_lost {
            OnLost::Ask(signal) => signal,
            OnLost::Warn => Signal::SIGTERM,
            OnLost::Kill => return self.kill(),
        };
        self.child.signal(signal);
        // One that is stopped could not act on it.
        self.child.signal(Signal::SIGCONT);
        self.stopping = Stopping::Asked(self.clock.now());
    }

    fn kill(&mut self) {
        if matches!(self.stopping, Stopping::No) {
            // Killed without being asked: nothing was said, and the reason is for the end.
            if !self.lease.is_lost() && self.is_held_too_long() {
                self.said.first(Notice::MaxHold);
            }
        }
        self.child.signal(Signal::SIGKILL);
        self.stopping = Stopping::Killed(self.clock.now());
    }

    /// Whether it is `--max-hold` that ends it now, and not the lease.
    fn is_held_too_long(&self) -> bool {
        let now = self.clock.now();
        let of_lease = until_kill(
            self.lease,
            Policy {
                max_hold: None,
                ..self.rules
            },
            now,
            self.begun,
        );
        until_kill(self.lease, self.rules, now, self.begun) != of_lease
    }

    /// The command was stopped: if by the terminal, the shell that started us is to get the terminal back.
    fn stopped(&mut self, signal: i32) {
        let Some(terminal) = self.terminal else {
            return;
        };
        let group = self.child.group();
        let wants_terminal = signal == Signal::SIGTTIN as i32 || signal == Signal::SIGTTOU as i32;
        if wants_terminal && terminal.is_ours() {
            terminal.give_to(group);
            self.child.signal(Signal::SIGCONT);
            return;
        }
        let had_terminal = terminal.take_from(group);
        if !(had_terminal || wants_terminal || signal == Signal::SIGTSTP as i32) {
            // Someone stopped it by hand. The lock is kept for it.
            return;
        }
        let (name, left) = (quoted(self.lease.name()), span(self.lease.valid_for()));
        say(&format!(
            "stopped; {name} is kept for {left}: continue before that (fg), or others may take it and the command is killed"
        ));
        // The command has stopped before (S3). This returns when we are continued, or at once if nobody could do that.
        sys::stop_own_group();
        self.suspended = Some(self.clock.now());
    }

    /// Lets a command that was stopped by job control go on, if the lease is good (S1).
    fn resume(&mut self) {
        let (Some(terminal), Some(since), now) = (self.terminal, self.suspended, self.clock.now())
        else {
            return;
        };
        let in_front = terminal.is_ours();
        // In the background it may only ask for the terminal again: not in a tight loop, if nobody can stop us.
        let due = in_front || now.since(since) >= BACKGROUND;
        if !due || !self.rules.limits.are_far(self.left(now)) {
            return;
        }
        self.suspended = None;
        if in_front {
            terminal.give_to(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
    }

    /// Time until the command must be dead, and the margin for it; for ever, if nothing says so.
    fn left(&self, now: Moment) -> Duration {
        until_kill(self.lease, self.rules, now, self.begun).map_or(Duration::MAX, |left| {
            left.saturating_add(self.rules.limits.margin())
        })
    }
}
