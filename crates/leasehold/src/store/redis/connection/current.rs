//! The present connection, for requests that are no steps. Must never be held for longer than a request: the next one may be another.

#[cfg(feature = "cache")]
use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use crate::error::StoreError;
#[cfg(feature = "cache")]
use crate::store::redis::server_time::ServerTime;

/// A connection that works.
#[derive(Clone)]
pub(in crate::store::redis) struct Connected {
    pub(in crate::store::redis) connection: MultiplexedConnection,
    /// What time it is on this server: of a connection, since another may lead to another server.
    #[cfg(feature = "cache")]
    pub(in crate::store::redis) time: Arc<ServerTime>,
    /// The server says what changes of what was looked at.
    #[cfg_attr(
        not(feature = "cache"),
        expect(dead_code, reason = "nothing is looked at")
    )]
    pub(in crate::store::redis) tracking: bool,
}

/// What requests that are no steps are sent over.
#[derive(Clone)]
pub(super) enum CurrentConnection {
    Connecting,
    Up(Connected),
    Down(StoreError),
}
