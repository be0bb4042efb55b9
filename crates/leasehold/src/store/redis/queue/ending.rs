//! How a connection ends. What it carried is unknown then, and whoever relies on what it said has to be told.

use super::contents::{Contents, State};
use crate::error::StoreErrorKind;
use crate::store::contract::Done;

/// Why a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum End {
    Lost,
    Silent,
}

impl End {
    /// What those are told who wait for an answer.
    pub(in crate::store::redis) const fn told(self) -> (StoreErrorKind, &'static str) {
        match self {
            Self::Lost => (StoreErrorKind::Unreachable, "the connection was lost"),
            Self::Silent => (StoreErrorKind::TimedOut, "it gave no sign of life"),
        }
    }
}

impl Contents {
    /// The connection is given up: what was under way, and is to be told.
    pub(super) fn give_up(&mut self) -> Vec<Done> {
        self.state = State::Dialing;
        (self.silent, self.demoted) = (false, false);
        let batches = self.under_way.drain();
        batches
            .flat_map(|(_, (_, batch))| batch.into_iter().filter_map(|waiting| waiting.done))
            .collect()
    }
}
