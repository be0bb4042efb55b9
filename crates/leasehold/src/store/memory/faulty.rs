//! What goes wrong on the way to a store in memory, because a test says so. Must never change what the store itself does with a
//! step that reaches it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step};

use super::{Memory, MemoryStore};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Done, Listener, Notice, Store};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, Default)]
enum Way {
    #[default]
    Open,
    /// Refused, nothing happened.
    Fails(StoreErrorKind),
    /// Neither carried out nor answered.
    Hangs,
    /// Carried out, not answered.
    LosesReplies,
    /// Carried out and answered this long after.
    Takes(Duration),
}

/// Goes wrong on purpose: the way from the clients of one [`Memory`] to what it holds. All of it works until told otherwise, and
/// what is told counts for the requests that are sent from then on. Clones are the same way.
///
/// While it [fails](Faults::fail), [hangs](Faults::hang) or [loses replies](Faults::lose_replies), those clients do not hear either that
/// it is their turn, or that others wait. The module `testing` has an example.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    way: Way,
    /// Of the clients that use it.
    ears: Vec<Weak<dyn Fn(Notice) + Send + Sync>>,
}

impl Faults {
    /// Each request is refused at once with an error of this kind, and nothing happens in the store.
    pub fn fail(&self, kind: StoreErrorKind) {
        self.lock().way = Way::Fails(kind);
    }

    /// Requests are neither carried out nor answered, as by a store that was stopped: each ends at its time limit with
    /// [`StoreErrorKind::TimedOut`], and its client cannot know that nothing happened.
    pub fn hang(&self) {
        self.lock().way = Way::Hangs;
    }

    /// Requests are carried out at once and not answered: each ends at its time limit with [`StoreErrorKind::TimedOut`].
    pub fn lose_replies(&self) {
        self.lock().way = Way::LosesReplies;
    }

    /// Each request is carried out, and answered, this long after it was sent. If that is longer than its time limit, it ends there
    /// with [`StoreErrorKind::TimedOut`], and is carried out all the same.
    pub fn slow(&self, delay: Duration) {
        self.lock().way = Way::Takes(delay);
    }

    /// All works again. Clients hear of it as of a new connection to a server: who waits asks again, and what could not be
    /// renewed is renewed. What hangs does so until its time limit.
    pub fn heal(&self) {
        let ears: Vec<Listener> = {
            let mut state = self.lock();
            state.way = Way::Open;
            state.ears.retain(|ear| ear.strong_count() > 0);
            state.ears.iter().filter_map(Weak::upgrade).collect()
        };
        for ear in ears {
            #[cfg(feature = "cache")]
            ear(Notice::Changed { keys: None });
            ear(Notice::Reconnected);
        }
    }

    fn way(&self) -> Way {
        self.lock().way
    }

    /// A listener that hears nothing while nothing gets through.
    fn before(&self, listener: Listener) -> Listener {
        let mut state = self.lock();
        state.ears.retain(|ear| ear.strong_count() > 0);
        state.ears.push(Arc::downgrade(&listener));
        drop(state);
        let faults = self.clone();
        Arc::new(move |notice| {
            if matches!(faults.way(), Way::Open | Way::Takes(_)) {
                listener(notice);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.way()).finish()
    }
}

/// A step under way to a store that takes its time.
struct Late {
    name: LockName,
    step: Step,
    /// Taken by whichever comes first: its time limit, or the store.
    done: Arc<Mutex<Option<Done>>>,
}

fn take(done: &Mutex<Option<Done>>) -> Option<Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// One client's way to a [`Memory`], whatever its faults.
pub(crate) struct Faulty(Arc<Inner>);

struct Inner {
    store: MemoryStore,
    faults: Faults,
    /// In the order they were sent, which is that in which they are carried out.
    late: Mutex<VecDeque<Late>>,
    tasks: Tasks,
    clock: Clock,
    limit: Duration,
}

impl Memory {
    /// A client's way to it: `limit` is for a request, or a third of its TTL if that is less.
    pub(crate) fn open(
        &self,
        attach: Attach,
        tasks: &Tasks,
        clock: Clock,
        limit: Duration,
    ) -> Faulty {
        let faults = self.faults.clone();
        let attach = Attach {
            listener: faults.before(attach.listener),
            ..attach
        };
        Faulty(Arc::new(Inner {
            store: self.attach(attach),
            faults,
            late: Mutex::default(),
            tasks: tasks.clone(),
            clock,
            limit,
        }))
    }
}

impl Inner {
    fn limit_of(&self, step: &Step) -> Duration {
        match step {
            Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => (ttl.get() / 3).min(self.limit),
            Step::Release { .. } | Step::Break { .. } | Step::Inspect => self.limit,
        }
    }

    fn refused(&self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(self.store.label(), kind, "so its faults say")
    }

    fn timed_out(&self, limit: Duration) -> StoreError {
        let detail = format!("waited {limit:.1?}");
        StoreError::new(self.store.label(), StoreErrorKind::TimedOut, detail).unknown()
    }

    /// Says after `limit` that there is no answer, unless there is one.
    fn gives_up(self: &Arc<Self>, limit: Duration, done: Arc<Mutex<Option<Done>>>) {
        let inner = self.clone();
        self.tasks.spawn_aside(async move {
            inner.clock.sleep(limit).await;
            if let Some(done) = take(&done) {
                done.answer(Err(inner.timed_out(limit)));
            }
        });
    }

    /// Carries out the first of those that are late.
    fn carries_out_next(&self) {
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

    /// Waits as a request does that is no step of a lock; an error if it has no answer. What `work` does is done unless it fails or
    /// hangs.
    async fn ask<T>(&self, work: impl FnOnce() -> T) -> Result<T, StoreError> {
        match self.faults.way() {
            Way::Open => Ok(work()),
            Way::Fails(kind) => Err(self.refused(kind)),
            Way::Takes(delay) if delay < self.limit => {
                self.clock.sleep(delay).await;
                Ok(work())
            }
            Way::Hangs => {
                self.clock.sleep(self.limit).await;
                Err(self.timed_out(self.limit))
            }
            Way::LosesReplies | Way::Takes(_) => {
                self.clock.sleep(self.limit).await;
                drop(work());
                Err(self.timed_out(self.limit))
            }
        }
    }
}

impl Store for Faulty {
    fn label(&self) -> &str {
        self.0.store.label()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let inner = &self.0;
        let limit = inner.limit_of(&step);
        match inner.faults.way() {
            Way::Open => inner.store.send(name, step, done),
            Way::Fails(kind) => done.answer(Err(inner.refused(kind))),
            Way::Hangs => inner.gives_up(limit, Arc::new(Mutex::new(Some(done)))),
            Way::LosesReplies => {
                drop(inner.store.step(name, &step));
                inner.gives_up(limit, Arc::new(Mutex::new(Some(done))));
            }
            Way::Takes(delay) => {
                let done = Arc::new(Mutex::new(Some(done)));
                inner.gives_up(limit, done.clone());
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
                    slow.carries_out_next();
                });
            }
        }
    }

    #[cfg(feature = "cache")]
    fn entries(&self) -> Option<&dyn crate::store::entries::Entries> {
        Some(self)
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            self.0.ask(|| ()).await?;
            self.0.store.index(remember).await
        }
        .boxed()
    }
}

#[cfg(feature = "cache")]
mod entries {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use leasehold_core::LockName;
    use leasehold_core::cache::Step;

    use super::Faulty;
    use crate::error::StoreError;
    use crate::store::entries::{Entries, Looked, Taken};

    impl Entries for Faulty {
        fn look<'a>(&'a self, keys: &'a [LockName]) -> BoxFuture<'a, Result<Looked, StoreError>> {
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
