//! A command that takes a lock and starts another under it. The wrapper does not stop the child when the lock is lost.

use super::rung::{Rung, RungBounds, TTL};
use super::setnx;
use crate::ladder::program::{Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{Child, Exclusion, Ownership};
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick};

/// P8 around a child that is not stopped.
pub(super) static ORPHAN: Rung = Rung {
    name: "wrapper-orphan",
    number: "P8",
    recipe: "SET lock $$ NX PX ttl && ./job; EVAL \"if GET == $$ then DEL\"",
    why: "The lock runs out while the child works, and the wrapper does not stop it.",
    next: "The wrapper ends its child, and all that it started, before the deadline: leasehold run.",
    program: &Wrapper,
    asks: &[Exclusion, Ownership, Child],
    breaks: Some(Child),
    bounds: RungBounds::calm(2, 1, 5),
    deep: RungBounds::calm(3, 1, 6).losses(1).delays(1),
    ..setnx::DEL
};

#[derive(Debug)]
struct Wrapper;

const STARTING: u8 = 1;
const CHILD_WRITES: u8 = 2;
const CHILD_ENDS: u8 = 3;
const RELEASING: u8 = 4;

impl Program for Wrapper {
    fn intent(&self, memory: &Memory, _clock: Tick) -> Intent {
        match memory.at {
            0 => Intent::Ask(0, RedisCommand::SetNxPx(memory.token(), TTL)),
            STARTING => Intent::Do("starts its child"),
            // The child knows of no lock.
            CHILD_WRITES => Intent::Ask(0, RedisCommand::Set(Key::Data, memory.token())),
            CHILD_ENDS => Intent::Do("sees its child end"),
            RELEASING => Intent::Ask(0, RedisCommand::DeleteIf(memory.token())),
            _ => Intent::Rest,
        }
    }

    fn done(&self, memory: &mut Memory, _clock: Tick) -> &'static str {
        memory.go(memory.at + 1, "")
    }

    fn answered(&self, memory: &mut Memory, sent: Tick, clock: Tick, reply: Reply) -> &'static str {
        match (memory.at, reply) {
            (0, Reply::Ok) if sent + TTL > clock => memory.acquire(sent + TTL, STARTING),
            (0, Reply::Ok) => memory.go(RELEASING, "too late"),
            (0, _) => memory.retry(),
            (CHILD_WRITES, _) => memory.go(CHILD_ENDS, "its child has written"),
            (_, Reply::Int(0)) => memory.rest("not its own"),
            _ => memory.rest("released"),
        }
    }

    fn unanswered(&self, memory: &mut Memory, _sent: Tick, _clock: Tick) {
        if memory.at == CHILD_WRITES {
            memory.at = CHILD_ENDS;
        } else {
            memory.rest("");
        }
    }
}
