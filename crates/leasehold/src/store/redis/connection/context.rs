//! The state that a connection handle and its runner share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::current::CurrentConnection;
use super::handshake::Handshake;
use super::placement::Placement;
use super::server::{ServerId, replaced};
use crate::clock::Clock;
use crate::error::{Replaced, StoreError, StoreErrorKind};
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::queue::SubmissionQueue;
use crate::store::redis::scripts::Scripts;
use crate::store::redis::seats::Seat;

/// The inputs of a connection's runner.
pub(super) struct ConnectionContext {
    pub(super) address: Address,
    pub(super) channel: String,
    pub(super) listener: Listener,
    pub(super) clock: Clock,
    pub(super) limit: Duration,
    pub(super) scripts: Arc<Scripts>,
    pub(super) queue: SubmissionQueue,
    pub(super) current: watch::Sender<CurrentConnection>,
    /// The server of the last connection, if it identified itself; `None` before the first connection.
    #[allow(
        clippy::option_option,
        reason = "the inner one says that it did not say"
    )]
    pub(super) last: Mutex<Option<Option<ServerId>>>,
    pub(super) placement: Placement,
    /// The place of a node of a quorum.
    pub(super) seat: Option<Seat>,
}

impl ConnectionContext {
    /// Takes the place of a node of a quorum. A server that does not say which one it is cannot be told from others.
    ///
    /// # Errors
    /// The server has a place already, by another address.
    pub(super) fn take_seat(&self, server: Option<&ServerId>) -> Result<(), StoreError> {
        let (Some(seat), Some(server)) = (&self.seat, server) else {
            return Ok(());
        };
        seat.take(server.run()).map_err(|other| {
            let why = format!(
                "it is the server of {other}; each vote must come from a server of its own"
            );
            StoreError::new(self.address.to_string(), StoreErrorKind::Misconfigured, why)
        })
    }

    pub(super) fn publish(&self, current: CurrentConnection) {
        self.current.send_replace(current);
    }

    /// Records the server of a new connection. Returns how it replaced the previous server, if it is another one.
    pub(super) fn record_server(&self, server: Option<&ServerId>) -> Option<Replaced> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(server.cloned())?;
        replaced(before.as_ref(), server)
    }

    pub(super) fn handshake(&self) -> Handshake<'_> {
        Handshake {
            address: &self.address,
            scripts: &self.scripts,
            channel: &self.channel,
        }
    }
}
