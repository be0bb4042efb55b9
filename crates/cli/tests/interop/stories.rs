//! What must hold with every program that keeps its lock as a string: told once, for all of them.

use std::time::Duration;

use testkit::eventually;

use crate::foreign::Foreign;
use crate::late::{SOON, seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, Scene, millis, now};
use crate::{counter, side};

pub(crate) struct Story {
    pub(crate) title: &'static str,
    /// Which programs it is told of.
    pub(crate) concerns: fn(&Foreign) -> bool,
    /// Says what it measured, and panics if it ends otherwise than it should.
    pub(crate) tell: fn(&Scene) -> String,
}

const fn of_all(title: &'static str, tell: fn(&Scene) -> String) -> Story {
    let concerns = |_: &Foreign| true;
    Story {
        title,
        concerns,
        tell,
    }
}

pub(crate) const ALL: &[Story] = &[
    of_all("each_excludes_the_other", each_excludes_the_other),
    of_all(
        "a_release_is_seen_by_the_others_waiter",
        a_release_is_seen_by_the_others_waiter,
    ),
    of_all(
        "nobody_releases_the_others_lock",
        nobody_releases_the_others_lock,
    ),
    of_all(
        "a_killed_holder_delays_the_other_by_its_ttl",
        a_killed_holder_delays_the_other_by_its_ttl,
    ),
    of_all("a_counter_loses_nothing", counter::a_counter_loses_nothing),
    of_all(
        "a_counter_goes_on_after_a_killed_holder",
        counter::a_counter_goes_on_after_a_killed_holder,
    ),
    Story {
        title: "a_lock_without_an_end_is_never_taken",
        concerns: |foreign| foreign.endless,
        tell: a_lock_without_an_end_is_never_taken,
    },
    Story {
        title: "without_its_template_there_are_two_locks",
        concerns: |foreign| foreign.template != "{}",
        tell: without_its_template_there_are_two_locks,
    },
    Story {
        title: "its_waiter_without_a_limit_needs_its_signal",
        concerns: |foreign| foreign.name == "python-redis-lock",
        tell: its_waiter_without_a_limit_needs_its_signal,
    },
];

/// Longer than any story.
const LONG: &str = "30000";
const LONG_TIME: Duration = Duration::from_secs(30);

fn each_excludes_the_other(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    let attempt = format!("try {NAME} {LONG}");
    assert_eq!(theirs.ask(&attempt), "held");
    let value = scene.value();
    assert_eq!(ours.ask(&attempt), "busy");
    let seen = scene.inspect();
    assert_eq!(
        (&seen["state"], &seen["holder"]["kind"]),
        (&"held".into(), &"foreign".into())
    );
    assert_eq!(seen["holder"]["type"], "string", "{seen}");
    let format = seen["holder"]["format"].as_str();
    let formats = scene.foreign.formats;
    assert!(
        format.map_or(formats.is_empty(), |format| formats.contains(&format)),
        "{seen}"
    );
    assert!(
        seen["lease_ms"].as_u64().is_some_and(|left| left > 20_000),
        "{seen}"
    );
    assert_eq!(scene.value(), value, "left alone");
    assert_eq!(theirs.ask("release"), "released");
    assert!(scene.is_free());

    assert_eq!(ours.ask(&attempt), "held");
    let value = scene.value();
    assert!(value.starts_with(b"lh1."));
    assert_eq!(theirs.ask(&attempt), "busy");
    assert_eq!(scene.value(), value, "left alone");
    assert_eq!(ours.ask("release"), "released");
    assert!(scene.is_free());
    format!("version {}", theirs.version)
}

fn a_release_is_seen_by_the_others_waiter(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    assert_eq!(theirs.ask(&format!("try {NAME} {LONG}")), "held");
    let seen_by_us = see_their_releases(scene, &mut ours, &mut theirs);

    // Its own time to wait depends, with some, on the TTL that it asks for: once is enough then.
    let (ttl, times) = if scene.foreign.sleeps {
        (Duration::from_secs(5), 1)
    } else {
        (LONG_TIME, 5)
    };
    let mut by_them = Vec::new();
    for _ in 0..times {
        assert_eq!(theirs.ask("release"), "released");
        assert_eq!(ours.ask(&format!("try {NAME} {LONG}")), "held");
        scene.starts_to_wait(&mut theirs, ttl);
        let began = now();
        assert_eq!(ours.ask("release"), "released");
        assert_eq!(theirs.answer(), "held");
        by_them.push(now().since(began));
    }
    assert_eq!(theirs.ask("release"), "released");
    by_them.sort_unstable();
    let typical = by_them[times / 2];
    assert!(
        typical <= scene.foreign.asks_each(ttl) + SLACK,
        "{by_them:?}"
    );
    format!(
        "{seen_by_us}, by theirs within {}",
        millis(by_them[times - 1])
    )
}

/// Theirs holds, at the beginning and at the end.
fn see_their_releases(scene: &Scene, ours: &mut Peer, theirs: &mut Peer) -> String {
    seen_soon(|| {
        ours.tell(&format!("wait {NAME} {LONG}"));
        scene.ours_waits();
        let seen = timed(|| {
            assert_eq!(theirs.ask("release"), "released");
            assert_eq!(ours.answer(), "held");
        });
        assert_eq!(ours.ask("release"), "released");
        assert_eq!(theirs.ask(&format!("try {NAME} {LONG}")), "held");
        seen
    })
}

fn nobody_releases_the_others_lock(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    // Theirs has run out, and ours holds.
    assert_eq!(
        theirs.ask(&format!("try {NAME} {}", scene.foreign.ttl.as_millis())),
        "held"
    );
    assert_eq!(ours.ask(&format!("wait {NAME} {LONG}")), "held");
    let value = scene.value();
    let said = theirs.ask("release");
    assert_eq!(
        said,
        if scene.foreign.knows_loss {
            "lost"
        } else {
            "released"
        }
    );
    assert_eq!(scene.value(), value, "ours goes on");

    // Ours was deleted, and theirs holds.
    scene.server.cli(&["DEL", &scene.key()]);
    assert_eq!(theirs.ask(&format!("try {NAME} {LONG}")), "held");
    let value = scene.value();
    assert_eq!(ours.ask("release"), "lost");
    assert_eq!(scene.value(), value, "theirs goes on");
    assert_eq!(theirs.ask("release"), "released");
    assert!(scene.is_free());
    String::new()
}

fn a_lock_without_an_end_is_never_taken(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    assert_eq!(theirs.ask(&format!("try {NAME} 0")), "held");
    let value = scene.value();
    assert_eq!(ours.ask(&format!("try {NAME} {LONG}")), "busy");
    ours.tell(&format!("wait {NAME} {LONG}"));
    scene.ours_waits();
    let before = scene.requests();
    eventually(LONG_TIME, "ours has asked ten times", || {
        scene.requests() > before + 10
    });
    assert_eq!(scene.value(), value);
    assert_eq!(scene.server.cli(&["PTTL", &scene.key()]).int(), -1);
    let seen = scene.inspect();
    assert!(
        seen["state"] == "held" && seen["lease_ms"].is_null(),
        "{seen}"
    );
    assert_eq!(theirs.ask("release"), "released");
    assert_eq!(ours.answer(), "held");
    String::new()
}

fn a_killed_holder_delays_the_other_by_its_ttl(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    let ttl = scene.foreign.ttl;
    let attempt = format!("try {NAME} {}", ttl.as_millis());
    let sent = now();
    assert_eq!(theirs.ask(&attempt), "held");
    let held = now();
    theirs.kill();
    assert_eq!(ours.ask(&format!("wait {NAME} {LONG}")), "held");
    let taken = now();
    // Its key was made between the two, and the server counts whole milliseconds.
    assert!(
        taken.since(sent) + Duration::from_millis(2) >= ttl,
        "not before its end"
    );
    let late = taken.since(held).saturating_sub(ttl);
    assert!(late <= SOON + SLACK, "{late:?} late");
    ours.ask("release");

    // And the other way round.
    let mut theirs = scene.theirs();
    let sent = now();
    assert_eq!(ours.ask(&attempt), "held");
    let held = now();
    ours.kill();
    assert_eq!(
        theirs.ask(&format!("wait {NAME} {}", ttl.as_millis())),
        "held"
    );
    let taken = now();
    assert!(
        taken.since(sent) + Duration::from_millis(2) >= ttl,
        "not before its end"
    );
    let after = taken.since(held).saturating_sub(ttl);
    assert!(
        after <= scene.foreign.asks_each(ttl) + SLACK,
        "{after:?} late"
    );
    format!(
        "ours {} after its end, theirs {}",
        millis(late),
        millis(after)
    )
}

fn without_its_template_there_are_two_locks(scene: &Scene) -> String {
    let mut theirs = scene.theirs();
    let mut plain = Peer::start(&side::command("ours", scene.server.port(), "{}"));
    let attempt = format!("try {NAME} {LONG}");
    assert_eq!(theirs.ask(&attempt), "held");
    assert_eq!(plain.ask(&attempt), "held");
    assert_eq!(scene.ours().ask(&attempt), "busy");
    String::new()
}

fn its_waiter_without_a_limit_needs_its_signal(scene: &Scene) -> String {
    let (mut ours, mut theirs) = (scene.ours(), scene.theirs());
    assert_eq!(ours.ask(&format!("try {NAME} {LONG}")), "held");
    scene.starts_to_wait(&mut theirs, Duration::ZERO);
    let clients = || scene.server.cli(&["CLIENT", "LIST"]).text();
    eventually(LONG_TIME, "it sleeps", || clients().contains("cmd=blpop"));
    assert_eq!(ours.ask("release"), "released");
    assert!(
        !theirs.answers_within(Duration::from_millis(300)),
        "nothing told it"
    );
    assert!(scene.is_free());
    // What its own release does, and what the documentation says to do after ours.
    let began = now();
    scene
        .server
        .cli(&["RPUSH", &format!("lock-signal:{NAME}"), "1"]);
    assert_eq!(theirs.answer(), "held");
    let woken = now().since(began);
    assert_eq!(theirs.ask("release"), "released");
    // The signal that it leaves behind harms nobody.
    assert_eq!(ours.ask(&format!("try {NAME} {LONG}")), "held");
    format!(
        "asleep after our release; woken by a signal within {}",
        millis(woken)
    )
}
