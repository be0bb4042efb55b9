//! The steps of the timestamp protocol on a server. The scripts under `lua/timestamp` implement the rules, or
//! `leasehold_core::timestamp` for a server without scripts. An answer of an unknown form is an error, never a guess.
//!
//! Without scripts, a command overwrites or deletes a key only if the preceding read found it free, expired, or held by the caller. A
//! change between the read and the command is the weakness of this protocol, and the price of doing without scripts.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use leasehold_core::LockName;
use leasehold_core::timestamp::{Content, Reply, Step, Unit, fits, has_passed, is_mine};
use redis::{Cmd, ErrorKind, RedisResult, Value, cmd};

use super::RedisStore;
use super::cluster::Server;
use super::connection::link::Wire;
use super::fault::is_wrong_type;
use super::protocol::{self, no_known_form, number};
use super::scripts::{Scripts, TIMESTAMP_ACQUIRE, TIMESTAMP_EXTEND, TIMESTAMP_RELEASE};
use crate::error::StoreError;
use crate::store::contract::{TimestampRequest, limit_for};

/// How often to begin again without scripts when the lock became free meanwhile.
const TRIES: usize = 3;

/// Executes a step on a key of the protocol.
pub(super) async fn take(
    store: &RedisStore,
    name: &LockName,
    ask: &TimestampRequest,
) -> Result<Reply, StoreError> {
    let take = async |server: Arc<Server>, mut wire: Wire| {
        if ask.by_script {
            by_script(&server.scripts, &mut wire, name, ask.unit, &ask.step).await
        } else {
            by_commands(&mut wire, name, ask.unit, &ask.step).await
        }
    };
    let limit = match &ask.step {
        Step::Acquire { ttl } | Step::Extend { ttl, .. } if !ask.is_last => {
            limit_for(*ttl, store.limit)
        }
        _ => store.limit,
    };
    store.servers.call(name.key(), limit, take).await
}

/// Executes a step as one script.
pub(super) async fn by_script(
    scripts: &Scripts,
    connection: &mut Wire,
    name: &LockName,
    unit: Unit,
    step: &Step,
) -> RedisResult<Reply> {
    let script = match step {
        Step::Acquire { .. } => TIMESTAMP_ACQUIRE,
        Step::Extend { .. } => TIMESTAMP_EXTEND,
        Step::Release { .. } => TIMESTAMP_RELEASE,
    };
    let write = |command: &mut Cmd| {
        command.arg(1).arg(name.key()).arg(unit.micros());
        match step {
            Step::Acquire { ttl } => command.arg(unit.whole(ttl.get())),
            Step::Extend { to, ttl, mine } => command.arg(unit.whole(ttl.get())).arg(to).arg(mine),
            Step::Release { mine } => command.arg(mine),
        };
    };
    let value = scripts.run(script, connection, write).await?;
    decode(&value).ok_or_else(|| no_known_form(&value))
}

/// Reads the answer of a script; `None` if it has an unknown form.
fn decode(value: &Value) -> Option<Reply> {
    let Some(parts) = protocol::array(value) else {
        return (protocol::text(value)? == "released").then_some(Reply::Released);
    };
    Some(match (protocol::text(parts.first()?)?, &parts[1..]) {
        ("held", [deadline, now]) => Reply::Held {
            deadline: number(deadline)?,
            at_us: number(now)?,
        },
        ("busy", [deadline, now]) => Reply::Busy {
            deadline: number(deadline)?,
            at_us: number(now)?,
        },
        ("foreign", [kind, value, _]) => Reply::Foreign(content(kind, value)?),
        ("again", [now]) => Reply::Again {
            at_us: number(now)?,
        },
        ("bad-clock", [now]) => Reply::BadClock {
            at_us: number(now)?,
        },
        ("not-held", [kind, value, now]) => Reply::NotHeld {
            content: content(kind, value)?,
            at_us: number(now)?,
        },
        _ => return None,
    })
}

fn content(kind: &Value, value: &Value) -> Option<Content> {
    Some(match (protocol::text(kind)?, value) {
        ("none", _) => Content::Nothing,
        ("string", Value::BulkString(value)) => Content::Text(value.clone()),
        ("string", _) => return None,
        (other, _) => Content::Other(other.to_owned()),
    })
}

/// Executes a step with several commands. Only the last one may change the key.
pub(super) async fn by_commands(
    connection: &mut Wire,
    name: &LockName,
    unit: Unit,
    step: &Step,
) -> RedisResult<Reply> {
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(connection).await?;
    let at_us = seconds * 1_000_000 + micros;
    let now = unit.at(at_us);
    let mut key = PlainKey {
        connection,
        key: name.key(),
        unit,
        at_us,
    };
    match step {
        Step::Acquire { ttl } => {
            let deadline = unit.deadline(now, *ttl);
            if unit.read(deadline.to_string().as_bytes()).is_none() {
                return Ok(Reply::BadClock { at_us });
            }
            key.acquire(deadline).await
        }
        Step::Extend { to, ttl, mine } => {
            let content = key.look().await?;
            if !is_mine(unit, now, &content, mine) {
                return Ok(Reply::NotHeld { content, at_us });
            }
            if !fits(unit, now, *to, *ttl) {
                return Ok(Reply::Again { at_us });
            }
            let content = key.exchange(*to).await?;
            if !is_mine(unit, now, &content, mine) {
                return Ok(Reply::NotHeld { content, at_us });
            }
            Ok(Reply::Held {
                deadline: *to,
                at_us,
            })
        }
        Step::Release { mine } => {
            let content = key.look().await?;
            if !is_mine(unit, now, &content, mine) {
                return Ok(Reply::NotHeld { content, at_us });
            }
            // DEL may arrive late. With less than a second left, the deadline frees the lock as well.
            if is_mine(unit, now + 1_000_000 / unit.micros(), &content, mine) {
                let deleted = key.ask(cmd("DEL").arg(key.key)).await?;
                if number(&deleted) == Some(0) {
                    let content = Content::Nothing;
                    return Ok(Reply::NotHeld { content, at_us });
                }
            }
            Ok(Reply::Released)
        }
    }
}

struct PlainKey<'a> {
    connection: &'a mut Wire,
    key: &'a str,
    unit: Unit,
    /// The server's time when the step began.
    at_us: u64,
}

impl PlainKey<'_> {
    async fn acquire(&mut self, deadline: u64) -> RedisResult<Reply> {
        let (unit, at_us, taken) = (self.unit, self.at_us, deadline);
        let (now, held) = (unit.at(at_us), Reply::Held { deadline, at_us });
        for _ in 0..TRIES {
            // Equivalent to SETNX. A user with the rights for a mutex may send it.
            let mut set = cmd("SET");
            set.arg(self.key).arg(taken).arg("NX");
            if self.ask(&set).await? == Value::Okay {
                return Ok(held);
            }
            let content = self.look().await?;
            let Some(deadline) = content.deadline(unit) else {
                match content {
                    Content::Nothing => continue,
                    other => return Ok(Reply::Foreign(other)),
                }
            };
            if !has_passed(deadline, now) {
                return Ok(Reply::Busy { deadline, at_us });
            }
            // The weakest point of the recipe: if another client took the lock meanwhile, its deadline has been
            // overwritten.
            let before = self.exchange(taken).await?;
            match before.deadline(unit) {
                Some(deadline) if !has_passed(deadline, now) => {
                    return Ok(Reply::Busy { deadline, at_us });
                }
                Some(_) => return Ok(held),
                // The key was deleted meanwhile, and nothing was written.
                None if before == Content::Nothing => {}
                None => return foreign(before),
            }
        }
        // The lock becomes free and is taken again by faster clients.
        Ok(Reply::Busy {
            deadline: now,
            at_us,
        })
    }

    async fn look(&mut self) -> RedisResult<Content> {
        self.content(cmd("GET").arg(self.key)).await
    }

    /// Overwrites the value with a deadline, and returns the previous value. Like `GETSET`, but leaves a missing key
    /// and other types alone.
    async fn exchange(&mut self, to: u64) -> RedisResult<Content> {
        let mut command = cmd("SET");
        self.content(command.arg(self.key).arg(to).arg("XX").arg("GET"))
            .await
    }

    /// The content that the answer tells. Of a key that is no string, this is the type.
    async fn content(&mut self, command: &Cmd) -> RedisResult<Content> {
        match self.ask(command).await {
            Err(error) if is_wrong_type(&error) => {
                let kind = self.ask(cmd("TYPE").arg(self.key)).await?;
                let kind = protocol::text(&kind).unwrap_or("unknown");
                Ok(Content::Other(kind.to_owned()))
            }
            answer => text(&answer?),
        }
    }

    async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(self.connection).await
    }
}

fn text(value: &Value) -> RedisResult<Content> {
    match value {
        Value::Nil => Ok(Content::Nothing),
        Value::BulkString(value) => Ok(Content::Text(value.clone())),
        other => Err(no_known_form(other)),
    }
}

/// A value that is not a time was written between the read and the command. If it was a string, it has been
/// overwritten: nothing is known of the lock now, and no client may take it.
fn foreign(before: Content) -> RedisResult<Reply> {
    let Content::Text(value) = before else {
        return Ok(Reply::Foreign(before));
    };
    let said = "without scripts: a value that is not a time was written meanwhile, and has been overwritten";
    let lost = format!("\"{}\"", value.escape_ascii());
    Err((ErrorKind::UnexpectedReturnType, said, lost).into())
}
