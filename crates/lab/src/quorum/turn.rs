//! One action in progress: the state that it changes.

use std::cell::Cell;

use leasehold_core::Reply;

use super::input::{ClientRules, QuorumModel};
use super::setup::QuorumSituation;
use super::state::QuorumState;

/// One action in progress.
pub(super) struct QuorumTurn<'a> {
    pub(super) model: &'a QuorumModel,
    pub(super) state: QuorumState,
    /// The node's last reply, for the trace.
    pub(super) said: Option<Reply>,
    /// The situations that it reaches, a bit each. They count if the state is within the bounds.
    pub(super) reached: Cell<u64>,
}

impl<'a> QuorumTurn<'a> {
    pub(super) fn new(model: &'a QuorumModel, state: &QuorumState) -> Self {
        Self {
            model,
            state: *state,
            said: None,
            reached: Cell::new(0),
        }
    }

    pub(super) fn reached(&self, situation: QuorumSituation) {
        self.reached.set(self.reached.get() | 1 << situation as u64);
    }

    /// Whether the clients follow this weaker rule.
    pub(super) fn is_weak(&self, rules: ClientRules) -> bool {
        self.model.rules.client == rules
    }
}

/// The state after an action.
pub(super) struct QuorumStep {
    pub(super) state: QuorumState,
    /// The node's reply.
    pub(super) said: Option<Reply>,
    /// The situations that the action reached, a bit each.
    pub(super) reached: u64,
}
