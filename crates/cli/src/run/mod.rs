//! `leasehold run`, from what was typed to the exit code. Must never start the command without the lock, and never leave
//! the lock behind.

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
use nix::unistd::Pid;

pub(crate) use self::args::Run;
use self::child::Child;
use self::command::ResolvedCommand;
use self::environment::{Environment, StoreEnvironment};
use self::guardian::Guardian;
use self::lock_guard::{LockGuard, RELEASE, RELEASE_LOST, Released};
use self::policy::{Policy, StopReason, Verdict};
use self::report::{Facts, ReportFile};
use self::supervise::Supervisor;
use crate::acquire_ui::{self, AcquiredLease, LockRequest, RetryHint, WaitArgs};
use crate::exit::{BUSY, CONFIG, Exit, InterruptTarget, LOST, SOFTWARE, TIMEOUT};
use crate::inherited_store::UrlFile;
use crate::messages::{quoted, say, span, without_advice};
use crate::session::{refused_by_system, with_client};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// The shortest time for which a lock can be kept after its use.
const SHORTEST: Duration = Duration::from_millis(10);

/// Does it.
pub(crate) fn run(args: &Run) -> Exit {
    let report = match args.report.as_deref().map(ReportFile::open).transpose() {
        Ok(report) => report,
        Err(error) => {
            return Exit::saying(
                CONFIG,
                format!(
                    "the report cannot be written: {error} (exit {CONFIG}); the command was not run"
                ),
            );
        }
    };
    let mut facts = Facts::default();
    let exit = begin(args, &mut facts).unwrap_or_else(|exit| exit);
    let happened = exit.code();
    let exit = busy_as_wanted(args, exit, facts.started);
    if let Some(report) = report {
        report.write(&facts, happened, &exit);
    }
    exit
}

/// What a busy lock means to whoever asked. The command's own codes are never touched.
fn busy_as_wanted(args: &Run, exit: Exit, started: bool) -> Exit {
    let is_busy = !started && matches!(exit.code(), BUSY | TIMEOUT);
    match args.busy_code {
        _ if !is_busy => exit,
        _ if args.skip => Exit::quiet(0),
        Some(code) => exit.with_code(code),
        None => exit,
    }
}

/// All that can be refused without touching the lock comes first.
fn begin(args: &Run, facts: &mut Facts) -> Result<Exit, Exit> {
    facts.lock = Some(LockName::new(args.lock()?)?.as_str().to_owned());
    let command = args.command()?;
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl.typed)?;
    let limits = args.limits(ttl)?;
    args.timestamp()?;
    let program = ResolvedCommand::find(&command)?;
    let (store, url_file) = target.place().hand_on();
    let job = LockedRun {
        args,
        ttl,
        program,
        how: args.waiting(),
        rules: Policy {
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
    // Before the lock is taken: what the system refuses is to be known by then.
    let mut guardian = Guardian::start(url_file.as_ref().map(UrlFile::path))
        .map_err(|error| refused_by_system(&error))?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| refused_by_system(&errno.into()))?;
    let exit = with_client(target, async |client, signals| {
        job.locked(client, signals, &mut guardian, facts).await
    });
    drop(url_file);
    Ok(exit)
}

/// What is to be done, with all that could be refused already.
struct LockedRun<'a> {
    args: &'a Run,
    ttl: Duration,
    program: ResolvedCommand,
    how: WaitArgs,
    rules: Policy,
    place: StoreEnvironment,
}

impl LockedRun<'_> {
    /// With the lock.
    async fn locked(
        &self,
        client: &Client,
        signals: &mut Signals,
        guardian: &mut Guardian,
        facts: &mut Facts,
    ) -> Result<Exit, Exit> {
        let (terminal, clock, ttl) = (Terminal::controlling(), Clock::system(), self.ttl);
        let note = self
            .how
            .note
            .clone()
            .unwrap_or_else(|| self.program.note(Owner::MAX_META_BYTES));
        let (held, waited) = match self.args.timestamp()? {
            None => {
                self.lease(client, &note, signals, terminal.as_ref())
                    .await?
            }
            Some(lock) => {
                let name = self.args.lock()?;
                let sought = timestamp::TimestampRequest {
                    lock: lock.of(client, name, ttl),
                    name,
                    link: timestamp::link(client.store(), &self.place.naming, name),
                };
                timestamp::wait(sought, &self.how, signals, terminal.as_ref()).await?
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
        Supervisor::brief(guardian, &held, self.rules, begun);
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
            self.rules,
            begun,
        )
        .until_end(signals)
        .await;
        if !child.group_lives() {
            guardian.dismiss();
        }
        tell_of_strays(&verdict, &child.strays(guardian));
        facts.status = child.status();
        facts.held = Some(clock.now().since(begun));
        let reach = reclaim(terminal.as_ref(), &child, &verdict);
        let exit = self.judge(held, verdict, begun, facts).await;
        Ok(match reach {
            Some(reach) => exit.by_interrupt(reach),
            None => exit,
        })
    }

    /// Waits in line for a mutex.
    async fn lease(
        &self,
        client: &Client,
        note: &str,
        signals: &mut Signals,
        terminal: Option<&Terminal>,
    ) -> Result<(LockGuard, Duration), Exit> {
        // `--shared` and `--slots` will be one more field here: what kind of lock is wanted.
        let name = self.args.lock()?;
        let wanted = LockRequest {
            name,
            ttl: self.ttl,
            note,
            how: &self.how,
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

    /// Why there is no command. Dropping what is held gives the lock back.
    fn not_started(&self, error: &io::Error, held: LockGuard, facts: &mut Facts) -> Exit {
        let name = quoted(held.name());
        drop(held);
        if Guardian::was_too_late(error) {
            let cause = "this process did not get to run until its deadline had passed";
            facts.lost = Some(cause.into());
            return Exit::saying(
                LOST,
                format!(
                    "the lease on {name} was lost: {cause}\n    the command was not started (exit {LOST})"
                ),
            );
        }
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Exit::saying(
                SOFTWARE,
                format!(
                    "the process lease-guardian was killed, and without it {name} is not safe: the command was not started (exit {SOFTWARE})"
                ),
            );
        }
        self.program.failed(error)
    }

    /// Releases the lock, and says how it all ended.
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
                    "{what} may not have been released: {}\n    it ends by itself within {}; until then others wait",
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
            format!(
                "{what} was held for as long as it may be ({MAX_HOLD}{limit})\n    {how} (exit {LOST})"
            )
        } else {
            format!(
                "{what} was lost: {cause}\n    {how} (exit {LOST}); work done without the lease may have been unprotected"
            )
        };
        facts.lost = Some(cause);
        Exit::saying(LOST, message)
    }

    /// How much longer the lock is to be kept: after a success, as was asked for; under a command that does not die.
    fn keep(&self, verdict: &Verdict, begun: Moment) -> Option<Duration> {
        if let Verdict::Undead(_) = verdict {
            // It may die yet, and until then nobody else is to have the lock. For ever is for people to decide.
            return Some(self.ttl);
        }
        let at_least = self.args.at_least?;
        let rest = at_least.saturating_sub(Clock::system().now().since(begun));
        let success = matches!(verdict, Verdict::Ended(status) if status.success());
        (success && rest >= SHORTEST).then_some(rest)
    }

    /// Why a command was stopped, without the advice for a first connection: this one has worked before.
    fn cause(&self, why: StopReason, released: Released, doubt: Option<String>) -> String {
        without_advice(&self.told_cause(why, released, doubt))
    }

    /// Why a command was stopped: what was known then, what the release has shown, or why the last renewal failed.
    fn told_cause(&self, why: StopReason, released: Released, doubt: Option<String>) -> String {
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
            (None, Released::Unconfirmed(why)) => format!("{default}: {why}"),
            (None, Released::Yes) => match doubt {
                Some(doubt) => format!("{default}: {doubt}"),
                None => default.into(),
            },
        }
    }
}

/// Says so if a command was to end and has left processes that no signal to its group reaches. After a good end they are meant to
/// run, as a daemon is.
fn tell_of_strays(verdict: &Verdict, strays: &[Pid]) {
    let ended_well = matches!(verdict, Verdict::Ended(status) if status.code().is_some());
    if ended_well || strays.is_empty() {
        return;
    }
    let pids: Vec<String> = strays.iter().map(ToString::to_string).collect();
    say(&format!(
        "the command has left processes outside of its group, which still run and do not keep the lock: pid {}",
        pids.join(", ")
    ));
}

/// The cause that is no loss.
const MAX_HOLD: &str = "--max-hold";

/// Takes the terminal back, as it was. Says whom an interrupt that ended the command has yet to reach: a script that
/// runs us is to stop as well.
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
    let interrupted = signal == Signal::SIGINT as i32 && terminal.is_ours();
    interrupted.then_some(if had_it {
        InterruptTarget::Group
    } else {
        InterruptTarget::Process
    })
}
