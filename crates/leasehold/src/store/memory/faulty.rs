//! One client's access to a store in memory, with the faults that a test injects. A step that reaches the store is
//! executed as usual.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step};

use super::{FaultMode, Faults, Memory, MemoryStore};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Done, Store};

/// A delayed step.
struct Late {
    name: LockName,
    step: Step,
    /// Taken by the store or the time limit, whichever comes first.
    done: Arc<Mutex<Option<Done>>>,
}

fn take(done: &Mutex<Option<Done>>) -> Option<Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// One client's access to a [`Memory`] with its faults.
pub(crate) struct FaultyStore(Arc<FaultyInner>);

struct FaultyInner {
    store: MemoryStore,
    faults: Faults,
    /// In the order of sending, which is also the order of execution.
    late: Mutex<VecDeque<Late>>,
    tasks: Tasks,
    clock: Clock,
    limit: Duration,
}

impl FaultyStore {
    /// Opens a client's access. The time limit of a request is `limit`, or a third of its TTL if that is less.
    pub(crate) fn open(
        memory: &Memory,
        attach: Attach,
        tasks: &Tasks,
        clock: Clock,
        limit: Duration,
    ) -> Self {
        let faults = memory.faults();
        let attach = Attach {
            listener: faults.before(attach.listener),
            ..attach
        };
        Self(Arc::new(FaultyInner {
            store: memory.attach(attach),
            faults,
            late: Mutex::default(),
            tasks: tasks.clone(),
            clock,
            limit,
        }))
    }
}

impl FaultyInner {
    fn limit_of(&self, step: &Step) -> Duration {
        match step {
            Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => (ttl.get() / 3).min(self.limit),
            Step::Propose(proposal) => (proposal.ttl.get() / 3).min(self.limit),
            Step::Release { .. } | Step::GiveBack { .. } | Step::Break { .. } | Step::Inspect => {
                self.limit
            }
        }
    }

    fn refused(&self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(self.store.label(), kind, "injected by a test")
    }

    fn timed_out(&self, limit: Duration) -> StoreError {
        let detail = format!("waited {limit:.1?}");
        StoreError::new(self.store.label(), StoreErrorKind::TimedOut, detail).unknown()
    }

    /// After `limit`, reports a timeout unless there is an answer.
    fn time_out_after(self: &Arc<Self>, limit: Duration, done: Arc<Mutex<Option<Done>>>) {
        let inner = self.clone();
        self.tasks.spawn_aside(async move {
            inner.clock.sleep(limit).await;
            if let Some(done) = take(&done) {
                done.answer(Err(inner.timed_out(limit)));
            }
        });
    }

    /// Executes the first delayed step.
    fn execute_next(&self) {
        let mut queue = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Late { name, step, done }) = queue.pop_front() else {
            return;
        };
        drop(queue);
        let reply = self.store.step(&name, &step);
        if let Some(done) = take(&done) {
            done.answer(Ok(reply));
        }
    }

    /// Simulates an out-of-band request. `work` is executed unless the request fails or hangs.
    async fn ask<T>(&self, work: impl FnOnce() -> T) -> Result<T, StoreError> {
        match self.faults.mode() {
            FaultMode::Open => Ok(work()),
            FaultMode::Fails(kind) => Err(self.refused(kind)),
            FaultMode::Takes(delay) if delay < self.limit => {
                self.clock.sleep(delay).await;
                Ok(work())
            }
            FaultMode::Hangs => {
                self.clock.sleep(self.limit).await;
                Err(self.timed_out(self.limit))
            }
            FaultMode::LosesReplies | FaultMode::Takes(_) => {
                self.clock.sleep(self.limit).await;
                drop(work());
                Err(self.timed_out(self.limit))
            }
        }
    }
}

impl Store for FaultyStore {
    fn label(&self) -> &str {
        self.0.store.label()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let inner = &self.0;
        let limit = inner.limit_of(&step);
        match inner.faults.mode() {
            FaultMode::Open => inner.store.send(name, step, done),
            FaultMode::Fails(kind) => done.answer(Err(inner.refused(kind))),
            FaultMode::Hangs => inner.time_out_after(limit, Arc::new(Mutex::new(Some(done)))),
            FaultMode::LosesReplies => {
                drop(inner.store.step(name, &step));
                inner.time_out_after(limit, Arc::new(Mutex::new(Some(done))));
            }
            FaultMode::Takes(delay) => {
                let done = Arc::new(Mutex::new(Some(done)));
                inner.time_out_after(limit, done.clone());
                let mut late = inner.late.lock().unwrap_or_else(PoisonError::into_inner);
                late.push_back(Late {
                    name: name.clone(),
                    step,
                    done,
                });
                drop(late);
                let slow = inner.clone();
                inner.tasks.spawn_aside(async move {
                    slow.clock.sleep(delay).await;
                    slow.execute_next();
                });
            }
        }
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            self.0.ask(|| ()).await?;
            self.0.store.index(remember).await
        }
        .boxed()
    }
}

#[cfg(feature = "entries")]
mod entries {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use leasehold_core::LockName;
    use leasehold_core::cache::Step;

    use super::FaultyStore;
    use crate::error::StoreError;
    use crate::store::entries::{EntryStore, Looked, Taken};

    impl EntryStore for FaultyStore {
        fn look<'a>(
            &'a self,
            keys: &'a [LockName],
            _: bool,
        ) -> BoxFuture<'a, Result<Looked, StoreError>> {
            self.0.ask(|| self.0.store.cache_look(keys)).boxed()
        }

        fn take<'a>(
            &'a self,
            key: &'a LockName,
            step: &'a Step,
        ) -> BoxFuture<'a, Result<Taken, StoreError>> {
            self.0.ask(|| self.0.store.cache_step(key, step)).boxed()
        }
    }
}
