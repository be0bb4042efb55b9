//! What a failed request means. Must never call an unknown outcome a refusal.

use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};

/// What a server says when it refuses a request and has not begun it, and what that means. In scripts of Redis 6.2 the
/// word stands inside the message, so each is looked for anywhere.
const REFUSALS: [(&str, StoreErrorKind); 18] = [
    ("READONLY", StoreErrorKind::ReadOnly),
    ("OOM", StoreErrorKind::Full),
    ("WRONGPASS", StoreErrorKind::Denied),
    ("NOAUTH", StoreErrorKind::Denied),
    ("NOPERM", StoreErrorKind::Denied),
    ("can't run this command", StoreErrorKind::Denied),
    (
        "can't access at least one of the keys",
        StoreErrorKind::Denied,
    ),
    ("LOADING", StoreErrorKind::Unavailable),
    ("MISCONF", StoreErrorKind::Unavailable),
    ("NOREPLICAS", StoreErrorKind::Unavailable),
    ("MASTERDOWN", StoreErrorKind::Unavailable),
    ("CLUSTERDOWN", StoreErrorKind::Unavailable),
    ("TRYAGAIN", StoreErrorKind::Unavailable),
    ("BUSY", StoreErrorKind::Unavailable),
    ("max number of clients", StoreErrorKind::Unavailable),
    ("MOVED", StoreErrorKind::Protocol),
    ("CROSSSLOT", StoreErrorKind::Protocol),
    ("WRONGTYPE", StoreErrorKind::Protocol),
];

/// The meaning of an error, and whether the connection it came over is still in step.
pub(super) fn classify(store: &str, error: &RedisError) -> (StoreError, bool) {
    let said = |kind, detail: &str| StoreError::new(store, kind, detail);
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => (
            said(StoreErrorKind::TimedOut, "the connection timed out").unknown(),
            false,
        ),
        ErrorKind::Io => (
            said(StoreErrorKind::Unreachable, &error.to_string()).unknown(),
            false,
        ),
        ErrorKind::Parse => {
            let detail = "what answers there does not speak Redis' protocol; is it the right port, and with or without TLS?";
            (said(StoreErrorKind::Protocol, detail).unknown(), false)
        }
        ErrorKind::RESP3NotSupported => (
            said(
                StoreErrorKind::Protocol,
                "the server is too old: Redis 6.2 or newer is needed",
            ),
            true,
        ),
        ErrorKind::AuthenticationFailed => (said(StoreErrorKind::Denied, &error.to_string()), true),
        _ => {
            let text = error.to_string();
            let kind = REFUSALS
                .iter()
                .find(|(word, _)| text.contains(word))
                .map_or(StoreErrorKind::Protocol, |(_, kind)| *kind);
            (said(kind, &text), true)
        }
    }
}
