//! Ends a connection. The outcome of its steps in flight is unknown, and their callers receive an error that says so.

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
    /// The error for the callers of its steps.
    pub(in crate::store::redis) const fn describe(self) -> (StoreErrorKind, &'static str) {
        match self {
            Self::Lost => (StoreErrorKind::Unreachable, "the connection was lost"),
            Self::Silent => (StoreErrorKind::TimedOut, "the server stopped answering"),
        }
    }
}

impl Contents {
    /// Gives the connection up. Returns the callers of the steps in flight, to be answered.
    pub(super) fn disconnect(&mut self) -> Vec<Done> {
        self.state = ConnectionState::Connecting;
        (self.silent, self.demoted) = (false, false);
        let batches = self.under_way.drain();
        batches
            .flat_map(|(_, (_, batch))| batch.into_iter().filter_map(|waiting| waiting.done))
            .collect()
    }
}
