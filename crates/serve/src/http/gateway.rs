//! What all routes share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use leasehold::{Client, Clock, Error};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Refusal;
use super::sessions::Sessions;
use crate::documents::millis;

/// The longest wait for a busy lock. A client that wants to wait longer asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// The time limit for the confirmation of a release, as for `leasehold hold`.
pub(crate) const RELEASE: Duration = Duration::from_secs(3);

/// The client of a server, and its sessions.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) sessions: Sessions,
    /// The TTL of leases that ask for none.
    pub(crate) ttl: Duration,
    /// How many more requests may wait for long.
    pub(crate) waits: Arc<Semaphore>,
}

impl Gateway {
    /// The permission of a request to wait: short ones get through beside them.
    pub(crate) fn wait(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = self.waits.clone().try_acquire_owned();
        permit.map_err(|_| Refusal::too_many("as many requests and streams of events wait as may"))
    }

    /// That of a request which waits for a busy lock, if it does.
    pub(crate) fn wait_if(&self, wait_ms: u64) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        (wait_ms > 0).then(|| self.wait()).transpose()
    }
}

pub(crate) type Api = State<Arc<Gateway>>;

/// The document of a lease that was given back.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.released/1")]
pub(crate) struct ReleasedDocument {
    pub(crate) lock: String,
    /// False if the store did not answer: the TTL ends the lease.
    pub(crate) confirmed: bool,
}

/// Asks once, or waits within a limit. A refusal says who has one of the locks.
pub(crate) async fn granted<T>(
    client: &Client,
    names: &[&str],
    limit: Duration,
    once: impl Future<Output = Result<Option<T>, Error>>,
    within: impl Future<Output = Result<T, Error>>,
) -> Result<T, Refusal> {
    if limit > LONGEST_WAIT {
        let why = format!("wait_ms is at most {}: ask again", millis(LONGEST_WAIT));
        return Err(Refusal::invalid(why));
    }
    if !limit.is_zero() {
        return Ok(within.await?);
    }
    if let Some(granted) = once.await? {
        return Ok(granted);
    }
    // No answer says which of several was busy: it is the first one that is held now.
    for name in names {
        if let Some(holder) = client.inspect(name).await?.holder {
            return Err(Refusal::busy(name, Some(&holder)));
        }
    }
    Err(Refusal::busy(names.first().unwrap_or(&""), None))
}
