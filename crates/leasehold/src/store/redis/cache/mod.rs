//! Cache entries on a server. The scripts under `lua/cache` implement the rules.

mod reply;
#[cfg(test)]
mod tests;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use leasehold_core::LockName;
use leasehold_core::cache::{Begin, Commit, Step, Token, Value};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, cmd, pipe};

use super::codec::words::POLL_ONLY;
use super::connection::current::Connected;
use super::fault::is_forbidden;
use super::node::Node;
use super::scripts::{
    CACHE_ABANDON, CACHE_BEGIN, CACHE_COMMIT, CACHE_INVALIDATE, CACHE_RENEW, Scripts,
};
use crate::error::StoreError;
use crate::store::entries::{EntryStore, Looked, Taken};

/// The most keys of one MGET: enough to cost little beside the values, few enough not to delay other clients.
const MOST_KEYS: usize = 512;

impl EntryStore for Node {
    fn look<'a>(
        &'a self,
        keys: &'a [LockName],
        watch: bool,
    ) -> BoxFuture<'a, Result<Looked, StoreError>> {
        let clock = self.connection.clock();
        let look = async move |connected: &Connected| {
            let sent = clock.now();
            let asks_time = connected.time.is_to_be_asked(sent);
            // Started one after the other, so that both leave in one packet.
            let time = async |mut connection: MultiplexedConnection| {
                if asks_time {
                    // If TIME is refused, the values are still returned: see `ServerTime::now_ms`.
                    let answer = cmd("TIME").query_async(&mut connection).await;
                    answer.ok().and_then(|time| reply::time(&time))
                } else {
                    None
                }
            };
            let (time, values) = join(
                time(connected.connection.clone()),
                values(connected, keys, watch),
            )
            .await;
            let values = values?;
            if let Some(server_us) = time {
                connected.time.learn(server_us, sent);
            }
            let now_ms = connected.time.now_ms(clock.now());
            Ok(Looked { values, now_ms })
        };
        self.connection.call(self.limit, look).boxed()
    }

    fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a Step,
    ) -> BoxFuture<'a, Result<Taken, StoreError>> {
        let take = async |connected: &Connected| {
            let mut connection = connected.connection.clone();
            let sent = self.connection.clock().now();
            let listens = self.connection.is_listening();
            let taken = by_script(&self.scripts, &mut connection, key, step, listens).await?;
            connected.time.learn_ms(taken.now_ms, sent);
            Ok(taken)
        };
        self.connection.call(self.limit, take).boxed()
    }
}

/// Reads the values of `keys`: with one GET, or as few MGETs as possible. A key without a valid entry has none.
async fn values(
    connected: &Connected,
    keys: &[LockName],
    watch: bool,
) -> RedisResult<Vec<Option<Value>>> {
    if let [key] = keys {
        let found = ask(connected, cmd("GET").arg(key.key()), watch).await;
        return match found {
            Err(error) if reply::is_wrong_type(&error) => Ok(vec![None]),
            found => Ok(vec![reply::entry(&found?)]),
        };
    }
    let some = |keys: &[LockName]| {
        let mut mget = cmd("MGET");
        for key in keys {
            mget.arg(key.key());
        }
        let count = keys.len();
        async move { reply::entries(&ask(connected, &mget, watch).await?, count) }
    };
    let found = join_all(keys.chunks(MOST_KEYS).map(some)).await;
    let found: Vec<_> = found.into_iter().collect::<RedisResult<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Sends a read. With `watch`, the server reports the next change of these keys, unless this user may not ask for that.
async fn ask(connected: &Connected, look: &Cmd, watch: bool) -> RedisResult<::redis::Value> {
    let mut connection = connected.connection.clone();
    let tracks = connected.tracking.get();
    if !watch || tracks == Some(&false) {
        return look.query_async(&mut connection).await;
    }
    let mut all = pipe();
    // OPTIN: the server reports only changes of what was read after CACHING, not those of locks. Reads that begin at once may all turn it
    // on, which changes nothing.
    if tracks.is_none() {
        all.cmd("CLIENT").arg(&["TRACKING", "ON", "OPTIN"]);
    }
    all.cmd("CLIENT").arg(&["CACHING", "YES"]);
    all.add_command(look.clone());
    // Whatever is refused, the value is read all the same. No push tells of its changes then.
    let answers = all.ignore_errors().query_async(&mut connection).await;
    let mut answers: Vec<RedisResult<::redis::Value>> = answers?;
    let found = answers.pop().unwrap_or(Ok(::redis::Value::Nil));
    let turned_on = answers.into_iter().next().filter(|_| tracks.is_none());
    let is_on = match turned_on {
        Some(Ok(_)) => Some(true),
        Some(Err(error)) if is_forbidden(&error) => Some(false),
        Some(Err(_)) | None => None,
    };
    if let Some(is_on) = is_on {
        connected.tracking.get_or_init(|| is_on);
    }
    found
}

/// Executes a step as one script. A client that is not subscribed receives no message and polls instead.
pub(super) async fn by_script(
    scripts: &Scripts,
    connection: &mut MultiplexedConnection,
    key: &LockName,
    step: &Step,
    listens: bool,
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
        encode(step, listens, command);
    };
    let value = scripts.run(script, connection, write).await?;
    reply::taken(&value).ok_or_else(|| reply::no_known_form(&value))
}

/// Writes the arguments of a step.
fn encode(step: &Step, listens: bool, into: &mut Cmd) {
    match step {
        Step::Begin(begin) => {
            let Begin {
                token,
                seen,
                over,
                lease,
                listener,
            } = begin;
            let client = listener.filter(|_| listens);
            into.arg(word(*token))
                .arg(seen.get())
                .arg(u8::from(*over))
                .arg(lease.millis())
                .arg(client.map_or_else(|| POLL_ONLY.to_owned(), |client| client.to_string()));
        }
        Step::Renew { token, lease } => {
            into.arg(word(*token)).arg(lease.millis());
        }
        Step::Commit(commit) => {
            let Commit {
                token,
                version,
                fresh_ms,
                stale_ms,
                load_ms,
                format,
                body,
            } = commit;
            into.arg(word(*token))
                .arg(version.get())
                .arg(fresh_ms)
                .arg(stale_ms)
                .arg((*load_ms).min(MOST_LOAD_MS))
                .arg(format.letter().to_string())
                .arg(&body[..]);
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
