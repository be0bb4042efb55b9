//! Reads cache entries from their rows and writes them back.
//!
//! The end of a load sends no message: waiters poll ([`POLL_UNSUBSCRIBED`](leasehold_core::cache::POLL_UNSUBSCRIBED)).

use std::collections::BTreeSet;

use leasehold_core::cache::{
    BackOff, Control, EntryState, Loader, Reply, Step, Token, Value, Version,
};
use leasehold_core::{LockName, Now};
use rusqlite::{Connection, Params};

use super::fault::Fault;
use super::lock::{natural, signed};

/// Added to files without it; versions without cache entries ignore it. Times are milliseconds of the boot clock.
/// `boot_ms` is the wall time of the boot.
pub(super) const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS entries (
        key TEXT PRIMARY KEY, until_ms INTEGER NOT NULL, boot_ms INTEGER NOT NULL, value BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS controls (
        key TEXT PRIMARY KEY, last INTEGER NOT NULL, epoch INTEGER NOT NULL, token TEXT, version INTEGER, until_ms INTEGER,
        back_off_until_ms INTEGER, error TEXT, failures INTEGER NOT NULL, forget_at_ms INTEGER NOT NULL,
        boot_ms INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS entries_by_end ON entries (until_ms);
    CREATE INDEX IF NOT EXISTS entries_by_boot ON entries (boot_ms);
    CREATE INDEX IF NOT EXISTS controls_by_end ON controls (forget_at_ms);
    CREATE INDEX IF NOT EXISTS controls_by_boot ON controls (boot_ms);
";

/// How far the `boot_ms` of two rows of one boot may differ, since wall time may be adjusted. If a row is attributed to
/// another boot by mistake, it is lost. That costs a load, but never makes an old value look fresh.
const SAME_BOOT_MS: i64 = 5_000;

/// Applies one step of the rules to the rows of `key`, inside a transaction. No listener is told.
pub(super) fn step(db: &Connection, now: Now, key: &str, step: &Step) -> Result<Reply, Fault> {
    forget_earlier(db, now, key)?;
    let before = EntryState {
        value: load_value(db, now, key)?,
        control: load_control(db, key)?,
        foreign: None,
    };
    let (mut state, mut step) = (before.clone(), step.clone());
    if let Step::Begin(begin) = &mut step {
        begin.listener = None;
    }
    let reply = state.apply(now, &step).reply;
    save(db, now, key, &before, &state)?;
    Ok(reply)
}

/// The values stored under `keys`. Does not wait for writers.
pub(super) fn look(
    db: &Connection,
    now: Now,
    keys: &[LockName],
) -> Result<Vec<Option<Value>>, Fault> {
    let value = |key: &LockName| Ok(load_value(db, now, key.key())?.map(|(value, _)| value));
    keys.iter().map(value).collect()
}

/// Deletes expired rows and rows of an earlier boot, up to `most` of each kind.
pub(super) fn sweep(db: &Connection, now: Now, most: u32) -> Result<(), Fault> {
    let (first, last) = boots(now);
    for (table, end) in [("entries", "until_ms"), ("controls", "forget_at_ms")] {
        let sql = format!(
            "SELECT key FROM {table} WHERE {end} < ?1 UNION SELECT key FROM {table} WHERE boot_ms < ?2
             UNION SELECT key FROM {table} WHERE boot_ms > ?3 LIMIT ?4"
        );
        let times = (signed(now.millis()), first, last, most);
        let keys: Vec<String> = db
            .prepare_cached(&sql)?
            .query_map(times, |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        if keys.is_empty() {
            continue;
        }
        // The condition is repeated, since another process may have written the row meanwhile.
        let sql = format!(
            "DELETE FROM {table} WHERE key = ?1 AND ({end} < ?2 OR boot_ms NOT BETWEEN ?3 AND ?4)"
        );
        for key in keys {
            execute(db, &sql, (key, times.0, first, last))?;
        }
    }
    Ok(())
}

/// Deletes rows of an earlier boot. If they were only ignored, an invalidation would miss them, and a change of wall
/// time could make them valid again.
fn forget_earlier(db: &Connection, now: Now, key: &str) -> Result<(), Fault> {
    let (first, last) = boots(now);
    for table in ["entries", "controls"] {
        let sql = format!("DELETE FROM {table} WHERE key = ?1 AND boot_ms NOT BETWEEN ?2 AND ?3");
        execute(db, &sql, (key, first, last))?;
    }
    Ok(())
}

/// The wall time of the boot.
fn boot_ms(now: Now) -> i64 {
    signed((now.wall_us / 1_000).saturating_sub(now.millis()))
}

/// The least and the greatest `boot_ms` of a row that was written since the last boot.
fn boots(now: Now) -> (i64, i64) {
    let boot = boot_ms(now);
    (boot - SAME_BOOT_MS, boot + SAME_BOOT_MS)
}

fn execute(db: &Connection, sql: &str, params: impl Params) -> Result<(), Fault> {
    db.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

fn load_value(db: &Connection, now: Now, key: &str) -> Result<Option<(Value, u64)>, Fault> {
    let sql = "SELECT value, until_ms FROM entries
        WHERE key = ?1 AND until_ms >= ?2 AND boot_ms BETWEEN ?3 AND ?4";
    let (first, last) = boots(now);
    let mut select = db.prepare_cached(sql)?;
    let mut rows = select.query((key, signed(now.millis()), first, last))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let text = row.get_ref(0)?.as_blob().map_err(content)?;
    let value = Value::read(text)
        .ok_or_else(|| Fault::Content(format!("the value under {key:?} is not a cache entry")))?;
    Ok(Some((value, natural(row.get(1)?)?)))
}

fn load_control(db: &Connection, key: &str) -> Result<Option<Control>, Fault> {
    let sql = "SELECT last, epoch, failures, forget_at_ms, token, version, until_ms, back_off_until_ms, error
        FROM controls WHERE key = ?1";
    let mut select = db.prepare_cached(sql)?;
    let mut rows = select.query([key])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let number = |at: usize| natural(row.get(at)?);
    let loader = match row.get::<_, Option<String>>(4)? {
        None => None,
        Some(token) => Some(Loader {
            token: Token(u128::from_str_radix(&token, 16).map_err(content)?),
            version: Version::new(number(5)?),
            until_ms: number(6)?,
        }),
    };
    let back_off = match row.get::<_, Option<String>>(8)? {
        None => None,
        Some(error) => Some(BackOff {
            until_ms: number(7)?,
            error,
        }),
    };
    Ok(Some(Control {
        last: Version::new(number(0)?),
        epoch: Version::new(number(1)?),
        loader,
        back_off,
        failures: u32::try_from(number(2)?).map_err(content)?,
        waiting: BTreeSet::new(),
        forget_at_ms: number(3)?,
    }))
}

fn content(error: impl std::fmt::Display) -> Fault {
    Fault::Content(format!(
        "a cache entry in it was not written by leasehold: {error}"
    ))
}

/// Writes the changes of a step.
fn save(
    db: &Connection,
    now: Now,
    key: &str,
    before: &EntryState,
    after: &EntryState,
) -> Result<(), Fault> {
    let boot = boot_ms(now);
    // The header and the end tell whether the value has changed.
    let mark = |state: &EntryState| {
        let value = state.value.as_ref();
        value.map(|(value, until_ms)| (value.header, *until_ms))
    };
    if mark(before) != mark(after) {
        match &after.value {
            Some((value, until_ms)) => {
                let sql = "INSERT OR REPLACE INTO entries (key, until_ms, boot_ms, value) VALUES (?1, ?2, ?3, ?4)";
                execute(db, sql, (key, signed(*until_ms), boot, value.text()))?;
            }
            None => execute(db, "DELETE FROM entries WHERE key = ?1", [key])?,
        }
    }
    if before.control != after.control {
        match &after.control {
            Some(control) => save_control(db, boot, key, control)?,
            None => execute(db, "DELETE FROM controls WHERE key = ?1", [key])?,
        }
    }
    Ok(())
}

fn save_control(db: &Connection, boot: i64, key: &str, control: &Control) -> Result<(), Fault> {
    let loader = control.loader.as_ref();
    let failed = control.back_off.as_ref();
    let row = (
        key,
        signed(control.last.get()),
        signed(control.epoch.get()),
        loader.map(|loader| format!("{:032x}", loader.token.0)),
        loader.map(|loader| signed(loader.version.get())),
        loader.map(|loader| signed(loader.until_ms)),
        failed.map(|failed| signed(failed.until_ms)),
        failed.map(|failed| failed.error.as_str()),
        control.failures,
        signed(control.forget_at_ms),
        boot,
    );
    let sql = "INSERT OR REPLACE INTO controls
        (key, last, epoch, token, version, until_ms, back_off_until_ms, error, failures, forget_at_ms, boot_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    execute(db, sql, row)
}
