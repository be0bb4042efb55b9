//! Reads the answers of the cache scripts. An answer of an unknown form is an error, never a guess.

use std::time::Duration;

use leasehold_core::cache::{CommitOutcome, Reply, Value as Entry, Version};
use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::super::codec::reply::{array, integer, integers, text};
use crate::store::entries::Taken;

/// Reads the answer of a script; `None` if it has an unknown form.
pub(super) fn taken(value: &Value) -> Option<Taken> {
    let [word, now, rest @ ..] = array(value)? else {
        return None;
    };
    let reply = match (text(word)?, rest) {
        ("fresh", [stored]) => Reply::Fresh(entry(stored)?),
        ("load", [version, failures, rest @ ..]) => Reply::Load {
            version: Version::new(number(version)?),
            failures: u32::try_from(number(failures)?).ok()?,
            stale: stale(rest)?,
        },
        ("busy", [poll_after, rest @ ..]) => Reply::Busy {
            poll_after: millis(poll_after)?,
            stale: stale(rest)?,
        },
        ("back-off", [left, Value::BulkString(error), rest @ ..]) => Reply::BackOff {
            left: millis(left)?,
            error: String::from_utf8_lossy(error).into_owned(),
            stale: stale(rest)?,
        },
        ("renewed", []) => Reply::Renewed,
        ("not-loading", []) => Reply::NotLoading,
        ("committed", [kept, rest @ ..]) => Reply::Committed(match (text(kept)?, rest) {
            ("fresh", [soft]) => CommitOutcome::Fresh(number(soft)?),
            ("stale", []) => CommitOutcome::Stale,
            ("overtaken", []) => CommitOutcome::Overtaken,
            _ => return None,
        }),
        ("abandoned", []) => Reply::Abandoned,
        ("invalidated", []) => Reply::Invalidated,
        ("foreign", [kind]) => Reply::Foreign(text(kind)?.to_owned()),
        _ => return None,
    };
    let now_ms = number(now)?;
    Some(Taken { reply, now_ms })
}

/// Reads the entry under a key; `None` if it is not a valid entry.
pub(super) fn entry(value: &Value) -> Option<Entry> {
    match value {
        Value::BulkString(text) => Entry::read(text),
        _ => None,
    }
}

/// Reads the entries under `count` keys.
pub(super) fn entries(value: &Value, count: usize) -> RedisResult<Vec<Option<Entry>>> {
    match array(value) {
        Some(found) if found.len() == count => Ok(found.iter().map(entry).collect()),
        _ => Err(no_known_form(value)),
    }
}

/// Reads the reply to TIME, in microseconds.
pub(super) fn time(value: &Value) -> Option<u64> {
    match integers(value)[..] {
        [seconds, micros] => u64::try_from(seconds * 1_000_000 + micros).ok(),
        _ => None,
    }
}

/// True if the key holds another type than a string.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE") || error.to_string().contains("WRONGTYPE")
}

pub(super) fn no_known_form(value: &Value) -> RedisError {
    // Only the first word is shown, since values may be confidential.
    let word = array(value).and_then(<[_]>::first).and_then(text);
    let detail = word.unwrap_or("no word").to_owned();
    let what = "the answer of a script has an unknown form";
    (ErrorKind::UnexpectedReturnType, what, detail).into()
}

/// Reads the stale value at the end of an answer, if there is one.
#[allow(
    clippy::option_option,
    reason = "the outer one says that the answer has another form"
)]
fn stale(rest: &[Value]) -> Option<Option<Entry>> {
    match rest {
        [] | [Value::Nil] => Some(None),
        [stored] => entry(stored).map(Some),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    u64::try_from(integer(value)?).ok()
}

fn millis(value: &Value) -> Option<Duration> {
    number(value).map(Duration::from_millis)
}
