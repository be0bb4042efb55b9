//! The invariants after every step of random sequences.

use leasehold_core::cache::MEMORY;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::events::event;
use crate::run::Run;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_after_every_step(events in vec(event(), 0..100)) {
        let mut run = Run::new();
        for event in events {
            run.happens(event)?;
        }
        // An entry that is used once costs no memory in the end.
        run.pass(u64::try_from(MEMORY.as_micros()).unwrap() + 240_001_000);
        run.state.expire(run.now);
        prop_assert!(run.state.is_empty(), "K7");
    }
}
