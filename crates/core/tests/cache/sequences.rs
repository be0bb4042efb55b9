//! The invariants after every step of random sequences, which must also find every rule that is broken on purpose.

use leasehold_core::cache::{EntryState, MEMORY};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::broken::{Apply, UNTRUE, WASTEFUL};
use crate::events::{Event, event};
use crate::run::Run;

fn hold(apply: Apply, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut run = Run::new(apply);
    for event in events {
        run.happens(event)?;
    }
    // An entry that is used once costs no memory in the end.
    run.pass(u64::try_from(MEMORY.as_micros()).unwrap() + 240_001_000);
    run.state.expire(run.now);
    prop_assert!(run.state.is_empty(), "K7");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_after_every_step(events in vec(event(), 0..100)) {
        hold(EntryState::apply, events)?;
    }
}

#[test]
fn the_invariants_find_every_broken_rule() {
    for (what, apply) in UNTRUE.iter().chain(WASTEFUL) {
        let config = Config {
            cases: 500,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..Config::default()
        };
        let sequences = vec(event(), 0..100);
        // A broken rule may violate several invariants; it counts as found when it violates the one that it is named after.
        let rule = what.split_once(": ").map_or("", |(rule, _)| rule);
        let found = TestRunner::new(config).run(&sequences, |events| {
            hold(*apply, events).or_else(|broken| match broken.to_string() {
                says if says.contains(rule) => Err(broken),
                _ => Ok(()),
            })
        });
        found.expect_err(what);
    }
}
