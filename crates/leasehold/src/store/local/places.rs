//! The files that a connection is open on, and whether they are still in their places.
//!
//! SQLite keeps a log (`-wal`) and shared memory (`-shm`) beside the file. A process that opens the file finds them by
//! name. If other files have these names, that process and this connection do not see each other's steps.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::path::FileLocation;

/// Device and inode: identifies a file even after it was renamed. No other file gets them while it is open.
pub(super) type FileId = (u64, u64);

/// The files that a connection is open on.
pub(super) struct Places {
    given: PathBuf,
    path: PathBuf,
    main: FileId,
    log: Option<FileId>,
    /// Alive as long as a connection of this process uses this shared memory.
    memory: Arc<FileId>,
}

impl Places {
    /// The files at this place, which a connection has just opened. `main` and `memory` are known from before.
    pub(super) fn of(at: &FileLocation, main: FileId, memory: Option<Arc<FileId>>) -> Option<Self> {
        let memory = match memory {
            Some(memory) => memory,
            None => Arc::new(identity(&beside(&at.path, "-shm"))?),
        };
        let log = identity(&beside(&at.path, "-wal"));
        Some(Self {
            given: at.given.clone(),
            path: at.path.clone(),
            main,
            log,
            memory,
        })
    }

    /// The shared memory of the connection.
    pub(super) fn memory(&self) -> Weak<FileId> {
        Arc::downgrade(&self.memory)
    }

    /// True if a process that opens the file now opens the same files.
    pub(super) fn are_kept(&self) -> bool {
        identity(&self.given) == Some(self.main) && self.now() == (self.log, Some(*self.memory))
    }

    /// Prepares `db` to be closed after its files were removed or replaced.
    ///
    /// If no process can have opened other files since, a checkpoint saves the steps of a log that was removed. Otherwise
    /// the close must not write to the file: it would overwrite the steps of that process with older ones. `alone` is true
    /// if no process opens files here meanwhile.
    ///
    /// Returns the files that are left of a file that another one has replaced. They must be removed when `db` is closed:
    /// SQLite would apply the old log to the new file.
    pub(super) fn leave(&self, db: &Connection, alone: bool) -> Vec<PathBuf> {
        let (log, memory) = self.now();
        let other = |now: Option<FileId>, own: Option<FileId>| now.is_some() && now != own;
        let found = identity(&self.path);
        let is_unseen = alone
            && found == Some(self.main)
            && !other(log, self.log)
            && !other(memory, Some(*self.memory));
        if is_unseen {
            // If this fails, the steps in the log are lost, and every holder learns it.
            drop(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        }
        drop(db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
        let is_replaced = alone && other(found, Some(self.main));
        let own = [
            ("-wal", log.filter(|_| log == self.log)),
            ("-shm", memory.filter(|_| memory == Some(*self.memory))),
        ];
        let own = own
            .into_iter()
            .filter(|(_, own)| is_replaced && own.is_some());
        own.map(|(suffix, _)| beside(&self.path, suffix)).collect()
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The log and the shared memory that have their names now.
    fn now(&self) -> (Option<FileId>, Option<FileId>) {
        let at = |suffix| identity(&beside(&self.path, suffix));
        (at("-wal"), at("-shm"))
    }
}

/// The path of a file that SQLite keeps beside `path`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The file that `path` leads to now, if any.
pub(super) fn identity(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
