//! Sessions: a lease belongs to one, and a gateway that lives renews no lease of a client that is dead.
//!
//! # Invariants
//!
//! - **HS1** A lease that is granted belongs to a session that has not ended, or is released at once.
//! - **HS2** A session ends when its client gives no sign of life: no beat for its TTL, or the end of its stream of events. Its leases are
//!   released then. A request that waits is no sign of life: the connection of a dead client may stay open. Nor is the answer to one that
//!   has waited for the TTL or longer, or many of them would keep a session alive one after another.
//! - **HS3** What a stream has not told is the difference between two states, so a reader that is slow makes nothing pile up.
//! - **HS4** A lease that is lost is let go at once, with all locks that were taken together with it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
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

/// How many ends of leases a session remembers.
const MOST_ENDS: usize = 1_000;

/// The name of the number of sessions.
const SESSIONS: &str = "leasehold_serve_sessions";

/// How soon a session without a TTL must open its stream of events.
const OPENED: Duration = Duration::from_secs(10);

/// How late the end of a session may be noticed if the host slept.
const SLEPT: Duration = Duration::from_secs(5);

/// The cause of all ends at that of the server.
const CLOSED: &str = "the server ends";

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
    Refusal::not_found("there is no such lease: it has ended, or its session has")
}

fn no_session() -> Refusal {
    Refusal::not_found(
        "there is no such session: it has ended, and its leases are released; or the server was started again, and they end with their TTL",
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

/// Whether a session lives, without another sign of life.
enum Standing {
    /// It must be ended, or was, for this cause.
    Over(&'static str),
    Until(Duration),
    /// While its stream is open.
    Streamed,
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
    /// Leases that were taken out to be released, while nobody knows the outcome.
    releasing: BTreeSet<u64>,
    ends: Ends,
    last: u64,
    /// Why it ended.
    end: Option<&'static str>,
}

/// How a lease ended.
#[derive(Debug, Clone)]
enum LeaseEnd {
    /// If not `confirmed`, the store did not answer in time: the TTL ends the lease.
    Released {
        confirmed: bool,
    },
    Lost(Box<Lost>),
}

/// The last ends of leases, oldest first.
#[derive(Debug, Default)]
struct Ends {
    last: VecDeque<(u64, LeaseEnd)>,
    /// How many there were before them.
    forgotten: usize,
}

impl Ends {
    fn push(&mut self, number: u64, end: LeaseEnd) {
        if self.last.len() == MOST_ENDS {
            self.last.pop_front();
            self.forgotten += 1;
        }
        self.last.push_back((number, end));
    }

    /// The ends after the first `count` of all.
    fn after(&self, count: usize) -> impl Iterator<Item = &(u64, LeaseEnd)> {
        self.last.iter().skip(count.saturating_sub(self.forgotten))
    }

    fn count(&self) -> usize {
        self.forgotten + self.last.len()
    }

    fn loss(&self, number: u64) -> Option<&Lost> {
        self.last.iter().find_map(|(ended, end)| match end {
            LeaseEnd::Lost(lost) if *ended == number => Some(&**lost),
            _ => None,
        })
    }
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
        gauge!(SESSIONS).increment(0);
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
                releasing: BTreeSet::new(),
                ends: Ends::default(),
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
        found.ok_or_else(|| self.gone(no_session))
    }

    /// The session of a lease.
    pub(crate) fn of_lease(&self, id: &LeaseId) -> Result<Arc<Session>, Refusal> {
        let found = self.table().get(&id.0).cloned();
        found.ok_or_else(|| self.gone(no_lease))
    }

    /// Why there is no such session or lease: it is unknown, or the server ends.
    fn gone(&self, unknown: fn() -> Refusal) -> Refusal {
        if *self.is_closed.borrow() {
            ended(CLOSED)
        } else {
            unknown()
        }
    }

    /// Ends a session after its client's last sign of life (HS2), and its leases at their loss (HS4).
    async fn keep(self, session: Arc<Session>) {
        let mut changed = session.changed.subscribe();
        let mut losses = FuturesUnordered::new();
        let mut watched = 0;
        loop {
            losses.extend(session.watches_after(&mut watched));
            let over = match session.standing(self.clock.now()) {
                Standing::Over(cause) => return self.end(&session, cause),
                Standing::Until(left) => self.clock.sleep(left.min(SLEPT)).boxed(),
                Standing::Streamed => pending().boxed(),
            };
            tokio::select! {
                _ = changed.changed() => {}
                Some(number) = losses.next() => session.let_go(number),
                () = over => {}
            }
        }
    }

    /// Ends a session, and releases its leases.
    pub(crate) fn end(&self, session: &Session, cause: &'static str) {
        let mut state = session.state();
        state.end.get_or_insert(cause);
        let leases = std::mem::take(&mut state.leases);
        drop(state);
        if self.table().remove(&session.id).is_some() {
            gauge!(SESSIONS).decrement(1);
        }
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
            self.end(&session, CLOSED);
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
            return Err(Refusal::new(StatusCode::CONFLICT, "open", why));
        }
        if let Some(cause) = state.end {
            return Err(ended(cause));
        }
        state.streams += 1;
        let ends = state.ends.forgotten;
        drop(state);
        let teller = Teller {
            told: BTreeMap::new(),
            ends,
            untold: VecDeque::new(),
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

/// Refuses what needs a session that has ended.
fn ended(cause: &str) -> Refusal {
    if cause != CLOSED {
        return no_session();
    }
    let why = "the server ends, and releases the leases of all sessions: open a new session when it runs again";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "closing", why)
}

/// The answer of a server that ends.
pub(crate) fn closing() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "closing", CLOSED).may_retry()
}

impl Session {
    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self, now: Moment) -> Standing {
        let state = self.state();
        let (limit, cause) = match self.ttl {
            Some(ttl) => (ttl, "no beat came in time"),
            None => (OPENED, "its stream of events was not opened in time"),
        };
        let left = limit.saturating_sub(now.since(state.seen));
        match state.end {
            Some(cause) => Standing::Over(cause),
            None if self.ttl.is_none() && state.streams > 0 => Standing::Streamed,
            None if left.is_zero() => Standing::Over(cause),
            None => Standing::Until(left),
        }
    }

    /// A sign of life. A session without a TTL lives by its stream.
    pub(crate) fn beat(&self, clock: &Clock) -> Result<(), Refusal> {
        let mut state = self.state();
        let now = clock.now();
        let is_over = self.ttl.is_some_and(|ttl| now.since(state.seen) >= ttl);
        // A host that slept wakes late, and so does the task that ends the session. Its end is decided here.
        if is_over {
            state.end.get_or_insert("no beat came in time");
            drop(state);
            self.changed.send_replace(());
            return Err(no_session());
        }
        if let Some(cause) = state.end {
            return Err(ended(cause));
        }
        if self.ttl.is_some() {
            state.seen = now;
        }
        Ok(())
    }

    /// The beat of an answer to a request which began then (HS2).
    pub(crate) fn beat_after(&self, begun: Moment, clock: &Clock) {
        let waited = clock.now().since(begun);
        if self.ttl.is_some_and(|ttl| waited < ttl) {
            // A session that has ended adopts no lease.
            drop(self.beat(clock));
        }
    }

    /// The ends of the leases that came after this one, which becomes the last of them.
    fn watches_after(&self, last: &mut u64) -> Vec<BoxFuture<'static, u64>> {
        let state = self.state();
        let new = state.leases.range(*last + 1..);
        let watches = new.flat_map(|(number, held)| {
            let number = *number;
            held.leases.iter().map(move |lease| {
                let watch = lease.watch();
                async move {
                    drop(watch.ended().await);
                    number
                }
                .boxed()
            })
        });
        let watches = watches.collect();
        *last = state.last;
        watches
    }

    /// Takes a lease that is lost out of the session, and lets go what was taken with it (HS4).
    fn let_go(&self, number: u64) {
        let mut state = self.state();
        let held = state.leases.get(&number);
        let Some(lost) = held.and_then(|held| held.leases.loss()) else {
            return;
        };
        let held = state.leases.remove(&number);
        state.ends.push(number, LeaseEnd::Lost(lost.into()));
        drop(state);
        // The client releases what is dropped.
        drop(held);
        self.changed.send_replace(());
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
        if let Some(cause) = state.end {
            return Err(ended(cause));
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

    /// The lease of this session on a lock.
    pub(crate) fn lease_on(&self, lock: &str) -> Option<String> {
        let state = self.state();
        let mut leases = state.leases.iter();
        let (number, _) = leases.find(|(_, held)| held.leases.get(lock).is_some())?;
        Some(self.lease_id(*number).to_string())
    }

    /// The document of a lease, or its loss.
    pub(crate) fn lease(&self, id: &LeaseId) -> Result<LeaseDocument, Refusal> {
        let state = self.state();
        let held = state.leases.get(&id.1).ok_or_else(|| state.ended(id))?;
        let document = held.document(id);
        // Asked at last: a lease that ended before was lost.
        match held.leases.loss() {
            Some(lost) => Err(lost.into()),
            None => Ok(document),
        }
    }

    /// Takes a lease out of the session, to release it. Streams tell of it when the outcome is known.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        id: &LeaseId,
    ) -> Result<(HeldLease, Releasing), Refusal> {
        let mut state = self.state();
        let held = state.leases.remove(&id.1);
        let held = held.ok_or_else(|| state.ended(id))?;
        state.releasing.insert(id.1);
        drop(state);
        let releasing = Releasing {
            session: self.clone(),
            number: id.1,
            end: LeaseEnd::Released { confirmed: false },
        };
        Ok((held, releasing))
    }
}

impl SessionState {
    /// What to say of a lease that is not there.
    fn ended(&self, id: &LeaseId) -> Refusal {
        match (self.ends.loss(id.1), self.end) {
            (Some(lost), _) => lost.clone().into(),
            (None, Some(cause)) => ended(cause),
            (None, None) => no_lease(),
        }
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
        loop {
            if let Some(cause) = self.session.state().end {
                return ended(cause);
            }
            // The sender is in the session.
            let _changed = changed.changed().await;
        }
    }

    /// The session has this lease from now on, unless it has ended (HS1).
    pub(crate) fn adopt(&self, lease: HeldLease) -> Result<LeaseDocument, Refusal> {
        let mut state = self.session.state();
        if let Some(cause) = state.end {
            drop(state);
            // The client releases what is dropped.
            drop(lease);
            return Err(ended(cause));
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
    end: LeaseEnd,
}

impl Releasing {
    /// The outcome of the release. Returns whether it was confirmed.
    pub(crate) fn done(mut self, outcome: Option<Result<(), Error>>) -> Result<bool, Refusal> {
        let confirmed = matches!(outcome, Some(Ok(())));
        self.end = LeaseEnd::Released { confirmed };
        if let Some(Err(Error::Lost(lost))) = outcome {
            self.end = LeaseEnd::Lost(lost.clone().into());
            return Err(lost.into());
        }
        Ok(confirmed)
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.releasing.remove(&self.number);
        // Only a stream asks for the end of a lease that was released.
        if state.streams > 0 || matches!(self.end, LeaseEnd::Lost(_)) {
            state.ends.push(self.number, self.end.clone());
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
            let is_loss = |(_, end): &(u64, LeaseEnd)| matches!(end, LeaseEnd::Lost(_));
            state.ends.last.retain(is_loss);
        }
        drop(state);
        if self.session.ttl.is_none() {
            self.sessions
                .end(&self.session, "its stream of events was closed");
        }
    }
}

/// Tells the changes between two states of a session (HS3).
struct Teller {
    /// The leases that were told, and whether they were doubtful.
    told: BTreeMap<u64, bool>,
    /// How many ends of leases were told.
    ends: usize,
    untold: VecDeque<SessionEvent>,
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
                () = tokio::time::sleep(LOOK), if !self.told.is_empty() => {}
            }
        }
    }

    /// Finds what has changed since it was told.
    fn look(&mut self) {
        let session = self.open.session.clone();
        let state = session.state();
        for (number, held) in &state.leases {
            let (id, leases) = (session.lease_id(*number), &held.leases);
            // Its end is told once it is let go.
            if leases.is_lost() {
                continue;
            }
            let doubt = leases.doubt();
            let told = self.told.insert(*number, doubt.is_some());
            if told.is_none() {
                let document = held.document(&id);
                self.untold.push_back(SessionEvent::Acquired(document));
            }
            let lease = id.to_string();
            let valid_for_ms = millis(leases.valid_for());
            let event = match (told.unwrap_or_default(), doubt) {
                (false, Some(doubt)) => SessionEvent::Doubtful {
                    lease,
                    valid_for_ms,
                    reason: without_advice(&doubt),
                },
                (true, None) => SessionEvent::Renewed {
                    lease,
                    valid_for_ms,
                },
                _ => continue,
            };
            self.untold.push_back(event);
        }
        if let Some(cause) = state.end {
            // It says so once for all its leases.
            self.untold.push_back(SessionEvent::Ended { cause });
            self.is_over = true;
            return;
        }
        let released = |number, confirmed| SessionEvent::Released {
            lease: session.lease_id(number).to_string(),
            confirmed,
        };
        for (number, end) in state.ends.after(self.ends) {
            let was_told = self.told.remove(number).is_some();
            match end {
                LeaseEnd::Lost(lost) => {
                    let lease = session.lease_id(*number).to_string();
                    self.untold.push_back(SessionEvent::lost(lease, lost));
                }
                LeaseEnd::Released { confirmed } if was_told => {
                    self.untold.push_back(released(*number, *confirmed));
                }
                // It came and went between two looks.
                LeaseEnd::Released { .. } => {}
            }
        }
        self.ends = state.ends.count();
        // Nobody knows any more whether the others were confirmed.
        let is_there =
            |number: &u64| state.leases.contains_key(number) || state.releasing.contains(number);
        let untold = &mut self.untold;
        self.told.retain(|number, _| {
            let is_there = is_there(number);
            if !is_there {
                untold.push_back(released(*number, false));
            }
            is_there
        });
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

    /// HS2: one answer after another reaches a client that may be dead.
    #[tokio::test(start_paused = true)]
    async fn answers_do_not_keep_a_session() {
        let clock = Clock::virtual_time();
        let sessions = Sessions::new(clock.clone());
        let ttl = Duration::from_secs(60);
        let opened = sessions.open(Some(ttl), String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let begun = clock.now();
        clock.sleep(Duration::from_secs(59)).await;
        session.beat_after(begun, &clock);
        clock.sleep(Duration::from_secs(59)).await;
        assert!(session.state().end.is_none());
        session.beat_after(begun, &clock);
        clock.sleep(Duration::from_secs(2)).await;
        assert!(session.state().end.is_some());
    }

    /// HS2: the host slept, so no timer has fired.
    #[tokio::test(start_paused = true)]
    async fn a_beat_that_comes_too_late_ends_the_session() -> Result<(), Error> {
        let clock = Clock::virtual_time();
        let client = Client::builder().clock(clock.clone());
        let client = client.embedded(&Memory::new(clock.clone()))?;
        let sessions = Sessions::new(clock.clone());
        let opened = sessions.open(Some(TTL), String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let mutex = client.mutex("x").ttl(Duration::from_secs(3_600));
        take(&session, &client, &mutex, &clock).await?;
        clock.suspend(TTL);
        assert!(session.beat(&clock).is_err());
        drop(mutex.acquire_within(Duration::from_secs(1)).await?);
        assert!(sessions.find(&opened.session).is_err());
        Ok(())
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

    /// HS3: a stream that is late knows the last ends, also that of a lease which is older than all others.
    #[tokio::test]
    async fn a_stream_forgets_ends_but_confirms_none_of_them() -> Result<(), Error> {
        let client = Client::embedded()?;
        let clock = Clock::system();
        let sessions = Sessions::new(clock.clone());
        let opened = sessions.open(None, String::new()).unwrap();
        let session = sessions.find(&opened.session).unwrap();
        let mut events = Box::pin(sessions.events(session.clone()).unwrap());
        let give_back = async |number| {
            let (held, releasing) = session.give_back(&session.lease_id(number)).unwrap();
            releasing.done(Some(held.leases.release().await)).unwrap()
        };
        for name in ["first", "second"] {
            take(&session, &client, &client.mutex(name), &clock).await?;
            assert_eq!(events.next().await.unwrap().0, "acquired");
        }
        assert!(give_back(1).await);
        for number in 3..3 + MOST_ENDS as u64 {
            take(&session, &client, &client.mutex("x"), &clock).await?;
            assert!(give_back(number).await);
        }
        assert!(give_back(2).await);
        assert_eq!(session.state().ends.last.len(), MOST_ENDS);
        for (number, confirmed) in [(2, true), (1, false)] {
            let (_, document) = events.next().await.unwrap();
            let document: serde_json::Value = serde_json::from_str(&document).unwrap();
            let lease = session.lease_id(number).to_string();
            assert_eq!(document["lease"], lease);
            assert_eq!(document["confirmed"], confirmed);
        }
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
