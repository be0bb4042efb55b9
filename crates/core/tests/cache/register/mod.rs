//! A register holds the true value. Writers change it and then invalidate the entry. Loaders read it into the cache at any time
//! between their grant and their commit. A reply *fresh* must not carry a value that was overwritten and invalidated before
//! the request. A hundred thousand schedules, in virtual time.

mod judge;
mod schedule;

use leasehold_core::cache::EntryState;

use self::judge::Seen;
use crate::broken::{Apply, UNTRUE, WASTEFUL};

const SCHEDULES: u64 = 100_000;

fn explore(apply: Apply, schedules: u64) -> Result<Seen, String> {
    let mut seen = Seen::default();
    for seed in 0..schedules {
        schedule::run(apply, seed, &mut seen)?;
    }
    Ok(seen)
}

#[test]
fn no_old_value_is_fresh_after_its_invalidation() {
    let seen = explore(EntryState::apply, SCHEDULES).unwrap();
    println!("{seen:#?}");
    // It saw each kind of event that it is meant to see, a thousand times.
    assert!(seen.least() > 1_000, "{seen:#?}");
}

#[test]
fn register_finds_every_rule_that_shows_old_values_as_fresh() {
    for (what, apply) in UNTRUE {
        let found = explore(*apply, SCHEDULES).err();
        println!("{what}: {}", found.as_deref().unwrap_or("nothing"));
        assert!(found.is_some(), "{what}");
    }
}

/// The register judges only stale values; rules that only cost loads are found by the invariants.
#[test]
fn the_register_minds_no_waste() {
    for (what, apply) in WASTEFUL {
        assert_eq!(explore(*apply, 1_000).err(), None, "{what}");
    }
}
