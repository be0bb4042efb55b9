//! Sessions: a lease belongs to one, and a gateway that lives renews no lease of a client that is dead.
//!
//! # Invariants
//!
//! - **HS1** A lease that is granted belongs to a session that has not ended, or is released at once.
//! - **HS2** A session ends when its client gives no sign of life: no beat for its TTL, or the end of its stream of events. Its leases are
//!   released then.
//! - **HS3** What a stream has not told is the difference between two states, so a reader that is slow makes nothing pile up.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use leasehold::kind::AnyKind;
use leasehold::{Clock, Fence, Lease, Leases, Moment};
use metrics::gauge;
use serde::Serialize;
use tokio::sync::watch;

use super::answer::Refusal;
use super::guard::random;
use crate::documents::{millis, without_advice};

/// The most sessions of one server, and the most leases and requests for leases of one session.
const MOST_SESSIONS: usize = 10_000;
const MOST_LEASES: usize = 1_000;

/// The name of the number of sessions.
const SESSIONS: &str = "leasehold_serve_sessions";

/// How soon a session without a TTL must open its stream of events.
const OPENED: Duration = Duration::from_secs(10);

/// The interval of looks for failed renewals, while a stream is open.
const LOOK: Duration = Duration::from_secs(1);

/// The id of a session: random, so that no other client knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionId(String);

/// The id of a lease: that of its session, and a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseId(SessionId, u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.0, self.1)
    }
}

impl FromStr for LeaseId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parts = text.split_once('.');
        let id = parts.and_then(|(session, number)| Some((session, number.parse().ok()?)));
        let (session, number) = id.ok_or_else(no_lease)?;
        Ok(Self(SessionId(session.to_owned()), number))
    }
}

fn no_lease() -> Refusal {
    Refusal::not_found("there is no such lease: it was released, or its session has ended")
}

fn no_session() -> Refusal {
    Refusal::not_found(
        "there is no such session: it has ended, or the server was started again; its leases are released",
    )
}

/// The sessions of a server.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    clock: Clock,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<SessionId, Arc<Session>>,
    is_closed: bool,
}

/// A session of one client.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    /// The longest time between two beats. Without one, the session lives with its stream.
    ttl: Option<Duration>,
    /// The note of its leases that have none.
    pub(crate) note: String,
    state: Mutex<SessionState>,
    /// Tells that the state has changed.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct SessionState {
    /// The last sign of life.
    seen: Moment,
    /// Requests for leases under way: while its client waits for an answer, a session does not end.
    requests: usize,
    streams: usize,
    leases: BTreeMap<u64, HeldLease>,
    last: u64,
    /// Why it ended.
    end: Option<&'static str>,
}

/// A lease of a session: on one lock, or on several that were taken together.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) leases: Leases,
    /// The lock that was named first.
    pub(crate) lock: String,
    pub(crate) ttl: Duration,
}

/// The document `leasehold.session/1`.
#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.session/1")]
pub(crate) struct SessionDocument {
    session: String,
    ttl_ms: Option<u64>,
    note: String,
    leases: Vec<LeaseDocument>,
}

/// A lease, with the fields of `leasehold.hold/1`.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseDocument {
    lease: String,
    lock: String,
    held: bool,
    doubtful: bool,
    valid_for_ms: u64,
    ttl_ms: u64,
    fence: Option<u64>,
    mode: Option<String>,
    slot: Option<u16>,
    /// Of several locks that were taken together, all of them.
    locks: Option<Vec<LockOfSeveral>>,
}

#[derive(Debug, Serialize)]
struct LockOfSeveral {
    name: String,
    fence: Option<u64>,
}

/// An event of a session, as `leasehold.hold/1` has it.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum SessionEvent {
    /// The session has this lease.
    Acquired(LeaseDocument),
    /// A renewal failed. The lease is valid for `valid_for_ms` more; the renewal is retried.
    Doubtful {
        lease: String,
        valid_for_ms: u64,
        reason: String,
    },
    /// A renewal succeeded after a failed one.
    Renewed { lease: String, valid_for_ms: u64 },
    /// The lease was lost: stop the work.
    Lost {
        lease: String,
        lock: String,
        cause: String,
    },
    /// The lease was given back.
    Released { lease: String },
    /// The session has ended, and its leases are released: the last event.
    Ended { cause: &'static str },
}

impl HeldLease {
    fn first(&self) -> Option<&Lease<AnyKind>> {
        self.leases.get(&self.lock)
    }

    fn document(&self, id: &LeaseId) -> LeaseDocument {
        let valid_for = self.leases.valid_for();
        let slot = self.first().and_then(Lease::<AnyKind>::slot);
        let fence = |lease: &Lease<AnyKind>| lease.fence().map(Fence::get);
        let several = || {
            let all = self.leases.iter().map(|lease| LockOfSeveral {
                name: lease.name().to_owned(),
                fence: fence(lease),
            });
            all.collect()
        };
        LeaseDocument {
            lease: id.to_string(),
            lock: self.lock.clone(),
            held: !valid_for.is_zero(),
            doubtful: self.leases.doubt().is_some(),
            valid_for_ms: millis(valid_for),
            ttl_ms: millis(self.ttl),
            // That of a slot says nothing about other slots, but rises from holder to holder of this one.
            fence: slot.map_or_else(
                || self.first().and_then(fence),
                |slot| Some(slot.fence.get()),
            ),
            mode: self.first().map(|lease| lease.mode().to_string()),
            slot: slot.map(|slot| slot.number),
            locks: (self.leases.iter().count() > 1).then(several),
        }
    }
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::system(),
            table: Arc::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session.
    pub(crate) fn open(
        &self,
        ttl: Option<Duration>,
        note: String,
    ) -> Result<SessionDocument, Refusal> {
        let id = random()
            .map_err(|why| Refusal::too_many(format!("the system has no random numbers: {why}")))?;
        let session = Arc::new(Session {
            id: SessionId(id),
            ttl,
            note,
            state: Mutex::new(SessionState {
                seen: self.clock.now(),
                requests: 0,
                streams: 0,
                leases: BTreeMap::new(),
                last: 0,
                end: None,
            }),
            changed: watch::Sender::new(()),
        });
        let mut table = self.table();
        if table.is_closed {
            return Err(closing());
        }
        if table.open.len() >= MOST_SESSIONS {
            return Err(Refusal::too_many(format!(
                "there are {MOST_SESSIONS} sessions already"
            )));
        }
        table.open.insert(session.id.clone(), session.clone());
        gauge!(SESSIONS).increment(1);
        drop(table);
        let document = session.document();
        // It lives as long as the session, which needs no task of a client.
        #[expect(clippy::disallowed_methods, reason = "a runtime serves these requests")]
        drop(tokio::spawn(self.clone().keep(session)));
        Ok(document)
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Session>, Refusal> {
        let found = self.table().open.get(&SessionId(id.to_owned())).cloned();
        found.ok_or_else(no_session)
    }

    /// The session of a lease.
    pub(crate) fn of_lease(&self, id: &LeaseId) -> Result<Arc<Session>, Refusal> {
        let found = self.table().open.get(&id.0).cloned();
        found.ok_or_else(no_lease)
    }

    /// Ends a session after its client's last sign of life (HS2).
    async fn keep(self, session: Arc<Session>) {
        let mut changed = session.changed.subscribe();
        loop {
            let (left, cause) = session.left(self.clock.now());
            match left {
                Some(left) if left.is_zero() => return self.end(&session, cause),
                _ if session.state().end.is_some() => return,
                _ => {}
            }
            let over = left.map_or(pending().boxed(), |left| tokio::time::sleep(left).boxed());
            tokio::select! {
                _ = changed.changed() => {}
                () = over => {}
            }
        }
    }

    /// Ends a session, and releases its leases.
    pub(crate) fn end(&self, session: &Session, cause: &'static str) {
        if self.table().open.remove(&session.id).is_some() {
            gauge!(SESSIONS).decrement(1);
        }
        let mut state = session.state();
        state.end.get_or_insert(cause);
        let leases = std::mem::take(&mut state.leases);
        drop(state);
        // The client releases what is dropped.
        drop(leases);
        session.changed.send_replace(());
    }

    /// Ends all sessions, and opens no other one.
    pub(crate) fn close(&self) {
        let mut table = self.table();
        table.is_closed = true;
        let open: Vec<_> = table.open.values().cloned().collect();
        drop(table);
        for session in open {
            self.end(&session, "the server ends");
        }
    }

    /// The events of a session. The end of the stream is that of a session without a TTL (HS2).
    pub(crate) fn events(
        &self,
        session: Arc<Session>,
    ) -> Result<impl Stream<Item = (&'static str, String)> + use<>, Refusal> {
        let mut state = session.state();
        if state.streams > 0 && session.ttl.is_none() {
            let why = "the session has a stream of events already, and ends with it";
            return Err(Refusal::new(axum::http::StatusCode::CONFLICT, "open", why));
        }
        if state.end.is_some() {
            return Err(no_session());
        }
        state.streams += 1;
        drop(state);
        let teller = Teller {
            told: BTreeMap::new(),
            untold: VecDeque::new(),
            ends: FuturesUnordered::new(),
            changed: session.changed.subscribe(),
            is_over: false,
            open: OpenStream {
                sessions: self.clone(),
                session,
            },
        };
        Ok(stream::unfold(teller, |mut teller| async move {
            let event = teller.next().await?;
            Some((event, teller))
        }))
    }
}

fn closing() -> Refusal {
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Refusal::new(status, "closing", "the server ends").may_retry()
}

impl Session {
    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it lives without another sign of life, and the cause of its end then. `None` while it lives by a stream or a request.
    fn left(&self, now: Moment) -> (Option<Duration>, &'static str) {
        let state = self.state();
        let (limit, cause) = match self.ttl {
            Some(ttl) => (ttl, "no beat came in time"),
            None => (OPENED, "its stream of events was not opened in time"),
        };
        let lives = state.requests > 0 || self.ttl.is_none() && state.streams > 0;
        let left = limit.saturating_sub(now.since(state.seen));
        ((!lives).then_some(left), cause)
    }

    /// A sign of life.
    pub(crate) fn beat(&self, clock: &Clock) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(no_session());
        }
        state.seen = clock.now();
        Ok(())
    }

    pub(crate) fn document(&self) -> SessionDocument {
        let state = self.state();
        let leases = state.leases.iter();
        SessionDocument {
            session: self.id.0.clone(),
            ttl_ms: self.ttl.map(millis),
            note: self.note.clone(),
            leases: leases
                .map(|(number, lease)| lease.document(&self.lease_id(*number)))
                .collect(),
        }
    }

    fn lease_id(&self, number: u64) -> LeaseId {
        LeaseId(self.id.clone(), number)
    }

    /// Begins a request for a lease.
    pub(crate) fn ask(self: &Arc<Self>, clock: &Clock) -> Result<Asking, Refusal> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(no_session());
        }
        if state.leases.len() + state.requests >= MOST_LEASES {
            let why = format!("the session has {MOST_LEASES} leases and requests already");
            return Err(Refusal::too_many(why));
        }
        state.requests += 1;
        Ok(Asking {
            session: self.clone(),
            clock: clock.clone(),
        })
    }

    /// The document of a lease, or its loss.
    pub(crate) fn lease(&self, id: &LeaseId) -> Result<LeaseDocument, Refusal> {
        let state = self.state();
        let lease = state.leases.get(&id.1).ok_or_else(no_lease)?;
        match lease.leases.loss() {
            Some(lost) => Err(lost.into()),
            None => Ok(lease.document(id)),
        }
    }

    /// Takes a lease out of the session, to release it.
    pub(crate) fn give_back(&self, id: &LeaseId) -> Result<HeldLease, Refusal> {
        let lease = self.state().leases.remove(&id.1).ok_or_else(no_lease)?;
        self.changed.send_replace(());
        Ok(lease)
    }
}

impl LeaseDocument {
    pub(crate) fn valid_for_ms(&self) -> u64 {
        self.valid_for_ms
    }
}

/// A request for a lease, under way.
pub(crate) struct Asking {
    session: Arc<Session>,
    clock: Clock,
}

impl Asking {
    /// Waits until the session has ended.
    pub(crate) async fn ended(&self) -> Refusal {
        let mut changed = self.session.changed.subscribe();
        while self.session.state().end.is_none() {
            // The sender is in the session.
            let _changed = changed.changed().await;
        }
        no_session()
    }

    /// The session has this lease from now on, unless it has ended (HS1).
    pub(crate) fn adopt(&self, lease: HeldLease) -> Result<LeaseDocument, Refusal> {
        let mut state = self.session.state();
        if state.end.is_some() {
            drop(state);
            // The client releases what is dropped.
            drop(lease);
            return Err(no_session());
        }
        state.last += 1;
        let number = state.last;
        let document = lease.document(&self.session.lease_id(number));
        state.leases.insert(number, lease);
        drop(state);
        self.session.changed.send_replace(());
        Ok(document)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.requests -= 1;
        state.seen = self.clock.now();
        drop(state);
        self.session.changed.send_replace(());
    }
}

/// A stream of events that is open.
struct OpenStream {
    sessions: Sessions,
    session: Arc<Session>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.session.state().streams -= 1;
        if self.session.ttl.is_none() {
            self.sessions
                .end(&self.session, "its stream of events was closed");
        }
    }
}

/// How a lease was when its events were last told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Held,
    Doubtful,
    Lost,
}

/// Tells the changes between two states of a session (HS3).
struct Teller {
    told: BTreeMap<u64, Standing>,
    untold: VecDeque<SessionEvent>,
    /// The ends of the leases that were told.
    ends: FuturesUnordered<BoxFuture<'static, ()>>,
    changed: watch::Receiver<()>,
    is_over: bool,
    open: OpenStream,
}

/// An event with its schema.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.session-event/1")]
struct EventDocument<'a> {
    #[serde(flatten)]
    event: &'a SessionEvent,
}

impl Teller {
    /// The name and the document of the next event. `None` after the last one.
    async fn next(&mut self) -> Option<(&'static str, String)> {
        loop {
            if let Some(event) = self.untold.pop_front() {
                let text = crate::documents::json(&EventDocument { event: &event });
                return Some((event.name(), text.trim_end().to_owned()));
            }
            if self.is_over {
                return None;
            }
            self.look();
            if !self.untold.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.changed.changed() => drop(changed),
                Some(()) = self.ends.next() => {}
                () = tokio::time::sleep(LOOK), if !self.told.is_empty() => {}
            }
        }
    }

    /// Finds what has changed since it was told.
    fn look(&mut self) {
        let session = self.open.session.clone();
        let state = session.state();
        for (number, held) in &state.leases {
            let (id, leases) = (session.lease_id(*number).to_string(), &held.leases);
            let now = match (leases.loss(), leases.doubt()) {
                (Some(_), _) => Standing::Lost,
                (None, Some(_)) => Standing::Doubtful,
                (None, None) => Standing::Held,
            };
            let told = self.told.insert(*number, now);
            if told == Some(now) {
                continue;
            }
            if told.is_none() {
                let ends = leases.iter().map(Lease::watch);
                self.ends
                    .extend(ends.map(|watch| async move { drop(watch.ended().await) }.boxed()));
                let document = held.document(&session.lease_id(*number));
                self.untold.push_back(SessionEvent::Acquired(document));
            }
            let valid_for_ms = millis(leases.valid_for());
            match (now, leases.loss()) {
                (Standing::Lost, Some(lost)) => self.untold.push_back(SessionEvent::Lost {
                    lease: id,
                    cause: without_advice(&lost.reason()),
                    lock: lost.name,
                }),
                (Standing::Doubtful, _) => self.untold.push_back(SessionEvent::Doubtful {
                    lease: id,
                    valid_for_ms,
                    reason: without_advice(&leases.doubt().unwrap_or_default()),
                }),
                (Standing::Held, _) if told.is_some() => {
                    let renewed = SessionEvent::Renewed {
                        lease: id,
                        valid_for_ms,
                    };
                    self.untold.push_back(renewed);
                }
                _ => {}
            }
        }
        let gone = |number: &u64| !state.leases.contains_key(number);
        let released: Vec<u64> = self.told.keys().copied().filter(gone).collect();
        for number in released {
            let was = self.told.remove(&number);
            // A session that ends says so once, and a loss is the last event of its lease.
            if state.end.is_none() && was != Some(Standing::Lost) {
                let lease = session.lease_id(number).to_string();
                self.untold.push_back(SessionEvent::Released { lease });
            }
        }
        if let Some(cause) = state.end {
            self.untold.push_back(SessionEvent::Ended { cause });
            self.is_over = true;
        }
    }
}

impl SessionEvent {
    const fn name(&self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::Doubtful { .. } => "doubtful",
            Self::Renewed { .. } => "renewed",
            Self::Lost { .. } => "lost",
            Self::Released { .. } => "released",
            Self::Ended { .. } => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{Client, Error};

    use super::*;

    /// HS1: the grant and the end of the session cross each other.
    #[tokio::test]
    async fn a_lease_that_comes_after_its_session_is_released() -> Result<(), Error> {
        let client = Client::embedded()?;
        let (sessions, clock) = (Sessions::new(), Clock::system());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let asking = session.ask(&clock).unwrap();
        let x = client.mutex("x");
        let lease = HeldLease {
            leases: client.all([&x]).acquire().await?,
            lock: "x".to_owned(),
            ttl: Duration::from_secs(30),
        };
        sessions.end(&session, "its client ended it");
        assert!(asking.adopt(lease).is_err());
        drop(x.acquire_within(Duration::from_secs(30)).await?);
        assert!(session.ask(&clock).is_err());
        sessions.close();
        assert!(sessions.open(None, String::new()).is_err());
        Ok(())
    }

    /// HS3: between two looks, a lease came and went.
    #[tokio::test]
    async fn a_stream_tells_the_difference_between_two_states() -> Result<(), Error> {
        let client = Client::embedded()?;
        let (sessions, clock) = (Sessions::new(), Clock::system());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let events = sessions.events(session.clone()).unwrap();
        let mut events = Box::pin(events);
        for name in ["x", "y", "z"] {
            let mutex = client.mutex(name);
            let lease = HeldLease {
                leases: client.all([&mutex]).acquire().await?,
                lock: name.to_owned(),
                ttl: Duration::from_secs(30),
            };
            session.ask(&clock).unwrap().adopt(lease).unwrap();
        }
        let second = session.lease_id(2);
        drop(session.give_back(&second).unwrap());
        let mut told = Vec::new();
        for _ in 0..2 {
            let (name, document) = events.next().await.unwrap();
            told.push((name, document.contains("\"lock\":\"y\"")));
        }
        assert_eq!(told, [("acquired", false), ("acquired", false)]);
        drop(session.give_back(&session.lease_id(1)).unwrap());
        assert_eq!(events.next().await.unwrap().0, "released");
        sessions.close();
        assert_eq!(events.next().await.unwrap().0, "ended");
        assert_eq!(events.next().await, None);
        Ok(())
    }
}
