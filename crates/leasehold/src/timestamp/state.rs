//! What the user of a hold sees. Must never show a lock as confirmed that the server which answers now was not asked for.

use std::ops::Deref;

use leasehold_core::LockName;
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::error::{LossCause, Lost, Replaced};
use crate::lease::Doubtful;

/// What the user of a hold sees.
#[derive(Debug)]
pub(super) struct State {
    /// What stands under the key.
    pub(super) deadline: u64,
    pub(super) valid_until: Moment,
    /// Why the last renewal failed, or how the server was replaced since.
    pub(super) doubt: Option<String>,
    pub(super) lost: Option<LossCause>,
    /// The server was replaced since the last renewal that was confirmed (T10).
    pub(super) replaced: Option<Replaced>,
    /// The same, and it was not asked since.
    pub(super) is_to_be_confirmed: bool,
}

impl State {
    /// Why it is lost, if it is; judged by the clock as well.
    pub(super) fn loss(&self, name: &LockName, clock: &Clock) -> Option<Lost> {
        let passed = || LossCause::Deadline(self.doubt.clone());
        let overdue = || (self.valid_until <= clock.now()).then(passed);
        let cause = self.lost.clone().or_else(overdue)?;
        Some(Lost {
            name: name.as_str().to_owned(),
            fence: None,
            cause,
            replaced: self.replaced,
        })
    }
}

/// Where the keeper of a hold shows it.
#[derive(Debug)]
pub(super) struct Shown(watch::Sender<State>);

impl Shown {
    pub(super) fn new(state: watch::Sender<State>) -> Self {
        Self(state)
    }
}

impl Deref for Shown {
    type Target = watch::Sender<State>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Doubtful for Shown {
    fn valid_until(&self) -> Moment {
        self.0.borrow().valid_until
    }

    fn replaced(&self, how: Replaced, now: Moment) {
        self.0.send_if_modified(|state| {
            // Why it is over stays as it was told (T9).
            let is_held = state.lost.is_none() && state.valid_until > now;
            if is_held {
                (state.doubt, state.replaced) = (Some(how.to_string()), Some(how));
                state.is_to_be_confirmed = true;
            }
            is_held
        });
    }
}
