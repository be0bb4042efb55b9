//! `SET NX EX`, and a release that may delete another client's lock, since these recipes do not check the time before it.

use super::rung::{Rung, RungBounds, TTL};
use super::setnx;
use crate::ladder::program::{Intent, Memory, Program};
use crate::ladder::property::LadderProperty::Exclusion;
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick};

/// P4: the lock expires, and `DEL` deletes any lock.
pub(super) static DEL: Rung = Rung {
    name: "set-ex-del",
    number: "P4",
    recipe: "SET lock 1 NX EX ttl; work; DEL lock",
    why: "Work outlasts the TTL, and DEL removes the next holder's lock.",
    next: "The value says whose lock it is, and the owner looks before it deletes.",
    program: &SetEx { looks_first: false },
    breaks: Some(Exclusion),
    bounds: RungBounds::calm(3, 1, 5).crashes(1),
    deep: RungBounds::calm(3, 2, 6).crashes(1).losses(1),
    ..setnx::DEL
};

/// P5: `GET` and `DEL` are two commands.
pub(super) static GET_DEL: Rung = Rung {
    name: "set-ex-get-del",
    number: "P5",
    recipe: "SET lock random NX EX ttl; work; if GET lock == random then DEL lock",
    why: "The lock expires between GET and DEL, and DEL removes the next holder's lock.",
    next: "Comparing and deleting become one step, a Lua script: set-px-lua.",
    program: &SetEx { looks_first: true },
    ..DEL
};

#[derive(Debug)]
struct SetEx {
    looks_first: bool,
}

const WORKING: u8 = 1;
const RELEASING: u8 = 2;

impl Program for SetEx {
    fn intent(&self, memory: &Memory, _clock: Tick) -> Intent {
        match memory.at {
            0 => Intent::Ask(0, RedisCommand::SetNxPx(memory.token(), TTL)),
            WORKING if self.looks_first => Intent::Ask(0, RedisCommand::Get(Key::Lock)),
            WORKING | RELEASING => Intent::Ask(0, RedisCommand::Del(Key::Lock)),
            _ => Intent::Rest,
        }
    }

    fn answered(
        &self,
        memory: &mut Memory,
        sent: Tick,
        _clock: Tick,
        reply: Reply,
    ) -> &'static str {
        match (memory.at, reply) {
            (0, Reply::Ok) => memory.acquire(sent + TTL, WORKING),
            (0, _) => memory.retry(),
            (WORKING, Reply::Bulk(value)) if self.looks_first && value == memory.token() => {
                memory.go(RELEASING, "its own")
            }
            (WORKING, _) if self.looks_first => memory.rest("not its own"),
            _ => memory.rest("released"),
        }
    }

    fn unanswered(&self, memory: &mut Memory, _sent: Tick, _clock: Tick) {
        memory.rest("");
    }
}
