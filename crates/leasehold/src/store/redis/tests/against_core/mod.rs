//! Compares the scripts with the rules: random sequences of steps, on a real server and on `leasehold_core::World`,
//! must give equal replies, wakes and state, to the millisecond. A difference is never excused: either the script is
//! wrong, or core is changed.
//!
//! The test controls the server's clock, so nothing is approximate and a failed sequence fails again. To repeat a seed:
//! `PROPTEST_RNG_SEED=7 cargo test -p leasehold --lib against_core`.

mod broken;
mod cases;
mod hostile;
mod model;
mod native;
mod server;
mod steps;
mod tally;

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};

use leasehold_core::LockName;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use self::model::{Model, Role, START_US};
use self::server::{Kept, Redis, messages_of};
use self::steps::{Asks, Event, FOREIGN_VALUES, Kinds, LOCKS, Span};
use super::Tally;
use crate::store::redis::scripts::Scripts;

/// Sequences per run. `scripts/soak` tries more, by other seeds.
const CASES: u32 = 150;

/// Names that try each form of key: plain, with spaces and another script, with its own hash tag.
const NAMES: [&str; LOCKS] = ["orders:42", "größe 7 %", "{user}:cart"];

#[test]
fn the_scripts_do_what_core_does() {
    agree(Role::Alone, Kinds::OfOne);
}

#[test]
fn the_scripts_for_several_holders_do_what_core_does() {
    agree(Role::Alone, Kinds::OfSeveral);
}

#[test]
fn the_scripts_of_a_node_do_what_core_does() {
    agree(Role::Node, Kinds::OfOne);
}

#[test]
fn the_scripts_of_a_node_with_readers_do_what_core_does() {
    agree(Role::Node, Kinds::ReadWrite);
}

fn agree(role: Role, kinds: Kinds) {
    match sequences(Redis::start_with(role, Scripts::new), kinds, 20_000) {
        Ok(tally) => tally.check(tally::floors(role, kinds, CASES)),
        Err(TestError::Fail(story, _)) => {
            panic!("the scripts differ from core. The shortest way there:\n{story}")
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Compares in random sequences, up to the first difference, and shortens the way there in so many tries.
fn sequences(
    redis: Redis,
    kinds: Kinds,
    max_shrink_iters: u32,
) -> Result<Tally, TestError<impl Debug>> {
    let redis = RefCell::new(redis);
    let tally = RefCell::new(Tally::default());
    let config = Config {
        cases: CASES,
        // A failure prints the steps that lead to it; there is nothing to keep in a file.
        failure_persistence: None,
        max_shrink_iters,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let input = (0..NAMES.len(), steps::events(kinds));
    TestRunner::new(config).run(&input, |(first, events)| {
        let (mut redis, mut tally) = (redis.borrow_mut(), tally.borrow_mut());
        let mut case = Case::new(&mut redis, &mut tally, first);
        let agreed = events.into_iter().try_for_each(|event| case.happens(event));
        agreed.map_err(|difference| TestCaseError::fail(format!("{}{difference}", case.story)))
    })?;
    Ok(tally.into_inner())
}

/// One sequence in progress.
struct Case<'a> {
    redis: &'a mut Redis,
    model: Model,
    tally: &'a mut Tally,
    /// The events so far, for the failure message.
    story: String,
}

impl<'a> Case<'a> {
    /// Most events concern the lock with this number.
    fn new(redis: &'a mut Redis, tally: &'a mut Tally, first: usize) -> Self {
        redis.reset(START_US);
        let role = redis.role;
        let mut names = NAMES.map(|name| LockName::new(name).unwrap());
        names.rotate_left(first);
        Self {
            redis,
            model: Model::new(names, role),
            tally,
            story: String::new(),
        }
    }

    /// Applies an event on both sides and compares them.
    fn happens(&mut self, event: Event) -> Result<(), String> {
        let mut expected = Vec::new();
        match event {
            Event::Ask { asks, others } => {
                if asks.len() > 1 {
                    self.tell(&format_args!("in one request:"));
                }
                expected = self.ask(asks, others)?;
            }
            Event::Time { lock, span } => {
                self.tell(&(lock, span));
                if let Span::Back(_) = span {
                    self.redis
                        .drop_expired(&self.model.names, self.model.now_ms());
                }
                self.model.pass(lock, span, self.tally);
                self.redis.scene.set_clock(self.model.clock_us);
            }
            Event::Foreign { lock, intrusion } => {
                self.tell(&(lock, intrusion));
                self.redis
                    .drop_expired(&self.model.names, self.model.now_ms());
                self.model.intrude(lock, intrusion, self.tally);
                self.redis.intrude(&self.model.names[lock], intrusion);
            }
            Event::LoseCounter => {
                self.model.lose_counters();
                let value = self.redis.lose_counters(&self.model.names);
                self.tell(&format_args!("the counter is lost: {value:?}"));
            }
            Event::FlushAll => {
                self.tell(&event);
                self.model.flush();
                self.redis.command(&["FLUSHALL"]);
            }
            Event::FlushScripts => {
                self.tell(&event);
                self.redis.command(&["SCRIPT", "FLUSH"]);
            }
            Event::Listen { client, on } => {
                self.tell(&event);
                self.model.listen(client, on);
                self.redis.listen(client, on);
            }
        }
        let heard = self.redis.scene.messages();
        self.compare("messages", &heard, &expected)?;
        let kept = self.redis.kept(&self.model.names, self.model.now_ms());
        for (lock, kept) in kept.iter().flat_map(|(kept, _)| kept).enumerate() {
            self.model.learn(lock, kept.queue_for_ms);
        }
        let of = |lock| Kept {
            state: self.model.state(lock),
            queue_for_ms: self.model.queue_for_ms(lock),
        };
        let expected: Vec<Kept> = (0..LOCKS).map(of).collect();
        self.compare("state", &kept, &Ok((expected, self.model.memory())))
    }

    /// Asks both sides, compares the replies, and returns the expected messages. The steps that the short form fits are
    /// executed first, so that the others find their effects.
    fn ask(&mut self, asks: Asks, others: bool) -> Result<Vec<(String, String)>, String> {
        let locks: Vec<usize> = asks.iter().map(|(lock, _)| *lock).collect();
        let step = |(lock, ask)| {
            let step = self.model.step(lock, ask, others);
            (self.model.names[lock].clone(), step)
        };
        let steps: Vec<_> = asks.into_iter().map(step).collect();
        let kind = self.redis.kind(&steps);
        if others {
            self.tell(&format_args!("a client of another quorum:"));
        }
        let fits = self.redis.fits(kind, &steps, self.model.clock_us, others)?;
        let first = (0..steps.len()).filter(|at| fits[*at]);
        let order: Vec<usize> = first
            .chain((0..steps.len()).filter(|at| !fits[*at]))
            .collect();
        let (mut replies, mut due) = (vec![None; steps.len()], Vec::new());
        for at in order {
            let (name, step) = &steps[at];
            self.tell(&(locks[at], step));
            let outcome = self.model.apply(locks[at], step, others, self.tally);
            due.extend(messages_of(&outcome, name));
            replies[at] = Some(Ok(outcome.reply));
        }
        let answered = self.redis.apply_as(kind, &steps, others);
        self.compare(
            "replies",
            &answered,
            &Ok(replies.into_iter().flatten().collect()),
        )?;
        Ok(due)
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

    /// Names the owners A to E, since their tokens look alike.
    fn readable(&self, text: &str) -> String {
        let named = self.model.owners.iter().zip('A'..);
        let text = named.fold(text.to_owned(), |text, (owner, letter)| {
            text.replace(&format!("{owner:?}"), &letter.to_string())
                .replace(owner.token(), &letter.to_string())
        });
        // It also replaces lists of byte values by readable text.
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
