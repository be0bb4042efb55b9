//! A register is the truth: it is written, and invalidated after each write. Loaders read it into the cache at any moment
//! between their grant and their commit, and whoever is answered *fresh* must not get what was overwritten and invalidated
//! before it asked. A hundred thousand schedules, in virtual time.

mod judge;
mod rng;
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
    // It saw what it is there to see, each a thousand times.
    assert!(seen.least() > 1_000, "{seen:#?}");
}

#[test]
fn the_register_finds_every_rule_that_lets_an_old_value_look_fresh() {
    for (what, apply) in UNTRUE {
        let found = explore(*apply, SCHEDULES).err();
        println!("{what}: {}", found.as_deref().unwrap_or("nothing"));
        assert!(found.is_some(), "{what}");
    }
}

/// The register judges truth alone: what only costs loads is found by the invariants.
#[test]
fn the_register_minds_no_waste() {
    for (what, apply) in WASTEFUL {
        assert_eq!(explore(*apply, 1_000).err(), None, "{what}");
    }
}
