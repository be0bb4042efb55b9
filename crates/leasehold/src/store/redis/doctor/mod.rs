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
use crate::clock::Clock;
use crate::doctor::{Examination, Examined, Facts};
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
