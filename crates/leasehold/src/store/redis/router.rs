//! A client's access to its locks on Redis: which server each of them is on. Today all are on one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step, timestamp};

use super::address::Address;
use super::node::Node;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;
use crate::store::contract::{Ask, Attach, Done, Store};
#[cfg(feature = "cache")]
use crate::store::entries::Entries;

/// The locks on one server.
pub(crate) struct RedisStore {
    pub(super) node: Node,
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
        let node = Node::open(address, attach, clock, tasks, limit);
        Self { node }
    }
}

impl Store for RedisStore {
    fn label(&self) -> &str {
        self.node.link.label()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        self.node.send(name, step, done);
    }

    fn tells_wanted(&self) -> bool {
        self.node.link.is_listening()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.node.link.ready().boxed()
    }

    fn timestamp<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Option<BoxFuture<'a, Result<timestamp::Reply, StoreError>>> {
        Some(self.node.timestamp(name, ask).boxed())
    }

    #[cfg(feature = "cache")]
    fn entries(&self) -> Option<&dyn Entries> {
        Some(&self.node)
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            match remember {
                Some(name) => self.node.remember(&name).await.map(|()| Vec::new()),
                None => self.node.names().await,
            }
        }
        .boxed()
    }
}
