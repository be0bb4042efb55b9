//! Puts one mistake into the clients of each rung that holds. The model must find the mistake. Some mistake violates each property;
//! otherwise the property would prove nothing where it holds.
#![allow(clippy::unwrap_used, reason = "a test may")]

use leasehold_lab::ladder::check::shortest;
use leasehold_lab::ladder::program::{Answer, Intent, Memory, Program};
use leasehold_lab::ladder::property::LadderProperty::{
    self, Child, Exclusion, FenceOrder, LostUpdate, Ownership, Recovery, StaleWrite,
};
use leasehold_lab::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};
use leasehold_lab::ladder::rungs::{self, Fault, Rung, RungBounds, TTL};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// No mistake.
    None,
    /// It deletes the lock without checking the owner.
    DeletesAny,
    /// It takes the lock without a TTL.
    NoTtl,
    /// It counts its deadline from the time of the reply.
    CountsFromTheAnswer,
    /// It writes the same token with each of its acquisitions.
    SameToken,
    /// It presents no fence when it writes.
    WritesWithoutFence,
    /// It gets the same fence each time.
    SameFence,
    /// It proposes again with the token of its first number.
    KeepsItsToken,
    /// It counts the reply of a server with a higher counter as a vote.
    CountsTheUnwilling,
    /// One server less than a majority is enough for it.
    LessThanMajority,
    /// It stops its child when the lock has expired. This is not a mistake, but the missing part of its rung.
    StopsItsChild,
}

/// A rung's program, with a mistake.
#[derive(Debug)]
struct Mistaken {
    rung: &'static Rung,
    mistake: Mistake,
}

impl Program for Mistaken {
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent {
        let mut shown = *memory;
        if self.mistake == Mistake::SameToken {
            shown.nth = 0;
        }
        let intent = self.rung.program.intent(&shown, clock);
        let Intent::Ask(server, command) = intent else {
            return intent;
        };
        let is_over = memory.holds_until.is_none_or(|until| until <= clock);
        // A rung that proposes again has two tokens for each acquisition.
        let first = |value| match value {
            Value::Owner(client, nth) => Value::Owner(client, nth / 2 * 2),
            value => value,
        };
        let command = match (self.mistake, command) {
            (Mistake::KeepsItsToken, RedisCommand::Propose(value, number, ticks)) => {
                RedisCommand::Propose(first(value), number, ticks)
            }
            (Mistake::KeepsItsToken, RedisCommand::DeleteIf(value)) => {
                RedisCommand::DeleteIf(first(value))
            }
            (Mistake::DeletesAny, RedisCommand::DeleteIf(_)) => RedisCommand::Del(Key::Lock),
            (Mistake::NoTtl, RedisCommand::SetNxPx(value, _)) => {
                RedisCommand::SetNx(Key::Lock, value)
            }
            (Mistake::WritesWithoutFence, RedisCommand::WriteWithFence(_, value)) => {
                RedisCommand::Set(Key::Data, value)
            }
            (Mistake::StopsItsChild, RedisCommand::Set(Key::Data, _)) if is_over => {
                return Intent::Do("stops its child");
            }
            (_, command) => command,
        };
        Intent::Ask(server, command)
    }

    fn done(&self, memory: &mut Memory, clock: Tick) -> &'static str {
        self.rung.program.done(memory, clock)
    }

    fn answered(&self, memory: &mut Memory, mut answer: Answer) -> &'static str {
        let is_asked = answer.reply.is_some();
        if self.mistake == Mistake::LessThanMajority && memory.at == 0 && is_asked {
            // The number of servers on which it has the lock.
            memory.kept[0] = 1;
        }
        answer.reply = match (self.mistake, answer.reply) {
            (Mistake::NoTtl, Some(Reply::Int(1))) if memory.at == 0 => Some(Reply::Ok),
            (Mistake::NoTtl, Some(Reply::Int(_))) if memory.at == 0 => Some(Reply::Nil),
            (Mistake::SameFence, Some(Reply::Int(_))) if memory.at == 0 => Some(Reply::Int(1)),
            (Mistake::CountsTheUnwilling, Some(Reply::Int(_))) if memory.at < 3 => Some(Reply::Ok),
            (_, reply) => reply,
        };
        let held = memory.holds_until;
        let note = self.rung.program.answered(memory, answer);
        let began = held.is_none() && memory.holds_until.is_some();
        if began && is_asked && self.mistake == Mistake::CountsFromTheAnswer {
            memory.holds_until = Some(answer.clock + TTL);
        }
        note
    }

    fn fence(&self, memory: &Memory) -> Option<i16> {
        self.rung.program.fence(memory)
    }
}

/// Whether a rung violates the property with this mistake.
fn breaks(name: &str, mistake: Mistake, property: LadderProperty) -> bool {
    breaks_within(|bounds| bounds, name, mistake, property)
}

fn breaks_within(
    bounds: impl Fn(RungBounds) -> RungBounds,
    name: &str,
    mistake: Mistake,
    property: LadderProperty,
) -> bool {
    let rung = rungs::find(name).unwrap();
    let program: &'static Mistaken = Box::leak(Box::new(Mistaken { rung, mistake }));
    let mistaken: &'static Rung = Box::leak(Box::new(Rung { program, ..*rung }));
    shortest(mistaken, bounds(rung.bounds), property).is_some()
}

#[test]
fn the_lock_of_a_script_breaks_with_each_of_these() {
    let breaks = |mistake, property| breaks("set-px-lua", mistake, property);
    assert!(breaks(Mistake::DeletesAny, Exclusion));
    assert!(breaks(Mistake::DeletesAny, Ownership));
    assert!(breaks(Mistake::NoTtl, Recovery));
    // Only a late reply can show it.
    assert!(breaks(Mistake::CountsFromTheAnswer, Exclusion));
}

#[test]
fn a_token_is_for_one_acquisition() {
    let twice = |bounds: RungBounds| RungBounds {
        rounds: 2,
        ..bounds.with(Fault::Crash, 0).with(Fault::Loss, 0)
    };
    let breaks = |mistake, property| breaks_within(twice, "set-px-lua", mistake, property);
    assert!(breaks(Mistake::SameToken, Exclusion));
    assert!(!breaks(Mistake::None, Exclusion));
}

#[test]
fn fences_are_worth_nothing_with_one_of_these() {
    for mistake in [Mistake::WritesWithoutFence, Mistake::SameFence] {
        for property in [StaleWrite, LostUpdate] {
            assert!(
                breaks("set-px-lua-fenced", mistake, property),
                "{mistake:?}"
            );
        }
    }
}

#[test]
fn redlock_breaks_with_each_of_these() {
    let breaks = |mistake, property| breaks("redlock", mistake, property);
    assert!(breaks(Mistake::LessThanMajority, Exclusion));
    assert!(breaks(Mistake::CountsFromTheAnswer, Exclusion));
    assert!(breaks(Mistake::DeletesAny, Ownership));
}

#[test]
fn the_fenced_quorum_breaks_with_each_of_these() {
    let breaks = |mistake, property| breaks("quorum", mistake, property);
    assert!(breaks(Mistake::LessThanMajority, Exclusion));
    assert!(breaks(Mistake::CountsFromTheAnswer, Exclusion));
    assert!(breaks(Mistake::DeletesAny, Ownership));
    assert!(breaks(Mistake::CountsTheUnwilling, FenceOrder));
    assert!(breaks(Mistake::WritesWithoutFence, StaleWrite));
    assert!(breaks(Mistake::WritesWithoutFence, LostUpdate));
}

/// A late release of the first attempt must not remove a vote of the second.
#[test]
fn a_token_of_a_quorum_is_for_one_attempt() {
    // All at one time, or the search is long.
    let at_once = |bounds| RungBounds {
        rounds: 2,
        horizon: 0,
        ..bounds
    };
    let breaks = |mistake| breaks_within(at_once, "quorum", mistake, Exclusion);
    assert!(breaks(Mistake::KeepsItsToken));
    assert!(!breaks(Mistake::None));
}

#[test]
fn a_wrapper_that_stops_its_child_is_not_broken() {
    assert!(breaks("wrapper-orphan", Mistake::None, Child));
    assert!(!breaks("wrapper-orphan", Mistake::StopsItsChild, Child));
}
