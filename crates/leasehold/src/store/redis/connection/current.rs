//! The current connection, for out-of-band requests, which do not pass through the submission queue.
//!
//! A caller must fetch it anew for each request, since the next connection may lead to another server.

#[cfg(feature = "entries")]
use std::sync::{Arc, OnceLock};

use redis::aio::MultiplexedConnection;

use crate::error::StoreError;
#[cfg(feature = "entries")]
use crate::store::redis::server_time::ServerTime;

/// An established connection.
#[derive(Clone)]
pub(in crate::store::redis) struct Connected {
    pub(in crate::store::redis) connection: MultiplexedConnection,
    /// The clock of this connection's server. Another connection may lead to another server.
    #[cfg(feature = "entries")]
    pub(in crate::store::redis) time: Arc<ServerTime>,
    /// Whether the server reports changes of the cache entries that were read (client tracking). The first read that asks for that sets it.
    #[cfg(feature = "entries")]
    pub(in crate::store::redis) tracking: Arc<OnceLock<bool>>,
}

/// The connection that out-of-band requests use.
#[derive(Clone)]
pub(super) enum CurrentConnection {
    Connecting,
    Up(Connected),
    Down(StoreError),
}
