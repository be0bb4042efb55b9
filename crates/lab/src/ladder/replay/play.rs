//! The steps of a trace, executed in their ticks. A late step ends the attempt, since keys may have expired meanwhile.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use redis::Connection;

use super::replayed::ReplayStep;
use crate::host_time;
use crate::ladder::place::{Keys, RealServers, jump, look};
use crate::ladder::redis::{Key, RedisCommand, Reply, Tick, Value};
use crate::ladder::trace::{LadderEvent, LadderMessage, Line, Trace};
use crate::ladder::wire::{ServerReply, Wire};
use crate::ladder::words::{
    REJOINS, RESTARTS, client as name, comes_back, server as server_name, shown,
};

/// The reason why a trace was not replayed to its end.
#[derive(Debug)]
pub(super) enum Stopped {
    /// A step did not happen in the first half of its tick.
    TooSlow,
    /// Something outside the trace failed.
    Failed(String),
}

impl From<String> for Stopped {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The player of a trace.
pub(super) struct Player<'a> {
    trace: &'a Trace,
    servers: &'a mut RealServers,
    wire: &'a Wire,
    /// By client and server.
    connections: HashMap<(u8, u8), Connection>,
    /// By server, to read the keys.
    observers: HashMap<u8, Connection>,
    /// When the first tick began.
    from: Duration,
}

/// The description of a step, and its result.
struct Done {
    who: String,
    what: String,
    replies: Option<(Reply, ServerReply)>,
}

impl<'a> Player<'a> {
    /// Opens all connections before the time begins.
    pub(super) fn new(
        trace: &'a Trace,
        servers: &'a mut RealServers,
        wire: &'a Wire,
    ) -> Result<Self, Stopped> {
        let mut player = Self {
            trace,
            servers,
            wire,
            connections: HashMap::new(),
            observers: HashMap::new(),
            from: Duration::ZERO,
        };
        for server in 0..trace.servers {
            for client in 0..trace.clients {
                player.connection(client, server)?;
            }
            look(player.observer(server)?, wire)?;
        }
        Ok(player)
    }

    pub(super) fn play(mut self) -> Result<Vec<ReplayStep>, Stopped> {
        self.from = host_time::up();
        self.trace
            .lines
            .iter()
            .map(|line| self.step(line))
            .collect()
    }

    fn step(&mut self, line: &Line) -> Result<ReplayStep, Stopped> {
        self.wait_for(line.time);
        let done = self.carry_out(&line.event)?;
        let mut differs = done.replies.as_ref().and_then(|(model, real)| {
            (*real != ServerReply::Reply(*model)).then(|| {
                format!(
                    "the reply: {} in the model, {} in truth",
                    reply_text(*model),
                    said_text(real)
                )
            })
        });
        for (server, model) in (0..).zip(&line.keys) {
            let wire = self.wire;
            let real = look(self.observer(server)?, wire)?;
            differs = differs.or_else(|| compare(model, &real, wire.tick()));
        }
        self.was_in_time(line.time)?;
        Ok(ReplayStep {
            time: line.time,
            who: done.who,
            what: done.what,
            model: done.replies.as_ref().map(|(model, _)| reply_text(*model)),
            real: done.replies.as_ref().map(|(_, real)| said_text(real)),
            note: line.note.clone(),
            wrong: line.wrong.clone(),
            differs,
        })
    }

    fn carry_out(&mut self, event: &LadderEvent) -> Result<Done, Stopped> {
        let plain = |who: String, what: String| Done {
            who,
            what,
            replies: None,
        };
        Ok(match event.clone() {
            LadderEvent::Tick => plain(String::new(), "time passes".into()),
            LadderEvent::Message(message) => self.send(message)?,
            LadderEvent::Does { client, what } => plain(name(client), what.into()),
            LadderEvent::Crashes { client } => {
                self.connections.retain(|&(whose, _), _| whose != client);
                plain(name(client), "dies".into())
            }
            LadderEvent::Restarts { server, first } => {
                self.connections.retain(|&(_, to), _| to != server);
                self.observers.remove(&server);
                self.servers.restart_empty(server, self.wire, &first)?;
                plain(server_name(server), comes_back(RESTARTS, &first))
            }
            LadderEvent::Rejoins { server, last } => {
                let wire = self.wire;
                for &command in &last {
                    wire.ask(self.observer(server)?, command)?;
                }
                plain(server_name(server), comes_back(REJOINS, &last))
            }
            LadderEvent::ClockJumps { server, by } => {
                let wire = self.wire;
                jump(self.observer(server)?, wire, by)?;
                plain(server_name(server), format!("its clock jumps by {by}"))
            }
        })
    }

    /// Sends a command, unless it is on its way in the model.
    fn send(&mut self, message: LadderMessage) -> Result<Done, String> {
        let (wire, server) = (self.wire, message.server);
        let ending = match (message.reply, message.is_late, message.is_lost) {
            (None, ..) => " ... on its way",
            (_, true, true) => " (arrives; its client does not hear the answer)",
            (_, true, false) => " (arrives)",
            (_, false, true) => " (reply lost)",
            (_, false, false) => "",
        };
        let replies = match message.reply {
            None => None,
            Some(model) => {
                let connection = self.connection(message.client, server)?;
                Some((model, wire.ask(connection, message.command)?))
            }
        };
        Ok(Done {
            who: name(message.client),
            what: self.text(server, message.command) + ending,
            replies,
        })
    }

    /// The command, and to which server if there are several.
    fn text(&self, server: u8, command: RedisCommand) -> String {
        let text = self.wire.text(command);
        if self.trace.servers == 1 {
            return text;
        }
        format!("{}: {text}", server_name(server))
    }

    fn connection(&mut self, client: u8, server: u8) -> Result<&mut Connection, String> {
        open(&mut self.connections, (client, server), || {
            self.servers.connect(server)
        })
    }

    fn observer(&mut self, server: u8) -> Result<&mut Connection, String> {
        open(&mut self.observers, server, || self.servers.connect(server))
    }

    fn begin_of(&self, tick: Tick) -> Duration {
        self.from + self.wire.tick() * u32::try_from(tick).unwrap_or_default()
    }

    fn wait_for(&self, tick: Tick) {
        // A little later, so that a key that expires in the middle of a tick is gone despite rounding.
        let begins = self.begin_of(tick) + self.wire.tick() / 20;
        thread::sleep(begins.saturating_sub(host_time::up()));
    }

    fn was_in_time(&self, tick: Tick) -> Result<(), Stopped> {
        let late = host_time::up().saturating_sub(self.begin_of(tick));
        if late * 2 > self.wire.tick() {
            return Err(Stopped::TooSlow);
        }
        Ok(())
    }
}

fn open<K: std::hash::Hash + Eq>(
    connections: &mut HashMap<K, Connection>,
    key: K,
    connect: impl FnOnce() -> Result<Connection, String>,
) -> Result<&mut Connection, String> {
    use std::collections::hash_map::Entry;
    Ok(match connections.entry(key) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(none) => none.insert(connect()?),
    })
}

/// The difference between the keys of the model and those of its server.
fn compare(model: &[(Key, Value, Option<Tick>)], real: &Keys, tick: Duration) -> Option<String> {
    // A real TTL is half a tick shorter, and a step happens in the first half of a tick. So the remaining TTL rounds up to the
    // model's.
    let ticks = |left: Duration| Tick::try_from(left.as_nanos().div_ceil(tick.as_nanos())).ok();
    let mut real: Vec<_> = real
        .iter()
        .map(|(key, value, left)| (*key, *value, left.and_then(ticks)))
        .collect();
    let mut model: Vec<_> = model
        .iter()
        .map(|(key, value, left)| (*key, Some(*value), *left))
        .collect();
    model.sort_unstable();
    real.sort_unstable();
    (model != real).then(|| {
        format!(
            "the keys: {} in the model, {} in truth",
            keys_text(&model),
            keys_text(&real)
        )
    })
}

fn keys_text(keys: &[(Key, Option<Value>, Option<Tick>)]) -> String {
    let key = |(key, value, left): &(Key, Option<Value>, Option<Tick>)| {
        let value = value.map_or("something else".into(), |value| value.to_string());
        let left = left.map_or(String::new(), |left| format!(" for {left}"));
        format!("{}={value}{left}", key.name())
    };
    if keys.is_empty() {
        return "none".into();
    }
    keys.iter().map(key).collect::<Vec<_>>().join(" ")
}

/// A reply on one line, as redis-cli prints it.
fn reply_text(reply: Reply) -> String {
    shown(reply).join(" ")
}

fn said_text(said: &ServerReply) -> String {
    match said {
        ServerReply::Reply(reply) => reply_text(*reply),
        ServerReply::Else(text) => text.clone(),
    }
}
