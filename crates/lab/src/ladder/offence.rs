//! Whether and how a step violates a property. It knows only holders, keys and writes, so it treats all rungs alike.

use super::property::LadderProperty;
use super::redis::{Key, RedisCommand, Reply, Tick, Value};
use super::rungs::Rung;
use super::state::LadderState;
use super::trace::{LadderEvent, carried_out};

impl LadderProperty {
    /// How the step violates it, in one sentence; `None` if it does not.
    pub fn why(
        self,
        rung: &Rung,
        before: &LadderState,
        event: &LadderEvent,
        after: &LadderState,
    ) -> Option<String> {
        let step = JudgedStep {
            rung,
            before,
            event,
            after,
        };
        let offence = step.offence(self)?;
        Some(offence.to_string())
    }

    /// Whether a step violates it.
    pub(super) fn is_broken(
        self,
        rung: &Rung,
        before: &LadderState,
        event: &LadderEvent,
        after: &LadderState,
    ) -> bool {
        let step = JudgedStep {
            rung,
            before,
            event,
            after,
        };
        step.offence(self).is_some()
    }
}

/// One step to judge.
struct JudgedStep<'a> {
    rung: &'a Rung,
    before: &'a LadderState,
    event: &'a LadderEvent,
    after: &'a LadderState,
}

/// A violation. Clients count from 0.
enum Offence {
    TwoHolders(u8, u8),
    LockedOut {
        dead: u8,
        since: Tick,
        now: Tick,
        is_for_ever: bool,
    },
    Removed {
        by: u8,
        holder: u8,
    },
    Stale {
        writer: u8,
    },
    LowFence {
        client: u8,
        fence: i16,
        earlier: i16,
    },
    Lost {
        writer: u8,
        from: i16,
        current: i16,
    },
    Orphan {
        of: u8,
        holder: u8,
    },
}

impl std::fmt::Display for Offence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |client: &u8| format!("C{}", client + 1);
        match self {
            Self::TwoHolders(one, other) => write!(
                f,
                "{} and {} both hold the lock, and no deadline has passed.",
                name(one),
                name(other)
            ),
            Self::LockedOut {
                dead,
                since,
                now,
                is_for_ever: true,
            } => write!(
                f,
                "{} has been dead since {since}, now it is {now}, and nothing will ever end its lock.",
                name(dead)
            ),
            Self::LockedOut {
                dead, since, now, ..
            } => write!(
                f,
                "{} has been dead since {since}, now it is {now}, and its lock lives on past its TTL.",
                name(dead)
            ),
            Self::Removed { by, holder } => {
                write!(
                    f,
                    "{} removes the lock that {} holds.",
                    name(by),
                    name(holder)
                )
            }
            Self::Stale { writer } => write!(
                f,
                "A write of {}, which has lost the lock, lands on top of one of a later holder.",
                name(writer)
            ),
            Self::LowFence {
                client,
                fence,
                earlier,
            } => write!(
                f,
                "{} gets the lock with fence {fence}, and a holder before it had {earlier}.",
                name(client)
            ),
            Self::Lost {
                writer,
                from,
                current,
            } => write!(
                f,
                "{} computed its write from version {from}, but version {current} is overwritten: an update is lost.",
                name(writer)
            ),
            Self::Orphan { of, holder } => write!(
                f,
                "{} has lost the lock to {}, and its child works on.",
                name(of),
                name(holder)
            ),
        }
    }
}

impl JudgedStep<'_> {
    fn offence(&self, property: LadderProperty) -> Option<Offence> {
        match property {
            LadderProperty::Exclusion => self.two_holders(),
            LadderProperty::Recovery => self.locked_out(),
            LadderProperty::Ownership => self.removed(),
            LadderProperty::StaleWrite => self.stale_write(),
            LadderProperty::FenceOrder => self.low_fence(),
            LadderProperty::LostUpdate => self.lost_update(),
            LadderProperty::Child => self.orphan(),
        }
    }

    fn two_holders(&self) -> Option<Offence> {
        let mut holders = self.after.holders(self.rung);
        Some(Offence::TwoHolders(holders.next()?, holders.next()?))
    }

    fn locked_out(&self) -> Option<Offence> {
        let (client, server, command, reply) = carried_out(self.event)?;
        let is_refused = match (command, reply) {
            (RedisCommand::SetNx(Key::Lock, Value::Owner(..)), Reply::Int(0))
            | (RedisCommand::SetNxPx(..) | RedisCommand::TakeWithFence(..), Reply::Nil)
            | (RedisCommand::SetNxAndExpire(..), Reply::Both(0, _)) => true,
            // The value is a time, so its reader decides.
            (RedisCommand::Get(Key::Lock), Reply::Bulk(Value::Number(deadline))) => {
                deadline > self.before.clock(self.rung, client)
            }
            _ => false,
        };
        let (dead, taken) = self.before.taken?;
        let since = self.before.clients[dead as usize].crashed?;
        let now = self.after.time;
        let is_overdue = now > since.max(taken) + self.rung.ttl + self.rung.spread();
        let expires = self.after.servers[server as usize].expires(Key::Lock);
        (is_refused && is_overdue).then_some(Offence::LockedOut {
            dead,
            since,
            now,
            is_for_ever: expires.is_none(),
        })
    }

    fn removed(&self) -> Option<Offence> {
        let (by, server, command, reply) = carried_out(self.event)?;
        if !command.is_release() || reply != Reply::Int(1) {
            return None;
        }
        let removed = self.before.servers[server as usize].get(Key::Lock);
        let holder = self
            .before
            .holders(self.rung)
            .find(|&holder| match removed {
                Some(Value::Owner(owner, _)) => owner == holder && holder != by,
                _ => holder != by,
            })?;
        Some(Offence::Removed { by, holder })
    }

    fn stale_write(&self) -> Option<Offence> {
        let (writer, ..) = self.written()?;
        (self.after.written <= self.before.older).then_some(Offence::Stale { writer })
    }

    fn low_fence(&self) -> Option<Offence> {
        let mut clients = (0..).zip(self.before.clients.iter().zip(&self.after.clients));
        clients.find_map(|(client, (before, after))| {
            let begins = before.memory.holds_until.is_none() && after.memory.holds_until.is_some();
            let fence = self.rung.program.fence(&after.memory).filter(|_| begins)?;
            let earlier = after.older_fence;
            (fence <= earlier).then_some(Offence::LowFence {
                client,
                fence,
                earlier,
            })
        })
    }

    fn lost_update(&self) -> Option<Offence> {
        let (writer, server, Value::Number(version)) = self.written()? else {
            return None;
        };
        let current = self.before.servers[server as usize].number(Key::Data);
        (version != current + 1).then_some(Offence::Lost {
            writer,
            from: version - 1,
            current,
        })
    }

    fn orphan(&self) -> Option<Offence> {
        let (of, ..) = self.written()?;
        let mut holders = self.after.holders(self.rung);
        let holder = holders.next()?;
        let holds = holder == of || holders.any(|other| other == of);
        (!holds).then_some(Offence::Orphan { of, holder })
    }

    /// The client that wrote the data in this step, the server, and the value.
    fn written(&self) -> Option<(u8, u8, Value)> {
        match carried_out(self.event)? {
            (
                client,
                server,
                RedisCommand::Set(Key::Data, value) | RedisCommand::WriteWithFence(_, value),
                Reply::Ok,
            ) => Some((client, server, value)),
            _ => None,
        }
    }
}
