//! Drives the state machine of a client: passes events to it and executes its effects. It decides nothing about a lock.
//!
//! # Invariants
//!
//! - **E3** No mutex of this module is held while a store, a caller or a watcher is called: each may call the engine.
//! - **E4** While a request is under way, or a release has to be repeated, the engine lives, and `Client::close` waits.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Invalid, LockName, Owner, Step, Ttl};
use tokio::sync::{oneshot, watch};
use tokio_util::task::task_tracker::TaskTrackerToken;

#[cfg(feature = "timestamp")]
use super::beside::Beside;
use super::effects::{Effect, ReleaseReply};
use super::hold::Hold;
use super::identity::Identity;
use super::keeper::{AT_ONCE, ExtendReply, tell};
use super::machine::{About, Event, Machine, Release};
use super::settle::Settle;
use super::timers::{Alarm, NextTimer, WakePlan};
use super::waiter::{AcquireOutcome, AcquireRequest, OnWaitCall};
use crate::clock::{Clock, Moment};
use crate::error::{Error, StoreError};
use crate::fold::Folding;
use crate::runtime::Tasks;
#[cfg(feature = "entries")]
use crate::store::entries::EntryListeners;
use crate::store::{Answer, Asker, Done, IndexRequest, Listener, Notice, Store, To};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{Observation, Telemetry};

/// How often a name with waiters is put into the index again.
const INDEX_AGAIN: Duration = Duration::from_secs(10);

/// How many names are remembered to be in the index.
const INDEXED: usize = 1024;

/// For how many effects a list is kept.
const MOST_ROOM: usize = 64;

/// The engine behind a client.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) identity: Arc<Identity>,
    /// See [`ClientBuilder::outage_timeout`](crate::ClientBuilder::outage_timeout).
    #[cfg(feature = "timestamp")]
    pub(crate) outage_timeout: Duration,
    pub(crate) telemetry: Telemetry,
    /// Holds that are not leases. They are notified of a replaced server.
    #[cfg(feature = "timestamp")]
    pub(crate) beside: Beside,
    /// The caches of the client. They are notified of changes of entries.
    #[cfg(feature = "entries")]
    pub(crate) entry_listeners: EntryListeners,
    state: Mutex<EngineState>,
    /// The empty list of an earlier event, so that the next one allocates none.
    room: sync::Mutex<Vec<Effect>>,
    alarm: Arc<Alarm>,
    next_id: AtomicU64,
    indexed: Arc<Indexed>,
    closing: watch::Sender<bool>,
}

struct EngineState {
    machine: Machine,
    watch: WakePlan,
    /// Set while releases wait to be repeated (E4). Requests under way have their own engine handle and token.
    alive: Option<(Arc<Engine>, TaskTrackerToken)>,
}

/// The parts of an engine that do not depend on the store.
pub(crate) struct EngineConfig {
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) identity: Identity,
    pub(crate) outage_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) telemetry: Telemetry,
}

/// Delivers the notices of a store to its engine.
#[derive(Clone, Default)]
pub(crate) struct NoticeSink(Arc<OnceLock<Weak<Engine>>>);

impl NoticeSink {
    /// The listener for the store. It holds the engine weakly, since the engine holds the store.
    pub(crate) fn listener(&self) -> Listener {
        let wire = self.0.clone();
        Arc::new(move |notice| {
            if let Some(engine) = wire.get().and_then(Weak::upgrade) {
                let token = engine.tasks.token();
                engine.hear(notice);
                // This may be the end of the engine, which then sends its last requests.
                drop(engine);
                drop(token);
            }
        })
    }
}

impl Engine {
    /// The engine of a store that delivers its notices by `wire`, and the future of its timers, which must run until the engine is dropped.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        plan: EngineConfig,
        wire: &NoticeSink,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let identity = Arc::new(plan.identity);
        let about = About {
            store: store.label().into(),
            outage_timeout: plan.outage_timeout,
            request_timeout: plan.request_timeout,
        };
        let state = EngineState {
            machine: Machine::new(about, identity.clone(), plan.clock.clone()),
            watch: WakePlan::default(),
            alive: None,
        };
        let engine = Arc::new(Self {
            store,
            clock: plan.clock,
            tasks: plan.tasks,
            identity,
            #[cfg(feature = "timestamp")]
            outage_timeout: plan.outage_timeout,
            telemetry: plan.telemetry,
            #[cfg(feature = "timestamp")]
            beside: Beside::default(),
            #[cfg(feature = "entries")]
            entry_listeners: EntryListeners::default(),
            state: Mutex::new(state),
            room: sync::Mutex::default(),
            alarm: Arc::default(),
            next_id: AtomicU64::new(0),
            indexed: Arc::default(),
            closing: watch::Sender::new(false),
        });
        // Set once: a wire belongs to one engine.
        drop(wire.0.set(Arc::downgrade(&engine)));
        let (alarm, clock, tasks, weak) = (
            engine.alarm.clone(),
            engine.clock.clone(),
            engine.tasks.clone(),
            Arc::downgrade(&engine),
        );
        let run = async move {
            // When the engine is not used any more, only requests under way are awaited.
            let look = || {
                // Dropped after the engine, which may send its last requests.
                let _token = tasks.token();
                weak.upgrade().and_then(|engine| engine.pass())
            };
            alarm.run(&clock, look).await;
            // A majority of a quorum answers before its last node, which may still keep a vote.
            tasks.finished().await;
        };
        (engine, run)
    }

    /// Passes an event to the machine and executes the effects.
    fn handle(self: &Arc<Self>, event: Event) {
        // The requests that follow are sent a moment later, so `Client::close` waits for this token meanwhile. A new request needs none.
        let waits = !matches!(event, Event::Asked(..));
        let _under_way = waits.then(|| self.tasks.token());
        self.drive(|machine, now| machine.handle(now, event));
    }

    /// Lets `pass` pass events to the machine, and executes the effects of all.
    fn drive(self: &Arc<Self>, pass: impl FnOnce(&mut Machine, Moment)) {
        let room = self.room.try_lock();
        let room = room.map(|mut room| mem::take(&mut *room));
        let room = room.unwrap_or_default();
        let (mut effects, now, rings, ended) = {
            let mut state = self.state();
            let EngineState {
                machine,
                watch,
                alive,
            } = &mut *state;
            machine.effects.make_room(room);
            // The steps that follow count their time limits from here, so that they need no reading of their own.
            let now = self.clock.now();
            pass(machine, now);
            let ended = if machine.is_waiting() {
                alive.get_or_insert_with(|| (self.clone(), self.tasks.token()));
                None
            } else {
                alive.take()
            };
            let added = machine.effects.take_added();
            let rings = added.is_some_and(|next| watch.add(next));
            (machine.effects.take(), now, rings, ended)
        };
        if rings {
            self.alarm.ring();
        }
        for effect in effects.drain(..) {
            self.carry_out(effect, now);
        }
        if effects.capacity() <= MOST_ROOM
            && let Ok(mut room) = self.room.try_lock()
        {
            *room = effects;
        }
        drop(ended);
    }

    fn carry_out(self: &Arc<Self>, effect: Effect, now: Moment) {
        match effect {
            Effect::Send { name, step, to } => {
                let done = Done::to(self.clone(), to, self.tasks.token(), now);
                self.store.send(&name, step, done);
            }
            Effect::Grant(waiter, hold) => {
                // A lease that cannot be delivered is released (W2).
                if let Err(hold) = waiter.served(hold) {
                    self.release(&hold, None, None);
                }
            }
            Effect::Busy(waiter) => waiter.busy(),
            Effect::Refuse(waiter, error) => waiter.fail(&error),
            Effect::Gone(waiter) => drop(waiter),
            Effect::Watch(name, id, told) => self.watch(name, id, told),
            Effect::Index(name) => self.index(&name),
            Effect::Extended(callers, verdict) => tell(callers, &verdict),
            Effect::Released(pending_release, result) => {
                pending_release.tell(&self.telemetry, result);
            }
            Effect::Ended(hold, ended) => {
                hold.wake_watchers();
                if let Some(ended) = &ended {
                    self.telemetry.observe(Observation::Ended(ended));
                }
            }
            Effect::Forgotten(callers) => drop(callers),
            Effect::Renewed(hold, took, said) => self.telemetry.observe(Observation::Renewed {
                lock: hold.name.as_str(),
                fence: hold.fenced(),
                took,
                said: &said,
                span: &|| hold.span(),
                left: &|| hold.valid_for(),
            }),
            Effect::InLine(name, busy) => self.telemetry.observe(Observation::InLine {
                lock: name.as_str(),
                busy: &busy,
            }),
        }
    }

    /// Does `work` on the client's thread.
    pub(crate) async fn run<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.is_closed() {
            return Err(StoreError::closed().into());
        }
        let (mut reply, answer) = oneshot::channel();
        let work = work(self.clone());
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = work => outcome,
                // The caller has gone, and no lock depends on the outcome.
                () = reply.closed() => return,
            };
            drop(reply.send(outcome));
        });
        Ok(answer.await.map_err(|_| StoreError::closed())??)
    }

    /// Sends a step to the store. `done` is called with the answer, after telemetry has counted a failure.
    pub(crate) fn request(
        &self,
        name: &LockName,
        step: Step,
        done: impl FnOnce(Answer) + Send + 'static,
    ) {
        let done = self.counted(done);
        self.store.send(name, step, done);
    }

    /// Calls `done` with the answer to a step, after telemetry has counted a failure.
    pub(crate) fn counted(&self, done: impl FnOnce(Answer) + Send + 'static) -> Done {
        let telemetry = self.telemetry.clone();
        Done::new(move |answer| {
            let answer = telemetry.answered(answer);
            // `done` may end the client, and its subscriber with it.
            drop(telemetry);
            done(answer);
        })
    }

    fn watch(self: &Arc<Self>, name: LockName, id: u64, told: OnWaitCall) {
        if told.call().is_err() {
            self.handle(Event::Deaf(name, id));
        }
    }

    /// Handles the timers that are due. Returns when the next one is due.
    fn pass(self: &Arc<Self>) -> Option<NextTimer> {
        loop {
            {
                let mut state = self.state();
                let (first, now) = (state.machine.effects.next(), self.clock.now());
                if first.is_none_or(|first| first.at > now) {
                    return state.watch.sleep(first, now);
                }
            }
            self.handle(Event::Passed);
        }
    }

    /// Begins an acquisition whose result goes to `answer`. Returns its number.
    pub(super) fn ask(
        self: &Arc<Self>,
        request: AcquireRequest,
        answer: oneshot::Sender<AcquireOutcome>,
    ) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.handle(Event::Asked(id, request, answer));
        id
    }

    /// The caller of this acquisition has gone.
    pub(super) fn leave(self: &Arc<Self>, name: &LockName, id: u64) {
        self.handle(Event::Left(name.clone(), id));
    }

    /// Renews a lease now, for `ttl`. A dropped `caller` means that the lease is over; its hold knows why.
    pub(super) fn extend(self: &Arc<Self>, owner: &Owner, ttl: Ttl, caller: ExtendReply) {
        self.handle(Event::Extended(owner.clone(), ttl, caller));
    }

    /// Ends a lease, once.
    pub(super) fn release(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        verdict: Option<ReleaseReply>,
    ) {
        // Asked now: during a reconnect, the store sends no notices.
        let tells_wanted = || self.store.tells_wanted();
        if let Some(release) = Release::once(hold, keep, verdict, tells_wanted) {
            self.handle(Event::Released(release));
        }
    }

    /// Undoes requests that may have reached the store.
    pub(super) fn settle(self: &Arc<Self>, work: Settle) {
        self.handle(Event::Undone(work));
    }

    /// Takes a notice of the store.
    pub(super) fn hear(self: &Arc<Self>, notice: Notice) {
        #[cfg(feature = "entries")]
        if self.entry_listeners.hear(&notice) {
            return;
        }
        match &notice {
            Notice::Cut { node, why } => {
                let node = self.node(*node);
                self.telemetry.observe(Observation::Cut {
                    store: self.store.label(),
                    node: node.as_deref(),
                    why,
                });
            }
            Notice::NodeFailed { node, kind } => {
                if let Some(node) = self.node(*node) {
                    let failed = Observation::NodeFailed(&node, *kind);
                    self.telemetry.observe(failed);
                }
                return;
            }
            #[cfg(feature = "timestamp")]
            Notice::Replaced(how, _) => self.beside.replaced(*how, self.clock.now()),
            Notice::Reconnected { .. } => self.identity.renew(),
            _ => {}
        }
        let restored = match notice {
            Notice::Reconnected { node } => Some(node),
            _ => None,
        };
        self.handle(Event::Noticed(notice));
        if let Some(node) = restored {
            let node = self.node(node);
            self.telemetry.observe(Observation::Restored {
                store: self.store.label(),
                node: node.as_deref(),
            });
        }
    }

    /// The label of a node, if the store has nodes.
    fn node(&self, node: usize) -> Option<String> {
        let label = self.store.nodes().into_iter().nth(node);
        label.filter(|label| !label.is_empty())
    }

    /// Puts a name into the index, unless that was just done. Best effort: the index holds hints.
    fn index(&self, name: &LockName) {
        if !self.indexed.add(name, self.clock.now()) {
            return;
        }
        let (store, telemetry, indexed) = (
            self.store.clone(),
            self.telemetry.clone(),
            self.indexed.clone(),
        );
        self.tasks.spawn(async move {
            while let Some(name) = indexed.next() {
                if telemetry
                    .answered(store.index(IndexRequest::Remember(name)).await)
                    .is_err()
                {
                    // Else each of many names would wait for its own time limit.
                    indexed.lock().waiting.clear();
                }
            }
        });
    }

    /// Checks a TTL, or the time for which a released lock is kept.
    pub(crate) fn ttl(&self, ttl: Duration) -> Result<Ttl, Invalid> {
        let (longest, ttl) = (self.store.longest_ttl(), Ttl::new(ttl)?);
        if ttl.get() > longest {
            let why = format!(
                "is longer than the longest TTL of {}, which is {longest:?} (max_ttl in its URL)",
                self.store.label()
            );
            return Err(Invalid::new("TTL", &format!("{:?}", ttl.get()), why));
        }
        Ok(ttl)
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until the client is being closed.
    #[cfg(any(feature = "entries", feature = "timestamp"))]
    pub(crate) async fn closing(&self) -> StoreError {
        let mut closing = self.closing.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(closing.wait_for(|closing| *closing).await);
        StoreError::closed()
    }

    pub(crate) async fn close(self: &Arc<Self>) {
        self.closing.send_replace(true);
        self.handle(Event::Closed);
        self.store.closing();
        self.tasks.finished().await;
    }

    fn state(&self) -> MutexGuard<'_, EngineState> {
        // A panic in the machine is a bug. After it, the timers repair what they can.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asker for Engine {
    fn answered(self: Arc<Self>, answers: Vec<(To, Answer)>) {
        for error in answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().err())
        {
            self.telemetry.observe(Observation::StoreFailed(error.kind));
            // The error of a quorum names the quorum, and that of a cluster its node.
            if self.store.nodes().contains(&error.store) {
                let failed = Observation::NodeFailed(&error.store, error.kind);
                self.telemetry.observe(failed);
            }
        }
        self.drive(|machine, now| {
            for (to, answer) in answers {
                machine.handle(now, Event::Answered(to, answer));
            }
        });
    }
}

impl Drop for Engine {
    /// Releases lingering locks, which no task can use any more. The client's thread ends when the store has answered.
    fn drop(&mut self) {
        let last = Arc::new(CloseOnDrop(self.alarm.clone()));
        let leases = self.state().machine.leases();
        for (name, owner) in leases {
            let (store, last, token) = (self.store.clone(), last.clone(), self.tasks.token());
            let step = Step::Release {
                owner,
                keep: None,
                fence: None,
            };
            self.request(&name, step, move |_| drop((store, last, token)));
        }
    }
}

/// The names for the index. Many leases are renewed for the first time together, and then few tasks have to take little memory.
#[derive(Default)]
struct Indexed(Mutex<IndexedNames>);

#[derive(Default)]
struct IndexedNames {
    /// The names that were put there recently. If one is forgotten, it is only put there again.
    recent: HashMap<LockName, Moment, Folding>,
    waiting: VecDeque<LockName>,
    /// How many tasks put the waiting names there.
    tasks: usize,
}

impl Indexed {
    /// Adds this name if it has to be put into the index at `now`. Returns whether one more task has to do that.
    fn add(&self, name: &LockName, now: Moment) -> bool {
        let mut names = self.lock();
        let is_known = |at: &Moment| now.since(*at) < INDEX_AGAIN;
        if names.recent.get(name).is_some_and(is_known) {
            return false;
        }
        if names.recent.len() >= INDEXED {
            names.recent.clear();
        }
        names.recent.insert(name.clone(), now);
        names.waiting.push_back(name.clone());
        let more = names.tasks < AT_ONCE;
        names.tasks += usize::from(more);
        more
    }

    /// The next name for a task, which ends without one.
    fn next(&self) -> Option<LockName> {
        let mut names = self.lock();
        let next = names.waiting.pop_front();
        if next.is_none() {
            names.tasks -= 1;
            names.waiting = VecDeque::new();
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, IndexedNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine, as the objects of a program have it: clients, mutexes, leases and futures. The program may end as soon as the last of them is
/// dropped, so that drop waits until all that is under way has ended, for a bounded time.
#[derive(Clone)]
pub(crate) struct EngineHandle(Arc<InUse>);

struct InUse {
    engine: Arc<Engine>,
    /// Dropped after the engine, which has then sent its last requests.
    _rest: Rest,
}

impl EngineHandle {
    pub(crate) fn new(engine: Arc<Engine>, limit: Duration) -> Self {
        let tasks = engine.tasks.clone();
        Self(Arc::new(InUse {
            engine,
            _rest: Rest { tasks, limit },
        }))
    }

    /// Whether both are of one client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.engine, &other.0.engine)
    }
}

impl Deref for EngineHandle {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Self::Target {
        &self.0.engine
    }
}

struct Rest {
    tasks: Tasks,
    limit: Duration,
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.tasks.wait_until_finished(self.limit);
    }
}

struct CloseOnDrop(Arc<Alarm>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
