//! One client of a race: it runs its program, and is late, dies and loses replies as the rung's faults allow. Its program gets
//! only the information of a real client.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use redis::Connection;

use super::course::{Course, read, since};
use super::referee::{Hold, RaceLog, Write};
use crate::host_time;
use crate::ladder::program::{AT_REST, CLIENTS, FOR_EVER, Intent, Memory};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};
use crate::ladder::wire::ServerReply;
use crate::rng::Rng;

/// One in so many steps of a client that holds something is its last.
const CRASHES: u64 = 2_000;
/// One in so many replies is lost.
const LOSSES: u64 = 200;
/// A client's acquisitions are numbered in 8 bits; a token is used again long after its first use.
const TOKENS: u8 = 200;

/// Runs until the round is over.
pub(super) fn run(course: &Course<'_>, client: u8, round: u64) -> Result<RaceLog, String> {
    let seed = course.settings.seed ^ (round << 16) ^ (u64::from(client) << 8);
    let mut racer = Racer {
        course,
        rng: Rng::new(seed),
        connections: HashMap::new(),
        memory: Memory::new(client, 0),
        skew: course.rung.skew[usize::from(client) % CLIENTS],
        asked: Duration::ZERO,
        holding: false,
        late: Vec::new(),
        log: RaceLog::default(),
    };
    for server in 0..course.rung.servers {
        racer.connection(server)?;
    }
    while !course.is_over() {
        racer.step()?;
    }
    racer.give_up_hold(host_time::up());
    Ok(racer.log)
}

/// How many writes the data contains; `None` if they are not counted.
pub(super) fn version(course: &Course<'_>) -> Result<Option<u64>, String> {
    if !course.rung.asks.contains(&LadderProperty::LostUpdate) {
        return Ok(None);
    }
    let resource = course.rung.resource();
    let mut connection = read(course.servers)?.connect(resource)?;
    match course
        .wire
        .ask(&mut connection, RedisCommand::Get(Key::Data))?
    {
        ServerReply::Reply(Reply::Bulk(Value::Number(version))) => {
            Ok(Some(u64::try_from(version).unwrap_or_default()))
        }
        ServerReply::Reply(Reply::Nil) => Ok(Some(0)),
        other => Err(format!("the data is no number: {other:?}")),
    }
}

struct Racer<'a> {
    course: &'a Course<'a>,
    rng: Rng,
    connections: HashMap<u8, Connection>,
    memory: Memory,
    /// How many ticks its clock is ahead.
    skew: Tick,
    /// When it began to ask for the lock.
    asked: Duration,
    /// Whether the last of its holds in the log is current.
    holding: bool,
    /// Abandoned commands, with the times of their arrival.
    late: Vec<(Duration, Sent)>,
    log: RaceLog,
}

/// A command, and its client's knowledge when it was computed.
#[derive(Clone, Copy)]
struct Sent {
    server: u8,
    command: RedisCommand,
    clock: Tick,
    at: Duration,
    /// How many times it had held the lock.
    holds: usize,
}

impl Racer<'_> {
    fn step(&mut self) -> Result<(), String> {
        self.deliver_late()?;
        if self.rng.below(1000) < self.course.settings.pauses {
            self.log.faults.pauses += 1;
            self.sleep_long();
        }
        let clock = self.clock();
        match self.course.rung.program.intent(&self.memory, clock) {
            Intent::Ask(server, command) => self.ask(server, command, clock)?,
            Intent::Do(_) => {
                let now = host_time::up();
                self.course.rung.program.done(&mut self.memory, clock);
                self.account(now, now, now);
            }
            // It never releases: it keeps the lock until the deadline.
            Intent::Rest if self.memory.holds_until.is_some_and(|until| until > clock) => {
                thread::sleep(self.course.settings.tick / 4);
            }
            Intent::Rest => self.begin_again(),
        }
        if self.may_crash() && self.rng.below(CRASHES) == 0 {
            self.log.faults.crashes += 1;
            self.give_up_hold(host_time::up());
            self.connections.clear();
            self.begin_again();
        }
        Ok(())
    }

    fn ask(&mut self, server: u8, command: RedisCommand, clock: Tick) -> Result<(), String> {
        let bounds = &self.course.rung.bounds;
        let at = host_time::up();
        if self.memory.at == 0 {
            self.asked = at;
        }
        let holds = self.log.holds.len();
        let sent = Sent {
            server,
            command,
            clock,
            at,
            holds,
        };
        if bounds.delays > 0 && self.rng.below(1000) < self.course.settings.pauses / 4 {
            if bounds.may_give_up && self.rng.below(2) == 0 {
                self.log.faults.given_up += 1;
                let arrives = at + self.long();
                self.late.push((arrives, sent));
                self.unanswered(sent);
                return Ok(());
            }
            self.log.faults.delays += 1;
            self.sleep_long();
        }
        let on_wire = host_time::up();
        let Some(reply) = self.send(sent)? else {
            self.unanswered(sent);
            return Ok(());
        };
        if bounds.losses > 0 && self.rng.below(LOSSES) == 0 {
            self.log.faults.losses += 1;
            self.unanswered(sent);
            return Ok(());
        }
        let (now, clock_now) = (host_time::up(), self.clock());
        let program = self.course.rung.program;
        program.answered(&mut self.memory, clock, clock_now, reply);
        self.account(on_wire, now, at);
        if self.memory.at == 0 {
            // Refused: an immediate retry only keeps the server busy.
            let within = nanos(self.course.settings.tick / 2);
            thread::sleep(Duration::from_nanos(self.rng.below(within)));
        }
        Ok(())
    }

    /// Sends a command; `None` if the connection broke.
    fn send(&mut self, sent: Sent) -> Result<Option<Reply>, String> {
        let on_wire = host_time::up();
        self.course.commands.fetch_add(1, Ordering::Relaxed);
        let wire = self.course.wire;
        let said = match self.connection(sent.server) {
            Ok(connection) => wire.ask(connection, sent.command),
            Err(why) => Err(why),
        };
        let reply = match said {
            Ok(ServerReply::Reply(reply)) => reply,
            Ok(ServerReply::Else(what)) => {
                return Err(format!("{}: {what}", wire.text(sent.command)));
            }
            // This is expected in a race where servers are killed.
            Err(_) if self.course.rung.bounds.restarts > 0 => {
                self.connections.remove(&sent.server);
                return Ok(None);
            }
            Err(why) => return Err(why),
        };
        let is_write = matches!(
            sent.command,
            RedisCommand::Set(Key::Data, _) | RedisCommand::WriteWithFence(..)
        );
        if is_write && reply == Reply::Ok {
            self.log.writes.push(Write {
                sent: on_wire,
                answered: host_time::up(),
                hold: sent.holds.saturating_sub(1),
            });
        }
        Ok(Some(reply))
    }

    fn unanswered(&mut self, sent: Sent) {
        let clock = self.clock();
        let program = self.course.rung.program;
        program.unanswered(&mut self.memory, sent.clock, clock);
        self.account(sent.at, host_time::up(), sent.at);
    }

    /// Sends its abandoned commands that are due.
    fn deliver_late(&mut self) -> Result<(), String> {
        let now = host_time::up();
        while let Some(at) = self.late.iter().position(|&(arrives, _)| arrives <= now) {
            let (_, sent) = self.late.swap_remove(at);
            self.send(sent)?;
        }
        Ok(())
    }

    /// Records its hold after a step: begun at `now` by a command `sent` then, changed, or ended at `left`.
    fn account(&mut self, sent: Duration, now: Duration, left: Duration) {
        let until = self.memory.holds_until.map(|until| self.instant(until));
        match (until, self.holding) {
            (Some(until), false) => {
                self.holding = true;
                let several = self.course.rung.lock_servers() > 1;
                self.log.holds.push(Hold {
                    sent: if several { self.asked } else { sent },
                    from: now,
                    until,
                    fence: self.course.rung.program.fence(&self.memory),
                });
                self.course.acquired.fetch_add(1, Ordering::Relaxed);
                let work = self.rng.below(nanos(self.course.settings.work));
                thread::sleep(Duration::from_nanos(work));
            }
            (Some(until), true) => {
                if let Some(hold) = self.log.holds.last_mut() {
                    hold.until = until;
                }
            }
            (None, _) => self.give_up_hold(left),
        }
        if self.memory.at == AT_REST {
            self.begin_again();
        }
    }

    fn give_up_hold(&mut self, at: Duration) {
        if let Some(hold) = self.log.holds.last_mut().filter(|_| self.holding) {
            hold.until = hold.until.min(at);
        }
        self.holding = false;
    }

    fn begin_again(&mut self) {
        self.give_up_hold(host_time::up());
        self.memory = Memory::new(self.memory.client, (self.memory.nth + 1) % TOKENS);
    }

    fn may_crash(&self) -> bool {
        self.course.rung.bounds.crashes > 0 && self.memory.at != 0
    }

    fn clock(&self) -> Tick {
        let ticks = since(self.course.from).as_nanos() / self.course.settings.tick.as_nanos();
        Tick::try_from(ticks).unwrap_or(FOR_EVER - self.skew) + self.skew
    }

    /// When its clock will say so.
    fn instant(&self, clock: Tick) -> Duration {
        if clock == FOR_EVER {
            return Duration::MAX;
        }
        let ticks = u32::try_from(clock - self.skew).unwrap_or_default();
        self.course.from + self.course.settings.tick * ticks
    }

    fn sleep_long(&mut self) {
        let long = self.long();
        thread::sleep(long);
    }

    /// A random time from a half to three TTLs.
    fn long(&mut self) -> Duration {
        let ttl =
            nanos(self.course.settings.tick) * u64::try_from(self.course.rung.ttl).unwrap_or(2);
        Duration::from_nanos(ttl / 2 + self.rng.below(ttl * 5 / 2))
    }

    fn connection(&mut self, server: u8) -> Result<&mut Connection, String> {
        use std::collections::hash_map::Entry;
        Ok(match self.connections.entry(server) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(none) => none.insert(read(self.course.servers)?.connect(server)?),
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
