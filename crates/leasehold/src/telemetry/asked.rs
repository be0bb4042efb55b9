//! The telemetry of a request for a lock, from the call to its answer.

use std::time::Duration;

use leasehold_core::{Fence, LockName};
use tracing::field::{Empty, display};
use tracing::{Level, Span, debug, info_span};

use super::listener::{Telemetry, is_watched};
use super::meters::Meter;
use super::outcome::Outcome;
use super::shield::{TARGET, ms, shielded};
use super::watched::Watched;
use crate::clock::{Clock, Moment};
use crate::error::Error;

impl Telemetry {
    /// A caller asks for a lock.
    pub(crate) fn ask<'a>(&'a self, name: Option<&'a LockName>, clock: &'a Clock) -> Asked<'a> {
        if !is_watched() {
            return Asked(None);
        }
        let lock = name.map(LockName::as_str);
        let span = self.with(|| {
            info_span!(target: TARGET, "leasehold.acquire", lock, fence = Empty, waited_ms = Empty, outcome = Empty)
        });
        Asked(Some(RequestTelemetry {
            telemetry: self,
            meter: self.meter(lock),
            name,
            span: span.unwrap_or_else(Span::none),
            clock,
            begun: clock.now(),
        }))
    }
}

/// A request for a lock. If it is dropped without an answer, it was cancelled.
#[must_use = "dropping it says that the request was cancelled"]
pub(crate) struct Asked<'a>(Option<RequestTelemetry<'a>>);

struct RequestTelemetry<'a> {
    telemetry: &'a Telemetry,
    meter: Meter,
    name: Option<&'a LockName>,
    span: Span,
    clock: &'a Clock,
    begun: Moment,
}

impl Asked<'_> {
    /// The request got a lease with this fence, whose use begins here. `None` means that there is no subscriber.
    pub(crate) fn served(mut self, fence: Fence) -> Option<Watched> {
        let asking = self.0.take()?;
        let waited = asking.clock.now().since(asking.begun);
        let lock = asking.name?;
        shielded(|| asking.span.record("fence", fence.get()));
        asking.end(Outcome::Acquired, waited, || {
            let (lock, waited_ms) = (lock.as_str(), ms(waited));
            debug!(target: TARGET, parent: asking.span.id(), lock, fence = fence.get(), waited_ms, "acquired");
        });
        Some(asking.watch(lock, fence, waited))
    }

    /// The lock was busy, and the request did not wait.
    pub(crate) fn busy(self) {
        self.end(Outcome::Busy, None);
    }

    /// The request got no lease, for this reason.
    pub(crate) fn failed(self, error: &Error) {
        self.end(Outcome::of(error), Some(error));
    }

    fn end(mut self, outcome: Outcome, error: Option<&Error>) {
        if let Some(asking) = self.0.take() {
            asking.fail(outcome, error);
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(asking) = self.0.take() {
            asking.fail(Outcome::Cancelled, None);
        }
    }
}

impl RequestTelemetry<'_> {
    /// Busy and cancelled are answers, a store that gives none is worth more than a debug line only where it matters: in the
    /// error that the caller gets.
    fn fail(&self, outcome: Outcome, error: Option<&Error>) {
        let waited = self.clock.now().since(self.begun);
        self.end(outcome, waited, || {
            let (lock, waited_ms) = (self.name.map(LockName::as_str), ms(waited));
            let (outcome, error) = (outcome.as_str(), error.map(display));
            debug!(target: TARGET, parent: self.span.id(), lock, waited_ms, outcome, error, "not acquired");
        });
    }

    fn end(&self, outcome: Outcome, waited: Duration, say: impl FnOnce()) {
        self.meter.asked(outcome, waited);
        shielded(|| {
            self.span.record("waited_ms", ms(waited));
            self.span.record("outcome", outcome.as_str());
        });
        self.telemetry.tell(Level::DEBUG, say);
    }

    fn watch(&self, name: &LockName, fence: Fence, waited: Duration) -> Watched {
        let telemetry = self.telemetry.clone();
        let (lock, fence_number, waited_ms) = (name.as_str(), fence.get(), ms(waited));
        let span = telemetry.with(|| {
            info_span!(target: TARGET, "leasehold.hold", lock, fence = fence_number, waited_ms, held_ms = Empty, ended = Empty)
        });
        let span = span.unwrap_or_else(Span::none);
        shielded(|| {
            span.follows_from(&self.span);
        });
        Watched::new(telemetry, self.meter.clone(), name.clone(), fence, span)
    }
}
