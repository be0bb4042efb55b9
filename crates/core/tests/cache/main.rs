//! The rules of a guarded cache entry: as stories, and as invariants after every step of random sequences. The numbers are those of
//! `leasehold_core::cache`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod events;
mod run;
mod story;

use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::cache::MEMORY;
use proptest::collection::vec;
use proptest::prelude::*;

use self::events::event;
use self::run::Run;

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

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
