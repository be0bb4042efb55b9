//! Reads the answers of the timestamp scripts. An answer of an unknown form is an error, never a guess.

use leasehold_core::timestamp::{Content, Reply};
use redis::{ErrorKind, RedisError, Value};

use super::super::codec::reply;

/// Reads the answer of a script; `None` if it has an unknown form.
pub(super) fn decode(value: &Value) -> Option<Reply> {
    let Some(parts) = reply::array(value) else {
        return (reply::text(value)? == "released").then_some(Reply::Released);
    };
    let number = |value| u64::try_from(reply::integer(value)?).ok();
    Some(match (reply::text(parts.first()?)?, &parts[1..]) {
        ("held", [deadline, now]) => Reply::Held {
            deadline: number(deadline)?,
            at_us: number(now)?,
        },
        ("busy", [deadline, now]) => Reply::Busy {
            deadline: number(deadline)?,
            at_us: number(now)?,
        },
        ("foreign", [kind, value, _]) => Reply::Foreign(content(kind, value)?),
        ("again", [now]) => Reply::Again {
            at_us: number(now)?,
        },
        ("bad-clock", [now]) => Reply::BadClock {
            at_us: number(now)?,
        },
        ("not-held", [kind, value, now]) => Reply::NotHeld {
            content: content(kind, value)?,
            at_us: number(now)?,
        },
        _ => return None,
    })
}

fn content(kind: &Value, value: &Value) -> Option<Content> {
    Some(match (reply::text(kind)?, value) {
        ("none", _) => Content::Nothing,
        ("string", Value::BulkString(value)) => Content::Text(value.clone()),
        ("string", _) => return None,
        (other, _) => Content::Other(other.to_owned()),
    })
}

pub(super) fn no_known_form(value: &Value) -> RedisError {
    let detail = format!("{value:?}");
    (
        ErrorKind::UnexpectedReturnType,
        "an answer has an unknown form",
        detail,
    )
        .into()
}
