//! A register holds the true value. Writers change it and then invalidate the entry. Loaders read it into the cache at any time
//! between their grant and their commit. A reply *fresh* must not carry a value that was overwritten and invalidated before
//! the request. A hundred thousand schedules, in virtual time.

mod judge;
mod schedule;

use self::judge::Seen;

const SCHEDULES: u64 = 100_000;

#[test]
fn no_old_value_is_fresh_after_its_invalidation() {
    let mut seen = Seen::default();
    for seed in 0..SCHEDULES {
        schedule::run(seed, &mut seen).unwrap();
    }
    println!("{seen:#?}");
    // It saw each kind of event that it is meant to see, a thousand times.
    assert!(seen.least() > 1_000, "{seen:#?}");
}
