//! The timestamp protocol: compares the scripts, and the commands of the recipe without interference, with the rules: random steps at random
//! times on a real server whose clock the test controls.

use std::cell::RefCell;
use std::sync::Arc;

use leasehold_core::timestamp::{Content, Reply, Step, Unit, apply, is_mine};
use leasehold_core::{LockName, Ttl};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::RedisResult;

use super::{by_commands, by_script};
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::{Scene, Tally};

const START_US: u64 = 1_767_225_600_123_456;
const KEY: &str = "{orders} 42";

#[derive(Debug, Clone)]
enum Event {
    /// Time passes, in microseconds.
    Pass(u64),
    /// Another program writes a deadline this many units from now, with this ending.
    Deadline(i64, &'static str),
    /// Another program writes anything, or deletes the key.
    Put(Content),
    Acquire(u64),
    /// Extends to this many units more than needed, by an owner that knows its deadline, or not.
    Extend(u64, i64, bool),
    Release(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let millis = || prop_oneof![10_u64..3_000, Just(1_000), Just(86_400_000)];
    let odd = [
        "",
        "0",
        "1",
        "-5",
        "1e9",
        "1767225600.",
        ".5",
        "01767225600",
        "1767225600 ",
        "1767225600\0",
        "999999999",
        "100000000000",
        "1767225600000",
        "1767225600",
    ];
    let odd = prop::sample::select(odd.map(|text| text.as_bytes().to_vec()).to_vec());
    let ending = prop::sample::select(vec!["", ".0", ".000", ".5", ".", " ", "x"]);
    let span = prop_oneof![Just(1), Just(1_000), Just(999_999), 0_u64..4_000_000];
    let known = || prop::bool::weighted(0.8);
    // Values without an end are rare, so that a lock can be taken, extended and released between them.
    let event = prop_oneof![
        3 => span.prop_map(Event::Pass),
        2 => (-3_i64..4, ending).prop_map(|(by, ending)| Event::Deadline(by, ending)),
        1 => prop_oneof![odd, prop::collection::vec(any::<u8>(), 0..16)].prop_map(|text| Event::Put(Content::Text(text))),
        1 => Just(Event::Put(Content::Other("zset".into()))),
        4 => Just(Event::Put(Content::Nothing)),
        10 => millis().prop_map(Event::Acquire),
        8 => (millis(), -2_i64..4, known()).prop_map(|(ttl, by, known)| Event::Extend(ttl, by, known)),
        4 => known().prop_map(Event::Release),
    ];
    prop::collection::vec(event, 1..40)
}

/// A key on a server, by the scripts or by the commands of the recipe.
struct Redis {
    scene: Scene,
    scripts: bool,
    seen: Tally,
}

impl Redis {
    fn start(scripts: bool) -> Self {
        Self {
            scene: Scene::start(),
            scripts,
            seen: Tally::default(),
        }
    }

    fn tries(&mut self, unit: Unit, step: &Step) -> RedisResult<Reply> {
        let name = LockName::new(KEY).unwrap();
        let Scene {
            wire,
            scripts,
            runtime,
            ..
        } = &mut self.scene;
        runtime.block_on(async {
            if self.scripts {
                by_script(scripts, wire, &name, unit, step).await
            } else {
                by_commands(wire, &name, unit, step).await
            }
        })
    }

    fn take(&mut self, unit: Unit, step: &Step) -> Reply {
        self.tries(unit, step).unwrap()
    }

    fn put(&mut self, content: &Content) {
        self.scene.command(&["DEL", KEY]);
        match content {
            Content::Nothing => {}
            Content::Text(value) => {
                let command: [&[u8]; 3] = [b"SET", KEY.as_bytes(), value];
                self.scene.command(&command);
            }
            Content::Other(_) => {
                self.scene.command(&["ZADD", KEY, "1", "a"]);
            }
        }
    }

    fn content(&mut self) -> Content {
        match self.scene.command(&["TYPE", KEY]).text().as_str() {
            "none" => Content::Nothing,
            "string" => Content::Text(self.scene.command(&["GET", KEY]).bytes().to_vec()),
            other => Content::Other(other.to_owned()),
        }
    }

    /// Applies the events here and to the rules, and compares them.
    fn agrees(&mut self, unit: Unit, events: &[Event]) -> Result<(), String> {
        let (mut now_us, mut content, mut mine) = (START_US, Content::Nothing, vec![1]);
        self.put(&content);
        for event in events {
            self.scene.set_clock(now_us);
            let now = unit.at(now_us);
            let step = match event {
                Event::Pass(span) => {
                    now_us += span;
                    continue;
                }
                Event::Deadline(by, ending) => {
                    let deadline = now.saturating_add_signed(*by);
                    content = Content::Text(format!("{deadline}{ending}").into());
                    self.put(&content);
                    continue;
                }
                Event::Put(put) => {
                    content = put.clone();
                    self.put(&content);
                    continue;
                }
                Event::Acquire(ttl) => Step::Acquire { ttl: millis(*ttl) },
                Event::Extend(ttl, by, known) => Step::Extend {
                    to: unit.deadline(now, millis(*ttl)).saturating_add_signed(*by),
                    ttl: millis(*ttl),
                    mine: if *known { mine.clone() } else { vec![7, 1] },
                },
                Event::Release(known) => Step::Release {
                    mine: if *known { mine.clone() } else { vec![7] },
                },
            };
            let before = content.clone();
            let expected = apply(unit, now_us, &mut content, &step);
            let reply = self.take(unit, &step);
            if reply != expected {
                return Err(format!(
                    "{step:?} at {now_us}: {reply:?}, by the rules {expected:?}"
                ));
            }
            self.seen.note(word(&reply), true);
            if let Reply::Held { deadline, .. } = reply {
                mine.push(deadline);
            }
            let late = now + 1_000_000 / unit.micros();
            let left = reply == Reply::Released && !is_mine(unit, late, &before, &mine);
            if !self.scripts && left {
                // The one difference: a near deadline is left to pass.
                content = before;
            }
            let there = self.content();
            if there != content {
                return Err(format!(
                    "after {step:?} at {now_us}: {there:?}, by the rules {content:?}"
                ));
            }
        }
        Ok(())
    }
}

fn millis(millis: u64) -> Ttl {
    Ttl::new(std::time::Duration::from_millis(millis)).unwrap()
}

fn word(reply: &Reply) -> &'static str {
    match reply {
        Reply::Held { .. } => "held",
        Reply::Busy { .. } => "busy",
        Reply::Foreign(_) => "foreign",
        Reply::Again { .. } => "again",
        Reply::BadClock { .. } => "bad-clock",
        Reply::NotHeld { .. } => "not-held",
        Reply::Released => "released",
    }
}

fn do_what_core_does(scripts: bool) {
    let redis = RefCell::new(Redis::start(scripts));
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let units = prop::sample::select(vec![Unit::Seconds, Unit::Millis]);
    let outcome = TestRunner::new(config).run(&(units, events()), |(unit, events)| {
        let agreed = redis.borrow_mut().agrees(unit, &events);
        agreed.map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failed| panic!("{failed}"));
    let replies = ["held", "busy", "foreign", "again", "not-held", "released"];
    redis.borrow().seen.check(replies.map(|reply| (reply, 51)));
}

#[test]
fn the_scripts_do_what_core_does() {
    do_what_core_does(true);
}

#[test]
fn commands_do_what_core_does_without_interference() {
    do_what_core_does(false);
}

#[test]
fn a_server_whose_clock_was_never_set_is_refused() {
    for scripts in [true, false] {
        let mut redis = Redis::start(scripts);
        redis.scene.set_clock(5_000_000);
        let step = Step::Acquire { ttl: millis(1_000) };
        let reply = redis.take(Unit::Seconds, &step);
        assert_eq!(reply, Reply::BadClock { at_us: 5_000_000 });
        assert_eq!(redis.content(), Content::Nothing);
    }
}

#[test]
fn full_server_refuses_acquire_but_extends_and_releases() {
    for scripts in [Scripts::default(), Scripts::without_flags()] {
        let mut redis = Redis::start(true);
        redis.scene.scripts = Arc::new(scripts);
        redis.scene.set_clock(START_US);
        let (unit, ttl) = (Unit::Seconds, millis(30_000));
        let acquire = Step::Acquire { ttl };
        let Reply::Held { deadline, .. } = redis.take(unit, &acquire) else {
            panic!("it is free");
        };
        redis.scene.command(&["CONFIG", "SET", "maxmemory", "1"]);
        redis.scene.set_clock(START_US + 5_000_000);
        let to = deadline + 5;
        let mine = vec![deadline, to];
        let release = Step::Release { mine: mine.clone() };
        let reply = redis.take(unit, &Step::Extend { to, ttl, mine });
        assert!(matches!(reply, Reply::Held { .. }), "{reply:?}");
        assert_eq!(redis.content(), Content::of(to));
        assert_eq!(redis.take(unit, &release), Reply::Released);
        let refused = redis.tries(unit, &acquire).unwrap_err();
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
}
