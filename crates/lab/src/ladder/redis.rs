//! A model of Redis with a few keys: the effect of the rungs' commands, each atomic. `replay` sends the same commands to a real
//! server and compares the replies.
//!
//! A quorum's vote is here as a script of five lines, since the ladder compares key by key with a real server. Core's rule has
//! clocks and marks besides; `crates/lab/src/quorum` explores it.

use std::fmt;

/// Ticks since the beginning; a timestamp protocol writes them into its key.
pub type Tick = i16;

/// The keys of a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The lock.
    Lock,
    /// The last fence drawn for it, or the highest number that got a vote.
    Fence,
    /// The protected data: a number that counts its writes.
    Data,
    /// The highest fence that the resource of [`Key::Data`] has seen.
    Seen,
}

impl Key {
    /// All keys.
    pub const ALL: [Self; 4] = [Self::Lock, Self::Fence, Self::Data, Self::Seen];

    /// Its name in a real server.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fence => "lock:fence",
            Self::Data => "data",
            Self::Seen => "data:seen",
        }
    }
}

/// The value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// The token of a client's nth acquisition, both counted from 0.
    Owner(u8, u8),
    /// A number: a time, a fence, a version.
    Number(i16),
    /// The lock of a server in quarantine.
    Nobody,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(client, nth) => write!(f, "c{}-{}", client + 1, nth + 1),
            Self::Number(number) => number.fmt(f),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

/// A command of a client. Each is atomic, including scripts and transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RedisCommand {
    /// `SETNX key value`
    SetNx(Key, Value),
    /// `SET lock value NX PX ticks`
    SetNxPx(Value, Tick),
    /// `EXPIRE key ticks`
    Expire(Key, Tick),
    /// `MULTI`, `SETNX lock value`, `EXPIRE lock ticks`, `EXEC`
    SetNxAndExpire(Value, Tick),
    /// `GET key`
    Get(Key),
    /// `GETSET key value`
    GetSet(Key, Value),
    /// `SET key value`
    Set(Key, Value),
    /// `DEL key`
    Del(Key),
    /// A script: delete the lock if it has this value.
    DeleteIf(Value),
    /// A script: `SET lock value NX PX ticks`, and on success `INCR lock:fence`, which is the reply.
    TakeWithFence(Value, Tick),
    /// A script: vote for a number. If the lock is free and the number is above `lock:fence`, set both, the lock with a TTL in
    /// ticks. If the number is not above it, the reply is `lock:fence`.
    Propose(Value, i16, Tick),
    /// A script: read the data, for a fence that is not below the highest seen, and raise that.
    ReadWithFence(i16),
    /// A script: write the data, for a fence that is not below the highest seen, and raise that.
    WriteWithFence(i16, Value),
}

impl RedisCommand {
    /// Whether its purpose is to release the lock.
    pub const fn is_release(self) -> bool {
        matches!(self, Self::Del(Key::Lock) | Self::DeleteIf(_))
    }

    /// Whether it took the lock, or rewrote its deadline.
    pub(super) const fn takes(self, reply: Reply) -> bool {
        matches!(
            (self, reply),
            (Self::SetNx(Key::Lock, _), Reply::Int(1))
                | (Self::SetNxPx(..), Reply::Ok)
                | (Self::SetNxAndExpire(..), Reply::Both(1, _))
                | (Self::TakeWithFence(..), Reply::Int(_))
                | (Self::GetSet(Key::Lock, _), _)
        )
    }

    /// What it wrote into the protected data.
    pub(super) const fn written(self, reply: Reply) -> Option<Value> {
        match (self, reply) {
            (Self::Set(Key::Data, value) | Self::WriteWithFence(_, value), Reply::Ok) => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The key that it is for: the protected data, or the lock.
    pub(super) const fn subject(self) -> Key {
        match self {
            Self::Get(Key::Data)
            | Self::Set(Key::Data, _)
            | Self::ReadWithFence(_)
            | Self::WriteWithFence(..) => Key::Data,
            _ => Key::Lock,
        }
    }
}

/// A reply of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    /// No value: the key does not exist, or `NX` refused.
    Nil,
    /// Done.
    Ok,
    /// A count.
    Int(i16),
    /// The value of the key.
    Bulk(Value),
    /// The two replies of [`RedisCommand::SetNxAndExpire`].
    Both(i16, i16),
    /// The resource refused the fence.
    Stale,
}

/// As `redis-cli` shows it, in a line or two.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("(nil)"),
            Self::Ok => f.write_str("OK"),
            Self::Int(number) => write!(f, "(integer) {number}"),
            Self::Bulk(value) => write!(f, "\"{value}\""),
            Self::Both(first, second) => {
                write!(f, "1) (integer) {first}\n2) (integer) {second}")
            }
            Self::Stale => f.write_str("STALE"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct KeyEntry {
    value: Value,
    /// The tick at which it expires.
    expires: Option<Tick>,
}

/// The model of one server. Its time is an argument.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ModelServer {
    entries: [Option<KeyEntry>; Key::ALL.len()],
}

impl ModelServer {
    /// Drops what has expired by `now`.
    pub fn expire(&mut self, now: Tick) {
        for entry in &mut self.entries {
            if entry.is_some_and(|entry| entry.expires.is_some_and(|at| at <= now)) {
                *entry = None;
            }
        }
    }

    /// The value of a key, as of the last command or [`ModelServer::expire`].
    pub fn get(&self, key: Key) -> Option<Value> {
        self.entries[key as usize].map(|entry| entry.value)
    }

    /// When a key expires; `None` if it does not exist or has no TTL.
    pub fn expires(&self, key: Key) -> Option<Tick> {
        self.entries[key as usize].and_then(|entry| entry.expires)
    }

    /// The keys that exist, with their values and remaining TTLs at `now`.
    pub fn keys(&self, now: Tick) -> Vec<(Key, Value, Option<Tick>)> {
        let there = |key| {
            let left = self.expires(key).map(|at| at - now);
            Some((key, self.get(key)?, left))
        };
        Key::ALL.into_iter().filter_map(there).collect()
    }

    /// All data is lost.
    pub fn restart_empty(&mut self) {
        *self = Self::default();
    }

    /// Executes one command at `now`.
    pub fn apply(&mut self, now: Tick, command: RedisCommand) -> Reply {
        self.expire(now);
        match command {
            RedisCommand::SetNx(key, value) => Reply::Int(self.set_nx(key, value, None).into()),
            RedisCommand::SetNxPx(value, ticks) => {
                if self.set_nx(Key::Lock, value, Some(now + ticks)) {
                    Reply::Ok
                } else {
                    Reply::Nil
                }
            }
            RedisCommand::Expire(key, ticks) => Reply::Int(self.expire_at(key, now + ticks)),
            RedisCommand::SetNxAndExpire(value, ticks) => {
                let won = self.set_nx(Key::Lock, value, None);
                Reply::Both(won.into(), self.expire_at(Key::Lock, now + ticks))
            }
            RedisCommand::Get(key) => self.bulk(key),
            RedisCommand::GetSet(key, value) => {
                let before = self.bulk(key);
                self.set(key, value);
                before
            }
            RedisCommand::Set(key, value) => self.set(key, value),
            RedisCommand::Del(key) => {
                Reply::Int(self.entries[key as usize].take().is_some().into())
            }
            RedisCommand::DeleteIf(value) if self.get(Key::Lock) != Some(value) => Reply::Int(0),
            RedisCommand::DeleteIf(_) => self.apply(now, RedisCommand::Del(Key::Lock)),
            RedisCommand::TakeWithFence(value, ticks) => {
                if !self.set_nx(Key::Lock, value, Some(now + ticks)) {
                    return Reply::Nil;
                }
                let fence = self.number(Key::Fence) + 1;
                let value = Value::Number(fence);
                // INCR keeps the TTL; SET would remove it.
                let expires = self.expires(Key::Fence);
                self.entries[Key::Fence as usize] = Some(KeyEntry { value, expires });
                Reply::Int(fence)
            }
            RedisCommand::Propose(value, number, ticks) => {
                let counter = self.number(Key::Fence);
                if self.get(Key::Lock).is_some() {
                    return Reply::Nil;
                }
                if number <= counter {
                    return Reply::Int(counter);
                }
                self.set(Key::Fence, Value::Number(number));
                self.apply(now, RedisCommand::SetNxPx(value, ticks))
            }
            RedisCommand::ReadWithFence(fence) | RedisCommand::WriteWithFence(fence, _)
                if fence < self.number(Key::Seen) =>
            {
                Reply::Stale
            }
            RedisCommand::ReadWithFence(fence) => {
                self.set(Key::Seen, Value::Number(fence));
                self.bulk(Key::Data)
            }
            RedisCommand::WriteWithFence(fence, value) => {
                self.set(Key::Seen, Value::Number(fence));
                self.set(Key::Data, value)
            }
        }
    }

    /// The number in a key; 0 if there is none.
    pub fn number(&self, key: Key) -> i16 {
        match self.get(key) {
            Some(Value::Number(number)) => number,
            _ => 0,
        }
    }

    fn bulk(&self, key: Key) -> Reply {
        self.get(key).map_or(Reply::Nil, Reply::Bulk)
    }

    fn set(&mut self, key: Key, value: Value) -> Reply {
        let expires = None;
        self.entries[key as usize] = Some(KeyEntry { value, expires });
        Reply::Ok
    }

    fn set_nx(&mut self, key: Key, value: Value, expires: Option<Tick>) -> bool {
        let entry = &mut self.entries[key as usize];
        let is_free = entry.is_none();
        entry.get_or_insert(KeyEntry { value, expires });
        is_free
    }

    /// 1 if the key exists.
    fn expire_at(&mut self, key: Key, at: Tick) -> i16 {
        let entry = self.entries[key as usize].as_mut();
        entry.map_or(0, |entry| {
            entry.expires = Some(at);
            1
        })
    }
}
