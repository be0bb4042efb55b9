//! Locks on one Redis or Valkey. The only place that knows a Redis command; it must never decide a lock rule: the
//! scripts under `lua/` do, and they are compared with `leasehold-core` step by step.

mod address;
#[cfg(test)]
mod against_core;
mod fault;
mod link;
mod reply;
mod script;

use std::time::Duration;

use ::redis::{Value, cmd, pipe};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Mode, Reply, Step};

pub(crate) use self::address::Address;
use self::link::{Link, Up};
use self::script::{ACQUIRE, BREAK, EXTEND, INSPECT, RELEASE, Scripts};
use super::{Attach, Store};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;

/// Names worth showing to an operator.
const INDEX: &str = "leasehold:index";

/// A connection to one node, and the scripts it runs there.
pub(crate) struct RedisStore {
    link: Link,
    scripts: Scripts,
    /// Where wakes for this client are published.
    channel: String,
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
        let channel = format!("leasehold:wake:{}", attach.client);
        let link = Link::open(
            address,
            channel.clone(),
            attach.listener,
            clock,
            tasks,
            limit,
        );
        Self {
            link,
            scripts: Scripts::default(),
            channel,
            limit,
        }
    }

    async fn step(&self, name: &LockName, step: Step) -> Result<Reply, StoreError> {
        let keys = [
            name.key().to_owned(),
            name.beside(":lh-fence"),
            name.beside(":lh-queue"),
            name.beside(":lh-waiters"),
        ];
        let limit = self.limit_of(&step);
        let (verb, arguments) = Self::encode(&step);
        let value = self
            .link
            .call(limit, async |up: &Up| {
                let channel = if up.listening {
                    self.channel.as_str()
                } else {
                    "-"
                };
                let arguments: Vec<&str> = arguments
                    .iter()
                    .map(|argument| argument.in_words(channel))
                    .collect();
                self.scripts
                    .run(verb, &mut up.connection.clone(), &keys, &arguments)
                    .await
            })
            .await?;
        reply::decode(&value).ok_or_else(|| self.link.protocol_error(&value))
    }

    /// A third of the TTL, so that a lease survives two requests that are not answered.
    fn limit_of(&self, step: &Step) -> Duration {
        match step {
            Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => (ttl.get() / 3).min(self.limit),
            Step::Release { .. } | Step::Break { .. } | Step::Inspect => self.limit,
        }
    }

    fn encode(step: &Step) -> (usize, Vec<Argument>) {
        use Argument::{Channel, Text};
        let millis = |ttl: leasehold_core::Ttl| Text(ttl.millis().to_string());
        let token = |owner: &leasehold_core::Owner| Text(owner.token().to_owned());
        match step {
            Step::Acquire {
                owner,
                mode,
                ttl,
                wait,
            } => {
                let channel = match wait {
                    None => Text(String::new()),
                    Some(wait) if wait.listening => Channel,
                    Some(_) => Text("-".into()),
                };
                (
                    ACQUIRE,
                    vec![
                        token(owner),
                        millis(*ttl),
                        Text(mode_word(*mode).into()),
                        channel,
                    ],
                )
            }
            Step::Extend { owner, ttl } => (EXTEND, vec![token(owner), millis(*ttl)]),
            Step::Release { owner, keep } => (
                RELEASE,
                vec![token(owner), keep.map_or_else(|| Text("0".into()), millis)],
            ),
            Step::Break { fence } => (BREAK, vec![Text(fence.to_string())]),
            Step::Inspect => (INSPECT, Vec::new()),
        }
    }

    async fn remember(&self, name: &LockName) -> Result<(), StoreError> {
        let keys = [INDEX.to_owned()];
        let add = async |up: &Up| {
            let mut connection = up.connection.clone();
            self.scripts
                .run(script::INDEX, &mut connection, &keys, &[name.key()])
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
                .arg(LockName::from_key(name).beside(":lh-queue"));
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
            self.link.call(self.limit, forget).await?;
        }
        Ok(kept.into_iter().map(|(name, _)| name).collect())
    }
}

/// An argument of a script; the channel is only known once there is a connection that listens, or does not.
enum Argument {
    Text(String),
    Channel,
}

impl Argument {
    fn in_words<'a>(&'a self, channel: &'a str) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Channel => channel,
        }
    }
}

/// A mode as scripts and records spell it.
pub(crate) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        // A mode that core knows and this store does not: refused by the script's caller tests, never in the field.
        _ => "unknown",
    }
}

impl Store for RedisStore {
    fn label(&self) -> &str {
        self.link.label()
    }

    fn apply<'a>(
        &'a self,
        name: &'a LockName,
        step: Step,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        self.step(name, step).boxed()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.link.ready().boxed()
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            match remember {
                Some(name) => self.remember(&name).await.map(|()| Vec::new()),
                None => self.names().await,
            }
        }
        .boxed()
    }
}
