//! The rules of a guarded cache entry: as stories, and as invariants after every step of random sequences. The numbers are those of
//! `leasehold_core::cache`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod events;
mod run;
mod story;

use std::cell::RefCell;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::cache::MEMORY;
use proptest::collection::vec;
use proptest::prop_assert;
use proptest::test_runner::{Config, TestRunner};

use self::events::event;
use self::run::{Run, Seen};

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

/// How often each event must happen: about half of what any seed gives. A sequence without them proves little.
const FLOORS: [(&str, usize); 25] = [
    ("fresh", 3_500),
    ("busy", 6_000),
    ("back-off", 600),
    ("waiters woken", 2_000),
    ("load", 6_000),
    ("load again", 800),
    ("load after a failure", 50),
    ("second loader", 3_000),
    ("renewed", 1_000),
    ("renewal refused", 3_000),
    ("commit fresh", 1_800),
    ("commit fresh after its lease", 450),
    ("commit fresh after a later load began", 150),
    ("commit fresh after a clock step", 1_200),
    ("commit stale", 1_800),
    ("commit stale after a loss", 1_300),
    ("commit overtaken", 1_200),
    ("commit never given out", 400),
    ("commit repeated", 2_600),
    ("abandoned", 1_000),
    ("abandoned too late", 3_000),
    ("invalidated", 4_500),
    ("invalidated during a load", 2_500),
    ("control lost during a load", 900),
    ("clock step and loss during a load", 700),
];

#[test]
fn the_invariants_hold_after_every_step() {
    let seen = RefCell::new(Seen::new());
    let config = Config {
        cases: 3_000,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&vec(event(), 0..100), |events| {
        let mut seen = seen.borrow_mut();
        let mut run = Run::new(&mut seen);
        for event in events {
            run.happens(event)?;
        }
        // An entry that is used once costs no memory in the end.
        run.pass(u64::try_from(MEMORY.as_micros()).unwrap() + 240_001_000);
        run.state.expire(run.now);
        prop_assert!(run.state.is_empty(), "K7");
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.into_inner();
    for (what, least) in FLOORS {
        let count = seen.get(what).copied().unwrap_or_default();
        assert!(count >= least, "{what}: {seen:#?}");
    }
}
