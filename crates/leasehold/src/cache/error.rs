//! Errors of the cache. No error holds a value.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;

use crate::error::StoreError;
use crate::guard::Refusal;

/// Why there is no value.
///
/// | kind | was anything loaded? | may I retry? |
/// |---|---|---|
/// | [`Error::Busy`] | another caller still loads | yes |
/// | [`Error::Load`] | a load failed, in this or another process | after [`LoadFailed::retry_after`]; until then no caller loads |
/// | [`Error::Store`] | no verdict | yes |
/// | [`Error::Value`] | yes, but the value cannot be encoded or decoded | not with the same types |
/// | [`Error::Invalid`] | no | not with the same input |
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No caller loaded the value within `wait_at_most`.
    #[error("\"{key}\" is still being loaded by another after {waited:.1?}")]
    #[non_exhaustive]
    Busy {
        /// The entry.
        key: String,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The load failed and there is no stale value that may serve.
    #[error(transparent)]
    Load(#[from] LoadFailed),
    /// The store gave no verdict.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored value cannot be decoded as the requested type, the loaded value cannot be encoded, or the key holds something that is not
    /// a cache entry.
    #[error("the value of \"{key}\" {why}")]
    #[non_exhaustive]
    Value {
        /// The entry.
        key: String,
        /// The reason.
        why: String,
    },
    /// The input was refused before any I/O.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A load that failed.
#[derive(Clone)]
#[non_exhaustive]
pub struct LoadFailed {
    /// The entry.
    pub key: String,
    /// The text of the loader's error. Other processes get its first 256 bytes.
    pub text: String,
    /// How long no caller in the fleet retries.
    pub retry_after: Duration,
    /// The loader's error, if it happened in this process.
    pub cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl fmt::Display for LoadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            text,
            retry_after,
            ..
        } = self;
        write!(
            f,
            "loading \"{key}\" failed: {text}; nobody tries again for {retry_after:.1?}"
        )
    }
}

impl fmt::Debug for LoadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for LoadFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let cause = self.cause.as_ref()?;
        Some(&**cause)
    }
}

impl Error {
    pub(super) fn of(key: &str, refusal: Refusal) -> Self {
        let key = key.to_owned();
        let value = |why: &str| Self::Value {
            key: key.clone(),
            why: why.to_owned(),
        };
        match refusal {
            Refusal::Store(error) => error.into(),
            Refusal::Busy(waited) => Self::Busy { key, waited },
            Refusal::Failed(failure, retry_after) => Self::Load(LoadFailed {
                key,
                text: failure.text,
                retry_after,
                cause: failure.source,
            }),
            Refusal::Nothing => value("was not among what the loader brought"),
            Refusal::Foreign(kind) => value(&format!(
                "has no place: something else stands under this key, of type {kind}; it was left alone"
            )),
            Refusal::Unreadable => value("is written in another way by others of the fleet"),
            Refusal::Nested => value("is asked for by its own loader, which would wait for itself"),
            Refusal::GaveUp => value("was not loaded: the loader ended with its runtime"),
        }
    }
}
