//! Random steps on a server where any key of a lock may be deleted or spoiled between two steps, and whose clock is set
//! back. Core cannot predict the scripts then, so the test does not compare them with core. [`Case`] checks these rules
//! instead:
//!
//! - The lock changes hands only when it is free, by the holder's release, or by a break: it is never granted twice.
//! - Who is granted it is admitted by all who believe to hold it: they have its reply, and nobody has meddled with their hold.
//! - Each new fence is above all earlier ones.
//! - A step that returns an error has granted or taken nothing.
//! - All that remains expires, and the lock can be taken then.

use std::cell::RefCell;
use std::time::Duration;

use leasehold_core::{
    Block, ClientId, Fence, LockName, Mode, Owner, Reply, Slots, Step, Ttl, Wait,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::model::{Role, START_US};
use super::server::Redis;
use crate::store::redis::protocol::COUNTER;
use crate::store::redis::scripts::Scripts;
use crate::store::redis::tests::Tally;

/// The number of owners, of three clients.
const OWNERS: usize = 4;

/// The number of keys of a lock.
const KEYS: usize = 4;

/// Values of the counter that count as lost.
const NO_FENCES: [&str; 8] = [
    "",
    "a fence",
    "-5",
    "1e20",
    " 5",
    "5 6",
    "9007199254740991",
    "99999999999999999999999999999999",
];

/// Records of waiters that no client wrote.
const RECORDS: [&str; 15] = [
    "shared 30000 1 - 99999999999999",
    "slot/2 30000 1 - 99999999999999",
    "slot/0 30000 1 - 99999999999999",
    "slot/20000 30000 1 - 99999999999999",
    "bogus 30000 1 - 99999999999999",
    "slot/2 1 7 1",
    "slot/2 x 1700000000123456 1",
    "junk",
    "",
    "exclusive 0 - 99999999999999",
    "exclusive 99999999999999999999 - 99999999999999",
    "exclusive 30000 - 999999999999999999999999999999",
    "exclusive 5 leasehold:wake:zz 99999999999999",
    "shared 30000 - 99999999999999",
    "exclusive 30000 with space 99999999999999",
];

/// Places in the queue that no client took.
const SCORES: [&str; 5] = ["inf", "-inf", "1e300", "-1", "9007199254740993"];

/// Members of the queue besides owners.
const MEMBERS: [&str; 4] = ["", "a b", "lh1.", "granted 1 2 3 4 5"];

#[derive(Debug, Clone)]
enum Event {
    Acquire(usize, u64, Option<bool>, Mode),
    Extend(usize, u64),
    Release(usize, Option<u64>),
    /// With the last fence, or any other.
    Break(bool),
    Inspect,
    Delete(usize),
    /// Makes it a string, a list or a hash.
    Retype(usize, usize),
    SpoilFence(usize),
    SpoilRecord(usize, usize),
    SpoilPlace(usize, usize),
    Stranger(usize, usize),
    Pass(u64),
    Back(u64),
    Listen(usize, bool),
}

/// The suffixes of a lock's keys. The first key is the lock itself, the second one the counter, which has its own name.
const SUFFIXES: [&str; KEYS] = ["", "", ":lh-queue", ":lh-waiters"];
const FENCE: usize = 1;

fn owners() -> Vec<Owner> {
    let owner = |at: usize| {
        let client = ClientId::new([0xc0, 0xc0, 0xc1, 0xc2][at]);
        Owner::new(u128::try_from(at).unwrap() + 1, client, "host", 1, "").unwrap()
    };
    (0..OWNERS).map(owner).collect()
}

/// What a reply has granted an owner.
#[derive(Debug, Clone, Copy)]
struct Hold {
    mode: Mode,
    slot: Option<u16>,
    /// The last millisecond that counts.
    until_ms: u64,
}

impl Hold {
    /// Whether the two may hold together, if the second was granted the lock now, beside so many in all.
    fn admits(self, other: Self, all: usize) -> bool {
        match other.mode {
            Mode::Exclusive => false,
            Mode::Shared => self.mode == Mode::Shared,
            Mode::Slot(of) => {
                self.slot.is_some() && self.slot != other.slot && all <= of.get().into()
            }
        }
    }
}

/// The four keys, as DUMP returns them.
type Keys = [Vec<u8>; KEYS];

struct Case<'a> {
    redis: &'a mut Redis,
    seen: &'a mut Tally,
    name: LockName,
    owners: Vec<Owner>,
    clock_us: u64,
    /// The highest fence ever stored.
    highest: u64,
    /// The fence of each owner's last grant, as the reply told it.
    believed: [Option<Fence>; OWNERS],
    /// What each owner believes to hold, and until when.
    holds: [Option<Hold>; OWNERS],
    /// The reply to each step, and its messages.
    said: Vec<String>,
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..Config::default()
    })
}

#[test]
fn lock_is_never_granted_twice_with_spoiled_keys() {
    let redis = RefCell::new(Redis::start());
    let seen = RefCell::new(Tally::default());
    let outcome = runner(250).run(&events(), |events| {
        let (mut redis, mut seen) = (redis.borrow_mut(), seen.borrow_mut());
        let mut case = Case::new(&mut redis, &mut seen);
        let played = events.iter().try_for_each(|event| case.happens(event));
        let ended = played.and_then(|()| case.ends());
        ended.map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|wrong| panic!("{wrong}"));
    seen.borrow().check([
        ("steps", 2_000),
        ("grants", 300),
        ("errors", 50),
        ("deleted", 200),
        ("set back", 50),
        ("extensions under their fence", 30),
        ("grants beside others", 20),
        ("keys of several deleted", 3),
    ]);
}

/// Whatever state it meets, `hand_over.lua` leaves what `release.lua` does: replies, messages, keys and deadlines.
#[test]
fn the_short_way_of_a_release_leaves_what_the_long_one_does() {
    let tries = "if verb ~= 'release' or ms ~= '0' or believed == '' then";
    let never = |counters| Scripts::broken(counters, tries, "if true then");
    let both = RefCell::new([Redis::start(), Redis::start_with(Role::Alone, never)]);
    let seen = RefCell::new(Tally::default());
    let compared = runner(300).run(&releases(), |events| {
        let [short, long] = both
            .borrow_mut()
            .each_mut()
            .map(|redis| left_by(redis, &events));
        // A short claim is told to the next waiter as well.
        let last = short.last().map_or("", String::as_str);
        let mut seen = seen.borrow_mut();
        seen.note("granted", last.contains("granted "));
        seen.note("not granted", !last.contains("granted "));
        seen.note("told that it is the first", last.contains("first "));
        if short == long {
            Ok(())
        } else {
            Err(TestCaseError::fail(format!("{short:#?}\n{long:#?}")))
        }
    });
    compared.unwrap_or_else(|wrong| panic!("{wrong}"));
    seen.borrow().check([
        ("granted", 51),
        ("not granted", 51),
        ("told that it is the first", 6),
    ]);
}

/// The keys after each event, with the deadlines and the last step.
fn left_by(redis: &mut Redis, events: &[Event]) -> Vec<String> {
    let mut seen = Tally::default();
    let mut case = Case::new(redis, &mut seen);
    let mut left = Vec::new();
    for event in events {
        let judged = case.happens(event);
        let keys = case.keys().map(|key| key.escape_ascii().to_string());
        let deadlines = [0, 1, 2, 3].map(|at| {
            let key = case.key(at);
            case.redis.command(&["PTTL", &key]).int()
        });
        let said = case.said.last();
        left.push(format!("{judged:?} {said:?} {keys:?} {deadlines:?}"));
    }
    left
}

impl<'a> Case<'a> {
    fn new(redis: &'a mut Redis, seen: &'a mut Tally) -> Self {
        redis.reset(START_US);
        Self {
            redis,
            seen,
            name: LockName::new("x").unwrap(),
            owners: owners(),
            clock_us: START_US,
            highest: 0,
            believed: [None; OWNERS],
            holds: [None; OWNERS],
            said: Vec::new(),
        }
    }

    fn key(&self, at: usize) -> String {
        match SUFFIXES[at] {
            _ if at == FENCE => COUNTER.to_owned(),
            "" => self.name.key().to_owned(),
            suffix => self.name.beside(suffix),
        }
    }

    fn keys(&mut self) -> Keys {
        std::array::from_fn(|at| {
            let key = self.key(at);
            let dump = self.redis.command(&["DUMP", &key]);
            if dump.is_nil() {
                Vec::new()
            } else {
                dump.bytes().to_vec()
            }
        })
    }

    /// The value under the lock's name without the mark of waiters, or its type if it is foreign; empty if it is free.
    fn holder(&mut self) -> String {
        let key = self.key(0);
        match self.redis.command(&["TYPE", &key]).text().as_str() {
            "none" => String::new(),
            "string" => {
                let value = self.redis.command(&["GET", &key]).text();
                value.trim_end_matches('!').to_owned()
            }
            other => other.to_owned(),
        }
    }

    /// The last fence, if the stored value can be one.
    fn last_fence(&mut self) -> Option<u64> {
        let key = self.key(FENCE);
        if self.redis.command(&["TYPE", &key]).text() != "string" {
            return None;
        }
        let text = self.redis.command(&["GET", &key]).text();
        if NO_FENCES.contains(&text.as_str()) {
            return None;
        }
        text.parse().ok()
    }

    fn pass_to(&mut self, clock_us: u64) {
        self.clock_us = clock_us;
        // It has ended, even if the clock is set back.
        for hold in &mut self.holds {
            hold.take_if(|hold| hold.until_ms < clock_us / 1_000);
        }
        self.redis.scene.set_clock(clock_us);
    }

    fn happens(&mut self, event: &Event) -> Result<(), String> {
        let ttl = |ms: u64| Ttl::new(Duration::from_millis(ms)).unwrap();
        let step = match *event {
            Event::Acquire(who, ms, wait, mode) => Step::Acquire {
                owner: self.owners[who].clone(),
                mode,
                ttl: ttl(ms),
                block: Block::nearest(if ms == 10 { 64 } else { 1 }),
                wait: wait.map(|listening| Wait { listening }),
            },
            Event::Extend(who, ms) => Step::Extend {
                owner: self.owners[who].clone(),
                ttl: ttl(ms),
                // As a client does, except for a claim.
                fence: self.believed[who].filter(|_| ms != 500),
            },
            Event::Release(who, keep) => Step::Release {
                owner: self.owners[who].clone(),
                keep: keep.map(ttl),
                fence: self.believed[who].filter(|_| keep != Some(500)),
            },
            Event::Break(last) => {
                let fence = if last {
                    self.last_fence().unwrap_or(7)
                } else {
                    7
                };
                let fence = Fence::new(fence);
                Step::Break { fence }
            }
            Event::Inspect => Step::Inspect,
            _ => {
                self.meddle(event);
                return Ok(());
            }
        };
        self.judge(step)
    }

    /// Applies an event from outside.
    fn meddle(&mut self, event: &Event) {
        let key = match *event {
            Event::Delete(key) | Event::Retype(key, _) => key,
            Event::SpoilFence(_) => FENCE,
            Event::SpoilPlace(..) => 2,
            _ => 3,
        };
        if key == FENCE {
            // If the counter is lost before the clock has passed it, fences may repeat: docs/guarantees.md.
            self.pass_to(self.clock_us.max(self.highest + 1));
        }
        let key = self.key(key);
        let member = |who: usize| self.owners[who].token().to_owned();
        let several = self.holding().filter(|hold| hold.mode != Mode::Exclusive);
        let beside = matches!(event, Event::Delete(2 | 3)) && several.count() > 1;
        self.seen.note("keys of several deleted", beside);
        match *event {
            // A hold ends with the key of the lock, or with what is kept of that hold.
            Event::Delete(0) | Event::Retype(0, _) => self.holds = [None; OWNERS],
            Event::SpoilRecord(who, _) | Event::SpoilPlace(who, _) => self.holds[who] = None,
            _ => {}
        }
        match *event {
            Event::Delete(_) => {
                self.seen.note("deleted", true);
                self.redis.command(&["DEL", &key]);
            }
            Event::Retype(_, kind) => {
                self.redis.command(&["DEL", &key]);
                match kind {
                    0 => self.redis.command(&["SET", &key, "x"]),
                    1 => self.redis.command(&["RPUSH", &key, "x"]),
                    _ => self.redis.command(&["HSET", &key, "x", "1"]),
                };
            }
            Event::SpoilFence(text) => {
                self.redis.command(&["SET", &key, NO_FENCES[text]]);
            }
            Event::SpoilRecord(who, record) => {
                self.redis
                    .command(&["HSET", &key, &member(who), RECORDS[record]]);
            }
            Event::SpoilPlace(who, score) => {
                self.redis
                    .command(&["ZADD", &key, SCORES[score], &member(who)]);
            }
            Event::Stranger(who, record) => {
                self.redis
                    .command(&["HSET", &key, MEMBERS[who], RECORDS[record]]);
                let queue = self.key(2);
                self.redis.command(&["ZADD", &queue, "1", MEMBERS[who]]);
                self.redis.command(&["PEXPIRE", &queue, "60000"]);
            }
            Event::Pass(ms) => self.pass_to(self.clock_us + ms * 1_000),
            // Without the counter, only the clock decides where fences continue.
            Event::Back(ms) if self.highest == 0 || self.last_fence().is_some() => {
                self.seen.note("set back", true);
                self.pass_to(self.clock_us - ms * 1_000);
            }
            Event::Listen(client, on) => self.redis.listen(client, on),
            _ => {}
        }
        // Keys of other programs expire here, so that everything does. A held lock keeps its own deadline.
        if !matches!(event, Event::Pass(_) | Event::Back(_) | Event::Listen(..)) {
            self.redis.command(&["PEXPIRE", &key, "60000"]);
        }
    }

    /// Takes a step and checks its effect.
    fn judge(&mut self, step: Step) -> Result<(), String> {
        let (before, held_before) = (self.keys(), self.holder());
        let steps = [(self.name.clone(), step)];
        // The short form has one step here, so its error is that step's.
        let reply = self
            .redis
            .apply(&steps)
            .and_then(|mut replies| replies.remove(0));
        let [(_, step)] = steps;
        let (after, held_after) = (self.keys(), self.holder());
        let told = || format!("{step:?} -> {reply:?}: {held_before:?} then {held_after:?}");
        self.seen.note("steps", true);
        let heard = self.redis.scene.messages();
        self.said.push(format!("{reply:?}, {heard:?}"));
        let Ok(reply) = &reply else {
            self.seen.note("errors", true);
            // The counter may have skipped some fences, as long as it has not gone back.
            let risen = self.last_fence() >= Some(self.highest) || before[FENCE] == after[FENCE];
            self.highest = self.highest.max(self.last_fence().unwrap_or(0));
            return if before[0] == after[0] && risen {
                Ok(())
            } else {
                Err(told())
            };
        };
        if step == Step::Inspect && before != after {
            return Err(told());
        }
        let freed = match &step {
            Step::Release { owner, .. } => token(&held_before) == Some(owner.token()),
            Step::Break { .. } => *reply == Reply::Released && token(&held_before).is_some(),
            _ => false,
        };
        let is_marker = |value: &str| value.starts_with("lh1-s");
        let is_alone = !held_before.is_empty() && !is_marker(&held_before);
        if held_before != held_after && is_alone && !freed {
            return Err(told());
        }
        if let (Step::Acquire { owner, .. } | Step::Extend { owner, .. }, Reply::Held(_)) =
            (&step, reply)
            && token(&held_after) != Some(owner.token())
            && !(is_marker(&held_after) && self.is_one_of(owner))
        {
            return Err(told());
        }
        if !self.note_hold(&step, reply) {
            return Err(format!("{:?}: {}", self.holds, told()));
        }
        self.note_fence(&step, reply);
        let is_granted =
            held_before != held_after && !held_after.is_empty() && !is_marker(&held_after);
        self.seen.note("grants", is_granted);
        if before[FENCE] != after[FENCE] {
            let fence = self
                .last_fence()
                .ok_or_else(|| format!("no fence after {}", told()))?;
            if fence <= self.highest {
                return Err(format!("{fence} after {}: {}", self.highest, told()));
            }
            self.highest = fence;
        } else if is_granted {
            return Err(format!("no new fence: {}", told()));
        }
        Ok(())
    }

    fn holding(&self) -> impl Iterator<Item = Hold> + use<> {
        let now_ms = self.clock_us / 1_000;
        let holds = self.holds.into_iter().flatten();
        holds.filter(move |hold| hold.until_ms >= now_ms)
    }

    /// Whether the keys say that it is one of several holders.
    fn is_one_of(&mut self, owner: &Owner) -> bool {
        let queue = self.key(2);
        if self.redis.command(&["TYPE", &queue]).text() != "zset" {
            return false;
        }
        let score = self.redis.command(&["ZSCORE", &queue, owner.token()]);
        !score.is_nil() && score.text().starts_with('-')
    }

    /// Records what an owner believes to hold. Returns false if it was granted the lock beside another that does not admit it.
    fn note_hold(&mut self, step: &Step, reply: &Reply) -> bool {
        let now_ms = self.clock_us / 1_000;
        match (step, reply) {
            (Step::Break { .. }, Reply::Released) => self.holds = [None; OWNERS],
            (
                Step::Acquire { owner, ttl, .. } | Step::Extend { owner, ttl, .. },
                Reply::Held(held),
            ) => {
                let at = self.owners.iter().position(|known| known == owner).unwrap();
                let until_ms = now_ms + ttl.millis();
                let before = self.holds[at].take().filter(|hold| hold.until_ms >= now_ms);
                // The mode is that of the grant, which the reply does not tell: an owner that waited may have asked again otherwise.
                let mode = self.mode_of(owner, held.slot);
                let granted = Hold {
                    mode,
                    slot: held.slot,
                    until_ms,
                };
                self.holds[at] = before
                    .map(|before| Hold { until_ms, ..before })
                    .or(Some(granted));
                let all = self.holding().count();
                self.seen
                    .note("grants beside others", before.is_none() && all > 1);
                let others = (0..OWNERS).filter(|other| *other != at);
                let others: Vec<Hold> = (others.filter_map(|other| self.holds[other]))
                    .filter(|other| other.until_ms >= now_ms)
                    .collect();
                return before.is_some() || others.iter().all(|other| other.admits(granted, all));
            }
            (Step::Release { owner, .. } | Step::Extend { owner, .. }, _) => {
                let at = self.owners.iter().position(|known| known == owner);
                self.holds[at.expect("one of the owners")] = None;
            }
            _ => {}
        }
        true
    }

    /// The mode by which an owner holds the lock, according to the keys.
    fn mode_of(&mut self, owner: &Owner, slot: Option<u16>) -> Mode {
        let waiters = self.key(3);
        if slot.is_none() {
            return if self.is_one_of(owner) {
                Mode::Shared
            } else {
                Mode::Exclusive
            };
        }
        let record = self
            .redis
            .command(&["HGET", &waiters, owner.token()])
            .text();
        record.split(' ').next().unwrap().parse().unwrap()
    }

    /// Records the fence that an owner is told, and whether a holder named its fence.
    fn note_fence(&mut self, step: &Step, reply: &Reply) {
        match (step, reply) {
            (Step::Acquire { owner, .. }, Reply::Held(held)) => {
                let at = self.owners.iter().position(|known| known == owner);
                self.believed[at.expect("one of the owners")] = held.fence;
            }
            (Step::Extend { fence: Some(_), .. }, Reply::Held(_)) => {
                self.seen.note("extensions under their fence", true);
            }
            _ => {}
        }
    }

    fn ends(&mut self) -> Result<(), String> {
        let a_day_and_an_hour = 25 * 3_600_000_000;
        // The whole sequence may have set the clock back.
        self.pass_to(self.clock_us.max(self.highest) + 2 * a_day_and_an_hour);
        // The counter may stay.
        let keys = self.keys().into_iter().enumerate();
        let left: Vec<_> = keys
            .filter(|(at, key)| *at != FENCE && !key.is_empty())
            .collect();
        if !left.is_empty() {
            return Err(format!("{left:?} stays"));
        }
        self.happens(&Event::Acquire(0, 500, None, Mode::Exclusive))?;
        let held = self.holder();
        let taken = token(&held) == Some(self.owners[0].token());
        if taken {
            Ok(())
        } else {
            Err("the lock cannot be taken".into())
        }
    }
}

/// The token in a value, if the value may be one of this protocol.
fn token(value: &str) -> Option<&str> {
    let (token, _) = value.split_once('#')?;
    Owner::parse(token).map(|_| token)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    vec(event(), 0..=60)
}

/// The first owner holds, others wait, anything happens, and the first owner releases.
fn releases() -> impl Strategy<Value = Vec<Event>> {
    let waiter = (
        1..OWNERS,
        select(vec![10_u64, 500, 3_000, 30_000]),
        any::<bool>(),
    );
    let waiter = (waiter, mode())
        .prop_map(|((who, ms, listens), mode)| Event::Acquire(who, ms, Some(listens), mode));
    (vec(waiter, 1..=3), vec(event(), 0..=3)).prop_map(|(waiters, between)| {
        let mut all = vec![Event::Acquire(0, 30_000, None, Mode::Exclusive)];
        all.extend(waiters);
        all.extend(between);
        all.push(Event::Release(0, None));
        all
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    let slots = |of| Mode::Slot(Slots::new(of).unwrap());
    prop_oneof![
        4 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        1 => Just(slots(1)),
        2 => Just(slots(2)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let who = || 0..OWNERS;
    let ms = || select(vec![10_u64, 500, 3_000, 30_000]);
    let wait = select(vec![None, Some(false), Some(true), Some(true)]);
    prop_oneof![
        24 => (who(), ms(), wait, mode())
            .prop_map(|(who, ms, wait, mode)| Event::Acquire(who, ms, wait, mode)),
        8 => (who(), ms()).prop_map(|(who, ms)| Event::Extend(who, ms)),
        14 => (who(), prop::option::weighted(0.2, ms())).prop_map(|(who, keep)| Event::Release(who, keep)),
        3 => any::<bool>().prop_map(Event::Break),
        2 => Just(Event::Inspect),
        8 => (0..KEYS).prop_map(Event::Delete),
        2 => (0..KEYS, 0..3_usize).prop_map(|(key, kind)| Event::Retype(key, kind)),
        2 => (0..NO_FENCES.len()).prop_map(Event::SpoilFence),
        3 => (who(), 0..RECORDS.len()).prop_map(|(who, record)| Event::SpoilRecord(who, record)),
        2 => (who(), 0..SCORES.len()).prop_map(|(who, score)| Event::SpoilPlace(who, score)),
        1 => (0..MEMBERS.len(), 0..RECORDS.len()).prop_map(|(who, record)| Event::Stranger(who, record)),
        8 => prop_oneof![Just(0), 1..4_000_u64, Just(20_000)].prop_map(Event::Pass),
        3 => prop_oneof![Just(1), 1..60_000_u64].prop_map(Event::Back),
        2 => (0..2_usize, any::<bool>()).prop_map(|(client, on)| Event::Listen(client, on)),
    ]
}
