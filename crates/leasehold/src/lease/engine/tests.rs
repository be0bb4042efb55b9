//! Access to the engine for tests.

use std::sync::Arc;

use super::Engine;
use crate::lease::hold::Hold;

impl Engine {
    /// Whether the client remembers nothing of any lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().machine.is_empty()
    }

    /// How many leases are renewed.
    pub(crate) fn leases(&self) -> usize {
        self.state().machine.leases_kept()
    }

    /// A lease is handed on that was made a while ago.
    pub(crate) fn hands_on(self: &Arc<Self>, hold: &Arc<Hold>) {
        let now = self.clock.now();
        let effects = {
            let mut state = self.state();
            state.machine.hands_on(hold, now);
            state.machine.effects.take()
        };
        for effect in effects {
            self.carry_out(effect, now);
        }
    }
}
