//! The counter story: both sides read a number, add one and write it in separate commands, so only the lock
//! prevents lost updates.
//!
//! With the number each side writes its own count in the same command. The sum of both must equal the counter.

use std::time::Duration;

use testkit::{RedisServer, eventually};

use crate::late::SOON;
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, Scene, millis, now};

/// The turns of each side.
const TURNS: u64 = 1000;

/// Longer than any story.
const LONG: Duration = Duration::from_secs(40);

pub(crate) fn a_counter_loses_nothing(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    let began = now();
    leasehold.tell(&format!("count {NAME} 10000 {TURNS} leasehold"));
    foreign.tell(&format!("count {NAME} 10000 {TURNS} foreign"));
    assert_eq!(leasehold.answer(), "counted");
    assert_eq!(foreign.answer(), "counted");
    let took = now().since(began);
    for who in ["leasehold", "foreign"] {
        assert_eq!(written_by(&scene.server, who), TURNS);
    }
    let count = number(&scene.server, "count");
    assert_eq!(count, 2 * TURNS, "updates are lost");
    // Both sides counted concurrently.
    let changes = number(&scene.server, "changes");
    assert!(changes >= 10, "only {changes} changes of sides");
    assert!(scene.is_free());
    format!("{TURNS} turns on each side, {changes} changes of sides, {took:.1?}")
}

/// A foreign holder is killed while both sides count. Leasehold continues after its lease has ended, and so does
/// another foreign peer.
pub(crate) fn a_counter_goes_on_after_a_killed_holder(scene: &Scene) -> String {
    // Longer than any turn on a busy machine.
    const TTL: u64 = 10_000;
    const HEIRS: u64 = 50;
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    for (peer, who) in [(&mut leasehold, "leasehold"), (&mut foreign, "first")] {
        peer.tell(&format!("count {NAME} {TTL} 1000000 {who}"));
    }
    eventually(LONG, "both count", || {
        written_by(&scene.server, "first") >= 20 && written_by(&scene.server, "leasehold") >= 5
    });
    let key = scene.key();
    kill_while_it_holds(foreign, || {
        let value = scene.server.cli(&["GET", &key]);
        !value.is_nil() && !value.bytes().starts_with(b"lh1.")
    });
    scene.expires_soon();
    let began = now();
    let left = scene.server.cli(&["PTTL", &scene.key()]).int();
    let left = Duration::from_millis(u64::try_from(left).expect("held, and with an end"));
    let then = number(&scene.server, "count");
    let first = written_by(&scene.server, "first");
    eventually(LONG, "Leasehold goes on", || {
        number(&scene.server, "count") > then
    });
    let waited = now().since(began);
    let at_least = waited + Duration::from_millis(2);
    assert!(at_least >= left, "not before its end: {waited:?}");
    let late = waited.saturating_sub(left);
    assert!(late <= SOON + SLACK, "{late:?} late");

    let mut heir = scene.foreign_peer();
    heir.tell(&format!("count {NAME} {TTL} {HEIRS} heir"));
    assert_eq!(heir.answer(), "counted");
    scene.server.cli(&["SET", "enough", "1"]);
    assert_eq!(leasehold.answer(), "counted");
    assert_eq!(written_by(&scene.server, "first"), first);
    assert_eq!(written_by(&scene.server, "heir"), HEIRS);
    let by_leasehold = written_by(&scene.server, "leasehold");
    let all = first + HEIRS + by_leasehold;
    assert_eq!(number(&scene.server, "count"), all, "updates are lost");
    assert!(scene.is_free());
    format!(
        "killed after {first} turns; Leasehold went on {} after its end; {all} turns in all",
        millis(late)
    )
}

/// Stops the foreign peer repeatedly until it is stopped while it holds the lock, and then kills it.
pub(crate) fn kill_while_it_holds(foreign: Peer, holds: impl Fn() -> bool) {
    eventually(LONG, "it is stopped while it holds", || {
        foreign.stop();
        // Twice: before the second check the server has received everything that was sent before the stop.
        let caught = holds() && holds();
        if !caught {
            foreign.resume();
        }
        caught
    });
    foreign.kill();
    assert!(holds(), "the killed one holds");
}

/// The turns of a peer.
pub(crate) fn written_by(server: &RedisServer, who: &str) -> u64 {
    number(server, &format!("by:{who}"))
}

/// The number in a key, 0 if missing.
pub(crate) fn number(server: &RedisServer, key: &str) -> u64 {
    let value = server.cli(&["GET", key]);
    if value.is_nil() {
        0
    } else {
        value.text().parse().expect("a number")
    }
}
