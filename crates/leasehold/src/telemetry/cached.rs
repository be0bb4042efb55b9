//! The telemetry of cache entries: reads and loads. It reports no value.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::cache::Version;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::span::Id;
use tracing::{Level, Span, debug, info_span, warn};

use super::cache_outcome::{LeaseLost, Load, Read};
use super::listener::{Telemetry, is_watched};
use super::meters::Meter;
use super::shield::{TARGET, id, ms, shielded};
use crate::clock::{Clock, Moment};

impl Telemetry {
    /// A caller began to read an entry at this moment.
    pub(crate) fn read<'a>(
        &'a self,
        key: &LockName,
        clock: &'a Clock,
        begun: Moment,
    ) -> Reading<'a> {
        Reading(is_watched().then(|| Reader {
            telemetry: self,
            meter: self.meter(Some(key.as_str())),
            key: key.clone(),
            clock,
            begun,
            waits: false,
        }))
    }

    /// The current span, for work that it causes elsewhere.
    pub(crate) fn caller(&self) -> Held {
        if LevelFilter::current() < Level::INFO {
            return Held::default();
        }
        Held::new(self.with(Span::current))
    }

    /// The store granted a load, for a read within the span of this caller.
    pub(crate) fn load(
        &self,
        key: &LockName,
        version: Version,
        caller: &Held,
        clock: &Clock,
    ) -> Loading {
        let span = self.with(|| {
            let (key, version) = (key.as_str(), version.get());
            let span = info_span!(
                target: TARGET, parent: None, "leasehold.cache.load",
                key, version, took_ms = Empty, outcome = Empty, late = Empty
            );
            span.follows_from(caller.id());
            span
        });
        Loading {
            telemetry: self.clone(),
            meter: self.meter(Some(key.as_str())),
            key: key.clone(),
            span: Held::new(span),
            clock: clock.clone(),
            begun: clock.now(),
            late: false,
            ended: false,
        }
    }

    /// A reader of a fresh value refreshes it early.
    pub(crate) fn refreshes_early(&self, key: &LockName) {
        let key = key.as_str();
        self.meter(Some(key)).entries().refreshed_early();
        self.tell(
            Level::DEBUG,
            || debug!(target: TARGET, key, "refreshing early"),
        );
    }

    /// A load failed, in this or another process. This client does not ask for the entry for this time.
    pub(crate) fn backs_off(&self, key: &LockName, left: Duration) {
        let key = key.as_str();
        self.meter(Some(key)).entries().backed_off();
        self.tell(
            Level::DEBUG,
            || debug!(target: TARGET, key, left_ms = ms(left), "backing off"),
        );
    }

    /// An entry was invalidated. With an error, it may have been.
    pub(crate) fn invalidated(&self, key: &LockName, error: Option<&dyn std::fmt::Display>) {
        let key = key.as_str();
        self.meter(Some(key)).entries().invalidated(error.is_none());
        match error {
            None => self.tell(Level::DEBUG, || debug!(target: TARGET, key, "invalidated")),
            Some(error) => self.tell(
                Level::WARN,
                || warn!(target: TARGET, key, %error, "invalidation not confirmed"),
            ),
        }
    }
}

/// A span that outlives its creator. Shared, since cloning a span calls the subscriber, and so does dropping its last handle.
#[derive(Clone, Default)]
pub(crate) struct Held(Option<Arc<Span>>);

impl Held {
    fn new(span: Option<Span>) -> Self {
        Self(span.filter(|span| !span.is_none()).map(Arc::new))
    }

    fn get(&self) -> Option<&Span> {
        self.0.as_deref()
    }

    fn id(&self) -> Option<Id> {
        id(self.get())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let span = self.0.take();
        shielded(|| drop(span));
    }
}

/// A read under way. If it is dropped without an outcome, it was cancelled.
#[must_use = "dropping it says that the read was cancelled"]
pub(crate) struct Reading<'a>(Option<Reader<'a>>);

struct Reader<'a> {
    telemetry: &'a Telemetry,
    meter: Meter,
    key: LockName,
    clock: &'a Clock,
    begun: Moment,
    waits: bool,
}

impl Reading<'_> {
    /// No value can be served at once.
    pub(crate) fn waits(&mut self) {
        if let Some(reader) = &mut self.0 {
            reader.waits = true;
        }
    }

    pub(crate) fn ended(mut self, outcome: Read) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Read) {
        if let Some(reader) = self.0.take() {
            reader.end(outcome);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.end(Read::Cancelled);
    }
}

impl Reader<'_> {
    fn end(&self, outcome: Read) {
        self.meter.entries().read(outcome);
        if !self.waits {
            return;
        }
        let waited = self.clock.now().since(self.begun);
        self.meter.entries().waited(outcome, waited);
        self.telemetry.tell(Level::DEBUG, || {
            let (key, outcome, waited_ms) = (self.key.as_str(), outcome.as_str(), ms(waited));
            debug!(target: TARGET, key, outcome, waited_ms, "waited for a value");
        });
    }
}

/// A load under way. If it is dropped without an outcome, its loader has ended with its runtime.
#[must_use = "dropping it says that the loader has gone"]
pub(crate) struct Loading {
    telemetry: Telemetry,
    meter: Meter,
    key: LockName,
    span: Held,
    clock: Clock,
    begun: Moment,
    /// The lease of the load has ended.
    late: bool,
    ended: bool,
}

impl Loading {
    /// `work` within the span of this load.
    pub(crate) fn within<F: Future>(&self, work: F) -> Within<F> {
        Within {
            span: self.span.clone(),
            work: Box::pin(work),
        }
    }

    /// Whether the lease ended before the load. Reported once.
    pub(crate) fn lease_lost(&mut self, how: LeaseLost) {
        if std::mem::replace(&mut self.late, true) {
            return;
        }
        self.meter.entries().lease_lost(how);
        self.telemetry.tell(Level::DEBUG, || {
            let (key, cause) = (self.key.as_str(), how.as_str());
            debug!(target: TARGET, parent: self.span.id(), key, cause, "lease of a load lost");
        });
    }

    /// The load ended. The loader took this time, and failed with this text.
    pub(crate) fn ended(mut self, outcome: Load, took: Duration, error: Option<&str>) {
        self.end(outcome, took, error);
    }

    fn end(&mut self, outcome: Load, took: Duration, error: Option<&str>) {
        self.ended = true;
        let (key, late) = (self.key.as_str(), self.late);
        let (word, took_ms) = (outcome.as_str(), ms(took));
        self.meter.entries().loaded(outcome, late, took);
        shielded(|| {
            if let Some(span) = self.span.get() {
                span.record("took_ms", took_ms);
                span.record("outcome", word);
                span.record("late", late);
            }
        });
        let (parent, say) = (self.span.id(), &self.telemetry);
        match outcome {
            Load::Fresh | Load::Stale | Load::Overtaken => say.tell(Level::DEBUG, || {
                debug!(target: TARGET, parent: parent, key, took_ms, outcome = word, late, "loaded");
            }),
            Load::Nothing | Load::Gone => say.tell(Level::DEBUG, || {
                debug!(target: TARGET, parent: parent, key, took_ms, outcome = word, "no value");
            }),
            Load::Unconfirmed => say.tell(Level::WARN, || {
                warn!(target: TARGET, parent: parent, key, took_ms, late, "value not confirmed");
            }),
            Load::Failed | Load::Panicked => say.tell(Level::WARN, || {
                warn!(target: TARGET, parent: parent, key, error, took_ms, "load failed");
            }),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.ended {
            let took = self.clock.now().since(self.begun);
            self.end(Load::Gone, took, None);
        }
    }
}

/// Work within a span. Unlike with `tracing`'s own type, a subscriber that panics does not end the work.
pub(crate) struct Within<F> {
    span: Held,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { span, work } = &mut *self;
        let entered = Inside(span.get().and_then(|span| shielded(|| span.enter())));
        let polled = work.as_mut().poll(context);
        drop(entered);
        polled
    }
}

/// Leaves the span, also when the work panics.
struct Inside<'a>(Option<tracing::span::Entered<'a>>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let entered = self.0.take();
        shielded(|| drop(entered));
    }
}
