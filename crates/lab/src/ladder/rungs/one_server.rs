//! The recipes for one server whose client follows a list of commands: `SETNX`, and the first ways to let its lock expire; `SET NX`
//! with a TTL; a compare-and-delete script, and the effects on the protected resource; a child process under a lock.

use super::Fault::{Crash, Delay, Loss};
use super::{Comeback, Rung, RungBounds, TTL};
use crate::ladder::program::{Answer, FOR_EVER, Intent, Memory, Program};
use crate::ladder::property::LadderProperty::{
    Child, Exclusion, LostUpdate, Ownership, Recovery, StaleWrite,
};
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};

/// P1: the lock of a dead client never ends. The other rungs on one server are like it where they do not say otherwise.
pub(super) static SETNX_DEL: Rung = Rung {
    name: "setnx-del",
    number: "P1",
    recipe: "SETNX lock 1; work; DEL lock",
    why: "The holder crashes, and nobody ever removes its lock.",
    next: "The lock gets a TTL.",
    program: &Commands(&[Step::SetNx, Step::Del]),
    servers: 1,
    has_resource: false,
    comes_back: Comeback::Empty,
    skew: [0; 3],
    are_alike: true,
    asks: &[Exclusion, Recovery, Ownership],
    breaks: Some(Recovery),
    bounds: RungBounds::calm(3, 1, 5).with(Crash, 1),
    deep: RungBounds::calm(3, 2, 7).with(Crash, 2).with(Loss, 1),
};

/// P2: clients that did not get the lock send `EXPIRE` too.
pub(super) static MULTI: Rung = Rung {
    name: "multi-setnx-expire",
    number: "P2",
    recipe: "MULTI; SETNX lock 1; EXPIRE lock ttl; EXEC; work; DEL lock",
    why: "The EXPIRE of everyone who is refused refreshes the TTL, so the lock of a dead client never ends while others try.",
    next: "Only the winner sends EXPIRE.",
    program: &Commands(&[Step::SetNxAndExpire, Step::Del]),
    ..SETNX_DEL
};

/// P3: a client can die between the two.
pub(super) static THEN_EXPIRE: Rung = Rung {
    name: "setnx-expire",
    number: "P3",
    recipe: "if SETNX lock 1 then EXPIRE lock ttl; work; DEL lock",
    why: "The holder crashes between SETNX and EXPIRE, and its lock has no TTL.",
    next: "SET NX EX takes the lock and gives it a TTL in one command.",
    program: &Commands(&[Step::SetNx, Step::Expire, Step::Del]),
    ..SETNX_DEL
};

/// P4: the lock expires, and `DEL` deletes any lock.
pub(super) static SET_EX_DEL: Rung = Rung {
    name: "set-ex-del",
    number: "P4",
    recipe: "SET lock 1 NX EX ttl; work; DEL lock",
    why: "Work outlasts the TTL, and DEL removes the next holder's lock.",
    next: "The value says whose lock it is, and the owner looks before it deletes.",
    program: &Commands(&[Step::Set, Step::Del]),
    breaks: Some(Exclusion),
    deep: RungBounds::calm(3, 2, 6).with(Crash, 1).with(Loss, 1),
    ..SETNX_DEL
};

/// P5: `GET` and `DEL` are two commands.
pub(super) static GET_DEL: Rung = Rung {
    name: "set-ex-get-del",
    number: "P5",
    recipe: "SET lock random NX EX ttl; work; if GET lock == random then DEL lock",
    why: "The lock expires between GET and DEL, and DEL removes the next holder's lock.",
    next: "Comparing and deleting become one step, a Lua script: set-px-lua.",
    program: &Commands(&[Step::Set, Step::GetOwner, Step::Del]),
    ..SET_EX_DEL
};

/// P8: the lock itself.
pub(super) static LUA: Rung = Rung {
    name: "set-px-lua",
    number: "P8",
    recipe: "SET lock random NX PX ttl; work until the deadline; EVAL \"if GET == random then DEL\"",
    why: "Only its owner removes a lock, in one step, and each holder stops at a deadline counted from before it asked.",
    next: "A holder that does not notice its deadline still writes: the resource has to help.",
    program: &Commands(&[Step::Set, Step::DeleteIf]),
    breaks: None,
    bounds: ANY_CLIENT_FAULT,
    deep: RungBounds {
        rounds: 2,
        ..ANY_CLIENT_FAULT
    },
    ..SETNX_DEL
};

/// P8 and a resource that accepts every write.
pub(super) static STALE_WRITE: Rung = Rung {
    name: "set-px-lua-stale-write",
    recipe: "as set-px-lua; the work is: if its deadline has not passed then write",
    why: "The write is on its way while the lock runs out, and lands after the next holder's.",
    next: "Each lock comes with a number that rises, and the resource refuses a write with a lower one.",
    program: &Commands(&[Step::Set, Step::Write, Step::DeleteIf]),
    asks: &[Exclusion, StaleWrite],
    breaks: Some(StaleWrite),
    // No client gives up: a client that does, and releases, gives a trace as short and less clear than a paused one.
    bounds: RungBounds::calm(3, 1, 5).with(Delay, 1),
    deep: ANY_CLIENT_FAULT,
    ..LUA
};

/// P8 with fences on writes only.
pub(super) static LOST_UPDATE: Rung = Rung {
    name: "set-px-lua-lost-update",
    recipe: "SET NX PX and INCR lock:fence in a script; read; write with the fence",
    why: "The next holder has read but not yet written, so the resource has not seen its fence and takes the old one's write.",
    next: "The read presents the fence as well.",
    program: &Commands(&[
        Step::TakeWithFence,
        Step::Read,
        Step::WriteWithFence,
        Step::DeleteIf,
    ]),
    asks: &[Exclusion, StaleWrite, LostUpdate],
    breaks: Some(LostUpdate),
    ..STALE_WRITE
};

/// P8 with fences at the first access.
pub(super) static FENCED: Rung = Rung {
    name: "set-px-lua-fenced",
    recipe: "SET NX PX and INCR lock:fence in a script; read with the fence; write with the fence",
    why: "From the next holder's first read on, the resource refuses whatever the old one still sends.",
    next: "One server is one point of failure: Redlock takes a majority of several.",
    program: &Commands(&[
        Step::TakeWithFence,
        Step::ReadWithFence,
        Step::WriteWithFence,
        Step::DeleteIf,
    ]),
    breaks: None,
    bounds: RungBounds::calm(3, 1, 5).with(Delay, 1).given_up(),
    ..LOST_UPDATE
};

/// P8 around a child that is not stopped.
pub(super) static ORPHAN: Rung = Rung {
    name: "wrapper-orphan",
    recipe: "SET lock $$ NX PX ttl && ./job; EVAL \"if GET == $$ then DEL\"",
    why: "The lock runs out while the child works, and the wrapper does not stop it.",
    next: "The wrapper ends its child, and all that it started, before the deadline: leasehold run.",
    program: &Commands(&[
        Step::Set,
        Step::Do("starts its child"),
        Step::ChildWrites,
        Step::Do("sees its child end"),
        Step::DeleteIf,
    ]),
    asks: &[Exclusion, Ownership, Child],
    breaks: Some(Child),
    bounds: RungBounds::calm(2, 1, 5),
    deep: RungBounds::calm(3, 1, 6).with(Loss, 1).with(Delay, 1),
    ..LUA
};

const ANY_CLIENT_FAULT: RungBounds = RungBounds::calm(3, 1, 5)
    .with(Crash, 1)
    .with(Loss, 1)
    .with(Delay, 1)
    .given_up();

/// The commands of a client, in their order: the first takes the lock, the last releases it.
#[derive(Debug)]
struct Commands(&'static [Step]);

#[derive(Debug, Clone, Copy)]
enum Step {
    // Takes the lock.
    SetNx,
    SetNxAndExpire,
    Set,
    TakeWithFence,
    /// Gives the lock its TTL.
    Expire,
    // Works. The client begins none of these after its deadline.
    Read,
    ReadWithFence,
    Write,
    WriteWithFence,
    /// A local step.
    Do(&'static str),
    /// The child knows of no lock.
    ChildWrites,
    /// Releases only if the lock is still its own.
    GetOwner,
    // Releases.
    Del,
    DeleteIf,
}

/// In [`Memory::kept`]: its fence, and the version that it has read.
const FENCE: usize = 0;
const VERSION: usize = 1;

impl Program for Commands {
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent {
        let Some(step) = self.step(memory, clock) else {
            return Intent::Rest;
        };
        let (token, fence) = (memory.token(), memory.kept[FENCE]);
        let next = Value::Number(memory.kept[VERSION] + 1);
        let command = match step {
            Step::SetNx => RedisCommand::SetNx(Key::Lock, token),
            Step::SetNxAndExpire => RedisCommand::SetNxAndExpire(token, TTL),
            Step::Set => RedisCommand::SetNxPx(token, TTL),
            Step::TakeWithFence => RedisCommand::TakeWithFence(token, TTL),
            Step::Expire => RedisCommand::Expire(Key::Lock, TTL),
            Step::Read => RedisCommand::Get(Key::Data),
            Step::ReadWithFence => RedisCommand::ReadWithFence(fence),
            Step::Write | Step::ChildWrites => RedisCommand::Set(Key::Data, token),
            Step::WriteWithFence => RedisCommand::WriteWithFence(fence, next),
            Step::Do(what) => return Intent::Do(what),
            Step::GetOwner => RedisCommand::Get(Key::Lock),
            Step::Del => RedisCommand::Del(Key::Lock),
            Step::DeleteIf => RedisCommand::DeleteIf(token),
        };
        Intent::Ask(0, command)
    }

    fn done(&self, memory: &mut Memory, _clock: Tick) -> &'static str {
        memory.go(memory.at + 1, "")
    }

    fn answered(&self, memory: &mut Memory, answer: Answer) -> &'static str {
        let Answer { sent, clock, reply } = answer;
        let Some(step) = self.step(memory, sent) else {
            return "";
        };
        let Some(reply) = reply else {
            return self.unanswered(memory, step);
        };
        let next = memory.at + 1;
        match (step, reply) {
            (Step::SetNx, Reply::Int(1)) => memory.acquire(FOR_EVER, next),
            (Step::SetNxAndExpire, Reply::Both(1, _)) | (Step::Set, Reply::Ok) => {
                self.acquired(memory, sent, clock)
            }
            (Step::TakeWithFence, Reply::Int(fence)) => {
                memory.kept[FENCE] = fence;
                self.acquired(memory, sent, clock)
            }
            (Step::SetNx | Step::SetNxAndExpire | Step::Set | Step::TakeWithFence, _) => {
                memory.retry()
            }
            (Step::Expire, _) => {
                memory.holds_until = Some(sent + TTL);
                memory.go(next, "has a TTL")
            }
            (Step::Read | Step::ReadWithFence, Reply::Bulk(Value::Number(version))) => {
                memory.kept[VERSION] = version;
                memory.go(next, "")
            }
            (Step::Read | Step::ReadWithFence, Reply::Nil) => memory.go(next, "no version yet: 0"),
            (_, Reply::Stale) => memory.go(self.release(), "refused: its fence is old"),
            (Step::ChildWrites, _) => memory.go(next, "its child has written"),
            (Step::Write | Step::WriteWithFence, _) => memory.go(next, "written"),
            (Step::GetOwner, Reply::Bulk(owner)) if owner == memory.token() => {
                memory.go(next, "its own")
            }
            (Step::GetOwner, _) | (Step::DeleteIf, Reply::Int(0)) => memory.rest("not its own"),
            _ => memory.rest("released"),
        }
    }
}

impl Commands {
    fn step(&self, memory: &Memory, clock: Tick) -> Option<Step> {
        match *self.0.get(usize::from(memory.at))? {
            Step::Read | Step::ReadWithFence | Step::Write | Step::WriteWithFence
                if !memory.is_in_time(clock) =>
            {
                self.0.last().copied()
            }
            step => Some(step),
        }
    }

    /// The point of the release.
    fn release(&self) -> u8 {
        // The lists are short.
        u8::try_from(self.0.len() - 1).unwrap_or_default()
    }

    fn acquired(&self, memory: &mut Memory, sent: Tick, clock: Tick) -> &'static str {
        let is_in_time = sent + TTL > clock;
        let next = if is_in_time { 1 } else { self.release() };
        memory.acquire_in_time(sent + TTL, clock, next)
    }

    /// After any outcome, the lock may be its own: it releases if that can remove no other lock.
    fn unanswered(&self, memory: &mut Memory, step: Step) -> &'static str {
        if matches!(step, Step::ChildWrites) {
            return memory.go(memory.at + 1, "");
        }
        let is_safe = matches!(self.0.last(), Some(Step::DeleteIf));
        if is_safe && memory.at != self.release() {
            memory.holds_until = None;
            return memory.go(self.release(), "");
        }
        memory.rest("")
    }
}
