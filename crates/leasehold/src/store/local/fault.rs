//! Maps the errors of SQLite to those of this library. A write whose commit was not confirmed has an unknown outcome.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use rusqlite::ErrorCode;

use crate::error::{StoreError, StoreErrorKind};

/// Why a job on the file failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// Content that this version does not write.
    Content(String),
    /// The step would need more pages than the file has, and there is no space for them.
    NoSpace,
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    /// The error for the caller. `store` names the file.
    pub(super) fn of(self, store: &str) -> StoreError {
        match self {
            Self::Content(detail) => StoreError::new(store, StoreErrorKind::Protocol, detail),
            Self::NoSpace => no_space(store),
            Self::Sqlite(error) => {
                let code = error.sqlite_error_code();
                if let (Some(ErrorCode::CannotOpen), Some(lack)) = (code, lack_of_files()) {
                    return StoreError::new(store, StoreErrorKind::Exhausted, lack);
                }
                // SQLite reports a file beside it that cannot be made like one that cannot be opened.
                let may_be_full = is_unwritten(&error) || code == Some(ErrorCode::CannotOpen);
                if code == Some(ErrorCode::DiskFull) || may_be_full && lacks_space(store) {
                    return no_space(store);
                }
                let (kind, mut hint) = judge(code);
                if is_unwritten(&error) {
                    hint = "the file cannot be written";
                }
                let detail = if hint.is_empty() {
                    error.to_string()
                } else {
                    format!("{error} ({hint})")
                };
                StoreError::new(store, kind, detail)
            }
        }
    }
}

fn no_space(store: &str) -> StoreError {
    let detail = "no space left on device; the file cannot be written";
    StoreError::new(store, StoreErrorKind::Full, detail)
}

/// True if SQLite could not write a file, and did not learn why.
fn is_unwritten(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(
        code,
        Some(
            ffi::SQLITE_IOERR_WRITE
                | ffi::SQLITE_IOERR_FSYNC
                | ffi::SQLITE_IOERR_TRUNCATE
                | ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
        )
    )
}

/// True if the file system of the store has less space than the shared memory of SQLite needs, or no file left.
#[allow(
    clippy::useless_conversion,
    reason = "these numbers have 32 bits on some systems"
)]
pub(super) fn lacks_space(store: &str) -> bool {
    const NEEDED: u64 = 64 * 1024;
    let path = Path::new(store.strip_prefix("local:").unwrap_or(store));
    let found = path.parent().map(statvfs);
    let Some(Ok(space)) = found else {
        return false;
    };
    let left = u64::from(space.blocks_available()) * u64::from(space.fragment_size());
    // Some file systems do not count their files.
    let has_no_file = space.files() > 0 && space.files_available() == 0;
    left < NEEDED || has_no_file
}

/// The error of the system if this process cannot open more files. SQLite reports it like a file that cannot be opened.
/// When it failed, it had several files open and may have closed some since.
fn lack_of_files() -> Option<io::Error> {
    let opened: io::Result<Vec<File>> = (0..8).map(|_| File::open("/")).collect();
    opened.err().filter(|error| {
        StoreErrorKind::of_io(error, StoreErrorKind::Denied) == StoreErrorKind::Exhausted
    })
}

/// True if the error leaves the file readable.
pub(super) fn takes_no_writes(why: &StoreError) -> bool {
    matches!(
        why.kind,
        StoreErrorKind::Denied | StoreErrorKind::Full | StoreErrorKind::Unavailable
    )
}

/// The kind of error, and a hint beyond SQLite's own text.
fn judge(code: Option<ErrorCode>) -> (StoreErrorKind, &'static str) {
    match code {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => (
            StoreErrorKind::TimedOut,
            "other processes kept the file locked",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => (
            StoreErrorKind::Denied,
            "the file, its directory and its -wal and -shm files must be writable",
        ),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (StoreErrorKind::Denied, "")
        }
        Some(ErrorCode::SystemIoFailure) => (StoreErrorKind::Unavailable, ""),
        Some(ErrorCode::OutOfMemory) => (StoreErrorKind::Exhausted, ""),
        Some(ErrorCode::NotADatabase) => (
            StoreErrorKind::Protocol,
            "give a path that does not exist yet",
        ),
        _ => (StoreErrorKind::Protocol, ""),
    }
}

/// An error of the file system.
pub(super) fn of_io(store: &str, what: &str, error: &io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreErrorKind::Denied
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreErrorKind::Full,
        _ => StoreErrorKind::of_io(error, StoreErrorKind::Unreachable),
    };
    StoreError::new(store, kind, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn full_disk_is_told_apart_from_a_file_without_writes() {
        let dir = tempfile::tempdir().unwrap();
        let store = format!("local:{}/locks.db", dir.path().display());
        let told = |code| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            Fault::from(error).of(&store)
        };
        let full = told(ffi::SQLITE_FULL);
        assert_eq!(full.kind, StoreErrorKind::Full);
        assert!(
            full.to_string().contains("no space left on device"),
            "{full}"
        );
        let unwritten = told(ffi::SQLITE_IOERR_WRITE);
        assert_eq!(unwritten.kind, StoreErrorKind::Unavailable);
        assert!(
            unwritten.to_string().contains("cannot be written"),
            "{unwritten}"
        );
        assert!(!told(ffi::SQLITE_IOERR_READ).to_string().contains("written"));
    }
}
