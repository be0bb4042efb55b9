//! How a connection ends. What it carried is unknown then, and whoever relies on what it said has to be told.

use std::sync::atomic::Ordering;

use super::{Inbox, Inner, State};
use crate::error::{StoreError, StoreErrorKind};
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

impl Inbox {
    /// The connection is given up; `tell` others. What it carried is unknown.
    pub(in crate::store::redis) fn give_up(&self, why: End, tell: impl FnOnce()) {
        let mut inner = self.lock();
        tell();
        self.listening.store(false, Ordering::Relaxed);
        let given_up = inner.give_up();
        drop(inner);
        let (kind, detail) = why.told();
        for done in given_up {
            let error = StoreError::new(&self.shown, kind, detail).unknown();
            done.answer(Err(error));
        }
    }
}

impl Inner {
    /// What was under way, and is to be told.
    fn give_up(&mut self) -> Vec<Done> {
        self.state = State::Dialing;
        (self.silent, self.demoted) = (false, false);
        let batches = self.under_way.drain();
        batches
            .flat_map(|(_, (_, batch))| batch.into_iter().filter_map(|waiting| waiting.done))
            .collect()
    }
}
