//! The stories for every foreign program that stores its lock as a string.

use std::time::Duration;

use testkit::eventually;

use crate::foreign::Foreign;
use crate::late::{SOON, seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{EXPIRES_SOON, NAME, SLACK, Scene, millis, now};
use crate::{counter, side};

pub(crate) struct Story {
    pub(crate) title: &'static str,
    /// The programs that it applies to.
    pub(crate) concerns: fn(&Foreign) -> bool,
    /// Returns its measurements, and panics on failure.
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
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    let attempt = format!("try {NAME} {LONG}");
    assert_eq!(foreign.ask(&attempt), "held");
    let value = scene.value();
    assert_eq!(leasehold.ask(&attempt), "busy");
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
    assert_eq!(foreign.ask("release"), "released");
    assert!(scene.is_free());

    assert_eq!(leasehold.ask(&attempt), "held");
    let value = scene.value();
    assert!(value.starts_with(b"lh1."));
    assert_eq!(foreign.ask(&attempt), "busy");
    assert_eq!(scene.value(), value, "left alone");
    assert_eq!(leasehold.ask("release"), "released");
    assert!(scene.is_free());
    format!("version {}", foreign.version)
}

fn a_release_is_seen_by_the_others_waiter(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    assert_eq!(foreign.ask(&format!("try {NAME} {LONG}")), "held");
    let by_leasehold = see_foreign_releases(scene, &mut leasehold, &mut foreign);

    // With some libraries the waiting time depends on the requested TTL: once is enough then.
    let (ttl, times) = if scene.foreign.sleeps {
        (Duration::from_secs(6), 1)
    } else {
        (LONG_TIME, 5)
    };
    let mut by_foreign = Vec::new();
    for _ in 0..times {
        assert_eq!(foreign.ask("release"), "released");
        assert_eq!(leasehold.ask(&format!("try {NAME} {LONG}")), "held");
        scene.starts_to_wait(&mut foreign, ttl);
        let began = now();
        assert_eq!(leasehold.ask("release"), "released");
        assert_eq!(foreign.answer(), "held");
        by_foreign.push(now().since(began));
    }
    assert_eq!(foreign.ask("release"), "released");
    by_foreign.sort_unstable();
    let typical = by_foreign[times / 2];
    assert!(
        typical <= scene.foreign.asks_each(ttl) + SLACK,
        "{by_foreign:?}"
    );
    format!(
        "{by_leasehold}, by the foreign client within {}",
        millis(by_foreign[times - 1])
    )
}

/// The foreign peer holds the lock at the beginning and at the end.
fn see_foreign_releases(scene: &Scene, leasehold: &mut Peer, foreign: &mut Peer) -> String {
    seen_soon(|| {
        leasehold.tell(&format!("wait {NAME} {LONG}"));
        scene.leasehold_waits();
        let seen = timed(|| {
            assert_eq!(foreign.ask("release"), "released");
            assert_eq!(leasehold.answer(), "held");
        });
        assert_eq!(leasehold.ask("release"), "released");
        assert_eq!(foreign.ask(&format!("try {NAME} {LONG}")), "held");
        seen
    })
}

fn nobody_releases_the_others_lock(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    // The foreign lease has expired, and Leasehold holds the lock.
    assert_eq!(foreign.ask(&format!("try {NAME} {LONG}")), "held");
    scene.expires_soon();
    assert_eq!(leasehold.ask(&format!("wait {NAME} {LONG}")), "held");
    let value = scene.value();
    let said = foreign.ask("release");
    assert_eq!(
        said,
        if scene.foreign.knows_loss {
            "lost"
        } else {
            "released"
        }
    );
    assert_eq!(scene.value(), value, "Leasehold goes on");

    // Leasehold's key was deleted, and the foreign peer holds the lock.
    scene.server.cli(&["DEL", &scene.key()]);
    assert_eq!(foreign.ask(&format!("try {NAME} {LONG}")), "held");
    let value = scene.value();
    assert_eq!(leasehold.ask("release"), "lost");
    assert_eq!(scene.value(), value, "the foreign client goes on");
    assert_eq!(foreign.ask("release"), "released");
    assert!(scene.is_free());
    String::new()
}

fn a_lock_without_an_end_is_never_taken(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    assert_eq!(foreign.ask(&format!("try {NAME} 0")), "held");
    let value = scene.value();
    assert_eq!(leasehold.ask(&format!("try {NAME} {LONG}")), "busy");
    leasehold.tell(&format!("wait {NAME} {LONG}"));
    scene.leasehold_waits();
    let before = scene.requests();
    eventually(LONG_TIME, "Leasehold has asked ten times", || {
        scene.requests() > before + 10
    });
    assert_eq!(scene.value(), value);
    assert_eq!(scene.server.cli(&["PTTL", &scene.key()]).int(), -1);
    let seen = scene.inspect();
    assert!(
        seen["state"] == "held" && seen["lease_ms"].is_null(),
        "{seen}"
    );
    assert_eq!(foreign.ask("release"), "released");
    assert_eq!(leasehold.answer(), "held");
    String::new()
}

fn a_killed_holder_delays_the_other_by_its_ttl(scene: &Scene) -> String {
    let (mut leasehold, foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    let late = after_the_end_of(scene, foreign, &mut leasehold, LONG_TIME);
    assert!(late <= SOON + SLACK, "{late:?} late");
    leasehold.ask("release");

    // The reverse direction. With some libraries the waiting time depends on the requested TTL.
    let (mut foreign, ttl) = (scene.foreign_peer(), scene.foreign.ttl);
    let after = after_the_end_of(scene, leasehold, &mut foreign, ttl);
    assert!(
        after <= scene.foreign.asks_each(ttl) + SLACK,
        "{after:?} late"
    );
    format!(
        "Leasehold {} after its end, the foreign client {}",
        millis(late),
        millis(after)
    )
}

/// Kills a holder. Returns how long after the end of its lease the heir has the lock, for `ttl`.
fn after_the_end_of(scene: &Scene, mut holder: Peer, heir: &mut Peer, ttl: Duration) -> Duration {
    assert_eq!(holder.ask(&format!("try {NAME} {LONG}")), "held");
    holder.kill();
    let before = now();
    scene.expires_soon();
    let set = now();
    let ttl = ttl.as_millis();
    assert_eq!(heir.ask(&format!("wait {NAME} {ttl}")), "held");
    let taken = now();
    // The end was set between the two times, and the server counts whole milliseconds.
    assert!(
        taken.since(before) + Duration::from_millis(2) >= EXPIRES_SOON,
        "not before its end"
    );
    taken.since(set).saturating_sub(EXPIRES_SOON)
}

fn without_its_template_there_are_two_locks(scene: &Scene) -> String {
    let mut foreign = scene.foreign_peer();
    let mut plain = Peer::start(&side::command("leasehold", scene.server.port(), "{}"));
    let attempt = format!("try {NAME} {LONG}");
    assert_eq!(foreign.ask(&attempt), "held");
    assert_eq!(plain.ask(&attempt), "held");
    assert_eq!(scene.leasehold_peer().ask(&attempt), "busy");
    String::new()
}

fn its_waiter_without_a_limit_needs_its_signal(scene: &Scene) -> String {
    let (mut leasehold, mut foreign) = (scene.leasehold_peer(), scene.foreign_peer());
    assert_eq!(leasehold.ask(&format!("try {NAME} {LONG}")), "held");
    scene.starts_to_wait(&mut foreign, Duration::ZERO);
    let clients = || scene.server.cli(&["CLIENT", "LIST"]).text();
    eventually(LONG_TIME, "it sleeps", || clients().contains("cmd=blpop"));
    assert_eq!(leasehold.ask("release"), "released");
    assert!(
        !foreign.answers_within(Duration::from_millis(300)),
        "nothing told it"
    );
    assert!(scene.is_free());
    // The signal that the library's own release sends, as the documentation asks for after a release by
    // Leasehold.
    let began = now();
    scene
        .server
        .cli(&["RPUSH", &format!("lock-signal:{NAME}"), "1"]);
    assert_eq!(foreign.answer(), "held");
    let woken = now().since(began);
    assert_eq!(foreign.ask("release"), "released");
    // The left signal does no harm.
    assert_eq!(leasehold.ask(&format!("try {NAME} {LONG}")), "held");
    format!(
        "asleep after the release by Leasehold; woken by a signal within {}",
        millis(woken)
    )
}
