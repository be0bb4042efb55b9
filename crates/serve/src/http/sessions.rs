//! Sessions: a lease belongs to one, and a gateway that lives renews no lease of a client that is dead.
//!
//! # Invariants
//!
//! - **HS1** A lease that is granted belongs to a session that has not ended, or is released at once.
//! - **HS2** A session ends when its client gives no sign of life: no beat for its TTL, or the end of its stream of events. Its leases are
//!   released then. A request that waits is no sign of life: the connection of a dead client may stay open.
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
use leasehold::{Clock, Error, Fence, Lease, Leases, Lost, Moment};
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
    open: Arc<Mutex<HashMap<SessionId, Arc<Session>>>>,
    /// Whether the server ends. It changes while `open` is locked.
    is_closed: watch::Sender<bool>,
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
    /// The last beat. That of a session without a TTL is its begin.
    seen: Moment,
    /// Requests for leases under way.
    requests: usize,
    streams: usize,
    leases: BTreeMap<u64, HeldLease>,
    /// Leases that were taken out to be released, and what streams do not know yet.
    given_back: BTreeMap<u64, GivenBack>,
    /// Up to this number, such entries were forgotten for a stream that is not read.
    forgotten: u64,
    last: u64,
    /// Why it ended.
    end: Option<&'static str>,
}

/// How the release of a lease went. One that was confirmed leaves no entry.
#[derive(Debug)]
enum GivenBack {
    /// The store has not answered yet.
    Asked,
    /// The store did not answer in time: the TTL ends the lease.
    Unconfirmed,
    /// The lease was lost before.
    Lost(Lost),
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
    /// The lease was given back. If not `confirmed`, the store did not answer, and the TTL ends it.
    Released { lease: String, confirmed: bool },
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
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            open: Arc::default(),
            is_closed: watch::Sender::new(false),
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
                given_back: BTreeMap::new(),
                forgotten: 0,
                last: 0,
                end: None,
            }),
            changed: watch::Sender::new(()),
        });
        let mut table = self.table();
        self.unless_closed()?;
        if table.len() >= MOST_SESSIONS {
            return Err(Refusal::too_many(format!(
                "there are {MOST_SESSIONS} sessions already"
            )));
        }
        table.insert(session.id.clone(), session.clone());
        gauge!(SESSIONS).increment(1);
        drop(table);
        let document = session.document();
        // It lives as long as the session, which needs no task of a client.
        #[expect(clippy::disallowed_methods, reason = "a runtime serves these requests")]
        drop(tokio::spawn(self.clone().keep(session)));
        Ok(document)
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Session>, Refusal> {
        let found = self.table().get(&SessionId(id.to_owned())).cloned();
        found.ok_or_else(no_session)
    }

    /// The session of a lease.
    pub(crate) fn of_lease(&self, id: &LeaseId) -> Result<Arc<Session>, Refusal> {
        let found = self.table().get(&id.0).cloned();
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
        if self.table().remove(&session.id).is_some() {
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
        let table = self.table();
        self.is_closed.send_replace(true);
        let open: Vec<_> = table.values().cloned().collect();
        drop(table);
        for session in open {
            self.end(&session, "the server ends");
        }
    }

    /// Refuses what begins after the end.
    pub(crate) fn unless_closed(&self) -> Result<(), Refusal> {
        if *self.is_closed.borrow() {
            return Err(closing());
        }
        Ok(())
    }

    /// Waits until the server ends.
    pub(crate) async fn closed(&self) -> Refusal {
        // The sender is here.
        drop(self.is_closed.subscribe().wait_for(|is| *is).await);
        closing()
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

/// The answer of a server that ends.
pub(crate) fn closing() -> Refusal {
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Refusal::new(status, "closing", "the server ends").may_retry()
}

impl Session {
    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it lives without another sign of life, and the cause of its end then. `None` while it lives by a stream.
    fn left(&self, now: Moment) -> (Option<Duration>, &'static str) {
        let state = self.state();
        let (limit, cause) = match self.ttl {
            Some(ttl) => (ttl, "no beat came in time"),
            None => (OPENED, "its stream of events was not opened in time"),
        };
        let lives = self.ttl.is_none() && state.streams > 0;
        let left = limit.saturating_sub(now.since(state.seen));
        ((!lives).then_some(left), cause)
    }

    /// A sign of life. A session without a TTL lives by its stream.
    pub(crate) fn beat(&self, clock: &Clock) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(no_session());
        }
        if self.ttl.is_some() {
            state.seen = clock.now();
        }
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

    /// Begins a request for a lease, which is a beat.
    pub(crate) fn ask(self: &Arc<Self>, clock: &Clock) -> Result<Asking, Refusal> {
        self.beat(clock)?;
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

    /// Takes a lease out of the session, to release it. Streams tell of it when the outcome is known.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        id: &LeaseId,
    ) -> Result<(HeldLease, Releasing), Refusal> {
        let mut state = self.state();
        let lease = state.leases.remove(&id.1).ok_or_else(no_lease)?;
        state.given_back.insert(id.1, GivenBack::Asked);
        drop(state);
        let releasing = Releasing {
            session: self.clone(),
            number: id.1,
            outcome: Some(GivenBack::Unconfirmed),
        };
        Ok((lease, releasing))
    }
}

impl LeaseDocument {
    pub(crate) fn valid_for_ms(&self) -> u64 {
        self.valid_for_ms
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }
}

/// A request for a lease, under way.
pub(crate) struct Asking {
    session: Arc<Session>,
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
        self.session.state().requests -= 1;
    }
}

/// The release of a lease, under way. Dropped without an outcome, it is not confirmed: its client has gone, or the store does not answer.
pub(crate) struct Releasing {
    session: Arc<Session>,
    number: u64,
    /// `None` if it was confirmed.
    outcome: Option<GivenBack>,
}

impl Releasing {
    /// The outcome of the release. Returns whether it was confirmed.
    pub(crate) fn done(mut self, outcome: Option<Result<(), Error>>) -> Result<bool, Refusal> {
        match outcome {
            Some(Ok(())) => {
                self.outcome = None;
                Ok(true)
            }
            Some(Err(Error::Lost(lost))) => {
                self.outcome = Some(GivenBack::Lost(lost.clone()));
                Err(lost.into())
            }
            Some(Err(_)) | None => Ok(false),
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.given_back.remove(&self.number);
        if let Some(outcome) = self.outcome.take()
            && state.streams > 0
        {
            state.given_back.insert(self.number, outcome);
            // A reader that is slow makes nothing pile up (HS3).
            if state.given_back.len() > MOST_LEASES
                && let Some((number, _)) = state.given_back.pop_first()
            {
                state.forgotten = number;
            }
        }
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
        let mut state = self.session.state();
        state.streams -= 1;
        if state.streams == 0 {
            let asked = |_: &u64, release: &mut GivenBack| matches!(release, GivenBack::Asked);
            state.given_back.retain(asked);
        }
        drop(state);
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
                (Standing::Lost, Some(lost)) => {
                    self.untold.push_back(SessionEvent::lost(id, &lost));
                }
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
        let asked = |number: &u64| matches!(state.given_back.get(number), Some(GivenBack::Asked));
        let gone = |number: &u64| !state.leases.contains_key(number) && !asked(number);
        let gone: Vec<u64> = self.told.keys().copied().filter(gone).collect();
        for number in gone {
            let was = self.told.remove(&number);
            // A session that ends says so once, and a loss is the last event of its lease.
            if state.end.is_none() && was != Some(Standing::Lost) {
                let lease = session.lease_id(number).to_string();
                self.untold.push_back(match state.given_back.get(&number) {
                    Some(GivenBack::Lost(lost)) => SessionEvent::lost(lease, lost),
                    release => SessionEvent::Released {
                        lease,
                        confirmed: release.is_none() && number > state.forgotten,
                    },
                });
            }
        }
        if let Some(cause) = state.end {
            self.untold.push_back(SessionEvent::Ended { cause });
            self.is_over = true;
        }
    }
}

impl SessionEvent {
    fn lost(lease: String, lost: &Lost) -> Self {
        Self::Lost {
            lease,
            cause: without_advice(&lost.reason()),
            lock: lost.name.clone(),
        }
    }

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
    use leasehold::{Client, Memory, Mutex as LockMutex};

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    /// The lease on a lock.
    async fn held(client: &Client, mutex: &LockMutex) -> Result<HeldLease, Error> {
        let leases = client.all([mutex]).acquire().await?;
        let lock = leases.iter().map(Lease::name).collect();
        Ok(HeldLease {
            leases,
            lock,
            ttl: TTL,
        })
    }

    /// Gives the session the lease on a lock.
    async fn take(
        session: &Arc<Session>,
        client: &Client,
        mutex: &LockMutex,
        clock: &Clock,
    ) -> Result<(), Error> {
        let asking = session.ask(clock).unwrap();
        asking.adopt(held(client, mutex).await?).unwrap();
        Ok(())
    }

    /// HS1: the grant and the end of the session cross each other.
    #[tokio::test]
    async fn a_lease_that_comes_after_its_session_is_released() -> Result<(), Error> {
        let client = Client::embedded()?;
        let clock = Clock::system();
        let sessions = Sessions::new(clock.clone());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let asking = session.ask(&clock).unwrap();
        let x = client.mutex("x");
        let lease = held(&client, &x).await?;
        sessions.end(&session, "its client ended it");
        assert!(asking.adopt(lease).is_err());
        drop(x.acquire_within(Duration::from_secs(30)).await?);
        assert!(session.ask(&clock).is_err());
        sessions.close();
        assert!(sessions.open(None, String::new()).is_err());
        Ok(())
    }

    /// HS2: the request may wait for a dead client.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_is_one_beat() {
        let clock = Clock::virtual_time();
        let sessions = Sessions::new(clock.clone());
        let ttl = Duration::from_secs(60);
        let opened = sessions.open(Some(ttl), String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        clock.sleep(Duration::from_secs(50)).await;
        let (begun, asking) = (clock.now(), session.ask(&clock).unwrap());
        let ended = tokio::time::timeout(2 * ttl, asking.ended()).await;
        assert!(ended.is_ok());
        assert_eq!(clock.now().since(begun).as_secs(), ttl.as_secs());

        // Its client has gone.
        let opened = sessions.open(Some(ttl), String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let asking = session.ask(&clock).unwrap();
        clock.sleep(Duration::from_secs(50)).await;
        drop(asking);
        clock.sleep(Duration::from_secs(11)).await;
        assert!(session.state().end.is_some());
        assert!(sessions.find(&opened.session).is_err());
    }

    /// HS3: between two looks, a lease came and went.
    #[tokio::test]
    async fn a_stream_tells_the_difference_between_two_states() -> Result<(), Error> {
        let client = Client::embedded()?;
        let clock = Clock::system();
        let sessions = Sessions::new(clock.clone());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let events = sessions.events(session.clone()).unwrap();
        let mut events = Box::pin(events);
        for name in ["x", "y", "z"] {
            take(&session, &client, &client.mutex(name), &clock).await?;
        }
        let release = async |number| {
            let (held, releasing) = session.give_back(&session.lease_id(number)).unwrap();
            releasing.done(Some(held.leases.release().await)).unwrap()
        };
        assert!(release(2).await);
        let mut told = Vec::new();
        for _ in 0..2 {
            let (name, document) = events.next().await.unwrap();
            told.push((name, document.contains("\"lock\":\"y\"")));
        }
        assert_eq!(told, [("acquired", false), ("acquired", false)]);
        assert!(release(1).await);
        assert_eq!(events.next().await.unwrap().0, "released");
        sessions.close();
        assert_eq!(events.next().await.unwrap().0, "ended");
        assert_eq!(events.next().await, None);
        Ok(())
    }

    /// The stream says nothing of a release before its outcome is known.
    #[tokio::test(start_paused = true)]
    async fn a_stream_tells_the_outcome_of_a_release() -> Result<(), Error> {
        let clock = Clock::virtual_time();
        let client = Client::builder().clock(clock.clone());
        let client = client.embedded(&Memory::new(clock.clone()))?;
        let sessions = Sessions::new(clock.clone());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let mut events = Box::pin(sessions.events(session.clone()).unwrap());
        for (passes, is_answered, told) in [
            (TTL, true, "lost"),
            (LOOK, true, "released true"),
            (LOOK, false, "released false"),
        ] {
            let mutex = client.mutex(told).ttl(TTL).auto_renew(false);
            take(&session, &client, &mutex, &clock).await?;
            assert_eq!(events.next().await.unwrap().0, "acquired");
            let number = session.state().last;
            let (held, releasing) = session.give_back(&session.lease_id(number)).unwrap();
            clock.sleep(passes).await;
            assert!(events.next().now_or_never().is_none(), "{told}");
            if is_answered {
                let outcome = releasing.done(Some(held.leases.release().await));
                assert_eq!(outcome.is_ok(), told != "lost");
            } else {
                drop(releasing);
            }
            let (name, document) = events.next().await.unwrap();
            let confirmed = document.contains("\"confirmed\":true");
            let event = match name {
                "released" => format!("{name} {confirmed}"),
                _ => name.to_owned(),
            };
            assert_eq!(event, told);
        }
        Ok(())
    }
}
