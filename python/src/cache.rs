//! Loaders of cached values, which are functions of Python.

use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pyo3::prelude::*;
use tokio::sync::oneshot::{self, Sender};

use crate::call::{Messenger, locked};
use crate::errors::LoaderError;

type Loaded = Result<Vec<u8>, LoaderError>;

/// Where a loader puts its value, once.
#[pyclass(frozen)]
pub(crate) struct Reply(Mutex<Option<Sender<Loaded>>>);

impl Reply {
    /// Calls `load` with this reply.
    pub(crate) fn ask(self, py: Python<'_>, load: &Py<PyAny>) {
        let asked = Py::new(py, self).map(|reply| {
            // An error: its event loop was closed, or there can be no thread.
            if let Err(error) = load.call1(py, (reply.clone_ref(py),)) {
                reply.get().answer(Err(LoaderError::new(error)));
            }
        });
        if let Err(error) = asked {
            error.write_unraisable(py, None);
        }
    }

    fn answer(&self, answer: Loaded) {
        if let Some(reply) = locked(&self.0).take() {
            // An error: the client was closed.
            let _told = reply.send(answer);
        }
    }
}

#[pymethods]
impl Reply {
    /// The value is loaded.
    fn set(&self, value: &[u8]) {
        self.answer(Ok(value.to_vec()));
    }

    /// The loader has raised this.
    fn fail(&self, error: Bound<'_, PyAny>) {
        self.answer(Err(LoaderError::new(PyErr::from_value(error))));
    }
}

/// A loader that asks `load` by the messenger: the thread of the client does not wait for the GIL.
pub(crate) fn loader(
    messenger: &Messenger,
    load: Py<PyAny>,
) -> impl FnOnce() -> BoxFuture<'static, Loaded> + Send + 'static {
    let ask = messenger.on_load();
    move || {
        let (reply, answer) = oneshot::channel();
        ask(load, Reply(Mutex::new(Some(reply))));
        async move { answer.await.unwrap_or_else(|_| Err(LoaderError::gone())) }.boxed()
    }
}
