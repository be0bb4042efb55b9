//! The entry point of a step on one lock: it calls the rules, or a broken rule if a mutation test selected one.

use crate::fence::Counter;
#[cfg(all(leasehold_mutations, debug_assertions))]
use crate::mutation::Mutation;
use crate::presence::Presence;
use crate::state::LockState;
use crate::step::{Outcome, Step};
use crate::time::Now;

impl LockState {
    /// Takes one step at `now`. A grant draws its fences from `counter`, which all locks of the store share.
    pub fn apply(
        &mut self,
        counter: &mut Counter,
        now: Now,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        #[cfg(all(leasehold_mutations, debug_assertions))]
        if let Some(mutation) = Mutation::active() {
            return mutation.apply((self, counter), now, step, presence);
        }
        self.take(counter, now, step, presence)
    }
}
