//! The routes of `/v1` together.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use leasehold::{Client, Clock};
use tokio::sync::Semaphore;

use super::gateway::Gateway;
use super::sessions::Sessions;
use super::{leases, locks, tokens};

/// The most requests that wait: three quarters of the connections of a server.
const WAITS: usize = 3_072;

/// The routes of `/v1`, for the locks of one client.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::Router;
/// use leasehold::Client;
/// use leasehold_serve::LeaseApi;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let leases = LeaseApi::new(&client);
/// // Behind the access control of this service: the routes have none.
/// let service: Router = Router::new().nest("/locks", leases.routes());
/// # drop(service); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct LeaseApi(Gateway);

impl LeaseApi {
    /// Leases of this client. They last 30 s, or as long as the store allows if that is less, unless a request says otherwise.
    pub fn new(client: &Client) -> Self {
        let clock = Clock::system();
        Self(Gateway {
            client: client.clone(),
            sessions: Sessions::new(clock.clone()),
            clock,
            ttl: Duration::from_secs(30).min(client.longest_ttl()),
            waits: Arc::new(Semaphore::new(WAITS)),
        })
    }

    /// How long leases last whose request says nothing else.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// The most streams of events and requests that wait for a lock, together: 3,072 by default. A further one is refused. Choose fewer than the
    /// connections of the server, so that beats and releases get through.
    #[must_use]
    pub fn waits(mut self, most: usize) -> Self {
        self.0.waits = Arc::new(Semaphore::new(most));
        self
    }

    /// The routes.
    pub fn routes(&self) -> Router {
        leases::routes()
            .merge(tokens::routes())
            .merge(locks::routes())
            .with_state(Arc::new(self.0.clone()))
    }

    /// Ends all sessions and releases their leases. Later requests are refused.
    pub fn close(&self) {
        self.0.sessions.close();
    }
}
