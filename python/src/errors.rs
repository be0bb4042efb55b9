//! Errors of the library as exceptions of Python, which `leasehold_redis/_errors.py` defines.

use std::time::Duration;

use leasehold::{Error, StoreErrorKind};
use pyo3::exceptions::PyValueError;
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
