//! Commands as words: those of `redis-cli`, where one tick is one second and a script is shown by its name; and those that a real
//! server gets.

use std::time::Duration;

use super::redis::{Key, RedisCommand, Tick};

/// A script that a command shows by its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    /// `<delete-if>`
    pub(super) name: &'static str,
    /// Its lines.
    pub(super) text: &'static str,
}

const SCRIPTS: [Script; 5] = [
    Script {
        name: "<delete-if>",
        text: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end\nreturn 0",
    },
    Script {
        name: "<take>",
        text: "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end\nreturn false",
    },
    Script {
        name: "<propose>",
        text: "local counter = tonumber(redis.call('GET', KEYS[2]) or 0)\n\
               if redis.call('EXISTS', KEYS[1]) == 1 then return false end\n\
               if tonumber(ARGV[2]) <= counter then return counter end\n\
               redis.call('SET', KEYS[2], ARGV[2])\n\
               return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])",
    },
    Script {
        name: "<read>",
        text: "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return redis.status_reply('STALE') end\n\
               redis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('GET', KEYS[2])",
    },
    Script {
        name: "<write>",
        text: "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return redis.status_reply('STALE') end\n\
               redis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('SET', KEYS[2], ARGV[2])",
    },
];

/// How commands are written: for people as they would type them, or for a real server.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    /// The prefix of all keys.
    pub(super) prefix: &'a str,
    /// The length of a tick. A real server gets all times in milliseconds, so `PEXPIRE` in place of `EXPIRE`.
    pub(super) tick: Duration,
    /// Whether for a real server.
    pub(super) is_real: bool,
}

/// As one types at a prompt.
const TYPED: Writing<'static> = Writing {
    prefix: "",
    tick: Duration::from_secs(1),
    is_real: false,
};

impl<'a> Writing<'a> {
    /// For a real server. Keys begin with `prefix`, and expire in the middle between two ticks: a step in the first half of a tick
    /// gets the model's result.
    pub fn real(prefix: &'a str, tick: Duration) -> Self {
        Self {
            prefix,
            tick,
            is_real: true,
        }
    }

    /// The name of a key.
    pub(super) fn key(self, key: Key) -> String {
        format!("{}{}", self.prefix, key.name())
    }

    /// The words of a command, as a server gets them; several commands are sent as one transaction.
    pub(super) fn words(self, command: RedisCommand) -> Vec<Vec<String>> {
        let word = |word: &str| {
            let script = SCRIPTS.iter().find(|script| script.name == word);
            script.map_or(word, |script| script.text).to_owned()
        };
        // No word has a space in it, and no prefix.
        let lines = self.lines(command).into_iter();
        lines
            .map(|line| line.split(' ').map(word).collect())
            .collect()
    }

    /// A command for people, in a line or two.
    pub(super) fn text(self, command: RedisCommand) -> String {
        match self.lines(command).as_slice() {
            [first, second] => format!("MULTI; {first};\n{second}; EXEC"),
            lines => lines.join("\n"),
        }
    }

    /// A line for each command of a transaction, with scripts by their names.
    fn lines(self, command: RedisCommand) -> Vec<String> {
        let [expire, px] = if self.is_real {
            ["PEXPIRE", "PX"]
        } else {
            ["EXPIRE", "EX"]
        };
        let key = |key: Key| self.key(key);
        let [lock, counter, data, seen] = Key::ALL.map(key);
        vec![match command {
            RedisCommand::SetNx(of, value) => format!("SETNX {} {value}", key(of)),
            RedisCommand::SetNxPx(value, ticks) => {
                format!("SET {lock} {value} NX {px} {}", self.ttl(ticks))
            }
            RedisCommand::Expire(of, ticks) => format!("{expire} {} {}", key(of), self.ttl(ticks)),
            RedisCommand::SetNxAndExpire(value, ticks) => {
                let take = RedisCommand::SetNx(Key::Lock, value);
                let expire = RedisCommand::Expire(Key::Lock, ticks);
                return [take, expire].map(|part| self.lines(part)).concat();
            }
            RedisCommand::Get(of) => format!("GET {}", key(of)),
            RedisCommand::GetSet(of, value) => format!("GETSET {} {value}", key(of)),
            RedisCommand::Set(of, value) => format!("SET {} {value}", key(of)),
            RedisCommand::Del(of) => format!("DEL {}", key(of)),
            RedisCommand::DeleteIf(value) => format!("EVAL <delete-if> 1 {lock} {value}"),
            RedisCommand::TakeWithFence(value, ticks) => {
                format!(
                    "EVAL <take> 2 {lock} {counter} {value} {}",
                    self.millis(ticks)
                )
            }
            RedisCommand::Propose(value, number, ticks) => {
                let millis = self.millis(ticks);
                format!("EVAL <propose> 2 {lock} {counter} {value} {number} {millis}")
            }
            RedisCommand::ReadWithFence(fence) => format!("EVAL <read> 2 {seen} {data} {fence}"),
            RedisCommand::WriteWithFence(fence, value) => {
                format!("EVAL <write> 2 {seen} {data} {fence} {value}")
            }
        }]
    }

    /// The argument of `EXPIRE`, or of `SET`.
    fn ttl(self, ticks: Tick) -> String {
        if self.is_real {
            return self.millis(ticks);
        }
        ticks.to_string()
    }

    fn millis(self, ticks: Tick) -> String {
        // A trace's ticks are few and never negative.
        let ticks = u32::try_from(ticks).unwrap_or_default();
        let mut left = self.tick * ticks;
        if self.is_real {
            left = left.saturating_sub(self.tick / 2);
        }
        left.as_millis().to_string()
    }
}

/// A command as one would type it, in a line or two.
pub(super) fn typed(command: RedisCommand) -> String {
    TYPED.text(command)
}

/// The script that a command runs.
pub(super) fn script(command: RedisCommand) -> Option<Script> {
    let typed = typed(command);
    SCRIPTS
        .into_iter()
        .find(|script| typed.contains(script.name))
}

/// A command in the short form beside an arrow.
pub(super) fn in_short(command: RedisCommand) -> String {
    match command {
        RedisCommand::DeleteIf(value) => format!("if GET lock == {value}: DEL"),
        RedisCommand::TakeWithFence(value, ticks) => {
            format!("SET lock {value} NX EX {ticks} + fence")
        }
        RedisCommand::Propose(value, number, _) => format!("propose {number} as {value}"),
        RedisCommand::ReadWithFence(fence) => format!("read, fence {fence}"),
        RedisCommand::WriteWithFence(fence, value) => format!("write {value}, fence {fence}"),
        _ => on_one_line(&typed(command)),
    }
}

/// A command or a reply, where there is room for one line only.
pub(super) fn on_one_line(text: &impl ToString) -> String {
    text.to_string().replace('\n', " ")
}

/// A restart without data, or the end of a quarantine, with the server's own commands.
pub(super) fn comes_back(what: &str, commands: &[RedisCommand]) -> String {
    let own = commands.iter().map(|&command| typed(command));
    let parts: Vec<_> = [what.to_owned()].into_iter().chain(own).collect();
    parts.join("; ")
}

/// How the two are called.
pub(super) const RESTARTS: &str = "restarts empty";
pub(super) const REJOINS: &str = "ends its quarantine";

/// A client, counted from 0.
pub(super) fn client(client: u8) -> String {
    format!("C{}", client + 1)
}

/// A server, counted from 0.
pub(super) fn server(server: u8) -> String {
    format!("S{}", server + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::redis::{Reply, Value};

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
            assert_eq!(on_one_line(&typed(command)), words);
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
            assert_eq!(on_one_line(&reply), words);
        }
    }
}
