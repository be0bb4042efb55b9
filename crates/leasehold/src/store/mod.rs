//! Where locks live. A store carries out steps of `leasehold-core` atomically; it must never decide one by itself.
//!
//! A new store is one file here, one scheme in [`open`] and one row in `conformance.rs`.

#[cfg(test)]
mod conformance;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod redis;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::{ClientId, Invalid, LockName, Owner, Reply, Step};

use crate::clock::Clock;
use crate::error::{Error, StoreError};
use crate::runtime::Tasks;

/// What a store tells a client without being asked. Each is a hint: a waiter also polls.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A waiter of this client was granted the lock with this key, for the claim window.
    Granted { key: String, owner: Owner },
    /// Wakes may have been missed: every waiter should poll now.
    Reconnected,
}

/// Where a store delivers its notices. Called from any thread; must return at once.
pub(crate) type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// A place where locks live. Two methods matter.
pub(crate) trait Store: Send + Sync + 'static {
    /// Carries out one step atomically, or says why it gave no verdict. Safe to repeat. Answers in bounded time, which
    /// depends on the TTL in the step. Dropping the future leaves the outcome unknown.
    fn apply<'a>(
        &'a self,
        name: &'a LockName,
        step: Step,
    ) -> BoxFuture<'a, Result<Reply, StoreError>>;

    /// What errors call it: its address, without user and password.
    fn label(&self) -> &str;

    /// Waits until it is known whether the store can be used; stores that are opened at once always can.
    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The names worth showing to an operator, from an index that holds hints only. With `remember`, adds that
    /// one instead and answers nothing.
    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;
}

/// What a store needs to know of the client it works for.
#[derive(Clone)]
pub(crate) struct Attach {
    /// The client, which names the channel that its wakes arrive on.
    pub(crate) client: ClientId,
    /// Where its wakes go.
    pub(crate) listener: Listener,
}

/// A store, as named by a URL.
pub(crate) enum Target {
    Redis(Box<redis::Address>),
    Local(String),
    Memory,
}

/// The schemes, for those who typed another.
const SCHEMES: &str = "use redis://host:6379/, rediss://..., unix:/path/to/socket, local: or local:/path/to/file, or memory:";

impl Target {
    /// Reads a URL. Errors quote its scheme only, since the rest may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let refuse = |shown: &str, why: String| Err(Invalid::new("store URL", shown, why));
        let is_scheme = |text: &&str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        let parts = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
        let Some((scheme, rest)) = parts else {
            // What stands before a colon may be a user or a password.
            let shown = if url.is_empty() { "" } else { "..." };
            return refuse(shown, format!("has no scheme; {SCHEMES}"));
        };
        match scheme {
            "local" => Ok(Self::Local(rest.into())),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "redis" | "rediss" | "unix" => {
                redis::Address::parse(url).map(|address| Self::Redis(Box::new(address)))
            }
            _ => refuse(
                &format!("{scheme}:..."),
                format!("unknown scheme; {SCHEMES}"),
            ),
        }
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
