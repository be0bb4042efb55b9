//! `SET NX PX` with a random value, and a compare-and-delete script; then the effects on the protected resource. Each rung says
//! whether it trusts the lock or the resource.

use super::rung::{Rung, RungBounds, TTL};
use super::setnx;
use crate::ladder::program::{Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{Exclusion, LostUpdate, StaleWrite};
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};

/// P8: the lock itself.
pub(super) static LUA: Rung = Rung {
    name: "set-px-lua",
    number: "P8",
    recipe: "SET lock random NX PX ttl; work until the deadline; EVAL \"if GET == random then DEL\"",
    why: "Only its owner removes a lock, in one step, and each holder stops at a deadline counted from before it asked.",
    next: "A holder that does not notice its deadline still writes: the resource has to help.",
    program: &SetPx {
        resource: Protection::None,
    },
    breaks: None,
    bounds: RungBounds::calm(3, 1, 5)
        .crashes(1)
        .losses(1)
        .delays(1)
        .given_up(),
    deep: RungBounds::calm(3, 2, 5)
        .crashes(1)
        .losses(1)
        .delays(1)
        .given_up(),
    ..setnx::DEL
};

/// P8 and a resource that accepts every write.
pub(super) static STALE_WRITE: Rung = Rung {
    name: "set-px-lua-stale-write",
    recipe: "as set-px-lua; the work is: if its deadline has not passed then write",
    why: "The write is on its way while the lock runs out, and lands after the next holder's.",
    next: "Each lock comes with a number that rises, and the resource refuses a write with a lower one.",
    program: &SetPx {
        resource: Protection::Plain,
    },
    asks: &[Exclusion, StaleWrite],
    breaks: Some(StaleWrite),
    bounds: TOUCHING,
    deep: TOUCHING_DEEP,
    ..LUA
};

/// P8 with fences on writes only.
pub(super) static LOST_UPDATE: Rung = Rung {
    name: "set-px-lua-lost-update",
    recipe: "SET NX PX and INCR lock:fence in a script; read; write with the fence",
    why: "The next holder has read but not yet written, so the resource has not seen its fence and takes the old one's write.",
    next: "The read presents the fence as well.",
    program: &SetPx {
        resource: Protection::FencedWrites,
    },
    asks: &[Exclusion, StaleWrite, LostUpdate],
    breaks: Some(LostUpdate),
    bounds: TOUCHING,
    deep: TOUCHING_DEEP,
    ..LUA
};

/// P8 with fences at the first access.
pub(super) static FENCED: Rung = Rung {
    name: "set-px-lua-fenced",
    recipe: "SET NX PX and INCR lock:fence in a script; read with the fence; write with the fence",
    why: "From the next holder's first read on, the resource refuses whatever the old one still sends.",
    next: "One server is one point of failure: Redlock takes a majority of several.",
    program: &SetPx {
        resource: Protection::FencedReads,
    },
    breaks: None,
    bounds: TOUCHING.given_up(),
    ..LOST_UPDATE
};

/// No client gives up: a client that does, and releases, gives a trace as short and less clear than a paused one.
const TOUCHING: RungBounds = RungBounds::calm(3, 1, 5).delays(1);

const TOUCHING_DEEP: RungBounds = RungBounds::calm(3, 1, 5)
    .crashes(1)
    .losses(1)
    .delays(1)
    .given_up();

#[derive(Debug)]
struct SetPx {
    resource: Protection,
}

/// The protection of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    None,
    Plain,
    FencedWrites,
    FencedReads,
}

const READING: u8 = 1;
const WRITING: u8 = 2;
const RELEASING: u8 = 3;

/// In [`Memory::kept`]: its fence, and the version that it has read.
const FENCE: usize = 0;
const VERSION: usize = 1;

impl Program for SetPx {
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent {
        let fence = memory.kept[FENCE];
        let next = Value::Number(memory.kept[VERSION] + 1);
        let is_in_time = memory.holds_until.is_some_and(|until| until > clock);
        let command = match (memory.at, self.resource) {
            (0, Protection::None | Protection::Plain) => RedisCommand::SetNxPx(memory.token(), TTL),
            (0, _) => RedisCommand::TakeWithFence(memory.token(), TTL),
            // It never begins a read or a write after its deadline.
            (READING, Protection::FencedWrites) if is_in_time => RedisCommand::Get(Key::Data),
            (READING, Protection::FencedReads) if is_in_time => RedisCommand::ReadWithFence(fence),
            (WRITING, Protection::Plain) if is_in_time => {
                RedisCommand::Set(Key::Data, memory.token())
            }
            (WRITING, _) if is_in_time => RedisCommand::WriteWithFence(fence, next),
            (READING | WRITING | RELEASING, _) => RedisCommand::DeleteIf(memory.token()),
            _ => return Intent::Rest,
        };
        Intent::Ask(0, command)
    }

    fn answered(&self, memory: &mut Memory, sent: Tick, clock: Tick, reply: Reply) -> &'static str {
        let asked = match self.intent(memory, sent) {
            Intent::Ask(_, command) => command,
            Intent::Do(_) | Intent::Rest => return "",
        };
        match (asked, reply) {
            (RedisCommand::SetNxPx(..), Reply::Ok) if self.resource == Protection::None => {
                memory.acquire_in_time(sent + TTL, clock, RELEASING)
            }
            (RedisCommand::SetNxPx(..), Reply::Ok) => {
                memory.acquire_in_time(sent + TTL, clock, WRITING)
            }
            (RedisCommand::TakeWithFence(..), Reply::Int(fence)) => {
                memory.kept[FENCE] = fence;
                memory.acquire_in_time(sent + TTL, clock, READING)
            }
            (RedisCommand::SetNxPx(..) | RedisCommand::TakeWithFence(..), _) => memory.retry(),
            (
                RedisCommand::Get(_) | RedisCommand::ReadWithFence(_),
                Reply::Bulk(Value::Number(version)),
            ) => {
                memory.kept[VERSION] = version;
                memory.go(WRITING, "")
            }
            (RedisCommand::Get(_) | RedisCommand::ReadWithFence(_), Reply::Nil) => {
                memory.go(WRITING, "no version yet: 0")
            }
            (_, Reply::Stale) => memory.go(RELEASING, "refused: its fence is old"),
            (RedisCommand::Set(..) | RedisCommand::WriteWithFence(..), _) => {
                memory.go(RELEASING, "written")
            }
            (_, Reply::Int(0)) => memory.rest("not its own"),
            _ => memory.rest("released"),
        }
    }

    /// After any outcome, the lock may be its own: it releases.
    fn unanswered(&self, memory: &mut Memory, _sent: Tick, _clock: Tick) {
        if memory.at == RELEASING {
            memory.rest("");
        } else {
            memory.holds_until = None;
            memory.at = RELEASING;
        }
    }
}
