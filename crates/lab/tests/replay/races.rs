//! Races on real servers: rungs with a violation show it, safe ones do not.

use std::time::Duration;

use leasehold_lab::ladder::race::{RaceSettings, Raced, race};
use leasehold_lab::ladder::rungs::find;

fn raced(rung: &str, acquisitions: u64) -> Raced {
    let settings = RaceSettings {
        acquisitions,
        at_most: Duration::from_secs(6),
        // More faults, for a short race.
        pauses: 50,
        ..RaceSettings::default()
    };
    race(find(rung).unwrap(), &settings).unwrap()
}

#[test]
fn a_lock_that_anyone_can_delete_has_two_holders_at_a_time() {
    let raced = raced("set-ex-del", 1_500);
    assert!(raced.overlaps > 0, "{raced:?}");
    assert!(raced.as_the_model_says, "{raced:?}");
    assert!(raced.first_overlap_s.is_some(), "{raced:?}");
}

#[test]
fn lock_that_only_its_owner_deletes_has_one_holder() {
    let raced = raced("set-px-lua", 1_500);
    assert!(
        raced.acquisitions > 0 && raced.faults.pauses > 0,
        "the race tried nothing: {raced:?}"
    );
    assert_eq!(raced.overlaps, 0, "{raced:?}");
    assert!(raced.as_the_model_says, "{raced:?}");
}

#[test]
fn fenced_quorum_has_one_holder_and_fences_that_rise() {
    let raced = raced("quorum", 800);
    assert!(raced.acquisitions > 0, "{raced:?}");
    assert_eq!(raced.low_fences, Some(0), "{raced:?}");
    assert!(raced.as_the_model_says, "{raced:?}");
}

#[test]
fn quorum_keeps_its_promise_while_servers_lose_their_data() {
    let raced = raced("quorum-restart", 300);
    assert!(
        raced.acquisitions > 0 && raced.faults.restarts > 0,
        "the race tried nothing: {raced:?}"
    );
    assert!(raced.as_the_model_says, "{raced:?}");
}
