//! A majority of independent servers with a fence. The client proposes the number, as a ballot, and holds the lock once a majority
//! stores exactly this number. The protected data are on a server of their own.
//!
//! Clients ask the servers in different orders, as in `redlock`, and the clock of one client is ahead: clocks decide only how often
//! a client has to propose again.

use super::Fault::{Delay, Jump, Loss, Restart};
use super::{Comeback, Rung, RungBounds, TTL};
use crate::ladder::program::{Answer, Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{
    Exclusion, FenceOrder, LostUpdate, Ownership, StaleWrite,
};
use crate::ladder::redis::{RedisCommand, Reply, Tick, Value};

/// The servers that keep the lock.
const VOTERS: u8 = 3;
const MAJORITY: i16 = 2;
const RESOURCE: u8 = VOTERS;
/// How often a client proposes a number before it gives up.
const ATTEMPTS: i16 = 2;

/// P10: the fenced quorum.
pub(super) static PLAIN: Rung = Rung {
    name: "quorum",
    number: "P10",
    recipe: "on 3 servers: if the lock is free and n > lock:fence then SET lock:fence n, SET lock random PX ttl; held with 2 that \
             stored n, until ttl after the first was asked; else release, try above lock:fence; read and write with n; release on all",
    why: "Two majorities share a server, whose counter has passed the earlier fence and never falls.",
    next: "Leasehold's quorum adds waiting, renewal and recovery: leasehold-lab check quorum.",
    program: &FencedQuorum(Numbers::Proposed),
    servers: VOTERS + 1,
    has_resource: true,
    comes_back: Comeback::LearnsLast,
    are_alike: false,
    asks: &[Exclusion, Ownership, FenceOrder, StaleWrite, LostUpdate],
    skew: [0, 1, 0],
    breaks: None,
    bounds: RungBounds::calm(2, 1, 3).with(Delay, 1).given_up(),
    deep: RungBounds::calm(2, 1, 4)
        .with(Loss, 1)
        .with(Delay, 1)
        .given_up(),
};

/// P10 with a server that restarts empty.
pub(super) static RESTART: Rung = Rung {
    name: "quorum-restart",
    recipe: "as quorum; a server restarts without its data, gives no vote for a ttl, and then learns the highest counter of the others",
    why: "The leases that needed its lost vote have ended before it votes again, and its counter has passed their fences.",
    bounds: RungBounds::calm(2, 1, 3).with(Restart, 1),
    deep: RungBounds::calm(2, 1, 4).with(Restart, 1).with(Loss, 1),
    ..PLAIN
};

/// P10 with a clock that is set. Two clients may hold the lock at once; it is not asked for more than the resource can see.
pub(super) static CLOCK_JUMP: Rung = Rung {
    name: "quorum-clock-jump",
    recipe: "as quorum; the clock of a server jumps ahead, and the resource alone has to notice",
    why: "Two may hold the lock at once, but counters have no TTL: the later fence is higher, and from its first read on the \
          resource refuses the earlier one.",
    asks: &[Ownership, FenceOrder, StaleWrite, LostUpdate],
    bounds: RungBounds::calm(2, 1, 4).with(Jump, 1),
    deep: RungBounds::calm(2, 1, 4).with(Jump, 1).with(Loss, 1),
    ..PLAIN
};

/// P10 with a server that restarts empty and votes at once.
pub(super) static NO_QUARANTINE: Rung = Rung {
    name: "quorum-no-quarantine",
    recipe: "as quorum; a server restarts without its data and votes at once",
    why: "A server that has forgotten lock and counter gives a second majority the same number, and the resource cannot tell them apart.",
    next: "It gives no vote for a ttl, and learns the counter of the others: quorum-early-counter.",
    comes_back: Comeback::Empty,
    skew: [0; 3],
    breaks: Some(FenceOrder),
    bounds: RungBounds::calm(2, 1, 2).with(Restart, 1),
    ..RESTART
};

/// P10 with a server that learns at the wrong time.
pub(super) static EARLY_COUNTER: Rung = Rung {
    name: "quorum-early-counter",
    recipe: "as quorum-restart, but the server learns the highest counter when its quarantine begins",
    why: "A client still counts the vote that the server has forgotten, and stores its number on another server only afterwards.",
    next: "The server learns the counter when its quarantine ends: quorum-restart.",
    comes_back: Comeback::LearnsFirst,
    breaks: Some(FenceOrder),
    bounds: RungBounds::calm(2, 1, 2).with(Restart, 1),
    ..RESTART
};

/// P10 with numbers that the servers draw, each from its own counter: P8's script on a majority.
pub(super) static NO_CERTIFICATE: Rung = Rung {
    name: "quorum-no-certificate",
    recipe: "SET lock random NX PX ttl and INCR lock:fence in a script on 3 servers; held with 2 of them; the fence is the highest reply",
    why: "Each server counts alone, so a later majority without the highest counter gives no higher fence.",
    next: "The client proposes the number, and a majority has to store exactly that: quorum.",
    program: &FencedQuorum(Numbers::Drawn),
    servers: VOTERS,
    has_resource: false,
    asks: &[FenceOrder],
    skew: [0; 3],
    breaks: Some(FenceOrder),
    bounds: RungBounds::calm(3, 1, 3),
    deep: RungBounds::calm(3, 1, 4),
    ..PLAIN
};

#[derive(Debug)]
struct FencedQuorum(Numbers);

/// The source of a fence.
#[derive(Debug, PartialEq, Eq)]
enum Numbers {
    /// The client proposes it.
    Proposed,
    /// Each server draws its own, and the highest one counts.
    Drawn,
}

/// Points 0 to 2: asks so many servers for their votes. After the work it releases on as many.
const READING: u8 = VOTERS;
const WRITING: u8 = READING + 1;
const RELEASING: u8 = WRITING + 1;
const RELEASED: u8 = RELEASING + VOTERS;

/// In [`Memory::kept`]: its votes, when it asked for the first one, its number, the highest counter that it has heard, and how often
/// it has proposed a number before.
const VOTES: usize = 0;
const BEGAN: usize = 1;
const NUMBER: usize = 2;
const HIGHEST: usize = 3;
const ATTEMPT: usize = 4;
/// Once it holds the lock: the version that it has read.
const VERSION: usize = HIGHEST;

impl Program for FencedQuorum {
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent {
        let fence = memory.kept[NUMBER];
        let next = Value::Number(memory.kept[VERSION] + 1);
        let at = point(memory, clock);
        let (server, command) = match at {
            0..READING => (memory.server(at, VOTERS), self.request(memory, clock)),
            READING => (RESOURCE, RedisCommand::ReadWithFence(fence)),
            WRITING => (RESOURCE, RedisCommand::WriteWithFence(fence, next)),
            RELEASING..RELEASED => (
                memory.server(at - RELEASING, VOTERS),
                RedisCommand::DeleteIf(token(memory)),
            ),
            _ => return Intent::Rest,
        };
        Intent::Ask(server, command)
    }

    fn answered(&self, memory: &mut Memory, answer: Answer) -> &'static str {
        let (sent, reply) = (answer.sent, answer.reply);
        let at = point(memory, sent);
        match (at, reply) {
            (0..READING, _) => self.voted(memory, answer),
            (READING, Some(Reply::Bulk(Value::Number(version)))) => {
                memory.kept[VERSION] = version;
                memory.go(WRITING, "")
            }
            (READING, Some(Reply::Nil)) => {
                memory.kept[VERSION] = 0;
                memory.go(WRITING, "no version yet: 0")
            }
            (READING | WRITING, Some(Reply::Stale)) => {
                memory.go(RELEASING, "refused: its fence is old")
            }
            // After any outcome, the votes may be its own: it releases.
            (READING | WRITING, None) => {
                memory.holds_until = None;
                memory.go(RELEASING, "")
            }
            (WRITING, _) => memory.go(RELEASING, "written"),
            _ => released(memory, at),
        }
    }

    fn fence(&self, memory: &Memory) -> Option<i16> {
        memory.holds_until.map(|_| memory.kept[NUMBER])
    }
}

impl FencedQuorum {
    /// Asks a server for its vote.
    fn request(&self, memory: &Memory, clock: Tick) -> RedisCommand {
        match self.0 {
            Numbers::Proposed => RedisCommand::Propose(token(memory), number(memory, clock), TTL),
            Numbers::Drawn => RedisCommand::TakeWithFence(token(memory), TTL),
        }
    }

    /// A server has replied to the request for its vote, or its reply is lost.
    fn voted(&self, memory: &mut Memory, answer: Answer) -> &'static str {
        let Answer { sent, clock, reply } = answer;
        if self.0 == Numbers::Proposed {
            memory.kept[NUMBER] = number(memory, sent);
        }
        // The validity of all attempts counts from before the first request.
        if memory.at == 0 && memory.kept[ATTEMPT] == 0 {
            memory.kept[BEGAN] = sent;
        }
        match (&self.0, reply) {
            (Numbers::Proposed, Some(Reply::Ok)) => memory.kept[VOTES] += 1,
            (Numbers::Proposed, Some(Reply::Int(counter))) => {
                memory.kept[HIGHEST] = memory.kept[HIGHEST].max(counter);
            }
            (Numbers::Drawn, Some(Reply::Int(fence))) => {
                memory.kept[VOTES] += 1;
                memory.kept[NUMBER] = memory.kept[NUMBER].max(fence);
            }
            _ => {}
        }
        memory.at += 1;
        if memory.kept[VOTES] >= MAJORITY {
            // It asks no other: the fewer votes it has, the more others may get.
            let working = match self.0 {
                Numbers::Proposed => READING,
                // Its fence is wrong before it touches the data.
                Numbers::Drawn => RELEASING,
            };
            memory.acquire_in_time(memory.kept[BEGAN] + TTL, clock, working)
        } else if memory.at == READING {
            memory.go(RELEASING, "no majority")
        } else {
            ""
        }
    }
}

/// Its point: it begins no read and no write after its deadline.
fn point(memory: &Memory, clock: Tick) -> u8 {
    match memory.at {
        READING | WRITING if !memory.is_in_time(clock) => RELEASING,
        at => at,
    }
}

/// The number that it proposes: its own clock, or above the highest counter that it has heard.
fn number(memory: &Memory, clock: Tick) -> i16 {
    if memory.at == 0 {
        clock.max(memory.kept[HIGHEST]) + 1
    } else {
        memory.kept[NUMBER]
    }
}

/// A token of its own for each number: a late release of an earlier attempt removes no later vote.
fn token(memory: &Memory) -> Value {
    let tokens = i16::from(memory.nth) * ATTEMPTS + memory.kept[ATTEMPT];
    let nth = u8::try_from(tokens).unwrap_or_default();
    Value::Owner(memory.client, nth)
}

/// It has released on a server, or its reply is lost. With the first one it gives up the lock. After the last one it proposes a
/// number again if a server had a higher counter.
fn released(memory: &mut Memory, at: u8) -> &'static str {
    memory.holds_until = None;
    memory.at = at + 1;
    let [votes, began, number, highest, attempt] = memory.kept;
    let was_behind = highest > 0 && highest >= number;
    if memory.at < RELEASED {
        ""
    } else if votes >= MAJORITY {
        memory.rest("released")
    } else if was_behind && attempt + 1 < ATTEMPTS {
        memory.kept = [0, began, 0, highest, attempt + 1];
        memory.go(0, "its number was too low")
    } else {
        memory.rest("gives up")
    }
}
