//! How a connection ends. What it carried is unknown then, and whoever relies on what it said has to be told.

use super::contents::{ConnectionState, Contents};
use crate::error::StoreErrorKind;
use crate::store::contract::Done;

/// Why a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum DisconnectReason {
    Lost,
    Silent,
}

impl DisconnectReason {
    /// What those are told who wait for an answer.
    pub(in crate::store::redis) const fn describe(self) -> (StoreErrorKind, &'static str) {
        match self {
            Self::Lost => (StoreErrorKind::Unreachable, "the connection was lost"),
            Self::Silent => (StoreErrorKind::TimedOut, "it gave no sign of life"),
        }
    }
}

impl Contents {
    /// The connection is given up: what was under way, and is to be told.
    pub(super) fn disconnect(&mut self) -> Vec<Done> {
        self.state = ConnectionState::Connecting;
        (self.silent, self.demoted) = (false, false);
        let batches = self.under_way.drain();
        batches
            .flat_map(|(_, (_, batch))| batch.into_iter().filter_map(|waiting| waiting.done))
            .collect()
    }
}
