//! What a client does when its store fails, hangs or is late, on virtual time. Nothing here waits for real.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "constants, of which the first is the longer one"
)]

mod at_least;
mod deadlines;
mod ending;
mod handing_on;
mod keeping;
mod overtaken;
mod reconnected;
mod replaced;
mod rolled_back;
mod settling;
mod waiting;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use leasehold_core::{LockName, Reply, Step};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, StoreError, StoreErrorKind};
use crate::store::memory::{Memory, MemoryStore};
use crate::store::{Attach, Done, Opened, Store};
use crate::{Client, Lease};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// How long before the store a client lets go of a lease of [`TTL`]: 1 % and 2 ms.
const DRIFT: Duration = Duration::from_millis(302);

/// What becomes of a request.
enum Fate {
    /// It is carried out and answered.
    Pass,
    /// It never arrives; the client cannot know that.
    Vanish,
    /// The same, and nobody answers until this long after.
    VanishAfter(Duration),
    /// It is refused: nothing happened.
    Refuse,
    /// It is refused, for want of room.
    Full,
    /// It is carried out, and the answer is lost.
    LoseReply,
    /// It is carried out, and answered after this long.
    AnswerAfter(Duration),
    /// It is carried out and answered after this long.
    CarryOutAfter(Duration),
    /// No answer ever comes.
    Hang,
}

type Plan = Box<dyn FnMut(&Step) -> Fate + Send>;

/// What goes wrong, and what was asked.
struct Script {
    plan: Mutex<Plan>,
    sent: Mutex<Vec<Sent>>,
}

/// A request, as the store saw it.
#[derive(Clone)]
struct Sent {
    verb: &'static str,
    name: LockName,
    step: Step,
    answered: bool,
}

/// A store in memory that follows a script.
struct Scripted {
    inner: Arc<Inner>,
}

struct Inner {
    store: MemoryStore,
    script: Arc<Script>,
}

impl Inner {
    async fn follow(&self, fate: Fate, name: &LockName, step: Step) -> Result<Reply, StoreError> {
        let failed = |kind| StoreError::new("script", kind, "as the script says");
        match fate {
            Fate::Pass => self.store.apply(name, step).await,
            Fate::Vanish => Err(failed(StoreErrorKind::TimedOut).unknown()),
            Fate::VanishAfter(delay) => {
                sleep(delay).await;
                Err(failed(StoreErrorKind::TimedOut).unknown())
            }
            Fate::Refuse => Err(failed(StoreErrorKind::Unavailable)),
            Fate::Full => Err(failed(StoreErrorKind::Full)),
            Fate::LoseReply => {
                self.store.apply(name, step).await?;
                Err(failed(StoreErrorKind::TimedOut).unknown())
            }
            Fate::AnswerAfter(delay) => {
                let reply = self.store.apply(name, step).await;
                sleep(delay).await;
                reply
            }
            Fate::CarryOutAfter(delay) => {
                sleep(delay).await;
                self.store.apply(name, step).await
            }
            Fate::Hang => pending().await,
        }
    }
}

impl Store for Scripted {
    fn label(&self) -> &'static str {
        "scripted:"
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let fate = (self.inner.script.plan.lock().unwrap())(&step);
        let sent = Sent {
            verb: verb(&step),
            name: name.clone(),
            step: step.clone(),
            answered: false,
        };
        let number = {
            let mut all = self.inner.script.sent.lock().unwrap();
            all.push(sent);
            all.len() - 1
        };
        let (inner, name) = (self.inner.clone(), name.clone());
        let answering = async move {
            let answer = inner.follow(fate, &name, step).await;
            inner.script.sent.lock().unwrap()[number].answered = true;
            done.answer(answer);
        };
        // What goes well is carried out in the order it was sent.
        if let Some(later) = unfinished(answering) {
            drop(tokio::runtime::Handle::current().spawn(later));
        }
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.inner.store.index(remember)
    }
}

/// Runs `future` as far as it goes at once; what is left of it.
fn unfinished(future: impl Future<Output = ()> + Send + 'static) -> Option<BoxFuture<'static, ()>> {
    let mut future = future.boxed();
    future.as_mut().now_or_never().is_none().then_some(future)
}

fn verb(step: &Step) -> &'static str {
    match step {
        Step::Acquire { .. } => "acquire",
        Step::Extend { .. } => "extend",
        Step::Release { .. } => "release",
        Step::Break { .. } => "break",
        Step::Inspect => "inspect",
    }
}

/// A client of a store that follows a script, and another one of the same store for which all goes well.
struct Scene {
    clock: Clock,
    memory: Memory,
    script: Arc<Script>,
    client: Client,
    other: Client,
}

impl Scene {
    /// All goes well, for now.
    fn begin() -> Self {
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        let script = Arc::new(Script {
            plan: Mutex::new(Box::new(|_| Fate::Pass)),
            sent: Mutex::default(),
        });
        let open = |attach: Attach, _: &_| -> Result<Opened, Error> {
            Ok(Opened::new(Arc::new(Scripted {
                inner: Arc::new(Inner {
                    store: memory.attach(attach),
                    script: script.clone(),
                }),
            })))
        };
        // With a namespace, so that a key is not just a name.
        let builder = || Client::builder().namespace("test").clock(clock.clone());
        let client = builder().build(open).unwrap();
        let other = builder().embedded(&memory).unwrap();
        Self {
            clock,
            memory,
            script,
            client,
            other,
        }
    }

    /// From now on, requests fare as `plan` says.
    fn plan(&self, plan: impl FnMut(&Step) -> Fate + Send + 'static) {
        *self.script.plan.lock().unwrap() = Box::new(plan);
    }

    fn all_goes_well(&self) {
        self.plan(|_| Fate::Pass);
    }

    /// From now on, requests with this verb fare so, and the others well.
    fn each(&self, which: &'static str, fate: impl Fn() -> Fate + Send + 'static) {
        self.plan(move |step| {
            if verb(step) == which {
                fate()
            } else {
                Fate::Pass
            }
        });
    }

    /// The next request with this verb fares so, and all others well.
    fn next(&self, which: &'static str, fate: Fate) {
        let mut fate = Some(fate);
        self.plan(move |step| {
            let now = (verb(step) == which).then(|| fate.take()).flatten();
            now.unwrap_or(Fate::Pass)
        });
    }

    fn mutex(&self) -> crate::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    /// A lease of 30 s, and the moment before it was asked for.
    async fn lease(&self) -> (Lease, Moment) {
        let asked = self.clock.now();
        (self.mutex().acquire().await.unwrap(), asked)
    }

    /// A lease of the other client.
    async fn taken_by_another(&self) -> Lease {
        self.other.mutex("m").ttl(TTL).acquire().await.unwrap()
    }

    /// What was sent with this verb.
    fn sent(&self, verb: &str) -> Vec<Sent> {
        let sent = self.script.sent.lock().unwrap();
        sent.iter()
            .filter(|sent| sent.verb == verb)
            .cloned()
            .collect()
    }

    /// A request that was given up arrives after all.
    fn arrives_late(&self, sent: &Sent) {
        let reply = self.carried_out(&sent.name, &sent.step);
        assert!(matches!(reply, Reply::Held(_)), "{reply:?}");
    }

    /// A step is taken, and nobody is told.
    fn carried_out(&self, name: &LockName, step: &Step) -> Reply {
        let now = self.clock.store_now();
        let take = |world: &mut leasehold_core::World| {
            world
                .apply(now, name, step, &leasehold_core::UnknownPresence)
                .reply
        };
        self.memory.meddle(take)
    }

    /// Whether the lock is free now, and nobody waits for it.
    async fn is_free(&self) -> bool {
        let seen = self.other.inspect("m").await.unwrap();
        seen.holder.is_none() && seen.queue.is_empty()
    }

    /// How long from `moment` until now.
    fn since(&self, moment: Moment) -> Duration {
        self.clock.now().since(moment)
    }
}

/// A task that waits in the queue and sends its lease here.
fn in_line(mutex: crate::Mutex) -> JoinHandle<Lease> {
    let waiting = async move { mutex.acquire().await.unwrap() };
    tokio::runtime::Handle::current().spawn(waiting)
}

/// Why a lease was lost, when it had to be.
#[track_caller]
fn cause(error: Error) -> LossCause {
    match error {
        Error::Lost(lost) => lost.cause,
        other => panic!("not lost: {other:?}"),
    }
}

/// How a store failed, when it had to.
#[track_caller]
fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => panic!("not a failure of the store: {other:?}"),
    }
}
