//! A client's access to its locks on Redis: chooses the server of each lock. Today all locks are on one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{LockName, Step};

use super::address::Address;
use super::node::Node;
use super::scripts::{Counters, NodeTerms, Scripts};
use super::seats::Seat;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Capabilities, Done, Store};
use crate::store::opened::Opened;

/// The locks on one server.
pub(crate) struct RedisStore {
    pub(super) node: Arc<Node>,
}

impl RedisStore {
    /// Begins to connect. [`Store::ready`] returns the outcome.
    pub(crate) fn open(
        address: Address,
        attach: Attach,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let node = Node::open(
            address,
            attach,
            clock,
            tasks,
            limit,
            Scripts::new(Counters::Shared),
            None,
        );
        Self {
            node: Arc::new(node),
        }
    }

    /// Begins to connect to a node of a quorum.
    pub(super) fn as_node(
        node: NodeTerms,
        seat: Seat,
        address: Address,
        attach: Attach,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let scripts = Scripts::new(Counters::ByBucket(node));
        let node = Node::open(address, attach, clock, tasks, limit, scripts, Some(seat));
        Self {
            node: Arc::new(node),
        }
    }

    /// All interfaces of this store.
    pub(crate) fn opened(self) -> Opened {
        Opened {
            #[cfg(feature = "entries")]
            entries: Some(self.node.clone()),
            #[cfg(feature = "timestamp")]
            timestamps: Some(self.node.clone()),
            store: Arc::new(self),
        }
    }
}

impl Store for RedisStore {
    fn label(&self) -> &str {
        self.node.connection.label()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        self.node.send(name, step, done);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tells_wanted: self.node.connection.is_listening(),
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.node.connection.ready().boxed()
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
