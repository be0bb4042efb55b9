//! Compares the script with the rules: random steps at random times on a real server whose clock the test controls.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::once::{Answer, Firing, Keep, Record, Reply, Run, Step, apply};
use leasehold_core::{
    Block, ClientId, Fence, Fences, Foreign, Holder, LockName, LockState, Mode, Now, Owner,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::RedisResult;

use super::{by_script, key_of};
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::{Scene, Tally, rows, servers};

const START_US: u64 = 1_767_225_600_123_456;
const NAME: &str = "{orders} 42";
const FIRING: &str = "2026-11-27T02:00 {Europe}:lh-queue";
const KEY: &str = "{orders} 42:lh-once:2026-11-27T02:00 {Europe}:lh-queue";
/// The first fence of the first grant. The owners hold by blocks of 1, 2 and 3 fences.
const FENCE: u64 = 1_767_225_600_000_000;

#[derive(Debug, Clone)]
enum Event {
    /// Time passes, in milliseconds.
    Pass(u64),
    /// This owner gets the lock for so many milliseconds. With a mark, others wait for it.
    Hold(usize, u64, bool),
    Free,
    /// Another program has the key, with this value or as another type.
    Foreign(&'static str),
    /// The record is lost.
    Forget,
    Look,
    /// By this owner, or the last one that got the lock, with this fence of its block, this many tries and this time to keep.
    Begin(Option<usize>, u64, u32, u64),
    Finish(Option<usize>, u64, u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let owner = || 0_usize..3;
    let by = || prop::option::weighted(0.3, owner());
    let fence = || prop_oneof![3 => Just(0_u64), 1 => 1_u64..4];
    let keep = || prop_oneof![Just(1_000_u64), 1_000_u64..5_000];
    let foreign = prop::sample::select(vec![
        "mine",
        "TOKEN",
        "TOKEN#5/2000",
        "TOKEN#9007199254740993",
        "hash",
    ]);
    let event = prop_oneof![
        3 => prop_oneof![Just(1_000_u64), 1_u64..3_000].prop_map(Event::Pass),
        6 => (owner(), prop_oneof![Just(1_000_u64), 500_u64..9_000], any::<bool>()).prop_map(|(owner, ttl, mark)| Event::Hold(owner, ttl, mark)),
        1 => Just(Event::Free),
        1 => foreign.prop_map(Event::Foreign),
        1 => Just(Event::Forget),
        2 => Just(Event::Look),
        8 => (by(), fence(), 1_u32..3, keep()).prop_map(|(by, fence, tries, keep)| Event::Begin(by, fence, tries, keep)),
        4 => (by(), fence(), keep()).prop_map(|(by, fence, keep)| Event::Finish(by, fence, keep)),
    ];
    prop::collection::vec(event, 1..40)
}

fn owner(number: usize) -> Owner {
    let client = ClientId::new(7);
    let random = number as u128 + 1;
    Owner::new(random, client, "web%3:1", 4121, "a:b #").unwrap()
}

/// The first fence of a grant.
fn first(grant: u64) -> u64 {
    FENCE + 10 * grant
}

fn keep(ms: u64) -> Keep {
    Keep::new(Duration::from_millis(ms)).unwrap()
}

struct Redis {
    scene: Scene,
    seen: Tally,
}

impl Redis {
    fn on(binary: Option<&Path>) -> Self {
        Self {
            scene: Scene::on(binary, Scripts::default(), None),
            seen: Tally::default(),
        }
    }

    fn take(&mut self, step: &Step) -> RedisResult<Answer> {
        let (name, firing) = (LockName::new(NAME).unwrap(), Firing::new(FIRING).unwrap());
        let Scene {
            wire,
            scripts,
            runtime,
            ..
        } = &mut self.scene;
        runtime.block_on(by_script(scripts, wire, &name, &firing, step))
    }

    /// What the server keeps of the firing.
    fn kept(&mut self, now: Now) -> Option<Record> {
        let value = ["GETRANGE", KEY, "0", "-1"];
        let text = self.scene.command(&value).bytes().to_vec();
        let text = String::from_utf8(text).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        let ["lho1", state, fence, number, at, token] = words[..] else {
            assert_eq!(text, "");
            return None;
        };
        let left: u64 = self.scene.command(&["PTTL", KEY]).int().try_into().unwrap();
        Some(Record {
            run: Run {
                owner: Owner::parse(token).unwrap(),
                fence: Fence::new(fence.parse().unwrap()),
                number: number.parse().unwrap(),
                at_us: at.parse().unwrap(),
            },
            is_finished: state == "finished",
            forget_at_ms: now.millis() + left,
        })
    }

    /// Gives the key of the lock this holder.
    fn put(&mut self, lock: &LockState, mark: bool, now: Now) {
        self.scene.command(&["DEL", NAME]);
        if let Some(holder) = lock.holders.first() {
            let Fences { first, block } = holder.fences;
            let many = match block.get() {
                1 => String::new(),
                many => format!("/{many}"),
            };
            let mark = if mark { "!" } else { "" };
            let value = format!("{}#{first}{many}{mark}", holder.owner.token());
            let ttl = holder.expires_at_ms - now.millis();
            self.scene
                .command(&["SET", NAME, &value, "PX", &ttl.to_string()]);
        }
        match lock.foreign.as_ref().map(|foreign| &*foreign.kind) {
            Some("hash") => drop(self.scene.command(&["HSET", NAME, "mine", "1"])),
            Some(value) => {
                let value = value.replace("TOKEN", owner(0).token());
                self.scene.command(&["SET", NAME, &value]);
            }
            None => {}
        }
    }

    /// Applies the events here and to the rules, and compares them.
    fn agrees(&mut self, events: &[Event]) -> Result<(), String> {
        let (mut now_us, mut lock, mut kept) = (START_US, LockState::default(), None);
        let (mut last, mut grant) = (0, 0);
        self.scene.reset(now_us);
        for event in events {
            let now = Now::at_micros(now_us);
            let step = match *event {
                Event::Pass(ms) => {
                    now_us += ms * 1_000;
                    self.scene.set_clock(now_us);
                    continue;
                }
                Event::Forget => {
                    self.scene.command(&["DEL", KEY]);
                    kept = None;
                    continue;
                }
                Event::Hold(..) | Event::Free | Event::Foreign(_) => {
                    if let Event::Hold(number, ..) = event {
                        (last, grant) = (*number, grant + 1);
                    }
                    lock = changed(event, now, grant);
                    self.put(&lock, matches!(event, Event::Hold(.., true)), now);
                    continue;
                }
                Event::Look => Step::Look,
                Event::Begin(by, place, tries, ms) => Step::Begin {
                    owner: owner(by.unwrap_or(last)),
                    fence: Fence::new(first(grant) + place),
                    tries: NonZeroU32::new(tries).unwrap(),
                    keep: keep(ms),
                },
                Event::Finish(by, place, ms) => Step::Finish {
                    owner: owner(by.unwrap_or(last)),
                    fence: Fence::new(first(grant) + place),
                    keep: keep(ms),
                },
            };
            let expected = apply(&mut kept, &lock, now, &step);
            let answer = self.take(&step).unwrap();
            if answer != expected {
                return Err(format!(
                    "{step:?} at {now_us}: {answer:?}, by the rules {expected:?}"
                ));
            }
            let there = self.kept(now);
            if there != kept {
                return Err(format!(
                    "after {step:?} at {now_us}: {there:?}, by the rules {kept:?}"
                ));
            }
            self.seen.note(word(&step, &answer.reply), true);
        }
        Ok(())
    }
}

/// The lock after an event.
fn changed(event: &Event, now: Now, grant: u64) -> LockState {
    let mut lock = LockState::default();
    match *event {
        Event::Hold(number, ttl, _) => lock.holders.push(Holder {
            owner: owner(number),
            mode: Mode::Exclusive,
            fences: Fences {
                first: Fence::new(first(grant)),
                block: Block::nearest(number as u64 + 1),
            },
            slot: None,
            vote: None,
            expires_at_ms: now.millis() + ttl,
            kept: false,
        }),
        Event::Foreign(kind) => {
            lock.foreign = Some(Foreign {
                kind: kind.into(),
                value: Vec::new(),
                expires_at_ms: None,
            });
        }
        _ => {}
    }
    lock
}

fn word(step: &Step, reply: &Reply) -> &'static str {
    match (step, reply) {
        (Step::Look, _) => "look",
        (Step::Begin { .. }, Reply::Begun(_)) => "begun",
        (Step::Begin { .. }, Reply::Finished(_)) => "too late",
        (Step::Begin { .. }, Reply::NotHeld) => "no begin",
        (_, Reply::Spent(_)) => "spent",
        (Step::Finish { .. }, Reply::Finished(_)) => "finished",
        (Step::Finish { .. }, Reply::NotHeld) => "no finish",
        _ => "another answer",
    }
}

#[test]
fn the_script_does_what_core_does() {
    let redis = RefCell::new(Redis::on(None));
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&events(), |events| {
        let agreed = redis.borrow_mut().agrees(&events);
        agreed.map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failed| panic!("{failed}"));
    let words = [
        "look",
        "begun",
        "too late",
        "no begin",
        "spent",
        "finished",
        "no finish",
    ];
    redis.borrow().seen.check(words.map(|word| (word, 30)));
}

/// Valkey 9 reads the time once per real millisecond: answers are compared without their times, and a clock that was set counts later.
#[test]
fn every_server_runs_the_script() {
    for binary in servers() {
        let mut redis = Redis::on(binary.as_deref());
        redis.scene.reset(START_US);
        let now = Now::at_micros(START_US);
        let lock = changed(&Event::Hold(1, 30_000, true), now, 0);
        redis.put(&lock, true, now);
        let (owner, keep) = (owner(1), keep(60_000));
        let begin = |place| Step::Begin {
            owner: owner.clone(),
            fence: Fence::new(first(0) + place),
            tries: NonZeroU32::MIN,
            keep,
        };
        let finish = Step::Finish {
            owner: owner.clone(),
            fence: Fence::new(first(0) + 1),
            keep,
        };
        for (step, expected) in [
            (begin(0), "begun"),
            (begin(0), "begun"),
            (begin(1), "spent"),
            (begin(2), "no begin"),
            (finish.clone(), "finished"),
            (finish, "finished"),
            (begin(1), "too late"),
        ] {
            let answer = redis.take(&step).unwrap();
            assert_eq!(word(&step, &answer.reply), expected, "{binary:?}: {step:?}");
        }
    }
}

#[test]
fn key_is_the_one_of_the_documentation() {
    for row in rows("firings") {
        let [name, firing, key] = &row[..] else {
            panic!("{row:?}");
        };
        let (name, firing) = (LockName::new(name).unwrap(), Firing::new(firing).unwrap());
        assert_eq!(&key_of(&name, &firing), key);
    }
}

#[test]
fn full_server_marks_what_is_done() {
    for scripts in [Scripts::default(), Scripts::without_flags()] {
        let mut redis = Redis::on(None);
        redis.scene.scripts = Arc::new(scripts);
        redis.scene.reset(START_US);
        let now = Now::at_micros(START_US);
        let lock = changed(&Event::Hold(0, 30_000, false), now, 0);
        redis.put(&lock, false, now);
        redis.scene.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let finish = Step::Finish {
            owner: owner(0),
            fence: Fence::new(first(0)),
            keep: keep(60_000),
        };
        let answer = redis.take(&finish).unwrap();
        assert!(matches!(answer.reply, Reply::Finished(_)), "{answer:?}");
        redis.scene.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(redis.kept(now).unwrap().is_finished);
    }
}

#[test]
fn content_of_another_program_is_left_alone() {
    let mut redis = Redis::on(None);
    for put in [["SET", KEY, "yes"], ["SADD", KEY, "yes"]] {
        redis.scene.reset(START_US);
        redis.scene.command(&put);
        let before = redis.scene.command(&["DUMP", KEY]);
        let refused = redis.take(&Step::Look).unwrap_err().to_string();
        let said = refused.contains("something else than a firing");
        assert!(said || refused.contains("WRONGTYPE"), "{refused}");
        assert_eq!(redis.scene.command(&["DUMP", KEY]), before);
    }
}
