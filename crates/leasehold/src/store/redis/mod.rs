//! Locks on Redis or Valkey, on one server or on a quorum of them. No module outside this folder knows a Redis command
//! (`tests/structure/layers.rs`).
//!
//! The rules of locks are in the scripts under `lua/`, which are compared with `leasehold-core` step by step. [`RedisStore`] is the one door:
//! steps, cache entries, keys of the timestamp protocol, and the index of names for operators. The index is only a hint: a name may be
//! missing, or remain for too long.
//!
//! | module | what it is for |
//! |---|---|
//! | `cache`, [`once`], `timestamp` | cache entries; work that is done once; locks whose value is their deadline |
//! | [`examine`] | the facts that decide whether a server is fit for locks |
//! | [`init`] | marks the servers of a new quorum |
//! | [`cluster`] | which server has a name; the nodes of a cluster |
//! | [`connection`] | makes, keeps and replaces a connection; which thread does its work |
//! | [`pipeline`] | steps until a connection takes them, and until they are answered; requests in flight |
//! | [`slots`] | which node of a cluster has which slot, as a node tells it |
//! | [`protocol`] | what scripts and clients share: keys, words, steps as arguments, answers as replies, messages |
//! | [`scripts`] | the scripts, and in which form one is sent |
//! | [`resp`] | Redis' protocol, as bytes |
//! | [`fault`] | maps the errors of redis-rs to those of this library |
//! | `server_time` | an estimate of the server's clock |
//! | [`address`] | the address of a server and the login, read from a URL |
//! | `tests` | the scripts do the same as core on real servers, and as `docs/reference/protocol.md` says |
//!
//! A module imports only those below it in the table, and this one.

mod address;
#[cfg(feature = "entries")]
mod cache;
mod cluster;
mod connection;
#[cfg(feature = "doctor")]
mod examine;
mod fault;
mod init;
mod once;
mod pipeline;
mod protocol;
mod resp;
mod scripts;
#[cfg(feature = "entries")]
mod server_time;
mod slots;
#[cfg(test)]
mod tests;
#[cfg(feature = "timestamp")]
mod timestamp;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::once::Firing;
use leasehold_core::{LockName, Step};
use redis::{Cmd, Value, cmd};

pub(crate) use self::address::Address;
pub(crate) use self::address::quorum::QuorumAddress;
#[cfg(feature = "tls")]
pub(crate) use self::address::rewrite::{shown, with_option, with_password};
use self::cluster::{Server, Servers};
use self::connection::handshake::{Seat, Seats};
use self::connection::link::Wire;
#[cfg(feature = "doctor")]
pub(super) use self::examine::{examine, examine_quorum};
pub(super) use self::init::init;
use self::protocol::INDEX;
use self::scripts::NodeTerms;
#[cfg(feature = "entries")]
use super::contract::EntryStore;
#[cfg(feature = "timestamp")]
use super::contract::TimestampRequest;
use super::contract::{Answering, Attach, Done, IndexRequest, Store, limit_of};
use super::quorum::QuorumStore;
#[cfg(feature = "entries")]
use crate::clock::Clock;
use crate::error::StoreError;

/// The locks, entries and other keys on one server or in one cluster.
pub(crate) struct RedisStore {
    label: String,
    servers: Arc<Servers>,
    #[cfg(feature = "entries")]
    clock: Clock,
    /// The longest time limit of a request.
    limit: Duration,
}

/// Begins to connect to all servers of a quorum. [`Store::ready`] returns the outcome.
pub(super) fn open_quorum(address: QuorumAddress, attach: &Attach) -> QuorumStore {
    let (label, terms, durable) = (address.to_string(), address.terms(), address.durable);
    let seats = Arc::new(Seats::default());
    let open = |address: Address, listener| -> Arc<dyn Store> {
        let seat = Seat::new(seats.clone(), &address.to_string());
        let attach = Attach {
            listener,
            ..attach.clone()
        };
        let node = (NodeTerms { terms, durable }, seat);
        Arc::new(RedisStore::with(address, attach, Some(node)))
    };
    let (clock, nodes) = (attach.clock.clone(), address.nodes);
    QuorumStore::open(
        terms,
        label,
        clock,
        &attach.tasks,
        &attach.listener,
        nodes,
        open,
    )
}

impl RedisStore {
    /// Begins to connect to a server, or to a cluster. [`Store::ready`] returns the outcome.
    pub(super) fn open(address: Address, attach: Attach) -> Self {
        Self::with(address, attach, None)
    }

    fn with(address: Address, attach: Attach, node: Option<(NodeTerms, Seat)>) -> Self {
        Self {
            label: address.to_string(),
            #[cfg(feature = "entries")]
            clock: attach.clock.clone(),
            limit: attach.limit,
            servers: Servers::open(address, attach, node),
        }
    }

    /// Adds a name to the index.
    async fn remember(&self, name: &LockName) -> Result<Value, StoreError> {
        let add = async |server: Arc<Server>, mut wire: Wire| {
            let write = |command: &mut Cmd| {
                command.arg(1).arg(INDEX).arg(name.key());
            };
            let scripts = &server.scripts;
            scripts.run(scripts::INDEX, &mut wire, write).await
        };
        self.servers.call(INDEX, self.limit, add).await
    }

    /// Sends a command about the index.
    async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let ask = async |_, mut wire: Wire| command.query_async(&mut wire).await;
        self.servers.call(INDEX, self.limit, ask).await
    }
}

impl Store for RedisStore {
    fn label(&self) -> &str {
        &self.label
    }

    fn nodes(&self) -> Vec<String> {
        self.servers.labels()
    }

    fn send(&self, name: &LockName, step: Step, done: Done) {
        let limit = limit_of(&step, self.limit);
        let server = self.servers.of(name.key());
        server.send(name, step, done, limit);
    }

    fn look_at(&self, looks: Vec<(LockName, Done)>) {
        let mut servers: Vec<(Arc<Server>, Vec<_>)> = Vec::new();
        for look in looks {
            let server = self.servers.of(look.0.key());
            match (servers.iter_mut()).find(|(known, _)| Arc::ptr_eq(known, &server)) {
                Some((_, looks)) => looks.push(look),
                None => servers.push((server, vec![look])),
            }
        }
        for (server, looks) in servers {
            server.look(looks, self.limit);
        }
    }

    fn tells_wanted(&self) -> bool {
        self.servers.are_listening()
    }

    fn ready(&self) -> Answering<'_, ()> {
        self.servers.ready().boxed()
    }

    fn index(&self, request: IndexRequest) -> Answering<'_, Vec<String>> {
        async move {
            let said = match request {
                IndexRequest::Read => self.ask(cmd("ZRANGE").arg(INDEX).arg(0).arg(-1)).await,
                IndexRequest::Remember(name) => self.remember(&name).await,
                IndexRequest::Forget(names) => {
                    let keys: Vec<_> = names.iter().map(LockName::key).collect();
                    self.ask(cmd("ZREM").arg(INDEX).arg(keys)).await
                }
            };
            Ok(protocol::texts(&said?))
        }
        .boxed()
    }

    fn once<'a>(
        &'a self,
        name: &'a LockName,
        firing: &'a Firing,
        step: &'a leasehold_core::once::Step,
    ) -> Option<Answering<'a, leasehold_core::once::Answer>> {
        Some(once::take(self, name, firing, step).boxed())
    }

    #[cfg(feature = "entries")]
    fn entries(self: Arc<Self>) -> Option<Arc<dyn EntryStore>> {
        Some(self)
    }

    #[cfg(feature = "timestamp")]
    fn timestamp<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> Option<Answering<'a, leasehold_core::timestamp::Reply>> {
        Some(timestamp::take(self, name, ask).boxed())
    }
}
