//! The settings that a connection begins with: database, user and password. Must never blame the server for the source of credentials.

use std::time::Duration;

use redis::RedisConnectionInfo;

use super::super::address::Address;
use crate::access::Credentials;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};

/// Asks for the credentials of this address, for at most `limit`, if it has a source of them.
pub(in crate::store::redis) async fn login(
    address: &Address,
    clock: &Clock,
    limit: Duration,
) -> Result<RedisConnectionInfo, StoreError> {
    let settings = address.info().redis_settings().clone();
    let Some(source) = address.source() else {
        return Ok(settings);
    };
    let (kind, why) = match clock.within(limit, source.ask()).await {
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
