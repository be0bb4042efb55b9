//! Compares the scripts of cache entries with the rules, on random sequences of steps, losses and intrusions. A real
//! server, whose clock the test controls, and `EntryState` must give equal replies, messages and state, to the
//! millisecond. A difference is never excused: either the script is wrong, or core is changed.

mod server;
mod steps;

use std::cell::RefCell;
use std::fmt::Write as _;

use leasehold_core::cache::{CommitOutcome, EntryState, Reply, Step, Value};
use leasehold_core::{LockName, Now, Ttl};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use self::steps::{Event, FOREIGN_TEXTS, Span, Tokens};
use crate::store::redis::tests::{Scene, Tally};

/// Sequences per run.
const CASES: u32 = 310;

/// When each case begins, in microseconds: not at the beginning of a millisecond.
const START_US: u64 = 1_795_316_158_123_456;

/// Names that try each form of key.
const NAMES: [&str; 3] = ["page:home", "größe 7 %", "{user}:cart"];

#[test]
fn the_scripts_of_cache_entries_do_what_core_does() {
    let redis = RefCell::new(Scene::start());
    let seen = RefCell::new(Tally::default());
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let input = (0..NAMES.len(), steps::events());
    let outcome = TestRunner::new(config).run(&input, |(name, events)| {
        let (mut redis, mut seen) = (redis.borrow_mut(), seen.borrow_mut());
        let mut case = Case::new(&mut redis, &mut seen, NAMES[name]);
        let agreed = events.into_iter().try_for_each(|event| case.happens(event));
        agreed.map_err(|difference| TestCaseError::fail(format!("{}{difference}", case.story)))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(story, _)) => {
            panic!("the scripts differ from core. The shortest way there:\n{story}")
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    let words = [
        "fresh",
        "load",
        "load again",
        "busy",
        "back-off",
        "renewed",
        "not-loading",
        "committed fresh",
        "committed stale",
        "overtaken",
        "abandoned",
        "invalidated",
        "foreign",
        "stale sent",
        "told",
        "number counted",
        "control lost",
        "number never given out",
        "version ahead of the clock",
    ];
    let floors = words.map(|word| (word, 15));
    seen.borrow()
        .check(floors.into_iter().chain([("steps", 4_501)]));
}

/// One sequence in progress.
struct Case<'a> {
    redis: &'a mut Scene,
    seen: &'a mut Tally,
    key: LockName,
    state: EntryState,
    tokens: Tokens,
    now_us: u64,
    last: Option<(Step, bool)>,
    /// The events so far, for the failure message.
    story: String,
}

impl<'a> Case<'a> {
    fn new(redis: &'a mut Scene, seen: &'a mut Tally, name: &str) -> Self {
        redis.reset(START_US);
        Self {
            redis,
            seen,
            key: LockName::new(name).unwrap(),
            state: EntryState::default(),
            tokens: Tokens::default(),
            now_us: START_US,
            last: None,
            story: String::new(),
        }
    }

    /// Applies an event on both sides and compares them.
    fn happens(&mut self, event: Event) -> Result<(), String> {
        writeln!(self.story, "{event:?}").unwrap();
        let is_free = self.state.foreign.is_none();
        self.redis.set_clock(self.now_us);
        match event {
            Event::Ask(step, which, listens) => {
                let step = steps::meant(step, which, &self.state, &self.tokens);
                self.take(&step, listens)?;
            }
            Event::Again => {
                if let Some((step, listens)) = self.last.clone() {
                    self.take(&step, listens)?;
                }
            }
            Event::Pass(span) => {
                // The next step shows its effect.
                self.pass(span);
                return Ok(());
            }
            Event::Back(micros) => {
                // Expired data is dropped on both sides before the clock is set back.
                let lease = Ttl::new(Ttl::MIN).unwrap();
                let token = steps::nobody();
                self.take(&Step::Renew { token, lease }, true)?;
                self.now_us -= micros;
            }
            Event::LoseControl if is_free => {
                self.seen.note("control lost", self.state.control.is_some());
                self.state.control = None;
                self.redis.command(&["DEL", &self.key.beside(":lh-cache")]);
            }
            Event::LoseValue if is_free => {
                self.state.value = None;
                self.redis.command(&["DEL", self.key.key()]);
            }
            Event::FlushScripts => drop(self.redis.command(&["SCRIPT", "FLUSH"])),
            Event::ForeignText(at) if is_free => {
                self.state.value = None;
                self.state.foreign = Some("string".into());
                self.redis
                    .command(&["SET", self.key.key(), FOREIGN_TEXTS[at]]);
            }
            Event::ForeignType if is_free => {
                self.state.value = None;
                self.state.foreign = Some("zset".into());
                self.redis.command(&["DEL", self.key.key()]);
                self.redis.command(&["ZADD", self.key.key(), "1", "a"]);
            }
            Event::ForeignControl(text) if is_free => {
                self.state.control = None;
                self.state.foreign = Some(if text { "string" } else { "hash" }.into());
                let control = self.key.beside(":lh-cache");
                if text {
                    self.redis.command(&["SET", &control, "1"]);
                } else {
                    self.redis.command(&["DEL", &control]);
                    self.redis.command(&["HSET", &control, "last", "7"]);
                }
            }
            Event::Clear => {
                self.state = EntryState::default();
                self.redis.command(&["DEL", self.key.key()]);
                self.redis.command(&["DEL", &self.key.beside(":lh-cache")]);
            }
            Event::Stored(stored) if is_free => {
                let (value, left_ms) = stored.value(self.now_ms());
                let (key, text, left) = (self.key.key(), value.text(), left_ms.to_string());
                let words: [&[u8]; 5] = [b"SET", key.as_bytes(), &text, b"PX", left.as_bytes()];
                self.redis.command(&words);
                self.state.value = Some((value, self.now_ms() + left_ms));
            }
            Event::LoseControl
            | Event::LoseValue
            | Event::ForeignText(_)
            | Event::ForeignType
            | Event::ForeignControl(_)
            | Event::Stored(_) => {}
        }
        self.redis.set_clock(self.now_us);
        self.compare()
    }

    fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    fn pass(&mut self, span: Span) {
        let until_us = |end: Option<u64>, by: i64| {
            end.map(|ms| (ms * 1_000).saturating_add_signed(by * 1_000))
        };
        let control = self.state.control.as_ref();
        let loader = control.and_then(|control| control.loader);
        let failed = control.and_then(|control| control.back_off.as_ref());
        let value = self.state.value.as_ref();
        let end = match span {
            Span::Micros(micros) => Some(self.now_us + micros),
            Span::Lease(by) => until_us(loader.map(|loader| loader.until_ms), by),
            Span::BackOff(by) => until_us(failed.map(|failed| failed.until_ms), by),
            Span::Soft(by) => until_us(value.map(|(value, _)| value.header.soft_ms), by),
            Span::Hard(by) => until_us(value.map(|(_, until_ms)| *until_ms), by),
            Span::Memory(by) => until_us(control.map(|control| control.forget_at_ms), by),
        };
        self.now_us = end.unwrap_or(self.now_us + 1).max(self.now_us);
    }

    /// Takes a step on both sides.
    fn take(&mut self, step: &Step, listens: bool) -> Result<(), String> {
        writeln!(self.story, "    {step:?} at {}", self.now_us).unwrap();
        self.last = Some((step.clone(), listens));
        let before = self.state.clone();
        let now = Now::at_micros(self.now_us);
        let expected = self.state.apply(now, &server::as_heard(step, listens));
        let taken = self.redis.take(&self.key, step, listens)?;
        if (&taken.reply, taken.now_ms) != (&expected.reply, now.millis()) {
            return Err(format!("answered {taken:?}, by the rules {expected:?}"));
        }
        let mut told: Vec<_> = expected
            .wakes
            .iter()
            .map(|client| {
                let loaded = format!("loaded {}", self.key.key());
                (format!("leasehold:wake:{client}"), loaded)
            })
            .collect();
        told.sort();
        let mut heard = self.redis.messages();
        // The order of hints to different clients does not matter.
        heard.sort();
        if told != heard {
            return Err(format!("told {heard:?}, by the rules {told:?}"));
        }
        self.tokens.learn(step, &taken.reply);
        self.tally(&before, step, &taken.reply, !told.is_empty());
        Ok(())
    }

    fn compare(&mut self) -> Result<(), String> {
        let mut expected = self.state.clone();
        expected.expire(Now::at_micros(self.now_us));
        let found = self.redis.state(&self.key, self.now_ms())?;
        if found != expected {
            return Err(format!("kept {found:#?}, by the rules {expected:#?}"));
        }
        Ok(())
    }

    fn tally(&mut self, before: &EntryState, step: &Step, reply: &Reply, told: bool) {
        let last = |state: &EntryState| state.control.as_ref().map(|control| control.last.get());
        let counted = last(before)
            .zip(last(&self.state))
            .is_some_and(|(before, after)| after == before + 1);
        self.seen.note("steps", true);
        if let (Step::Commit(commit), Reply::Committed(_), Some(last)) = (step, reply, last(before))
        {
            self.seen
                .note("number never given out", commit.version.get() > last);
        }
        let is_ahead = |(value, _): &(Value, u64)| value.header.version.get() > self.now_us;
        let ahead = last(before).is_none() && before.value.as_ref().is_some_and(is_ahead);
        let begins = matches!((step, reply), (Step::Begin(_), Reply::Load { .. }));
        self.seen
            .note("version ahead of the clock", begins && ahead);
        self.seen.note("told", told);
        self.seen.note("number counted", counted);
        let again = last(before) == last(&self.state);
        let (word, stale) = match (step, reply) {
            (_, Reply::Fresh(_)) => ("fresh", false),
            (_, Reply::Load { stale, .. }) if again => ("load again", stale.is_some()),
            (_, Reply::Load { stale, .. }) => ("load", stale.is_some()),
            (_, Reply::Busy { stale, .. }) => ("busy", stale.is_some()),
            (_, Reply::BackOff { stale, .. }) => ("back-off", stale.is_some()),
            (_, Reply::Renewed) => ("renewed", false),
            (_, Reply::NotLoading) => ("not-loading", false),
            (_, Reply::Committed(CommitOutcome::Fresh(_))) => ("committed fresh", false),
            (_, Reply::Committed(CommitOutcome::Stale)) => ("committed stale", false),
            (_, Reply::Committed(CommitOutcome::Overtaken)) => ("overtaken", false),
            (_, Reply::Abandoned) => ("abandoned", false),
            (_, Reply::Invalidated) => ("invalidated", false),
            (_, Reply::Foreign(_)) => ("foreign", false),
        };
        self.seen.note(word, true);
        self.seen.note("stale sent", stale);
    }
}
