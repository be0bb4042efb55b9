//! What a hit and a stale read cost: one command each.

use std::collections::BTreeMap;

use testkit::eventually;

use crate::fleet::{Fleet, PLENTY, Told, total};

/// Rounds until one is undisturbed.
const ROUNDS: u64 = 10;

/// What `order` was answered, and how often each command ran meanwhile.
///
/// A round in which the server's clock was asked for besides is done again with another key.
///
/// A stale value is given before its refresh is asked for: what ran is counted when so many `scripts` did.
fn undisturbed(
    fleet: &mut Fleet,
    stored: &str,
    scripts: u64,
    order: impl Fn(&str) -> String,
) -> (String, Vec<Told>, BTreeMap<String, u64>) {
    for round in 0..ROUNDS {
        let key = format!("hot-{round}");
        fleet.store(&key, stored);
        // All are connected, and were told of the server's clock, by a load of their own.
        for (number, process) in fleet.processes.iter_mut().enumerate() {
            process.order(&format!("offer key=own-{round}-{number} callers=1 takes=1"));
        }
        fleet.end();
        let before = fleet.commands();
        let told = fleet.all(&order(&key));
        let mut ran = BTreeMap::new();
        eventually(PLENTY, "all have asked", || {
            ran = fleet
                .commands()
                .into_iter()
                .map(|(name, calls)| {
                    let earlier = before.get(&name).copied().unwrap_or_default();
                    (name, calls - earlier)
                })
                .filter(|(_, calls)| *calls > 0)
                .collect();
            ran.get("evalsha").copied().unwrap_or_default() >= scripts
        });
        // The server's clock is asked for after ten seconds, and by each script. What is yet to be stored is not of this round either.
        let count = |name: &str| ran.get(name).copied().unwrap_or_default();
        assert_eq!(count("hello"), 0, "nobody has opened another connection");
        if count("set") == 0 && count("time") == count("evalsha") {
            return (key, told, ran);
        }
    }
    panic!("every one of {ROUNDS} rounds was disturbed");
}

#[test]
fn a_hit_is_one_get() {
    let mut fleet = Fleet::start(4);
    let order = |key: &str| format!("offer key={key} every=1000 ms=500");
    let (key, told, ran) = undisturbed(&mut fleet, "", 0, order);
    let hits = total(&told, "fresh");
    assert!(hits > 100, "{told:?}");
    assert_eq!(ran, BTreeMap::from([("get".to_owned(), hits)]), "{told:?}");
    assert_eq!(fleet.source.loads(&key), 1);
}

#[test]
fn a_stale_read_is_one_get_and_the_refresh_is_one_in_the_fleet() {
    let mut fleet = Fleet::start(4);
    // The load lasts longer than the traffic, so that all of it is stale. Who loads renews after ten seconds.
    let order = |key: &str| format!("offer key={key} every=1000 ms=500 takes=5000 lease=30000");
    let (key, told, ran) = undisturbed(&mut fleet, "fresh=1", 4, order);
    let stale = total(&told, "stale");
    assert!(stale > 100, "{told:?}");
    let longest = told.iter().map(|told| told.get("stale_p99")).max();
    assert!(
        longest < Some(2_000_000),
        "nobody waits for the load: {told:?}"
    );
    eventually(PLENTY, "it is loaded", || fleet.source.loads(&key) > 1);
    assert_eq!(fleet.source.loads(&key), 2, "{told:?}");
    // One script for each process: which of them is to load; it asks again after half a second. All else is called by those scripts.
    let scripts = ran["evalsha"];
    assert!((4..=40).contains(&scripts), "{ran:?}");
    assert_eq!(ran["get"], stale, "{ran:?}");
}
