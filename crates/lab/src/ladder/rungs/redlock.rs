//! P8 on a majority of independent servers. Clients ask the servers in different orders, since real clients ask all at once and a
//! fixed order would hide traces.

use super::Fault::{Delay, Jump, Loss, Restart};
use super::one_server::SETNX_DEL;
use super::{Rung, RungBounds, TTL};
use crate::ladder::program::{Answer, Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{Exclusion, Ownership};
use crate::ladder::redis::{RedisCommand, Reply, Tick};

const SERVERS: u8 = 3;
const QUORUM: i16 = 2;

/// P9 as specified.
pub(super) static PLAIN: Rung = Rung {
    name: "redlock",
    number: "P9",
    recipe: "SET lock random NX PX ttl on 3 servers; held with 2 of them, until ttl after the first was asked; release on all",
    why: "Two majorities share a server, and no server forgets a lock before its TTL.",
    next: "The client proposes a fence, which a majority has to store, and a server that has forgotten keeps out: quorum.",
    program: &Redlock {
        counts_from_the_end: false,
    },
    servers: SERVERS,
    are_alike: false,
    asks: &[Exclusion, Ownership],
    breaks: None,
    bounds: RungBounds::calm(2, 1, 3).with(Delay, 1).given_up(),
    deep: RungBounds::calm(3, 1, 3).with(Loss, 1),
    ..SETNX_DEL
};

/// P9 with a server that restarts empty.
pub(super) static RESTART: Rung = Rung {
    name: "redlock-restart",
    recipe: "as redlock; a server restarts without its data",
    why: "A server that has forgotten its lock gives a second majority.",
    next: "A server that has lost its data stays away for a TTL and learns the counter of the others: quorum-restart.",
    breaks: Some(Exclusion),
    bounds: RungBounds::calm(2, 1, 2).with(Restart, 1),
    deep: RungBounds::calm(2, 1, 4).with(Restart, 1).with(Loss, 1),
    ..PLAIN
};

/// P9 with a clock that is set.
pub(super) static CLOCK_JUMP: Rung = Rung {
    name: "redlock-clock-jump",
    recipe: "as redlock; the clock of a server jumps ahead",
    why: "The TTL is wall-clock time: a server whose clock jumps drops its lock early and gives a second majority.",
    next: "Clocks that are slewed, never set; and a fence at the resource: quorum-clock-jump.",
    breaks: Some(Exclusion),
    bounds: RungBounds::calm(2, 1, 2).with(Jump, 1),
    deep: RungBounds::calm(2, 1, 4).with(Jump, 1).with(Loss, 1),
    ..PLAIN
};

/// P9 with the mistake of counting from the last reply.
pub(super) static LATE_VALIDITY: Rung = Rung {
    name: "redlock-late-validity",
    recipe: "as redlock, but held until ttl after the last server answered",
    why: "The first server drops its lock a TTL after it was asked, while the client counts from the last answer.",
    next: "Validity is counted from before the first request: redlock.",
    program: &Redlock {
        counts_from_the_end: true,
    },
    breaks: Some(Exclusion),
    bounds: RungBounds::calm(2, 1, 3).with(Delay, 1),
    deep: RungBounds::calm(2, 1, 4).with(Delay, 1).given_up(),
    ..PLAIN
};

#[derive(Debug)]
struct Redlock {
    counts_from_the_end: bool,
}

/// Points 0 to 2: asks so many servers; then releases as many.
const HELD: u8 = SERVERS;
const RELEASED: u8 = HELD + SERVERS;

/// In [`Memory::kept`]: on how many servers it has the lock, and when it asked the first.
const WON: usize = 0;
const BEGAN: usize = 1;

impl Program for Redlock {
    fn intent(&self, memory: &Memory, _clock: Tick) -> Intent {
        let command = match memory.at {
            0..HELD => RedisCommand::SetNxPx(memory.token(), TTL),
            HELD..RELEASED => RedisCommand::DeleteIf(memory.token()),
            _ => return Intent::Rest,
        };
        Intent::Ask(memory.server(memory.at, SERVERS), command)
    }

    fn answered(&self, memory: &mut Memory, answer: Answer) -> &'static str {
        let Answer { sent, clock, reply } = answer;
        memory.kept[WON] += i16::from(reply == Some(Reply::Ok));
        if memory.at == 0 {
            memory.kept[BEGAN] = sent;
        }
        memory.at += 1;
        match memory.at {
            HELD if memory.kept[WON] < QUORUM => "no majority",
            HELD if self.counts_from_the_end => memory.acquire(clock + TTL, HELD),
            HELD => memory.acquire_in_time(memory.kept[BEGAN] + TTL, clock, HELD),
            RELEASED => memory.rest("released"),
            // With the first server that it releases, it gives up the lock.
            _ if memory.at > HELD => {
                memory.holds_until = None;
                ""
            }
            _ => "",
        }
    }
}
