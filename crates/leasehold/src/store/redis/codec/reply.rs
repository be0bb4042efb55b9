//! Reads the answers of scripts. An answer of an unknown form is an error, never a guess.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, QuorumTerms};
use leasehold_core::{
    Acceptable, Block, Busy, Fence, Fences, Held, HolderIdentity, HolderView, LockName, Mode,
    Owner, Reply, Snapshot, Step, Ttl, WaiterView,
};
use redis::{RedisError, RedisResult, Value, parse_redis_value};

use super::words::{COUNTER, QUEUE, WAITERS, mode_word};

/// Reads the answer of a long form: for each lock a reply or an error. Returns `None` if the answer has an unknown
/// form.
pub(in crate::store::redis) fn decode<'a>(
    value: &Value,
    names: impl ExactSizeIterator<Item = &'a LockName>,
) -> Option<Vec<RedisResult<Reply>>> {
    let replies = array(value).filter(|replies| replies.len() == names.len())?;
    let each = replies.iter().zip(names);
    each.map(|(reply, name)| one(reply, name)).collect()
}

fn one(value: &Value, name: &LockName) -> Option<RedisResult<Reply>> {
    let Some(parts) = array(value) else {
        return brief(text(value)?).map(Ok);
    };
    let reply = match (text(parts.first()?)?, &parts[1..]) {
        ("busy", [ahead, poll_after, at_us, holder]) => Reply::Busy(Busy {
            ahead: u32::try_from(integer(ahead)?).ok()?,
            poll_after: millis(poll_after)?,
            at_us: u64::try_from(integer(at_us)?).ok()?,
            holder: view(holder)??,
        }),
        ("behind", [least, most]) => Reply::NoVote(NoVote::Behind(bounds(least, most)?)),
        ("not-raised", [least, most]) => Reply::NoVote(NoVote::NotRaised(bounds(least, most)?)),
        ("quarantined", [left]) => Reply::NoVote(NoVote::Quarantined(millis(left)?)),
        ("other-terms", [nodes, longest]) => Reply::NoVote(NoVote::OtherTerms(QuorumTerms {
            nodes: u8::try_from(integer(nodes)?).ok()?,
            longest_ttl: Ttl::new(millis(longest)?).ok()?,
        })),
        ("not-held", [holder]) => Reply::NotHeld(view(holder)?),
        ("seen", [holder, queue, now]) => {
            let now = u64::try_from(integer(now)?).ok()?;
            let queue = array(queue)?
                .chunks_exact(2)
                .filter_map(|pair| waiter(&pair[0], &pair[1], now))
                .collect();
            Reply::Seen(Snapshot::new(view(holder)?, queue))
        }
        ("error", [said]) => return Some(Err(error(said, name)?)),
        _ => return None,
    };
    Some(Ok(reply))
}

/// Reads the answer of a short form: for each step a reply, or `None` if the form did not fit. Returns `None` if the
/// answer has an unknown form.
#[allow(
    clippy::type_complexity,
    reason = "one answer for each, if there is one"
)]
pub(in crate::store::redis) fn decode_short(
    value: &Value,
    steps: &[(LockName, Step)],
) -> Option<Vec<Option<RedisResult<Reply>>>> {
    let replies = array(value).filter(|replies| replies.len() == steps.len())?;
    let each = replies.iter().zip(steps);
    each.map(|(reply, (_, step))| {
        let said = text(reply)?;
        if matches!(said, "other" | "contended") {
            return Some(None);
        }
        let (fence, block) = match step {
            Step::Acquire { block, .. } => (Some(fence_in(said)?), *block),
            Step::Propose(proposal) if said == "done" => {
                let Fences { first, block } = proposal.fences;
                (Some(first), block)
            }
            Step::Release { .. } | Step::GiveBack { .. } => {
                return said
                    .starts_with("done")
                    .then_some(Some(Ok(Reply::Released)));
            }
            Step::Extend { fence, .. } => (*fence, block_of(said.strip_prefix("done")?)?),
            Step::Propose(_) | Step::Break { .. } | Step::Inspect => return None,
        };
        Some(Some(Ok(Reply::Held(Held {
            fence,
            block,
            queued: 0,
        }))))
    })
    .collect()
}

/// Reads the number of fences that were drawn, which follows the first fence: `/<how many>`, or nothing for one.
pub(in crate::store::redis) fn block_of(text: &str) -> Option<Block> {
    if text.is_empty() {
        return Some(Block::ONE);
    }
    let wanted = text.strip_prefix('/')?.parse().ok()?;
    Some(Block::nearest(wanted)).filter(|block| block.get() == wanted)
}

/// Reads the bounds of the fences that a node accepts.
fn bounds(least: &Value, most: &Value) -> Option<Acceptable> {
    let fence = |value| u64::try_from(integer(value)?).ok().map(Fence::new);
    Some(Acceptable {
        least: fence(least)?,
        most: fence(most)?,
    })
}

/// Reads a reply that is one text: `released` or `held <fence> <how many> <queued>`.
fn brief(text: &str) -> Option<Reply> {
    if text == "released" {
        return Some(Reply::Released);
    }
    let (fence, rest) = text.strip_prefix("held ")?.split_once(' ')?;
    let (block, queued) = rest.split_once(' ')?;
    Some(Reply::Held(Held {
        fence: Some(fence_in(fence)?),
        block: Block::nearest(block.parse().ok()?),
        queued: queued.parse().ok()?,
    }))
}

/// The error of one step, as the server would have sent it for that step alone. The word `script:` says that a command
/// in the script failed. The server does not say which key has the wrong type.
fn error(said: &Value, name: &LockName) -> Option<RedisError> {
    let Value::BulkString(said) = said else {
        return None;
    };
    let said = String::from_utf8_lossy(said).replace(['\r', '\n'], " ");
    // Older servers put the script's name and line before the code.
    let code = if said.starts_with(|first: char| first.is_ascii_uppercase()) {
        ""
    } else {
        "ERR "
    };
    let which = if said.contains("WRONGTYPE") {
        let [queue, waiters] = [QUEUE, WAITERS].map(|suffix| name.beside(suffix));
        format!("; look at {COUNTER}, {queue} and {waiters}")
    } else {
        String::new()
    };
    let line = format!("-{code}{said} script: one of its steps{which}\r\n");
    parse_redis_value(line.as_bytes())
        .and_then(Value::extract_error)
        .err()
}

/// The texts of an array.
pub(in crate::store::redis) fn texts(value: &Value) -> Vec<String> {
    array(value)
        .unwrap_or_default()
        .iter()
        .filter_map(text)
        .map(str::to_owned)
        .collect()
}

/// The integers of an array.
#[cfg(any(feature = "entries", feature = "timestamp"))]
pub(in crate::store::redis) fn integers(value: &Value) -> Vec<i64> {
    array(value)
        .unwrap_or_default()
        .iter()
        .filter_map(integer)
        .collect()
}

/// Reads a holder; the inner `None` says that there is none.
#[allow(
    clippy::option_option,
    reason = "the outer one says that the answer has another form"
)]
fn view(value: &Value) -> Option<Option<HolderView>> {
    let [kind, value, expires_in, fence, held_for] = array(value)? else {
        return None;
    };
    let kind = text(kind)?;
    if kind == "none" {
        return Some(None);
    }
    let Value::BulkString(token) = value else {
        return None;
    };
    let fence = optional_fence(fence)?;
    // A token without a fence is not written by this protocol.
    let owner = std::str::from_utf8(token)
        .ok()
        .and_then(Owner::parse)
        .filter(|_| fence.is_some());
    let who = owner.map_or_else(
        || HolderIdentity::Foreign {
            kind: kind.into(),
            value: token.clone(),
        },
        HolderIdentity::Owner,
    );
    Some(Some(HolderView::new(
        who,
        fence,
        u64::try_from(integer(held_for)?)
            .ok()
            .map(Duration::from_micros),
        u64::try_from(integer(expires_in)?)
            .ok()
            .map(Duration::from_millis),
    )))
}

/// Reads a waiter in the queue; `None` for a record of another form, which no current client writes.
fn waiter(token: &Value, record: &Value, now_ms: u64) -> Option<WaiterView> {
    let owner = Owner::parse(text(token)?)?;
    let mut words = text(record)?.split(' ');
    let mut next = || words.next();
    let (mode, ttl, _block, _channel, seen_until) = (next()?, next()?, next()?, next()?, next()?);
    let mode = (mode == mode_word(Mode::Exclusive)).then_some(Mode::Exclusive)?;
    let ttl = Ttl::new(Duration::from_millis(ttl.parse().ok()?)).ok()?;
    let seen_for = Duration::from_millis(seen_until.parse::<u64>().ok()?.saturating_sub(now_ms));
    Some(WaiterView::new(owner, mode, ttl, seen_for))
}

fn fence_of(value: &Value) -> Option<Fence> {
    fence_in(text(value)?)
}

/// Reads a fence.
pub(in crate::store::redis) fn fence_in(text: &str) -> Option<Fence> {
    let fence = text.parse().ok().map(Fence::new);
    fence.filter(|fence| *fence <= Fence::MAX)
}

#[allow(
    clippy::option_option,
    reason = "the outer one says that the answer has another form"
)]
fn optional_fence(value: &Value) -> Option<Option<Fence>> {
    if text(value)?.is_empty() {
        Some(None)
    } else {
        fence_of(value).map(Some)
    }
}

fn millis(value: &Value) -> Option<Duration> {
    u64::try_from(integer(value)?)
        .ok()
        .map(Duration::from_millis)
}

pub(in crate::store::redis) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

pub(in crate::store::redis) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(in crate::store::redis) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}
