//! Keeps a lock as one value: a text with a line for each holder and each waiter, first in line first.
//!
//! ```text
//! hold lh1.… slot/4 1767225600000000 1 31000 0 2
//! wait lh1.… exclusive 30000 1 20000 1
//! ```
//!
//! - A holder has its token, mode, first fence, number of fences, last millisecond, whether it is kept, and the number of its slot if
//!   its mode has slots.
//! - A waiter has its token, mode, TTL in milliseconds, number of fences, last millisecond, and whether it listens.
//!
//! A token has no spaces. When a waiter joins or leaves, the store writes all lines, some 110 bytes for each waiter. The
//! format belongs to the layout of the file, whose version the store checks when it opens it.

use std::time::Duration;

use leasehold_core::{
    Block, Counter, Fence, Fences, Holder, LockState, Mode, Now, Owner, Slots, Ttl, Waiter,
};
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;

/// The keys of the locks that are held or waited for at a time.
pub(super) const LIVE: &str = "SELECT key FROM locks WHERE until_ms >= ?1 ORDER BY key";
/// The keys of the locks that ended before a time.
pub(super) const ENDED: &str = "SELECT key FROM locks WHERE until_ms < ?1";
/// The keys of the locks that a client holds or waits for. Each token has the client's number in hexadecimal digits. A
/// host that contains it is found too: that costs a look, and nothing else.
pub(super) const OF_CLIENT: &str =
    "SELECT key FROM locks WHERE instr(state, printf('.%016x.', ?1))";

/// The first words of a line.
const HOLD: &str = "hold";
const WAIT: &str = "wait";

/// A lock, and the counter that all locks of the file draw their fences from.
#[derive(Clone)]
pub(super) struct StoredLock {
    pub(super) state: LockState,
    pub(super) counter: Counter,
}

impl StoredLock {
    /// Reads the lock with this key.
    pub(super) fn load(db: &Connection, key: &str) -> Result<Self, Fault> {
        let sql = "SELECT (SELECT state FROM locks WHERE key = ?1), (SELECT fence FROM counter)";
        let (text, fence): (Option<String>, Option<i64>) = db
            .prepare_cached(sql)?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let fence = fence.map(natural).transpose()?;
        Ok(Self {
            state: text.map_or_else(|| Ok(LockState::default()), |text| parse(text.split('\n')))?,
            counter: Counter(fence.map(Fence::new)),
        })
    }

    /// Reads only the holders of the lock with this key: of a long queue, most is not looked at.
    pub(super) fn holders(db: &Connection, key: &str) -> Result<Vec<Holder>, Fault> {
        let text: Option<String> = db
            .prepare_cached("SELECT state FROM locks WHERE key = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        let lines = text.iter().flat_map(|text| text.split('\n'));
        let held = parse(lines.take_while(|line| line.starts_with(HOLD)))?;
        Ok(held.holders)
    }

    /// Writes what a step at `now` has changed since `before`.
    pub(super) fn save(
        &self,
        before: &Self,
        db: &Connection,
        key: &str,
        now: Now,
    ) -> Result<(), Fault> {
        let state = &self.state;
        if *state != before.state {
            write(db, key, state)?;
        }
        let is_new = |holder: &Holder| !before.state.holders.contains(holder);
        let is_granted_or_extended = state.holders.iter().any(is_new);
        if is_granted_or_extended || self.counter != before.counter {
            let fence = self.counter.0.map_or(0, Fence::get);
            let sql = "INSERT OR REPLACE INTO counter (id, fence, used_at_ms) VALUES (0, ?1, ?2)";
            db.prepare_cached(sql)?
                .execute([signed(fence), signed(now.millis())])?;
        }
        Ok(())
    }
}

/// Writes a lock, or forgets it when it is free without waiters.
fn write(db: &Connection, key: &str, state: &LockState) -> rusqlite::Result<()> {
    if state.is_empty() {
        let mut delete = db.prepare_cached("DELETE FROM locks WHERE key = ?1")?;
        return delete.execute([key]).map(drop);
    }
    // A change leaves the index of the keys as it is.
    let sql = "INSERT INTO locks (key, until_ms, state) VALUES (?1, ?2, ?3)
        ON CONFLICT (key) DO UPDATE SET until_ms = excluded.until_ms, state = excluded.state";
    let row = (key, signed(end(state)), to_text(state));
    db.prepare_cached(sql)?.execute(row).map(drop)
}

/// The last millisecond at which a holder or a waiter counts.
fn end(state: &LockState) -> u64 {
    let holders = state.holders.iter().map(|holder| holder.expires_at_ms);
    let waiters = state.queue.iter().map(|waiter| waiter.seen_until_ms);
    holders.chain(waiters).max().unwrap_or_default()
}

fn to_text(state: &LockState) -> String {
    let mut lines = Vec::new();
    for holder in &state.holders {
        let (token, mode) = (holder.owner.token(), holder.mode);
        let (first, block) = (holder.fences.first, holder.fences.block.get());
        let (until_ms, kept) = (holder.expires_at_ms, u8::from(holder.kept));
        let slot = holder.slot.map(|slot| format!(" {slot}"));
        let slot = slot.unwrap_or_default();
        lines.push(format!(
            "{HOLD} {token} {mode} {first} {block} {until_ms} {kept}{slot}"
        ));
    }
    for waiter in &state.queue {
        let (token, mode) = (waiter.owner.token(), waiter.mode);
        let (ttl, block) = (waiter.ttl.millis(), waiter.block.get());
        let (until_ms, listening) = (waiter.seen_until_ms, u8::from(waiter.listening));
        lines.push(format!(
            "{WAIT} {token} {mode} {ttl} {block} {until_ms} {listening}"
        ));
    }
    lines.join("\n")
}

/// Reads the text of a lock. Another process may have written anything, also nothing, which is no free lock.
fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<LockState, Fault> {
    let mut state = LockState::default();
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let [
            kind,
            token,
            mode,
            amount,
            block,
            until_ms,
            flag,
            ref slot @ ..,
        ] = words[..]
        else {
            return Err(not_ours("a lock", line));
        };
        let owner = Owner::parse(token).ok_or_else(|| not_ours("an owner", token))?;
        let (mode, block) = (parse_mode(mode)?, Block::nearest(number(block)?));
        let (amount, until_ms, flag) = (number(amount)?, number(until_ms)?, number(flag)? != 0);
        let slot = match (kind, mode, slot) {
            (HOLD, Mode::Slot(slots), [slot]) => Some(slot_of(slots, slot)?),
            (WAIT, _, []) | (_, Mode::Exclusive | Mode::Shared, []) => None,
            _ => return Err(not_ours("a lock", line)),
        };
        match kind {
            HOLD => state.holders.push(Holder {
                owner,
                mode,
                fences: Fences {
                    first: Fence::new(amount),
                    block,
                },
                slot,
                vote: None,
                expires_at_ms: until_ms,
                kept: flag,
            }),
            WAIT => state.queue.push_back(Waiter {
                owner,
                mode,
                ttl: Ttl::new(Duration::from_millis(amount))
                    .map_err(|refused| Fault::Content(refused.to_string()))?,
                block,
                listening: flag,
                seen_until_ms: until_ms,
            }),
            _ => return Err(not_ours("a lock", line)),
        }
    }
    Ok(state)
}

fn parse_mode(text: &str) -> Result<Mode, Fault> {
    let newer =
        |_| format!("a lock in it has the mode {text:?}; was it written by a newer version?");
    text.parse().map_err(newer).map_err(Fault::Content)
}

/// The number of a slot of so many.
fn slot_of(slots: Slots, text: &str) -> Result<u16, Fault> {
    let slot = text
        .parse()
        .ok()
        .filter(|slot| (1..=slots.get()).contains(slot));
    slot.ok_or_else(|| not_ours("a slot", text))
}

fn number(text: &str) -> Result<u64, Fault> {
    let number = text.parse::<i64>();
    natural(number.map_err(|_| not_ours("a number", text))?)
}

pub(super) fn not_ours(what: &str, text: &str) -> Fault {
    Fault::Content(format!(
        "{what} in it was not written by leasehold: {text:?}"
    ))
}

/// Reads a number of the file. SQLite has signed numbers only, and the text of a lock keeps to their range.
pub(super) fn natural(value: i64) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| Fault::Content(format!("a number in it is negative: {value}")))
}

/// Converts milliseconds and fences, which are far below the limit.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ClientId;

    use super::*;

    fn owner(client: u64, note: &str) -> Owner {
        Owner::new(client.into(), ClientId::new(client), "a@b c", 7, note).unwrap()
    }

    fn waiter(client: u64, note: &str, listening: bool) -> Waiter {
        Waiter {
            owner: owner(client, note),
            mode: Mode::Exclusive,
            ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
            block: Block::nearest(client),
            listening,
            seen_until_ms: 20_000 + client,
        }
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let mut state = LockState {
            queue: [waiter(5, "", true), waiter(2, "two\nlines", false)].into(),
            ..LockState::default()
        };
        let slots = Mode::Slot(Slots::new(3).unwrap());
        for (kept, mode, slot) in [
            (false, Mode::Exclusive, None),
            (true, Mode::Shared, None),
            (false, slots, Some(3)),
        ] {
            assert_eq!(parse(to_text(&state).split('\n')).unwrap(), state);
            let fences = Fences {
                first: Fence::MAX,
                block: Block::MOST,
            };
            state.holders = vec![Holder {
                owner: owner(u64::MAX, "hold wait"),
                mode,
                fences,
                slot,
                vote: None,
                expires_at_ms: 31_000,
                kept,
            }];
        }
        let text = to_text(&state);
        assert_eq!(parse(text.split('\n')).unwrap(), state);
        assert!(
            text.starts_with("hold lh1.") && text.ends_with(" 20002 0"),
            "{text}"
        );
        assert_eq!((text.lines().count(), end(&state)), (3, 31_000));
    }

    #[test]
    fn content_of_another_program_is_named() {
        let newer = "was it written by a newer version?";
        let not_ours = "was not written by leasehold";
        for (text, expected) in [
            ("", not_ours),
            ("hold", not_ours),
            ("\nhold TOKEN exclusive 7 1 9 0", not_ours),
            ("read TOKEN exclusive 7 1 9 0", not_ours),
            ("hold TOKEN exclusive 7 1 9 0 more", not_ours),
            ("hold lh1.x exclusive 7 1 9 0", "an owner in it was not"),
            ("hold TOKEN upgraded 7 1 9 0", newer),
            ("hold TOKEN slot/0 7 1 9 0 1", newer),
            ("hold TOKEN slot/2 7 1 9 0", not_ours),
            ("hold TOKEN slot/2 7 1 9 0 3", "a slot in it was not"),
            ("hold TOKEN shared 7 1 9 0 1", not_ours),
            ("wait TOKEN slot/2 7 1 9 0 1", not_ours),
            ("hold TOKEN exclusive -7 1 9 0", "is negative: -7"),
            ("hold TOKEN exclusive 7 x 9 0", "a number in it was not"),
            ("hold TOKEN exclusive 7 1 9223372036854775808 0", not_ours),
            ("hold TOKEN exclusive 7 1 9 no", not_ours),
            ("wait TOKEN exclusive 9 1 9 0", "from 10 ms to 24 h"),
        ] {
            let token = owner(9, "");
            match parse(text.replace("TOKEN", token.token()).split('\n')) {
                Err(Fault::Content(said)) => assert!(said.contains(expected), "{text}: {said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
