//! Hand-made traces. The model of Redis answers, so all replies are real ones.

use leasehold_lab::ladder::redis::{Key, ModelServer, RedisCommand, Tick, Value};
use leasehold_lab::ladder::rungs::{Rung, find};
use leasehold_lab::ladder::trace::{LadderEvent, LadderMessage, Line, Trace};

pub(crate) const LOCK: Key = Key::Lock;

pub(crate) fn owner(client: u8, nth: u8) -> Value {
    Value::Owner(client, nth)
}

/// A rung of this name, which is like the others where a test does not say otherwise.
pub(crate) fn by_hand(name: &'static str, servers: u8) -> Rung {
    Rung {
        name,
        number: "P4",
        recipe: "SET lock random NX EX ttl; work; DEL lock",
        why: "The work outlasts the TTL, and DEL removes whatever stands there.",
        next: "The value says whose lock it is.",
        servers,
        ..*find("set-ex-del").unwrap()
    }
}

pub(crate) struct Tale {
    time: Tick,
    servers: Vec<ModelServer>,
    jumped: Vec<Tick>,
    holders: Vec<u8>,
    clients: u8,
    lines: Vec<Line>,
}

impl Tale {
    pub(crate) fn new(clients: u8, servers: usize) -> Self {
        Self {
            time: 0,
            servers: vec![ModelServer::default(); servers],
            jumped: vec![0; servers],
            holders: Vec::new(),
            clients,
            lines: Vec::new(),
        }
    }

    /// A command that is executed and answered at once.
    pub(crate) fn asks(self, client: u8, server: u8, command: RedisCommand) -> Self {
        self.executes(client, server, command, [false, false])
    }

    pub(crate) fn asks_in_vain(self, client: u8, server: u8, command: RedisCommand) -> Self {
        self.executes(client, server, command, [false, true])
    }

    /// A delayed command of a client that has given it up.
    pub(crate) fn arrives(self, client: u8, server: u8, command: RedisCommand) -> Self {
        self.executes(client, server, command, [true, true])
    }

    fn executes(
        mut self,
        client: u8,
        server: u8,
        command: RedisCommand,
        [is_late, is_lost]: [bool; 2],
    ) -> Self {
        let at = usize::from(server);
        let reply = self.servers[at].apply(self.time + self.jumped[at], command);
        self.tells(LadderEvent::Message(LadderMessage {
            client,
            server,
            command,
            reply: Some(reply),
            is_late,
            is_lost,
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

    pub(crate) fn tick(mut self) -> Self {
        self.time += 1;
        self.tells(LadderEvent::Tick)
    }

    pub(crate) fn jumps(mut self, server: u8, by: Tick) -> Self {
        self.jumped[usize::from(server)] += by;
        self.tells(LadderEvent::ClockJumps { server, by })
    }

    pub(crate) fn restarts(mut self, server: u8, first: &[RedisCommand]) -> Self {
        self.servers[usize::from(server)].restart_empty();
        self.itself(server, first);
        let first = first.to_vec();
        self.tells(LadderEvent::Restarts { server, first })
    }

    pub(crate) fn rejoins(mut self, server: u8, last: &[RedisCommand]) -> Self {
        self.itself(server, last);
        let last = last.to_vec();
        self.tells(LadderEvent::Rejoins { server, last })
    }

    fn itself(&mut self, server: u8, commands: &[RedisCommand]) {
        let at = usize::from(server);
        for &command in commands {
            self.servers[at].apply(self.time + self.jumped[at], command);
        }
    }

    pub(crate) fn tells(mut self, event: LadderEvent) -> Self {
        let mut keys = Vec::new();
        for (server, jumped) in self.servers.iter_mut().zip(&self.jumped) {
            server.expire(self.time + jumped);
            keys.push(server.keys(self.time + jumped));
        }
        self.lines.push(Line {
            time: self.time,
            event,
            note: String::new(),
            keys,
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

    /// Sets the holders from the last step on.
    pub(crate) fn hold(mut self, holders: &[u8]) -> Self {
        self.holders = holders.to_vec();
        self.lines.last_mut().unwrap().holders = holders.to_vec();
        self
    }

    pub(crate) fn wrong(mut self, why: &str) -> Trace {
        self.lines.last_mut().unwrap().wrong = Some(why.into());
        let servers = u8::try_from(self.servers.len()).unwrap();
        Trace {
            rung: Box::leak(Box::new(by_hand("by-hand", servers))),
            clients: self.clients,
            lines: self.lines,
        }
    }
}

/// The shortest: the holder dies.
pub(crate) fn crash() -> Trace {
    Tale::new(3, 1)
        .asks(0, 0, RedisCommand::SetNx(LOCK, owner(0, 0)))
        .note("acquired")
        .hold(&[0])
        .tells(LadderEvent::Crashes { client: 0 })
        .hold(&[])
        .tick()
        .tick()
        .asks(1, 0, RedisCommand::SetNx(LOCK, owner(1, 0)))
        .note("refused")
        .wrong("C1 is dead, and nothing will ever end its lock.")
}

/// Work outlasts the TTL.
pub(crate) fn overdue() -> Trace {
    Tale::new(3, 1)
        .asks(0, 0, RedisCommand::SetNxPx(owner(0, 0), 2))
        .note("acquired")
        .hold(&[0])
        .tick()
        .tick()
        .hold(&[])
        .asks(1, 0, RedisCommand::SetNxPx(owner(1, 0), 2))
        .note("acquired")
        .hold(&[1])
        .asks(0, 0, RedisCommand::Del(LOCK))
        .note("released")
        .asks(2, 0, RedisCommand::SetNxPx(owner(2, 0), 2))
        .note("acquired")
        .hold(&[1, 2])
        .wrong("C2 & C3 both hold the lock; <DEL> took \"c2-1\" away, and that isn't C1's.")
}

/// A lost reply, a crash, a late command, a jump, an expiry, a restart with a quarantine and without.
pub(crate) fn all_that_can_happen() -> Trace {
    let (first, second) = (owner(0, 0), owner(1, 0));
    let counter = RedisCommand::Set(Key::Fence, Value::Number(6));
    Tale::new(2, 2)
        .asks_in_vain(0, 0, RedisCommand::SetNxPx(first, 2))
        .asks(1, 0, RedisCommand::SetNxPx(second, 2))
        .asks(1, 1, RedisCommand::TakeWithFence(second, 3))
        .tick()
        .sends(0, RedisCommand::DeleteIf(second))
        .tells(LadderEvent::Crashes { client: 0 })
        .tick()
        .asks(1, 0, RedisCommand::SetNxPx(second, 3))
        .arrives(0, 0, RedisCommand::DeleteIf(second))
        .asks(1, 0, RedisCommand::SetNxAndExpire(first, 4))
        .jumps(0, 3)
        .restarts(1, &[])
        .asks(1, 1, RedisCommand::Get(LOCK))
        .tick()
        .asks(0, 0, RedisCommand::Get(LOCK))
        .restarts(1, &[RedisCommand::SetNx(LOCK, Value::Nobody)])
        .asks(1, 1, RedisCommand::Propose(second, 7, 2))
        .tick()
        .rejoins(1, &[counter, RedisCommand::Del(LOCK)])
        .asks(0, 1, RedisCommand::Propose(first, 6, 2))
        .asks(1, 1, RedisCommand::Propose(second, 7, 2))
        .wrong("nothing")
}

pub(crate) fn all() -> [(&'static str, Trace); 3] {
    [
        ("crash", crash()),
        ("overdue", overdue()),
        ("all that can happen", all_that_can_happen()),
    ]
}
