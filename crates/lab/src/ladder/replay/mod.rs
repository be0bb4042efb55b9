//! Replays a trace on real servers, command by command, and compares it with the model. It counts as reproduced only if every
//! reply and every key was the same. A late step ends the attempt, since keys may have expired meanwhile.

mod replayed;
mod servers;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::thread;
use std::time::Duration;

use redis::Connection;

use self::servers::{RealServers, jump};
use super::redis::{Key, RedisCommand, Value};
use super::trace::{LadderEvent, LadderMessage, Line, Trace};
use super::words::{
    REJOINS, RESTARTS, client as name, comes_back, on_one_line, server as server_name,
};
use crate::host_time;

pub use self::replayed::{ReplayStep, ReplayVerdict, Replayed};
pub use self::servers::{Keys, ask, look};
pub use super::words::Writing;

/// How often a replay is tried, each time with ticks twice as long, until each step happens in its tick.
const ATTEMPTS: u32 = 5;

/// Replays a trace on these servers, one for each that the rung needs; without any, on private ones. Each client has a connection to
/// each server; the steps happen in their order, each in its tick. On foreign servers all keys get a unique prefix, and are deleted
/// afterwards.
///
/// # Errors
/// When a server cannot be reached or started, or is too slow for ticks of this length and of some longer ones.
pub fn replay(trace: &Trace, urls: &[String], tick: Duration) -> Result<Replayed, String> {
    let mut servers = RealServers::open(urls, trace.rung.servers)?;
    let mut tick = tick.max(Duration::from_millis(2));
    for attempts in 1..=ATTEMPTS {
        let prefix = servers.prefix();
        let wire = Writing::real(&prefix, tick);
        servers.clear(wire)?;
        let played = Player::new(trace, &mut servers, wire).and_then(Player::play);
        servers.clear(wire)?;
        let Some(steps) = played? else {
            tick *= 2;
            continue;
        };
        let mut differences = (1..).zip(&steps).filter_map(|(step, played)| {
            let differs = played.differs.clone()?;
            Some(ReplayVerdict::NotReproduced { step, differs })
        });
        let applies = |(remark, applies): (&'static str, Applies)| {
            let mut events = trace.lines.iter().map(|line| &line.event);
            events
                .any(|event| applies(event, servers.are_own))
                .then_some(remark)
        };
        return Ok(Replayed {
            rung: trace.rung.name,
            servers: servers.addresses(),
            tick_ms: tick.as_millis(),
            attempts,
            remarks: REMARKS.into_iter().filter_map(applies).collect(),
            verdict: differences.next().unwrap_or(ReplayVerdict::Reproduced),
            steps,
        });
    }
    Err(format!(
        "too slow: a step was not done in the first half of its tick, {ATTEMPTS} times, the last with ticks of {:?}; \
         try a longer --tick",
        tick / 2
    ))
}

/// Whether an event, on servers that are private or not, is played in another way than in the model.
type Applies = fn(&LadderEvent, bool) -> bool;

/// The differences between the replay and the model that a reader should know.
const REMARKS: [(&str, Applies); 9] = [
    (
        "A key that lives n ticks gets a TTL of n ticks less a half, so that it expires between two ticks.",
        |event, _| executed(event).is_some_and(has_ttl),
    ),
    (
        "EXPIRE counts whole seconds, so PEXPIRE is sent for it.",
        |event, _| {
            matches!(
                executed(event),
                Some(RedisCommand::Expire(..) | RedisCommand::SetNxAndExpire(..))
            )
        },
    ),
    (
        "The times in the key are the model's ticks: the clients' clocks belong to the story.",
        |event, _| {
            matches!(
                executed(event),
                Some(
                    RedisCommand::SetNx(Key::Lock, Value::Number(_))
                        | RedisCommand::GetSet(Key::Lock, Value::Number(_))
                )
            )
        },
    ),
    (
        "A command that is on its way is sent when it arrives in the model.",
        |event, _| event.message().is_some_and(|it| it.reply.is_none()),
    ),
    (
        "A reply that its client never hears is read, compared and thrown away.",
        |event, _| event.message().is_some_and(|it| it.is_lost),
    ),
    ("A client that dies closes its connections.", |event, _| {
        matches!(event, LadderEvent::Crashes { .. })
    }),
    (
        "A server that loses its data is killed (SIGKILL) and started again, without persistence.",
        |event, are_own| are_own && matches!(event, LadderEvent::Restarts { .. }),
    ),
    (
        "The server is not ours to kill: where it loses its data, the story's keys are deleted.",
        |event, are_own| !are_own && matches!(event, LadderEvent::Restarts { .. }),
    ),
    (
        "A clock that jumps is played by what it does to the keys: PEXPIRE takes so much of their TTLs.",
        |event, _| matches!(event, LadderEvent::ClockJumps { .. }),
    ),
];

fn executed(event: &LadderEvent) -> Option<RedisCommand> {
    event.carried_out().map(|(_, _, command, _)| command)
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

/// The player of a trace.
struct Player<'a> {
    trace: &'a Trace,
    servers: &'a mut RealServers,
    wire: Writing<'a>,
    /// By client and server; those of no client read the keys.
    connections: HashMap<(Option<u8>, u8), Connection>,
    /// When the first tick began.
    from: Duration,
}

/// Who does what in a step; for a command also the replies of the model and of the real server.
type Played = (String, String, Option<(String, String)>);

impl<'a> Player<'a> {
    /// Opens all connections before the time begins.
    fn new(
        trace: &'a Trace,
        servers: &'a mut RealServers,
        wire: Writing<'a>,
    ) -> Result<Self, String> {
        let mut player = Self {
            trace,
            servers,
            wire,
            connections: HashMap::new(),
            from: Duration::ZERO,
        };
        for server in 0..trace.rung.servers {
            for client in 0..trace.clients {
                player.connection(Some(client), server)?;
            }
            look(player.connection(None, server)?, wire)?;
        }
        Ok(player)
    }

    /// The steps; `None` if one did not happen in the first half of its tick.
    fn play(mut self) -> Result<Option<Vec<ReplayStep>>, String> {
        self.from = host_time::up();
        let mut steps = Vec::new();
        for line in &self.trace.lines {
            let tick = self.wire.tick;
            let begins = self.from + tick * u32::try_from(line.time).unwrap_or_default();
            // A little later, so that a key that expires in the middle of a tick is gone despite rounding.
            thread::sleep((begins + tick / 20).saturating_sub(host_time::up()));
            steps.push(self.step(line)?);
            if host_time::up().saturating_sub(begins) * 2 > tick {
                return Ok(None);
            }
        }
        Ok(Some(steps))
    }

    fn step(&mut self, line: &Line) -> Result<ReplayStep, String> {
        let (who, what, replies) = self.carry_out(&line.event)?;
        let mut differences = Vec::new();
        if let Some((model, real)) = &replies {
            differences.push(("the reply", model.clone(), real.clone()));
        }
        let wire = self.wire;
        for (server, model) in (0..).zip(&line.keys) {
            let real = look(self.connection(None, server)?, wire)?;
            // A real TTL is half a tick shorter, and a step happens in the first half of a tick. So the remaining TTL rounds up to
            // the model's.
            let ticks = |left: Duration| left.as_nanos().div_ceil(wire.tick.as_nanos());
            let real = real
                .into_iter()
                .map(|(key, value, left)| key_text(key, &value, left.map(ticks)));
            let model = model
                .iter()
                .map(|(key, value, left)| key_text(*key, value, *left));
            differences.push(("the keys", keys_text(model), keys_text(real)));
        }
        let mut differences = differences
            .into_iter()
            .filter(|(_, model, real)| model != real);
        let (model, real) = replies.unzip();
        Ok(ReplayStep {
            time: line.time,
            who,
            what,
            model,
            real,
            note: line.note.clone(),
            wrong: line.wrong.clone(),
            differs: differences.next().map(|(what, model, real)| {
                format!("{what}: {model} in the model, {real} in truth")
            }),
        })
    }

    fn carry_out(&mut self, event: &LadderEvent) -> Result<Played, String> {
        let wire = self.wire;
        let (who, what) = match event {
            LadderEvent::Tick => (String::new(), "time passes".into()),
            LadderEvent::Message(message) => return self.send(*message),
            LadderEvent::Does { client, what } => (name(*client), (*what).into()),
            LadderEvent::Crashes { client } => {
                self.connections
                    .retain(|&(whose, _), _| whose != Some(*client));
                (name(*client), "dies".into())
            }
            LadderEvent::Restarts { server, first } => {
                self.connections.retain(|&(_, to), _| to != *server);
                self.servers.restart_empty(*server, wire, first)?;
                (server_name(*server), comes_back(RESTARTS, first))
            }
            LadderEvent::Rejoins { server, last } => {
                for &command in last {
                    ask(self.connection(None, *server)?, wire, command)?;
                }
                (server_name(*server), comes_back(REJOINS, last))
            }
            LadderEvent::ClockJumps { server, by } => {
                jump(self.connection(None, *server)?, wire, *by)?;
                (server_name(*server), format!("its clock jumps by {by}"))
            }
        };
        Ok((who, what, None))
    }

    /// Sends a command, unless it is on its way in the model.
    fn send(&mut self, message: LadderMessage) -> Result<Played, String> {
        let (wire, server) = (self.wire, message.server);
        let ending = match (message.reply, message.is_late, message.is_lost) {
            (None, ..) => " ... on its way",
            (_, true, true) => " (arrives; its client does not hear the answer)",
            (_, true, false) => " (arrives)",
            (_, false, true) => " (reply lost)",
            (_, false, false) => "",
        };
        let shown = Writing { prefix: "", ..wire };
        let mut text = on_one_line(&shown.text(message.command)) + ending;
        if self.trace.rung.servers > 1 {
            text = format!("{}: {text}", server_name(server));
        }
        let mut replies = None;
        if let Some(model) = message.reply {
            let connection = self.connection(Some(message.client), server)?;
            let real = ask(connection, wire, message.command)?;
            replies = Some((on_one_line(&model), real));
        }
        Ok((name(message.client), text, replies))
    }

    fn connection(&mut self, whose: Option<u8>, server: u8) -> Result<&mut Connection, String> {
        Ok(match self.connections.entry((whose, server)) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(none) => none.insert(self.servers.connect(server)?),
        })
    }
}

fn key_text(key: Key, value: &impl Display, left: Option<impl Display>) -> String {
    let left = left.map_or(String::new(), |left| format!(" for {left}"));
    format!("{}={value}{left}", key.name())
}

fn keys_text(keys: impl Iterator<Item = String>) -> String {
    let keys: Vec<String> = keys.collect();
    if keys.is_empty() {
        return "none".into();
    }
    keys.join(" ")
}
