//! Whether and how a step violates a property. It knows only holders, keys and writes, so it treats all rungs alike.

use super::property::LadderProperty;
use super::redis::{Key, RedisCommand, Reply, Value};
use super::rungs::{Rung, TTL};
use super::state::LadderState;
use super::trace::LadderEvent;
use super::words::client as name;

/// One step to judge.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedStep<'a> {
    pub(super) rung: &'a Rung,
    pub(super) before: &'a LadderState,
    pub(super) event: &'a LadderEvent,
    pub(super) after: &'a LadderState,
}

impl JudgedStep<'_> {
    /// How the step violates a property, in one sentence; `None` if it does not.
    pub(super) fn offence(self, property: LadderProperty) -> Option<String> {
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

    fn two_holders(self) -> Option<String> {
        let mut holders = self.after.holders(self.rung);
        let (one, other) = (holders.next()?, holders.next()?);
        let (one, other) = (name(one), name(other));
        Some(format!(
            "{one} and {other} both hold the lock, and no deadline has passed."
        ))
    }

    fn locked_out(self) -> Option<String> {
        let (client, server, command, reply) = self.event.carried_out()?;
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
        let is_overdue = now > since.max(taken) + TTL + self.rung.spread();
        if !(is_refused && is_overdue) {
            return None;
        }
        let expires = self.after.servers[server as usize].expires(Key::Lock);
        let how = match expires {
            None => "nothing will ever end its lock",
            Some(_) => "its lock lives on past its TTL",
        };
        Some(format!(
            "{} has been dead since {since}, now it is {now}, and {how}.",
            name(dead)
        ))
    }

    fn removed(self) -> Option<String> {
        let (by, server, command, reply) = self.event.carried_out()?;
        if !command.is_release() || reply != Reply::Int(1) {
            return None;
        }
        let removed = self.before.servers[server as usize].get(Key::Lock);
        let mut holders = self.before.holders(self.rung);
        let holder = holders.find(|&holder| match removed {
            Some(Value::Owner(owner, _)) => owner == holder && holder != by,
            _ => holder != by,
        })?;
        let (by, holder) = (name(by), name(holder));
        Some(format!("{by} removes the lock that {holder} holds."))
    }

    fn stale_write(self) -> Option<String> {
        let (writer, ..) = self.written()?;
        (self.after.written <= self.before.older).then(|| {
            let writer = name(writer);
            format!(
                "A write of {writer}, which has lost the lock, lands on top of one of a later holder."
            )
        })
    }

    fn low_fence(self) -> Option<String> {
        let mut clients = (0..).zip(self.before.clients.iter().zip(&self.after.clients));
        clients.find_map(|(client, (before, after))| {
            let begins = before.memory.holds_until.is_none() && after.memory.holds_until.is_some();
            let fence = self.rung.program.fence(&after.memory).filter(|_| begins)?;
            let earlier = after.older_fence;
            (fence <= earlier).then(|| {
                let client = name(client);
                format!(
                    "{client} gets the lock with fence {fence}, and a holder before it had {earlier}."
                )
            })
        })
    }

    fn lost_update(self) -> Option<String> {
        let (writer, server, Value::Number(version)) = self.written()? else {
            return None;
        };
        let current = self.before.servers[server as usize].number(Key::Data);
        (version != current + 1).then(|| {
            format!(
                "{} computed its write from version {}, but version {current} is overwritten: an update is lost.",
                name(writer),
                version - 1
            )
        })
    }

    fn orphan(self) -> Option<String> {
        let (of, ..) = self.written()?;
        let mut holders = self.after.holders(self.rung);
        let holder = holders.next()?;
        let holds = holder == of || holders.any(|other| other == of);
        (!holds).then(|| {
            let (of, holder) = (name(of), name(holder));
            format!("{of} has lost the lock to {holder}, and its child works on.")
        })
    }

    /// The client that wrote the data in this step, the server, and the value.
    fn written(self) -> Option<(u8, u8, Value)> {
        let (client, server, command, reply) = self.event.carried_out()?;
        Some((client, server, command.written(reply)?))
    }
}
