//! Locks on one Redis or Valkey. The only place that knows a Redis command; it must never decide a lock rule: the
//! scripts under `lua/` do, and they are compared with `leasehold-core` step by step.

mod address;
#[cfg(test)]
mod against_core;
mod batch;
#[cfg(feature = "cache")]
mod cache;
mod dial;
mod doctor;
mod encode;
mod fault;
mod flights;
mod form;
mod greet;
mod inbox;
mod line;
mod link;
#[cfg(all(leasehold_mutations, debug_assertions))]
mod mutation;
mod notice;
mod placement;
mod refusal;
mod reply;
mod runner;
mod script;
mod server;
#[cfg(feature = "cache")]
mod server_time;
mod timestamp;
mod tls;
mod url;
#[cfg(test)]
mod vectors;
mod vigil;
mod words;

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value, cmd, pipe};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step, Ttl};

pub(crate) use self::address::Address;
pub(in crate::store) use self::doctor::examine;
use self::line::Up;
use self::link::Link;
use self::script::Scripts;
use self::words::{INDEX, QUEUE};
use super::contract::{Ask, Attach, Done, Store};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;

/// A connection to one node, and the scripts it runs there.
pub(crate) struct RedisStore {
    inner: Inner,
}

struct Inner {
    link: Link,
    scripts: Arc<Scripts>,
    /// The longest a request may take.
    limit: Duration,
}

impl RedisStore {
    /// Begins to connect; [`Store::ready`] says how that went.
    pub(crate) fn open(
        address: Address,
        attach: Attach,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let scripts = Arc::new(Scripts::default());
        let link = Link::open(address, attach, scripts.clone(), clock, tasks, limit);
        Self {
            inner: Inner {
                link,
                scripts,
                limit,
            },
        }
    }
}

impl Inner {
    /// A third of the TTL, so that a lease survives two requests that are not answered.
    fn limit_within(&self, ttl: Ttl) -> Duration {
        (ttl.get() / 3).min(self.limit)
    }

    fn limit_of(&self, step: &Step) -> Duration {
        match step {
            Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => self.limit_within(*ttl),
            Step::Release { .. } | Step::Break { .. } | Step::Inspect => self.limit,
        }
    }

    async fn remember(&self, name: &LockName) -> Result<(), StoreError> {
        let add = async |up: &Up| {
            let mut connection = up.connection.clone();
            let write = |command: &mut Cmd| {
                command.arg(1).arg(INDEX).arg(name.key());
            };
            self.scripts
                .run(script::INDEX, &mut connection, write)
                .await
        };
        self.link.call(self.limit, add).await.map(drop)
    }

    /// The index, less the names whose lock and queue are gone, which are dropped from it.
    async fn names(&self) -> Result<Vec<String>, StoreError> {
        let list = async |up: &Up| {
            cmd("ZRANGE")
                .arg(INDEX)
                .arg(0)
                .arg(-1)
                .query_async(&mut up.connection.clone())
                .await
        };
        let names = reply::texts(&self.link.call(self.limit, list).await?);
        if names.is_empty() {
            return Ok(names);
        }
        let mut exist = pipe();
        for name in &names {
            exist
                .cmd("EXISTS")
                .arg(name)
                .arg(LockName::from_key(name).beside(QUEUE));
        }
        let look = async |up: &Up| exist.query_async(&mut up.connection.clone()).await;
        let exist = reply::integers(&self.link.call(self.limit, look).await?);
        let (kept, gone): (Vec<_>, Vec<_>) = names
            .into_iter()
            .zip(exist)
            .partition(|(_, keys)| *keys > 0);
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().map(|(name, _)| name).collect();
            let forget = async |up: &Up| {
                cmd("ZREM")
                    .arg(INDEX)
                    .arg(&gone)
                    .query_async::<Value>(&mut up.connection.clone())
                    .await
            };
            // A server that takes no writes now, or none of this user's, can still be looked at.
            let _forgotten: Result<Value, StoreError> = self.link.call(self.limit, forget).await;
        }
        Ok(kept.into_iter().map(|(name, _)| name).collect())
    }
}

impl Store for RedisStore {
    fn label(&self) -> &str {
        self.inner.link.label()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let limit = self.inner.limit_of(&step);
        self.inner.link.send(name, step, done, limit);
    }

    fn tells_wanted(&self) -> bool {
        self.inner.link.is_listening()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.link.ready().boxed()
    }

    fn timestamp<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Option<BoxFuture<'a, Result<leasehold_core::timestamp::Reply, StoreError>>> {
        Some(self.inner.timestamp(name, ask).boxed())
    }

    #[cfg(feature = "cache")]
    fn entries(&self) -> Option<&dyn super::entries::Entries> {
        Some(&self.inner)
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            match remember {
                Some(name) => self.inner.remember(&name).await.map(|()| Vec::new()),
                None => self.inner.names().await,
            }
        }
        .boxed()
    }
}
