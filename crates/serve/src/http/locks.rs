//! The routes that only read: locks and leaders.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use leasehold::{Client, Error, HolderIdentity};
use serde::Deserialize;

use super::answer::{Named, Refusal, answer};
use super::gateway::{Api, Gateway};
use crate::documents::{InspectEntry, InspectReport, LeaderDocument};
use crate::look::{InspectedLock, known_locks, look};

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/locks", get(all))
        .route("/v1/locks/{*name}", get(one))
        .route("/v1/leaders/{*name}", get(leader))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowLocks {
    limit: Option<usize>,
}

pub(crate) type Asked<T> = Result<Query<T>, QueryRejection>;

fn query<T>(asked: Asked<T>) -> Result<T, Refusal> {
    let Query(asked) = asked.map_err(|error| Refusal::invalid(error.body_text()))?;
    Ok(asked)
}

async fn all(State(api): Api, asked: Asked<ShowLocks>) -> Result<Response, Refusal> {
    known(&api.client, asked).await
}

/// All locks of the index.
pub(crate) async fn known(client: &Client, asked: Asked<ShowLocks>) -> Result<Response, Refusal> {
    let most = query(asked)?.limit.unwrap_or(usize::MAX);
    let mut known = known_locks(client).await?;
    let omitted = known.found.len().saturating_sub(most);
    known.found.truncate(most);
    Ok(shown(client, &known.found, omitted, known.hidden))
}

async fn one(State(api): Api, Named(name): Named) -> Result<Response, Refusal> {
    let found = look(&api.client, &[name], true).await?;
    // In a list, a name that is invalid concerns no other lock.
    if let Some(Err(Error::Invalid(invalid))) = found.first().map(|found| &found.outcome) {
        return Err(invalid.clone().into());
    }
    Ok(shown(&api.client, &found, 0, 0))
}

fn shown(client: &Client, found: &[InspectedLock], omitted: usize, hidden: usize) -> Response {
    let report = InspectReport {
        store: client.store(),
        locks: found.iter().map(InspectEntry::of).collect(),
        omitted,
        hidden,
    };
    answer(StatusCode::OK, &report)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowLeader {
    /// The note that the leader must have.
    note: Option<String>,
}

/// For a probe: the status says whether there is a leader, and with `note` whether it is this one.
async fn leader(
    State(api): Api,
    Named(name): Named,
    asked: Asked<ShowLeader>,
) -> Result<Response, Refusal> {
    let asked = query(asked)?;
    let Some(leader) = api.client.election(&name).leader().await? else {
        return Err(Refusal::not_found(format!("{name:?} has no leader")).may_retry());
    };
    let is_meant = asked.note.is_none_or(|note| match &leader.who {
        HolderIdentity::Owner(owner) => owner.note() == note,
        HolderIdentity::Foreign { .. } => false,
    });
    if !is_meant {
        return Err(Refusal::busy(&name, Some(&leader)));
    }
    let document = LeaderDocument::of(api.client.store(), &name, Some(&leader), None);
    Ok(answer(StatusCode::OK, &document))
}
