//! `leasehold run`: takes a lock, runs the command under it, and releases it.

mod args;
mod child;
pub(crate) mod command;
mod environment;
mod guardian;
mod lock_guard;
mod policy;
mod report;
mod stop;
mod supervise;
mod timestamp;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use leasehold::{Client, Clock, Moment, Owner};
use leasehold_core::LockName;
use nix::sys::signal::Signal;

pub(crate) use self::args::Run;
use self::child::Child;
use self::command::ResolvedCommand;
use self::environment::{Environment, StoreEnvironment};
use self::guardian::Guardian;
use self::lock_guard::{LockGuard, RELEASE, RELEASE_LOST, Released};
use self::policy::{Policy, StopReason, Verdict};
use self::report::{Facts, ReportFile};
use self::supervise::Supervisor;
use crate::acquire_ui::{self, AcquiredLease, LockRequest, Refused, RetryHint, WaitArgs};
use crate::exit::{BUSY, CONFIG, Exit, InterruptTarget, LOST, SOFTWARE, TIMEOUT, USAGE, exit};
use crate::inherited_store::UrlFile;
use crate::messages::{quoted, say, span, without_advice};
use crate::session::{refused_by_system, with_client};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// The minimal rest of `--at-least` for which the release is delayed.
const SHORTEST: Duration = Duration::from_millis(10);

/// Runs the verb.
pub(crate) fn run(args: &Run) -> Exit {
    let report = match args.report.as_deref().map(ReportFile::open).transpose() {
        Ok(report) => report,
        Err(error) => {
            return exit!(
                CONFIG,
                "the report cannot be written: {error} (exit {CONFIG}); the command was not run"
            );
        }
    };
    let mut facts = Facts::default();
    let exit = begin(args, &mut facts).unwrap_or_else(|exit| exit);
    let happened = exit.code();
    let exit = apply_busy_options(args, exit, facts.started);
    if let Some(report) = report {
        report.write(&facts, happened, &exit);
    }
    exit
}

/// Applies `--skip` and `--busy-code` to a busy lock. The command's own exit codes stay unchanged.
fn apply_busy_options(args: &Run, exit: Exit, started: bool) -> Exit {
    let is_busy = !started && matches!(exit.code(), BUSY | TIMEOUT);
    match args.busy_code {
        _ if !is_busy => exit,
        _ if args.skip => Exit::quiet(0),
        Some(code) => exit.with_code(code),
        None => exit,
    }
}

/// Validates everything before the lock is taken.
fn begin(args: &Run, facts: &mut Facts) -> Result<Exit, Exit> {
    facts.lock = Some(LockName::new(args.lock()?)?.as_str().to_owned());
    let command = args.command()?;
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl.typed)?;
    let limits = args.limits(ttl)?;
    let timestamp = args.timestamp()?;
    let program = ResolvedCommand::find(&command)?;
    // The deadline in a timestamp lock lies later than its TTL.
    let warning = args.warning(ttl, limits).filter(|_| timestamp.is_none());
    if let Some(warning) = warning {
        say(&warning);
    }
    let (store, url_file) = target.place().hand_on();
    let job = LockedRun {
        args,
        ttl,
        program,
        how: args.waiting(),
        policy: Policy {
            limits,
            on_lost: args.on_lost,
            max_hold: args.max_hold,
            release_on_exit: args.release_on_exit,
        },
        place: StoreEnvironment {
            store,
            naming: target.naming().to_vec(),
        },
    };
    // The guardian starts before the lock is taken, so that a system failure leaves no lock.
    let mut guardian = Guardian::start(url_file.as_ref().map(UrlFile::path))
        .map_err(|error| refused_by_system(&error))?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| refused_by_system(&errno.into()))?;
    let waiting = &job.how;
    let target = target.patient(waiting.limit()?, waiting.quiet);
    let exit = with_client(target, async |client, signals| {
        job.locked(client, signals, &mut guardian, facts).await
    });
    drop(url_file);
    Ok(exit)
}

/// A validated run.
struct LockedRun<'a> {
    args: &'a Run,
    ttl: Duration,
    program: ResolvedCommand,
    how: WaitArgs,
    policy: Policy,
    place: StoreEnvironment,
}

impl LockedRun<'_> {
    /// Takes the lock and runs the command under it.
    async fn locked(
        &self,
        client: &Client,
        signals: &mut Signals,
        guardian: &mut Guardian,
        facts: &mut Facts,
    ) -> Result<Exit, Exit> {
        self.check_at_least(client)?;
        let (terminal, clock, ttl) = (Terminal::controlling(), Clock::system(), self.ttl);
        let note = self
            .how
            .note
            .clone()
            .unwrap_or_else(|| self.program.note(Owner::MAX_META_BYTES));
        let (held, waited) = match self.args.timestamp()? {
            None => {
                let found = self.lease(client, &note, signals, terminal.as_ref()).await;
                found.map_err(|refused| facts.refused(refused))?
            }
            Some(lock) => {
                let name = self.args.lock()?;
                let sought = timestamp::TimestampRequest {
                    lock: lock.of(client, name, ttl),
                    name,
                    link: timestamp::link(client.store(), &self.place.naming, name),
                };
                let begun = clock.now();
                timestamp::wait(sought, &self.how, signals, terminal.as_ref())
                    .await
                    .inspect_err(|_| facts.waited = Some(clock.now().since(begun)))?
            }
        };
        let begun = clock.now();
        facts.fence = held.fence();
        facts.waited = Some(waited);
        signals
            .catch_stop()
            .map_err(|error| refused_by_system(&error))?;

        let environment = Environment::of(&held, ttl, waited, &self.place);
        let replaced = guardian.replace_if_gone();
        replaced.map_err(|error| refused_by_system(&error))?;
        Supervisor::prepare_guardian(guardian, &held, self.policy, begun);
        let started = Child::start(&self.program, &environment, terminal.as_ref(), guardian);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return Err(self.not_started(&error, held, facts)),
        };
        facts.started = true;
        let verdict = Supervisor::new(
            &mut child,
            &held,
            terminal.as_ref(),
            guardian,
            self.policy,
            begun,
        )
        .until_end(signals)
        .await;
        if !child.group_lives() {
            guardian.dismiss();
        }
        // A process that outlives a command's own end may be meant to, like a daemon.
        if !(self.args.how.quiet && verdict.is_own_end()) {
            child.warn_of_strays(guardian);
        }
        facts.status = child.status();
        facts.held = Some(clock.now().since(begun));
        let reach = reclaim(terminal.as_ref(), &child, &verdict);
        let exit = self.judge(held, verdict, begun, facts).await;
        Ok(match reach {
            Some(reach) => exit.by_interrupt(reach),
            None => exit,
        })
    }

    /// Refuses to keep the lock for longer than the store can.
    fn check_at_least(&self, client: &Client) -> Result<(), Exit> {
        let longest = client.longest_ttl();
        match self.args.at_least.filter(|at_least| *at_least > longest) {
            None => Ok(()),
            Some(at_least) => Err(exit!(
                USAGE,
                "--at-least {} is longer than a lock of {} lasts, which is {} (max_ttl in its URL; exit {USAGE})",
                span(at_least),
                client.store(),
                span(longest)
            )),
        }
    }

    /// Waits for a mutex.
    async fn lease(
        &self,
        client: &Client,
        note: &str,
        signals: &mut Signals,
        terminal: Option<&Terminal>,
    ) -> Result<(LockGuard, Duration), Refused> {
        let name = self.args.lock()?;
        let wanted = LockRequest {
            name,
            ttl: self.ttl,
            note,
            how: &self.how,
            wants_holder: self.args.report.is_some(),
            again: RetryHint {
                verb: "run",
                lock: &self.args.store.again_with(name),
                command: " -- ...",
            },
        };
        let AcquiredLease { lease, waited } =
            acquire_ui::for_lock(client, wanted, signals, terminal).await?;
        Ok((LockGuard::Lease(lease), waited))
    }

    /// The exit for a command that did not start. Dropping `held` releases the lock.
    fn not_started(&self, error: &io::Error, held: LockGuard, facts: &mut Facts) -> Exit {
        let name = quoted(held.name());
        drop(held);
        if Guardian::was_too_late(error) {
            let cause = "this process did not get to run until its deadline had passed";
            facts.lost = Some(cause.into());
            return exit!(
                LOST,
                "the lease on {name} was lost: {cause}\n    the command was not started (exit {LOST})"
            );
        }
        if error.kind() == io::ErrorKind::BrokenPipe {
            return exit!(
                SOFTWARE,
                "the process lease-guardian was killed, and without it {name} is not safe: the command was not started (exit {SOFTWARE})"
            );
        }
        self.program.failed(error)
    }

    /// Releases the lock and determines the exit.
    async fn judge(
        &self,
        held: LockGuard,
        verdict: Verdict,
        begun: Moment,
        facts: &mut Facts,
    ) -> Exit {
        let what = held.title();
        let keep = self.keep(&verdict, begun);
        let kept = keep.unwrap_or_default().max(self.ttl);
        let doubt = held.doubt();
        let limit = match verdict {
            Verdict::Ended(_) | Verdict::Stopped(StopReason::MaxHold) => RELEASE,
            _ => RELEASE_LOST,
        };
        let released = held.release(keep, limit).await;
        facts.released = Some(matches!(released, Released::Yes));
        let (cause, how) = match (verdict, released) {
            (Verdict::Ended(status), Released::Yes) => return Exit::of_command(status),
            (Verdict::Ended(status), Released::Unconfirmed(why)) => {
                say(&format!(
                    "{what} may not have been released: {}\n    the TTL ends it within {}; until then other clients wait",
                    without_advice(&why),
                    span(kept)
                ));
                return Exit::of_command(status);
            }
            (Verdict::Ended(_), Released::WasLost(lost)) | (Verdict::TooLate(lost), _) => (
                without_advice(&lost.reason()),
                "the command ended after that",
            ),
            (Verdict::Stopped(why), released) => {
                (self.cause(why, released, doubt), "the command was stopped")
            }
            (Verdict::Undead(why), released) => (
                self.cause(why, released, doubt),
                "the command was killed but does not die, and MAY STILL BE RUNNING",
            ),
        };
        let message = if let Some(limit) = cause.strip_prefix(MAX_HOLD) {
            format!("{what} reached its time limit ({MAX_HOLD}{limit})\n    {how} (exit {LOST})")
        } else {
            format!(
                "{what} was lost: {cause}\n    {how} (exit {LOST}); work done without the lease may have been unprotected"
            )
        };
        facts.lost = Some(cause);
        Exit::saying(LOST, message)
    }

    /// The time for which the lock is kept: the rest of `--at-least` after a success, the TTL under a command
    /// that does not die.
    fn keep(&self, verdict: &Verdict, begun: Moment) -> Option<Duration> {
        if let Verdict::Undead(_) = verdict {
            // The command may still die, and until then no other client should get the lock. A longer time is
            // for an operator to decide.
            return Some(self.ttl);
        }
        let at_least = self.args.at_least?;
        let rest = at_least.saturating_sub(Clock::system().now().since(begun));
        let success = matches!(verdict, Verdict::Ended(status) if status.success());
        (success && rest >= SHORTEST).then_some(rest)
    }

    /// The cause of a stop, without the advice for a first connection: this connection worked before.
    fn cause(&self, why: StopReason, released: Released, doubt: Option<String>) -> String {
        without_advice(&self.full_cause(why, released, doubt))
    }

    /// The cause of a stop: the known one, a loss that the release has shown, the last failed renewal, or the failure of the release.
    fn full_cause(&self, why: StopReason, released: Released, doubt: Option<String>) -> String {
        let not_renewed = "it could not be renewed in time";
        let (known, default) = match why {
            StopReason::MaxHold => {
                let limit = span(self.args.max_hold.unwrap_or_default());
                return format!("{MAX_HOLD} {limit}");
            }
            StopReason::Lost(known) => (known, not_renewed),
            StopReason::Guardian(known) => (
                known,
                "this process did not get to run until its deadline was near",
            ),
        };
        match (known, released) {
            (Some(lost), _) | (None, Released::WasLost(lost)) => lost.reason(),
            // That a release is slow says less than the answer to a renewal.
            (None, Released::Unconfirmed(why)) => format!("{default}: {}", doubt.unwrap_or(why)),
            (None, Released::Yes) => match doubt {
                Some(doubt) => format!("{default}: {doubt}"),
                None => default.into(),
            },
        }
    }
}

/// The prefix of the cause for `--max-hold`, which is not a loss.
const MAX_HOLD: &str = "--max-hold";

/// Takes the terminal back and restores its modes. If an interrupt ended the command, returns the processes that
/// it has not reached: a script that runs `leasehold` must stop too.
fn reclaim(
    terminal: Option<&Terminal>,
    child: &Child,
    verdict: &Verdict,
) -> Option<InterruptTarget> {
    let terminal = terminal?;
    let had_it = terminal.take_from(child.group());
    let signal = match verdict {
        Verdict::Ended(status) => status.signal(),
        _ => Some(Signal::SIGKILL as i32),
    }?;
    terminal.restore();
    let interrupted = signal == Signal::SIGINT as i32 && terminal.is_foreground();
    interrupted.then_some(if had_it {
        InterruptTarget::Group
    } else {
        InterruptTarget::Process
    })
}
