//! Locks in this process only: for tests, examples and programs of one process. The rules are those of core's `World`.
//!
//! Tests inject faults between clients and their store. A fault does not affect requests that were sent before.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
#[cfg(feature = "entries")]
use leasehold_core::cache;
use leasehold_core::once::{self, Firing};
use leasehold_core::{ClientId, LockName, Now, Presence, Reply, Step, Waiter, World};

use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::{
    Answering, Attach, Done, IndexRequest, Listener, Notice, Store, limit_of,
};
#[cfg(feature = "entries")]
use crate::store::contract::{EntryStore, Looked, Taken};

/// The fewest steps between two sweeps of expired names. With more names than this, as many steps as there are names.
const SWEEP_EVERY: usize = 1024;

/// A store in this process. Clients with clones of it share the locks.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<MemoryState>>,
    faults: Faults,
}

struct MemoryState {
    clock: Clock,
    world: World,
    #[cfg(feature = "entries")]
    cache: cache::CacheWorld,
    /// The attached clients. A detached client receives no notices.
    clients: HashMap<ClientId, Listener>,
    steps_to_sweep: usize,
}

impl Memory {
    /// An empty store that judges expiry by `clock`.
    pub fn new(clock: Clock) -> Self {
        let state = MemoryState {
            clock,
            world: World::default(),
            #[cfg(feature = "entries")]
            cache: cache::CacheWorld::default(),
            clients: HashMap::new(),
            steps_to_sweep: SWEEP_EVERY,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            faults: Faults::default(),
        }
    }

    /// The faults that tests inject between clients and this store: see the module `testing`.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// A second handle to this store, with separate faults. A test can cut off its clients while others are
    /// connected.
    #[must_use]
    pub fn by_another_way(&self) -> Self {
        Self {
            state: self.state.clone(),
            faults: Faults::default(),
        }
    }

    /// Deletes everything, as `FLUSHALL` does in Redis.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.world = World::default();
        #[cfg(feature = "entries")]
        {
            state.cache = cache::CacheWorld::default();
        }
    }

    /// Changes the locks outside the rules, as a test does that simulates a data loss.
    #[cfg(test)]
    pub(crate) fn meddle<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.lock().world)
    }

    /// Opens a client's access, with these faults.
    pub(crate) fn attach(&self, attach: Attach) -> MemoryStore {
        let listener = self.faults.before(attach.listener.clone());
        self.lock().clients.insert(attach.client, listener);
        MemoryStore(Arc::new(Access {
            memory: self.clone(),
            attach,
            late: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A step cannot panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    /// Deletes expired locks and entries, once in so many steps.
    fn sweep_if_due(&mut self, now: Now) {
        self.steps_to_sweep -= 1;
        if self.steps_to_sweep > 0 {
            return;
        }
        self.world.sweep(now);
        let kept = self.world.names().count();
        #[cfg(feature = "entries")]
        let kept = {
            self.cache.sweep(now);
            kept + self.cache.len()
        };
        self.steps_to_sweep = kept.max(SWEEP_EVERY);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, Default)]
enum FaultMode {
    #[default]
    Open,
    /// Refused; nothing happened.
    Fails(StoreErrorKind),
    /// Neither executed nor answered.
    Hangs,
    /// Executed, but not answered.
    LosesReplies,
    /// Executed and answered after this delay.
    Takes(Duration),
}

/// Injects faults between the clients of one [`Memory`] and its locks.
///
/// Without faults, every request works. A fault applies to the requests that are sent from then on. Clones share their
/// faults.
///
/// While the store [fails](Faults::fail), [hangs](Faults::hang) or [loses replies](Faults::lose_replies), its clients
/// receive no notices either. The module `testing` has an example.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<FaultState>>);

#[derive(Default)]
struct FaultState {
    mode: FaultMode,
    /// The listeners of the clients with these faults.
    listeners: Vec<Weak<dyn Fn(Notice) + Send + Sync>>,
}

impl Faults {
    /// Each request is refused at once with an error of this kind. Nothing happens in the store.
    pub fn fail(&self, kind: StoreErrorKind) {
        self.lock().mode = FaultMode::Fails(kind);
    }

    /// Requests are neither executed nor answered, as if the store was stopped. Each ends at its time limit with
    /// [`StoreErrorKind::TimedOut`], and the client cannot know that nothing happened.
    pub fn hang(&self) {
        self.lock().mode = FaultMode::Hangs;
    }

    /// Requests are executed at once, but not answered. Each ends at its time limit with [`StoreErrorKind::TimedOut`].
    pub fn lose_replies(&self) {
        self.lock().mode = FaultMode::LosesReplies;
    }

    /// Each request is executed and answered after this delay. If the delay is longer than its time limit, the request
    /// ends with [`StoreErrorKind::TimedOut`] and is executed later all the same.
    pub fn slow(&self, delay: Duration) {
        self.lock().mode = FaultMode::Takes(delay);
    }

    /// Ends all faults. Clients react as to a new connection: waiters ask again, and failed renewals are retried.
    /// Requests that hang do so until their time limit.
    pub fn heal(&self) {
        let listeners: Vec<Listener> = {
            let mut state = self.lock();
            state.mode = FaultMode::Open;
            state
                .listeners
                .retain(|listener| listener.strong_count() > 0);
            state.listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            #[cfg(feature = "entries")]
            listener(Notice::Changed { keys: None });
            listener(Notice::Reconnected { node: 0 });
        }
    }

    fn mode(&self) -> FaultMode {
        self.lock().mode
    }

    /// Wraps a listener. It receives nothing while requests or replies are lost.
    fn before(&self, listener: Listener) -> Listener {
        let mut state = self.lock();
        state
            .listeners
            .retain(|listener| listener.strong_count() > 0);
        state.listeners.push(Arc::downgrade(&listener));
        drop(state);
        let faults = self.clone();
        Arc::new(move |notice| {
            if matches!(faults.mode(), FaultMode::Open | FaultMode::Takes(_)) {
                listener(notice);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.mode()).finish()
    }
}

/// One client's access to a [`Memory`] with its faults. A step that reaches the store is executed as usual.
pub(crate) struct MemoryStore(Arc<Access>);

struct Access {
    memory: Memory,
    attach: Attach,
    /// The delayed steps, in the order of sending, which is also the order of execution.
    late: Mutex<VecDeque<(LockName, Step, SharedDone)>>,
}

/// Taken by the store or the time limit, whichever comes first.
type SharedDone = Arc<Mutex<Option<Done>>>;

fn take(done: &SharedDone) -> Option<Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner).take()
}

const LABEL: &str = "memory:";

fn refused(kind: StoreErrorKind) -> StoreError {
    StoreError::new(LABEL, kind, "injected by a test")
}

fn timed_out(limit: Duration) -> StoreError {
    let detail = format!("waited {limit:.1?}");
    StoreError::new(LABEL, StoreErrorKind::TimedOut, detail).unknown()
}

impl Access {
    fn step(&self, name: &LockName, step: &Step) -> Reply {
        let mut state = self.memory.lock();
        let MemoryState {
            clock,
            world,
            clients,
            ..
        } = &mut *state;
        let now = clock.store_now();
        let outcome = world.apply(now, name, step, &Attached(clients));
        state.sweep_if_due(now);
        let key = || name.key().to_owned();
        let granted = outcome.wakes.into_iter().map(|wake| {
            let client = wake.owner.client();
            (client, Notice::Granted { key: key(), wake })
        });
        let wanted = outcome.wanted.into_iter().map(|owner| {
            let client = owner.client();
            (client, Notice::Wanted { key: key(), owner })
        });
        let first = outcome.first;
        let first = first.map(|owner| (owner.client(), Notice::First { owner }));
        let notices = granted.chain(wanted).chain(first);
        let notices = notices.filter_map(|(client, notice)| {
            let listener = state.clients.get(&client)?;
            Some((listener.clone(), notice))
        });
        let notices: Vec<_> = notices.collect();
        drop(state);
        // Outside the lock: a listener may take a step at once.
        for (listener, notice) in notices {
            listener(notice);
        }
        outcome.reply
    }

    #[cfg(feature = "entries")]
    fn entry_step(&self, key: &LockName, step: &cache::Step) -> Taken {
        let mut state = self.memory.lock();
        let now = state.clock.store_now();
        let outcome = state.cache.apply(now, key, step);
        state.sweep_if_due(now);
        let changes = matches!(
            step,
            cache::Step::Commit(_) | cache::Step::Invalidate { .. }
        );
        let told = state.clients.values().filter(|_| changes);
        let told: Vec<Listener> = told.cloned().collect();
        let heard = |id| state.clients.get(id).cloned();
        let woken: Vec<_> = outcome.wakes.iter().filter_map(heard).collect();
        drop(state);
        // Outside the lock: a listener may take a step at once.
        for listener in told {
            let keys = Some(vec![key.key().to_owned()]);
            listener(Notice::Changed { keys });
        }
        for listener in woken {
            let key = key.key().to_owned();
            listener(Notice::LoadEnded { key });
        }
        Taken {
            reply: outcome.reply,
            now_ms: now.millis(),
        }
    }

    /// After `limit`, reports a timeout unless there is an answer.
    fn time_out_after(self: &Arc<Self>, limit: Duration, done: SharedDone) {
        let access = self.clone();
        self.attach.tasks.spawn_aside(async move {
            access.attach.clock.sleep(limit).await;
            if let Some(done) = take(&done) {
                done.answer(Err(timed_out(limit)));
            }
        });
    }

    /// Executes the first delayed step.
    fn execute_next(&self) {
        let mut queue = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, step, done)) = queue.pop_front() else {
            return;
        };
        drop(queue);
        let reply = self.step(&name, &step);
        if let Some(done) = take(&done) {
            done.answer(Ok(reply));
        }
    }

    /// Simulates an out-of-band request. `work` is executed unless the request fails or hangs.
    async fn ask<T>(&self, work: impl FnOnce() -> T) -> Result<T, StoreError> {
        let Attach { clock, limit, .. } = &self.attach;
        match self.memory.faults.mode() {
            FaultMode::Open => Ok(work()),
            FaultMode::Fails(kind) => Err(refused(kind)),
            FaultMode::Takes(delay) if delay < *limit => {
                clock.sleep(delay).await;
                Ok(work())
            }
            FaultMode::Hangs => {
                clock.sleep(*limit).await;
                Err(timed_out(*limit))
            }
            FaultMode::LosesReplies | FaultMode::Takes(_) => {
                clock.sleep(*limit).await;
                drop(work());
                Err(timed_out(*limit))
            }
        }
    }
}

/// A waiter whose client has detached counts as gone.
struct Attached<'a>(&'a HashMap<ClientId, Listener>);

impl Presence for Attached<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        !self.0.contains_key(&waiter.owner.client())
    }
}

impl Store for MemoryStore {
    fn label(&self) -> &'static str {
        LABEL
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let access = &self.0;
        let mode = access.memory.faults.mode();
        let done = match mode {
            FaultMode::Open => return done.answer(Ok(access.step(name, &step))),
            FaultMode::Fails(kind) => return done.answer(Err(refused(kind))),
            _ => Arc::new(Mutex::new(Some(done))),
        };
        access.time_out_after(limit_of(&step, access.attach.limit), done.clone());
        match mode {
            FaultMode::LosesReplies => drop(access.step(name, &step)),
            FaultMode::Takes(delay) => {
                let mut late = access.late.lock().unwrap_or_else(PoisonError::into_inner);
                let name = name.clone();
                late.push_back((name, step, done));
                drop(late);
                let slow = access.clone();
                access.attach.tasks.spawn_aside(async move {
                    slow.attach.clock.sleep(delay).await;
                    slow.execute_next();
                });
            }
            _ => {}
        }
    }

    fn index(&self, request: IndexRequest) -> Answering<'_, Vec<String>> {
        let names = move || {
            let state = self.0.memory.lock();
            let is_busy = |name: &&LockName| {
                let lock = state.world.get(name);
                lock.is_some_and(|lock| !lock.holders.is_empty() || !lock.queue.is_empty())
            };
            let names = state.world.names().filter(is_busy);
            names.map(|name| name.key().to_owned()).collect()
        };
        let index = move || match request {
            IndexRequest::Read => names(),
            IndexRequest::Remember(_) | IndexRequest::Forget(_) => Vec::new(),
        };
        self.0.ask(index).boxed()
    }

    fn once<'a>(
        &'a self,
        name: &'a LockName,
        firing: &'a Firing,
        step: &'a once::Step,
    ) -> Option<Answering<'a, once::Answer>> {
        let work = move || {
            let mut state = self.0.memory.lock();
            let now = state.clock.store_now();
            let answer = state.world.apply_once(now, name, firing, step);
            state.sweep_if_due(now);
            answer
        };
        Some(self.0.ask(work).boxed())
    }

    #[cfg(feature = "entries")]
    fn entries(self: Arc<Self>) -> Option<Arc<dyn EntryStore>> {
        Some(self)
    }
}

#[cfg(feature = "entries")]
impl EntryStore for MemoryStore {
    fn look<'a>(&'a self, keys: &'a [LockName], _: bool) -> Answering<'a, Looked> {
        let look = || {
            let state = self.0.memory.lock();
            let now = state.clock.store_now();
            let value = |key| state.cache.look(now, key).cloned();
            Looked {
                values: keys.iter().map(value).collect(),
                now_ms: now.millis(),
            }
        };
        self.0.ask(look).boxed()
    }

    fn take<'a>(&'a self, key: &'a LockName, step: &'a cache::Step) -> Answering<'a, Taken> {
        self.0.ask(|| self.0.entry_step(key, step)).boxed()
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        self.memory.lock().clients.remove(&self.attach.client);
    }
}
