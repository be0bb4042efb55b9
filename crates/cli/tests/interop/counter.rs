//! The counter: both sides read a number, add one and write it, and only the lock keeps them apart. Must never count in one step
//! of the server, or believe a side about what it wrote.
//!
//! With the number each side writes how often it has written itself, in the same command: what the sides have written must be
//! what the counter says.

use std::time::Duration;

use testkit::eventually;

use crate::late::SOON;
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, Scene, millis, now};

/// How often each side counts.
const TURNS: u64 = 1000;

/// Longer than any story.
const LONG: Duration = Duration::from_secs(40);

pub(crate) fn a_counter_loses_nothing(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    let began = now();
    ours.tell(&format!("count {NAME} 10000 {TURNS} ours"));
    theirs.tell(&format!("count {NAME} 10000 {TURNS} theirs"));
    assert_eq!(ours.answer(), "counted");
    assert_eq!(theirs.answer(), "counted");
    let took = now().since(began);
    assert_eq!(
        (written_by(scene, "ours"), written_by(scene, "theirs")),
        (TURNS, TURNS)
    );
    assert_eq!(number(scene, "count"), 2 * TURNS, "updates are lost");
    // Both were at it at once, not one after the other.
    let changes = number(scene, "changes");
    assert!(changes >= 10, "only {changes} changes of sides");
    assert!(scene.is_free());
    format!("{TURNS} turns on each side, {changes} changes of sides, {took:.1?}")
}

/// A foreign holder is killed while both count; ours goes on when its lock has ended, and so does another of its kind.
pub(crate) fn a_counter_goes_on_after_a_killed_holder(scene: &Scene) -> String {
    // So long that no turn outlasts it on a busy machine.
    const TTL: u64 = 3000;
    const HEIRS: u64 = 50;
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    for (peer, who) in [(&mut ours, "ours"), (&mut theirs, "first")] {
        peer.tell(&format!("count {NAME} {TTL} 1000000 {who}"));
    }
    eventually(LONG, "both count", || {
        written_by(scene, "first") >= 20 && written_by(scene, "ours") >= 5
    });
    kill_while_it_holds(scene, theirs);
    let began = now();
    let left = scene.server.cli(&["PTTL", &scene.key()]).int();
    let left = Duration::from_millis(u64::try_from(left).expect("held, and with an end"));
    let (then, first) = (number(scene, "count"), written_by(scene, "first"));
    eventually(LONG, "ours goes on", || number(scene, "count") > then);
    let waited = now().since(began);
    assert!(
        waited + Duration::from_millis(2) >= left,
        "not before its end: {waited:?} of {left:?}"
    );
    let late = waited.saturating_sub(left);
    assert!(late <= SOON + SLACK, "{late:?} late");

    let mut heir = scene.theirs();
    heir.tell(&format!("count {NAME} {TTL} {HEIRS} heir"));
    assert_eq!(heir.answer(), "counted");
    scene.server.cli(&["SET", "enough", "1"]);
    assert_eq!(ours.answer(), "counted");
    assert_eq!(
        (written_by(scene, "first"), written_by(scene, "heir")),
        (first, HEIRS)
    );
    let by_us = written_by(scene, "ours");
    let all = first + HEIRS + by_us;
    assert_eq!(number(scene, "count"), all, "updates are lost");
    assert!(scene.is_free());
    format!(
        "killed after {first} turns; ours went on {} after its end; {all} turns in all",
        millis(late)
    )
}

/// Stops the foreign peer again and again, until it is one time at a moment in which it holds the lock, and kills it then.
fn kill_while_it_holds(scene: &Scene, theirs: Peer) {
    let key = scene.key();
    let holds = || {
        let value = scene.server.cli(&["GET", &key]);
        !value.is_nil() && !value.bytes().starts_with(b"lh1.")
    };
    eventually(LONG, "it is stopped while it holds", || {
        theirs.stop();
        // Twice: before the second, the server has seen all that was sent before the stop.
        let caught = holds() && holds();
        if !caught {
            theirs.resume();
        }
        caught
    });
    theirs.kill();
    assert!(holds(), "the killed one holds");
}

fn written_by(scene: &Scene, who: &str) -> u64 {
    number(scene, &format!("by:{who}"))
}

/// The number in a key; none is 0.
fn number(scene: &Scene, key: &str) -> u64 {
    let value = scene.server.cli(&["GET", key]);
    if value.is_nil() {
        0
    } else {
        value.text().parse().expect("a number")
    }
}
