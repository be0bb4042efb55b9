//! The state of a hold that its user sees.

use std::ops::Deref;

use leasehold_core::LockName;
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::error::{LossCause, Lost, Replaced};
use crate::lease::Doubtful;

/// The state of a hold that its user sees.
#[derive(Debug)]
pub(super) struct HoldView {
    /// The deadline in the key.
    pub(super) deadline: u64,
    pub(super) valid_until: Moment,
    /// Why the last renewal failed, or how the server was replaced since.
    pub(super) doubt: Option<String>,
    pub(super) lost: Option<LossCause>,
    /// The server was replaced since the last renewal that was confirmed (T10).
    pub(super) replaced: Option<Replaced>,
    /// The server was replaced, and the new one has not been asked yet.
    pub(super) is_to_be_confirmed: bool,
}

impl HoldView {
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

/// The sender of the state, for the keeper.
#[derive(Debug)]
pub(super) struct Shown(watch::Sender<HoldView>);

impl Shown {
    pub(super) fn new(state: watch::Sender<HoldView>) -> Self {
        Self(state)
    }
}

impl Deref for Shown {
    type Target = watch::Sender<HoldView>;

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
            // The reported cause of a loss never changes (T9).
            let is_held = state.lost.is_none() && state.valid_until > now;
            if is_held {
                (state.doubt, state.replaced) = (Some(how.to_string()), Some(how));
                state.is_to_be_confirmed = true;
            }
            is_held
        });
    }
}
