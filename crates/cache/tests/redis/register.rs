//! Values that change while they are loaded. The test writes a register and then invalidates the entry. After that, no process may get an
//! older value as fresh.
//!
//! `leasehold-lab` tries all schedules of a model. This test is a sample of real schedules on a real server, where all processes work at
//! once.

use crate::fleet::{Fleet, total};

/// The number of keys. Each has its own history.
const KEYS: u64 = 8;
/// The number of rounds. Each writes one key eight times, so each key gets 40 writes in all.
const WRITES: u64 = 40;

/// A number that looks random, from two other numbers.
fn mixed(key: u64, turn: u64) -> u64 {
    let mut bits = (key << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

#[test]
fn no_old_value_is_fresh_after_it_was_invalidated() {
    let mut fleet = Fleet::start(5);
    let mut writer = fleet.processes.pop().expect("there are five");
    let mut seen = (0, 0);
    for turn in 1..=WRITES {
        let key = turn % KEYS;
        let (takes, lease) = (2 + mixed(key, turn) % 24, 10 + mixed(turn, key) % 40);
        // Some leases end before their loads, without renewals. Some reads require a fresh value and wait.
        let (renewed, fresh) = (
            mixed(key, turn + 7) % 2 * 60_000,
            1 + mixed(key, turn + 3) % 60,
        );
        for (number, process) in fleet.processes.iter_mut().enumerate() {
            let must = (turn + number as u64) % 2;
            process.order(&format!(
                "offer key=k{key} every=700 calls=80 takes={takes} lease={lease} load_at_most={renewed} \
                 fresh={fresh} stale=500 must_be_fresh={must}"
            ));
        }
        for step in 0..8 {
            let (value, remove) = (turn * 10 + step, mixed(turn, step) % 3 / 2);
            writer.order(&format!("write key=k{key} value={value} remove={remove}"));
            writer.answer();
            std::thread::sleep(std::time::Duration::from_micros(mixed(step, turn) % 9000));
        }
        let told = fleet.end();
        assert_eq!(
            total(&told, "outlived"),
            0,
            "key {key}, turn {turn}: {told:?}"
        );
        assert_eq!(total(&told, "error"), 0, "key {key}, turn {turn}: {told:?}");
        let fresh = ["fresh", "waited", "loaded"]
            .iter()
            .map(|how| total(&told, how))
            .sum::<u64>();
        seen = (seen.0 + fresh, seen.1 + total(&told, "stale"));
    }
    // The reads returned both kinds of values, fresh and stale.
    assert!(seen.0 > 500 && seen.1 > 100, "{seen:?}");
}
