//! Commands and replies: in the words of `redis-cli`, where one tick is one second and a script is shown by its name; and as a real
//! server gets them.

use std::time::Duration;

use super::redis::{Key, RedisCommand, Reply, Tick, Value};

/// A script that a command shows by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Script {
    /// `<delete-if>`
    pub(super) name: &'static str,
    /// Its lines.
    pub(super) text: &'static str,
    /// The keys that it is called with.
    keys: &'static [Key],
}

const DELETE_IF: Script = Script {
    name: "<delete-if>",
    text: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end\nreturn 0",
    keys: &[Key::Lock],
};

const TAKE: Script = Script {
    name: "<take>",
    text: "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end\nreturn false",
    keys: &[Key::Lock, Key::Fence],
};

const PROPOSE: Script = Script {
    name: "<propose>",
    text: "local counter = tonumber(redis.call('GET', KEYS[2]) or 0)\n\
           if redis.call('EXISTS', KEYS[1]) == 1 then return false end\n\
           if tonumber(ARGV[2]) <= counter then return counter end\n\
           redis.call('SET', KEYS[2], ARGV[2])\n\
           return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])",
    keys: &[Key::Lock, Key::Fence],
};

const READ: Script = Script {
    name: "<read>",
    text: "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return redis.status_reply('STALE') end\n\
           redis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('GET', KEYS[2])",
    keys: &[Key::Seen, Key::Data],
};

const WRITE: Script = Script {
    name: "<write>",
    text: "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return redis.status_reply('STALE') end\n\
           redis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('SET', KEYS[2], ARGV[2])",
    keys: &[Key::Seen, Key::Data],
};

/// How commands are written: for people as they would type them, or for a real server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing<'a> {
    /// The prefix of all keys.
    pub(super) prefix: &'a str,
    /// The length of a tick, if times are in milliseconds. `EXPIRE` counts whole seconds, so `PEXPIRE` is written then.
    pub(super) tick: Option<Duration>,
    /// Whether scripts are written by name.
    pub(super) names: bool,
}

/// As one types at a prompt.
const TYPED: Writing<'static> = Writing {
    prefix: "",
    tick: None,
    names: true,
};

/// A command that is written, but not split into words.
enum Written {
    Line(String),
    /// A script, and its arguments behind the keys.
    Evaluated(Script, String),
    /// One transaction.
    Together([RedisCommand; 2]),
}

impl Writing<'_> {
    /// The name of a key.
    pub(super) fn key(self, key: Key) -> String {
        format!("{}{}", self.prefix, key.name())
    }

    /// The words of a command; several commands are sent as one transaction.
    pub(super) fn words(self, command: RedisCommand) -> Vec<Vec<String>> {
        // No word has a space in it, and no prefix.
        let split = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self.written(command) {
            Written::Line(line) => vec![split(&line)],
            Written::Evaluated(script, arguments) => {
                let text = if self.names { script.name } else { script.text };
                let mut words = vec!["EVAL".into(), text.into(), script.keys.len().to_string()];
                words.extend(script.keys.iter().map(|key| self.key(*key)));
                words.extend(split(&arguments));
                vec![words]
            }
            Written::Together(parts) => parts.map(|part| self.words(part)).concat(),
        }
    }

    fn written(self, command: RedisCommand) -> Written {
        let [expire, px] = match self.tick {
            Some(_) => ["PEXPIRE", "PX"],
            None => ["EXPIRE", "EX"],
        };
        let key = |key: Key| self.key(key);
        match command {
            RedisCommand::SetNx(of, value) => Written::Line(format!("SETNX {} {value}", key(of))),
            RedisCommand::SetNxPx(value, ticks) => {
                let (lock, ttl) = (key(Key::Lock), self.ttl(ticks));
                Written::Line(format!("SET {lock} {value} NX {px} {ttl}"))
            }
            RedisCommand::Expire(of, ticks) => {
                Written::Line(format!("{expire} {} {}", key(of), self.ttl(ticks)))
            }
            RedisCommand::SetNxAndExpire(value, ticks) => Written::Together([
                RedisCommand::SetNx(Key::Lock, value),
                RedisCommand::Expire(Key::Lock, ticks),
            ]),
            RedisCommand::Get(of) => Written::Line(format!("GET {}", key(of))),
            RedisCommand::GetSet(of, value) => Written::Line(format!("GETSET {} {value}", key(of))),
            RedisCommand::Set(of, value) => Written::Line(format!("SET {} {value}", key(of))),
            RedisCommand::Del(of) => Written::Line(format!("DEL {}", key(of))),
            RedisCommand::DeleteIf(value) => Written::Evaluated(DELETE_IF, value.to_string()),
            RedisCommand::TakeWithFence(value, ticks) => {
                Written::Evaluated(TAKE, format!("{value} {}", self.millis(ticks)))
            }
            RedisCommand::Propose(value, number, ticks) => {
                let arguments = format!("{value} {number} {}", self.millis(ticks));
                Written::Evaluated(PROPOSE, arguments)
            }
            RedisCommand::ReadWithFence(fence) => Written::Evaluated(READ, fence.to_string()),
            RedisCommand::WriteWithFence(fence, value) => {
                Written::Evaluated(WRITE, format!("{fence} {value}"))
            }
        }
    }

    /// The argument of `EXPIRE`, or of `SET`.
    fn ttl(self, ticks: Tick) -> String {
        match self.tick {
            Some(_) => self.millis(ticks),
            None => ticks.to_string(),
        }
    }

    /// A real key expires in the middle between two ticks.
    fn millis(self, ticks: Tick) -> String {
        // A trace's ticks are few and never negative.
        let ticks = u32::try_from(ticks).unwrap_or_default();
        let millis = match self.tick {
            Some(tick) => (tick * ticks).saturating_sub(tick / 2).as_millis(),
            None => u128::from(ticks) * 1_000,
        };
        millis.to_string()
    }
}

/// The script that a command runs.
pub(super) fn script(command: RedisCommand) -> Option<Script> {
    match TYPED.written(command) {
        Written::Evaluated(script, _) => Some(script),
        Written::Line(_) | Written::Together(_) => None,
    }
}

/// A command as one would type it, in a line or two.
pub(super) fn typed(command: RedisCommand) -> Vec<String> {
    let mut lines: Vec<_> = TYPED.words(command).iter().map(|it| it.join(" ")).collect();
    if let [first, second] = lines.as_mut_slice() {
        *first = format!("MULTI; {first};");
        second.push_str("; EXEC");
    }
    lines
}

/// A command in the short form beside an arrow, in a line or two.
pub(super) fn in_short(command: RedisCommand) -> Vec<String> {
    let line = match command {
        RedisCommand::DeleteIf(value) => format!("if GET lock == {value}: DEL"),
        RedisCommand::TakeWithFence(value, ticks) => {
            format!("SET lock {value} NX EX {ticks} + fence")
        }
        RedisCommand::Propose(value, number, _) => format!("propose {number} as {value}"),
        RedisCommand::ReadWithFence(fence) => format!("read, fence {fence}"),
        RedisCommand::WriteWithFence(fence, value) => format!("write {value}, fence {fence}"),
        _ => return typed(command),
    };
    vec![line]
}

/// A restart without data, or the end of a quarantine, with the server's own commands.
pub(super) fn comes_back(what: &str, commands: &[RedisCommand]) -> String {
    let own = commands.iter().flat_map(|&command| typed(command));
    let parts: Vec<_> = [what.to_owned()].into_iter().chain(own).collect();
    parts.join("; ")
}

/// How the two are called.
pub(super) const RESTARTS: &str = "restarts empty";
pub(super) const REJOINS: &str = "ends its quarantine";

/// A reply as `redis-cli` shows it.
pub(super) fn shown(reply: Reply) -> Vec<String> {
    let integer = |number| format!("(integer) {number}");
    match reply {
        Reply::Nil => vec!["(nil)".into()],
        Reply::Ok => vec!["OK".into()],
        Reply::Int(number) => vec![integer(number)],
        Reply::Bulk(value) => vec![format!("\"{value}\"")],
        Reply::Both(first, second) => vec![
            format!("1) {}", integer(first)),
            format!("2) {}", integer(second)),
        ],
        Reply::Stale => vec!["STALE".into()],
    }
}

/// A client, counted from 0.
pub(super) fn client(client: u8) -> String {
    format!("C{}", client + 1)
}

/// A server, counted from 0.
pub(super) fn server(server: u8) -> String {
    format!("S{}", server + 1)
}

/// Whether a command is for the resource, and not for the lock.
pub(super) fn is_for_resource(command: RedisCommand) -> bool {
    match command {
        RedisCommand::SetNx(key, _)
        | RedisCommand::Expire(key, _)
        | RedisCommand::Get(key)
        | RedisCommand::GetSet(key, _)
        | RedisCommand::Set(key, _)
        | RedisCommand::Del(key) => matches!(key, Key::Data | Key::Seen),
        RedisCommand::ReadWithFence(_) | RedisCommand::WriteWithFence(..) => true,
        _ => false,
    }
}

/// The value of a key, without its TTL.
pub(super) fn value(value: Option<Value>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Value = Value::Owner(0, 1);

    #[test]
    fn commands_can_be_typed() {
        for (command, words) in [
            (
                RedisCommand::SetNx(Key::Lock, Value::Number(3)),
                "SETNX lock 3",
            ),
            (RedisCommand::SetNxPx(OWNER, 2), "SET lock c1-2 NX EX 2"),
            (RedisCommand::Expire(Key::Lock, 2), "EXPIRE lock 2"),
            (
                RedisCommand::SetNxAndExpire(OWNER, 2),
                "MULTI; SETNX lock c1-2; EXPIRE lock 2; EXEC",
            ),
            (RedisCommand::Get(Key::Data), "GET data"),
            (
                RedisCommand::GetSet(Key::Lock, Value::Number(3)),
                "GETSET lock 3",
            ),
            (RedisCommand::Set(Key::Data, Value::Number(3)), "SET data 3"),
            (RedisCommand::Del(Key::Lock), "DEL lock"),
            (
                RedisCommand::DeleteIf(OWNER),
                "EVAL <delete-if> 1 lock c1-2",
            ),
            (
                RedisCommand::TakeWithFence(OWNER, 2),
                "EVAL <take> 2 lock lock:fence c1-2 2000",
            ),
            (
                RedisCommand::Propose(OWNER, 7, 2),
                "EVAL <propose> 2 lock lock:fence c1-2 7 2000",
            ),
            (
                RedisCommand::ReadWithFence(1),
                "EVAL <read> 2 data:seen data 1",
            ),
            (
                RedisCommand::WriteWithFence(1, Value::Number(3)),
                "EVAL <write> 2 data:seen data 1 3",
            ),
        ] {
            assert_eq!(typed(command).join(" "), words);
            assert_eq!(words.contains('<'), script(command).is_some());
        }
    }

    #[test]
    fn replies_look_as_they_do_in_redis_cli() {
        for (reply, words) in [
            (Reply::Nil, "(nil)"),
            (Reply::Ok, "OK"),
            (Reply::Int(1), "(integer) 1"),
            (Reply::Bulk(OWNER), "\"c1-2\""),
            (Reply::Both(0, 1), "1) (integer) 0 2) (integer) 1"),
            (Reply::Stale, "STALE"),
        ] {
            assert_eq!(shown(reply).join(" "), words);
        }
    }
}
