//! The stories for every foreign program that stores its lock as a string.

use std::time::Duration;

use testkit::eventually;

use crate::counter::{a_counter_goes_on_after_a_killed_holder, a_counter_loses_nothing};
use crate::foreign::Foreign;
use crate::late::{self, SOON, seen_soon, timed};
use crate::peer::Peer;
use crate::scene::{NAME, SLACK, Scene, millis, now};
use crate::{Story, named, side};

type Tell = fn(&Scene) -> String;

/// The stories of a program.
pub(crate) fn of(foreign: &'static Foreign) -> Vec<Story> {
    let all: [(&str, Tell); 9] = named![
        each_excludes_the_other,
        a_release_is_seen_by_the_others_waiter,
        nobody_releases_the_others_lock,
        a_killed_holder_delays_the_other_by_its_ttl,
        a_counter_loses_nothing,
        a_counter_goes_on_after_a_killed_holder,
        a_lock_without_an_end_is_never_taken,
        without_its_template_there_are_two_locks,
        its_waiter_without_a_limit_needs_its_signal,
    ];
    let apply = all.into_iter().filter(|(title, _)| match *title {
        "a_lock_without_an_end_is_never_taken" => foreign.endless,
        "without_its_template_there_are_two_locks" => foreign.template != "{}",
        "its_waiter_without_a_limit_needs_its_signal" => foreign.name == "python-redis-lock",
        _ => true,
    });
    let story = |(title, tell): (&str, Tell)| -> Story {
        let title = format!("{} {title}", foreign.name);
        (title, Box::new(move || tell(&Scene::new(foreign))))
    };
    apply.map(story).collect()
}

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
    assert_eq!(seen["state"], "held", "{seen}");
    assert_eq!(seen["holder"]["kind"], "foreign", "{seen}");
    assert_eq!(seen["holder"]["type"], "string", "{seen}");
    let format = seen["holder"]["format"].as_str();
    let formats = scene.foreign.formats;
    let is_known = format.map_or(formats.is_empty(), |format| formats.contains(&format));
    assert!(is_known, "{seen}");
    assert!(seen["lease_ms"].as_u64() > Some(20_000), "{seen}");
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
    let limit = scene.foreign.asks_each(ttl) + SLACK;
    assert!(by_foreign[times / 2] <= limit, "{by_foreign:?}");
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
    assert_eq!(foreign.ask("release"), scene.foreign.after_a_loss());
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
    assert_eq!(seen["state"], "held", "{seen}");
    assert!(seen["lease_ms"].is_null(), "{seen}");
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
    let limit = scene.foreign.asks_each(ttl) + SLACK;
    assert!(after <= limit, "{after:?} late");
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
    late::after_the_end(|| scene.expires_soon(), heir, &ttl.as_millis().to_string())
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
    let is_told = foreign.answers_within(Duration::from_millis(300));
    assert!(!is_told, "nothing told it");
    assert!(scene.is_free());
    // The signal that the library's own release sends, as the documentation asks for after a release by
    // Leasehold.
    let began = now();
    let signal = format!("lock-signal:{NAME}");
    scene.server.cli(&["RPUSH", &signal, "1"]);
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
