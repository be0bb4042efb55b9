//! Translates the model's commands for a real server, and its replies back. A reply that the model does not have is an error.

use std::time::Duration;

use redis::{Connection, RedisError, RedisResult};

use super::redis::{Key, RedisCommand, Reply, Value};
use super::words::Writing;

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

    fn writing(&self) -> Writing<'_> {
        Writing {
            prefix: &self.prefix,
            tick: Some(self.tick),
            names: false,
        }
    }

    /// The name of a key in the server.
    pub fn key(&self, key: Key) -> String {
        self.writing().key(key)
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
        let words = self.words(command);
        said(if let [only] = words.as_slice() {
            cmd(only).query(connection)
        } else {
            let mut transaction = redis::pipe();
            transaction.atomic();
            for part in &words {
                transaction.add_command(cmd(part));
            }
            transaction.query(connection)
        })
    }

    /// The arguments of a command; several commands are sent as one transaction.
    pub fn words(&self, command: RedisCommand) -> Vec<Vec<String>> {
        self.writing().words(command)
    }

    /// The command for people: scripts by their names, keys without the prefix.
    pub fn text(&self, command: RedisCommand) -> String {
        let shown = Writing {
            prefix: "",
            names: true,
            ..self.writing()
        };
        let parts: Vec<String> = shown.words(command).iter().map(|it| it.join(" ")).collect();
        if let [only] = parts.as_slice() {
            return only.clone();
        }
        format!("MULTI; {}; EXEC", parts.join("; "))
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
