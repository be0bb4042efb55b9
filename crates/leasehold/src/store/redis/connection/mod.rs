//! The connection to one server: makes it, keeps it alive and replaces it. Nothing here knows what a step means.
//!
//! | module | what it is for |
//! |---|---|
//! | [`dial`] | makes a connection, encrypted or not, and logs in |
//! | [`handshake`] | the first requests over a connection; the identity of its server |
//! | [`link`] | moves the bytes of one connection |
//! | [`placement`] | which thread does the work of a connection |
//! | [`sentinel`] | which server the sentinels name |
//!
//! A connection does not notice by itself that its peer has stopped answering. Therefore:
//!
//! - If a request times out, the connection sends PING. Without a reply, it is replaced.
//! - If the server has become a replica, it is replaced at once, since the host name may now lead to another server.
//! - After each new connection, all waiters ask again, since wakes may have been missed.
//! - In RESP2, a second connection brings the messages. It sends nothing, so the kernel asks for signs of life. It ends with the first one.

pub(super) mod dial;
pub(super) mod handshake;
pub(super) mod link;
mod placement;
pub(super) mod sentinel;

use std::collections::HashSet;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};
use leasehold_core::{LockName, Reply, Step};
use redis::{RedisError, RedisResult, Value, cmd};
use tokio::sync::watch;

use self::dial::{Dial, Established};
use self::handshake::{HandshakeResult, Seat, ServerId, replaced};
use self::link::{Link, Wire};
use self::placement::Placement;
use self::sentinel::Sentinels;
use super::address::Address;
use super::fault::{Redirect, classify};
use super::pipeline::{
    Action, CompletedBatch, ConnectionState, DisconnectReason, PendingReply, Queue,
};
use super::protocol::{self, Detour, MOST, POLL_ONLY};
use super::scripts::Scripts;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::{Replaced, StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Done, Listener, Notice, Scope};

/// How long a server may take to answer PING after a request timed out.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection must have lived for the next attempt to be made without a longer pause.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// The longest pause after a connection that broke soon. It is no longer than the poll that replaces a missed wake,
/// because waiters and leases whose renewal failed ask again after each new connection.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// The connection to one server, as its users see it. Each call ends within its time limit. Dropping it closes the connection.
pub(super) struct Connection {
    shared: Arc<Shared>,
}

/// The state that users of a connection share with its work.
struct Shared {
    address: Address,
    /// Those that name the server, if it is not the one at `address`.
    sentinels: Option<Sentinels>,
    channel: String,
    listener: Listener,
    clock: Clock,
    limit: Duration,
    scripts: Arc<Scripts>,
    queue: Queue,
    /// The connection that calls use, or why there is none; `None` while it is being made.
    wire: watch::Sender<Option<Result<Wire, StoreError>>>,
    /// The server of the last connection, if it identified itself; `None` before the first connection.
    #[allow(
        clippy::option_option,
        reason = "the inner one says that it did not say"
    )]
    last: Mutex<Option<Option<ServerId>>>,
    placement: Placement,
    part: Part,
    /// The slots of a cluster in which the last connection was subscribed.
    slots: Mutex<HashSet<u16>>,
}

/// What the server may be a part of.
pub(super) enum Part {
    /// A node of a quorum has a seat.
    Quorum(Seat),
    /// A server may be a node of a cluster.
    Cluster(Weak<dyn Cluster>),
}

/// The servers of a cluster, as a node of it sees them.
pub(super) trait Cluster: Send + Sync {
    /// This node has sent a step elsewhere, which was sent to it in this way.
    fn follow(
        &self,
        from: &Address,
        redirect: Redirect,
        step: Step,
        way: Detour,
        waiting: PendingReply,
    );
    /// A server is a node of a cluster, or what is known of the nodes may be out of date.
    fn look_again(&self, is_cluster: bool);
}

impl Connection {
    pub(super) fn open(
        address: Address,
        attach: Attach,
        scripts: Arc<Scripts>,
        part: Part,
    ) -> Self {
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            queue: Queue::new(address.to_string()),
            sentinels: Sentinels::of(&address, &attach.clock, attach.limit),
            address,
            channel: protocol::channel(attach.client),
            listener: contention_listener(shared.clone(), attach.listener),
            clock: attach.clock,
            limit: attach.limit,
            scripts,
            wire: watch::Sender::new(None),
            last: Mutex::default(),
            // A request to a quorum awaits several servers.
            placement: Placement::new(matches!(part, Part::Cluster(_))),
            part,
            slots: Mutex::default(),
        });
        let work = shared.clone();
        let run = move || run(work.clone());
        shared.placement.run(&attach.tasks, run);
        let aside = shared.clone();
        attach.tasks.spawn_aside(async move {
            tokio::select! {
                () = sweep(&aside) => {}
                () = follow(&aside) => {}
            }
        });
        Self { shared }
    }

    /// The name of the server in error messages.
    pub(super) fn label(&self) -> &str {
        self.shared.queue.label()
    }

    /// Submits a step. The answer comes within `limit`.
    pub(super) fn send(&self, name: &LockName, step: Step, done: Done, limit: Duration) {
        let now = done.asked_at();
        let now = now.unwrap_or_else(|| self.shared.clock.now());
        let step = iter::once((name.clone(), step, done));
        self.shared.queue.push(step, now, limit);
    }

    /// Submits looks, which leave together. The answers come within `limit`.
    pub(super) fn look(&self, looks: Vec<(LockName, Done)>, limit: Duration) {
        let looks = looks.into_iter();
        let looks = looks.map(|(name, done)| (name, Step::Inspect, done));
        self.shared
            .queue
            .push(looks, self.shared.clock.now(), limit);
    }

    /// Where the server is.
    pub(super) fn address(&self) -> &Address {
        &self.shared.address
    }

    /// The steps on their way to the server.
    pub(super) fn queue(&self) -> &Queue {
        &self.shared.queue
    }

    /// True if the connection is subscribed to the client's channel.
    pub(super) fn is_listening(&self) -> bool {
        self.shared.queue.is_listening()
    }

    /// Waits for the first connection, or returns why there is none.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        // Each attempt to connect has a time limit already.
        self.wire(self.shared.limit * 2).await.map(drop)
    }

    /// Sends a call over the current connection and waits for the reply, for at most `limit` in all.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(Wire) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let Shared { clock, queue, .. } = &*self.shared;
        let begun = clock.now();
        let wire = self.wire(limit).await?;
        let left = limit.saturating_sub(clock.now().since(begun));
        let answer = clock.within(left, request(wire)).await.ok_or_else(|| {
            queue.report_silent();
            let detail = format!("waited {limit:.1?}");
            StoreError::new(self.label(), StoreErrorKind::TimedOut, detail).unknown()
        })?;
        answer.map_err(|error| self.shared.verdict(&error))
    }

    /// Returns the current connection. Fails at once while the server is known to be down.
    async fn wire(&self, limit: Duration) -> Result<Wire, StoreError> {
        let Shared { clock, wire, .. } = &*self.shared;
        let mut wire = wire.subscribe();
        let settled = clock.within(limit, wire.wait_for(Option::is_some)).await;
        let settled = settled.and_then(|settled| settled.ok()?.clone());
        settled.unwrap_or_else(|| {
            let detail = format!("still connecting after {limit:.1?}");
            let late = StoreError::new(self.label(), StoreErrorKind::TimedOut, detail);
            Err(late)
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// Wraps a listener. Remembers which locks have other waiters, so that their next steps use the long form at once.
fn contention_listener(shared: Weak<Shared>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let said = match &notice {
            Notice::Wanted { key, .. } => Some((key, true)),
            Notice::Granted { key, wake } => Some((key, wake.queued > 0)),
            _ => None,
        };
        if let Some(((key, contended), shared)) = said.zip(shared.upgrade()) {
            shared.queue.set_contended(key, contended);
        }
        listener(notice);
    })
}

/// Ends the steps whose time limit has passed, until the queue is closed.
async fn sweep(shared: &Shared) {
    while !shared.queue.is_closed() {
        let next = shared.queue.sweep(shared.clock.now());
        let woken = shared.queue.sweeper_wake.notified();
        match next {
            Some(next) => tokio::select! {
                () = woken => {}
                () = shared.clock.sleep_until(next) => {}
            },
            None => woken.await,
        }
    }
}

/// Leaves the server when the sentinels name another one.
async fn follow(shared: &Shared) {
    match &shared.sentinels {
        Some(sentinels) => sentinels.follow(|| shared.queue.report_demoted()).await,
        None => std::future::pending().await,
    }
}

/// Connects, sends queued steps, delivers the answers, and connects again, until the queue is closed.
async fn run(shared: Arc<Shared>) {
    let mut work = std::pin::pin!(shared.work());
    poll_fn(|context| {
        shared.queue.wakes(context.waker());
        if shared.queue.is_closed() {
            return Poll::Ready(());
        }
        work.as_mut().poll(context)
    })
    .await;
}

impl Shared {
    async fn work(&self) {
        let first = Duration::from_millis(20);
        let mut refused = Backoff::new(first, Duration::from_secs(1));
        let mut cut = Backoff::new(first, MAX_RECONNECT_PAUSE);
        if self.queue.is_up() {
            // The previous future that did this work panicked.
            self.disconnect(DisconnectReason::Lost);
        }
        loop {
            let begun = self.clock.now();
            match self.dial().await {
                Ok(established) => {
                    refused.reset();
                    let end = self.serve(established).await;
                    self.disconnect(end);
                    if self.clock.now().since(begun) >= MIN_LIFETIME {
                        cut.reset();
                    } else {
                        self.clock.sleep(cut.pause()).await;
                    }
                }
                Err(error) => {
                    self.look_again(false);
                    self.queue.set(ConnectionState::Down(error.clone()));
                    self.wire.send_replace(Some(Err(error)));
                    match &self.sentinels {
                        Some(sentinels) => sentinels.pause(refused.pause()).await,
                        None => self.clock.sleep(refused.pause()).await,
                    }
                }
            }
        }
    }

    async fn dial(&self) -> Result<Established, StoreError> {
        let Some(sentinels) = &self.sentinels else {
            return self.dial_at(&self.address).await;
        };
        loop {
            let primary = sentinels.primary().await?;
            let made = tokio::select! {
                biased;
                made = self.dial_at(&primary) => made,
                () = sentinels.leaves(&primary) => continue,
            };
            let (kind, why) = match made {
                Ok(established) if !established.2.in_cluster => return Ok(established),
                Ok(_) => {
                    let why = "it is a node of a cluster; write redis+cluster://host:port/";
                    (StoreErrorKind::Misconfigured, why.to_owned())
                }
                Err(error) => (error.kind, error.detail),
            };
            let why = format!("the sentinels name {primary}: {why}");
            return Err(StoreError::new(self.address.to_string(), kind, why));
        }
    }

    async fn dial_at(&self, address: &Address) -> Result<Established, StoreError> {
        let dial = Dial {
            address,
            limit: self.limit,
            clock: &self.clock,
            scripts: &self.scripts,
            listener: &self.listener,
            placement: Some(&self.placement),
        };
        let established = dial.establish(&self.channel).await?;
        // A server that does not say which one it is cannot be told from others.
        if let (Part::Quorum(seat), Some(server)) = (&self.part, &established.2.server) {
            seat.take(server.run()).map_err(|other| {
                let (kind, server) = (StoreErrorKind::Misconfigured, self.address.to_string());
                let why = format!(
                    "it is the server of {other}; each vote must come from a server of its own"
                );
                StoreError::new(server, kind, why)
            })?;
        }
        Ok(established)
    }

    /// Gives the connection up. The outcome of its steps is unknown. The listener is told first.
    fn disconnect(&self, why: DisconnectReason) {
        match &self.part {
            Part::Quorum(seat) => seat.leave(),
            Part::Cluster(_) => self.look_again(false),
        }
        let cut = why.describe().1;
        (self.listener)(Notice::Cut { node: 0, why: cut });
        // Before the callers of its steps hear of it: a call that follows waits for the next connection.
        self.wire.send_replace(None);
        self.queue.disconnect(why);
    }

    fn cluster(&self) -> Option<Arc<dyn Cluster>> {
        match &self.part {
            Part::Quorum(_) => None,
            Part::Cluster(cluster) => cluster.upgrade(),
        }
    }

    fn look_again(&self, is_cluster: bool) {
        if let Some(cluster) = self.cluster() {
            cluster.look_again(is_cluster);
        }
    }

    /// Records the server of a new connection. Returns how it replaced the previous server, if it is another one.
    fn record_server(&self, server: Option<&ServerId>) -> Option<Replaced> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(server.cloned())?;
        replaced(before.as_ref(), server)
    }

    /// Sends steps and delivers answers until the connection is given up. Returns the reason.
    async fn serve(&self, (mut link, wire, agreed): Established) -> DisconnectReason {
        let HandshakeResult {
            listening,
            in_cluster,
            ..
        } = agreed;
        let channel = if listening { &self.channel } else { POLL_ONLY };
        link.flight.publishes_on(channel);
        link.flight.confirms_by(self.address.replicas, self.limit);
        link.flight.listens_in(std::mem::take(&mut *self.slots()));
        if in_cluster {
            self.look_again(true);
        }
        let state = ConnectionState::Up {
            listening,
            by_slot: in_cluster,
        };
        self.queue.set(state);
        // After that: a step that follows a call is not refused.
        self.wire.send_replace(Some(Ok(wire.clone())));
        if self.sentinels.as_ref().is_some_and(Sentinels::has_left) {
            // They said so before there was a connection to leave.
            self.queue.report_demoted();
        }
        if let Some(how) = self.record_server(agreed.server.as_ref()) {
            (self.listener)(Notice::Replaced(how, Scope::All));
        }
        (self.listener)(Notice::Reconnected { node: 0 });
        let mut check = None;
        let end = poll_fn(|context| self.poll_serve(&mut link, &wire, &mut check, context)).await;
        // The replies that arrived together with the end of the connection.
        while let Some(completed) = link.flight.next_completed() {
            self.deliver(completed);
        }
        *self.slots() = link.flight.take_slots();
        end
    }

    fn slots(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves what can be moved now. Ready when the connection is to be given up.
    fn poll_serve<'a>(
        &'a self,
        link: &mut Link,
        wire: &Wire,
        check: &mut Option<BoxFuture<'a, bool>>,
        context: &mut Context<'_>,
    ) -> Poll<DisconnectReason> {
        loop {
            let arrived = link.poll_read(context);
            if matches!(arrived, Poll::Ready(Err(_))) {
                return Poll::Ready(DisconnectReason::Lost);
            }
            while let Some(action) = self.queue.take(link.flight.has_room()) {
                match action {
                    Action::Send(batches) => {
                        let now = self.clock.now();
                        for batch in batches {
                            link.flight.begin(batch, now);
                        }
                    }
                    Action::CheckLiveness => {
                        check.get_or_insert_with(|| self.is_alive(wire.clone()).boxed());
                    }
                    Action::Reconnect => return Poll::Ready(DisconnectReason::Lost),
                }
            }
            link.flight.confirm();
            // Before answers are delivered: the server works meanwhile.
            if link.write(context).is_err() {
                return Poll::Ready(DisconnectReason::Lost);
            }
            if let Some(Poll::Ready(alive)) = check.as_mut().map(|check| check.poll_unpin(context))
            {
                *check = None;
                if !alive {
                    return Poll::Ready(DisconnectReason::Silent);
                }
            }
            if link.flight.is_deaf() {
                self.queue.is_deaf();
            }
            let mut answered = 0;
            // In a cluster, the steps of a batch share a slot: a batch may have one step only.
            while answered < MOST
                && let Some(completed) = link.flight.next_completed()
            {
                answered += completed.batch.steps.len();
                self.deliver(completed);
            }
            if answered > 0 {
                // Lets the callers go first: what they ask for now goes in one batch.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if arrived.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn deliver(&self, completed: CompletedBatch) {
        self.queue.learn(completed.replies());
        let CompletedBatch {
            batch,
            answers,
            unconfirmed,
        } = completed;
        let mut redirected = Vec::new();
        let (way, may_redirect) = (batch.detour, matches!(self.part, Part::Cluster(_)));
        let callers = self.queue.callers(batch.id).into_iter();
        let answers = callers.zip(answers).zip(batch.steps);
        Done::answer_all(answers.filter_map(|((waiting, answer), (_, step))| {
            let answer = match answer? {
                Err(error) => {
                    if let Some(redirect) = Redirect::of(&error).filter(|_| may_redirect) {
                        redirected.push((redirect, step, waiting));
                        return None;
                    }
                    Err(self.verdict(&error))
                }
                Ok(reply) => match &unconfirmed {
                    Some((kind, why)) if matches!(reply, Reply::Held(_)) => {
                        Err(StoreError::new(self.queue.label(), *kind, why).unknown())
                    }
                    _ => Ok(reply),
                },
            };
            Some((waiting.done?, answer))
        }));
        for (redirect, step, waiting) in redirected {
            if let Some(cluster) = self.cluster() {
                cluster.follow(&self.address, redirect, step, way, waiting);
            }
        }
    }

    /// What an error of the server means. A replica is left: the host name may now lead to another server.
    fn verdict(&self, error: &RedisError) -> StoreError {
        let (said, _) = classify(self.queue.label(), error);
        if said.kind == StoreErrorKind::ReadOnly {
            self.queue.report_demoted();
        }
        self.scripts.refusal(error).unwrap_or(said)
    }

    /// Any reply is a sign of life: a busy server answers PING with an error.
    async fn is_alive(&self, mut wire: Wire) -> bool {
        let ping = cmd("PING");
        let answer = ping.query_async::<Value>(&mut wire);
        // The server reads it after it has answered WAIT.
        let waits = self.address.replicas.map(|replicas| replicas.timeout);
        let limit = PING_TIMEOUT + waits.unwrap_or_default().min(self.limit / 3);
        let answer = self.clock.within(limit, answer).await;
        answer.is_some_and(|answer| answer.map_or_else(|error| classify("", &error).1, |_| true))
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ClientId;
    use testkit::{FaultProxy, RedisServer};
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::runtime::Tasks;

    /// In real time; only a hang takes this long.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Whoever hears that a step was lost asks again at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_that_follows_a_lost_step_goes_over_the_next_connection() {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.port());
        let attach = Attach {
            client: ClientId::new(1),
            listener: Arc::new(drop),
            clock: Clock::system(),
            tasks: Tasks::here().unwrap(),
            limit: LIMIT,
        };
        let address = Address::parse(&proxy.url()).unwrap();
        let seat = Part::Quorum(Seat::new(Arc::default(), "a server"));
        let connection = Arc::new(Connection::open(address, attach, Arc::default(), seat));
        connection.ready().await.unwrap();
        proxy.swallow_replies(true);
        let (sender, lost) = oneshot::channel();
        let calls = connection.clone();
        let done = Done::new(move |answer| {
            let mut call = Box::pin(async move {
                let ping = async |mut wire: Wire| cmd("PING").query_async(&mut wire).await;
                calls.call::<String>(LIMIT, ping).await
            });
            let first = call.as_mut().now_or_never();
            drop(sender.send((answer, first, call)));
        });
        let name = LockName::new("m").unwrap();
        connection.send(&name, Step::Inspect, done, LIMIT);
        while proxy.swallowed() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        proxy.swallow_replies(false);
        proxy.cut();
        let (answer, first, call) = timeout(LIMIT, lost).await.unwrap().unwrap();
        assert!(answer.unwrap_err().may_have_taken_effect);
        assert!(first.is_none(), "{first:?}");
        assert_eq!(call.await.unwrap(), "PONG");
    }
}
