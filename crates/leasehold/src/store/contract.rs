//! The interface between a store and its client, and the view of each of its nodes for an operator.

use std::iter;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
#[cfg(feature = "entries")]
use leasehold_core::cache;
use leasehold_core::once::{self, Firing};
#[cfg(feature = "timestamp")]
use leasehold_core::timestamp;
use leasehold_core::{ClientId, LockName, Owner, Reply, Snapshot, Step, Ttl, Wake, slot};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::clock::{Clock, Moment};
use crate::error::{Replaced, StoreError, StoreErrorKind};
use crate::runtime::Tasks;

/// A message from a store to a client. Each one is a hint: a waiter also polls. A `node` is a place in [`Store::nodes`]; it is 0 for a
/// store that has none.
#[cfg_attr(
    not(any(test, feature = "redis")),
    expect(dead_code, reason = "only a server can be cut off or replaced")
)]
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A waiter of this client was granted the lock with this key, for the claim window. If the wake has no fence, the
    /// waiter has to claim the lock to learn more.
    Granted { key: String, wake: Wake },
    /// Another client waits for the lock with this key, which this owner holds.
    Wanted { key: String, owner: Owner },
    /// This waiter is now first in its queue, and should ask at once. The holder is a foreign program, or has a grant
    /// that may end soon.
    First { owner: Owner },
    /// The connection to this node ended, for this reason. Another one will follow.
    Cut { node: usize, why: &'static str },
    /// Another server keeps these locks from now on. It may not know those of the previous one. Sent before [`Notice::Reconnected`].
    Replaced(Replaced, Scope),
    /// There is a new connection to this node. Wakes may have been missed: every waiter should poll now.
    Reconnected { node: usize },
    /// Wakes may have been missed, as at [`Notice::Reconnected`]: a slot of a cluster has another owner.
    Missed,
    /// A request to this node of a quorum failed. Only for telemetry.
    NodeFailed { node: usize, kind: StoreErrorKind },
    /// Another client's load of the cache entry with this key has ended.
    #[cfg(feature = "entries")]
    LoadEnded { key: String },
    /// The values of the cache entries with these keys have changed; `None` stands for all entries.
    #[cfg(feature = "entries")]
    Changed { keys: Option<Vec<String>> },
}

/// The locks that a notice is about.
#[cfg_attr(
    not(any(test, feature = "redis")),
    expect(dead_code, reason = "only a cluster has slots")
)]
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    All,
    /// Those in these ranges of slots of a cluster.
    Slots(Arc<[RangeInclusive<u16>]>),
}

impl Scope {
    /// True if the notice is about the lock with this name.
    pub(crate) fn has(&self, name: &LockName) -> bool {
        match self {
            Self::All => true,
            Self::Slots(ranges) => {
                let slot = slot(name.key());
                ranges.iter().any(|range| range.contains(&slot))
            }
        }
    }
}

/// Receives the notices of a store. Called from any thread; must return at once.
pub(crate) type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// The reply to a step, or why there is none.
pub(crate) type Answer = Result<Reply, StoreError>;

/// The reply to a request that a store works on, or why there is none.
pub(crate) type Answering<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Asks, and waits for the answer. If its sender is dropped, the outcome is unknown.
pub(crate) async fn answered<T>(
    ask: impl FnOnce(oneshot::Sender<Result<T, StoreError>>),
) -> Result<T, StoreError> {
    let (sender, answer) = oneshot::channel();
    ask(sender);
    heard(answer).await
}

/// Waits for an answer. If its sender is dropped, the outcome is unknown.
pub(crate) async fn heard<T>(
    answer: oneshot::Receiver<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let answer = answer.await;
    answer.unwrap_or_else(|_| Err(StoreError::closed().unknown()))
}

/// Why an owner sends a step. Only its asker reads it.
#[derive(Debug)]
pub(crate) enum To {
    /// To ask for a lock.
    Acquisition(Owner),
    /// To renew a lease.
    Renewal(Owner, RenewalCause),
    /// To release what it left, with the release of this number.
    Settlement(Owner, u32),
}

/// Why a renewal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalCause {
    /// It is due.
    Due,
    /// A caller asked for it.
    Asked,
}

/// Sends steps and takes their answers.
pub(crate) trait Asker: Send + Sync {
    /// Takes answers that came together. This may be the end of the asker, which then sends its last steps. The tokens last until it returns.
    fn answered(self: Arc<Self>, answers: Vec<(To, Answer)>);
}

/// Where the answer to a step goes. If it is dropped without an answer, it reports an unknown outcome.
pub(crate) struct Done(Option<Receiver>);

enum Receiver {
    Callback(Box<dyn FnOnce(Answer) + Send>),
    /// As long as the answer is missing, the asker lives, and `Client::close` waits. It sent the step at this moment.
    Asker(Arc<dyn Asker>, To, TaskTrackerToken, Moment),
}

impl Done {
    pub(crate) fn new(done: impl FnOnce(Answer) + Send + 'static) -> Self {
        Self(Some(Receiver::Callback(Box::new(done))))
    }

    /// The asker sends the step at `now`.
    pub(crate) fn to(asker: Arc<dyn Asker>, to: To, token: TaskTrackerToken, now: Moment) -> Self {
        Self(Some(Receiver::Asker(asker, to, token, now)))
    }

    /// When the step was sent, if its sender has read the clock.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only the steps to a server have time limits")
    )]
    pub(crate) fn asked_at(&self) -> Option<Moment> {
        match self.0 {
            Some(Receiver::Asker(.., at)) => Some(at),
            Some(Receiver::Callback(_)) | None => None,
        }
    }

    /// Delivers the answer.
    pub(crate) fn answer(self, answer: Answer) {
        Self::answer_all(iter::once((self, answer)));
    }

    /// Delivers these answers in their order. An asker takes those that follow each other in one call.
    pub(crate) fn answer_all(answers: impl Iterator<Item = (Self, Answer)>) {
        let most = answers.size_hint().1.unwrap_or(1);
        let mut together = None::<(Arc<dyn Asker>, Vec<_>, _)>;
        for (mut done, answer) in answers {
            match (done.0.take(), &mut together) {
                (Some(Receiver::Asker(asker, to, ..)), Some((same, list, _)))
                    if Arc::ptr_eq(&asker, same) =>
                {
                    list.push((to, answer));
                }
                (Some(receiver), before) => {
                    if let Some((asker, list, _token)) = before.take() {
                        asker.answered(list);
                    }
                    match receiver {
                        Receiver::Callback(done) => done(answer),
                        Receiver::Asker(asker, to, token, _) => {
                            let mut list = Vec::with_capacity(most);
                            list.push((to, answer));
                            *before = Some((asker, list, token));
                        }
                    }
                }
                (None, _) => {}
            }
        }
        if let Some((asker, list, _token)) = together {
            asker.answered(list);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if self.0.is_some() {
            let unknown = Err(StoreError::closed().unknown());
            Self(self.0.take()).answer(unknown);
        }
    }
}

/// A request about the index of names for operators. It holds hints only: a lock in it may be free. A store that knows which locks are
/// held has no index; it tells those.
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only Redis has an index")
)]
#[derive(Debug, Clone)]
pub(crate) enum IndexRequest {
    Read,
    Remember(LockName),
    /// These locks are free.
    Forget(Vec<LockName>),
}

/// A store of locks. `send` is the only method that changes a lock.
pub(crate) trait Store: Send + Sync + 'static {
    /// Executes one step atomically, or reports why it could not. Safe to repeat.
    ///
    /// Steps of one kind on one lock are executed in the order of sending, except a release without a fence. An acquire
    /// and a release may overtake each other. The answer comes in bounded time, which depends on the TTL in the step.
    /// It may come from any thread, even before this method returns, so the caller must hold no lock that `done` takes.
    fn send(&self, name: &LockName, step: Step, done: Done);

    /// Sends a step and waits for the answer. If the future is dropped, the outcome is unknown.
    fn apply<'a>(&'a self, name: &'a LockName, step: Step) -> Answering<'a, Reply> {
        answered(move |tell| {
            let done = Done::new(move |answer| drop(tell.send(answer)));
            self.send(name, step, done);
        })
        .boxed()
    }

    /// Sends these looks. A server gets many of them in one request.
    fn look_at(&self, looks: Vec<(LockName, Done)>) {
        for (name, done) in looks {
            self.send(&name, Step::Inspect, done);
        }
    }

    /// Looks at a lock at each node of the store. A store that is no quorum is its own only node.
    fn inspect_nodes<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, InspectedNodes> {
        async move {
            let answer = self.apply(name, Step::Inspect).await;
            let lock = snapshot(self.label(), answer);
            let view = NodeView::new(self.label(), lock.clone());
            InspectedNodes::new(lock, vec![view])
        }
        .boxed()
    }

    /// The client is being closed, and has sent its last requests but those that follow from answers.
    fn closing(&self) {}

    /// Whether the store sends [`Notice::Wanted`] at present. If not, the client has to assume that others wait.
    fn tells_wanted(&self) -> bool {
        true
    }

    /// Whether the store may hold a lock for its owner by a higher fence than that of the grant: a repair has raised it.
    fn raises_fences(&self) -> bool {
        false
    }

    /// The longest TTL of a lease, and the longest time for which a released lock can be kept.
    fn longest_ttl(&self) -> Duration {
        Ttl::MAX
    }

    /// The name of the store in errors: its address, without user and password.
    fn label(&self) -> &str;

    /// The labels of the nodes of a quorum, in the order of the URL, or of the nodes of a cluster that are known now. Another store has none.
    fn nodes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Waits until it is known whether the store can be used. An embedded store is ready at once.
    fn ready(&self) -> Answering<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Reads or changes the index of names for operators. Returns the keys of its locks if they were asked for, else nothing.
    fn index(&self, request: IndexRequest) -> Answering<'_, Vec<String>>;

    /// Executes one step on a firing of this lock atomically, or reports why it could not. Safe to repeat.
    ///
    /// `None` if the store keeps no firings: a quorum.
    fn once<'a>(
        &'a self,
        _: &'a LockName,
        _: &'a Firing,
        _: &'a once::Step,
    ) -> Option<Answering<'a, once::Answer>> {
        None
    }

    /// The cache entries of this store. A quorum has none.
    #[cfg(feature = "entries")]
    fn entries(self: Arc<Self>) -> Option<Arc<dyn EntryStore>> {
        None
    }

    /// Executes a step on a key of the timestamp protocol. To be awaited on the client's own thread. Not safe to repeat.
    ///
    /// `None` if there are no such keys: only servers that other programs can reach have them.
    #[cfg(feature = "timestamp")]
    fn timestamp<'a>(
        &'a self,
        _: &'a LockName,
        _: &'a TimestampRequest,
    ) -> Option<Answering<'a, timestamp::Reply>> {
        None
    }
}

/// A step of the timestamp protocol, and how to execute it.
#[cfg(feature = "timestamp")]
#[derive(Debug, Clone)]
pub(crate) struct TimestampRequest {
    pub(crate) unit: timestamp::Unit,
    pub(crate) step: timestamp::Step,
    /// Execute it as one script. Otherwise, for a server without scripts, as the commands of the recipe.
    pub(crate) by_script: bool,
    /// No other step has to follow within the TTL, so that this one may take the longest time limit.
    pub(crate) is_last: bool,
}

/// A store of cache entries, with steps of `leasehold_core::cache`. Its futures need the client's timers.
#[cfg(feature = "entries")]
pub trait EntryStore: Send + Sync {
    /// Reads the values of these keys, in their order. A key without a valid entry has none. Changes no entry.
    ///
    /// With `watch`, the store tells the client of the next change of each of these values, if it can.
    fn look<'a>(&'a self, keys: &'a [LockName], watch: bool) -> Answering<'a, Looked>;

    /// Executes one step atomically, or reports why it could not. Safe to repeat.
    fn take<'a>(&'a self, key: &'a LockName, step: &'a cache::Step) -> Answering<'a, Taken>;
}

/// The result of a read.
#[cfg(feature = "entries")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The values, in the order of the keys.
    pub values: Vec<Option<cache::Value>>,
    /// The time on the store's expiry clock, in milliseconds: ahead of it by one round trip at most, and behind it by
    /// drift between two readings at most.
    pub now_ms: u64,
}

/// The reply to a step.
#[cfg(feature = "entries")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The reply.
    pub reply: cache::Reply,
    /// The time of the step on the store's expiry clock, in milliseconds.
    pub now_ms: u64,
}

/// The parts of a client that its store uses.
#[derive(Clone)]
pub(crate) struct Attach {
    /// The client. Its channel is named after it.
    pub(crate) client: ClientId,
    /// Receives the notices of the store.
    pub(crate) listener: Listener,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    /// The longest time limit of a request.
    pub(crate) limit: Duration,
}

/// The time limit of a step.
pub(crate) fn limit_of(step: &Step, longest: Duration) -> Duration {
    let ttl = match step {
        Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => *ttl,
        Step::Propose(proposal) => proposal.ttl,
        Step::Release { .. } | Step::GiveBack { .. } | Step::Break { .. } | Step::Inspect => {
            return longest;
        }
    };
    limit_for(ttl, longest)
}

/// The time limit of a request for a lease: `longest`, or a third of its TTL if that is less, so that it survives two requests without an
/// answer.
pub(crate) fn limit_for(ttl: Ttl, longest: Duration) -> Duration {
    (ttl.get() / 3).min(longest)
}

/// A lock as each node of its store sees it: [`Client::inspect_nodes`](crate::Client::inspect_nodes).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedNodes {
    /// The verdict of the majority, from the views in `nodes`; an error if too few nodes answered.
    pub lock: Result<Snapshot, StoreError>,
    /// The views of the nodes, in the order of the URL. A store that is no quorum is its own only node.
    pub nodes: Vec<NodeView>,
}

/// A lock as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The address of the node, without user and password.
    pub node: String,
    /// The holder and the waiters at this node. In a quorum only one node has the waiters.
    pub seen: Result<Snapshot, StoreError>,
}

impl InspectedNodes {
    /// Makes the views of a lock, for tests and tools.
    pub const fn new(lock: Result<Snapshot, StoreError>, nodes: Vec<NodeView>) -> Self {
        Self { lock, nodes }
    }

    /// How many nodes hold the lock for the holder of the verdict. 0 if the lock is free.
    ///
    /// A lease needs a majority. It may have fewer votes than nodes: a node was down, or has lost its data, since the lease was granted.
    /// Later renewals ask such a node again, and it may then hold the lock under a higher fence.
    pub fn votes(&self) -> usize {
        let Ok(Snapshot {
            holder: Some(holder),
            ..
        }) = &self.lock
        else {
            return 0;
        };
        let votes = |view: &&NodeView| {
            let seen = view.seen.as_ref().ok();
            let other = seen.and_then(|seen| seen.holder.as_ref());
            other.is_some_and(|other| other.who == holder.who)
        };
        self.nodes.iter().filter(votes).count()
    }
}

impl NodeView {
    /// Makes the view of a node, for tests and tools.
    pub fn new(node: impl Into<String>, seen: Result<Snapshot, StoreError>) -> Self {
        let node = node.into();
        Self { node, seen }
    }
}

/// The snapshot in the answer to a look.
pub(crate) fn snapshot(
    label: &str,
    answer: Result<Reply, StoreError>,
) -> Result<Snapshot, StoreError> {
    match answer? {
        Reply::Seen(snapshot) => Ok(*snapshot),
        other => {
            let other = format!("{other:?}");
            Err(StoreError::new(label, StoreErrorKind::Protocol, other))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio_util::task::TaskTracker;

    use super::*;

    /// The numbers of the releases whose answers came together.
    #[derive(Default)]
    struct Heard(Mutex<Vec<Vec<u32>>>);

    impl Asker for Heard {
        fn answered(self: Arc<Self>, answers: Vec<(To, Answer)>) {
            let numbers = answers.iter().filter_map(|(to, _)| match to {
                To::Settlement(_, number) => Some(*number),
                _ => None,
            });
            self.0.lock().unwrap().push(numbers.collect());
        }
    }

    impl Heard {
        fn done(self: &Arc<Self>, number: u32) -> Done {
            let owner = Owner::new(1, ClientId::new(1), "h", 1, "").unwrap();
            let token = TaskTracker::new().token();
            let now = Moment::from_micros(0);
            Done::to(self.clone(), To::Settlement(owner, number), token, now)
        }

        fn takes(&self) -> Vec<Vec<u32>> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[test]
    fn asker_hears_answers_in_a_row_together() {
        let [a, b] = [(); 2].map(|()| Arc::<Heard>::default());
        let heard_before = Arc::<Mutex<Vec<_>>>::default();
        let (first, heard) = (a.clone(), heard_before.clone());
        let called = Done::new(move |_| heard.lock().unwrap().extend(first.takes()));
        let all = [
            a.done(1),
            a.done(2),
            called,
            a.done(3),
            b.done(4),
            b.done(5),
        ];
        Done::answer_all(all.into_iter().map(|done| (done, Ok(Reply::Released))));
        assert_eq!(*heard_before.lock().unwrap(), [[1, 2]]);
        assert_eq!((a.takes(), b.takes()), (vec![vec![3]], vec![vec![4, 5]]));
        drop(b.done(6));
        assert_eq!(b.takes(), [[6]]);
    }
}
