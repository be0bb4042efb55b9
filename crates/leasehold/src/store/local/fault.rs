//! Maps the errors of SQLite to those of this library. A write whose commit was not confirmed has an unknown outcome.

use std::fs::File;
use std::io;

use rusqlite::ErrorCode;

use crate::error::{StoreError, StoreErrorKind};

/// Why a job on the file failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// Content that this version does not write.
    Content(String),
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

/// The error of the system if this process cannot open more files. SQLite reports it like a file that cannot be opened.
/// When it failed, it had several files open and may have closed some since.
fn lack_of_files() -> Option<io::Error> {
    let opened: io::Result<Vec<File>> = (0..8).map(|_| File::open("/")).collect();
    opened.err().filter(|error| {
        StoreErrorKind::of_io(error, StoreErrorKind::Denied) == StoreErrorKind::Exhausted
    })
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
