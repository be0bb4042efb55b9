//! Votes of a minority: neither side removes those of the other, and neither takes a lock by them.

use std::thread;
use std::time::Duration;

use testkit::eventually;

use super::scene::{LONG, QuorumScene, is_foreign};
use crate::foreign::Foreign;
use crate::scene::NAME;

const LIMIT: Duration = Duration::from_secs(20);

/// A TTL of Leasehold whose renewals come soon.
const RENEWED: &str = "6000";

/// Whether a foreign client has the vote of this node. All are up.
fn has_foreign_vote(scene: &QuorumScene, node: usize) -> bool {
    let vote = &scene.votes()[node];
    vote.as_deref().is_some_and(is_foreign)
}

pub(super) fn nobody_releases_the_others_votes(foreign: &'static Foreign) -> String {
    for scene in QuorumScene::with_and_without_each_node(foreign) {
        let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer());
        // The foreign lease has expired, and Leasehold holds the lock.
        assert_eq!(other.ask(&format!("wait {NAME} {LONG}")), "held");
        scene.all_vote();
        scene.forget_all();
        assert_eq!(leasehold.ask(&format!("wait {NAME} {LONG}")), "held");
        let vote = scene.all_vote();
        assert_eq!(other.ask("release"), foreign.after_a_loss());
        assert_eq!(scene.all_vote(), vote, "Leasehold goes on");

        // The votes for Leasehold were deleted, and the foreign peer holds the lock.
        scene.forget_all();
        assert_eq!(other.ask(&format!("try {NAME} {LONG}")), "held");
        let vote = scene.all_vote();
        assert_eq!(leasehold.ask("release"), "lost");
        assert_eq!(scene.all_vote(), vote, "the foreign client goes on");
        assert_eq!(other.ask("release"), "released");
        scene.are_free();
    }
    String::new()
}

/// One node forgets the holder's vote.
pub(super) fn a_lost_vote_gives_the_other_no_lock(foreign: &'static Foreign) -> String {
    let scene = QuorumScene::new(foreign);
    let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer());
    let attempt = format!("try {NAME} {LONG}");
    for node in 0..scene.nodes.len() {
        let rest_of = |votes: Vec<Option<Vec<u8>>>| {
            let rest = votes.into_iter().enumerate();
            let rest = rest.filter_map(|(at, vote)| vote.filter(|_| at != node));
            rest.collect::<Vec<_>>()
        };
        assert_eq!(other.ask(&attempt), "held");
        let vote = scene.all_vote();
        scene.forget(node);
        assert_eq!(leasehold.ask(&attempt), "busy");
        // It has given back its vote there.
        scene.gives_no_vote(node, false);
        leasehold.tell(&format!("wait {NAME} {LONG}"));
        scene.leasehold_waits_beside(node);
        assert_eq!(rest_of(scene.votes()), [&*vote, &*vote]);
        assert_eq!(other.ask("release"), "released");
        assert_eq!(leasehold.answer(), "held");
        assert!(!is_foreign(&scene.all_vote()));
        assert_eq!(leasehold.ask("release"), "released");
        scene.are_free();

        assert_eq!(leasehold.ask(&attempt), "held");
        let vote = scene.all_vote();
        scene.forget(node);
        assert_eq!(other.ask(&attempt), "busy");
        // Leasehold's vote may be back: that of a round whose other votes were enough.
        scene.gives_no_vote(node, true);
        assert_eq!(rest_of(scene.votes()), [&*vote, &*vote]);
        assert_eq!(leasehold.ask("release"), "released");
        scene.are_free();
    }
    String::new()
}

/// A foreign client holds the lock at one node. Leasehold has the others, and the third vote as soon as it can.
pub(super) fn a_foreign_vote_is_replaced_after_its_release(foreign: &'static Foreign) -> String {
    thread::scope(|scope| {
        for node in 0..3 {
            scope.spawn(move || a_vote_is_replaced(foreign, node));
        }
    });
    String::new()
}

fn a_vote_is_replaced(foreign: &'static Foreign, node: usize) {
    let scene = QuorumScene::new(foreign);
    let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer_with(node));
    let has_vote = || has_foreign_vote(&scene, node);
    assert_eq!(other.ask(&format!("try {NAME} {LONG}")), "held");
    assert_eq!(leasehold.ask(&format!("wait {NAME} {RENEWED}")), "held");
    assert!(has_vote(), "left alone");
    assert_eq!(other.ask("release"), "released");
    // At its next renewal.
    assert!(!is_foreign(&scene.all_vote()));
    assert_eq!(leasehold.ask("release"), "released");
    scene.are_free();
}

/// While redlock 5 retries, it keeps the votes that it has. If its process ends, they stay until their TTL ends.
pub(super) fn a_vote_of_its_killed_waiter_delays_no_other(foreign: &'static Foreign) -> String {
    for node in 0..3 {
        let scene = QuorumScene::new(foreign);
        let (mut holder, mut next) = (scene.leasehold_peer(), scene.leasehold_peer());
        let mut other = scene.foreign_peer();
        let attempt = format!("try {NAME} {LONG}");
        assert_eq!(holder.ask(&attempt), "held");
        scene.all_vote();
        scene.forget(node);
        other.tell(&format!("retry {NAME} {LONG}"));
        let has_vote = || has_foreign_vote(&scene, node);
        eventually(LIMIT, "it keeps a vote", has_vote);
        other.kill();
        assert_eq!(holder.ask("release"), "released");
        assert_eq!(next.ask(&attempt), "held");
        assert!(has_vote(), "left alone");
        assert_eq!(next.ask("release"), "released");
        for _ in 0..3 {
            assert_eq!(next.ask(&format!("wait {NAME} {LONG}")), "held");
            assert_eq!(next.ask("release"), "released");
        }
        assert!(has_vote(), "left alone");
    }
    String::new()
}
