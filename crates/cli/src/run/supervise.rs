//! Supervision of the command under the lease, from its start to its end.
//!
//! # Invariants
//!
//! - **SV1** The command and its whole process group are dead before the lease can have ended, as far as this
//!   process gets to run. Of several leases, the one that ends first counts. A command that was stopped (Ctrl-Z) is not continued unless the lease is good.
//! - **SV2** Once the command was asked to stop, its own status does not count.
//! - **SV3** This process stops only after the command has stopped.
//! - **SV4** The guardian learns the deadline of the command before anything else moves that deadline.
//!
//! With `--on-lost warn`, SV1 and SV2 hold only for the limit of `--max-hold`.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Clock, Moment};
use nix::sys::signal::Signal;

use super::command::Child;
use super::guardian::Guardian;
use super::stop::{
    OnLost, Policy, StopAction, StopLimits, StopPhase, StopReason, StopState, Verdict, until_kill,
    when_rest_lives, when_stopped,
};
use crate::held::LockGuard;
use crate::messages::{quoted, say, span};
use crate::sys;
use crate::terminal::{Signals, Terminal};

/// The interval of checks that the rest of a process group has ended.
const REST_OF_GROUP: Duration = Duration::from_millis(10);

/// The minimal time for which a command stopped in the background stays stopped.
const BACKGROUND: Duration = Duration::from_millis(100);

/// The minimal time between two replacements of the guardian.
const REPLACEMENT: Duration = Duration::from_millis(20);

/// A command, its lease and the state of the supervision.
pub(crate) struct Supervisor<'a> {
    child: &'a mut Child,
    lease: &'a LockGuard,
    terminal: Option<&'a Terminal>,
    guardian: &'a mut Guardian,
    policy: Policy,
    clock: Clock,
    /// When the lock was acquired.
    begun: Moment,
    stopping: Stopping,
    /// The time of the last check, and of the last check after a stall.
    looked: Moment,
    stalled: Option<Moment>,
    /// The time of the last job-control stop, while the command waits to be continued.
    suspended: Option<Moment>,
    /// The lease deadline that the guardian knows.
    told: Option<Moment>,
    /// The time of the last guardian replacement.
    replaced: Option<Moment>,
    said: BTreeSet<Notice>,
}

/// A message or an action that happens once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    Lost,
    RestLives,
    Interrupted,
    Replaced,
    Unguarded,
    MaxHold,
}

#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    Asked(Moment),
    Killed(Moment),
}

impl<'a> Supervisor<'a> {
    /// Prepares the guardian for a command under a lease acquired at `begun`: sets the deadline.
    pub(crate) fn prepare_guardian(
        guardian: &mut Guardian,
        lease: &LockGuard,
        policy: Policy,
        begun: Moment,
    ) {
        let now = Clock::system().now();
        // Without a lease no command starts, also with `--on-lost warn`.
        guardian.set_start_deadline(lease.valid_until().since(now));
        guardian.set_deadline(until_kill(lease, policy, now, begun));
    }

    pub(crate) fn new(
        child: &'a mut Child,
        lease: &'a LockGuard,
        terminal: Option<&'a Terminal>,
        guardian: &'a mut Guardian,
        policy: Policy,
        begun: Moment,
    ) -> Self {
        let clock = Clock::system();
        let looked = clock.now();
        guardian.group = Some(child.group());
        Self {
            child,
            lease,
            terminal,
            guardian,
            policy,
            clock,
            begun,
            stopping: Stopping::No,
            looked,
            stalled: None,
            suspended: None,
            told: None,
            replaced: None,
            said: BTreeSet::new(),
        }
    }

    /// Runs until the command and the rest of its process group have ended.
    pub(crate) async fn until_end(mut self, signals: &mut Signals) -> Verdict {
        loop {
            self.tell_guardian();
            self.replace_guardian();
            if let Some(signal) = self.child.change() {
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
            let rest = rest.min(if has_ended { REST_OF_GROUP } else { rest });
            let heeds_loss =
                matches!(self.stopping, Stopping::No) && !self.said.contains(&Notice::Lost);
            tokio::select! {
                () = self.child.changed() => {}
                signal = signals.next() => self.pass_on(signal),
                _ = self.lease.lost(), if heeds_loss => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// The verdict, if the command has ended.
    fn verdict(&mut self) -> Option<Verdict> {
        let status = self.child.status()?;
        let is_gone = !self.child.group_lives();
        // The guardian may have killed it before this process could ask it to stop.
        let stopped = !matches!(self.stopping, Stopping::No) || self.guardian.has_killed();
        match (is_gone, stopped) {
            (true, true) => Some(Verdict::Stopped(self.why())),
            // The rest of the group is being killed.
            (false, true) => None,
            (false, false) if !self.policy.release_on_exit => {
                self.report_left_processes();
                None
            }
            (_, false) => match self.lease.loss() {
                Some(loss) => Some(Verdict::TooLate(loss)),
                None => Some(Verdict::Ended(status)),
            },
        }
    }

    fn why(&mut self) -> StopReason {
        let loss = self.lease.loss();
        if self.said.contains(&Notice::MaxHold) {
            StopReason::MaxHold
        } else if matches!(self.stopping, Stopping::No) && self.guardian.has_killed() {
            StopReason::Guardian(loss)
        } else {
            StopReason::Lost(loss)
        }
    }

    /// Reports that the command has ended but processes of its group keep the lock, or go on without it.
    fn report_left_processes(&mut self) {
        let is_lost = self.lease.is_lost();
        if is_lost && self.policy.on_lost != OnLost::Warn || !self.said.insert(Notice::RestLives) {
            return;
        }
        say(&when_rest_lives(self.lease));
        if let Some(terminal) = self.terminal {
            // Background processes do not read the terminal, and Ctrl-C must reach this process.
            terminal.take_from(self.child.group());
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        let is_rest = self.child.status().is_some();
        match signal {
            // The second Ctrl-C kills: background processes often ignore the first.
            Signal::SIGINT if is_rest && !self.said.insert(Notice::Interrupted) => {
                self.child.signal(Signal::SIGKILL);
            }
            // The command has ended, so this process handles Ctrl-Z.
            Signal::SIGTSTP if is_rest => {
                self.child.signal(signal);
                sys::stop_own_group();
                self.child.signal(Signal::SIGCONT);
            }
            _ => self.child.signal(signal),
        }
    }

    /// Passes a moved deadline to the guardian (SV4).
    fn tell_guardian(&mut self) {
        let until = self.lease.valid_until();
        if self.told != Some(until) {
            self.told = Some(until);
            let left = until_kill(self.lease, self.policy, self.clock.now(), self.begun);
            self.guardian.set_deadline(left);
        }
    }

    /// Replaces a killed guardian.
    fn replace_guardian(&mut self) {
        let now = self.clock.now();
        if (self.replaced).is_some_and(|last| now.since(last) < REPLACEMENT) {
            return;
        }
        match self.guardian.replace_if_gone() {
            Ok(false) => {}
            Ok(true) => {
                self.replaced = Some(now);
                if self.said.insert(Notice::Replaced) {
                    say("the process lease-guardian was killed; a new one replaces it");
                }
            }
            Err(error) => {
                if self.said.insert(Notice::Unguarded) {
                    say(&format!(
                        "the process lease-guardian was killed, and a new one cannot be started now: {error}
    if this process is killed or stopped as well, the command may outlive the lease"
                    ));
                }
            }
        }
    }

    /// The next action.
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
        if self.policy.on_lost == OnLost::Warn {
            if lost && self.said.insert(Notice::Lost) {
                say(&format!(
                    "{} was lost; the command goes on WITHOUT it (--on-lost warn)",
                    quoted(self.lease.endangered())
                ));
            }
            lost = false;
        }
        self.policy.limits.act(StopState {
            phase,
            lost,
            left: self.left(now),
            since_stall,
        })
    }

    fn ask(&mut self) {
        let lock = quoted(self.lease.endangered());
        // A short message; the exit message has the whole reason.
        if self.lease.is_lost() && self.policy.on_lost != OnLost::Warn {
            say(&format!("{lock} was lost, stopping the command"));
        } else if self.is_held_too_long() {
            self.said.insert(Notice::MaxHold);
            say(&format!(
                "{} reached its time limit ({}, {}), stopping the command",
                self.lease.names(),
                span(self.policy.max_hold.unwrap_or_default()),
                self.policy.max_hold_option
            ));
        } else {
            say(&format!(
                "{lock} could not be renewed and ends in {}, stopping the command",
                span(self.lease.valid_for())
            ));
        }
        let signal = match self.policy.on_lost {
            OnLost::Ask(signal) => signal,
            OnLost::Warn => Signal::SIGTERM,
            OnLost::Kill => return self.kill(),
        };
        self.child.signal(signal);
        // A stopped process could not react.
        self.child.signal(Signal::SIGCONT);
        self.stopping = Stopping::Asked(self.clock.now());
    }

    fn kill(&mut self) {
        let is_first = matches!(self.stopping, Stopping::No);
        // Killed without a stop signal: no message yet; the exit message has the reason.
        if is_first && !self.lease.is_lost() && self.is_held_too_long() {
            self.said.insert(Notice::MaxHold);
        }
        self.child.signal(Signal::SIGKILL);
        self.stopping = Stopping::Killed(self.clock.now());
    }

    /// True if `--max-hold` ends the command now, and not the lease.
    fn is_held_too_long(&self) -> bool {
        let now = self.clock.now();
        let mut unlimited = self.policy;
        unlimited.max_hold = None;
        let of_lease = until_kill(self.lease, unlimited, now, self.begun);
        until_kill(self.lease, self.policy, now, self.begun) != of_lease
    }

    /// Handles a stopped command. If the terminal stopped it, the calling shell gets the terminal back.
    fn stopped(&mut self, signal: i32) {
        let Some(terminal) = self.terminal else {
            return;
        };
        let group = self.child.group();
        let wants_terminal = signal == Signal::SIGTTIN as i32 || signal == Signal::SIGTTOU as i32;
        if wants_terminal && terminal.is_foreground() {
            terminal.give_to(group);
            self.child.signal(Signal::SIGCONT);
            return;
        }
        let had_terminal = terminal.take_from(group);
        if !(had_terminal || wants_terminal || signal == Signal::SIGTSTP as i32) {
            // A user stopped the command with a signal. The lock is kept.
            return;
        }
        say(&when_stopped(self.lease, self.policy));
        // The command is already stopped (SV3). Returns after SIGCONT, or at once if there is no shell to
        // continue this group.
        sys::stop_own_group();
        self.suspended = Some(self.clock.now());
    }

    /// Continues a command that job control stopped, if the lease is good (SV1).
    fn resume(&mut self) {
        let (Some(terminal), Some(since), now) = (self.terminal, self.suspended, self.clock.now())
        else {
            return;
        };
        let in_front = terminal.is_foreground();
        // In the background it can only ask for the terminal again. Avoids a tight loop where no shell can stop
        // this process.
        let due = in_front || now.since(since) >= BACKGROUND;
        if !due || !self.policy.limits.are_far(self.left(now)) {
            return;
        }
        self.suspended = None;
        if in_front {
            terminal.give_to(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
    }

    /// The time until the command must be dead plus the margin; unlimited if there is no limit.
    fn left(&self, now: Moment) -> Duration {
        until_kill(self.lease, self.policy, now, self.begun).map_or(Duration::MAX, |left| {
            left.saturating_add(self.policy.limits.margin)
        })
    }
}
