//! One lock as rows, and back. Must never decide anything: it writes down what the rules of core left behind.

use std::time::Duration;

use leasehold_core::{Fence, Holder, LastFence, LockState, Mode, Owner, Ttl, Waiter};
use rusqlite::{Connection, OptionalExtension, Row};

use super::fault::Fault;

/// The rows of one name as they were read, to tell afterwards which of them changed.
pub(super) struct Rows {
    holders: Vec<Holder>,
    waiters: Vec<WaiterRow>,
    fence: Option<LastFence>,
}

#[derive(Clone, PartialEq)]
struct WaiterRow {
    waiter: Waiter,
    /// Its place: waiters stand in rising order, with gaps.
    seq: i64,
}

impl Rows {
    /// Reads what is known of `key`.
    pub(super) fn load(db: &Connection, key: &str) -> Result<Self, Fault> {
        Ok(Self {
            holders: load_holders(db, key)?,
            waiters: load_waiters(db, key)?,
            fence: load_fence(db, key)?,
        })
    }

    /// The same for the rules.
    pub(super) fn state(&self) -> LockState {
        LockState {
            holders: self.holders.clone(),
            foreign: None,
            queue: self.waiters.iter().map(|row| row.waiter.clone()).collect(),
            fence: self.fence,
        }
    }

    /// Writes what a step changed, leaving `state`.
    pub(super) fn save(&self, db: &Connection, key: &str, state: &LockState) -> Result<(), Fault> {
        let stays = |old: &Holder| state.holders.iter().any(|new| new.owner == old.owner);
        for old in self.holders.iter().filter(|old| !stays(old)) {
            db.prepare_cached("DELETE FROM holders WHERE key = ?1 AND owner = ?2")?
                .execute((key, old.owner.token()))?;
        }
        for new in &state.holders {
            if !self.holders.contains(new) {
                save_holder(db, key, new)?;
            }
        }
        let waiters = self.number(state);
        for old in self
            .waiters
            .iter()
            .filter(|old| !waiters.iter().any(|new| new.seq == old.seq))
        {
            db.prepare_cached("DELETE FROM waiters WHERE key = ?1 AND seq = ?2")?
                .execute((key, old.seq))?;
        }
        for new in waiters.iter().filter(|new| !self.waiters.contains(new)) {
            new.write(db, key)?;
        }
        if state.fence != self.fence {
            save_fence(db, key, state.fence)?;
        }
        Ok(())
    }

    /// The rows of the queue: who stands in order keeps its place number, all others get higher ones.
    fn number(&self, state: &LockState) -> Vec<WaiterRow> {
        let mut free = self.waiters.last().map_or(0, |row| row.seq) + 1;
        let mut last = i64::MIN;
        let place = |waiter: &Waiter| {
            let before = self
                .waiters
                .iter()
                .find(|row| row.waiter.owner == waiter.owner)
                .map(|row| row.seq);
            let seq = before.filter(|seq| *seq > last).unwrap_or_else(|| {
                free += 1;
                free - 1
            });
            last = seq;
            WaiterRow {
                waiter: waiter.clone(),
                seq,
            }
        };
        state.queue.iter().map(place).collect()
    }
}

impl WaiterRow {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let ttl = unsigned(row, 2)?;
        let waiter = Waiter {
            owner: owner(row, 0)?,
            mode: mode(row, 1)?,
            ttl: Ttl::new(Duration::from_millis(ttl))
                .map_err(|refused| Fault::Content(refused.to_string()))?,
            listening: row.get(3)?,
            seen_until_ms: unsigned(row, 4)?,
        };
        Ok(Self {
            waiter,
            seq: row.get(5)?,
        })
    }

    fn write(&self, db: &Connection, key: &str) -> Result<(), Fault> {
        let Waiter {
            owner,
            mode,
            ttl,
            listening,
            seen_until_ms,
        } = &self.waiter;
        let client = owner.client().get().cast_signed();
        let (mode, ttl, seen_until_ms) = (
            mode_text(*mode),
            signed(ttl.millis()),
            signed(*seen_until_ms),
        );
        let row = (
            key,
            self.seq,
            owner.token(),
            mode,
            ttl,
            *listening,
            seen_until_ms,
            client,
        );
        let sql = "INSERT OR REPLACE INTO waiters (key, seq, owner, mode, ttl_ms, listening, seen_until_ms, client)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        db.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }
}

fn load_holders(db: &Connection, key: &str) -> Result<Vec<Holder>, Fault> {
    let sql = "SELECT owner, mode, expires_at_ms, kept FROM holders WHERE key = ?1";
    let mut select = db.prepare_cached(sql)?;
    let read = |row: &Row<'_>| {
        Ok(Holder {
            owner: owner(row, 0)?,
            mode: mode(row, 1)?,
            expires_at_ms: unsigned(row, 2)?,
            kept: row.get(3)?,
        })
    };
    select.query_and_then([key], read)?.collect()
}

fn save_holder(db: &Connection, key: &str, holder: &Holder) -> Result<(), Fault> {
    let client = holder.owner.client().get().cast_signed();
    let (token, mode) = (holder.owner.token(), mode_text(holder.mode));
    let row = (
        key,
        token,
        mode,
        signed(holder.expires_at_ms),
        holder.kept,
        client,
    );
    let sql = "INSERT OR REPLACE INTO holders (key, owner, mode, expires_at_ms, kept, client) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    db.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn load_waiters(db: &Connection, key: &str) -> Result<Vec<WaiterRow>, Fault> {
    let sql = "SELECT owner, mode, ttl_ms, listening, seen_until_ms, seq FROM waiters WHERE key = ?1 ORDER BY seq";
    db.prepare_cached(sql)?
        .query_and_then([key], WaiterRow::read)?
        .collect()
}

fn load_fence(db: &Connection, key: &str) -> Result<Option<LastFence>, Fault> {
    let sql = "SELECT fence, coalesce(granted, fence), forget_at_ms FROM fences WHERE key = ?1";
    let mut select = db.prepare_cached(sql)?;
    let row = select
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    row.map(|(fence, granted, at)| {
        Ok(LastFence {
            fence: Fence::new(natural(fence)?),
            granted: Fence::new(natural(granted)?),
            forget_at_ms: natural(at)?,
        })
    })
    .transpose()
}

fn save_fence(db: &Connection, key: &str, fence: Option<LastFence>) -> Result<(), Fault> {
    match fence {
        Some(LastFence {
            fence,
            granted,
            forget_at_ms,
        }) => {
            let granted = (granted != fence).then(|| signed(granted.get()));
            let row = (key, signed(fence.get()), signed(forget_at_ms), granted);
            let sql = "INSERT OR REPLACE INTO fences (key, fence, forget_at_ms, granted) VALUES (?1, ?2, ?3, ?4)";
            db.prepare_cached(sql)?.execute(row)?;
        }
        None => {
            db.prepare_cached("DELETE FROM fences WHERE key = ?1")?
                .execute([key])?;
        }
    }
    Ok(())
}

fn owner(row: &Row<'_>, at: usize) -> Result<Owner, Fault> {
    let token: String = row.get(at)?;
    Owner::parse(&token)
        .ok_or_else(|| Fault::Content(format!("an owner in it is not one of ours: {token:?}")))
}

/// How a mode is written down.
fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
    }
}

fn mode(row: &Row<'_>, at: usize) -> Result<Mode, Fault> {
    let text: String = row.get(at)?;
    match text.as_str() {
        "exclusive" => Ok(Mode::Exclusive),
        _ => Err(Fault::Content(format!(
            "a lock in it has the mode {text:?}; was it written by a newer version?"
        ))),
    }
}

fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, Fault> {
    natural(row.get(at)?)
}

pub(super) fn natural(value: i64) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| Fault::Content(format!("a number in it is negative: {value}")))
}

/// Numbers here are milliseconds and fences, which stay far below the limit.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
