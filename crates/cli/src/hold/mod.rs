//! `leasehold hold`: a lock for a program in any language. The program starts this process as a child and
//! controls it over pipes. The lock is held until stdin closes or the program ends, and the last event says how the
//! hold ended.

mod events;
mod program;

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error, Fence, Lease, Lost};
use leasehold_core::LockName;
use nix::sys::signal::Signal;
use tokio::sync::mpsc::Receiver;

use self::events::{Events, HoldEvent};
use self::program::{HoldCommand, Program, StdinLine, listen};
use crate::acquire_ui::{self, WaitArgs};
use crate::exit::{BUSY, Exit, LOST, TIMEOUT, exit};
use crate::messages::{quoted, say, without_advice};
use crate::session::{closing, in_runtime};
use crate::store::{StoreArgs, TtlArgs};
use crate::terminal::Signals;
use crate::view::{millis, who};

/// The time limit for the confirmation of a release. Without it the TTL ends the lease.
const RELEASE: Duration = Duration::from_secs(3);

/// The interval of checks for failed renewals, and for a parent that has ended or no longer reads.
const LOOK: Duration = Duration::from_millis(250);

const ABOUT: &str = "\
For programs in any language: start this as a child, with pipes for stdin and stdout. Each line of
stdout is a JSON document with \"event\": waiting, acquired, doubtful, renewed, state, and at the end one
of released, lost, busy, timeout, cancelled, error. The lock is held from `acquired` on, is renewed
meanwhile, and is released when stdin closes or the program that started it ends. Lines for stdin:
  {\"do\":\"release\"}   {\"do\":\"check\"}
To try it: leasehold hold deploy, then Ctrl-D.

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

    /// The lock
    #[arg(value_name = "LOCK")]
    lock: String,
}

/// Runs the verb.
pub(crate) fn hold(args: &Hold) -> Result<Exit, Exit> {
    let program = Program::find();
    let mut events = Events::open()?;
    let exit = begin(args, program, &mut events).unwrap_or_else(|exit| exit);
    // Ignored if the last event was already sent.
    events.tell(&HoldEvent::Error {
        code: Some(exit.code()),
        message: match exit.text() {
            "" => "ended by a signal".to_owned(),
            text => text.to_owned(),
        },
    });
    events.close();
    Ok(exit)
}

fn begin(args: &Hold, program: Program, events: &mut Events) -> Result<Exit, Exit> {
    LockName::new(&args.lock)?;
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl.typed)?;
    let mut parent = Parent {
        program,
        said: listen()?,
        events,
    };
    let target = target.patient(args.how.limit()?, args.how.quiet);
    in_runtime(async {
        let mut signals = Signals::catch()?;
        let client = tokio::select! {
            biased;
            exit = parent.until_cancelled(&mut signals) => return Err(exit),
            client = target.connect() => client?,
        };
        let work = async {
            let (lease, waited) = acquire(&client, args, ttl, &mut parent, &mut signals).await?;
            parent.program.look_again();
            parent.events.tell(&HoldEvent::Acquired {
                lock: args.lock.clone(),
                fence: lease.fence().get(),
                token: lease.token(),
                waited_ms: millis(waited),
                ttl_ms: millis(ttl),
                valid_for_ms: millis(lease.valid_for()),
            });
            let end = until_end(&lease, &mut parent, &mut signals).await;
            Ok(finish(lease, end, parent.events).await)
        };
        closing(&target, &client, Box::pin(work)).await
    })
}

/// The parent process.
struct Parent<'a> {
    program: Program,
    said: Receiver<StdinLine>,
    events: &'a mut Events,
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

impl Parent<'_> {
    /// The next input, at the latest after [`LOOK`]. Cancel safe.
    async fn hear(&mut self, signals: &mut Signals) -> ParentEvent {
        if self.program.has_ended() || self.events.is_broken() {
            return ParentEvent::Gone;
        }
        tokio::select! {
            biased;
            signal = signals.next_ending() => ParentEvent::Signal(signal),
            said = self.said.recv() => match said {
                Some(Ok(HoldCommand::Check)) => ParentEvent::Check,
                Some(Ok(HoldCommand::Release)) => ParentEvent::Release,
                Some(Err(message)) => {
                    self.events.tell(&HoldEvent::Error { code: None, message });
                    ParentEvent::Nothing
                }
                None => ParentEvent::Gone,
            },
            () = tokio::time::sleep(LOOK) => ParentEvent::Nothing,
        }
    }

    /// Serves the parent while the lock is not held, until an input ends the wait. Cancel safe.
    async fn until_cancelled(&mut self, signals: &mut Signals) -> Exit {
        loop {
            let why = match self.hear(signals).await {
                ParentEvent::Release => "asked to release",
                ParentEvent::Gone => "stdin or stdout was closed, or the program ended",
                ParentEvent::Signal(signal) => return Exit::by(signal),
                ParentEvent::Check => {
                    self.events.tell(&state(None));
                    continue;
                }
                ParentEvent::Nothing => continue,
            };
            return cancelled(self.events, why);
        }
    }
}

/// Waits for the lock. The client is closed afterwards in all cases, which removes the place in the queue.
async fn acquire(
    client: &Client,
    args: &Hold,
    ttl: Duration,
    parent: &mut Parent<'_>,
    signals: &mut Signals,
) -> Result<(Lease, Duration), Exit> {
    let (limit, clock) = (args.how.limit()?, Clock::system());
    let begun = clock.now();
    let waited = || clock.now().since(begun);
    let note = args.how.note.as_deref().unwrap_or("hold");
    let (lock, mut seen) = acquire_ui::watched(client, &args.lock, ttl, note);
    let asking = args.how.ask(&lock, limit);
    tokio::pin!(asking);
    let mut told = None;
    let answer = loop {
        tokio::select! {
            // The parent has priority: a lock that arrives after a cancel must not be announced.
            biased;
            exit = parent.until_cancelled(signals) => return Err(exit),
            answer = &mut asking => break answer,
            Ok(()) = seen.changed() => {
                let Some(waiting) = seen.borrow_and_update().clone() else { continue };
                if acquire_ui::is_ancestor(&waiting.holder) {
                    return Err(acquire_ui::nested(&args.lock, &waiting.holder));
                }
                if told.is_none() && args.how.is_full(waiting.ahead) {
                    return Err(refused(parent.events, args, BUSY));
                }
                let now = (waiting.ahead, who(&waiting.holder), waiting.holder.fence);
                if told.as_ref() != Some(&now) {
                    told = Some(now);
                    parent.events.tell(&HoldEvent::Waiting {
                        lock: args.lock.clone(),
                        ahead: waiting.ahead,
                        holder: who(&waiting.holder),
                        holder_fence: waiting.holder.fence.map(Fence::get),
                        waited_ms: millis(waited()),
                    });
                }
            }
        }
    };
    match answer {
        Ok(Some(lease)) => Ok((lease, waited())),
        Ok(None) => Err(refused(parent.events, args, BUSY)),
        Err(Error::Timeout(_)) => {
            acquire_ui::inspect_or_unavailable(client, &args.lock).await?;
            Err(refused(parent.events, args, TIMEOUT))
        }
        Err(error) => Err(error.into()),
    }
}

/// Serves the parent until the hold ends. The error is the loss of the lease.
async fn until_end(
    lease: &Lease,
    parent: &mut Parent<'_>,
    signals: &mut Signals,
) -> Result<Exit, Lost> {
    let mut was_doubtful = false;
    loop {
        let heard = tokio::select! {
            biased;
            lost = lease.lost() => return Err(lost),
            heard = parent.hear(signals) => heard,
        };
        let doubt = lease.doubt();
        if doubt.is_some() != was_doubtful {
            was_doubtful = doubt.is_some();
            let valid_for_ms = millis(lease.valid_for());
            parent.events.tell(&match doubt {
                Some(reason) => HoldEvent::Doubtful {
                    valid_for_ms,
                    reason,
                },
                None => HoldEvent::Renewed { valid_for_ms },
            });
        }
        match heard {
            ParentEvent::Check => parent.events.tell(&state(Some(lease))),
            ParentEvent::Release | ParentEvent::Gone => return Ok(Exit::quiet(0)),
            ParentEvent::Signal(signal) => return Ok(Exit::by(signal)),
            ParentEvent::Nothing => {}
        }
    }
}

/// Releases the lock and sends the last event.
async fn finish(lease: Lease, end: Result<Exit, Lost>, events: &mut Events) -> Exit {
    let name = lease.name().to_owned();
    let exit = match end {
        Ok(exit) => exit,
        Err(lost) => return was_lost(events, &lost),
    };
    match tokio::time::timeout(RELEASE, lease.release()).await {
        Ok(Err(Error::Lost(lost))) => return was_lost(events, &lost),
        Ok(Ok(())) => events.tell(&HoldEvent::Released { confirmed: true }),
        Ok(Err(_)) | Err(_) => {
            say(&format!(
                "the release of {} was not confirmed: the TTL ends the lease; until then other clients wait",
                quoted(&name)
            ));
            events.tell(&HoldEvent::Released { confirmed: false });
        }
    }
    exit
}

fn was_lost(events: &mut Events, lost: &Lost) -> Exit {
    events.tell(&HoldEvent::Lost {
        cause: without_advice(&lost.reason()),
        code: LOST,
    });
    exit!(
        LOST,
        "{lost} (exit {LOST})\n    work done without the lease may have been unprotected"
    )
}

fn state(lease: Option<&Lease>) -> HoldEvent {
    let valid_for = lease.map_or(Duration::ZERO, Lease::valid_for);
    HoldEvent::State {
        held: !valid_for.is_zero(),
        doubtful: lease.is_some_and(Lease::is_doubtful),
        valid_for_ms: millis(valid_for),
        fence: lease.map(|lease| lease.fence().get()),
    }
}

/// The exit for a busy lock.
fn refused(events: &mut Events, args: &Hold, code: u8) -> Exit {
    let exit = exit!(code, "{} is busy (exit {code})", quoted(&args.lock));
    let message = exit.text().to_owned();
    events.tell(&match code {
        TIMEOUT => HoldEvent::Timeout { code, message },
        _ => HoldEvent::Busy { code, message },
    });
    exit.quiet_if(args.how.quiet)
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
