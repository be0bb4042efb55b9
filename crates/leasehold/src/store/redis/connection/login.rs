//! The login settings of a connection: database, user and password.
//!
//! If the source of credentials fails, the error says so and does not blame the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::super::address::Address;
use super::super::address::quorum::QuorumAddress;
use crate::access::{Credentials, Source};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};

/// Asks the address's source of credentials, if it has one, for at most `limit`.
pub(in crate::store::redis) async fn login(
    address: &Address,
    clock: &Clock,
    limit: Duration,
) -> Result<RedisConnectionInfo, StoreError> {
    let settings = address.info().redis_settings().clone();
    let ask = match address.source() {
        None => return Ok(settings),
        Some(Source::Urls(read)) => {
            // A panic must not end the dialing task.
            let urls = catch_unwind(AssertUnwindSafe(|| read())).unwrap_or_default();
            let found = urls.iter().find_map(|url| credentials_in(url, address));
            return Ok(found.unwrap_or(settings));
        }
        Some(Source::Credentials(ask)) => ask,
    };
    let (kind, why) = match clock.within(limit, ask()).await {
        Some(Ok(Credentials { user, password })) => {
            let settings = settings.set_password(password);
            return Ok(match user {
                Some(user) => settings.set_username(user),
                None => settings,
            });
        }
        Some(Err(why)) => (
            StoreErrorKind::Unreachable,
            format!("no credentials: {why}"),
        ),
        None => (
            StoreErrorKind::TimedOut,
            format!("the source of credentials did not answer for {limit:.1?}"),
        ),
    };
    Err(StoreError::new(address.to_string(), kind, why))
}

/// The credentials that a URL has for this server; `None` if it names other servers only.
fn credentials_in(url: &str, address: &Address) -> Option<RedisConnectionInfo> {
    let scheme = url.split(':').next().unwrap_or_default();
    let named = if QuorumAddress::has_scheme(scheme) {
        QuorumAddress::parse(url).ok()?.nodes
    } else {
        vec![Address::parse(url).ok()?]
    };
    let shown = address.to_string();
    let this = named.into_iter().find(|other| other.to_string() == shown)?;
    Some(this.info().redis_settings().clone())
}
