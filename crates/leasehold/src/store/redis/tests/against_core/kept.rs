//! Reads a value and a record from Redis without the production code, which is under test.

use std::time::Duration;

use leasehold_core::{Block, Fence, Fences, Mode, Owner, Ttl, Waiter};

use crate::store::redis::protocol::mode_word;

/// Reads a holder's value: its owner, its fences, and whether it has the mark of waiters.
pub(super) fn holder(value: &str) -> Option<(Owner, Fences, bool)> {
    let (token, rest) = value.split_once('#')?;
    let (fences, marked) = match rest.strip_suffix('!') {
        Some(fences) => (fences, true),
        None => (rest, false),
    };
    let (first, many) = fences.split_once('/').unwrap_or((fences, "1"));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let first = number(first).filter(|first| *first <= Fence::MAX.get())?;
    let many = number(many).filter(|many| (1..=1_024).contains(many))?;
    let (first, block) = (Fence::new(first), Block::nearest(many));
    let is_short = value.len() < leasehold_core::VALUE_SHOWN;
    let owner = Owner::parse(token).filter(|_| is_short)?;
    Some((owner, Fences { first, block }, marked))
}

/// Reads a record of the queue.
pub(super) fn waiter(token: &str, record: &str) -> Result<Waiter, String> {
    let bad = || format!("not a record: {token} {record}");
    let owner = Owner::parse(token).ok_or_else(bad)?;
    let words: Vec<&str> = record.split(' ').collect();
    let [mode, ttl, block, channel, seen_until] = words[..] else {
        return Err(bad());
    };
    let listening = channel == format!("leasehold:wake:{}", owner.client());
    if mode != mode_word(Mode::Exclusive) || !(listening || channel == "-") {
        return Err(bad());
    }
    let ttl = Duration::from_millis(ttl.parse().map_err(|_| bad())?);
    Ok(Waiter {
        owner,
        mode: Mode::Exclusive,
        ttl: Ttl::new(ttl).map_err(|_| bad())?,
        block: Block::nearest(block.parse().map_err(|_| bad())?),
        listening,
        seen_until_ms: seen_until.parse().map_err(|_| bad())?,
    })
}
