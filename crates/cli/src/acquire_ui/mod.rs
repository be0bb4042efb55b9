//! Waiting for a lock: the wait options of all verbs that take one, progress messages, signals and error texts.

mod progress;

use std::env;
use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::future::join_all;
use leasehold::kind::Kind;
use leasehold::{
    Client, Clock, Error, Fence, HolderIdentity, HolderView, Lease, Lock, Lost, Mode, Moment,
    Slots, Snapshot, Timeout, WaitStatus,
};
use nix::sys::signal::Signal;
use tokio::sync::watch;

use self::progress::{Progress, ProgressStyle, WaitState};
use crate::config::duration;
use crate::exit::{BUSY, Exit, InterruptTarget, TIMEOUT, UNAVAILABLE, USAGE, exit};
use crate::held::{CHAIN, LockGuard};
use crate::messages::{can_rewrite, pasteable, quoted, span, write_raw};
use crate::terminal::{Signals, Terminal};
use crate::view::{fence_of, held_of, holders, lease_of, never_expires, phase, several, who};
use crate::{service, sys, verbose};

/// The interval at which the progress line is updated.
const TICK: Duration = Duration::from_secs(1);

/// The time limit for asking the store who holds a busy lock.
const INSPECTION: Duration = Duration::from_secs(2);

const WAIT_HELP: &str = "Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124 [env: LEASEHOLD_WAIT]";

const TRY_HELP: &str = "Do not wait: if the lock is busy, exit with 75";

/// When the time limit of a wait begins, for a client that was connected at `connected`. A connection that is made within a second takes
/// nothing of it.
pub(crate) fn counts_from(begun: Moment, connected: Moment) -> Moment {
    if connected.since(begun) < Duration::from_secs(1) {
        connected
    } else {
        begun
    }
}

/// The help of a time limit in `--help`; `-h` has less room.
pub(crate) fn with_connect_note(help: &str) -> String {
    format!(
        "{help}\n\nWith a limit, run, elect, hold, acquire, wait and leader also wait for a server that is out of reach, loads or restarts. A server that does not answer the connection takes up to twice --request-timeout more (4s), and the exit code is 69"
    )
}

/// The section of the rarer ones of these options in `--help`.
pub(crate) const SECTION: &str = "Waiting";

/// The wait options of every verb that takes a lock.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    #[arg(short = 'n', long = "try", conflicts_with = "wait", help = TRY_HELP, long_help = with_connect_note(TRY_HELP))]
    pub(crate) once: bool,

    #[arg(short, long, value_name = "DUR", value_parser = duration, help = WAIT_HELP, long_help = with_connect_note(WAIT_HELP))]
    pub(crate) wait: Option<Duration>,

    /// When the wait begins.
    #[arg(skip = Clock::system().now())]
    pub(crate) begun: Moment,

    /// Purpose of this run, shown to other waiters; by default the name of the command, or of the verb if there
    /// is none
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_NOTE", help_heading = SECTION, hide_short_help = true)]
    pub(crate) note: Option<String>,

    /// Print only errors, nothing about waiting or busy locks
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Wait only if fewer than N others wait, else exit with 75
    #[arg(long, value_name = "N", help_heading = SECTION, hide_short_help = true)]
    pub(crate) max_waiters: Option<u32>,

    /// Progress while waiting: auto, plain (lines, as in a log) or none
    #[arg(long, value_name = "HOW", value_enum, default_value_t, help_heading = SECTION, hide_short_help = true)]
    pub(crate) progress: ProgressMode,
}

impl WaitArgs {
    /// The time that is left: an outage of the store is part of the wait.
    pub(crate) fn limit(&self) -> Result<Option<Duration>, Exit> {
        let now = Clock::system().now();
        let waited = now.since(counts_from(self.begun, now));
        let whole = self.whole_limit()?;
        Ok(whole.map(|limit| limit.saturating_sub(waited)))
    }

    /// Read here and not by clap, which would see a conflict of the variable with `--try`.
    fn whole_limit(&self) -> Result<Option<Duration>, Exit> {
        if self.once || self.wait.is_some() {
            return Ok(self.wait);
        }
        let text = env::var("LEASEHOLD_WAIT").unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        duration(&text).map(Some).map_err(|why| {
            let text = quoted(&text);
            exit!(USAGE, "invalid LEASEHOLD_WAIT {text}: {why} (exit {USAGE})")
        })
    }

    /// True if `ahead` waiters are too many to join the queue.
    pub(crate) fn is_full(&self, ahead: u32) -> bool {
        self.max_waiters.is_some_and(|most| ahead >= most)
    }
}

/// What is asked for: a lock alone, a reader, a slot, or several locks.
#[derive(Debug, Default, Args)]
pub(crate) struct KindArgs {
    /// Take this lock too, all or none; up to 31 times. They are waited for in the order of their names
    #[arg(long, value_name = "LOCK", hide_short_help = true)]
    pub(crate) also: Vec<String>,

    /// Read: hold beside others with --shared. A holder without it waits for all of them, and they wait for it
    #[arg(short, long, conflicts_with_all = ["slots", "also"])]
    pub(crate) shared: bool,

    /// Hold one of N slots: up to N hold at a time, each with a number of its own
    #[arg(long, value_name = "N", conflicts_with = "also", value_parser = clap::value_parser!(u16).range(1..=i64::from(Slots::MOST)))]
    pub(crate) slots: Option<u16>,
}

impl KindArgs {
    /// These options, each behind a space, to paste behind a verb.
    pub(crate) fn words(&self) -> String {
        let also = self.also.iter().map(|lock| pasteable(lock));
        // An option's value may begin with a hyphen after an equals sign.
        let also = also.map(|lock| format!(" --also={}", lock.trim_start_matches("-- ")));
        let shared = if self.shared { " --shared" } else { "" };
        let slots = self.slots.map(|slots| format!(" --slots {slots}"));
        let slots = slots.unwrap_or_default();
        format!("{shared}{slots}{}", also.collect::<String>())
    }
}

/// The display of progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Chosen by the terminal.
    #[default]
    Auto,
    Plain,
    None,
}

/// The parts of a command that tries again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryHint<'a> {
    /// The verb with its required options.
    pub(crate) verb: &'a str,
    /// The store options, each followed by a space.
    pub(crate) store: &'a str,
    /// The text after the lock.
    pub(crate) command: &'a str,
}

/// A request for a lock, or for several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'a KindArgs,
    pub(crate) ttl: Duration,
    pub(crate) note: &'a str,
    pub(crate) how: &'a WaitArgs,
    /// Asks for the holder of a busy lock, also if no message names it.
    pub(crate) wants_holder: bool,
    /// Tells the service manager of the wait.
    pub(crate) tells_manager: bool,
    /// The command that tries again, for messages.
    pub(crate) again: RetryHint<'a>,
}

impl LockRequest<'_> {
    /// The lock and those that are taken with it.
    fn names(&self) -> impl Iterator<Item = &str> {
        [self.name]
            .into_iter()
            .chain(self.kind.also.iter().map(String::as_str))
    }

    /// Asks for what is wanted, at once or within `limit`, and tells the answers of the store. Without it the lock is busy.
    pub(crate) async fn ask(
        self,
        client: &Client,
        limit: Option<Duration>,
        answers: Answers,
    ) -> Result<Option<LockGuard>, Error> {
        let (name, kind) = (self.name, self.kind);
        if kind.shared {
            let lease = self.ask_one(client.rw_lock(name).read(), limit, answers);
            return Ok(lease.await?.map(LockGuard::Reader));
        }
        if let Some(slots) = kind.slots {
            let permit = self.ask_one(client.semaphore(name, slots), limit, answers);
            return Ok(permit.await?.map(LockGuard::Permit));
        }
        if kind.also.is_empty() {
            let lease = self.ask_one(client.mutex(name), limit, answers);
            return Ok(lease.await?.map(LockGuard::Lease));
        }
        let all = self.names().fold(client.all([]), |all, name| {
            all.and(&self.told(client.mutex(name), answers.clone()))
        });
        let leases = match limit {
            _ if self.how.once => all.try_acquire().await,
            Some(limit) => all.acquire_within(limit).await.map(Some),
            None => all.acquire().await.map(Some),
        }?;
        lengthen(leases.iter().flatten(), self.ttl).await?;
        let first = name.to_owned();
        Ok(leases.map(|leases| LockGuard::Several { leases, first }))
    }

    /// Asks for this lock only.
    async fn ask_one<K: Kind>(
        self,
        lock: Lock<K>,
        limit: Option<Duration>,
        answers: Answers,
    ) -> Result<Option<Lease<K>>, Error> {
        let lock = self.told(lock, answers);
        let lease = match limit {
            _ if self.how.once => lock.try_acquire().await,
            Some(limit) => lock.acquire_within(limit).await.map(Some),
            None => lock.acquire().await.map(Some),
        }?;
        lengthen(&lease, self.ttl).await?;
        Ok(lease)
    }

    /// The lock with its settings, which tells the answers of the store.
    fn told<K: Kind>(self, lock: Lock<K>, answers: Answers) -> Lock<K> {
        let tell = move |waiting: &WaitStatus| drop(answers.send_replace(Some(waiting.clone())));
        lock.ttl(self.ttl).note(self.note).on_wait(tell)
    }
}

/// The last answer of the store to a request that waits.
type Answers = watch::Sender<Option<WaitStatus>>;

/// The facts of a wait, which ended with a lease or without one.
#[derive(Debug, Default)]
pub(crate) struct WaitFacts {
    pub(crate) waited: Duration,
    /// The holder of the lock in the last answer of the store.
    pub(crate) holder: Option<HolderView>,
    /// The lock that was busy, if this process gave up.
    pub(crate) busy: Option<String>,
    /// The lease that was lost as soon as it was granted.
    pub(crate) lost: Option<Lost>,
}

/// Waits for the lock. The caller closes the client afterwards in all cases, which removes the place in the
/// queue.
pub(crate) async fn for_lock(
    client: &Client,
    request: LockRequest<'_>,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
    known: &mut WaitFacts,
) -> Result<Lease, Exit> {
    let ask = async |limit, answers| {
        let lease = request.ask_one(client.mutex(request.name), limit, answers);
        Ok(lease.await?.map(|lease| (Some(lease.fence()), lease)))
    };
    until_held(client, request, ask, signals, terminal, known).await
}

/// Waits for what is wanted, as [`for_lock`] does for a lock alone.
pub(crate) async fn for_any(
    client: &Client,
    request: LockRequest<'_>,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
    known: &mut WaitFacts,
) -> Result<LockGuard, Exit> {
    let ask = async |limit, answers| {
        let held = request.ask(client, limit, answers).await?;
        Ok(held.map(|held| (held.fence(), held)))
    };
    until_held(client, request, ask, signals, terminal, known).await
}

/// The command starts with enough time: the first lease of a waiter is short. If the store does not answer, the renewals
/// try again.
async fn lengthen<'a, K: Kind>(
    leases: impl IntoIterator<Item = &'a Lease<K>>,
    ttl: Duration,
) -> Result<(), Error> {
    let short = leases
        .into_iter()
        .filter(|lease| lease.valid_for() <= ttl / 2);
    let extended = join_all(short.map(|lease| lease.extend(ttl))).await;
    let mut failed = extended.into_iter().filter_map(Result::err);
    failed
        .find(|error| !matches!(error, Error::Store(_)))
        .map_or(Ok(()), Err)
}

/// Shows the wait until `ask` has an answer: what is held, with the fence of the first lock.
async fn until_held<T>(
    client: &Client,
    request: LockRequest<'_>,
    ask: impl AsyncFnOnce(Option<Duration>, Answers) -> Result<Option<(Option<Fence>, T)>, Error>,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
    known: &mut WaitFacts,
) -> Result<T, Exit> {
    let (how, clock) = (request.how, Clock::system());
    let limit = how.limit()?;
    let (answers, mut seen) = watch::channel(None);
    let asking = ask(limit, answers);
    let begun = counts_from(how.begun, clock.now());
    let last = seen.clone();
    let mut progress = Progress::new(style(how, terminal), request.name, limit);
    tokio::pin!(asking);
    // `--max-waiters` counts only at the entry of each queue: in a fair one later waiters come behind.
    let (mut in_line, mut full) = (None, None);
    let mut told = String::new();
    let answer = loop {
        tokio::select! {
            // Signals have priority: a lock that arrives together with one must not be used.
            biased;
            signal = signals.next_ending() => break Err(interrupted(signal, terminal)),
            answer = &mut asking => break Ok(answer),
            Ok(()) = seen.changed() => {
                let Some(WaitStatus { name, holder, ahead, .. }) = seen.borrow_and_update().clone() else { continue };
                if let Some(outer) = outer_of(client, request.kind.slots, &name, &holder).await {
                    break Err(nested(&name, &outer));
                }
                if in_line.as_ref() != Some(&name) && how.is_full(ahead) {
                    full = Some(ahead);
                    break Ok(Ok(None));
                }
                progress.turn_to(&name);
                in_line = Some(name);
                progress.resize(sys::columns(io::stderr()));
                write_raw(&progress.see(WaitState { holder, ahead, at: clock.now().since(begun) }).unwrap_or_default());
                let status = progress.status();
                if request.tells_manager && status != told {
                    service::tell(&format!("STATUS={status}"));
                    told = status;
                }
            }
            () = tokio::time::sleep(TICK) => {
                progress.resize(sys::columns(io::stderr()));
                write_raw(&progress.tick(clock.now().since(begun)).unwrap_or_default());
            }
        }
    };
    known.waited = clock.now().since(begun);
    if let Some(last) = last.borrow().clone() {
        known.holder = Some(last.holder);
        known.busy = Some(last.name);
    }
    let without = match answer {
        Ok(Ok(Some((fence, held)))) => {
            progress.turn_to(request.name);
            write_raw(&progress.got(known.waited, fence).unwrap_or_default());
            // Dropping it releases what is held: after a signal the command must not start.
            return match signals.arrived().await {
                Some(signal) => Err(interrupted(signal, terminal)),
                None => Ok(held),
            };
        }
        Ok(Ok(None)) => Ok(None),
        Ok(Err(Error::Timeout(timeout))) => Ok(Some(timeout)),
        Ok(Err(error)) => {
            if let Error::Lost(lost) = &error {
                known.lost = Some(lost.clone());
            }
            Err(error.into())
        }
        Err(exit) => Err(exit),
    };
    write_raw(progress.end());
    Err(refused(client, request, without?, full, known).await)
}

/// The current state of the lock, or an exit that says that the store does not answer. A waiter far back in the
/// queue seldom asks the store, and a silent store must not look like a busy lock.
pub(crate) async fn inspect_or_unavailable(client: &Client, name: &str) -> Result<Snapshot, Exit> {
    match tokio::time::timeout(INSPECTION, client.inspect(name)).await {
        Ok(Ok(snapshot)) => Ok(snapshot),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(exit!(
            UNAVAILABLE,
            "the store does not answer any more (exit {UNAVAILABLE})\n    {} was busy at its last answer; now it may be free or held. The command was not run.\n    next    check that the server runs and that this host may reach it",
            quoted(name)
        )),
    }
}

/// The lock that was busy, and its state. If several were asked for once, no answer says which one was: it is the first one that is
/// held now.
pub(crate) async fn inspect_busy(
    client: &Client,
    request: LockRequest<'_>,
    known: &WaitFacts,
) -> (String, Result<Snapshot, Exit>) {
    let names: Vec<&str> = match known.busy.as_deref() {
        Some(busy) => vec![busy],
        None => request.names().collect(),
    };
    let mut first = None;
    for name in names {
        let inspected = inspect_or_unavailable(client, name).await;
        if matches!(&inspected, Ok(snapshot) if snapshot.holder.is_some()) {
            return (name.to_owned(), inspected);
        }
        first = first.or(Some((name.to_owned(), inspected)));
    }
    first.unwrap_or_else(|| (request.name.to_owned(), Ok(Snapshot::new(None, Vec::new()))))
}

/// The exit for a lock that is busy: at once, for `full` waiters, or after a time limit.
async fn refused(
    client: &Client,
    request: LockRequest<'_>,
    timeout: Option<Timeout>,
    full: Option<u32>,
    known: &mut WaitFacts,
) -> Exit {
    let is_timeout = timeout.is_some();
    let code = if is_timeout { TIMEOUT } else { BUSY };
    let (outcome, retry) = match (timeout, full) {
        (Some(timeout), _) => {
            let after = span(timeout.waited);
            known.busy = Some(timeout.name);
            known.holder = timeout
                .holder
                .map_or(known.holder.take(), |holder| Some(*holder));
            (format!("is still busy after {after} (exit {code})"), "")
        }
        (None, Some(ahead)) => {
            let wait = if ahead == 1 { "waits" } else { "wait" };
            (
                format!("is busy, and {ahead} {wait} already (exit {code})"),
                "",
            )
        }
        (None, None) => (format!("is busy (exit {code})"), "-w 5m "),
    };
    // A lock of an outer run is reported even with `--quiet`: it would never become free.
    let is_nested = env::var_os(CHAIN).is_some();
    if request.how.quiet && !is_nested && !is_timeout && !request.wants_holder {
        return Exit::quiet(code);
    }
    let (name, inspected) = inspect_busy(client, request, known).await;
    known.busy = Some(name.clone());
    let name = name.as_str();
    let mut snapshot = match inspected {
        Ok(snapshot) => snapshot,
        Err(exit) if is_timeout => return exit,
        // The store answered a moment ago: use its last answer.
        Err(_) => Snapshot::new(known.holder.clone(), Vec::new()),
    };
    if let Some(ahead) = full {
        // The queue may still contain this client, behind the counted waiters.
        let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        snapshot.queue.truncate(ahead);
    }
    let exit = if let Some(outer) = endless(&snapshot, request.kind.slots) {
        nested(name, outer)
    } else {
        let text = busy(name, &outcome, &snapshot, retry, request);
        Exit::saying(code, text).quiet_if(request.how.quiet)
    };
    // A holder that has gone meanwhile was still the reason.
    known.holder = snapshot.holder.or(known.holder.take());
    exit
}

/// The message of an attempt that gives up on a busy lock. `options` are the options of the suggested next attempt.
fn busy(
    lock: &str,
    outcome: &str,
    snapshot: &Snapshot,
    options: &str,
    request: LockRequest<'_>,
) -> String {
    let mut rows = vec![format!("{} {outcome}", quoted(lock))];
    let mut row = |what: &str, text: String| rows.push(format!("    {what:<7} {text}"));
    if let Some(holder) = &snapshot.holder {
        let (held, fence) = (held_of(holder), fence_of(holder));
        let several = several(snapshot).map(|several| format!("; {several} in all"));
        let several = several.filter(|_| holders(snapshot) > 1);
        let several = several.unwrap_or_default();
        row("holder", format!("{}{held}{fence}{several}", who(holder)));
        let endless = "never ends: the program that set this key must delete it";
        row("lease", lease_of(holder, endless));
    } else {
        row("holder", "gone meanwhile".into());
    }
    row("queue", format!("{} waiting", snapshot.queue.len()));
    let again = request.again;
    let pasted = |lock: &str| format!("{}{}", again.store, pasteable(lock));
    let (verb, all, end) = (again.verb, pasted(request.name), again.command);
    let lock = pasted(lock);
    if snapshot.holder.as_ref().is_some_and(never_expires) {
        // Waiting would never end.
        row(
            "next",
            "find the program that set this key; when it is gone for good, delete the key".into(),
        );
    } else {
        row("next", format!("leasehold {verb} {options}{all}{end}"));
    }
    row("", format!("leasehold watch {lock}"));
    let fence = snapshot.holder.as_ref().and_then(|holder| holder.fence);
    if let Some(fence) = fence {
        let gone = match phase(snapshot) {
            Some(readers) => format!("if all {readers} are gone for good: it ends them all"),
            None => "if its holder is gone for good".into(),
        };
        row(
            "",
            format!("leasehold break --if-fence {fence} {lock}  ({gone})"),
        );
    }
    rows.join("\n")
}

/// The exit after a signal ended the wait.
pub(crate) fn interrupted(signal: Signal, terminal: Option<&Terminal>) -> Exit {
    // A signal from the terminal reached the whole process group, and the shell of a script checks whether this
    // process dies of it.
    let by_hand = signal == Signal::SIGINT && terminal.is_some_and(Terminal::is_foreground);
    Exit::by(signal).by_interrupt(by_hand.then_some(InterruptTarget::Process))
}

/// True if an outer run has this entry in [`CHAIN`].
pub(crate) fn is_in_chain(link: &str) -> bool {
    env::var(CHAIN).is_ok_and(|chain| chain.split(' ').any(|other| other == link))
}

/// True if the holder is an outer `leasehold run`, which cannot end before this process, or the lease whose
/// token this process was given.
fn is_ancestor(holder: &HolderView) -> bool {
    let HolderIdentity::Owner(owner) = &holder.who else {
        return false;
    };
    let token = owner.token();
    is_in_chain(token)
        || env::var("LEASEHOLD_TOKEN").is_ok_and(|given| given.split('#').next() == Some(token))
}

/// The holder for which a request of an inner run would wait without end. A free slot is enough for who asks for a slot, so all that are
/// counted have to be held by outer runs.
fn endless(seen: &Snapshot, slots: Option<u16>) -> Option<&HolderView> {
    let mut outer = seen.holders().filter(|holder| is_ancestor(holder));
    let first = outer.next()?;
    let held = 1 + outer.count();
    let is_slot = matches!(first.mode, Mode::Slot(_));
    let may_end = is_slot && slots.is_some_and(|slots| held < usize::from(slots));
    (!may_end).then_some(first)
}

/// The same, if `shown` is the holder in the answer of the store. If several hold the lock, it may be any of them.
pub(crate) async fn outer_of(
    client: &Client,
    slots: Option<u16>,
    name: &str,
    shown: &HolderView,
) -> Option<HolderView> {
    if shown.mode == Mode::Exclusive {
        return is_ancestor(shown).then(|| shown.clone());
    }
    env::var_os(CHAIN)?;
    // If the store does not answer, the next answer to the request says so.
    let seen = inspect_or_unavailable(client, name).await.ok()?;
    endless(&seen, slots).cloned()
}

pub(crate) fn nested(name: &str, holder: &HolderView) -> Exit {
    exit!(
        USAGE,
        "{} is held by an outer `leasehold run`, or by the lease of the given token ({}{}): you already hold this lock, so waiting for it would never end (exit {USAGE})",
        quoted(name),
        who(holder),
        fence_of(holder)
    )
}

fn style(how: &WaitArgs, terminal: Option<&Terminal>) -> ProgressStyle {
    let is_live =
        can_rewrite() && !verbose::is_on() && terminal.is_some_and(Terminal::is_foreground);
    match how.progress {
        _ if how.quiet => ProgressStyle::Quiet,
        ProgressMode::None => ProgressStyle::Quiet,
        ProgressMode::Auto if is_live => ProgressStyle::Live,
        ProgressMode::Auto | ProgressMode::Plain => ProgressStyle::Lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{foreign, held, readers, slots};
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        how: WaitArgs,
    }

    #[test]
    fn a_busy_lock_says_who_how_long_and_what_to_type() {
        let waits = Line::try_parse_from(["x"]).unwrap().how;
        let again = LockRequest {
            name: "db migrate",
            kind: &KindArgs::default(),
            ttl: Duration::ZERO,
            note: "",
            how: &waits,
            wants_holder: false,
            tells_manager: false,
            again: RetryHint {
                verb: "run",
                store: "",
                command: " -- ...",
            },
        };
        let says = "is busy (exit 75)";
        assert_eq!(
            busy("db migrate", says, &held(41), "-w 5m ", again),
            "\"db migrate\" is busy (exit 75)\n    \
             holder  deploy@web-3 (pid 4121: migrate.sh), held 3m12s, fence 41\n    \
             lease   24s left, unless renewed\n    \
             queue   0 waiting\n    \
             next    leasehold run -w 5m 'db migrate' -- ...\n            \
             leasehold watch 'db migrate'\n            \
             leasehold break --if-fence 41 'db migrate'  (if its holder is gone for good)"
        );
        // A break of one slot concerns nobody else, but readers have one fence.
        let several = busy("x", says, &slots(&[3, 1]), "", again);
        let slot = [
            "fence 43; 2 of 4 slots in all\n",
            "43 x  (if its holder is gone for good)",
        ];
        assert!(slot.iter().all(|part| several.contains(part)), "{several}");
        let several = busy("x", says, &readers(2), "", again);
        let all = "43 x  (if all 2 readers are gone for good: it ends them all)";
        assert!(several.contains("fence 43; 2 readers in all\n") && several.contains(all));
        let snapshot = foreign("string", b"d2f1");
        let block = busy("x", "is busy", &snapshot, "", again);
        assert!(
            block.contains("a foreign client (string)\n")
                && block.contains("never ends: the program that set this key must delete it")
                && block.contains("next    find the program that set this key")
                && !block.contains("leasehold run"),
            "{block}"
        );
    }
}
