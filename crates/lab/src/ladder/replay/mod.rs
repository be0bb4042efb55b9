//! Replays a trace on real servers, command by command, and compares it with the model. It counts as reproduced only if every
//! reply and every key was the same.

mod play;
mod replayed;

use std::time::Duration;

use super::place::{Place, RealServers};
use super::redis::{Key, RedisCommand, Value};
use super::trace::{LadderEvent, LadderMessage, Trace, carried_out};
use super::wire::Wire;

use self::play::{Player, Stopped};
pub use self::replayed::{ReplayStep, ReplayVerdict, Replayed};

/// How often a replay is tried, each time with ticks twice as long, until each step happens in its tick.
const ATTEMPTS: u32 = 5;

/// Replays a trace. Each client has a connection to each server; the steps happen in their order, each in its tick.
///
/// # Errors
/// When a server cannot be reached or started, or is too slow for ticks of this length and of some longer ones.
pub fn replay(trace: &Trace, place: &Place, tick: Duration) -> Result<Replayed, String> {
    let mut servers = RealServers::open(place, trace.servers)?;
    let mut tick = tick.max(Duration::from_millis(2));
    for attempts in 1..=ATTEMPTS {
        let wire = Wire::new(servers.prefix(), tick);
        servers.clear(&wire)?;
        let played = Player::new(trace, &mut servers, &wire).and_then(Player::play);
        servers.clear(&wire)?;
        match played {
            Ok(steps) => {
                return Ok(Replayed {
                    rung: trace.rung,
                    servers: servers.addresses(),
                    tick_ms: tick.as_millis(),
                    attempts,
                    remarks: remarks(trace, servers.are_own()),
                    verdict: judge(&steps),
                    steps,
                });
            }
            Err(Stopped::TooSlow) => tick *= 2,
            Err(Stopped::Failed(why)) => return Err(why),
        }
    }
    Err(format!(
        "too slow: a step was not done in the first half of its tick, {ATTEMPTS} times, the last with ticks of {:?}; \
         try a longer --tick",
        tick / 2
    ))
}

fn judge(steps: &[ReplayStep]) -> ReplayVerdict {
    let first = (1..)
        .zip(steps)
        .find_map(|(at, step)| Some((at, step.differs.clone()?)));
    first.map_or(ReplayVerdict::Reproduced, |(step, differs)| {
        ReplayVerdict::NotReproduced { step, differs }
    })
}

/// The differences between the replay and the model that a reader should know.
fn remarks(trace: &Trace, are_own: bool) -> Vec<&'static str> {
    let has = |wanted: fn(&LadderEvent) -> bool| trace.lines.iter().any(|line| wanted(&line.event));
    let messages = |wanted: fn(LadderMessage) -> bool| {
        let mut all = trace.lines.iter().filter_map(|line| line.event.message());
        all.any(wanted)
    };
    let sends = |wanted: fn(RedisCommand) -> bool| {
        let mut commands = trace
            .lines
            .iter()
            .filter_map(|line| carried_out(&line.event));
        commands.any(|(_, _, command, _)| wanted(command))
    };
    let forgets = has(|event| matches!(event, LadderEvent::Restarts { .. }));
    let candidates = [
        (
            sends(has_ttl),
            "A key that lives n ticks gets a TTL of n ticks less a half, so that it expires between two ticks.",
        ),
        (
            sends(|command| {
                matches!(
                    command,
                    RedisCommand::Expire(..) | RedisCommand::SetNxAndExpire(..)
                )
            }),
            "EXPIRE counts whole seconds, so PEXPIRE is sent for it.",
        ),
        (
            sends(writes_a_time),
            "The times in the key are the model's ticks: the clients' clocks belong to the story.",
        ),
        (
            messages(|message| message.reply.is_none()),
            "A command that is on its way is sent when it arrives in the model.",
        ),
        (
            messages(|message| message.is_lost),
            "A reply that its client never hears is read, compared and thrown away.",
        ),
        (
            has(|event| matches!(event, LadderEvent::Crashes { .. })),
            "A client that dies closes its connections.",
        ),
        (
            forgets && are_own,
            "A server that loses its data is killed (SIGKILL) and started again, without persistence.",
        ),
        (
            forgets && !are_own,
            "The server is not ours to kill: where it loses its data, the story's keys are deleted.",
        ),
        (
            has(|event| matches!(event, LadderEvent::ClockJumps { .. })),
            "A clock that jumps is played by what it does to the keys: PEXPIRE takes so much of their TTLs.",
        ),
    ];
    let applies = |(applies, remark): (bool, &'static str)| applies.then_some(remark);
    candidates.into_iter().filter_map(applies).collect()
}

fn has_ttl(command: RedisCommand) -> bool {
    matches!(
        command,
        RedisCommand::SetNxPx(..)
            | RedisCommand::Expire(..)
            | RedisCommand::SetNxAndExpire(..)
            | RedisCommand::TakeWithFence(..)
            | RedisCommand::Propose(..)
    )
}

fn writes_a_time(command: RedisCommand) -> bool {
    matches!(
        command,
        RedisCommand::SetNx(Key::Lock, Value::Number(_))
            | RedisCommand::GetSet(Key::Lock, Value::Number(_))
    )
}
