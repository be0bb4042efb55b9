//! A quorum of Redis or Valkey servers.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::quorum::QuorumTerms;

use super::store::QuorumStore;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Store};
use crate::store::redis::{NodeTerms, QuorumAddress, RedisStore};

/// Begins to connect to all servers. [`Store::ready`] returns the outcome.
pub(crate) fn open(
    address: QuorumAddress,
    attach: &Attach,
    clock: &Clock,
    tasks: &Tasks,
    limit: Duration,
) -> Result<QuorumStore, Invalid> {
    let label = address.to_string();
    let QuorumAddress {
        nodes,
        longest_ttl,
        durable,
    } = address;
    let count = u8::try_from(nodes.len());
    let count = count.map_err(|_| Invalid::new("store URL", &label, "names too many servers"))?;
    let terms = QuorumTerms {
        nodes: count,
        longest_ttl,
    };
    let listener = attach.listener.clone();
    let open = |address, listener| -> Arc<dyn Store> {
        let node = NodeTerms { terms, durable };
        let attach = Attach {
            listener,
            // There are no cache entries on a quorum.
            keeps_values: false,
            ..attach.clone()
        };
        Arc::new(RedisStore::as_node(
            node,
            address,
            attach,
            clock.clone(),
            tasks,
            limit,
        ))
    };
    Ok(QuorumStore::open(
        terms,
        label,
        clock.clone(),
        tasks,
        &listener,
        nodes,
        open,
    ))
}
