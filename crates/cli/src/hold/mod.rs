//! `leasehold hold`: a lock for a program in any language. The program starts this process as a child and
//! controls it over pipes. The lock is held until stdin closes or the program ends, and the last event says how the
//! hold ended.

mod many;

use std::cell::Cell;
use std::fs::{self, Metadata};
use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error, Fence, Lost, WaitStatus};
use leasehold_core::LockName;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, channel};
use tokio::sync::watch;

use crate::acquire_ui::{self, KindArgs, LockRequest, RetryHint, WaitArgs, WaitFacts};
use crate::exit::{BUSY, Exit, LOST, TIMEOUT, exit};
use crate::held::LockGuard;
use crate::messages::{quoted, say, without_advice};
use crate::output;
use crate::session::{RELEASE, Released, Target, closing, in_runtime};
use crate::store::{StoreArgs, TtlArgs};
use crate::terminal::Signals;
use crate::view::{millis, who};

/// The interval of checks for failed renewals, and for a parent that has ended or no longer reads.
const LOOK: Duration = Duration::from_millis(250);

const ABOUT: &str = "\
For programs in any language: start this as a child, with pipes for stdin and stdout. Each line of
stdout is a JSON document with \"event\": waiting, acquired, doubtful, renewed, state, and at the end one
of released, lost, busy, timeout, cancelled, error. The lock is held from `acquired` on, is renewed
meanwhile, and is released when stdin closes or the program that started it ends. Lines for stdin:
  {\"do\":\"release\"}   {\"do\":\"check\"}
To try it: leasehold hold deploy, then Ctrl-D.
With --many, the lines name the locks: {\"do\":\"acquire\",\"id\":1,\"lock\":\"deploy\"}

Exit: 0 released, 79 lost, 75 busy, or stdin closed before the lock was held, 124 the limit of --wait,
128+n by signal n (released first), and as `leasehold run` for the rest. See docs/cli.md.";

/// Hold a lock until stdin is closed, and report as JSON lines: for programs in any language
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Hold {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    how: WaitArgs,

    #[command(flatten)]
    ttl: TtlArgs,

    #[command(flatten)]
    kind: KindArgs,

    /// Hold any number of locks, which lines of stdin ask for, each with a number of its own
    #[arg(long, conflicts_with_all = ["lock", "also", "shared", "slots"])]
    many: bool,

    /// The lock
    #[arg(value_name = "LOCK", required_unless_present = "many")]
    lock: Option<String>,
}

/// A lock that the parent asks for.
struct Asked<'a> {
    lock: &'a str,
    kind: &'a KindArgs,
    how: &'a WaitArgs,
    ttl: Duration,
    /// The store options, each followed by a space.
    store: &'a str,
}

/// Runs the verb.
pub(crate) fn hold(args: &Hold) -> Result<Exit, Exit> {
    let program = Program::find();
    let (events, writer) = Events::open(if args.many { UNREAD_OF_MANY } else { UNREAD })?;
    let exit = begin(args, program, events.clone()).unwrap_or_else(|exit| exit);
    // Ignored if the last event was already sent.
    events.tell(&HoldEvent::of_exit(&exit));
    drop(events);
    writer.close();
    Ok(exit)
}

fn begin(args: &Hold, program: Program, events: Events) -> Result<Exit, Exit> {
    if let Some(lock) = &args.lock {
        LockName::new(lock)?;
    }
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl.typed)?;
    let said = listen()?;
    let target = target.patient(args.how.limit()?, args.how.quiet);
    in_runtime(async {
        let mut process = Process {
            program,
            said,
            signals: Signals::catch()?,
            events: events.clone(),
        };
        let Some(lock) = &args.lock else {
            let (client, early) = process.connect(&target).await?;
            let work = many::serve(&client, args, ttl, process, early);
            return closing(&target, &client, Box::pin(work)).await;
        };
        let asked = Asked {
            lock,
            kind: &args.kind,
            how: &args.how,
            ttl,
            store: &args.store.again(),
        };
        let inputs = Inputs::Process(process);
        let mut parent = Parent { inputs, events };
        let client = tokio::select! {
            biased;
            exit = parent.until_cancelled() => return Err(exit),
            client = target.connect() => client?,
        };
        let work = hold_one(&client, &asked, &mut parent);
        closing(&target, &client, Box::pin(work)).await
    })
}

/// Holds one lock, from the request to its end.
async fn hold_one(client: &Client, asked: &Asked<'_>, parent: &mut Parent) -> Result<Exit, Exit> {
    let (held, waited) = acquire(client, asked, parent).await?;
    if let Inputs::Process(process) = &mut parent.inputs {
        process.program.look_again();
    }
    parent.events.tell(&HoldEvent::Acquired {
        lock: asked.lock.to_owned(),
        fence: held.fence().map(Fence::get),
        mode: held.mode().map(|mode| mode.to_string()),
        slot: held.slot(),
        token: held.token(),
        locks: held.json(),
        waited_ms: millis(waited),
        ttl_ms: millis(asked.ttl),
        valid_for_ms: millis(held.valid_for()),
    });
    let end = until_end(&held, parent).await;
    Ok(finish(held, end, &mut parent.events).await)
}

/// What one lock hears of the parent process, and tells it.
struct Parent {
    inputs: Inputs,
    events: Events,
}

/// Where the inputs of a lock come from.
enum Inputs {
    /// The only lock of this process hears all of them.
    Process(Process),
    /// One of many locks hears those with its number. The end of the channel is that of the parent.
    Passed(UnboundedReceiver<ParentEvent>),
}

/// An input that may end the hold or the wait.
enum ParentEvent {
    Check,
    Release,
    /// The parent closed stdin, no longer reads, or has ended.
    Gone,
    Signal(Signal),
    /// Time has passed.
    Nothing,
}

/// The inputs of this process.
struct Process {
    program: Program,
    said: Receiver<StdinLine>,
    signals: Signals,
    /// For errors in lines of stdin.
    events: Events,
}

/// An input of this process.
enum Input {
    Said(HoldCommand),
    Gone,
    Signal(Signal),
    Nothing,
}

impl Process {
    /// The next input, at the latest after [`LOOK`]. Cancel safe.
    async fn hear(&mut self) -> Input {
        if self.program.has_ended() || self.events.is_broken() {
            return Input::Gone;
        }
        tokio::select! {
            biased;
            signal = self.signals.next_ending() => Input::Signal(signal),
            said = self.said.recv() => match said {
                Some(Ok(command)) => Input::Said(command),
                Some(Err(message)) => self.refuse(message),
                None => Input::Gone,
            },
            () = tokio::time::sleep(LOOK) => Input::Nothing,
        }
    }

    /// Tells the error in a line of stdin.
    fn refuse(&mut self, message: String) -> Input {
        self.events.tell(&HoldEvent::Error {
            code: None,
            message,
        });
        Input::Nothing
    }

    /// Connects, and collects what the parent says meanwhile.
    async fn connect(&mut self, target: &Target) -> Result<(Client, Vec<HoldCommand>), Exit> {
        let mut early = Vec::new();
        let connecting = target.connect();
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                heard = self.hear() => match heard {
                    Input::Said(command) => early.push(command),
                    Input::Gone => {
                        self.events.tell(&HoldEvent::Ended { code: 0 });
                        return Err(Exit::quiet(0));
                    }
                    Input::Signal(signal) => return Err(Exit::by(signal)),
                    Input::Nothing => {}
                },
                client = &mut connecting => return Ok((client?, early)),
            }
        }
    }
}

impl Parent {
    /// The next input, at the latest after [`LOOK`]. Cancel safe.
    async fn hear(&mut self) -> ParentEvent {
        let process = match &mut self.inputs {
            Inputs::Process(process) => process,
            Inputs::Passed(passed) => {
                return tokio::select! {
                    biased;
                    heard = passed.recv() => heard.unwrap_or(ParentEvent::Gone),
                    () = tokio::time::sleep(LOOK) => ParentEvent::Nothing,
                };
            }
        };
        match process.hear().await {
            Input::Said(HoldCommand::Check { id: None }) => ParentEvent::Check,
            Input::Said(HoldCommand::Release { id: None }) => ParentEvent::Release,
            Input::Said(_) => {
                process.refuse("not understood: many locks need `leasehold hold --many`".into());
                ParentEvent::Nothing
            }
            Input::Gone => ParentEvent::Gone,
            Input::Signal(signal) => ParentEvent::Signal(signal),
            Input::Nothing => ParentEvent::Nothing,
        }
    }

    /// Serves the parent while the lock is not held, until an input ends the wait. Cancel safe.
    async fn until_cancelled(&mut self) -> Exit {
        loop {
            let why = match self.hear().await {
                ParentEvent::Release => "asked to release",
                ParentEvent::Gone => "stdin or stdout was closed, or the program ended",
                ParentEvent::Signal(signal) => return Exit::by(signal),
                ParentEvent::Check => {
                    self.events.tell(&state(None));
                    continue;
                }
                ParentEvent::Nothing => continue,
            };
            return cancelled(&mut self.events, why);
        }
    }
}

/// Waits for the lock. The client is closed afterwards in all cases, which removes the place in the queue.
async fn acquire(
    client: &Client,
    asked: &Asked<'_>,
    parent: &mut Parent,
) -> Result<(LockGuard, Duration), Exit> {
    let (kind, how) = (asked.kind, asked.how);
    let (limit, clock) = (how.limit()?, Clock::system());
    let begun = acquire_ui::counts_from(how.begun, clock.now());
    let waited = || clock.now().since(begun);
    let verb = format!("hold{}", kind.words());
    let request = LockRequest {
        name: asked.lock,
        kind,
        ttl: asked.ttl,
        note: how.note.as_deref().unwrap_or("hold"),
        how,
        wants_holder: false,
        again: RetryHint {
            verb: &verb,
            store: asked.store,
            command: "",
        },
        tells_manager: false,
    };
    let (answers, mut seen) = watch::channel(None);
    let asking = request.ask(client, limit, answers);
    tokio::pin!(asking);
    let mut told: Option<(String, u32, String, Option<Fence>)> = None;
    let answer = loop {
        tokio::select! {
            // The parent has priority: a lock that arrives after a cancel must not be announced.
            biased;
            exit = parent.until_cancelled() => return Err(exit),
            answer = &mut asking => break answer,
            Ok(()) = seen.changed() => {
                let Some(waiting) = seen.borrow_and_update().clone() else { continue };
                let WaitStatus { name, holder, ahead, .. } = waiting;
                if let Some(outer) = acquire_ui::outer_of(client, kind.slots, &name, &holder).await {
                    return Err(acquire_ui::nested(&name, &outer));
                }
                // It counts at the entry of each queue: later waiters come behind.
                let is_new = told.as_ref().is_none_or(|(lock, ..)| *lock != name);
                if is_new && how.is_full(ahead) {
                    return Err(refused(&mut parent.events, how, &name, BUSY));
                }
                let now = (name, ahead, who(&holder), holder.fence);
                if told.as_ref() != Some(&now) {
                    parent.events.tell(&HoldEvent::Waiting {
                        lock: now.0.clone(),
                        ahead,
                        holder: now.2.clone(),
                        holder_fence: holder.fence.map(Fence::get),
                        waited_ms: millis(waited()),
                    });
                    told = Some(now);
                }
            }
        }
    };
    match answer {
        Ok(Some(held)) => Ok((held, waited())),
        Ok(None) if kind.also.is_empty() => Err(refused(&mut parent.events, how, asked.lock, BUSY)),
        Ok(None) => {
            let known = WaitFacts::default();
            let (busy, _) = acquire_ui::inspect_busy(client, request, &known).await;
            Err(refused(&mut parent.events, how, &busy, BUSY))
        }
        Err(Error::Timeout(timeout)) => {
            acquire_ui::inspect_or_unavailable(client, &timeout.name).await?;
            Err(refused(&mut parent.events, how, &timeout.name, TIMEOUT))
        }
        Err(error) => Err(error.into()),
    }
}

/// Serves the parent until the hold ends. The error is the loss of the lease.
async fn until_end(held: &LockGuard, parent: &mut Parent) -> Result<Exit, Lost> {
    let mut was_doubtful = false;
    loop {
        let heard = tokio::select! {
            biased;
            lost = held.lost() => return Err(lost),
            heard = parent.hear() => heard,
        };
        let doubt = held.doubt();
        if doubt.is_some() != was_doubtful {
            was_doubtful = doubt.is_some();
            let valid_for_ms = millis(held.valid_for());
            parent.events.tell(&match doubt {
                Some(reason) => HoldEvent::Doubtful {
                    valid_for_ms,
                    reason,
                },
                None => HoldEvent::Renewed { valid_for_ms },
            });
        }
        match heard {
            ParentEvent::Check => parent.events.tell(&state(Some(held))),
            ParentEvent::Release | ParentEvent::Gone => return Ok(Exit::quiet(0)),
            ParentEvent::Signal(signal) => return Ok(Exit::by(signal)),
            ParentEvent::Nothing => {}
        }
    }
}

/// Releases the lock and sends the last event.
async fn finish(held: LockGuard, end: Result<Exit, Lost>, events: &mut Events) -> Exit {
    let names = held.names();
    let exit = match end {
        Ok(exit) => exit,
        Err(lost) => return was_lost(events, &lost),
    };
    match held.release(None, RELEASE).await {
        Released::WasLost(lost) => return was_lost(events, &lost),
        Released::Yes => events.tell(&HoldEvent::Released { confirmed: true }),
        Released::Unconfirmed(_) => {
            say(&format!(
                "the release of {names} was not confirmed: the TTL ends the lease; until then other clients wait"
            ));
            events.tell(&HoldEvent::Released { confirmed: false });
        }
    }
    exit
}

fn was_lost(events: &mut Events, lost: &Lost) -> Exit {
    events.tell(&HoldEvent::Lost {
        lock: lost.name.clone(),
        cause: without_advice(&lost.reason()),
        code: LOST,
    });
    exit!(
        LOST,
        "{lost} (exit {LOST})\n    work done without the lease may have been unprotected"
    )
}

fn state(held: Option<&LockGuard>) -> HoldEvent {
    let valid_for = held.map_or(Duration::ZERO, LockGuard::valid_for);
    HoldEvent::State {
        held: !valid_for.is_zero(),
        doubtful: held.is_some_and(|held| held.doubt().is_some()),
        valid_for_ms: millis(valid_for),
        fence: held.and_then(LockGuard::fence).map(Fence::get),
    }
}

/// The exit for a busy lock.
fn refused(events: &mut Events, how: &WaitArgs, busy: &str, code: u8) -> Exit {
    let exit = exit!(code, "{} is busy (exit {code})", quoted(busy));
    let message = exit.text().to_owned();
    events.tell(&match code {
        TIMEOUT => HoldEvent::Timeout { code, message },
        _ => HoldEvent::Busy { code, message },
    });
    exit.quiet_if(how.quiet)
}

/// The exit for a cancelled wait.
fn cancelled(events: &mut Events, why: &str) -> Exit {
    let exit = exit!(BUSY, "{why} before the lock was held (exit {BUSY})");
    events.tell(&HoldEvent::Cancelled {
        code: BUSY,
        message: exit.text().to_owned(),
    });
    exit
}

/// The number of unread events after which the parent counts as gone. Then it is told no place in line either.
const UNREAD: usize = 1024;

/// That of a parent with many locks, which may compute for a while and not read.
const UNREAD_OF_MANY: usize = 64 * UNREAD;

/// The time limit for writing the last events.
const LAST: Duration = Duration::from_secs(1);

/// An event of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum HoldEvent {
    /// With `--many`: the store is connected. The first event.
    Ready { store: String },
    /// The lock is busy. Sent again when the place in the queue or the holder changes.
    Waiting {
        lock: String,
        ahead: u32,
        holder: String,
        holder_fence: Option<u64>,
        waited_ms: u64,
    },
    /// The lock is held from now on. A reader and a slot have no token; `locks` are all of several.
    Acquired {
        lock: String,
        fence: Option<u64>,
        mode: Option<String>,
        slot: Option<u16>,
        token: Option<String>,
        locks: Option<Value>,
        waited_ms: u64,
        ttl_ms: u64,
        valid_for_ms: u64,
    },
    /// A renewal failed. The lock is held for `valid_for_ms` more; the renewal is retried.
    Doubtful { valid_for_ms: u64, reason: String },
    /// A renewal succeeded after a failed one.
    Renewed { valid_for_ms: u64 },
    /// The answer to `check`.
    State {
        held: bool,
        doubtful: bool,
        valid_for_ms: u64,
        fence: Option<u64>,
    },
    /// The lock was lost: the last event.
    Lost {
        lock: String,
        cause: String,
        code: u8,
    },
    /// The lock was released: the last event. If not `confirmed`, the store did not answer and the TTL ends the
    /// lease.
    Released { confirmed: bool },
    /// The lock was busy and waiting was not allowed: the last event.
    Busy { code: u8, message: String },
    /// The lock was busy until the time limit: the last event.
    Timeout { code: u8, message: String },
    /// The parent cancelled before the lock was held: the last event.
    Cancelled { code: u8, message: String },
    /// With a code, the error that ends this process: the last event. Without a code, the error in a line of
    /// stdin.
    Error { code: Option<u8>, message: String },
    /// With `--many`: all locks were let go, and the process ends.
    Ended { code: u8 },
}

impl HoldEvent {
    /// The error that ended a hold, or this process.
    fn of_exit(exit: &Exit) -> Self {
        Self::Error {
            code: Some(exit.code()),
            message: match exit.text() {
                "" => "ended by a signal".to_owned(),
                text => text.to_owned(),
            },
        }
    }

    /// True for an event that ends the stream.
    fn is_last(&self) -> bool {
        match self {
            Self::Error { code, .. } => code.is_some(),
            Self::Ready { .. }
            | Self::Waiting { .. }
            | Self::Acquired { .. }
            | Self::Doubtful { .. }
            | Self::Renewed { .. }
            | Self::State { .. } => false,
            _ => true,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.hold/1")]
struct EventLine<'a> {
    /// With `--many`, the number of the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(flatten)]
    event: &'a HoldEvent,
}

/// The events of one lock, or of the process, to the parent: NDJSON on stdout. A slow reader never blocks the lock holder.
#[derive(Clone)]
struct Events {
    id: Option<u64>,
    lines: Sender<String>,
    pipe: Rc<Pipe>,
    /// The last event was sent.
    is_over: Rc<Cell<bool>>,
}

/// The state of stdout.
struct Pipe {
    writer: JoinHandle<io::Result<()>>,
    unread: Arc<AtomicUsize>,
    most_unread: usize,
    is_broken: Cell<bool>,
}

/// The writer of the last events.
struct Writer(mpsc::Receiver<()>);

impl Events {
    /// Starts the writer thread.
    fn open(most_unread: usize) -> io::Result<(Self, Writer)> {
        let (lines, written) = mpsc::channel::<String>();
        let (finish, done) = sync_channel(0);
        let unread = Arc::<AtomicUsize>::default();
        let waiting = unread.clone();
        let write = move || {
            let _until_the_end: SyncSender<()> = finish;
            // Writes each line with one call. After a failure the channel closes, which the sender notices.
            written.iter().try_for_each(|line| {
                output::write(line.as_bytes())?;
                waiting.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            })
        };
        let writer = thread::Builder::new().name("events".into()).spawn(write)?;
        let pipe = Pipe {
            writer,
            unread,
            most_unread,
            is_broken: Cell::new(false),
        };
        let events = Self {
            id: None,
            lines,
            pipe: Rc::new(pipe),
            is_over: Rc::default(),
        };
        Ok((events, Writer(done)))
    }

    /// Those of one of many locks.
    fn of(&self, id: u64) -> Self {
        Self {
            id: Some(id),
            is_over: Rc::default(),
            ..self.clone()
        }
    }

    /// Sends an event without waiting for the parent.
    fn tell(&self, event: &HoldEvent) {
        if self.is_over.get() {
            return;
        }
        let unread = self.pipe.unread.load(Ordering::Relaxed);
        if unread >= UNREAD && matches!(event, HoldEvent::Waiting { .. }) {
            return;
        }
        self.is_over.set(event.is_last());
        let line = output::json(&EventLine { id: self.id, event });
        self.pipe.unread.fetch_add(1, Ordering::Relaxed);
        if unread >= self.pipe.most_unread || self.lines.send(line).is_err() {
            self.pipe.is_broken.set(true);
        }
    }

    /// True if the parent no longer reads: the pipe has no reader, or is full.
    fn is_broken(&self) -> bool {
        let is_broken = || {
            if self.pipe.is_broken.get() || self.pipe.writer.is_finished() {
                return true;
            }
            let stdout = io::stdout();
            let mut asked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
            let polled = poll(&mut asked, PollTimeout::ZERO);
            let said = asked[0].revents().unwrap_or(PollFlags::empty());
            polled.is_ok() && said.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL)
        };
        self.pipe.is_broken.set(is_broken());
        self.pipe.is_broken.get()
    }
}

impl Writer {
    /// Waits a moment for the writing of the last events, after their senders are gone.
    fn close(self) {
        // After this time the parent is assumed not to read.
        let _closed: Result<(), RecvTimeoutError> = self.0.recv_timeout(LAST);
    }
}

/// The longest line, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The number of lines read ahead.
const AHEAD: usize = 16;

/// A line of stdin, or the error of an invalid one.
type StdinLine = Result<HoldCommand, String>;

/// A command of the parent. With `--many`, each names the lock by its number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum HoldCommand {
    Acquire(many::Request),
    Release { id: Option<u64> },
    Check { id: Option<u64> },
}

/// Starts reading the lines of stdin, which are NDJSON. The channel closes at the end of stdin, which ends the hold; an
/// invalid line does not.
fn listen() -> io::Result<Receiver<StdinLine>> {
    let (sender, said) = channel(AHEAD);
    // A read of stdin cannot be cancelled: the thread ends with the process.
    let read = move || {
        let mut stdin = io::stdin().lock();
        while let Some(line) = next(&mut stdin) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("commands".into()).spawn(read)?;
    Ok(said)
}

/// The next line that is not empty; `None` at the end of stdin or after an error.
fn next(input: &mut impl BufRead) -> Option<StdinLine> {
    loop {
        let mut line = Vec::new();
        let length = input
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .ok()?;
        if length == 0 {
            return None;
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            skip_line(input)?;
            return Some(Err(format!("a line is longer than {LONGEST} bytes")));
        }
        if !line.trim_ascii().is_empty() {
            return Some(parse(&line));
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> Option<()> {
    loop {
        let buffer = input.fill_buf().ok()?;
        if buffer.is_empty() {
            return Some(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |at| at + 1);
        input.consume(length);
        if end.is_some() {
            return Some(());
        }
    }
}

fn parse(line: &[u8]) -> StdinLine {
    serde_json::from_slice(line).map_err(|error| {
        format!(
            r#"not understood: {error}; write {{"do":"release"}} or {{"do":"check"}}, one per line"#
        )
    })
}

/// The permission bit of an entry in `/proc/PID/fd` that is open for writing.
const WRITABLE: u32 = 0o200;

/// The program that holds the lock, on the other side of the pipes: the process that started this one, if it keeps stdin
/// open. A forked child of it has a copy of the pipe, so the end of stdin alone does not show the end of the program.
///
/// Another parent has only launched this process (a subshell, `setsid`, `timeout`, `ssh`), and may end before the work does.
/// Then the end of stdin alone ends the hold.
#[derive(Debug, Clone, Copy)]
struct Program {
    parent: Pid,
    /// It keeps stdin open.
    has_stdin: bool,
}

impl Program {
    /// Must be called first: if the parent ends before, the process that adopts this one counts as the parent.
    fn find() -> Self {
        let mut program = Self {
            parent: getppid(),
            has_stdin: false,
        };
        program.look_again();
        program
    }

    /// A shell opens a named pipe only while this process starts, so the first look may have been too early.
    fn look_again(&mut self) {
        self.has_stdin |= keeps_stdin_open(self.parent);
    }

    /// True if the program has ended. The system then gives this process another parent.
    fn has_ended(self) -> bool {
        self.has_stdin && getppid() != self.parent
    }
}

/// True if `parent` can write to the pipe or socket that is this process's stdin.
fn keeps_stdin_open(parent: Pid) -> bool {
    let Ok(stdin) = fs::metadata("/proc/self/fd/0") else {
        return false;
    };
    #[cfg(target_os = "linux")]
    if stdin.file_type().is_socket() {
        return crate::sys::peer(io::stdin()) == Some(parent);
    }
    if !stdin.file_type().is_fifo() {
        return false;
    }
    match fs::read_dir(format!("/proc/{parent}/fd")) {
        Ok(files) => files
            .flatten()
            .any(|file| is_writer(&file.path(), &stdin).unwrap_or(false)),
        // A program that has changed its user lets no other process look. A launcher does.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn is_writer(file: &Path, stdin: &Metadata) -> io::Result<bool> {
    let seen = fs::metadata(file)?;
    let is_stdin = (seen.dev(), seen.ino()) == (stdin.dev(), stdin.ino());
    Ok(is_stdin && fs::symlink_metadata(file)?.mode() & WRITABLE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_it_is_first() {
        let event = HoldEvent::Doubtful {
            valid_for_ms: 7,
            reason: "no".into(),
        };
        let line = serde_json::to_string(&EventLine {
            id: None,
            event: &event,
        });
        assert_eq!(
            line.unwrap(),
            r#"{"schema":"leasehold.hold/1","event":"doubtful","valid_for_ms":7,"reason":"no"}"#
        );
    }

    fn all(mut text: &[u8]) -> Vec<StdinLine> {
        std::iter::from_fn(|| next(&mut text)).collect()
    }

    #[test]
    fn lines_are_read_one_by_one_and_nonsense_ends_nothing() {
        let long = "x".repeat(200_000);
        let text = format!(
            "{{\"do\":\"check\",\"more\":1}}\n\n  \r\n{{\"do\":\"dance\"}}\n{long}\n\u{ff}\n{{\"do\":\"release\"}}"
        );
        let said = all(text.as_bytes());
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(said[0], Ok(HoldCommand::Check { id: None }));
        assert!(matches!(&said[1], Err(why) if why.contains("dance")));
        assert!(matches!(&said[2], Err(why) if why.contains("longer")));
        assert!(said[3].is_err());
        assert_eq!(said[4], Ok(HoldCommand::Release { id: None }));
    }
}
