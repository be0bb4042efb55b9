//! Telemetry. [`Telemetry::observe`] is told what happens, and passes it to two sinks: spans and events for `tracing`, and with the feature
//! `metrics` numbers for a recorder. Without that
//! feature and without a subscriber it costs one check. It is not called while a mutex of the client is held, and it
//! reports no secret.
//!
//! All events go to the subscriber of the place where the client was built, since the client's thread has none. A subscriber or recorder
//! that panics loses only what it was told; otherwise it would end all renewals of that thread.

mod events;
#[cfg(feature = "metrics")]
mod numbers;
mod observation;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, LockName};
use tracing::level_filters::LevelFilter;

use self::events::Events;
#[cfg(feature = "entries")]
pub(crate) use self::observation::shielded;
pub(crate) use self::observation::{Ended, How, Observation, Outcome, Said, ShieldedSpan};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;

/// The telemetry of a client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Arc<Sinks>);

struct Sinks {
    events: Events,
    #[cfg(feature = "metrics")]
    numbers: numbers::Numbers,
}

impl Telemetry {
    /// For a client that is built here. Locks of these names, or of a prefix that ends in `*`, have their own time series.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "labels of numbers")
    )]
    pub(crate) fn here(names: &[String]) -> Self {
        Self(Arc::new(Sinks {
            events: Events::here(),
            #[cfg(feature = "metrics")]
            numbers: numbers::Numbers::new(names),
        }))
    }

    /// Passes an observation to the sinks.
    pub(crate) fn observe(&self, observation: Observation<'_>) {
        #[cfg(feature = "metrics")]
        self.0.numbers.observe(observation);
        self.0.events.observe(observation);
    }

    /// An answer of the store, which is observed if it is a failure.
    pub(crate) fn answered<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.inspect_err(|error| self.observe(Observation::StoreFailed(error.kind)))
    }

    /// A caller asks for a lock. `None` if nobody listens.
    pub(crate) fn ask<'a>(
        &'a self,
        name: Option<&'a LockName>,
        clock: &'a Clock,
    ) -> Option<Asked<'a>> {
        if !cfg!(feature = "metrics") && LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        let lock = name.map(LockName::as_str);
        Some(Asked {
            telemetry: self,
            lock,
            span: self.0.events.acquire(lock),
            clock,
            begun: clock.now(),
            is_answered: false,
        })
    }

    /// The sink of spans and events.
    #[cfg(feature = "entries")]
    pub(crate) fn events(&self) -> &Events {
        &self.0.events
    }

    /// The labels of the names of this client.
    #[cfg(all(feature = "entries", feature = "metrics"))]
    pub(crate) fn labels(&self) -> &numbers::Labels {
        &self.0.numbers.labels
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::here(&[])
    }
}

/// A request for a lock. If it is dropped without an answer, it was cancelled.
#[must_use = "dropping it says that the request was cancelled"]
pub(crate) struct Asked<'a> {
    telemetry: &'a Telemetry,
    lock: Option<&'a str>,
    span: ShieldedSpan,
    clock: &'a Clock,
    begun: Moment,
    is_answered: bool,
}

impl Asked<'_> {
    /// The request got a lease with this fence. Returns the span of its use, which begins here. It is shared, since cloning a span calls
    /// the subscriber.
    pub(crate) fn acquired(mut self, fence: Fence) -> Arc<ShieldedSpan> {
        let waited = self.end(Outcome::Acquired(fence));
        let events = &self.telemetry.0.events;
        Arc::new(events.hold(self.lock, fence, waited, &self.span))
    }

    /// The request got no lease.
    pub(crate) fn refused(mut self, outcome: Outcome<'_>) {
        self.end(outcome);
    }

    /// Returns how long it waited.
    fn end(&mut self, outcome: Outcome<'_>) -> Duration {
        self.is_answered = true;
        let waited = self.clock.now().since(self.begun);
        self.telemetry.observe(Observation::Asked {
            lock: self.lock,
            outcome,
            waited,
            span: &self.span,
        });
        waited
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.end(Outcome::Cancelled);
        }
    }
}
