//! Errors of the library as exceptions of Python, which `leasehold_redis/_errors.py` defines.

use std::fmt;
use std::time::Duration;

use leasehold::{Error, StoreErrorKind};
use leasehold_cache::LoadFailed;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception of this class. `held`: whether the program held the lock when it asked.
fn exception(py: Python<'_>, class: &str, text: String, held: bool) -> PyErr {
    let made = || {
        let options = PyDict::new(py);
        options.set_item("held", held)?;
        let class = py.import("leasehold_redis._errors")?.getattr(class)?;
        class.call((text,), Some(&options))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// An error of a lock or of a cached value.
pub(crate) enum Failure {
    Lock(Error),
    /// The value was not loaded within the limit.
    Busy(String),
    Load(LoadFailed),
    /// The value cannot be stored or read.
    Value(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<leasehold_cache::Error> for Failure {
    fn from(error: leasehold_cache::Error) -> Self {
        match error {
            leasehold_cache::Error::Store(error) => Self::Lock(error.into()),
            leasehold_cache::Error::Invalid(error) => Self::Lock(error.into()),
            leasehold_cache::Error::Load(failed) => Self::Load(failed),
            busy @ leasehold_cache::Error::Busy { .. } => Self::Busy(busy.to_string()),
            error => Self::Value(error.to_string()),
        }
    }
}

impl Failure {
    pub(crate) fn into_exception(self, py: Python<'_>, held: bool) -> PyErr {
        match self {
            Self::Lock(error) => of(py, error, held),
            Self::Busy(text) => exception(py, "WaitTimeout", text, held),
            Self::Value(text) => exception(py, "Refused", text, held),
            Self::Load(failed) => {
                let error = exception(py, "LoadFailed", failed.to_string(), held);
                let after = failed.retry_after.as_secs_f64();
                if let Err(error) = error.value(py).setattr("retry_after", after) {
                    return error;
                }
                let cause = failed.cause.as_deref();
                if let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<LoaderError>()) {
                    error.set_cause(py, Some(cause.error.clone_ref(py)));
                }
                error
            }
        }
    }
}

/// What a loader has raised. Its text is made while the loader has the GIL: the thread that reads it must not wait for that.
#[derive(Debug)]
pub(crate) struct LoaderError {
    text: String,
    error: PyErr,
}

impl LoaderError {
    pub(crate) fn new(error: PyErr) -> Self {
        Self {
            text: error.to_string(),
            error,
        }
    }

    /// Nothing can load the value any more.
    pub(crate) fn gone() -> Self {
        let text = "the loader ended without a value";
        Self {
            text: text.to_owned(),
            error: PyRuntimeError::new_err(text),
        }
    }
}

impl fmt::Display for LoaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LoaderError {}

/// The exception for this error of the library.
pub(crate) fn of(py: Python<'_>, error: Error, held: bool) -> PyErr {
    let class = match &error {
        Error::Lost(_) => "LeaseLost",
        Error::Timeout(_) => "WaitTimeout",
        Error::Store(error) if error.kind.is_transient() || error.kind == StoreErrorKind::Full => {
            "StoreUnavailable"
        }
        _ => "Refused",
    };
    exception(py, class, error.to_string(), held || error.is_lost())
}

/// The exception of a client that another process has made.
pub(crate) fn forked(process: u32) -> PyErr {
    let text = format!(
        "this client belongs to process {process}, which was forked after it had connected: its locks stay with that process; connect a client in this one"
    );
    Python::attach(|py| exception(py, "ForkedClient", text, false))
}

/// The exception of a call that is used a second time, or of a lease after its release.
pub(crate) fn refused(text: &str, held: bool) -> PyErr {
    Python::attach(|py| exception(py, "Refused", text.to_owned(), held))
}

/// The exception of a call that another thread waits for, or that has its answer.
pub(crate) fn used() -> PyErr {
    refused(
        "this request has its answer, or another thread waits for it",
        false,
    )
}

/// A time as the library takes it.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is not a time: use seconds from 0")))
}
