//! Requests for the state of many locks at once.

use std::cmp::Reverse;

use futures_util::future::join_all;
use leasehold::{
    Client, Error, HolderView, InspectedNodes, Snapshot, StoreError, StoreErrorKind, WaiterView,
};

/// The number of locks requested at once.
const AT_ONCE: usize = 256;

/// The state of one lock, or the error.
#[derive(Debug)]
pub struct InspectedLock {
    /// Its name.
    pub name: String,
    /// Its state.
    pub outcome: Result<Snapshot, Error>,
    /// The views of the nodes of a quorum.
    pub nodes: Option<InspectedNodes>,
}

/// Inspects all locks, at each node of a quorum. With `any_node`, the views of nodes count also if they give no verdict. Fails if the store
/// does not answer; an invalid answer about one lock affects only that lock.
pub async fn look(
    client: &Client,
    names: &[String],
    any_node: bool,
) -> Result<Vec<InspectedLock>, Error> {
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        for looked in join_all(some.iter().map(|name| look_at(client, name))).await {
            let has_views = any_node && looked.nodes.is_some();
            match looked.outcome {
                Err(error) if !has_views && !is_about_one(&error) => return Err(error),
                _ => found.push(looked),
            }
        }
    }
    Ok(found)
}

async fn look_at(client: &Client, name: &str) -> InspectedLock {
    let (outcome, nodes) = match client.inspect_nodes(name).await {
        Ok(inspected) => {
            let outcome = inspected.lock.clone().map_err(Error::from);
            // Another store is its own only node.
            let is_quorum = inspected.nodes.len() > 1;
            (outcome, is_quorum.then_some(inspected))
        }
        Err(error) => (Err(error), None),
    };
    InspectedLock {
        name: name.to_owned(),
        outcome,
        nodes,
    }
}

/// True if an error concerns a single lock only.
pub(crate) fn is_about_one(error: &Error) -> bool {
    match error {
        Error::Invalid(_) => true,
        Error::Store(store) => store.kind == StoreErrorKind::Protocol || is_denied(error),
        _ => false,
    }
}

/// True for a lock that this user may not look at. False for a refusal of the user or of a command, which concerns all
/// locks.
pub fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Store(store) if store.kind == StoreErrorKind::Denied
        && first_cause(store).contains(" key") && !first_cause(store).contains("to run "))
}

/// The locks that are held or waited for, as far as the index of the store knows.
#[derive(Debug)]
pub struct KnownLocks {
    /// Those that need attention come first.
    pub found: Vec<InspectedLock>,
    /// How many names of the index this user may not look at.
    pub hidden: usize,
}

/// Inspects all locks of the index.
pub async fn known_locks(client: &Client) -> Result<KnownLocks, Error> {
    let mut hidden = 0;
    let mut found = look(client, &client.names().await?, false).await?;
    found.retain(|found| match &found.outcome {
        Ok(snapshot) => !is_free(snapshot),
        Err(error) if is_denied(error) => {
            hidden += 1;
            false
        }
        // An invalid name belongs to no lock.
        Err(error) => !matches!(error, Error::Invalid(_)),
    });
    found.sort_by_cached_key(|found| (urgency(found), found.name.clone()));
    Ok(KnownLocks { found, hidden })
}

/// The sort key: unknown locks first, then endless ones, then those with the most waiters.
fn urgency(found: &InspectedLock) -> (u8, Reverse<usize>) {
    let Ok(snapshot) = &found.outcome else {
        return (0, Reverse(0));
    };
    let endless = snapshot.holder.as_ref().is_some_and(never_expires);
    (if endless { 1 } else { 2 }, Reverse(snapshot.queue.len()))
}

/// True if the lock has no holder and no live waiter.
pub fn is_free(snapshot: &Snapshot) -> bool {
    snapshot.holder.is_none() && !snapshot.queue.iter().any(is_alive)
}

/// True if the waiter can still be granted the lock.
pub fn is_alive(waiter: &WaiterView) -> bool {
    !waiter.seen_for.is_zero()
}

/// True if the lease has no TTL. Only the program that set the key can end it.
pub fn never_expires(holder: &HolderView) -> bool {
    holder.expires_in.is_none()
}

/// What led to the kind of an error. Of a quorum, this is the first reason; the others are of other nodes.
pub fn first_cause(error: &StoreError) -> &str {
    error.detail.split("; ").next().unwrap_or_default()
}
