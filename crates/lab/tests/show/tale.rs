//! Hand-made traces. The model of Redis answers, so all replies are real ones.

use leasehold_lab::ladder::redis::{Key, ModelServer, RedisCommand, Tick, Value};
use leasehold_lab::ladder::show::{ModelOutcome, RungSummary};
use leasehold_lab::ladder::trace::{LadderEvent, LadderMessage, Line, Trace};

pub(crate) const LOCK: Key = Key::Lock;

pub(crate) fn owner(client: u8, nth: u8) -> Value {
    Value::Owner(client, nth)
}

pub(crate) struct Tale {
    time: Tick,
    servers: Vec<ModelServer>,
    holders: Vec<u8>,
    clients: u8,
    lines: Vec<Line>,
}

impl Tale {
    pub(crate) fn new(clients: u8, servers: usize) -> Self {
        let servers = vec![ModelServer::default(); servers];
        Self {
            time: 0,
            servers,
            holders: Vec::new(),
            clients,
            lines: Vec::new(),
        }
    }

    pub(crate) fn asks(self, client: u8, command: RedisCommand) -> Self {
        self.asks_server(client, 0, command)
    }

    pub(crate) fn asks_server(mut self, client: u8, server: u8, command: RedisCommand) -> Self {
        let reply = self.servers[usize::from(server)].apply(self.time, command);
        self.tells(LadderEvent::Message(LadderMessage {
            client,
            server,
            command,
            reply: Some(reply),
            is_late: false,
            is_lost: false,
        }))
    }

    pub(crate) fn sends(self, client: u8, command: RedisCommand) -> Self {
        self.tells(LadderEvent::Message(LadderMessage {
            client,
            server: 0,
            command,
            reply: None,
            is_late: false,
            is_lost: false,
        }))
    }

    pub(crate) fn arrives(mut self, client: u8, command: RedisCommand) -> Self {
        let reply = self.servers[0].apply(self.time, command);
        self.tells(LadderEvent::Message(LadderMessage {
            client,
            server: 0,
            command,
            reply: Some(reply),
            is_late: true,
            is_lost: true,
        }))
    }

    pub(crate) fn tick(mut self) -> Self {
        self.time += 1;
        for server in &mut self.servers {
            server.expire(self.time);
        }
        self.tells(LadderEvent::Tick)
    }

    pub(crate) fn restarts(mut self, server: u8) -> Self {
        self.servers[usize::from(server)].restart_empty();
        self.tells(LadderEvent::Restarts {
            server,
            first: Vec::new(),
        })
    }

    pub(crate) fn tells(mut self, event: LadderEvent) -> Self {
        let keys = |server: &ModelServer| server.keys(self.time);
        self.lines.push(Line {
            time: self.time,
            event,
            note: String::new(),
            keys: self.servers.iter().map(keys).collect(),
            holders: self.holders.clone(),
            wrong: None,
        });
        self
    }

    /// Sets the client's conclusion from the last step.
    pub(crate) fn note(mut self, note: &str) -> Self {
        self.lines.last_mut().unwrap().note = note.into();
        self
    }

    /// Sets the holder from the last step on.
    pub(crate) fn hold(mut self, holders: &[u8]) -> Self {
        self.holders = holders.to_vec();
        self.lines
            .last_mut()
            .unwrap()
            .holders
            .clone_from(&self.holders);
        self
    }

    pub(crate) fn wrong(mut self, why: &str) -> Trace {
        self.lines.last_mut().unwrap().wrong = Some(why.into());
        let servers = u8::try_from(self.servers.len()).unwrap();
        Trace {
            rung: "by-hand",
            clients: self.clients,
            servers,
            lock_servers: servers,
            lines: self.lines,
        }
    }
}

pub(crate) fn summary(trace: &Trace) -> RungSummary<'_> {
    RungSummary {
        name: "by-hand",
        step: "P4",
        recipe: "SET lock random NX EX ttl; work; DEL lock",
        why: "The work outlasts the TTL, and DEL removes whatever stands there.",
        next: "The value says whose lock it is.",
        ahead: &[0, 0, 0],
        outcome: ModelOutcome::Broken(trace),
    }
}

/// The shortest: the holder dies.
pub(crate) fn crash() -> Trace {
    Tale::new(3, 1)
        .asks(0, RedisCommand::SetNx(LOCK, owner(0, 0)))
        .note("acquired")
        .hold(&[0])
        .tells(LadderEvent::Crashes { client: 0 })
        .hold(&[])
        .tick()
        .tick()
        .asks(1, RedisCommand::SetNx(LOCK, owner(1, 0)))
        .note("refused")
        .wrong("C1 is dead, and nothing will ever end its lock.")
}

/// Work outlasts the TTL.
pub(crate) fn overdue() -> Trace {
    Tale::new(3, 1)
        .asks(0, RedisCommand::SetNxPx(owner(0, 0), 2))
        .note("acquired")
        .hold(&[0])
        .tick()
        .tick()
        .hold(&[])
        .asks(1, RedisCommand::SetNxPx(owner(1, 0), 2))
        .note("acquired")
        .hold(&[1])
        .asks(0, RedisCommand::Del(LOCK))
        .note("released")
        .asks(2, RedisCommand::SetNxPx(owner(2, 0), 2))
        .note("acquired")
        .hold(&[1, 2])
        .wrong("C2 & C3 both hold the lock; <DEL> took \"c2-1\" away, and that isn't C1's.")
}

/// A long one, with delayed commands and a lock that is taken over by its timestamp.
pub(crate) fn delayed() -> Trace {
    let stamp = Value::Number;
    Tale::new(3, 1)
        .asks(0, RedisCommand::SetNx(LOCK, stamp(2)))
        .note("acquired")
        .hold(&[0])
        .tick()
        .tick()
        .hold(&[])
        .asks(1, RedisCommand::SetNx(LOCK, stamp(4)))
        .note("refused")
        .asks(1, RedisCommand::Get(LOCK))
        .note("believes it expired")
        .sends(1, RedisCommand::GetSet(LOCK, stamp(4)))
        .tick()
        .asks(2, RedisCommand::SetNx(LOCK, stamp(5)))
        .note("refused")
        .asks(2, RedisCommand::Get(LOCK))
        .note("believes it expired")
        .asks(2, RedisCommand::GetSet(LOCK, stamp(6)))
        .note("acquired")
        .hold(&[2])
        .arrives(1, RedisCommand::GetSet(LOCK, stamp(4)))
        .note("overwrote the deadline of another")
        .tells(LadderEvent::Does {
            client: 1,
            what: "gives up",
        })
        .tick()
        .asks(0, RedisCommand::SetNx(LOCK, stamp(6)))
        .note("refused")
        .asks(0, RedisCommand::Get(LOCK))
        .note("believes it expired")
        .asks(0, RedisCommand::GetSet(LOCK, stamp(7)))
        .note("acquired")
        .hold(&[0, 2])
        .wrong("C1 and C3 both hold the lock, and no deadline has passed.")
}

/// A transaction whose losers set a new TTL.
pub(crate) fn refreshed() -> Trace {
    Tale::new(2, 1)
        .asks(0, RedisCommand::SetNxAndExpire(owner(0, 0), 2))
        .note("acquired")
        .hold(&[0])
        .tells(LadderEvent::Crashes { client: 0 })
        .hold(&[])
        .tick()
        .asks(1, RedisCommand::SetNxAndExpire(owner(1, 0), 2))
        .note("refused")
        .tick()
        .asks(1, RedisCommand::SetNxAndExpire(owner(1, 0), 2))
        .note("refused")
        .wrong("C1 has been dead since 0, and its lock lives on past its TTL.")
}

/// Three servers, one of which loses its data.
pub(crate) fn quorum() -> Trace {
    let take = |client| RedisCommand::SetNxPx(owner(client, 0), 3);
    Tale::new(2, 3)
        .asks_server(0, 0, take(0))
        .asks_server(0, 1, take(0))
        .note("acquired by 2 of 3")
        .hold(&[0])
        .asks_server(1, 1, take(1))
        .note("refused by one")
        .restarts(1)
        .tells(LadderEvent::ClockJumps { server: 2, by: 3 })
        .asks_server(1, 1, take(1))
        .asks_server(1, 2, take(1))
        .note("acquired by 2 of 3")
        .hold(&[0, 1])
        .wrong("C1 and C2 both hold the lock, and no deadline has passed.")
}

/// A resource that refuses old fences on writes only.
pub(crate) fn fenced() -> Trace {
    let version = Value::Number;
    Tale::new(2, 1)
        .asks(0, RedisCommand::TakeWithFence(owner(0, 0), 2))
        .note("acquired")
        .hold(&[0])
        .tick()
        .tick()
        .hold(&[])
        .asks(1, RedisCommand::TakeWithFence(owner(1, 0), 2))
        .note("acquired")
        .hold(&[1])
        .asks(1, RedisCommand::Get(Key::Data))
        .note("nothing yet")
        .asks(0, RedisCommand::WriteWithFence(1, version(1)))
        .note("written")
        .asks(1, RedisCommand::WriteWithFence(2, version(1)))
        .note("written")
        .wrong("C2's write was computed before C1's, which is lost.")
}

pub(crate) fn all() -> Vec<(&'static str, Trace)> {
    vec![
        ("crash", crash()),
        ("overdue", overdue()),
        ("delayed", delayed()),
        ("refreshed", refreshed()),
        ("quorum", quorum()),
        ("fenced", fenced()),
    ]
}
