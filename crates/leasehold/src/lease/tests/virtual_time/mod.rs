//! Tests of a client whose store fails, hangs or is late, in virtual time. No test waits in real time.

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
mod permits;
mod readers;
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
use crate::kind::Kind;
use crate::store::memory::{Memory, MemoryStore};
use crate::store::{Attach, Done, IndexRequest, Store};
use crate::{Client, ClientBuilder, Lease, Lock};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// The client's deadline for a lease of [`TTL`] is this much earlier than the store's: 1 % and 2 ms.
const DRIFT: Duration = Duration::from_millis(302);

/// The way in which the store treats a request.
enum Fate {
    /// The store carries it out and answers.
    Pass,
    /// It never arrives. The client gets an error at once, and cannot know that.
    Vanish,
    /// Like `Vanish`, but the client gets the error after this time.
    VanishAfter(Duration),
    /// The store refuses it, and it has no effect.
    Refuse,
    /// The store refuses it because the store is full.
    Full,
    /// The store carries it out, and the answer is lost.
    LoseReply,
    /// The store carries it out at once, and answers after this time.
    AnswerAfter(Duration),
    /// The store carries it out after this time, and answers then.
    CarryOutAfter(Duration),
    /// It never arrives, and no answer ever comes.
    Hang,
}

type Plan = Box<dyn FnMut(&Step) -> Fate + Send>;

/// The plan for the requests, and a record of all requests.
struct Script {
    plan: Mutex<Plan>,
    sent: Mutex<Vec<Sent>>,
}

/// A request that the client has sent.
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
        // The store carries out requests without a delay here, in the order in which the client sent them.
        if let Some(later) = unfinished(answering) {
            drop(tokio::runtime::Handle::current().spawn(later));
        }
    }

    fn index(&self, request: IndexRequest) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.inner.store.index(request)
    }
}

/// Polls `future` once. Returns it if it has not ended.
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
        Step::Propose(_) => "propose",
        Step::GiveBack { .. } => "give back",
    }
}

/// A client whose requests follow a script, and another client of the same store without a script.
struct Scene {
    clock: Clock,
    memory: Memory,
    script: Arc<Script>,
    client: Client,
    other: Client,
}

impl Scene {
    /// Starts with a script that passes all requests.
    fn begin() -> Self {
        Self::begin_with(|builder| builder)
    }

    /// With other settings of the first client.
    fn begin_with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        let script = Arc::new(Script {
            plan: Mutex::new(Box::new(|_| Fate::Pass)),
            sent: Mutex::default(),
        });
        let open = |attach: Attach| -> Result<Arc<dyn Store>, Error> {
            Ok(Arc::new(Scripted {
                inner: Arc::new(Inner {
                    store: memory.attach(attach),
                    script: script.clone(),
                }),
            }))
        };
        // With a namespace, a lock's key differs from its name.
        let builder = || Client::builder().namespace("test").clock(clock.clone());
        let client = set(builder()).build(open).unwrap();
        let other = builder().embedded(&memory).unwrap();
        Self {
            clock,
            memory,
            script,
            client,
            other,
        }
    }

    /// From now on, `plan` decides the fate of each request.
    fn plan(&self, plan: impl FnMut(&Step) -> Fate + Send + 'static) {
        *self.script.plan.lock().unwrap() = Box::new(plan);
    }

    fn all_goes_well(&self) {
        self.plan(|_| Fate::Pass);
    }

    /// From now on, requests with this verb have this fate. All others pass.
    fn each(&self, which: &'static str, fate: impl Fn() -> Fate + Send + 'static) {
        self.plan(move |step| {
            if verb(step) == which {
                fate()
            } else {
                Fate::Pass
            }
        });
    }

    /// The next request with this verb has this fate. All others pass.
    fn next(&self, which: &'static str, fate: Fate) {
        let mut fate = Some(fate);
        self.plan(move |step| {
            let now = (verb(step) == which).then(|| fate.take()).flatten();
            now.unwrap_or(Fate::Pass)
        });
    }

    /// How many requests were sent so far.
    fn steps(&self) -> usize {
        self.script.sent.lock().unwrap().len()
    }

    fn mutex(&self) -> crate::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    /// Acquires a lease of 30 s. Returns it with the time of the request.
    async fn lease(&self) -> (Lease, Moment) {
        let asked = self.clock.now();
        (self.mutex().acquire().await.unwrap(), asked)
    }

    /// Acquires the lock for the other client.
    async fn taken_by_another(&self) -> Lease {
        self.other.mutex("m").ttl(TTL).acquire().await.unwrap()
    }

    /// The requests with this verb so far.
    fn sent(&self, verb: &str) -> Vec<Sent> {
        let sent = self.script.sent.lock().unwrap();
        sent.iter()
            .filter(|sent| sent.verb == verb)
            .cloned()
            .collect()
    }

    /// Lets the store carry out a request that the client has given up.
    fn arrives_late(&self, sent: &Sent) {
        let reply = self.carried_out(&sent.name, &sent.step);
        assert!(matches!(reply, Reply::Held(_)), "{reply:?}");
    }

    /// Applies a step in the store without any notice to clients.
    fn carried_out(&self, name: &LockName, step: &Step) -> Reply {
        let now = self.clock.store_now();
        let take = |world: &mut leasehold_core::World| {
            world
                .apply(now, name, step, &leasehold_core::UnknownPresence)
                .reply
        };
        self.memory.meddle(take)
    }

    /// True if the lock has no holder and no waiters.
    async fn is_free(&self) -> bool {
        let seen = self.other.inspect("m").await.unwrap();
        seen.holder.is_none() && seen.queue.is_empty()
    }

    /// The time from `moment` until now.
    fn since(&self, moment: Moment) -> Duration {
        self.clock.now().since(moment)
    }
}

/// Starts a task that acquires the lock. Its handle returns the lease.
fn in_line<K: Kind>(lock: Lock<K>) -> JoinHandle<Lease<K>> {
    let waiting = async move { lock.acquire().await.unwrap() };
    tokio::runtime::Handle::current().spawn(waiting)
}

/// The cause of a loss. Panics at any other error.
#[track_caller]
fn cause(error: Error) -> LossCause {
    match error {
        Error::Lost(lost) => lost.cause,
        other => panic!("not lost: {other:?}"),
    }
}

/// The error of a store. Panics at any other error.
#[track_caller]
fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => panic!("not a failure of the store: {other:?}"),
    }
}
