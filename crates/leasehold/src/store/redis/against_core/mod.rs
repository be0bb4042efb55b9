//! The scripts against the rules: random sequences of steps, on a real server and on `leasehold_core::World`, must give
//! the same replies, the same wakes and the same state, to the millisecond. Must never excuse a difference: core is
//! right, or core is changed.
//!
//! The server's wall clock is the test's, so nothing is approximate and a sequence that failed fails again. To
//! run one seed again: `PROPTEST_RNG_SEED=7 cargo test -p leasehold --lib against_core`.

mod model;
mod server;
mod steps;
mod tally;

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};

use leasehold_core::LockName;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use self::model::{Model, START_US};
use self::server::{Kept, Message, Redis};
use self::steps::{Event, FOREIGN_VALUES};
use self::tally::Tally;

/// Sequences per run.
const CASES: u32 = 400;

/// Names that try each form of key: plain, with spaces and another script, with a hash tag of its own.
const NAMES: [&str; 3] = ["orders:42", "größe 7 %", "{user}:cart"];

#[test]
fn the_scripts_do_what_core_does() {
    let redis = RefCell::new(Redis::start());
    let tally = RefCell::new(Tally::default());
    let config = Config {
        cases: CASES,
        // A failure prints the steps that lead to it; there is nothing to keep in a file.
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let input = (0..NAMES.len(), steps::events());
    let outcome = TestRunner::new(config).run(&input, |(name, events)| {
        let (mut redis, mut tally) = (redis.borrow_mut(), tally.borrow_mut());
        let mut case = Case::new(&mut redis, &mut tally, NAMES[name]);
        let agreed = events.into_iter().try_for_each(|event| case.happens(event));
        agreed.map_err(|difference| TestCaseError::fail(format!("{}{difference}", case.story)))
    });
    match outcome {
        Ok(()) => tally.borrow().check(),
        Err(TestError::Fail(story, _)) => {
            panic!("the scripts differ from core. The shortest way there:\n{story}")
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// One sequence under way.
struct Case<'a> {
    redis: &'a mut Redis,
    model: Model,
    tally: &'a mut Tally,
    /// What has happened, for people.
    story: String,
}

impl<'a> Case<'a> {
    fn new(redis: &'a mut Redis, tally: &'a mut Tally, name: &str) -> Self {
        redis.reset(START_US);
        Self {
            redis,
            model: Model::new(LockName::new(name).unwrap()),
            tally,
            story: String::new(),
        }
    }

    /// Lets an event happen on both sides and compares them.
    fn happens(&mut self, event: Event) -> Result<(), String> {
        let mut wakes = Vec::new();
        match event {
            Event::Ask(ask) => {
                let step = self.model.step(ask);
                self.tell(&step);
                let outcome = self.model.apply(&step, self.tally);
                wakes = outcome.wakes;
                let reply = self.redis.apply(&self.model.name, &step);
                self.compare("reply", &reply, &Ok(outcome.reply))?;
            }
            Event::Time(span) => {
                self.tell(&span);
                self.model.pass(span, self.tally);
                self.redis.set_clock(self.model.clock_us);
            }
            Event::Foreign(intrusion) => {
                self.tell(&intrusion);
                self.model.intrude(intrusion);
                self.redis.intrude(&self.model.name, intrusion);
            }
            Event::EvictFence => {
                self.tell(&event);
                self.model.evict_fence();
                self.redis.evict_fence(&self.model.name);
            }
            Event::FlushAll => {
                self.tell(&event);
                self.model.flush();
                self.redis.flush();
            }
            Event::FlushScripts => {
                self.tell(&event);
                self.redis.flush_scripts();
            }
            Event::Listen { client, on } => {
                self.tell(&event);
                self.model.listen(client, on);
                self.redis.listen(client, on);
            }
        }
        let expected: Vec<Message> = wakes
            .iter()
            .map(|wake| Message {
                channel: format!("leasehold:wake:{}", wake.owner.client()),
                payload: format!(
                    "{} {} {}",
                    wake.fence.unwrap(),
                    wake.owner.token(),
                    self.model.name.key()
                ),
            })
            .collect();
        let heard = self.redis.messages();
        self.compare("wakes", &heard, &expected)?;
        let kept = self.redis.kept(&self.model.name, self.model.now_ms());
        let expected = Kept {
            state: self.model.state(),
            queue_for_ms: self.model.queue_for_ms(),
        };
        self.compare("state", &kept, &Ok(expected))
    }

    fn compare<T: Debug + PartialEq>(&self, what: &str, redis: &T, core: &T) -> Result<(), String> {
        if redis == core {
            return Ok(());
        }
        Err(self.readable(&format!(
            "{what} of Redis: {redis:?}\n{what} of core:  {core:?}"
        )))
    }

    fn tell(&mut self, what: &dyn Debug) {
        let at_us = self.model.clock_us.cast_signed() - START_US.cast_signed();
        let line = self.readable(&format!("{at_us:>12} us  {what:?}"));
        // Writing to a String cannot fail.
        let _infallible = writeln!(self.story, "{line}");
    }

    /// Names the owners A to E, since nobody can tell their tokens apart.
    fn readable(&self, text: &str) -> String {
        let named = self.model.owners.iter().zip('A'..);
        let text = named.fold(text.to_owned(), |text, (owner, letter)| {
            text.replace(&format!("{owner:?}"), &letter.to_string())
                .replace(owner.token(), &letter.to_string())
        });
        // And lists of byte values.
        FOREIGN_VALUES
            .iter()
            .filter(|value| !value.is_empty())
            .fold(text, |text, value| {
                text.replace(
                    &format!("{value:?}"),
                    &format!("\"{}\"", value.escape_ascii()),
                )
            })
    }
}
