//! The faults of the servers in a race, and the end of a round. No living client loses a lock by them.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::course::{Course, read, since};
use super::referee::RaceLog;
use crate::host_time;
use crate::ladder::place::{RealServers, jump};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::{Key, RedisCommand, Reply, Value};
use crate::ladder::rungs::Comeback;
use crate::ladder::wire::ServerReply;
use crate::rng::Rng;

/// Between two faults of servers.
const JUMPS: Duration = Duration::from_millis(20);
const RESTARTS: Duration = Duration::from_millis(100);

/// If no client got a lock for so long, and its TTL is a small part of that, no client will.
const STUCK: Duration = Duration::from_millis(500);
const STUCK_TICKS: u32 = 80;
/// The number of commands sent meanwhile that shows that the clients were not stuck.
const STUCK_COMMANDS: u64 = 200;

const POLL: Duration = Duration::from_millis(5);

/// Restarts servers, or lets their clocks jump, until the round is over.
pub(super) fn run(course: &Course<'_>, round: u64) -> Result<RaceLog, String> {
    let mut rng = Rng::new(course.settings.seed ^ (round << 16) ^ 0xff00);
    let mut log = RaceLog::default();
    let restarts = course.rung.bounds.restarts > 0;
    loop {
        rest(course, if restarts { RESTARTS } else { JUMPS });
        if course.is_over() {
            return Ok(log);
        }
        let server = u8::try_from(rng.below(course.rung.lock_servers().into())).unwrap_or_default();
        if restarts {
            restart(course, server)?;
            log.faults.restarts += 1;
        } else {
            let mut connection = read(course.servers)?.connect(server)?;
            jump(&mut connection, course.wire, course.rung.ttl)?;
            log.faults.jumps += 1;
        }
    }
}

/// Restarts a server without its data, and ends its quarantine. The clients that reconnect wait for its first commands.
fn restart(course: &Course<'_>, server: u8) -> Result<(), String> {
    let (comes_back, ttl, wire) = (course.rung.comes_back, course.rung.ttl, course.wire);
    {
        let mut servers = course
            .servers
            .write()
            .map_err(|_| "a thread of the race panicked")?;
        let first = comes_back.at_first(ttl, highest_counter(course, &servers, server)?);
        servers.restart_empty(server, wire, &first)?;
    }
    if comes_back == Comeback::LearnsLast {
        rest(course, wire.tick() * u32::try_from(ttl).unwrap_or_default());
        if course.is_over() {
            return Ok(());
        }
        let servers = read(course.servers)?;
        let mut connection = servers.connect(server)?;
        for command in comes_back.at_last(highest_counter(course, &servers, server)?) {
            wire.ask(&mut connection, command)?;
        }
    }
    Ok(())
}

/// The highest counter of the other servers.
fn highest_counter(course: &Course<'_>, servers: &RealServers, server: u8) -> Result<i16, String> {
    let mut highest = 0;
    for other in (0..course.rung.lock_servers()).filter(|&other| other != server) {
        let get = RedisCommand::Get(Key::Fence);
        let reply = course.wire.ask(&mut servers.connect(other)?, get)?;
        if let ServerReply::Reply(Reply::Bulk(Value::Number(counter))) = reply {
            highest = highest.max(counter);
        }
    }
    Ok(highest)
}

fn rest(course: &Course<'_>, long: Duration) {
    let from = host_time::up();
    while since(from) < long && !course.is_over() {
        thread::sleep(POLL.min(long));
    }
}

/// Waits for the end of a round. If dead clients can lock out the living, it counts these cases, and deletes the lock.
pub(super) fn watch(course: &Course<'_>, until: Duration) -> Result<u64, String> {
    let limit = STUCK.max(course.settings.tick * STUCK_TICKS);
    let may_be_stuck = course.rung.asks.contains(&LadderProperty::Recovery);
    let mut stuck = 0;
    let mut last = Progress::of(course);
    while !course.is_over() && host_time::up() < until {
        thread::sleep(POLL);
        let now = Progress::of(course);
        if now.acquired != last.acquired {
            last = now;
        } else if may_be_stuck
            && now.at.saturating_sub(last.at) > limit
            && now.commands - last.commands > STUCK_COMMANDS
        {
            stuck += 1;
            let mut connection = read(course.servers)?.connect(0)?;
            course
                .wire
                .ask(&mut connection, RedisCommand::Del(Key::Lock))?;
            last = now;
        }
    }
    Ok(stuck)
}

/// The progress of a round, and its time.
struct Progress {
    acquired: u64,
    commands: u64,
    at: Duration,
}

impl Progress {
    fn of(course: &Course<'_>) -> Self {
        Self {
            acquired: course.acquired.load(Ordering::Relaxed),
            commands: course.commands.load(Ordering::Relaxed),
            at: host_time::up(),
        }
    }
}
