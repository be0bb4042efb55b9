//! The routes of leases without a session, which are identified by their token: as `leasehold acquire` and its fellows.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use leasehold::{Client, Clock, Detached, LeaseStatus};
use serde::Deserialize;

use super::answer::{Document, Refusal, answer};
use super::gateway::{Api, Gateway, RELEASE, ReleasedDocument, granted};
use crate::documents::{Acquired, Checked, millis};

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/tokens", post(acquire))
        .route("/v1/tokens/renew", post(renew))
        .route("/v1/tokens/check", post(check))
        .route("/v1/tokens/release", post(release))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcquireToken {
    lock: String,
    /// Nothing renews the lease, so there is no default.
    ttl_ms: u64,
    #[serde(default)]
    wait_ms: u64,
    #[serde(default)]
    note: String,
}

async fn acquire(
    State(api): Api,
    Document(asked): Document<AcquireToken>,
) -> Result<Response, Refusal> {
    let ttl = Duration::from_millis(asked.ttl_ms);
    let mutex = api.client.mutex(&asked.lock).ttl(ttl).note(asked.note);
    let _wait = api.wait_if(asked.wait_ms)?;
    let begun = api.clock.now();
    let limit = Duration::from_millis(asked.wait_ms);
    let (once, within) = (mutex.try_acquire(), mutex.acquire_within(limit));
    let names = [asked.lock.as_str()];
    let lease = tokio::select! {
        biased;
        closing = api.sessions.closed() => return Err(closing),
        lease = granted(&api.client, &names, limit, once, within) => lease?,
    };
    let waited = api.clock.now().since(begun);
    let fence = lease.fence().get();
    let (detached, status) = lease.detach(ttl).await?;
    if let Err(closing) = api.sessions.unless_closed() {
        // The answer may not arrive any more. If the store does not answer either, the TTL ends the lease.
        drop(tokio::time::timeout(RELEASE, detached.release()).await);
        return Err(closing);
    }
    let taken = Acquired {
        lock: &asked.lock,
        token: detached.token(),
        fence,
        ttl_ms: asked.ttl_ms,
        waited_ms: millis(waited),
        expires_in_ms: left(&api.clock, status),
    };
    Ok(answer(StatusCode::CREATED, &taken))
}

/// The milliseconds for which the lease is certain.
fn left(clock: &Clock, status: LeaseStatus) -> u64 {
    millis(status.valid_until.since(clock.now()))
}

/// A lease that was taken before. The token is in the body, since paths are logged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenOf {
    lock: String,
    token: String,
}

impl TokenOf {
    fn lease(&self, client: &Client) -> Result<Detached, Refusal> {
        Ok(client.detached(&self.lock, &self.token)?)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewToken {
    lock: String,
    token: String,
    ttl_ms: u64,
}

async fn renew(
    State(api): Api,
    Document(RenewToken {
        lock,
        token,
        ttl_ms,
    }): Document<RenewToken>,
) -> Result<Response, Refusal> {
    let of = TokenOf { lock, token };
    let lease = of.lease(&api.client)?;
    let status = lease.renew(Duration::from_millis(ttl_ms)).await?;
    held(&api.clock, &of.lock, status, 0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckToken {
    lock: String,
    token: String,
    #[serde(default)]
    min_ms: u64,
}

async fn check(
    State(api): Api,
    Document(CheckToken {
        lock,
        token,
        min_ms,
    }): Document<CheckToken>,
) -> Result<Response, Refusal> {
    let of = TokenOf { lock, token };
    let status = of.lease(&api.client)?.check().await?;
    held(&api.clock, &of.lock, status, min_ms)
}

/// The answer for a lease that is held.
fn held(clock: &Clock, lock: &str, status: LeaseStatus, min_ms: u64) -> Result<Response, Refusal> {
    let expires_in_ms = left(clock, status);
    if expires_in_ms <= min_ms {
        // Nothing renews it.
        return Err(Refusal::short(expires_in_ms, min_ms, false));
    }
    let checked = Checked {
        lock,
        ok: true,
        held: true,
        expires_in_ms,
        min_ms,
        fence: Some(status.fence.get()),
    };
    Ok(answer(StatusCode::OK, &checked))
}

async fn release(State(api): Api, Document(of): Document<TokenOf>) -> Result<Response, Refusal> {
    of.lease(&api.client)?.release().await?;
    let released = ReleasedDocument {
        lock: of.lock,
        confirmed: true,
    };
    Ok(answer(StatusCode::OK, &released))
}
