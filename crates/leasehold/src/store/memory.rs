//! Locks in this process only: for tests, examples and programs of one process. The rules are those of core's `World`.
//!
//! Tests inject faults between clients and their store. A fault does not affect requests that were sent before.

pub(crate) mod faulty;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use leasehold_core::{ClientId, LockName, Now, Presence, Reply, Step, Waiter, World};

use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Done, Listener, Notice, Store};

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
    cache: leasehold_core::cache::CacheWorld,
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
            cache: leasehold_core::cache::CacheWorld::default(),
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
            state.cache = leasehold_core::cache::CacheWorld::default();
        }
    }

    /// Changes the locks outside the rules, as a test does that simulates a data loss.
    #[cfg(test)]
    pub(crate) fn meddle<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.lock().world)
    }

    pub(crate) fn attach(&self, attach: Attach) -> MemoryStore {
        self.lock().clients.insert(attach.client, attach.listener);
        MemoryStore {
            memory: self.clone(),
            client: attach.client,
        }
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
            listener(Notice::Reconnected);
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

/// One client's access to a [`Memory`].
pub(crate) struct MemoryStore {
    memory: Memory,
    client: ClientId,
}

impl MemoryStore {
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
        let clients = &state.clients;
        let key = || name.key().to_owned();
        let mut notices = Vec::new();
        for wake in outcome.wakes {
            if let Some(listener) = clients.get(&wake.owner.client()) {
                notices.push((listener.clone(), Notice::Granted { key: key(), wake }));
            }
        }
        if let Some(owner) = outcome.wanted
            && let Some(listener) = clients.get(&owner.client())
        {
            notices.push((listener.clone(), Notice::Wanted { key: key(), owner }));
        }
        if let Some(owner) = outcome.first
            && let Some(listener) = clients.get(&owner.client())
        {
            notices.push((listener.clone(), Notice::First { owner }));
        }
        drop(state);
        // Outside the lock: a listener may take a step at once.
        for (listener, notice) in notices {
            listener(notice);
        }
        outcome.reply
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
        "memory:"
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        done.answer(Ok(self.step(name, &step)));
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        if remember.is_some() {
            return ready(Ok(Vec::new())).boxed();
        }
        let state = self.memory.lock();
        let busy = |name: &&LockName| {
            state
                .world
                .get(name)
                .is_some_and(|lock| !lock.holders.is_empty() || !lock.queue.is_empty())
        };
        ready(Ok(state
            .world
            .names()
            .filter(busy)
            .map(|name| name.key().to_owned())
            .collect()))
        .boxed()
    }
}

#[cfg(feature = "entries")]
mod entries {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, ready};
    use leasehold_core::LockName;
    use leasehold_core::cache::Step;

    use super::MemoryStore;
    use crate::error::StoreError;
    use crate::store::contract::Notice;
    use crate::store::entries::{EntryStore, Looked, Taken};

    impl MemoryStore {
        pub(super) fn cache_look(&self, keys: &[LockName]) -> Looked {
            let state = self.memory.lock();
            let now = state.clock.store_now();
            let values = keys
                .iter()
                .map(|key| state.cache.look(now, key).cloned())
                .collect();
            let now_ms = now.millis();
            Looked { values, now_ms }
        }

        pub(super) fn cache_step(&self, key: &LockName, step: &Step) -> Taken {
            let mut state = self.memory.lock();
            let now = state.clock.store_now();
            let outcome = state.cache.apply(now, key, step);
            state.sweep_if_due(now);
            let changes = matches!(step, Step::Commit(_) | Step::Invalidate { .. });
            let all: Vec<_> = if changes {
                state.clients.values().cloned().collect()
            } else {
                Vec::new()
            };
            let heard = |id| state.clients.get(id).cloned();
            let listeners: Vec<_> = outcome.wakes.iter().filter_map(heard).collect();
            drop(state);
            // Outside the lock: a listener may take a step at once.
            for listener in all {
                let keys = Some(vec![key.key().to_owned()]);
                listener(Notice::Changed { keys });
            }
            for listener in listeners {
                let key = key.key().to_owned();
                listener(Notice::LoadEnded { key });
            }
            Taken {
                reply: outcome.reply,
                now_ms: now.millis(),
            }
        }
    }

    impl EntryStore for MemoryStore {
        fn look<'a>(
            &'a self,
            keys: &'a [LockName],
            _: bool,
        ) -> BoxFuture<'a, Result<Looked, StoreError>> {
            ready(Ok(self.cache_look(keys))).boxed()
        }

        fn take<'a>(
            &'a self,
            key: &'a LockName,
            step: &'a Step,
        ) -> BoxFuture<'a, Result<Taken, StoreError>> {
            ready(Ok(self.cache_step(key, step))).boxed()
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.memory.lock().clients.remove(&self.client);
    }
}
