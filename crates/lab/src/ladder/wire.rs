//! Translates the model's commands for a real server, and its replies back. A reply that the model does not have is an error.

use std::time::Duration;

use redis::{Connection, RedisError, RedisResult};

use super::redis::{Key, RedisCommand, Reply, Tick, Value};
use super::words::script;

/// A reply of a real server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerReply {
    /// A reply that the model has.
    Reply(Reply),
    /// An error, or a reply that the model does not have.
    Else(String),
}

/// How names and times of the model are written for a real server.
#[derive(Debug, Clone)]
pub struct Wire {
    prefix: String,
    tick: Duration,
}

impl Wire {
    /// Keys begin with `prefix`. One expires in the middle between two ticks: a step in the first half of a tick gets the model's result.
    pub fn new(prefix: &str, tick: Duration) -> Self {
        Self {
            prefix: prefix.into(),
            tick,
        }
    }

    /// The length of a tick.
    pub const fn tick(&self) -> Duration {
        self.tick
    }

    /// The name of a key in the server.
    pub fn key(&self, key: Key) -> String {
        format!("{}{}", self.prefix, key.name())
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// When the connection fails: the command may have been executed.
    pub fn ask(
        &self,
        connection: &mut Connection,
        command: RedisCommand,
    ) -> Result<ServerReply, String> {
        said(self.query(connection, command))
    }

    fn query(
        &self,
        connection: &mut Connection,
        command: RedisCommand,
    ) -> RedisResult<redis::Value> {
        let words = self.words(command);
        if let [only] = words.as_slice() {
            return cmd(only).query(connection);
        }
        let mut transaction = redis::pipe();
        transaction.atomic();
        for part in &words {
            transaction.add_command(cmd(part));
        }
        transaction.query(connection)
    }

    /// The arguments of a command; several commands are sent as one transaction. `EXPIRE` counts whole seconds, so `PEXPIRE` is
    /// sent instead.
    pub fn words(&self, command: RedisCommand) -> Vec<Vec<String>> {
        let lock = self.key(Key::Lock);
        let one = |words: &[&str]| vec![words.iter().map(|&word| word.to_owned()).collect()];
        match command {
            RedisCommand::SetNx(key, value) => one(&["SETNX", &self.key(key), &value.to_string()]),
            RedisCommand::SetNxPx(value, ticks) => one(&[
                "SET",
                &lock,
                &value.to_string(),
                "NX",
                "PX",
                &self.millis(ticks),
            ]),
            RedisCommand::Expire(key, ticks) => {
                one(&["PEXPIRE", &self.key(key), &self.millis(ticks)])
            }
            RedisCommand::SetNxAndExpire(value, ticks) => [
                self.words(RedisCommand::SetNx(Key::Lock, value)),
                self.words(RedisCommand::Expire(Key::Lock, ticks)),
            ]
            .concat(),
            RedisCommand::Get(key) => one(&["GET", &self.key(key)]),
            RedisCommand::GetSet(key, value) => {
                one(&["GETSET", &self.key(key), &value.to_string()])
            }
            RedisCommand::Set(key, value) => one(&["SET", &self.key(key), &value.to_string()]),
            RedisCommand::Del(key) => one(&["DEL", &self.key(key)]),
            RedisCommand::DeleteIf(value) => {
                self.evaluated(command, &[Key::Lock], &[value.to_string()])
            }
            RedisCommand::TakeWithFence(value, ticks) => self.evaluated(
                command,
                &[Key::Lock, Key::Fence],
                &[value.to_string(), self.millis(ticks)],
            ),
            RedisCommand::Propose(value, number, ticks) => self.evaluated(
                command,
                &[Key::Lock, Key::Fence],
                &[value.to_string(), number.to_string(), self.millis(ticks)],
            ),
            RedisCommand::ReadWithFence(fence) => {
                self.evaluated(command, &[Key::Seen, Key::Data], &[fence.to_string()])
            }
            RedisCommand::WriteWithFence(fence, value) => self.evaluated(
                command,
                &[Key::Seen, Key::Data],
                &[fence.to_string(), value.to_string()],
            ),
        }
    }

    fn evaluated(
        &self,
        command: RedisCommand,
        keys: &[Key],
        arguments: &[String],
    ) -> Vec<Vec<String>> {
        let text = script(command).map_or("", |script| script.text);
        let mut words = vec!["EVAL".into(), text.into(), keys.len().to_string()];
        words.extend(keys.iter().map(|key| self.key(*key)));
        words.extend_from_slice(arguments);
        vec![words]
    }

    /// The command for people: scripts by their names, keys without the prefix.
    pub fn text(&self, command: RedisCommand) -> String {
        let words = self.words(command);
        let name = script(command).map_or("", |script| script.name);
        let parts: Vec<String> = words.iter().map(|part| self.line(part, name)).collect();
        if let [only] = parts.as_slice() {
            return only.clone();
        }
        format!("MULTI; {}; EXEC", parts.join("; "))
    }

    fn line(&self, words: &[String], script: &str) -> String {
        let plain = |word: &String| word.strip_prefix(&self.prefix).unwrap_or(word).to_owned();
        let mut line: Vec<String> = words.iter().map(plain).collect();
        if line[0] == "EVAL" {
            line[1] = script.into();
        }
        line.join(" ")
    }

    fn millis(&self, ticks: Tick) -> String {
        // A trace's ticks are few and never negative.
        let ticks = u32::try_from(ticks).unwrap_or_default();
        (self.tick * ticks)
            .saturating_sub(self.tick / 2)
            .as_millis()
            .to_string()
    }
}

fn cmd(words: &[String]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command
}

fn said(answer: RedisResult<redis::Value>) -> Result<ServerReply, String> {
    match answer {
        Ok(value) => Ok(reply(&value).map_or_else(
            || ServerReply::Else(format!("{value:?}")),
            ServerReply::Reply,
        )),
        Err(error) if is_of_the_connection(&error) => Err(format!("no answer: {error}")),
        Err(error) => Ok(ServerReply::Else(error.to_string())),
    }
}

fn is_of_the_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}

fn reply(value: &redis::Value) -> Option<Reply> {
    let number = |value: &redis::Value| match value {
        redis::Value::Int(number) => i16::try_from(*number).ok(),
        _ => None,
    };
    match value {
        redis::Value::Nil => Some(Reply::Nil),
        redis::Value::Okay => Some(Reply::Ok),
        redis::Value::Int(_) => number(value).map(Reply::Int),
        redis::Value::SimpleString(word) if word == "STALE" => Some(Reply::Stale),
        redis::Value::BulkString(bytes) => stored(bytes).map(Reply::Bulk),
        redis::Value::Array(both) => match both.as_slice() {
            [first, second] => Some(Reply::Both(number(first)?, number(second)?)),
            _ => None,
        },
        _ => None,
    }
}

/// Parses the value of a key: the inverse of its `Display`.
pub fn stored(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    if let Ok(number) = text.parse() {
        return Some(Value::Number(number));
    }
    if text == Value::Nobody.to_string() {
        return Some(Value::Nobody);
    }
    let (client, nth) = text.strip_prefix('c')?.split_once('-')?;
    let from_one = |text: &str| text.parse::<u8>().ok()?.checked_sub(1);
    Some(Value::Owner(from_one(client)?, from_one(nth)?))
}
