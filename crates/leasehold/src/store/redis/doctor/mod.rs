//! Whether a server is fit for locks: facts are gathered once, then judged by rules that do no I/O. Must never change
//! anything but a scratch lock of its own under `leasehold:doctor:`, of which nothing is left, nor take a refusal for a fault.
//!
//! | module | what it is |
//! |---|---|
//! | [`gather`] | asks the server all there is to ask |
//! | [`talk`] | one connection, and what an answer can be |
//! | [`probe`] | uses a lock as this user |
//! | [`watch`] | what is seen only in seconds: clocks, stalls |
//! | [`facts`] | what was seen |
//! | [`rules`] | what it means |
//! | [`access`] | what a user must be allowed |

mod access;
mod facts;
mod gather;
mod probe;
mod rules;
mod talk;
mod watch;

use std::time::Duration;

use super::address::Address;
use crate::clock::Clock;
use crate::doctor::{Examination, Report, Server};
use crate::error::StoreError;

/// Examines the server at `address`; each request may take `limit`.
///
/// # Errors
/// That it cannot be reached or does not answer; a server that answers is judged.
pub(in crate::store) async fn examine(
    address: &Address,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Report, StoreError> {
    let facts = gather::gather(address, how, clock, limit).await?;
    let (engine, version) = facts.engine().unwrap_or_default();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Ok(Report {
        store: address.to_string(),
        server: Server {
            engine,
            version,
            mode: text(facts.mode()),
            role: text(facts.role()),
            uptime: facts
                .info_number("uptime_in_seconds")
                .map(Duration::from_secs),
        },
        findings: rules::judge(&facts),
        acl: Some(facts.acl),
    })
}
