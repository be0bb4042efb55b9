//! The pages of the file and of its log, so that a holder can renew its lease on a full disk.
//!
//! A step writes to the log, and a checkpoint later writes the log to the file. So the file gets the pages of a step as
//! soon as the step is answered; a checkpoint then only writes over pages. A step that finds no room for more pages is
//! refused. When the log cannot grow, it is written from its start again.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::fault::{Fault, lacks_space};

/// The size of a page. A step writes two or three, and more if many wait. With small pages, the log lasts longer
/// between two syncs, which stop all processes.
pub(super) const PAGE: u32 = 1024;

/// The size of the log, in pages, at which it is checkpointed into the database. A checkpoint syncs the disk and stops
/// all processes.
pub(super) const LOG_PAGES: u32 = 4000;

/// The size at which an opening process checkpoints the log. A process without concurrent ones reads the whole log
/// first. So each run of a short command would start later than the previous one, by up to 4 ms with 4000 pages
/// (measured).
pub(super) const LOG_PAGES_AT_OPENING: u32 = 500;

/// The pages of a file, as one connection knows them.
pub(super) struct Pages {
    /// The pages that the file was seen to have, without those that are only in the log.
    in_file: Cell<u32>,
    /// A step has added pages that the file does not have yet.
    has_grown: Cell<bool>,
}

impl Pages {
    /// The pages of the file at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let pages = fs::metadata(path).map_or(0, |file| file.len() / u64::from(PAGE));
        Self {
            in_file: Cell::new(u32::try_from(pages).unwrap_or(u32::MAX)),
            has_grown: Cell::new(false),
        }
    }

    /// Refuses a transaction that adds pages to a file on a full disk; it began with `begun_with` pages. There may be
    /// room for them in the log. But no checkpoint could write them to the file, and when the log is full, no holder
    /// could renew.
    pub(super) fn have_room(
        &self,
        db: &Connection,
        begun_with: u32,
        store: &str,
    ) -> Result<(), Fault> {
        let pages = count(db)?;
        if pages > begun_with && lacks_space(store) {
            return Err(Fault::NoSpace);
        }
        self.has_grown.set(pages > self.in_file.get());
        Ok(())
    }

    /// Gives the file the pages that a step has added. It may sync the disk, so the answer to the step comes first.
    pub(super) fn fill(&self, db: &Connection) {
        // SQLite would leave this to the next checkpoint, which may find the disk full.
        if self.has_grown.take()
            && let Ok(pages) = count(db)
            && pages > self.in_file.get()
            && checkpoint(db)
        {
            self.in_file.set(pages);
        }
    }
}

/// Writes the log to the file. Returns false if that failed, or if a reader or another checkpoint was in the way; the
/// next step then tries again.
fn checkpoint(db: &Connection) -> bool {
    let done = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (busy, all, written): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && all == written)
    });
    done == Ok(true)
}

/// Makes the next step write to the start of the log, over steps that the file has now. Returns false if that failed.
pub(super) fn rewind(db: &Connection) -> bool {
    let busy = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
        row.get::<_, i64>(0)
    });
    busy == Ok(0)
}

/// From now on, the writer of the log's page number `pages` checkpoints it.
pub(super) fn checkpoint_at(db: &Connection, pages: u32) -> rusqlite::Result<()> {
    db.pragma_update(None, "wal_autocheckpoint", pages)
}

/// The number of pages, with those that are only in the log, or in the transaction that is under way.
pub(super) fn count(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("PRAGMA page_count")?
        .query_row([], |row| row.get(0))
}
