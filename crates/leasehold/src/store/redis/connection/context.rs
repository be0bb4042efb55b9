//! What a link and its runner share: whom they speak to, and what they tell each other. Must never send anything itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::current::CurrentConnection;
use super::handshake::Handshake;
use super::placement::Placement;
use super::server::{ServerId, replaced};
use crate::clock::Clock;
use crate::error::Replaced;
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::queue::SubmissionQueue;
use crate::store::redis::scripts::Scripts;

/// What a runner needs.
pub(super) struct ConnectionContext {
    pub(super) address: Address,
    pub(super) channel: String,
    pub(super) listener: Listener,
    /// The server is to say when something changes that was looked at.
    pub(super) tracks: bool,
    pub(super) clock: Clock,
    pub(super) limit: Duration,
    pub(super) scripts: Arc<Scripts>,
    pub(super) queue: SubmissionQueue,
    pub(super) current: watch::Sender<CurrentConnection>,
    /// The server that the last connection led to, as far as it said; `None` before the first one.
    #[allow(
        clippy::option_option,
        reason = "the inner one says that it did not say"
    )]
    pub(super) last: Mutex<Option<Option<ServerId>>>,
    pub(super) placement: Placement,
}

impl ConnectionContext {
    pub(super) fn tell(&self, current: CurrentConnection) {
        self.current.send_replace(current);
    }

    /// A connection leads to this server: how it has replaced the one of before, if it has.
    pub(super) fn meet(&self, server: Option<&ServerId>) -> Option<Replaced> {
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
