//! What SQLite says, in the library's words. Must never call a write harmless whose commit was not confirmed.

use std::fs::File;
use std::io;

use rusqlite::ErrorCode;

use crate::error::{StoreError, StoreErrorKind};

/// Why a piece of work on the file failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite refused it.
    Sqlite(rusqlite::Error),
    /// SQLite read it, but it is not what this version writes.
    Content(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    /// The same for the caller. `store` names the file.
    pub(super) fn of(self, store: &str) -> StoreError {
        match self {
            Self::Content(detail) => StoreError::new(store, StoreErrorKind::Protocol, detail),
            Self::Sqlite(error) => {
                let code = error.sqlite_error_code();
                if let (Some(ErrorCode::CannotOpen), Some(lack)) = (code, lack_of_files()) {
                    return StoreError::new(store, StoreErrorKind::Exhausted, lack);
                }
                let (kind, hint) = judge(code);
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

/// Whether this process can open no more files, which SQLite does not tell apart from a file that cannot be opened. It had
/// several open when it failed, and may have closed some since.
fn lack_of_files() -> Option<io::Error> {
    let opened: io::Result<Vec<File>> = (0..8).map(|_| File::open("/")).collect();
    opened.err().filter(|error| {
        StoreErrorKind::of_io(error, StoreErrorKind::Denied) == StoreErrorKind::Exhausted
    })
}

/// The kind of failure, and what the one who reads it may want to know beyond SQLite's own words.
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
        Some(ErrorCode::DiskFull) => (StoreErrorKind::Full, ""),
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

/// A failure of the file system.
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
