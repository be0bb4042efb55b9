//! Reads one lock from its rows and writes it back.

use std::time::Duration;

use leasehold_core::{
    Block, Counter, Fence, Fences, Holder, LockState, Mode, Now, Owner, Ttl, Waiter,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::fault::Fault;

/// The rows of one name as they were read, to find the changed ones afterwards.
pub(super) struct Rows {
    holders: Vec<Holder>,
    waiters: Vec<WaiterRow>,
    counter: Counter,
}

#[derive(Clone, PartialEq)]
struct WaiterRow {
    waiter: Waiter,
    /// The position in the queue: numbers rise, with gaps.
    seq: i64,
}

impl Rows {
    /// Reads the rows of `key`.
    pub(super) fn load(db: &Connection, key: &str) -> Result<Self, Fault> {
        Ok(Self {
            holders: load_holders(db, key)?,
            waiters: load_waiters(db, key)?,
            counter: load_counter(db)?,
        })
    }

    /// The lock as core's `LockState`.
    pub(super) fn state(&self) -> LockState {
        LockState {
            holders: self.holders.clone(),
            foreign: None,
            queue: self.waiters.iter().map(|row| row.waiter.clone()).collect(),
        }
    }

    /// The counter that fences are drawn from.
    pub(super) const fn counter(&self) -> Counter {
        self.counter
    }

    /// Writes the changes of a step at `now`.
    pub(super) fn save(
        &self,
        db: &Connection,
        key: &str,
        (state, counter): (&LockState, Counter),
        now: Now,
    ) -> Result<(), Fault> {
        let stays = |old: &Holder| state.holders.iter().any(|new| new.owner == old.owner);
        for old in self.holders.iter().filter(|old| !stays(old)) {
            db.prepare_cached("DELETE FROM holders WHERE key = ?1 AND owner = ?2")?
                .execute((key, old.owner.token()))?;
        }
        let changed = |new: &&Holder| !self.holders.contains(new);
        let changed: Vec<_> = state.holders.iter().filter(changed).collect();
        for new in &changed {
            save_holder(db, key, new)?;
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
        if counter != self.counter || !changed.is_empty() {
            save_counter(db, counter, now)?;
        }
        Ok(())
    }

    /// The rows of the queue. Waiters that remain in order keep their number; all others get higher ones.
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
            block: block(row, 3)?,
            listening: row.get(4)?,
            seen_until_ms: unsigned(row, 5)?,
        };
        Ok(Self {
            waiter,
            seq: row.get(6)?,
        })
    }

    fn write(&self, db: &Connection, key: &str) -> Result<(), Fault> {
        let Waiter {
            owner,
            mode,
            ttl,
            block,
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
            signed(block.get()),
            *listening,
            seen_until_ms,
            client,
        );
        let sql = "INSERT OR REPLACE INTO waiters (key, seq, owner, mode, ttl_ms, fences, listening, seen_until_ms, client)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        db.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }
}

fn load_holders(db: &Connection, key: &str) -> Result<Vec<Holder>, Fault> {
    let sql = "SELECT owner, mode, fence, fences, expires_at_ms, kept FROM holders WHERE key = ?1";
    let mut select = db.prepare_cached(sql)?;
    let read = |row: &Row<'_>| {
        Ok(Holder {
            owner: owner(row, 0)?,
            mode: mode(row, 1)?,
            fences: Fences {
                first: Fence::new(unsigned(row, 2)?),
                block: block(row, 3)?,
            },
            expires_at_ms: unsigned(row, 4)?,
            kept: row.get(5)?,
        })
    };
    select.query_and_then([key], read)?.collect()
}

fn save_holder(db: &Connection, key: &str, holder: &Holder) -> Result<(), Fault> {
    let client = holder.owner.client().get().cast_signed();
    let (token, mode) = (holder.owner.token(), mode_text(holder.mode));
    let Fences { first, block } = holder.fences;
    let row = (
        key,
        token,
        mode,
        signed(first.get()),
        signed(block.get()),
        signed(holder.expires_at_ms),
        holder.kept,
        client,
    );
    let sql = "INSERT OR REPLACE INTO holders (key, owner, mode, fence, fences, expires_at_ms, kept, client)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    db.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn load_waiters(db: &Connection, key: &str) -> Result<Vec<WaiterRow>, Fault> {
    let sql = "SELECT owner, mode, ttl_ms, fences, listening, seen_until_ms, seq FROM waiters WHERE key = ?1 ORDER BY seq";
    db.prepare_cached(sql)?
        .query_and_then([key], WaiterRow::read)?
        .collect()
}

fn load_counter(db: &Connection) -> Result<Counter, Fault> {
    let mut select = db.prepare_cached("SELECT fence FROM counter")?;
    let last = select.query_row([], |row| row.get(0)).optional()?;
    let last = last.map(natural).transpose()?;
    Ok(Counter(last.map(Fence::new)))
}

fn save_counter(db: &Connection, counter: Counter, now: Now) -> Result<(), Fault> {
    let row = (
        counter.0.map_or(0, |last| signed(last.get())),
        signed(now.millis()),
    );
    let sql = "UPDATE counter SET fence = ?1, used_at_ms = ?2";
    if db.prepare_cached(sql)?.execute(row)? == 0 {
        let sql = "INSERT INTO counter (fence, used_at_ms) VALUES (?1, ?2)";
        db.prepare_cached(sql)?.execute(row)?;
    }
    Ok(())
}

fn owner(row: &Row<'_>, at: usize) -> Result<Owner, Fault> {
    let token: String = row.get(at)?;
    Owner::parse(&token).ok_or_else(|| {
        Fault::Content(format!(
            "an owner in it was not written by leasehold: {token:?}"
        ))
    })
}

/// The name of a mode in the file.
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

fn block(row: &Row<'_>, at: usize) -> Result<Block, Fault> {
    unsigned(row, at).map(Block::nearest)
}

fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, Fault> {
    natural(row.get(at)?)
}

pub(super) fn natural(value: i64) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| Fault::Content(format!("a number in it is negative: {value}")))
}

/// Converts milliseconds and fences, which are far below the limit.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
