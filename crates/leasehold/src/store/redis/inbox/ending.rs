//! How a connection ends. What it carried is unknown then, and whoever relies on what it said has to be told.

use std::sync::atomic::Ordering;

use super::{Inbox, Inner, State};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Done;

/// Why a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum End {
    Lost,
    Silent,
    Blocked,
}

impl End {
    /// What those are told who wait for an answer.
    pub(in crate::store::redis) const fn told(self) -> (StoreErrorKind, &'static str) {
        match self {
            Self::Lost => (StoreErrorKind::Unreachable, "the connection was lost"),
            Self::Silent => (StoreErrorKind::TimedOut, "it gave no sign of life"),
            Self::Blocked => (
                StoreErrorKind::Unreachable,
                "the runtime that ran the connection was blocked or ended",
            ),
        }
    }
}

impl Inbox {
    /// The connection of this turn is given up; `tell` others. What it carried is unknown.
    pub(in crate::store::redis) fn give_up(&self, turn: u64, why: End, tell: impl FnOnce()) {
        let mut inner = self.lock();
        if self.is_turn(turn) {
            tell();
            self.listening.store(false, Ordering::Relaxed);
            let given_up = inner.give_up();
            drop(inner);
            self.tell_lost(given_up, why);
        }
    }

    /// Ends this turn, so that its runner sends nothing more; what it carried is unknown. If it had a connection, `tell` others
    /// that it ended, before anybody hears of what it carried. The next turn, unless that one had ended before.
    pub(in crate::store::redis) fn end_turn(&self, turn: u64, tell: impl FnOnce()) -> Option<u64> {
        let mut inner = self.lock();
        if !self.is_turn(turn) {
            return None;
        }
        // Only changed under the lock; read without it.
        self.turn.store(turn + 1, Ordering::SeqCst);
        self.near.store(false, Ordering::SeqCst);
        self.listening.store(false, Ordering::Relaxed);
        let was_up = matches!(inner.state, State::Up { .. });
        let given_up = inner.give_up();
        inner.called_at = None;
        drop(inner);
        self.bell.notify_one();
        if was_up {
            tell();
        }
        self.tell_lost(given_up, End::Blocked);
        Some(turn + 1)
    }

    fn tell_lost(&self, given_up: Vec<Done>, why: End) {
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
