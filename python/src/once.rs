//! Work that is done once among all hosts.

use std::time::{Duration, UNIX_EPOCH};

use leasehold::{PastRun, Turn};
use pyo3::prelude::*;

use crate::call::{Answer, Call, Messenger, Own};
use crate::{Held, Lease, errors, take};

/// A firing of the work under a mutex.
#[pyclass(frozen)]
pub(crate) struct Once {
    parts: Own<(leasehold::Mutex, leasehold::Once)>,
    messenger: Messenger,
}

impl Once {
    pub(crate) fn new(
        mutex: leasehold::Mutex,
        once: leasehold::Once,
        messenger: Messenger,
    ) -> Self {
        Self {
            parts: Own::new((mutex, once)),
            messenger,
        }
    }
}

#[pymethods]
impl Once {
    /// A call that takes the lock and begins a run. Its answer is the lease, or the run after which there is none to begin; None if the lock
    /// is only tried (`limit` 0) and busy.
    #[pyo3(signature = (limit))]
    fn enter(&self, limit: Option<f64>) -> PyResult<Call> {
        let (mutex, once) = self.parts.get()?.clone();
        let limit = limit.map(errors::seconds).transpose()?;
        let messenger = self.messenger.clone();
        Ok(Call::new(&self.messenger, false, async move {
            match once.past().await {
                Ok(Some(past)) if past.is_done => return Ok(Answer::Past(past)),
                // Who waits for the lock also waits for the store.
                Err(error) if !error.is_unavailable() || limit == Some(Duration::ZERO) => {
                    return Err(error.into());
                }
                Ok(_) | Err(_) => {}
            }
            let Some(lease) = take(&mutex, limit).await? else {
                return Ok(Answer::Nothing);
            };
            Ok(match once.begin(&lease).await? {
                Turn::Mine(_) => Answer::Lease(Lease::of_mutex(lease, messenger)),
                Turn::Done(past) | Turn::Spent(past) => Answer::Past(past),
            })
        }))
    }

    /// A call that marks the firing as done, in a step that checks this lease.
    fn finish(&self, lease: &Bound<'_, Lease>) -> PyResult<Call> {
        let once = self.parts.get()?.1.clone();
        let held = lease.get().in_use()?;
        Ok(Call::new(&self.messenger, true, async move {
            if let Held::Mutex(lease) = &*held {
                once.finish(lease).await?;
            }
            Ok(Answer::Nothing)
        }))
    }

    /// A call whose answer is the last run that is known, or None.
    fn past(&self) -> PyResult<Call> {
        let once = self.parts.get()?.1.clone();
        Ok(Call::new(&self.messenger, false, async move {
            Ok(once.past().await?.map_or(Answer::Nothing, Answer::Past))
        }))
    }
}

/// A past run as Python knows it: who ran, the fence, the number of the run, whether it was successful, and when.
pub(crate) fn told(run: PastRun) -> (String, u64, u32, bool, f64) {
    let at = run.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    (
        run.by.to_string(),
        run.fence.get(),
        run.number,
        run.is_done,
        at.as_secs_f64(),
    )
}
