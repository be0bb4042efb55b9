//! The lock whose value is its deadline by the clients' clocks, as the documentation of `SETNX` describes it: `SETNX`, and a
//! refused client reads the deadline and takes over once it has passed. It is older than the TTLs of Redis and uses none.
//!
//! The page advises: `GETSET` to take over, which succeeded if the old value had expired; before `DEL`, the holder checks its own
//! deadline; and that a loser overwrites the deadline "is not a problem". Common variants: `DEL` and `SETNX` to take over
//! (the page warns of it); a plain `DEL`; a `DEL` in `finally`, also after a refusal.

use super::Fault::{Crash, Delay};
use super::one_server::SETNX_DEL;
use super::{Rung, RungBounds, TTL};
use crate::ladder::program::{Answer, Intent, Memory, Program};
use crate::ladder::property::LadderProperty::Exclusion;
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};

/// P6: two clients that saw the deadline pass delete one after the other.
pub(super) static DEL_SETNX: Rung = Rung {
    name: "timestamp-del-setnx",
    number: "P6",
    recipe: "SETNX lock now+ttl; refused: if GET lock has passed then DEL lock, SETNX lock now+ttl",
    why: "Two clients see the deadline pass; the slower one's DEL removes the lock that the faster one has just taken.",
    next: "GETSET takes over and returns what was there, in one command.",
    program: &Timestamp(Takeover::DelSetNx, Release::Never),
    breaks: Some(Exclusion),
    bounds: RungBounds::calm(3, 1, 5).with(Crash, 1),
    deep: RungBounds::calm(3, 2, 6).with(Crash, 1),
    ..SETNX_DEL
};

/// P7 with one clock ahead of the others. Without a release: the clocks alone violate it.
pub(super) static SKEW: Rung = Rung {
    name: "getset-skew",
    number: "P7",
    recipe: "SETNX lock now+ttl; refused: if GET lock has passed, GETSET lock now+ttl wins if the old value had passed",
    why: "Each client judges the deadline by its own clock, and one that is ahead takes the lock too early.",
    next: "Only the server's clock counts: SET NX PX.",
    program: &Timestamp(Takeover::GetSet, Release::Never),
    skew: [0, 1, 0],
    are_alike: false,
    ..DEL_SETNX
};

/// P7 with perfect clocks, no release and no crash: a delayed command is enough.
pub(super) static DELAYED: Rung = Rung {
    name: "getset-delayed",
    recipe: "as getset-skew, with perfect clocks and no release at all",
    why: "A GETSET that was computed before a delay loses, and moves the new holder's deadline back all the same.",
    next: "Only the owner may touch its deadline, and the server computes it: SET NX PX.",
    skew: [0; 3],
    are_alike: true,
    bounds: RungBounds::calm(3, 1, 5).with(Delay, 1),
    deep: RungBounds::calm(3, 1, 6)
        .with(Delay, RungBounds::ANY)
        .with(Crash, 1),
    ..SKEW
};

/// P7 with the obvious release.
pub(super) static DEL: Rung = Rung {
    name: "getset-del",
    number: "P7",
    recipe: "as getset-skew, and after the work: DEL lock",
    why: "Work outlasts the deadline, and DEL removes the next holder's lock.",
    next: "The holder looks at its clock before it deletes.",
    program: &Timestamp(Takeover::GetSet, Release::Del),
    ..DEL_SETNX
};

/// P7 with the release that the page advises.
pub(super) static CHECK_DEL: Rung = Rung {
    name: "getset-check-del",
    number: "P7",
    recipe: "as getset-skew, and after the work: if its deadline has not passed then DEL lock",
    why: "The deadline passes between the check and DEL, and DEL removes the next holder's lock.",
    next: "The value says whose lock it is, and the server compares and deletes in one step.",
    program: &Timestamp(Takeover::GetSet, Release::CheckDel),
    ..DEL_SETNX
};

/// P7 in a `try ... finally`: the release also runs when the lock was refused, and the value does not identify the owner.
pub(super) static NO_OWNER: Rung = Rung {
    name: "getset-no-owner",
    number: "P7",
    recipe: "as getset-skew, with DEL lock in a finally block that also runs when the lock was refused",
    why: "A time names no owner, so the DEL of a client that never had the lock removes another's.",
    next: "The value is random, and only who knows it can delete the lock.",
    program: &Timestamp(Takeover::GetSet, Release::Finally),
    ..DEL_SETNX
};

#[derive(Debug)]
struct Timestamp(Takeover, Release);

#[derive(Debug, PartialEq, Eq)]
enum Takeover {
    DelSetNx,
    GetSet,
}

#[derive(Debug, PartialEq, Eq)]
enum Release {
    /// The lock expires.
    Never,
    Del,
    CheckDel,
    /// As `Del`, also by refused clients.
    Finally,
}

const REFUSED: u8 = 1;
const TAKING_OVER: u8 = 2;
const DELETED: u8 = 3;
const WORKING: u8 = 4;
const RELEASING: u8 = 5;

impl Program for Timestamp {
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent {
        let Self(takeover, release) = self;
        let deadline = Value::Number(clock + TTL);
        match memory.at {
            0 | DELETED => Intent::Ask(0, RedisCommand::SetNx(Key::Lock, deadline)),
            REFUSED => Intent::Ask(0, RedisCommand::Get(Key::Lock)),
            TAKING_OVER if *takeover == Takeover::GetSet => {
                Intent::Ask(0, RedisCommand::GetSet(Key::Lock, deadline))
            }
            WORKING => match release {
                Release::Never => Intent::Rest,
                Release::CheckDel => Intent::Do("checks its deadline"),
                Release::Del | Release::Finally => Intent::Ask(0, RedisCommand::Del(Key::Lock)),
            },
            TAKING_OVER | RELEASING => Intent::Ask(0, RedisCommand::Del(Key::Lock)),
            _ => Intent::Rest,
        }
    }

    fn done(&self, memory: &mut Memory, clock: Tick) -> &'static str {
        if memory.is_in_time(clock) {
            memory.go(RELEASING, "not passed")
        } else {
            memory.rest("passed: leaves the lock alone")
        }
    }

    fn answered(&self, memory: &mut Memory, answer: Answer) -> &'static str {
        let Answer { sent, clock, reply } = answer;
        let Some(reply) = reply else {
            return memory.rest("");
        };
        let Self(takeover, release) = self;
        let has_passed = |value| matches!(value, Value::Number(deadline) if deadline <= clock);
        match (memory.at, reply) {
            (0 | DELETED, Reply::Int(1)) => memory.acquire(sent + TTL, WORKING),
            (0 | DELETED, _) => memory.go(REFUSED, "refused"),
            (REFUSED, Reply::Bulk(value)) if has_passed(value) => {
                memory.go(TAKING_OVER, "has passed")
            }
            (REFUSED, Reply::Nil) => memory.retry(),
            (TAKING_OVER, _) if *takeover == Takeover::DelSetNx => memory.go(DELETED, ""),
            (TAKING_OVER, Reply::Nil) => memory.acquire(sent + TTL, WORKING),
            (TAKING_OVER, Reply::Bulk(value)) if has_passed(value) => {
                memory.acquire(sent + TTL, WORKING)
            }
            (REFUSED | TAKING_OVER, _) if *release == Release::Finally => {
                memory.go(RELEASING, "refused: on to finally")
            }
            (REFUSED | TAKING_OVER, _) => memory.retry(),
            _ => memory.rest("released"),
        }
    }
}
