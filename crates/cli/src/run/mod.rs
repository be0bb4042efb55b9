//! `leasehold run`: takes a lock, runs the command under it, and releases it.

mod args;
pub(crate) mod command;
mod elect;
mod guardian;
mod once;
mod report;
mod stop;
mod supervise;
mod timestamp;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use leasehold::{Client, Clock, Fence, Moment, Owner};
use leasehold_core::LockName;
use nix::sys::signal::Signal;

pub(crate) use self::args::Run;
use self::command::{Child, ResolvedCommand};
pub(crate) use self::elect::Elect;
use self::guardian::Guardian;
use self::once::Occasion;
use self::report::{Report, ReportFile};
use self::stop::{Policy, StopReason, Verdict};
use self::supervise::Supervisor;
use crate::acquire_ui::{self, LockRequest, RetryHint, WaitArgs, WaitFacts, interrupted};
use crate::exit::{
    BUSY, CONFIG, DONE, Exit, InterruptTarget, LOST, SOFTWARE, TIMEOUT, USAGE, exit,
};
use crate::held::{self, LockGuard};
use crate::inherited_store::{UrlFile, Variables};
use crate::messages::{quoted, say, span, without_advice};
use crate::service;
use crate::session::{RELEASE, Released, Target, with_client};
use crate::terminal::{Signals, Terminal};
use crate::view::millis;

/// The time limit after a lease was lost or could not be renewed. Most often the store does not answer then, and
/// a restart of the command should not wait for it.
const RELEASE_LOST: Duration = Duration::from_millis(300);

/// The minimal rest of `--at-least` for which the release is delayed.
const SHORTEST: Duration = Duration::from_millis(10);

/// Runs the verb.
pub(crate) fn run(args: &Run) -> Result<Exit, Exit> {
    let to = args
        .command
        .report
        .as_deref()
        .map(ReportFile::open)
        .transpose();
    let to = to.map_err(|error| {
        exit!(
            CONFIG,
            "the report cannot be written: {error} (exit {CONFIG}); the command was not run"
        )
    })?;
    let mut report = Report::default();
    let exit = begin(args, &mut report).unwrap_or_else(|exit| exit);
    let happened = exit.code();
    let exit = apply_busy_options(args, exit, report.started);
    if let Some(to) = to {
        to.write(report, happened, &exit);
    }
    Ok(exit)
}

/// Runs the verb `elect`.
pub(crate) fn elect(args: Elect) -> Result<Exit, Exit> {
    run(&args.into_run()?)
}

/// Applies `--skip` and `--busy-code` to a busy lock, and `--skip` to work that is done. The command's own exit codes stay unchanged.
fn apply_busy_options(args: &Run, exit: Exit, started: bool) -> Exit {
    let is_busy = !started && matches!(exit.code(), BUSY | TIMEOUT);
    let is_done = !started && exit.code() == DONE;
    match args.busy_code {
        _ if args.skip && (is_busy || is_done) => Exit::quiet(0),
        _ if !is_busy => exit,
        Some(code) => exit.with_code(code),
        None => exit,
    }
}

/// Validates everything before the lock is taken.
fn begin(args: &Run, report: &mut Report) -> Result<Exit, Exit> {
    report.lock = Some(LockName::new(args.lock()?)?.as_str().to_owned());
    let command = args.command()?;
    let target = args.store.target()?;
    let ttl = if args.elects {
        target.ttl_or(elect::TTL, args.ttl.typed)?
    } else {
        target.ttl(args.ttl.typed)?
    };
    let limits = args.limits(ttl)?;
    let has_timestamp = args.has_timestamp()?;
    let program = ResolvedCommand::find(&command)?;
    // The deadline in a timestamp lock lies later than its TTL.
    let warning = args.warning(ttl, limits).filter(|_| !has_timestamp);
    if let Some(warning) = warning {
        say(&warning);
    }
    let (store, url_file) = target.hand_on();
    let mut job = LockedRun {
        args,
        ttl,
        program,
        how: args.waiting(),
        policy: Policy {
            limits,
            on_lost: args.command.on_lost,
            max_hold: args.max_hold,
            max_hold_option: args.limit(),
            release_on_exit: args.command.release_on_exit,
        },
        store,
        naming: target.naming.clone(),
    };
    // The guardian starts before the lock is taken, so that a system failure leaves no lock.
    let mut guardian = Guardian::start(url_file.as_ref().map(UrlFile::path))?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)?;
    let target = target.patient(job.how.limit()?, job.how.quiet);
    let exit = with_client(&target, async |client, signals| {
        let guardian = &mut guardian;
        if args.elects {
            return job.lead(client, &target, signals, guardian, report).await;
        }
        job.locked(client, signals, guardian, report).await
    });
    // Before the guardian ends, which would remove it for a killed process.
    drop(url_file);
    exit
}

/// A validated run.
struct LockedRun<'a> {
    args: &'a Run,
    ttl: Duration,
    program: ResolvedCommand,
    how: WaitArgs,
    policy: Policy,
    /// The variables by which the command finds the same store.
    store: Variables,
    naming: Vec<(&'static str, String)>,
}

impl LockedRun<'_> {
    /// Leads, term after term, until the command ends by itself, or a signal asks for the end. The client and the signals stay the same,
    /// so no signal is missed between two terms.
    async fn lead(
        &mut self,
        client: &Client,
        target: &Target,
        signals: &mut Signals,
        guardian: &mut Guardian,
        report: &mut Report,
    ) -> Result<Exit, Exit> {
        let terminal = Terminal::controlling();
        let is_limited = self.how.once || self.how.limit()?.is_some();
        // Each guardian removes the file of its own command.
        let mut url_file;
        let (mut told, clock) = (elect::Told::default(), Clock::system());
        loop {
            let exit = self.locked(client, signals, guardian, report).await;
            let (Ok(said) | Err(said)) = &exit;
            let pause = elect::pause_after(said, report, is_limited);
            let Some(pause) = pause.filter(|_| !signals.is_asked_to_end()) else {
                service::tell("STOPPING=1");
                return exit;
            };
            if told.is_news(said.reason(), clock.now()) {
                say(&format!("{}; campaigning again", said.reason()));
            }
            report.restart();
            let rest = async {
                tokio::time::sleep(pause).await;
                Ok(())
            };
            unless_ended(rest, signals, terminal.as_ref()).await?;
            self.how.begun = clock.now();
            (self.store, url_file) = target.hand_on();
            guardian.restart(url_file.as_ref().map(UrlFile::path))?;
        }
    }

    /// Takes the lock and runs the command under it.
    async fn locked(
        &self,
        client: &Client,
        signals: &mut Signals,
        guardian: &mut Guardian,
        report: &mut Report,
    ) -> Result<Exit, Exit> {
        let longest = client.longest_ttl();
        if let Some(at_least) = self.args.at_least.filter(|at_least| *at_least > longest) {
            return Err(exit!(
                USAGE,
                "--at-least {} is longer than a lock of {} lasts, which is {} (max_ttl in its URL; exit {USAGE})",
                span(at_least),
                client.store(),
                span(longest)
            ));
        }
        let (terminal, clock) = (Terminal::controlling(), Clock::system());
        let terminal = terminal.as_ref();
        let asking = self.occasion(client, report);
        let occasion = unless_ended(asking, signals, terminal).await?;
        let mut known = WaitFacts::default();
        service::tell(&format!("STATUS=waiting for {}", quoted(self.args.lock()?)));
        let held = self.take(client, signals, terminal, &mut known).await;
        let held = held.inspect_err(|_| report.set_refused(&known))?;
        let begun = clock.now();
        report.fence = held.fence().map(Fence::get);
        report.mode = held.mode().map(|mode| mode.to_string());
        report.slot = held.slot();
        report.locks = held.json();
        report.waited_ms = Some(millis(known.waited));
        if let (Some(occasion), LockGuard::Lease(lease)) = (&occasion, &held) {
            unless_ended(occasion.begin(lease, report), signals, terminal).await?;
        }
        signals.catch_stop()?;

        let firing = report.firing.as_deref();
        let mut variables = held.variables(self.ttl, known.waited, firing, &self.store);
        let term = held.fence().filter(|_| self.args.elects);
        variables.push(("LEASEHOLD_TERM", term.map(|term| term.to_string().into())));
        // By default, systemd listens to the main process only, which is this one. And a message about another main process would
        // turn the manager's signals away from this one.
        variables.push((service::SOCKET, None));
        guardian.replace_if_gone()?;
        Supervisor::prepare_guardian(guardian, &held, self.policy, begun);
        let started = Child::start(&self.program, &variables, terminal, guardian);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return Err(self.not_started(&error, held, report)),
        };
        report.started = true;
        service::tell(&format!("READY=1\nSTATUS=holding {}", held.title()));
        let supervisor = Supervisor::new(&mut child, &held, terminal, guardian, self.policy, begun);
        let verdict = supervisor.until_end(signals).await;
        if !self.args.elects {
            service::tell(&format!("STOPPING=1\nSTATUS=releasing {}", held.names()));
        }
        if !child.group_lives() {
            guardian.dismiss();
        }
        // A process that outlives a command's own end may be meant to, like a daemon.
        if !(self.args.how.quiet && verdict.is_own_end()) {
            child.warn_of_strays(guardian);
        }
        report.set_status(child.status());
        report.held_ms = Some(millis(clock.now().since(begun)));
        let reach = reclaim(terminal, &child, &verdict);
        let mut marked = None;
        if let (Some(occasion), LockGuard::Lease(lease)) = (&occasion, &held)
            && verdict.is_success()
        {
            let finish = async { Ok(occasion.finish(lease).await) };
            let finished = unless_ended(finish, signals, terminal).await;
            let finished = finished.unwrap_or_else(|_| Err("a signal came first".into()));
            marked = Some(finished.map_err(|cause| occasion.unmarked(&cause)));
        }
        let exit = self.judge(held, verdict, marked, begun, report).await;
        Ok(exit.by_interrupt(reach))
    }

    /// Names the firing that the command runs once for. The error is the exit if another run has done it.
    async fn occasion(
        &self,
        client: &Client,
        report: &mut Report,
    ) -> Result<Option<Occasion>, Exit> {
        let lock = client.mutex(self.args.lock()?);
        let limit = self.how.limit()?;
        let Some(occasion) = self.args.once.of(&lock, limit).await? else {
            return Ok(None);
        };
        report.firing = Some(occasion.name.clone());
        occasion.is_open().await?;
        Ok(Some(occasion))
    }

    /// Waits for the lock.
    async fn take(
        &self,
        client: &Client,
        signals: &mut Signals,
        terminal: Option<&Terminal>,
        known: &mut WaitFacts,
    ) -> Result<LockGuard, Exit> {
        let (name, args) = (self.args.lock()?, self.args);
        if args.has_timestamp()? {
            let clock = Clock::system();
            // As the limit does.
            let begun = acquire_ui::counts_from(self.how.begun, clock.now());
            let lock = args.timestamp.lock(client, name, self.ttl);
            let link = timestamp::timestamp_link(client.store(), &self.naming, name);
            let held =
                timestamp::wait_for_timestamp(lock, name, link, &self.how, signals, terminal).await;
            known.waited = clock.now().since(begun);
            return held;
        }
        let note = self.how.note.clone();
        let wanted = LockRequest {
            name,
            kind: &args.kind,
            ttl: self.ttl,
            note: &note.unwrap_or_else(|| self.program.note(Owner::MAX_META_BYTES)),
            how: &self.how,
            wants_holder: args.command.report.is_some(),
            tells_manager: true,
            again: RetryHint {
                verb: &args.verb(),
                store: &args.store.again(),
                command: " -- ...",
            },
        };
        acquire_ui::for_any(client, wanted, signals, terminal, known).await
    }

    /// The exit for a command that did not start. Dropping `held` releases the lock.
    fn not_started(&self, error: &io::Error, held: LockGuard, report: &mut Report) -> Exit {
        let name = quoted(held.name());
        drop(held);
        if Guardian::was_too_late(error) {
            let cause = "this process did not get to run until its deadline had passed";
            report.lost_cause = Some(cause.into());
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

    /// Releases the lock and determines the exit. `marked`: the work of `--once` was marked as done, or the exit because it was not.
    async fn judge(
        &self,
        held: LockGuard,
        verdict: Verdict,
        marked: Option<Result<(), Exit>>,
        begun: Moment,
        report: &mut Report,
    ) -> Exit {
        let is_limit = matches!(
            verdict,
            Verdict::Stopped(StopReason::MaxHold) | Verdict::Undead(StopReason::MaxHold)
        );
        report.still_runs = matches!(verdict, Verdict::Undead(_));
        let (title, names) = (held.title(), held.names());
        let endangered = held.endangered().to_owned();
        let keep = self.keep(&verdict, begun);
        let kept = keep.unwrap_or_default().max(self.ttl);
        let doubt = held.doubt();
        let limit = match verdict {
            Verdict::Ended(_) | Verdict::Stopped(StopReason::MaxHold) => RELEASE,
            _ => RELEASE_LOST,
        };
        let released = held.release(keep, limit).await;
        report.released = Some(matches!(released, Released::Yes));
        match (&verdict, marked) {
            (_, Some(Err(unmarked))) => {
                report.lost_cause = Some("the work is not marked as done".into());
                return unmarked;
            }
            // It was marked under the lease, whatever the release says of a moment later.
            (Verdict::Ended(status), Some(Ok(()))) => return Exit::of_command(*status),
            _ => {}
        }
        let lost = match (&verdict, &released) {
            (Verdict::TooLate(lost), _) | (Verdict::Ended(_), Released::WasLost(lost)) => {
                Some(lost)
            }
            (Verdict::Stopped(why) | Verdict::Undead(why), released) => why.loss(released),
            _ => None,
        };
        // The lease that ends first may not be the lost one.
        let (title, whole) = if self.args.kind.also.is_empty() {
            (title.clone(), title)
        } else {
            let lost = lost.map(|lost| held::title(&lost.name, lost.fence));
            (lost.unwrap_or(title), names)
        };
        let lost_lock = lost.map_or(endangered, |lost| lost.name.clone());
        let (cause, how) = match (verdict, released) {
            (Verdict::Ended(status), Released::Yes) => return Exit::of_command(status),
            (Verdict::Ended(status), Released::Unconfirmed(why)) => {
                say(&format!(
                    "{whole} may not have been released: {}\n    the TTL ends it within {}; until then other clients wait",
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
        let message = if is_limit {
            format!("{whole} reached its time limit ({cause})\n    {how} (exit {LOST})")
        } else {
            report.lost_lock = Some(lost_lock);
            format!(
                "{title} was lost: {cause}\n    {how} (exit {LOST}); work done without the lease may have been unprotected"
            )
        };
        report.lost_cause = Some(cause);
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
        (verdict.is_success() && rest >= SHORTEST).then_some(rest)
    }

    /// The cause of a stop: the known one, a loss that the release has shown, the last failed renewal, or the failure of
    /// the release. Without the advice for a first connection: this connection worked before.
    fn cause(&self, why: StopReason, released: Released, doubt: Option<String>) -> String {
        let (known, default) = match why {
            StopReason::MaxHold => {
                let limit = span(self.args.max_hold.unwrap_or_default());
                return format!("{} {limit}", self.args.limit());
            }
            StopReason::Lost(known) => (known, "it could not be renewed in time"),
            StopReason::Guardian(known) => (
                known,
                "this process did not get to run until its deadline was near",
            ),
        };
        let doubt = match (known, released) {
            (Some(lost), _) | (None, Released::WasLost(lost)) => {
                return without_advice(&lost.reason());
            }
            // That a release is slow says less than the answer to a renewal.
            (None, Released::Unconfirmed(why)) => Some(doubt.unwrap_or(why)),
            (None, Released::Yes) => doubt,
        };
        let doubt = doubt.map(|doubt| format!(": {doubt}")).unwrap_or_default();
        without_advice(&format!("{default}{doubt}"))
    }
}

/// Does `work` unless an ending signal comes first.
async fn unless_ended<T>(
    work: impl Future<Output = Result<T, Exit>>,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<T, Exit> {
    tokio::select! {
        biased;
        signal = signals.next_ending() => Err(interrupted(signal, terminal)),
        done = work => done,
    }
}

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
