//! The errors of a failed attempt to connect, with a hint.
//!
//! No request was sent, so none of them says that a step may have taken effect.

use std::time::Duration;

use redis::RedisError;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::fault::classify;

/// Why an attempt to connect failed. No step was sent, so none can have taken effect.
pub(in crate::store::redis) fn refusal(address: &Address, error: &RedisError) -> StoreError {
    let (mut refusal, _) = classify(&address.to_string(), error);
    if refusal.kind == StoreErrorKind::TimedOut {
        return silent(address, None);
    }
    if error.is_connection_dropped() && !error.is_connection_refusal() {
        refusal.detail += WRONG_DOOR;
    }
    refusal.may_have_taken_effect = false;
    refusal
}

const WRONG_DOOR: &str = "; is it the right port, and with or without TLS?";

pub(in crate::store::redis) fn closed(address: &Address) -> StoreError {
    let detail = format!("it closed the connection{WRONG_DOOR}");
    StoreError::new(address.to_string(), StoreErrorKind::Unreachable, detail)
}

/// The server did not answer an attempt to connect in time.
pub(in crate::store::redis) fn silent(address: &Address, limit: Option<Duration>) -> StoreError {
    let waited = limit.map_or_else(String::new, |limit| format!(" for {limit:.1?}"));
    let detail = format!(
        "it did not answer{waited}; is it the right host and port, and with or without TLS?"
    );
    StoreError::new(address.to_string(), StoreErrorKind::TimedOut, detail)
}
