//! The routes of sessions and their leases.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt, stream};
use leasehold::kind::Kind;
use leasehold::{All, Client, Invalid, Lock, Mode, Owner};
use serde::{Deserialize, Serialize};

use super::answer::{Document, Named, Refusal, answer, other_method};
use super::gateway::{Api, Gateway, RELEASE, ReleasedDocument, granted};
use super::sessions::{HeldLease, LeaseDocument, LeaseId, SessionDocument};
use crate::documents::millis;

/// The bounds of the TTL of a session.
const SESSION_TTL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];

/// How often a stream of events says that it lives.
const ALIVE: Duration = Duration::from_secs(10);

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/sessions", post(open))
        .route("/v1/sessions/{session}", get(show_session).delete(end))
        .route("/v1/sessions/{session}/beat", post(beat))
        .route(
            "/v1/sessions/{session}/events",
            get(events).head(other_method),
        )
        .route("/v1/leases", post(acquire))
        .route("/v1/leases/{lease}", get(show).delete(release))
        .route("/v1/leases/{lease}/check", post(check))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenSession {
    ttl_ms: Option<u64>,
    #[serde(default)]
    note: String,
}

async fn open(
    State(api): Api,
    Document(asked): Document<OpenSession>,
) -> Result<Response, Refusal> {
    let ttl = asked.ttl_ms.map(Duration::from_millis);
    let [least, most] = SESSION_TTL;
    if let Some(ttl) = ttl {
        leasehold::error::within("ttl_ms of a session", ttl, least, most)?;
    }
    // Otherwise each request for a lease would be refused.
    if asked.note.len() > Owner::MAX_META_BYTES {
        let why = format!("must be at most {} bytes", Owner::MAX_META_BYTES);
        return Err(Invalid::new("note", &asked.note, why).into());
    }
    let session = api.sessions.open(ttl, asked.note)?;
    Ok(answer(StatusCode::CREATED, &session))
}

async fn show_session(State(api): Api, Named(id): Named) -> Result<Response, Refusal> {
    let session: SessionDocument = api.sessions.find(&id)?.document();
    Ok(answer(StatusCode::OK, &session))
}

async fn end(State(api): Api, Named(id): Named) -> Result<Response, Refusal> {
    let session = api.sessions.find(&id)?;
    api.sessions.end(&session, "its client ended it");
    Ok(answer(StatusCode::OK, &session.document()))
}

async fn beat(
    State(api): Api,
    Named(id): Named,
    Document(Nothing {}): Document<Nothing>,
) -> Result<Response, Refusal> {
    let session = api.sessions.find(&id)?;
    session.beat(&api.clock)?;
    Ok(answer(StatusCode::OK, &session.document()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

async fn events(State(api): Api, Named(id): Named) -> Result<Response, Refusal> {
    let session = api.sessions.find(&id)?;
    let wait = api.wait()?;
    let events = api.sessions.events(session)?;
    // The stream has the permission to its end.
    let events = stream::unfold((Box::pin(events), wait), |(mut events, wait)| async move {
        let (name, text) = events.next().await?;
        let event = Event::default().event(name).data(text);
        Some((Ok::<_, std::convert::Infallible>(event), (events, wait)))
    });
    let alive = KeepAlive::new().interval(ALIVE);
    // A proxy such as nginx passes each event on at once.
    let unbuffered = [("x-accel-buffering", "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(alive)).into_response())
}

/// A lock that a client asks for, with the fields of `leasehold hold --many`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcquireLease {
    session: String,
    lock: String,
    /// Locks that are taken too, all or none.
    #[serde(default)]
    also: Vec<String>,
    mode: Option<String>,
    ttl_ms: Option<u64>,
    /// The limit of the wait. Without it, or with 0, a busy lock is not waited for.
    #[serde(default)]
    wait_ms: u64,
    note: Option<String>,
}

/// A lease that was granted, or is shown.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.lease/1")]
struct LeaseAnswer {
    #[serde(flatten)]
    lease: LeaseDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
}

async fn acquire(
    State(api): Api,
    Document(asked): Document<AcquireLease>,
) -> Result<Response, Refusal> {
    let session = api.sessions.find(&asked.session)?;
    let note = asked.note.clone().unwrap_or_else(|| session.note.clone());
    let ttl = asked.ttl_ms.map_or(api.ttl, Duration::from_millis);
    let locks = asked.locks(&api.client, ttl, &note)?;
    let names = asked.names();
    let asking = session.ask(&api.clock)?;
    let _wait = api.wait_if(asked.wait_ms)?;
    let begun = api.clock.now();
    let limit = Duration::from_millis(asked.wait_ms);
    let (once, within) = (locks.try_acquire(), locks.acquire_within(limit));
    let leases = tokio::select! {
        biased;
        ended = asking.ended() => return Err(ended),
        leases = granted(&api.client, &names, limit, once, within) => leases,
    };
    // A request whose client has gone does not get here.
    session.beat_after(begun, &api.clock);
    let leases = leases.map_err(|refusal| refusal.for_session(|lock| session.lease_on(lock)))?;
    let waited_ms = Some(millis(api.clock.now().since(begun)));
    let lock = asked.lock;
    let lease = asking.adopt(HeldLease { leases, lock, ttl })?;
    let granted = LeaseAnswer { lease, waited_ms };
    Ok(answer(StatusCode::CREATED, &granted))
}

impl AcquireLease {
    fn names(&self) -> Vec<&str> {
        let also = self.also.iter().map(String::as_str);
        [self.lock.as_str()].into_iter().chain(also).collect()
    }

    fn locks(&self, client: &Client, ttl: Duration, note: &str) -> Result<All, Invalid> {
        fn told<K: Kind>(lock: Lock<K>, ttl: Duration, note: &str) -> Lock<K> {
            lock.ttl(ttl).note(note)
        }
        let mode = self.mode.as_deref();
        let mode = mode.map_or(Ok(Mode::Exclusive), str::parse)?;
        if mode != Mode::Exclusive && !self.also.is_empty() {
            let why = "locks that are taken together are exclusive";
            return Err(Invalid::new("mode", &mode.to_string(), why));
        }
        let all = client.all([]);
        Ok(match mode {
            Mode::Exclusive => self.names().iter().fold(all, |all, name| {
                all.and(&told(client.mutex(name), ttl, note))
            }),
            Mode::Shared => all.and(&told(client.rw_lock(&self.lock).read(), ttl, note)),
            Mode::Slot(slots) => {
                all.and(&told(client.semaphore(&self.lock, slots.get()), ttl, note))
            }
        })
    }
}

async fn show(State(api): Api, Named(id): Named) -> Result<Response, Refusal> {
    let id: LeaseId = id.parse()?;
    let lease = api.sessions.of_lease(&id)?.lease(&id)?;
    let waited_ms = None;
    Ok(answer(StatusCode::OK, &LeaseAnswer { lease, waited_ms }))
}

async fn release(State(api): Api, Named(id): Named) -> Result<Response, Refusal> {
    let id: LeaseId = id.parse()?;
    let session = api.sessions.of_lease(&id)?;
    session.beat(&api.clock)?;
    let (held, releasing) = session.give_back(&id)?;
    let outcome = tokio::time::timeout(RELEASE, held.leases.release()).await;
    let confirmed = releasing.done(outcome.ok())?;
    let lock = held.lock;
    Ok(answer(
        StatusCode::OK,
        &ReleasedDocument { lock, confirmed },
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckLease {
    /// The time for which the lease must be valid.
    #[serde(default)]
    min_ms: u64,
}

async fn check(
    State(api): Api,
    Named(id): Named,
    Document(asked): Document<CheckLease>,
) -> Result<Response, Refusal> {
    let id: LeaseId = id.parse()?;
    let session = api.sessions.of_lease(&id)?;
    session.beat(&api.clock)?;
    let lease = session.lease(&id)?;
    if lease.valid_for_ms() <= asked.min_ms {
        let may_retry = asked.min_ms < lease.ttl_ms();
        return Err(Refusal::short(
            lease.valid_for_ms(),
            asked.min_ms,
            may_retry,
        ));
    }
    let waited_ms = None;
    Ok(answer(StatusCode::OK, &LeaseAnswer { lease, waited_ms }))
}
