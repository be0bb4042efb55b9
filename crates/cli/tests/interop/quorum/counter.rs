//! Processes of both kinds count on a server beside the nodes: they read a number, add one and write it in separate commands, so only
//! the lock of the quorum prevents lost updates.

use std::time::Duration;

use testkit::eventually;

use super::scene::QuorumScene;
use crate::counter::{kill_while_it_holds, number, written_by};
use crate::foreign::Foreign;
use crate::late::SOON;
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, millis, now};

/// The time limit of each part of a story.
const LIMIT: Duration = Duration::from_secs(50);

/// Longer than any turn on a busy machine.
const TTL: u64 = 10_000;

/// More turns than any story has time for.
const ENDLESS: u64 = 1_000_000;

/// The names of two processes of each kind.
const LEASEHOLD: [&str; 2] = ["leasehold-1", "leasehold-2"];
const FOREIGN: [&str; 2] = ["foreign-1", "foreign-2"];

/// Starts processes of both kinds, which count for so many turns.
fn start(scene: &QuorumScene, foreign: &[&str], turns: u64) -> Vec<Peer> {
    let leasehold = LEASEHOLD.map(|who| (scene.leasehold_peer(), who));
    let foreign = foreign.iter().map(|who| (scene.foreign_peer(), *who));
    let peers = leasehold.into_iter().chain(foreign);
    let count = |(mut peer, who): (Peer, &str)| {
        peer.tell(&format!("count {NAME} {TTL} {turns} {who}"));
        peer
    };
    // All start together.
    peers.collect::<Vec<_>>().into_iter().map(count).collect()
}

/// The turns of some processes.
fn turns_of(scene: &QuorumScene, some: &[&str]) -> u64 {
    let turns = some.iter().map(|who| written_by(&scene.counter, who));
    turns.sum()
}

/// Waits until processes of both kinds have gone on for some turns.
fn both_go_on(scene: &QuorumScene) {
    let turns = || [LEASEHOLD, FOREIGN].map(|some| turns_of(scene, &some));
    let then = turns();
    eventually(LIMIT, "both kinds count", || {
        let now = turns();
        now[0] >= then[0] + 10 && now[1] >= then[1] + 10
    });
}

/// Ends the counting. Returns the number of turns, none of which is lost.
fn all_is_counted(scene: &QuorumScene, peers: Vec<Peer>, heirs: &[&str]) -> u64 {
    for mut peer in peers {
        assert_eq!(peer.answer(), "counted");
    }
    let all = [&LEASEHOLD[..], &FOREIGN[..], heirs].concat();
    let turns = turns_of(scene, &all);
    assert_eq!(number(&scene.counter, "count"), turns, "updates are lost");
    scene.are_free();
    turns
}

pub(super) fn a_counter_loses_nothing(foreign: &'static Foreign) -> String {
    const TURNS: u64 = 150;
    let scene = QuorumScene::new(foreign);
    let began = now();
    let turns = all_is_counted(&scene, start(&scene, &FOREIGN, TURNS), &[]);
    assert_eq!(turns, 4 * TURNS);
    let took = now().since(began);
    // All counted concurrently.
    let changes = number(&scene.counter, "changes");
    assert!(changes >= 20, "only {changes} changes of processes");
    format!("{TURNS} turns of each of 4 processes, {changes} changes of processes, {took:.1?}")
}

/// The node that queues the waiters of Leasehold is killed while all count.
pub(super) fn a_counter_goes_on_without_the_lead(foreign: &'static Foreign) -> String {
    let mut scene = QuorumScene::new(foreign);
    let peers = start(&scene, &FOREIGN, ENDLESS);
    both_go_on(&scene);
    let lead = scene.leasehold_waits();
    scene.kill(lead);
    let began = now();
    both_go_on(&scene);
    let took = now().since(began);
    both_go_on(&scene);
    scene.counter.cli(&["SET", "enough", "1"]);
    let turns = all_is_counted(&scene, peers, &[]);
    format!(
        "{turns} turns; ten of each kind within {} of its end",
        millis(took)
    )
}

/// A foreign holder is killed while all count. The others continue after its votes have ended.
pub(super) fn a_counter_goes_on_after_a_killed_holder(foreign: &'static Foreign) -> String {
    const HEIRS: u64 = 30;
    let scene = QuorumScene::new(foreign);
    let mut peers = start(&scene, &FOREIGN[..1], ENDLESS);
    let victim = peers.pop().unwrap();
    both_go_on(&scene);
    kill_while_it_holds(victim, || scene.is_held_by_foreign());
    scene.expire_soon(true);
    let (began, left) = (now(), scene.left());
    // Leasehold needs two of its votes, or one if it has got the third.
    let left = left[left.len() - 2];
    let then = number(&scene.counter, "count");
    let goes_on = || number(&scene.counter, "count") > then;
    eventually(LIMIT, "Leasehold goes on", goes_on);
    let waited = now().since(began);
    assert!(
        waited + Duration::from_millis(2) >= left,
        "not before its end: {waited:?} of {left:?}"
    );
    let late = waited.saturating_sub(left);
    assert!(late <= SOON + SLACK, "{late:?} late");

    let mut heir = scene.foreign_peer();
    heir.tell(&format!("count {NAME} {TTL} {HEIRS} heir"));
    assert_eq!(heir.answer(), "counted");
    scene.counter.cli(&["SET", "enough", "1"]);
    let turns = all_is_counted(&scene, peers, &["heir"]);
    let late = millis(late);
    format!("Leasehold went on {late} after its end; {turns} turns in all")
}
