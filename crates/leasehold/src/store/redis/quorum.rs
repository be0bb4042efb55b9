//! Opens a quorum of servers.

use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::router::RedisStore;
use super::scripts::NodeTerms;
use super::seats::{Seat, Seats};
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Store};
use crate::store::quorum::QuorumStore;

/// Begins to connect to all servers. [`Store::ready`] returns the outcome.
pub(crate) fn open_quorum(
    address: QuorumAddress,
    attach: &Attach,
    clock: &Clock,
    tasks: &Tasks,
    limit: Duration,
) -> QuorumStore {
    let (label, terms, durable) = (address.to_string(), address.terms(), address.durable);
    let listener = attach.listener.clone();
    let seats = Arc::new(Seats::default());
    let open = |address: Address, listener| -> Arc<dyn Store> {
        let node = NodeTerms { terms, durable };
        let seat = Seat::new(seats.clone(), &address.to_string());
        let attach = Attach {
            listener,
            client: attach.client,
        };
        Arc::new(RedisStore::as_node(
            node,
            seat,
            address,
            attach,
            clock.clone(),
            tasks,
            limit,
        ))
    };
    QuorumStore::open(
        terms,
        label,
        clock.clone(),
        tasks,
        &listener,
        address.nodes,
        open,
    )
}
