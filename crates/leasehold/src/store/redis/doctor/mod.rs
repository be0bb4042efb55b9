//! Gathers the facts about a server that decide whether it is fit for locks. It changes nothing but a scratch lock under
//! `leasehold:doctor:`, which it removes. A refusal is a fact, not an error.
//!
//! | module | what it is |
//! |---|---|
//! | [`gather`] | sends the requests |
//! | [`talk`] | one connection, and the kinds of answers |
//! | [`probe`] | uses a scratch lock as this user |
//! | [`watch`] | measures clocks and delays over seconds |
//! | [`access`] | the commands that a user must be allowed |

mod access;
mod gather;
mod probe;
mod talk;
mod watch;

use std::time::Duration;

use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::init;
use crate::clock::Clock;
use crate::doctor::{Examination, Examined, Facts, NodeFacts, QuorumFacts};
use crate::error::StoreError;

/// Examines the server at `address`; each request may take `limit`.
///
/// # Errors
/// The server cannot be reached or does not answer. A refusal by a server that answers is a fact.
pub(in crate::store) async fn examine(
    address: &Address,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let facts = gather::gather(address, how, clock, limit).await?;
    Ok(Examined::new(
        address.to_string(),
        Facts::Server(Box::new(facts)),
    ))
}

/// Examines the servers of a quorum at once; each request may take `limit`. A server that cannot be reached is a fact.
///
/// # Errors
/// No server answers.
pub(in crate::store) async fn examine_quorum(
    address: &QuorumAddress,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let nodes = address.nodes.iter().map(async |node| {
        let (facts, peeked) = futures_util::join!(
            gather::gather(node, how, clock, limit),
            init::peek(node, clock, limit)
        );
        let facts = facts.map(|mut facts| {
            facts.acl = access::of_node(&facts.acl);
            Box::new(facts)
        });
        let mut found = NodeFacts::new(node.to_string(), facts);
        // A user that may not read the mark fails the probe as well.
        if let Ok((mark, clock)) = peeked {
            (found.mark, found.clock) = (mark, Some(clock));
        }
        found
    });
    let nodes = futures_util::future::join_all(nodes).await;
    if let Some(Err(error)) = nodes.first().map(|node| &node.facts)
        && nodes.iter().all(|node| node.facts.is_err())
    {
        return Err(error.clone());
    }
    let facts = QuorumFacts::new(address.longest_ttl, address.durable, nodes);
    Ok(Examined::new(
        address.to_string(),
        Facts::Quorum(Box::new(facts)),
    ))
}
