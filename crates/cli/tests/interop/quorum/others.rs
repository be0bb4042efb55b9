//! The limits of sharing a quorum with a library that knows only a number of servers.

use super::scene::{LONG, QuorumScene};
use crate::foreign::Foreign;
use crate::scene::NAME;

/// A client that uses one of the three servers is not excluded, and does not exclude.
pub(super) fn another_number_of_nodes_does_not_exclude(foreign: &'static Foreign) -> String {
    let attempt = format!("try {NAME} {LONG}");
    for node in 0..3 {
        let scene = QuorumScene::new(foreign);
        let (mut leasehold, mut other) = (scene.leasehold_peer(), scene.foreign_peer_with(node));
        assert_eq!(other.ask(&attempt), "held");
        assert_eq!(leasehold.ask(&attempt), "held", "two votes are a majority");
        assert_eq!(
            scene.foreign_peer().ask(&attempt),
            "busy",
            "it counts three"
        );
        assert_eq!(leasehold.ask("release"), "released");
        assert_eq!(other.ask("release"), "released");
        scene.are_free();
    }
    String::new()
}

/// Two nodes restart without their data while a third one is a part of the holder's majority. For Leasehold they give no vote until
/// their quarantine ends. A foreign library knows no quarantine.
pub(super) fn a_node_that_forgot_gives_votes_to_it_alone(foreign: &'static Foreign) -> String {
    let scene = QuorumScene::new(foreign);
    let attempt = format!("try {NAME} {LONG}");
    let mut leasehold = scene.leasehold_peer();
    assert_eq!(leasehold.ask(&attempt), "held");
    scene.all_vote();
    scene.nodes[1].restart();
    scene.nodes[2].restart();
    let template = ["--key-template", foreign.template];
    let words = [&template[..], &["--try", NAME, "--", "true"]].concat();
    let refused = scene.leasehold(&["run"], &words);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(69), "{said}");
    assert!(said.contains("gives no vote for another"), "{said}");
    assert_eq!(scene.foreign_peer().ask(&attempt), "held", "an overlap");
    String::new()
}
