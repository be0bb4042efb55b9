//! The command under the lease, from its start to its end. Must never let it run on without the lease, and never stop by
//! itself while it runs.
//!
//! # Invariants
//!
//! - **S1** The command is dead before the lease can have ended, as far as this process gets to run; a command that is
//!   stopped (Ctrl-Z) is not continued unless the lease is good.
//! - **S2** Once it was asked to stop, its own status does not count.
//! - **S3** This process stops only after the command has stopped.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Clock, Lease, Lost, Moment};
use nix::sys::signal::Signal;

use crate::child::{Change, Child};
use crate::signals::Signals;
use crate::stop::{Act, Limits, Moment as Look, Phase};
use crate::sys;
use crate::terminal::Terminal;
use crate::text::{quoted, say, span};

/// How soon to look again whether the rest of a process group has gone.
const REST_OF_GROUP: Duration = Duration::from_millis(10);

/// How long a command that was stopped in the background stays stopped at least.
const BACKGROUND: Duration = Duration::from_millis(100);

/// How the command ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// By itself, with the lease held.
    Ended(ExitStatus),
    /// By itself, after the lease.
    TooLate(Lost),
    /// It was asked to stop, and did, or was killed (S2). Why, if the store or the clock has said so: it is not known of a
    /// lease that could not be renewed so far.
    Stopped(Option<Lost>),
    /// The same, but it does not die.
    Undead(Option<Lost>),
}

/// One command, its lease, and how far things have come.
pub(crate) struct Watch<'a> {
    child: &'a mut Child,
    lease: &'a Lease,
    terminal: Option<&'a Terminal>,
    limits: Limits,
    clock: Clock,
    stopping: Stopping,
    /// When the loop last ran, and when it last ran after a gap.
    looked: Moment,
    stalled: Option<Moment>,
    /// Stopped by job control, until this moment, and to be continued.
    suspended: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    Asked(Moment),
    Killed(Moment),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        child: &'a mut Child,
        lease: &'a Lease,
        terminal: Option<&'a Terminal>,
        ttl: Duration,
    ) -> Self {
        let clock = Clock::system();
        let looked = clock.now();
        Self {
            child,
            lease,
            terminal,
            limits: Limits::of(ttl),
            clock,
            stopping: Stopping::No,
            looked,
            stalled: None,
            suspended: None,
        }
    }

    /// Watches until the command is gone.
    pub(crate) async fn until_end(mut self, signals: &mut Signals) -> Verdict {
        loop {
            match self.child.change() {
                Some(Change::Ended(status)) if matches!(self.stopping, Stopping::No) => {
                    return self.ended(status);
                }
                Some(Change::Stopped(signal)) => self.stopped(signal),
                Some(Change::Ended(_)) | None => {}
            }
            if self.child.has_ended()
                && (matches!(self.stopping, Stopping::Killed(_)) || !self.child.group_lives())
            {
                return Verdict::Stopped(self.lease.loss());
            }
            let rest = match self.look() {
                Act::Rest(rest) => rest,
                Act::Ask => {
                    self.ask();
                    continue;
                }
                Act::Kill => {
                    self.child.signal(Signal::SIGKILL);
                    self.stopping = Stopping::Killed(self.clock.now());
                    continue;
                }
                Act::GiveUp => return Verdict::Undead(self.lease.loss()),
            };
            self.resume();
            let rest = if self.child.has_ended() {
                rest.min(REST_OF_GROUP)
            } else {
                rest
            };
            tokio::select! {
                () = self.child.news() => {}
                signal = signals.next() => self.child.signal(signal),
                _ = self.lease.lost(), if matches!(self.stopping, Stopping::No) => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// What is to be done now.
    fn look(&mut self) -> Act {
        let now = self.clock.now();
        if Limits::is_stall(now.since(self.looked)) {
            self.stalled = Some(now);
        }
        self.looked = now;
        let phase = match self.stopping {
            Stopping::No => Phase::Running,
            Stopping::Asked(at) => Phase::Asked(now.since(at)),
            Stopping::Killed(at) => Phase::Killed(now.since(at)),
        };
        let since_stall = self.stalled.map(|at| now.since(at));
        self.limits.act(Look {
            phase,
            lost: self.lease.is_lost(),
            left: self.left(now),
            since_stall,
        })
    }

    fn ask(&mut self) {
        let lock = quoted(self.lease.name());
        // In short: the whole reason is told at the end.
        if self.lease.is_lost() {
            say(&format!("{lock} was lost, stopping the command"));
        } else {
            say(&format!(
                "{lock} could not be renewed and ends in {}, stopping the command",
                span(self.lease.valid_for())
            ));
        }
        self.child.signal(Signal::SIGTERM);
        // One that is stopped could not act on it.
        self.child.signal(Signal::SIGCONT);
        self.stopping = Stopping::Asked(self.clock.now());
    }

    fn ended(&self, status: ExitStatus) -> Verdict {
        self.lease
            .loss()
            .map_or(Verdict::Ended(status), Verdict::TooLate)
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
            "stopped; {name} is kept for {left}, then others may take it and the command is ended"
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
        if !due || !self.limits.are_far(self.left(now)) {
            return;
        }
        self.suspended = None;
        if in_front {
            terminal.give_to(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
    }

    /// Time until the lease ends. Not `valid_for`, which is zero as soon as the lease is lost: what was left of it then
    /// is the time that the command gets to stop.
    fn left(&self, now: Moment) -> Duration {
        self.lease.valid_until().since(now)
    }
}
