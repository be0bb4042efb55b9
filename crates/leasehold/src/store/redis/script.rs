//! The scripts and how they are sent. Must never assume that the server remembers a script.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Script, ServerErrorKind, Value, cmd};

pub(super) const ACQUIRE: usize = 0;
pub(super) const EXTEND: usize = 1;
pub(super) const RELEASE: usize = 2;
pub(super) const BREAK: usize = 3;
pub(super) const INSPECT: usize = 4;
pub(super) const INDEX: usize = 5;

const PRELUDE: &str = include_str!("../../../lua/prelude.lua");
const VERBS: [&str; 5] = [
    include_str!("../../../lua/mutex/acquire.lua"),
    include_str!("../../../lua/mutex/extend.lua"),
    include_str!("../../../lua/mutex/release.lua"),
    include_str!("../../../lua/mutex/break.lua"),
    include_str!("../../../lua/mutex/inspect.lua"),
];

/// One verb's script, in the two forms that servers understand.
struct Verb {
    /// With the `#!lua` line, which Redis 7 and Valkey want for its flags.
    flagged: Text,
    /// Without it, for Redis 6.2, which takes it for a syntax error.
    plain: Text,
}

struct Text {
    code: String,
    sha: String,
}

impl Text {
    fn new(code: String) -> Self {
        let sha = Script::new(&code).get_hash().to_owned();
        Self { code, sha }
    }
}

/// The verbs of the mutex, which share the prelude, and the index, which does not.
fn scripts() -> [Verb; 6] {
    let [acquire, extend, release, break_, inspect] = VERBS.map(|verb| Verb::new(PRELUDE, verb));
    let index = Verb::new("", include_str!("../../../lua/index.lua"));
    [acquire, extend, release, break_, inspect, index]
}

impl Verb {
    fn new(prelude: &str, source: &str) -> Self {
        let (flags, body) = source.split_once('\n').unwrap_or((source, ""));
        let plain = format!("{prelude}{body}");
        Self {
            flagged: Text::new(format!("{flags}\n{plain}")),
            plain: Text::new(plain),
        }
    }
}

/// All scripts, and which form the server understands.
pub(super) struct Scripts {
    verbs: [Verb; 6],
    /// The server refused a `#!lua` line once.
    plain: AtomicBool,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            verbs: scripts(),
            plain: AtomicBool::new(false),
        }
    }
}

impl Scripts {
    /// Runs a verb by its hash, by its text if the server does not know it, and without flags if the server is too
    /// old for them. A refused script has done nothing, so each of these is safe.
    pub(super) async fn run(
        &self,
        verb: usize,
        connection: &mut MultiplexedConnection,
        keys: &[String],
        arguments: &[&str],
    ) -> RedisResult<Value> {
        let plain = self.plain.load(Ordering::Relaxed);
        let answer = self.send(verb, plain, connection, keys, arguments).await;
        match answer {
            Err(error) if !plain && is_too_old_for_flags(&error) => {
                self.plain.store(true, Ordering::Relaxed);
                self.send(verb, true, connection, keys, arguments).await
            }
            answer => answer,
        }
    }

    async fn send(
        &self,
        verb: usize,
        plain: bool,
        connection: &mut MultiplexedConnection,
        keys: &[String],
        arguments: &[&str],
    ) -> RedisResult<Value> {
        let verb = &self.verbs[verb];
        let text = if plain { &verb.plain } else { &verb.flagged };
        let by_hash = cmd("EVALSHA")
            .arg(&text.sha)
            .arg(keys.len())
            .arg(keys)
            .arg(arguments)
            .query_async(connection)
            .await;
        match by_hash {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                cmd("EVAL")
                    .arg(&text.code)
                    .arg(keys.len())
                    .arg(keys)
                    .arg(arguments)
                    .query_async(connection)
                    .await
            }
            answer => answer,
        }
    }
}

/// Lua 5.1 has no `#!` inside of a script text.
fn is_too_old_for_flags(error: &redis::RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("unexpected symbol near '#'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_declares_its_flags_first_and_carries_the_prelude() {
        for verb in &Scripts::default().verbs[..=INSPECT] {
            assert!(
                verb.flagged.code.starts_with("#!lua"),
                "{}",
                verb.flagged.code
            );
            assert!(
                !verb.plain.code.lines().any(|line| line.starts_with("#!")),
                "{}",
                verb.plain.code
            );
            assert!(verb.plain.code.contains("local function advance"));
            assert_ne!(verb.flagged.sha, verb.plain.sha);
        }
    }
}
