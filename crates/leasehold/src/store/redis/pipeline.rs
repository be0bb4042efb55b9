//! The way of requests to one server and of their answers back, without I/O.
//!
//! - [`Queue`] is shared by the callers and the connection. Steps wait there until a connection takes them, and their callers until
//!   they are answered.
//! - [`Flight`] belongs to one connection: the requests in flight, their order, and what has to be sent again. A server executes requests
//!   in the order in which it receives them. But it may refuse a batch as a whole: it does not know the script by its hash, or the user
//!   has no permission for one of the keys. Such a batch is sent again in another form, while later batches are already in flight.
//!
//! # Invariants
//!
//! - **SQ1** A step is answered once: by the server, by its time limit, or when its connection is given up. A step that
//!   may have taken effect is never reported as refused.
//! - **SQ2** A step is taken out once, so that two connections never carry it.
//! - **SQ3** No lock is held while an answer is delivered: the caller may send the next step at once.
//! - **F1** After a refusal no new batch is sent until all refused batches have been sent again: one at a time, in
//!   their order, each after the reply to the previous one.
//! - **F2** If a batch after a refused one found a lock busy, it is sent again too, because the refused batch may have
//!   been the one that frees the lock. Every step is safe to repeat.
//! - **F3** If replicas have to confirm, a grant or a renewal is delivered only after a `WAIT` that was sent after it. Meanwhile nothing
//!   else is sent, since the server would not read it.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use leasehold_core::{LockName, Reply, Step, slot};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::address::Replicas;
use super::fault::{Redirect, is_denied, is_forbidden};
use super::protocol::{
    Contended, Detour, Kind, MOST, POLL_ONLY, Unconfirmed, confirmed, decode, native_reply,
    no_known_form, script_of, slot_channel, wait_for, write, write_native,
};
use super::resp::Command;
use super::scripts::{Counters, Form, Scripts};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::{Done, limit_of};
use crate::sync::{AtomicBool, Mutex, MutexGuard};

/// Up to this many steps are sent at once, of all kinds. More steps are sent kind by kind, so that the server
/// works on one batch while the client works on the answers to another.
const FEW: usize = 16;

/// Batches in flight at once. The next batches fill up meanwhile.
const BATCHES: usize = 4;

/// If replies come faster than this, only one batch is in flight: the next one fills up meanwhile.
const AT_ONCE: Duration = Duration::from_micros(100);

/// The room for bytes to be sent that a connection keeps.
const USUAL_OUT: usize = 64 * 1024;

/// Comes before a command for a slot that the node does not own yet.
pub(super) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// The shortest pause between two sweeps.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

/// Steps to be sent together, all of one kind.
pub(super) struct Batch {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) steps: Vec<(LockName, Step)>,
    /// Commands of the server may do its steps, in the place of a script.
    pub(super) is_native: bool,
    pub(super) detour: Detour,
}

impl Batch {
    pub(super) fn new(
        id: u64,
        kind: Kind,
        steps: Vec<(LockName, Step)>,
        contended: &Contended,
    ) -> Self {
        let is_native = |(name, step): &(LockName, Step)| contended.is_native(name, step);
        Self {
            id,
            kind,
            is_native: kind == Kind::Settle && steps.iter().all(is_native),
            steps,
            detour: Detour::default(),
        }
    }
}

/// The next action of a connection.
pub(super) enum Action {
    /// Send these batches: at most one of each kind.
    Send(Vec<Batch>),
    /// A request timed out: check whether the server still answers.
    CheckLiveness,
    /// The server is a replica now, or the sentinels name another one: leave it and connect again.
    Reconnect,
}

/// The state of the connection.
#[derive(Debug, Clone, Default)]
pub(super) enum ConnectionState {
    #[default]
    Connecting,
    /// It works. `listening` says whether it is subscribed to wakes, `by_slot` whether the steps of a batch must share a slot.
    Up {
        listening: bool,
        by_slot: bool,
    },
    Down(StoreError),
}

/// Why a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisconnectReason {
    Lost,
    Silent,
}

impl DisconnectReason {
    /// The error for the callers of its steps.
    pub(super) const fn describe(self) -> (StoreErrorKind, &'static str) {
        match self {
            Self::Lost => (StoreErrorKind::Unreachable, "the connection was lost"),
            Self::Silent => (StoreErrorKind::TimedOut, "the server stopped answering"),
        }
    }
}

/// The steps on their way to one server.
pub(super) struct Queue {
    shown: String,
    contents: Mutex<Contents>,
    closed: AtomicBool,
    /// A copy of `ConnectionState::Up { listening }`, readable without the lock.
    listening: AtomicBool,
    connection: AtomicWaker,
    /// Wakes the sweeper.
    pub(super) sweeper_wake: Notify,
}

/// The queued steps, the callers of the steps in flight, and the state of the connection. No step is in both places.
#[derive(Default)]
struct Contents {
    state: ConnectionState,
    /// Steps to be sent: one queue for each kind, since a batch has steps of one kind only.
    queues: [VecDeque<QueuedStep>; Kind::ALL.len()],
    next_sequence: u64,
    contended: Contended,
    in_flight: Vec<PendingBatch>,
    next_batch_id: u64,
    /// A request was not answered in time.
    silent: bool,
    /// The server is a replica now, or the sentinels name another one.
    demoted: bool,
    /// When the sweeper runs next. No time limit passes before then.
    sweep_at: Option<Moment>,
}

/// A step and its caller.
struct QueuedStep {
    /// The order of arrival, over all kinds.
    sequence: u64,
    step: Step,
    waiting: PendingReply,
    detour: Detour,
}

/// The callers of a batch in flight.
struct PendingBatch {
    id: u64,
    kind: Kind,
    waiting: Vec<PendingReply>,
}

/// The caller that waits for the answer to a step.
pub(super) struct PendingReply {
    /// The lock of the step.
    pub(super) name: LockName,
    /// Taken when the step is answered (SQ1).
    pub(super) done: Option<Done>,
    until: Moment,
    limit: Duration,
    /// How often a node of a cluster has sent the step elsewhere.
    pub(super) detours: u32,
}

impl PendingReply {
    /// Answers the step, unless its time limit has passed.
    pub(super) fn fail(self, error: StoreError) {
        if let Some(done) = self.done {
            done.answer(Err(error));
        }
    }

    /// True if there is nobody to answer any more.
    pub(super) const fn is_answered(&self) -> bool {
        self.done.is_none()
    }

    /// How long there is still time to answer.
    pub(super) const fn left(&self, now: Moment) -> Duration {
        self.until.since(now)
    }
}

impl Queue {
    /// `shown` names the server in errors.
    pub(super) fn new(shown: String) -> Self {
        Self {
            shown,
            contents: Mutex::default(),
            closed: AtomicBool::new(false),
            listening: AtomicBool::new(false),
            connection: AtomicWaker::new(),
            sweeper_wake: Notify::new(),
        }
    }

    /// Queues steps, before the connection takes one of them. Fails them at once while the server is known to be down.
    pub(super) fn push(
        &self,
        steps: impl IntoIterator<Item = (LockName, Step, Done)>,
        now: Moment,
        limit: Duration,
    ) {
        let steps = steps.into_iter().map(|(name, step, done)| {
            let waiting = PendingReply {
                name,
                done: Some(done),
                until: now.after(limit),
                limit,
                detours: 0,
            };
            (step, waiting, Detour::default())
        });
        self.push_on(steps);
    }

    /// Queues steps, also those that another server did not execute.
    pub(super) fn push_on(&self, steps: impl Iterator<Item = (Step, PendingReply, Detour)>) {
        let (mut recalled, mut refused) = (Vec::new(), Vec::new());
        {
            let mut contents = self.lock();
            for (step, waiting, detour) in steps {
                contents.recall(&step, &mut recalled);
                if let ConnectionState::Down(error) = &contents.state {
                    refused.push((error.clone(), waiting));
                    continue;
                }
                let until = waiting.until;
                let sequence = contents.next_sequence;
                let kind = if detour.alone {
                    Kind::Settle
                } else {
                    contents.kind(&waiting.name, &step)
                };
                contents.next_sequence += 1;
                contents.queues[kind as usize].push_back(QueuedStep {
                    sequence,
                    step,
                    waiting,
                    detour,
                });
                if contents.sweep_at.is_none_or(|sweep_at| until < sweep_at) {
                    contents.sweep_at = Some(until);
                    self.sweeper_wake.notify_one();
                }
            }
        }
        if refused.is_empty() {
            self.connection.wake();
        }
        for (error, waiting) in refused {
            waiting.fail(error);
        }
        for done in recalled {
            let why = "it was taken back before it was sent";
            let error = StoreError::new(&self.shown, StoreErrorKind::Unavailable, why);
            done.answer(Err(error));
        }
    }

    /// The connection is woken by this waker whenever there may be another action, or the queue is closed.
    pub(super) fn wakes(&self, connection: &Waker) {
        self.connection.register(connection);
    }

    /// The next action of the connection. Batches are sent only if there is room for one.
    pub(super) fn take(&self, has_room: bool) -> Option<Action> {
        let mut contents = self.lock();
        if std::mem::take(&mut contents.demoted) {
            return Some(Action::Reconnect);
        }
        if std::mem::take(&mut contents.silent) {
            return Some(Action::CheckLiveness);
        }
        if !has_room || !matches!(contents.state, ConnectionState::Up { .. }) {
            return None;
        }
        let waiting: usize = contents.queues.iter().map(VecDeque::len).sum();
        if waiting == 0 {
            return None;
        }
        let batches = if contents.by_slot() {
            contents.batches_by_slot()
        } else if waiting > FEW {
            contents.next_batch().into_iter().collect()
        } else {
            let mut batches = Vec::with_capacity(Kind::ALL.len());
            for kind in Kind::ALL {
                if let Some(batch) = contents.take_batch(kind, u64::MAX) {
                    batches.push(batch);
                }
            }
            batches
        };
        (!batches.is_empty()).then_some(Action::Send(batches))
    }

    /// Learns from the replies to a batch whether its locks have other waiters. Before the answers are delivered.
    pub(super) fn learn<'a>(&self, replies: impl Iterator<Item = (&'a LockName, &'a Reply)>) {
        let mut contents = self.lock();
        for (name, reply) in replies {
            contents.contended.learn(name, reply);
        }
    }

    /// Takes the callers of the steps of a batch that was answered, in its order. None if the connection was given up before.
    pub(super) fn callers(&self, id: u64) -> Vec<PendingReply> {
        let batches = &mut self.lock().in_flight;
        let place = batches.iter().position(|pending| pending.id == id);
        let batch = place.map(|place| batches.swap_remove(place));
        batch.map_or_else(Vec::new, |batch| batch.waiting)
    }

    /// Takes all steps that were not sent: another server is to execute them.
    pub(super) fn take_back(&self) -> Vec<(Step, PendingReply)> {
        let queues = &mut self.lock().queues;
        let mut steps: Vec<_> = queues
            .iter_mut()
            .flat_map(|queue| queue.drain(..))
            .collect();
        steps.sort_by_key(|item| item.sequence);
        let steps = steps.into_iter();
        steps.map(|item| (item.step, item.waiting)).collect()
    }

    /// The connection is not subscribed to wakes after all.
    pub(super) fn is_deaf(&self) {
        self.listening.store(false, Ordering::Relaxed);
    }

    /// Records whether the lock with this key has other waiters.
    pub(super) fn set_contended(&self, key: &str, contended: bool) {
        self.lock().contended.is(key, contended);
    }

    /// Sets the state of the connection. If the server is down, fails all queued steps.
    pub(super) fn set(&self, state: ConnectionState) {
        let mut refused = Vec::new();
        let error = {
            let mut contents = self.lock();
            (contents.silent, contents.demoted) = (false, false);
            if let ConnectionState::Down(_) = &state {
                for queue in &mut contents.queues {
                    refused.extend(queue.drain(..).filter_map(|item| item.waiting.done));
                }
            }
            let listening = matches!(
                state,
                ConnectionState::Up {
                    listening: true,
                    ..
                }
            );
            self.listening.store(listening, Ordering::Relaxed);
            contents.state = state;
            match &contents.state {
                ConnectionState::Down(error) => error.clone(),
                ConnectionState::Connecting | ConnectionState::Up { .. } => return,
            }
        };
        for done in refused {
            done.answer(Err(error.clone()));
        }
    }

    /// Gives the connection up. The outcome of its steps in flight is unknown.
    pub(super) fn disconnect(&self, why: DisconnectReason) {
        let unanswered = {
            let mut contents = self.lock();
            self.listening.store(false, Ordering::Relaxed);
            contents.state = ConnectionState::Connecting;
            (contents.silent, contents.demoted) = (false, false);
            std::mem::take(&mut contents.in_flight)
        };
        let (kind, detail) = why.describe();
        let callers = unanswered.into_iter().flat_map(|batch| batch.waiting);
        for done in callers.filter_map(|waiting| waiting.done) {
            let error = StoreError::new(&self.shown, kind, detail).unknown();
            done.answer(Err(error));
        }
    }

    /// Answers the steps whose time limit has passed. Returns when to sweep next, unless woken before.
    pub(super) fn sweep(&self, now: Moment) -> Option<Moment> {
        let (late, next, is_silent) = {
            let mut contents = self.lock();
            let late = contents.sweep(now, &self.shown);
            (late, contents.sweep_at, contents.silent)
        };
        if is_silent {
            self.connection.wake();
        }
        for (done, error) in late {
            done.answer(Err(error));
        }
        next.map(|next| next.max(now.after(LEAST_PAUSE)))
    }

    /// A call timed out.
    pub(super) fn report_silent(&self) {
        self.lock().silent = true;
        self.connection.wake();
    }

    /// The server is a replica now, or the sentinels name another one.
    pub(super) fn report_demoted(&self) {
        self.lock().demoted = true;
        self.connection.wake();
    }

    /// The name of the server in error messages.
    pub(super) fn label(&self) -> &str {
        &self.shown
    }

    /// True if the connection is subscribed to wakes.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// True if there is a working connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.lock().state, ConnectionState::Up { .. })
    }

    /// Ends the connection and the sweeper.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.connection.wake();
        self.sweeper_wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Code under the lock only moves steps from one place to another; a panic loses none.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Takes the callers of the proposals that wait here and that this step takes back: it may be sent before them. A lock that is to
    /// stay taken for as long as such a vote needs it.
    fn recall(&mut self, step: &Step, recalled: &mut Vec<Done>) {
        let (Step::Release { owner, .. } | Step::GiveBack { owner, .. }) = step else {
            return;
        };
        let is_meant = |item: &QueuedStep| match (&item.step, step) {
            (Step::Propose(proposal), Step::GiveBack { fence, .. }) => {
                proposal.owner == *owner && proposal.fences.first == *fence
            }
            (Step::Propose(proposal), Step::Release { keep, .. }) => {
                proposal.owner == *owner && keep.is_none_or(|keep| keep < proposal.ttl)
            }
            _ => false,
        };
        for kind in [Kind::Acquire, Kind::AcquireLong] {
            let queue = &mut self.queues[kind as usize];
            // Only a node of a quorum gets proposals, and no other acquires.
            if matches!(queue.front(), Some(item) if matches!(item.step, Step::Propose(_))) {
                queue.retain_mut(|item| {
                    let is_recalled = is_meant(item);
                    if is_recalled {
                        recalled.extend(item.waiting.done.take());
                    }
                    !is_recalled
                });
            }
        }
    }

    /// Chooses the form of a step. Extend and release of one lock keep their order. The second step takes the form of
    /// the first while the first one waits, or while a long form may still follow it.
    fn kind(&self, name: &LockName, step: &Step) -> Kind {
        let names_fence = matches!(
            step,
            Step::Extend { fence: Some(_), .. } | Step::Release { fence: Some(_), .. }
        );
        let is_named = |waiting: &PendingReply| waiting.name == *name;
        let carries_short = || {
            let mut batches = self.in_flight.iter();
            batches.any(|batch| batch.kind == Kind::Settle && batch.waiting.iter().any(is_named))
        };
        match self.contended.kind(name, step) {
            Kind::Settle if self.waits(Kind::SettleLong, name) => Kind::SettleLong,
            Kind::SettleLong
                if names_fence && (carries_short() || self.waits(Kind::Settle, name)) =>
            {
                Kind::Settle
            }
            kind => kind,
        }
    }

    fn waits(&self, kind: Kind, name: &LockName) -> bool {
        self.queues[kind as usize]
            .iter()
            .any(|item| item.waiting.name == *name)
    }

    /// The next batch: of the kind whose first step has waited longest. A step that frees a lock may go before an
    /// acquire that came earlier, but an acquire never goes before such a step that came earlier.
    fn next_batch(&mut self) -> Option<Batch> {
        let first = |queue: &VecDeque<QueuedStep>| queue.front().map(|item| item.sequence);
        let fronts = Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((first(&self.queues[kind as usize])?, kind)));
        let (_, kind) = fronts.min_by_key(|(sequence, _)| *sequence)?;
        let before = if kind.settles() {
            u64::MAX
        } else {
            let settle = Kind::ALL.into_iter().filter(|kind| kind.settles());
            let fronts = settle.filter_map(|kind| first(&self.queues[kind as usize]));
            fronts.min().unwrap_or(u64::MAX)
        };
        self.take_batch(kind, before)
    }

    /// True if the steps of a batch must share a slot.
    const fn by_slot(&self) -> bool {
        matches!(self.state, ConnectionState::Up { by_slot: true, .. })
    }

    /// The next batches, with as many steps together as one batch may have.
    fn batches_by_slot(&mut self) -> Vec<Batch> {
        let (mut batches, mut count) = (Vec::new(), 0);
        while count < MOST
            && let Some(batch) = self.next_batch()
        {
            count += batch.steps.len();
            batches.push(batch);
        }
        batches
    }

    /// The next batch of a kind, with only those steps that came before this sequence number.
    fn take_batch(&mut self, kind: Kind, before: u64) -> Option<Batch> {
        let by_slot = self.by_slot();
        let queue = &mut self.queues[kind as usize];
        let first = queue.front().filter(|item| item.sequence < before)?;
        let way = |item: &QueuedStep| (slot(item.waiting.name.key()), item.detour);
        let of_first = by_slot.then(|| way(first));
        let most = if first.detour == Detour::default() {
            kind.most()
        } else {
            1
        };
        let fits = queue.iter().take(most);
        let fits = fits.take_while(|item| item.sequence < before);
        let fits = fits.take_while(|item| of_first.is_none_or(|of_first| way(item) == of_first));
        let count = fits.count();
        let (mut steps, mut waiting) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for item in queue.drain(..count) {
            steps.push((item.waiting.name.clone(), item.step));
            waiting.push(item.waiting);
        }
        let id = self.next_batch_id;
        self.next_batch_id += 1;
        self.in_flight.push(PendingBatch { id, kind, waiting });
        let mut batch = Batch::new(id, kind, steps, &self.contended);
        if let Some((_, detour)) = of_first {
            batch.is_native &= detour == Detour::default();
            batch.detour = detour;
        }
        Some(batch)
    }

    /// Takes the callers of the steps whose time limit has passed, each with its error. `shown` names the server.
    #[must_use = "steps whose time limit has passed have to be answered"]
    fn sweep(&mut self, now: Moment, shown: &str) -> Vec<(Done, StoreError)> {
        let mut late = Vec::new();
        if self.sweep_at.is_none_or(|sweep_at| sweep_at > now) {
            return late;
        }
        let mut soonest: Option<Moment> = None;
        let mut look = |waiting: &mut PendingReply| {
            let is_late = waiting.until <= now;
            if !is_late {
                soonest = Some(soonest.map_or(waiting.until, |soonest| soonest.min(waiting.until)));
            }
            is_late.then(|| waiting.done.take()).flatten()
        };
        let timed_out = |detail: String| StoreError::new(shown, StoreErrorKind::TimedOut, detail);
        let not_sent = match self.state {
            ConnectionState::Connecting => "still connecting",
            ConnectionState::Up { .. } | ConnectionState::Down(_) => "not sent",
        };
        for queue in &mut self.queues {
            queue.retain_mut(|item| match look(&mut item.waiting) {
                None => true,
                Some(done) => {
                    let limit = item.waiting.limit;
                    late.push((done, timed_out(format!("{not_sent} after {limit:.1?}"))));
                    false
                }
            });
        }
        for waiting in self
            .in_flight
            .iter_mut()
            .flat_map(|batch| &mut batch.waiting)
        {
            if waiting.done.is_some()
                && let Some(done) = look(waiting)
            {
                let limit = waiting.limit;
                late.push((done, timed_out(format!("waited {limit:.1?}")).unknown()));
                self.silent = true;
            }
        }
        self.sweep_at = soonest;
        late
    }
}

/// A batch and its answers: an error concerns one step.
pub(super) struct CompletedBatch {
    pub(super) batch: Batch,
    /// None is missing.
    pub(super) answers: Vec<Option<RedisResult<Reply>>>,
    /// Why its grants and renewals do not count.
    pub(super) unconfirmed: Option<Unconfirmed>,
}

impl CompletedBatch {
    /// The replies that are no errors.
    pub(super) fn replies(&self) -> impl Iterator<Item = (&LockName, &Reply)> {
        let answers = self.answers.iter().zip(&self.batch.steps);
        answers.filter_map(|(answer, (name, _))| Some((name, answer.as_ref()?.as_ref().ok()?)))
    }
}

/// A request beside the steps: for cache entries, timestamps or the index, or of a handshake.
pub(super) struct Call {
    bytes: Vec<u8>,
    /// How many replies it has. None is missing when they are delivered.
    replies: usize,
    heard: Vec<Value>,
    caller: oneshot::Sender<Vec<Value>>,
    /// The slot of a cluster whose messages the caller needs.
    slot: Option<u16>,
}

impl Call {
    /// A call with so many replies, and where its caller hears them.
    pub(super) fn new(
        bytes: Vec<u8>,
        replies: usize,
        slot: Option<u16>,
    ) -> (Self, oneshot::Receiver<Vec<Value>>) {
        let (caller, answer) = oneshot::channel();
        let heard = Vec::with_capacity(replies);
        let call = Self {
            bytes,
            replies,
            heard,
            caller,
            slot,
        };
        (call, answer)
    }
}

/// The requests in flight over one connection.
pub(super) struct Flight {
    scripts: Arc<Scripts>,
    /// Scripts publish wakes for waiters on this channel.
    channel: String,
    /// In a cluster, the slots in which the connection is subscribed to the channel of that slot.
    slots: HashSet<u16>,
    /// In the order of sending, which is also the order of the replies.
    sent: VecDeque<Sent>,
    /// How many of them are batches.
    batches: usize,
    /// Batches to be sent again.
    refused: BTreeMap<u64, BatchInFlight>,
    /// Only one batch at a time is in flight (F1).
    serial: bool,
    completed: VecDeque<CompletedBatch>,
    /// What has to be confirmed, if anything.
    confirmation: Option<Confirmation>,
    /// Memory for the places of the next batch.
    places: Vec<usize>,
    command: Command,
    /// The bytes to be sent, from this place on.
    out: Vec<u8>,
    out_from: usize,
    /// A batch was sent while no other batch was in flight.
    began: Option<Moment>,
    is_fast: bool,
}

/// The confirmation of grants and renewals by replicas (F3).
struct Confirmation {
    by: Replicas,
    /// The longest time limit of a step.
    limit: Duration,
    /// Batches that have to be confirmed.
    waiting: Vec<CompletedBatch>,
    /// How long the `WAIT` in flight waits.
    under_way: Option<Duration>,
    /// The last one failed, so it is not sent before there is something to confirm: it would delay the answer that a lock is busy.
    failed: bool,
}

enum Sent {
    Batch(BatchInFlight),
    Call(Call),
    /// `WAIT`.
    Confirmation,
    /// The channel of this slot.
    Subscription(u16),
    /// The next command is for a slot that the node is about to own.
    Asking,
}

/// A batch on its way through one request after the other, until each step has an answer.
struct BatchInFlight {
    batch: Batch,
    answers: Vec<Option<RedisResult<Reply>>>,
    /// In flight.
    part: Part,
    /// The replies to it, but for the last one.
    heard: Vec<Value>,
    /// To be sent after it, the last one first.
    left: Vec<Part>,
    /// It was refused before, and no other batch is in flight.
    is_alone: bool,
}

/// Steps of a batch, in one request, or each in a native command.
struct Part {
    kind: Kind,
    form: Form,
    /// Their places in the batch.
    steps: Vec<usize>,
}

impl Part {
    fn of<'a>(
        &'a self,
        batch: &'a Batch,
    ) -> impl ExactSizeIterator<Item = &'a (LockName, Step)> + Clone {
        self.steps.iter().map(|place| &batch.steps[*place])
    }

    /// How many replies it has.
    fn replies(&self) -> usize {
        match self.form.native {
            Some(_) => self.steps.len(),
            None => 1,
        }
    }
}

impl Flight {
    pub(super) fn new(scripts: Arc<Scripts>, channel: String) -> Self {
        Self {
            scripts,
            channel,
            slots: HashSet::new(),
            sent: VecDeque::new(),
            batches: 0,
            refused: BTreeMap::new(),
            serial: false,
            completed: VecDeque::new(),
            confirmation: None,
            places: Vec::new(),
            command: Command::default(),
            out: Vec::new(),
            out_from: 0,
            began: None,
            is_fast: false,
        }
    }

    /// From now on scripts publish wakes on this channel.
    pub(super) fn publishes_on(&mut self, channel: &str) {
        channel.clone_into(&mut self.channel);
    }

    /// Subscribes again to the channels of these slots.
    pub(super) fn listens_in(&mut self, slots: HashSet<u16>) {
        for slot in slots {
            self.listen(slot);
        }
    }

    /// The slots in which the connection is subscribed.
    pub(super) fn take_slots(&mut self) -> HashSet<u16> {
        std::mem::take(&mut self.slots)
    }

    /// The server has ended the subscription to a channel: its slot has another owner.
    pub(super) fn is_deaf_on(&mut self, channel: &str) {
        self.slots.remove(&slot(channel));
    }

    /// True if this user receives no wakes.
    pub(super) fn is_deaf(&self) -> bool {
        self.channel == POLL_ONLY
    }

    /// Subscribes to the channel of a slot, before the first step there: the server executes the step afterwards. Each client has a
    /// channel in each slot, since a script may only publish in its own.
    fn listen(&mut self, slot: u16) {
        if !self.is_deaf() && self.slots.insert(slot) {
            self.command.clear();
            let channel = slot_channel(&self.channel, slot);
            self.command.word("SSUBSCRIBE").word(channel);
            self.command.write(&mut self.out);
            self.sent.push_back(Sent::Subscription(slot));
        }
    }

    /// Grants and renewals are to be confirmed. `limit` is the longest time limit of a step.
    pub(super) fn confirms_by(&mut self, replicas: Option<Replicas>, limit: Duration) {
        self.confirmation = replicas.map(|by| Confirmation {
            by,
            limit,
            waiting: Vec::new(),
            under_way: None,
            failed: false,
        });
    }

    /// True if another batch may be sent.
    pub(super) fn has_room(&self) -> bool {
        if let Some(open) = &self.confirmation {
            // (F3)
            let is_free = open.under_way.is_none() && open.waiting.is_empty();
            return is_free && !self.serial && self.batches < BATCHES;
        }
        let most = match self.scripts.counters() {
            // Most batches have one step. The next ones are on their way while answers are delivered.
            Counters::BySlot => 2 * MOST,
            _ if self.is_fast => 1,
            _ => BATCHES,
        };
        !self.serial && self.batches < most
    }

    /// Asks replicas to confirm what was sent, once for all batches.
    pub(super) fn confirm(&mut self) {
        let Some(open) = &mut self.confirmation else {
            return;
        };
        let is_due = if self.batches == 0 {
            !open.waiting.is_empty()
        } else {
            // Together with the batches, to save a round trip.
            !open.failed && open.waiting.is_empty()
        };
        if open.under_way.is_some() || !is_due {
            return;
        }
        let sent = self.sent.iter().filter_map(|sent| match sent {
            Sent::Batch(attempt) => Some(&attempt.batch),
            _ => None,
        });
        let batches = sent.chain(open.waiting.iter().map(|completed| &completed.batch));
        let limits = batches
            .flat_map(|batch| &batch.steps)
            .map(|(_, step)| limit_of(step, open.limit));
        // A step may wait for the confirmation before its own, and must be answered within its limit all the same.
        let most = limits.min().unwrap_or(open.limit) / 3;
        let timeout = open.by.timeout.min(most);
        open.under_way = Some(timeout);
        self.command.clear();
        for word in wait_for(open.by, open.by.count.get(), timeout) {
            self.command.word(word);
        }
        self.command.write(&mut self.out);
        self.sent.push_back(Sent::Confirmation);
    }

    /// Sends a batch. Its steps are executed in order, and the failure of one does not affect the others. A script executes them
    /// atomically. A step that its short form does not fit has changed nothing, and is sent again in the long form; other steps may
    /// run in between.
    pub(super) fn begin(&mut self, batch: Batch, now: Moment) {
        if self.batches == 0 {
            self.began = Some(now);
        }
        let form = if batch.is_native {
            self.scripts.native()
        } else {
            self.scripts.form()
        };
        let places = std::mem::take(&mut self.places);
        self.send(BatchInFlight::new(batch, form, places));
    }

    /// Sends a call, unless its caller has gone. The caller hears the replies.
    pub(super) fn call(&mut self, mut call: Call) {
        if call.caller.is_closed() {
            return;
        }
        if let Some(slot) = call.slot {
            self.listen(slot);
        }
        self.out.append(&mut std::mem::take(&mut call.bytes));
        self.sent.push_back(Sent::Call(call));
    }

    /// The bytes to be sent.
    pub(super) fn out(&self) -> &[u8] {
        &self.out[self.out_from..]
    }

    /// So many of these bytes were sent.
    pub(super) fn is_out(&mut self, count: usize) {
        self.out_from += count;
        if self.out_from == self.out.len() {
            self.out_from = 0;
            self.out.clear();
            // A large value was sent.
            self.out.shrink_to(USUAL_OUT);
        }
    }

    /// Takes the next reply.
    ///
    /// # Errors
    /// It answers nothing: the server's last words, or no server.
    pub(super) fn hear(&mut self, reply: Value, now: Moment) -> RedisResult<()> {
        match self.sent.pop_front() {
            Some(Sent::Batch(mut attempt)) => {
                if attempt.heard.len() + 1 < attempt.part.replies() {
                    attempt.heard.push(reply);
                    self.sent.push_front(Sent::Batch(attempt));
                    return Ok(());
                }
                self.batches -= 1;
                if let Some(began) = self.began.take() {
                    self.is_fast = now.since(began) <= AT_ONCE;
                }
                self.hear_part(attempt, reply);
                Ok(())
            }
            Some(Sent::Call(mut call)) => {
                call.heard.push(reply);
                if call.heard.len() < call.replies {
                    self.sent.push_front(Sent::Call(call));
                } else {
                    // Fails if the caller has gone.
                    let _heard = call.caller.send(call.heard);
                }
                Ok(())
            }
            Some(Sent::Subscription(slot)) => {
                if let Err(error) = reply.extract_error() {
                    self.slots.remove(&slot);
                    if Redirect::of(&error).is_none() && is_forbidden(&error) {
                        POLL_ONLY.clone_into(&mut self.channel);
                    }
                }
                Ok(())
            }
            Some(Sent::Confirmation) => {
                if let Some(open) = &mut self.confirmation {
                    let timeout = open.under_way.take().unwrap_or_default();
                    let unconfirmed = confirmed(open.by, reply, timeout).err();
                    open.failed = unconfirmed.is_some();
                    // Their replies came before this one, so they were sent before it.
                    let batches = open.waiting.drain(..).map(|completed| CompletedBatch {
                        unconfirmed: unconfirmed.clone(),
                        ..completed
                    });
                    self.completed.extend(batches);
                }
                Ok(())
            }
            // If it was refused, so is the command after it.
            Some(Sent::Asking) => Ok(()),
            None => {
                reply.extract_error()?;
                let what = "an answer to no request";
                Err((ErrorKind::Parse, what).into())
            }
        }
    }

    /// How many replies are missing.
    #[cfg(any(test, feature = "doctor"))]
    pub(super) fn awaits(&self) -> usize {
        let awaited = self.sent.iter().map(|sent| match sent {
            Sent::Batch(attempt) => attempt.part.replies() - attempt.heard.len(),
            Sent::Call(call) => call.replies - call.heard.len(),
            Sent::Subscription(_) | Sent::Asking | Sent::Confirmation => 1,
        });
        awaited.sum()
    }

    /// The next batch with all its answers.
    pub(super) fn next_completed(&mut self) -> Option<CompletedBatch> {
        self.completed.pop_front()
    }

    fn hear_part(&mut self, mut attempt: BatchInFlight, last: Value) {
        let is_first = attempt.part.kind == attempt.batch.kind;
        let is_refused = match last {
            last if attempt.part.form.native.is_some() => attempt.take_native(last, &self.scripts),
            Value::ServerError(error) => attempt.refuse(&self.scripts, &error.into()),
            reply => {
                attempt.take(&reply, self.scripts.form());
                false
            }
        };
        if is_refused && is_first && !attempt.is_alone {
            self.serial = true;
            self.refused.insert(attempt.batch.id, attempt);
        } else if let Some(part) = attempt.left.pop() {
            attempt.part = part;
            self.send(attempt);
        } else {
            self.complete(attempt);
        }
        if self.batches == 0 {
            match self.refused.pop_first() {
                Some((_, mut attempt)) => {
                    attempt.is_alone = true;
                    if let Some(part) = attempt.left.pop() {
                        attempt.part = part;
                    }
                    self.send(attempt);
                }
                None => self.serial = false,
            }
        }
    }

    fn complete(&mut self, attempt: BatchInFlight) {
        let BatchInFlight {
            batch,
            answers,
            part,
            ..
        } = attempt;
        self.places = part.steps;
        let refused_before = self.refused.range(..batch.id).next().is_some();
        let is_busy = |answer: &Option<_>| matches!(answer, Some(Ok(Reply::Busy(_))));
        if refused_before && answers.iter().any(is_busy) {
            // (F2)
            let mut again = BatchInFlight::new(batch, self.scripts.form(), Vec::new());
            // (SQ1) They stand if the server refuses the repetition.
            again.answers = answers;
            self.refused.insert(again.batch.id, again);
        } else {
            let is_held = |answer: &Option<_>| matches!(answer, Some(Ok(Reply::Held(_))));
            let waits = self.confirmation.as_mut();
            let waits = waits.filter(|_| answers.iter().any(is_held));
            let completed = CompletedBatch {
                batch,
                answers,
                unconfirmed: None,
            };
            match waits {
                Some(open) => open.waiting.push(completed),
                None => self.completed.push_back(completed),
            }
        }
    }

    fn send(&mut self, attempt: BatchInFlight) {
        let Part { kind, form, .. } = attempt.part;
        let steps = attempt.part.of(&attempt.batch);
        debug_assert!(steps.len() <= MOST, "{} steps", steps.len());
        let (counters, detour) = (self.scripts.counters(), attempt.batch.detour);
        let channel = match (counters, steps.clone().next()) {
            (Counters::BySlot, Some((name, _))) => {
                let slot = slot(name.key());
                if detour.asking {
                    // Subscriptions follow once the node owns the slot.
                    Cow::Borrowed(POLL_ONLY)
                } else {
                    self.listen(slot);
                    if self.is_deaf() {
                        Cow::Borrowed(POLL_ONLY)
                    } else {
                        Cow::Owned(slot_channel(&self.channel, slot))
                    }
                }
            }
            _ => Cow::Borrowed(&*self.channel),
        };
        if detour.asking {
            self.out.extend_from_slice(ASKING);
            self.sent.push_back(Sent::Asking);
        }
        self.command.clear();
        if let Some(command) = form.native {
            for step in steps {
                write_native(command, step, &mut self.command);
                self.command.write(&mut self.out);
                self.command.clear();
            }
        } else {
            let script = script_of(kind, steps.clone().next().map(|(_, step)| step));
            self.scripts.begin(script, form, &mut self.command);
            let counts = self.scripts.counts();
            write(
                kind,
                counters,
                &counts,
                &channel,
                detour.alone,
                steps,
                &mut self.command,
            );
            self.command.write(&mut self.out);
        }
        self.batches += 1;
        self.sent.push_back(Sent::Batch(attempt));
    }
}

impl BatchInFlight {
    /// All steps of a batch. Their places go into the memory of `steps`.
    fn new(batch: Batch, form: Form, mut steps: Vec<usize>) -> Self {
        let (kind, count) = (batch.kind, batch.steps.len());
        steps.clear();
        steps.extend(0..count);
        Self {
            batch,
            answers: iter::repeat_with(|| None).take(count).collect(),
            part: Part { kind, form, steps },
            heard: Vec::new(),
            left: Vec::new(),
            is_alone: false,
        }
    }

    /// The server refused the request as a whole, and executed none of it. True if it is to be sent again, in another form.
    fn refuse(&mut self, scripts: &Scripts, error: &RedisError) -> bool {
        let Part { kind, form, steps } = &mut self.part;
        let (kind, steps) = (*kind, std::mem::take(steps));
        if let Some(form) = scripts.next_form(*form, error) {
            self.left.push(Part { kind, form, steps });
            return true;
        }
        // Redis checks the permissions for all keys at once, so this error does not tell which step was denied.
        if steps.len() > 1 && is_denied(error) {
            let form = *form;
            let alone = |place| Part {
                kind,
                form,
                steps: vec![place],
            };
            self.left.extend(steps.into_iter().rev().map(alone));
            return true;
        }
        for place in steps {
            self.answers[place].get_or_insert_with(|| Err(error.clone()));
        }
        false
    }

    /// Takes the answers to native commands, each of which executed its step alone. What does not fit is to be sent in the long form.
    /// True if a command was refused, and its step is to be sent again by the script.
    fn take_native(&mut self, last: Value, scripts: &Scripts) -> bool {
        let form = self.part.form;
        let (mut unfit, mut refused) = (Vec::new(), Vec::new());
        let replies = std::mem::take(&mut self.heard).into_iter().chain([last]);
        for (place, reply) in self.part.steps.iter().copied().zip(replies) {
            let answer = match reply {
                Value::ServerError(error) => {
                    let error = error.into();
                    if scripts.next_form(form, &error).is_some() {
                        refused.push(place);
                        continue;
                    }
                    Some(Err(error))
                }
                reply => native_reply(&reply),
            };
            match answer {
                None => unfit.push(place),
                answer => self.answers[place] = answer,
            }
        }
        let (kind, form, is_refused) = (self.part.kind, scripts.form(), !refused.is_empty());
        for (kind, steps) in [(kind.long(), unfit), (kind, refused)] {
            if !steps.is_empty() {
                self.left.push(Part { kind, form, steps });
            }
        }
        is_refused
    }

    /// Takes the answers of a script. What the short form does not fit is to be sent in the long one.
    fn take(&mut self, reply: &Value, form: Form) {
        let (kind, steps) = (self.part.kind, self.part.of(&self.batch));
        let (mut places, mut unfit) = (self.part.steps.iter().copied(), Vec::new());
        let take = |reply| {
            let Some(place) = places.next() else { return };
            let answer = &mut self.answers[place];
            match reply {
                // (SQ1) What was answered before stands if the repetition of the step fails.
                Some(Err(error)) => {
                    answer.get_or_insert(Err(error));
                }
                Some(reply) => *answer = Some(reply),
                None => unfit.push(place),
            }
        };
        if decode(kind, reply, steps, take).is_none() {
            let error = no_known_form(reply);
            for place in &self.part.steps {
                self.answers[*place] = Some(Err(error.clone()));
            }
        } else if !unfit.is_empty() {
            let (kind, steps) = (kind.long(), unfit);
            self.left.push(Part { kind, form, steps });
        }
    }
}
