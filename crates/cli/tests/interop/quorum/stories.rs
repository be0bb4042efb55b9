//! Each side excludes the other, sees its release, and outlives its crash: with all nodes, and without each of them.

use std::time::Duration;

use super::scene::{LONG, QuorumScene, is_foreign};
use crate::foreign::Foreign;
use crate::late::{self, SOON, seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, millis, now};

pub(super) fn each_excludes_the_other(foreign: &'static Foreign) -> String {
    let mut version = String::new();
    for scene in QuorumScene::with_and_without_each_node(foreign) {
        let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer());
        let attempt = format!("try {NAME} {LONG}");
        for _ in 0..2 {
            assert_eq!(other.ask(&attempt), "held");
            let vote = scene.all_vote();
            assert!(is_foreign(&vote));
            assert_eq!(leasehold.ask(&attempt), "busy");
            is_seen(&scene);
            assert_eq!(scene.all_vote(), vote, "left alone");
            assert_eq!(other.ask("release"), "released");
            scene.are_free();

            assert_eq!(leasehold.ask(&attempt), "held");
            let vote = scene.all_vote();
            assert!(!is_foreign(&vote));
            assert_eq!(other.ask(&attempt), "busy");
            assert_eq!(scene.all_vote(), vote, "left alone");
            assert_eq!(leasehold.ask("release"), "released");
            scene.are_free();
        }
        version.clone_from(&other.version);
    }
    format!("version {version}")
}

/// `inspect` names a foreign holder.
fn is_seen(scene: &QuorumScene) {
    let seen = scene.inspect();
    let holder = &seen["holder"];
    assert_eq!(seen["state"], "held", "{seen}");
    assert_eq!(holder["kind"], "foreign", "{seen}");
    assert_eq!(holder["type"], "string", "{seen}");
    let format = holder["format"].as_str().expect("it guesses");
    assert!(scene.foreign.formats.contains(&format), "{seen}");
    let left = seen["lease_ms"].as_u64();
    assert!(left.is_some_and(|left| left > 20_000), "{seen}");
}

pub(super) fn a_release_is_seen_by_the_others_waiter(foreign: &'static Foreign) -> String {
    const TIMES: usize = 5;
    let scene = QuorumScene::new(foreign);
    let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer());
    assert_eq!(other.ask(&format!("try {NAME} {LONG}")), "held");
    let by_leasehold = see_foreign_releases(&scene, &mut leasehold, &mut other);

    let mut by_foreign = Vec::new();
    for _ in 0..TIMES {
        assert_eq!(other.ask("release"), "released");
        scene.are_free();
        assert_eq!(leasehold.ask(&format!("try {NAME} {LONG}")), "held");
        scene.all_vote();
        scene.starts_to_wait(&mut other, LONG);
        let began = now();
        assert_eq!(leasehold.ask("release"), "released");
        assert_eq!(other.answer(), "held");
        by_foreign.push(now().since(began));
    }
    by_foreign.sort_unstable();
    let limit = foreign.asks_each(Duration::ZERO) + SLACK;
    assert!(by_foreign[TIMES / 2] <= limit, "{by_foreign:?}");
    let worst = millis(by_foreign[TIMES - 1]);
    format!("{by_leasehold}, by the foreign client within {worst}")
}

/// The foreign peer holds the lock at the beginning and at the end.
fn see_foreign_releases(scene: &QuorumScene, leasehold: &mut Peer, foreign: &mut Peer) -> String {
    seen_soon(|| {
        scene.all_vote();
        leasehold.tell(&format!("wait {NAME} {LONG}"));
        scene.leasehold_waits();
        let seen = timed(|| {
            assert_eq!(foreign.ask("release"), "released");
            assert_eq!(leasehold.answer(), "held");
        });
        assert_eq!(leasehold.ask("release"), "released");
        scene.are_free();
        assert_eq!(foreign.ask(&format!("try {NAME} {LONG}")), "held");
        seen
    })
}

pub(super) fn a_killed_holder_delays_the_other_by_its_ttl(foreign: &'static Foreign) -> String {
    let mut worst = [Duration::ZERO; 2];
    for scene in QuorumScene::with_and_without_each_node(foreign) {
        let (mut leasehold, other) = (scene.leasehold_peer(), scene.foreign_peer());
        let late = after_the_end_of(other, &mut leasehold, || scene.expire_soon(true));
        assert!(late <= SOON + SLACK, "{late:?} late");
        worst[0] = worst[0].max(late);
        assert_eq!(leasehold.ask("release"), "released");
        scene.are_free();

        let mut heir = scene.foreign_peer();
        let late = after_the_end_of(leasehold, &mut heir, || scene.expire_soon(false));
        let limit = foreign.asks_each(Duration::ZERO) + SLACK;
        assert!(late <= limit, "{late:?} late");
        worst[1] = worst[1].max(late);
    }
    let [by_leasehold, by_foreign] = worst.map(millis);
    format!(
        "Leasehold at most {by_leasehold} after its end, the foreign client at most {by_foreign}"
    )
}

/// Kills a holder. Returns how long after the end of its lease, which comes soon, the heir has the lock.
fn after_the_end_of(mut holder: Peer, heir: &mut Peer, expire_soon: impl FnOnce()) -> Duration {
    // A busy machine may need a second attempt.
    assert_eq!(holder.ask(&format!("wait {NAME} {LONG}")), "held");
    holder.kill();
    late::after_the_end(expire_soon, heir, LONG)
}
