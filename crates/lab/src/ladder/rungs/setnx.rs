//! `SETNX`, and the first ways to let its lock expire. No program cleans up after a crash, since these recipes have none.

use super::rung::{Comeback, Rung, RungBounds, TTL};
use crate::ladder::program::{FOR_EVER, Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{Exclusion, Ownership, Recovery};
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick};

/// P1: the lock of a dead client never ends. The other rungs on one server are like it where they do not say otherwise.
pub(super) static DEL: Rung = Rung {
    name: "setnx-del",
    number: "P1",
    recipe: "SETNX lock 1; work; DEL lock",
    why: "The holder crashes, and nobody ever removes its lock.",
    next: "The lock gets a TTL.",
    program: &SetNx { end: End::Never },
    ttl: TTL,
    servers: 1,
    has_resource: false,
    comes_back: Comeback::Empty,
    skew: [0; 3],
    are_alike: true,
    asks: &[Exclusion, Recovery, Ownership],
    breaks: Some(Recovery),
    bounds: BOUNDS,
    deep: DEEP,
};

/// P2: clients that did not get the lock send `EXPIRE` too.
pub(super) static MULTI: Rung = Rung {
    name: "multi-setnx-expire",
    number: "P2",
    recipe: "MULTI; SETNX lock 1; EXPIRE lock ttl; EXEC; work; DEL lock",
    why: "The EXPIRE of everyone who is refused refreshes the TTL, so the lock of a dead client never ends while others try.",
    next: "Only the winner sends EXPIRE.",
    program: &SetNx { end: End::WithIt },
    ..DEL
};

/// P3: a client can die between the two.
pub(super) static THEN_EXPIRE: Rung = Rung {
    name: "setnx-expire",
    number: "P3",
    recipe: "if SETNX lock 1 then EXPIRE lock ttl; work; DEL lock",
    why: "The holder crashes between SETNX and EXPIRE, and its lock has no TTL.",
    next: "SET NX EX takes the lock and gives it a TTL in one command.",
    program: &SetNx {
        end: End::Afterwards,
    },
    ..DEL
};

const BOUNDS: RungBounds = RungBounds::calm(3, 1, 5).crashes(1);

const DEEP: RungBounds = RungBounds::calm(3, 2, 7).crashes(2).losses(1);

#[derive(Debug)]
struct SetNx {
    end: End,
}

/// How the lock of a dead client ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Never,
    WithIt,
    Afterwards,
}

const SETTING_END: u8 = 1;
const WORKING: u8 = 2;

impl Program for SetNx {
    fn intent(&self, memory: &Memory, _clock: Tick) -> Intent {
        match memory.at {
            0 if self.end == End::WithIt => {
                Intent::Ask(0, RedisCommand::SetNxAndExpire(memory.token(), TTL))
            }
            0 => Intent::Ask(0, RedisCommand::SetNx(Key::Lock, memory.token())),
            SETTING_END => Intent::Ask(0, RedisCommand::Expire(Key::Lock, TTL)),
            WORKING => Intent::Ask(0, RedisCommand::Del(Key::Lock)),
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
            (0, Reply::Both(1, _)) => memory.acquire(sent + TTL, WORKING),
            (0, Reply::Int(1)) if self.end == End::Never => memory.acquire(FOR_EVER, WORKING),
            (0, Reply::Int(1)) => memory.acquire(FOR_EVER, SETTING_END),
            (0, _) => memory.retry(),
            (SETTING_END, _) => {
                memory.holds_until = Some(sent + TTL);
                memory.go(WORKING, "has a TTL")
            }
            _ => memory.rest("released"),
        }
    }

    fn unanswered(&self, memory: &mut Memory, _sent: Tick, _clock: Tick) {
        memory.rest("");
    }
}
