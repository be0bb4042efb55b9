//! The commands of a hit and of a stale read: one GET each.

use std::collections::BTreeMap;

use testkit::eventually;

use crate::fleet::{Fleet, PLENTY, Told, total};

/// The most rounds that the test tries until one is undisturbed.
const ROUNDS: u64 = 10;

/// Sends `order` to all processes. Returns the key, their replies, and the number of runs of each command.
///
/// If another command disturbs a round, the test repeats it with another key.
///
/// A process returns a stale value before it requests the refresh. So the count waits until this many `scripts` have run.
fn undisturbed(
    fleet: &mut Fleet,
    stored: &str,
    scripts: u64,
    order: impl Fn(&str) -> String,
) -> (String, Vec<Told>, BTreeMap<String, u64>) {
    for round in 0..ROUNDS {
        let key = format!("hot-{round}");
        fleet.store(&key, stored);
        // After a load of its own entry, each process is connected and knows the server's clock.
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
        // A client requests the server's time again after ten seconds, and each script reads it once. A `SET` belongs to an earlier load.
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
    let order = |key: &str| format!("offer key={key} every=1000 calls=100");
    let (key, told, ran) = undisturbed(&mut fleet, "", 0, order);
    let hits = total(&told, "fresh");
    assert_eq!(hits, 400, "{told:?}");
    assert_eq!(ran, BTreeMap::from([("get".to_owned(), hits)]), "{told:?}");
    assert_eq!(fleet.source.loads(&key), 1);
}

#[test]
fn a_stale_read_is_one_get_and_the_refresh_is_one_in_the_fleet() {
    let mut fleet = Fleet::start(4);
    // The source is closed until all calls are answered. So all of them read a stale value, and nobody waits for the load.
    let order = |key: &str| format!("offer key={key} every=1000 calls=500 closed=1 lease=30000");
    let (key, told, ran) = undisturbed(&mut fleet, "fresh=1", 4, order);
    let stale = total(&told, "stale");
    assert_eq!(stale, 2_000, "{told:?}");
    fleet.source.sign("open", &key);
    eventually(PLENTY, "it is loaded", || fleet.source.loads(&key) > 1);
    assert_eq!(fleet.source.loads(&key), 2, "{told:?}");
    // Each process runs a script that decides which process loads. It asks again after half a second. The scripts call all other commands.
    let scripts = ran["evalsha"];
    assert!(scripts < stale / 4, "{ran:?}");
    assert_eq!(ran["get"], stale, "{ran:?}");
}
