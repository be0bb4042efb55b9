//! Where locks live. A store carries out steps of `leasehold-core` atomically; it must never decide one by itself.
//!
//! A new store is one file here, one scheme in [`open`] and one row in `conformance.rs`.

#[cfg(test)]
mod conformance;
#[cfg(feature = "metrics")]
pub(crate) mod counted;
#[cfg(feature = "cache")]
pub(crate) mod entries;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod redis;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::timestamp::{self, Unit};
use leasehold_core::{ClientId, Invalid, LockName, Owner, Reply, Step, Wake};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::doctor::{Examination, Report};
use crate::error::{Error, Replaced, StoreError};
use crate::runtime::Tasks;

/// What a store tells a client without being asked. Each is a hint: a waiter also polls.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A waiter of this client was granted the lock with this key, for the claim window. A wake without a fence is all that
    /// the store knows: the waiter has to claim the lock to learn more.
    Granted { key: String, wake: Wake },
    /// Another client waits for the lock with this key, which this owner holds.
    Wanted { key: String, owner: Owner },
    /// This waiter is now the first in line for the lock with this key, which a foreign program holds, or stands behind a grant that
    /// may end soon: it should ask at once.
    First { key: String, owner: Owner },
    /// The connection ended, for this reason; there will be another one.
    Cut(&'static str),
    /// The next connection leads to another server than the last one, which may not know what that one was asked for. Told before
    /// [`Notice::Reconnected`].
    Replaced(Replaced),
    /// Wakes may have been missed: every waiter should poll now.
    Reconnected,
    /// The load of another client, of the cache entry with this key, has ended.
    #[cfg(feature = "cache")]
    LoadEnded { key: String },
    /// What is stored under these keys of cache entries is not what it was; `None` is all of them.
    #[cfg(feature = "cache")]
    Changed { keys: Option<Vec<String>> },
}

/// Where a store delivers its notices. Called from any thread; must return at once.
pub(crate) type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// What a step came to, or why there is no verdict.
pub(crate) type Answer = Result<Reply, StoreError>;

/// Where the answer to a step goes. One that is dropped unanswered says so: the outcome is unknown.
pub(crate) struct Done(Option<Box<dyn FnOnce(Answer) + Send>>);

impl Done {
    pub(crate) fn new(done: impl FnOnce(Answer) + Send + 'static) -> Self {
        Self(Some(Box::new(done)))
    }

    /// Delivers the answer.
    pub(crate) fn answer(mut self, answer: Answer) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(StoreError::closed().unknown()));
        }
    }
}

/// A place where locks live. One method matters.
pub(crate) trait Store: Send + Sync + 'static {
    /// Carries out one step atomically, or says why it gave no verdict. Safe to repeat. Steps of one kind
    /// on one lock are carried out in the order they were sent, but for a release that names no fence; an acquire and a release
    /// may overtake each other. The answer comes in bounded time, which depends on the TTL in the step; from any
    /// thread, maybe before this returns, so the caller must hold no lock that `done` takes.
    fn send(&self, name: &LockName, step: Step, done: Done);

    /// Sends a step and awaits the answer. Dropping the future leaves the outcome unknown.
    fn apply<'a>(&'a self, name: &'a LockName, step: Step) -> BoxFuture<'a, Answer> {
        async move {
            let (sender, answer) = oneshot::channel();
            self.send(
                name,
                step,
                Done::new(move |answer| drop(sender.send(answer))),
            );
            answer
                .await
                .unwrap_or_else(|_| Err(StoreError::closed().unknown()))
        }
        .boxed()
    }

    /// Whether the client is told by [`Notice::Wanted`] that others wait. If not, it has to assume that they do.
    fn tells_wanted(&self) -> bool {
        true
    }

    /// What errors call it: its address, without user and password.
    fn label(&self) -> &str;

    /// Waits until it is known whether the store can be used; stores that are opened at once always can.
    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Takes a step of the timestamp protocol, which only servers have that others reach too: `None` for other stores. To be
    /// awaited on the client's own thread. Not safe to repeat.
    fn timestamp<'a>(
        &'a self,
        _name: &'a LockName,
        _ask: &'a Ask,
    ) -> Option<BoxFuture<'a, Result<timestamp::Reply, StoreError>>> {
        None
    }

    /// Its cache entries. Only stores that a test plays have none.
    #[cfg(feature = "cache")]
    fn entries(&self) -> Option<&dyn entries::Entries> {
        None
    }

    /// The names worth showing to an operator, from an index that holds hints only. With `remember`, adds that
    /// one instead and answers nothing.
    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;
}

/// A step of the timestamp protocol, and how it is to be taken.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) unit: Unit,
    pub(crate) step: timestamp::Step,
    /// As one script, or else, for a server that runs none, as the commands of the recipe.
    pub(crate) by_script: bool,
    /// No other has to follow it within its TTL, so that it may take as long as any request.
    pub(crate) is_last: bool,
}

/// What a store needs to know of the client it works for.
#[derive(Clone)]
pub(crate) struct Attach {
    /// The client, which names the channel that its wakes arrive on.
    pub(crate) client: ClientId,
    /// Where its wakes go.
    pub(crate) listener: Listener,
    /// It wants to hear of changes to the cache entries that it has looked at.
    pub(crate) keeps_values: bool,
}

/// A store, as named by a URL.
pub(crate) enum Target {
    Redis(Box<redis::Address>),
    Local(String),
    Memory,
}

/// The schemes, for those who typed another.
const SCHEMES: &str = "use redis://host:6379/, rediss://..., valkey://..., valkeys://..., unix:/path/to/socket, local: or local:/path/to/file, or memory:";

impl Target {
    /// Reads a URL. Errors quote its scheme only, since the rest may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let refuse = |shown: &str, why: String| Err(Invalid::new("store URL", shown, why));
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        // What stands before a colon may be a host, a user or a password.
        let shown = if url.is_empty() { "" } else { "..." };
        let Some((scheme, rest)) = url.split_once(':') else {
            return refuse(shown, format!("has no scheme; {SCHEMES}"));
        };
        let port = rest.split('/').next().unwrap_or_default();
        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
            let why = "is a host and a port without a scheme; write redis://host:port/";
            return refuse(shown, why.into());
        }
        match scheme {
            "local" => Ok(Self::Local(rest.into())),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => refuse(
                "memory:...",
                "has something after the scheme; write memory:".into(),
            ),
            _ if redis::Address::has_scheme(scheme) => {
                redis::Address::parse(url).map(|address| Self::Redis(Box::new(address)))
            }
            _ if !is_scheme(scheme) || !rest.starts_with("//") => {
                refuse(shown, format!("has no scheme that is known; {SCHEMES}"))
            }
            _ => refuse(&format!("{scheme}:..."), unknown(scheme)),
        }
    }
}

/// What to do about a scheme that is none of ours.
fn unknown(scheme: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    if scheme.contains("sentinel") {
        "Sentinel is not supported yet; give the URL of the primary, redis://host:6379/, which a Sentinel tells by SENTINEL get-master-addr-by-name NAME".into()
    } else if scheme.contains("cluster") {
        "Cluster is not supported yet; give the URL of a server that is not in cluster mode, redis://host:6379/".into()
    } else {
        format!("unknown scheme; {SCHEMES}")
    }
}

/// Opens a store for a client. Returns at once; [`Store::ready`] says whether it can be used.
pub(crate) fn open(
    target: Target,
    attach: Attach,
    clock: Clock,
    tasks: &Tasks,
    limit: Duration,
) -> Result<Arc<dyn Store>, Error> {
    Ok(match target {
        Target::Redis(address) => Arc::new(redis::RedisStore::open(
            *address, attach, clock, tasks, limit,
        )),
        Target::Local(path) => Arc::new(local::LocalStore::open(&path, attach, clock)?),
        Target::Memory => Arc::new(memory::Memory::new(clock).attach(attach)),
    })
}

/// Examines the store at `target` over a connection of its own; each request may take `limit`.
pub(crate) async fn examine(
    target: &Target,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Report, Error> {
    match target {
        Target::Redis(address) => Ok(redis::examine(address, how, clock, limit).await?),
        Target::Local(path) => local::examine(path, how, clock).await,
        Target::Memory => Ok(memory::examine()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_store_is_refused_with_what_to_write() {
        for (url, why) in [
            ("", "has no scheme"),
            ("S3CR3T@host", "has no scheme"),
            ("S3CR3T:x@host", "has no scheme"),
            ("127.0.0.1:6379", "write redis://host:port/"),
            ("localhost:6379/0", "write redis://host:port/"),
            ("etcd://S3CR3T@h/", "unknown scheme"),
            (
                "redis+sentinel://:S3CR3T@h/",
                "Sentinel is not supported yet",
            ),
            ("redis-cluster://h/", "Cluster is not supported yet"),
            ("rediss+cluster://h/", "Cluster is not supported yet"),
            ("memory://x", "write memory:"),
            ("redis://a,b", "several hosts"),
        ] {
            let Err(refused) = Target::parse(url) else {
                panic!("{url} was taken")
            };
            let refused = refused.to_string();
            assert!(refused.contains(why), "{url}: {refused}");
            assert!(!refused.contains("S3CR3T"), "{url}: {refused}");
        }
    }
}
