//! Cache entries on a server. The scripts under `lua/cache` implement the rules. An answer of an unknown form is an error, never a guess.

#[cfg(test)]
mod tests;

use std::slice;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use leasehold_core::cache::{CommitOutcome, Reply, Step, Token, Value as Entry, Version};
use leasehold_core::{LockName, slot};
use redis::{Cmd, RedisResult, Value, cmd, pipe};

use super::RedisStore;
use super::cluster::Server;
use super::connection::link::Wire;
use super::fault::{is_forbidden, is_wrong_type};
use super::protocol::{POLL_ONLY, array, millis, no_known_form, number, slot_tag, text};
use super::scripts::{
    CACHE_ABANDON, CACHE_BEGIN, CACHE_COMMIT, CACHE_INVALIDATE, CACHE_RENEW, Counters, Scripts,
};
use crate::error::StoreError;
use crate::store::contract::{Answering, EntryStore, Looked, Taken};

/// The most keys of one MGET: enough to cost little beside the values, few enough not to delay other clients.
const MOST_KEYS: usize = 512;

impl EntryStore for RedisStore {
    fn look<'a>(&'a self, keys: &'a [LockName], watch: bool) -> Answering<'a, Looked> {
        async move {
            if !self.servers.is_cluster() {
                return self.look_at(keys, watch).await;
            }
            // Each key may be at another node. Those of one node leave together.
            let looks = keys
                .iter()
                .map(|key| self.look_at(slice::from_ref(key), watch));
            let looked = join_all(looks).await.into_iter();
            let looked = looked.collect::<Result<Vec<_>, _>>()?;
            // By the clock that is ahead, a value is stale too early rather than too late.
            let now_ms = looked.iter().map(|looked| looked.now_ms).max();
            Ok(Looked {
                now_ms: now_ms.unwrap_or_default(),
                values: looked
                    .into_iter()
                    .flat_map(|looked| looked.values)
                    .collect(),
            })
        }
        .boxed()
    }

    fn take<'a>(&'a self, key: &'a LockName, step: &'a Step) -> Answering<'a, Taken> {
        async move {
            let take = async |server: Arc<Server>, mut wire: Wire| {
                let sent = self.clock.now();
                let tag = match server.scripts.counters() {
                    _ if !server.connection.is_listening() => None,
                    Counters::BySlot => {
                        let slot = slot(key.key());
                        wire = wire.listening_in(slot);
                        Some(slot_tag(slot))
                    }
                    _ => Some(String::new()),
                };
                let scripts = &server.scripts;
                let taken = by_script(scripts, &mut wire, key, step, tag).await?;
                wire.time.learn_ms(taken.now_ms, sent);
                Ok(taken)
            };
            self.servers.call(key.key(), self.limit, take).await
        }
        .boxed()
    }
}

impl RedisStore {
    /// Reads the values of keys that one server has.
    async fn look_at(&self, keys: &[LockName], watch: bool) -> Result<Looked, StoreError> {
        let look = async |_, wire: Wire| {
            let sent = self.clock.now();
            let asks_time = wire.time.is_to_be_asked(sent);
            // Started one after the other, so that both leave in one packet.
            let time = async |mut wire: Wire| {
                if asks_time {
                    // If TIME is refused, the values are still returned: see `ServerTime::now_ms`.
                    let answer = cmd("TIME").query_async::<(u64, u64)>(&mut wire).await;
                    let (seconds, micros) = answer.ok()?;
                    Some(seconds * 1_000_000 + micros)
                } else {
                    None
                }
            };
            let (time, values) = join(time(wire.clone()), values(&wire, keys, watch)).await;
            let values = values?;
            if let Some(server_us) = time {
                wire.time.learn(server_us, sent);
            }
            let now_ms = wire.time.now_ms(self.clock.now());
            Ok(Looked { values, now_ms })
        };
        let first = keys.first().map_or("", |key| key.key());
        self.servers.call(first, self.limit, look).await
    }
}

/// Reads the values of `keys`: with one GET, or as few MGETs as possible. A key without a valid entry has none.
async fn values(wire: &Wire, keys: &[LockName], watch: bool) -> RedisResult<Vec<Option<Entry>>> {
    if let [key] = keys {
        let found = ask(wire, cmd("GET").arg(key.key()), watch).await;
        return match found {
            Err(error) if is_wrong_type(&error) => Ok(vec![None]),
            found => Ok(vec![entry(&found?)]),
        };
    }
    let some = |keys: &[LockName]| {
        let mut mget = cmd("MGET");
        for key in keys {
            mget.arg(key.key());
        }
        let count = keys.len();
        async move { entries(&ask(wire, &mget, watch).await?, count) }
    };
    let found = join_all(keys.chunks(MOST_KEYS).map(some)).await;
    let found: Vec<_> = found.into_iter().collect::<RedisResult<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Sends a read. With `watch`, the server reports the next change of these keys, unless this user may not ask for that, or the node does
/// not own their slot yet: both `ASKING` and `CLIENT CACHING` are for the next command only.
async fn ask(wire: &Wire, look: &Cmd, watch: bool) -> RedisResult<Value> {
    let mut wire = wire.clone();
    if !watch || !wire.may_track() {
        return look.query_async(&mut wire).await;
    }
    let tracks = wire.tracking.get().copied();
    let mut all = pipe();
    // OPTIN: the server reports only changes of what was read after CACHING, not those of locks. Reads that begin at once may all turn it
    // on, which changes nothing.
    if tracks.is_none() {
        all.cmd("CLIENT").arg(&["TRACKING", "ON", "OPTIN"]);
    }
    all.cmd("CLIENT").arg(&["CACHING", "YES"]);
    all.add_command(look.clone());
    // Whatever is refused, the value is read all the same. No push tells of its changes then.
    let answers = all.ignore_errors().query_async(&mut wire).await;
    let mut answers: Vec<RedisResult<Value>> = answers?;
    let found = answers.pop().unwrap_or(Ok(Value::Nil));
    let turned_on = answers.into_iter().next().filter(|_| tracks.is_none());
    let is_on = match turned_on {
        Some(Ok(_)) => Some(true),
        Some(Err(error)) if is_forbidden(&error) => Some(false),
        Some(Err(_)) | None => None,
    };
    if let Some(is_on) = is_on {
        wire.tracking.get_or_init(|| is_on);
    }
    found
}

/// Executes a step as one script. `tag` comes before the client in its channel. A client that is not subscribed has none, and polls.
pub(super) async fn by_script(
    scripts: &Scripts,
    connection: &mut Wire,
    key: &LockName,
    step: &Step,
    tag: Option<String>,
) -> RedisResult<Taken> {
    let script = match step {
        Step::Begin(_) => CACHE_BEGIN,
        Step::Renew { .. } => CACHE_RENEW,
        Step::Commit(_) => CACHE_COMMIT,
        Step::Abandon { .. } => CACHE_ABANDON,
        Step::Invalidate { .. } => CACHE_INVALIDATE,
    };
    let write = |command: &mut Cmd| {
        command.arg(2).arg(key.key()).arg(key.beside(":lh-cache"));
        encode(step, tag.as_deref(), command);
    };
    let value = scripts.run(script, connection, write).await?;
    taken(&value).ok_or_else(|| no_known_form(&value))
}

/// Writes the arguments of a step.
fn encode(step: &Step, tag: Option<&str>, into: &mut Cmd) {
    match step {
        Step::Begin(begin) => {
            let client = begin.listener.zip(tag);
            into.arg(word(begin.token))
                .arg(begin.seen.get())
                .arg(u8::from(begin.over))
                .arg(begin.lease.millis())
                .arg(client.map_or_else(
                    || POLL_ONLY.to_owned(),
                    |(client, tag)| format!("{tag}{client}"),
                ));
        }
        Step::Renew { token, lease } => {
            into.arg(word(*token)).arg(lease.millis());
        }
        Step::Commit(commit) => {
            into.arg(word(commit.token))
                .arg(commit.version.get())
                .arg(commit.fresh_ms)
                .arg(commit.stale_ms)
                .arg(commit.load_ms.min(MOST_LOAD_MS))
                .arg(commit.format.letter().to_string())
                .arg(&commit.body[..]);
        }
        Step::Abandon { token, back_off } => {
            let (left, error) = match back_off {
                Some((left, error)) => (left.millis().to_string(), error.as_str()),
                None => (String::new(), ""),
            };
            into.arg(word(*token)).arg(left).arg(error);
        }
        Step::Invalidate { remove } => {
            into.arg(u8::from(*remove));
        }
    }
}

/// The largest load time that fits into the header.
const MOST_LOAD_MS: u64 = 99_999_999;

fn word(token: Token) -> String {
    format!("{:032x}", token.0)
}

/// Reads the answer of a script; `None` if it has an unknown form.
fn taken(value: &Value) -> Option<Taken> {
    let [word, now, rest @ ..] = array(value)? else {
        return None;
    };
    let reply = match (text(word)?, rest) {
        ("fresh", [stored]) => Reply::Fresh(entry(stored)?),
        ("load", [version, failures, rest @ ..]) => Reply::Load {
            version: Version::new(number(version)?),
            failures: u32::try_from(number(failures)?).ok()?,
            stale: stale(rest)?,
        },
        ("busy", [poll_after, rest @ ..]) => Reply::Busy {
            poll_after: millis(poll_after)?,
            stale: stale(rest)?,
        },
        ("back-off", [left, Value::BulkString(error), rest @ ..]) => Reply::BackOff {
            left: millis(left)?,
            error: String::from_utf8_lossy(error).into_owned(),
            stale: stale(rest)?,
        },
        ("renewed", []) => Reply::Renewed,
        ("not-loading", []) => Reply::NotLoading,
        ("committed", [kept, rest @ ..]) => Reply::Committed(match (text(kept)?, rest) {
            ("fresh", [soft]) => CommitOutcome::Fresh(number(soft)?),
            ("stale", []) => CommitOutcome::Stale,
            ("overtaken", []) => CommitOutcome::Overtaken,
            _ => return None,
        }),
        ("abandoned", []) => Reply::Abandoned,
        ("invalidated", []) => Reply::Invalidated,
        ("foreign", [kind]) => Reply::Foreign(text(kind)?.to_owned()),
        _ => return None,
    };
    let now_ms = number(now)?;
    Some(Taken { reply, now_ms })
}

/// Reads the entry under a key; `None` if it is not a valid entry.
fn entry(value: &Value) -> Option<Entry> {
    match value {
        Value::BulkString(text) => Entry::read(text),
        _ => None,
    }
}

/// Reads the entries under `count` keys.
fn entries(value: &Value, count: usize) -> RedisResult<Vec<Option<Entry>>> {
    match array(value) {
        Some(found) if found.len() == count => Ok(found.iter().map(entry).collect()),
        _ => Err(no_known_form(value)),
    }
}

#[allow(
    clippy::option_option,
    reason = "the outer one says that the answer has another form"
)]
fn stale(rest: &[Value]) -> Option<Option<Entry>> {
    match rest {
        [] | [Value::Nil] => Some(None),
        [stored] => entry(stored).map(Some),
        _ => None,
    }
}
