//! Reads firings from their rows and writes them back.

use leasehold_core::once::{Answer, Firing, Record, Run, Step, apply};
use leasehold_core::{Fence, LockState, Now, Owner};
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::lock::{StoredLock, natural, not_ours, signed};

/// Added to files without it; versions without firings ignore it. Times are those of the wall clock: a firing outlives a restart of the
/// host, which ends all locks.
pub(super) const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS firings (
        key TEXT NOT NULL, firing TEXT NOT NULL, token TEXT NOT NULL, fence INTEGER NOT NULL, number INTEGER NOT NULL,
        at_us INTEGER NOT NULL, is_finished INTEGER NOT NULL, forget_at_ms INTEGER NOT NULL, PRIMARY KEY (key, firing)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS firings_by_end ON firings (forget_at_ms);
";

/// Applies one step of the rules to a firing of the lock `key`, inside a transaction.
pub(super) fn step(
    db: &Connection,
    now: Now,
    key: &str,
    firing: &Firing,
    step: &Step,
) -> Result<Answer, Fault> {
    let before = load(db, key, firing)?;
    let lock = LockState {
        holders: StoredLock::holders(db, key)?,
        ..LockState::default()
    };
    let mut kept = before.clone();
    let answer = apply(&mut kept, &lock, now, step);
    // A look writes nothing, also if the record has expired.
    if let Some(record) = kept.filter(|record| before.as_ref() != Some(record)) {
        save(db, key, firing, &record)?;
    }
    Ok(answer)
}

/// Deletes expired rows.
pub(super) fn sweep(db: &Connection, now: Now) -> Result<(), Fault> {
    let now_ms = signed(now.wall_us / 1_000);
    let ended = "SELECT EXISTS (SELECT 1 FROM firings WHERE forget_at_ms < ?1)";
    // Most often there are none, and a look waits for no writer.
    if db
        .prepare_cached(ended)?
        .query_row([now_ms], |row| row.get(0))?
    {
        let sql = "DELETE FROM firings WHERE forget_at_ms < ?1";
        db.prepare_cached(sql)?.execute([now_ms])?;
    }
    Ok(())
}

fn load(db: &Connection, key: &str, firing: &Firing) -> Result<Option<Record>, Fault> {
    type Row = (String, i64, u32, i64, bool, i64);
    let sql = "SELECT token, fence, number, at_us, is_finished, forget_at_ms FROM firings
        WHERE key = ?1 AND firing = ?2";
    let row: Option<Row> = db
        .prepare_cached(sql)?
        .query_row((key, firing.as_str()), |row| row.try_into())
        .optional()?;
    let Some((token, fence, number, at_us, is_finished, forget_at_ms)) = row else {
        return Ok(None);
    };
    let owner = Owner::parse(&token).ok_or_else(|| not_ours("the owner of a firing", &token))?;
    let run = Run {
        owner,
        fence: Fence::new(natural(fence)?),
        number,
        at_us: natural(at_us)?,
    };
    Ok(Some(Record {
        run,
        is_finished,
        forget_at_ms: natural(forget_at_ms)?,
    }))
}

fn save(db: &Connection, key: &str, firing: &Firing, record: &Record) -> Result<(), Fault> {
    let run = &record.run;
    let sql = "INSERT OR REPLACE INTO firings (key, firing, token, fence, number, at_us, is_finished, forget_at_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let row = (
        key,
        firing.as_str(),
        run.owner.token(),
        signed(run.fence.get()),
        run.number,
        signed(run.at_us),
        record.is_finished,
        signed(record.forget_at_ms),
    );
    db.prepare_cached(sql)?.execute(row)?;
    Ok(())
}
