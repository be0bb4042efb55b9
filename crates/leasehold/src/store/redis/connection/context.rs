//! The state that a connection handle and its runner share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::current::CurrentConnection;
use super::handshake::Handshake;
use super::placement::Placement;
use super::server::{ServerId, replaced};
use crate::clock::{Clock, Moment};
use crate::error::Replaced;
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::queue::SubmissionQueue;
use crate::store::redis::scripts::Scripts;

/// The inputs of a connection's runner.
pub(super) struct ConnectionContext {
    pub(super) address: Address,
    pub(super) channel: String,
    pub(super) listener: Listener,
    /// The server is asked to report changes of the cache entries that were read (client tracking).
    pub(super) tracks: bool,
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
    /// Until when a node of a quorum gives no vote, in microseconds of the clock: see
    /// [`untrusted_for`](super::handshake::HandshakeResult::untrusted_for).
    pub(super) untrusted_until: AtomicU64,
}

impl ConnectionContext {
    /// How long this node gives no vote.
    pub(super) fn untrusted_for(&self) -> Duration {
        let until = Moment::from_micros(self.untrusted_until.load(Ordering::Relaxed));
        until.since(self.clock.now())
    }

    /// From now on, this node gives no vote for so long.
    pub(super) fn distrust_for(&self, left: Duration) {
        let until = self.clock.now().after(left);
        self.untrusted_until
            .store(until.as_micros(), Ordering::Relaxed);
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
            tracks: self.tracks,
        }
    }
}
