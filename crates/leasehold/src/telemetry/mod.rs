//! What those who watch this program are told: spans and events for `tracing`, numbers for `metrics`. Must never cost more
//! than a look when nobody listens, never be called while a lock of ours is held, and never tell a secret.
//!
//! All of it goes to whoever listened where the client was built: its own thread, which renews, has no listener of its own.
//! A listener that panics costs its own event and nothing else: on that thread it would end all renewals.

#[cfg(all(feature = "cache", feature = "metrics"))]
mod cache_meters;
#[cfg(feature = "cache")]
mod cached;
#[cfg_attr(not(feature = "metrics"), path = "no_meters.rs")]
mod meters;
mod watched;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Busy, Fence, LockName, Reply, Who};
use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::span::Id;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, debug, info, info_span, trace, warn};

#[cfg(feature = "cache")]
pub(crate) use self::cached::{Held, LeaseLost, Load, Loading, Read, Reading};
use self::meters::{Meter, Meters};
pub(crate) use self::watched::{Ended, How, Watched};
use crate::clock::{Clock, Moment};
use crate::error::{Error, Lost, StoreError, StoreErrorKind};

/// Under which name subscribers filter what this library says.
const TARGET: &str = "leasehold";

/// The outcome of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acquired,
    Busy,
    Timeout,
    Unavailable,
    Denied,
    Invalid,
    /// The future was dropped.
    Cancelled,
}

impl Outcome {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 7] = [
        Self::Acquired,
        Self::Busy,
        Self::Timeout,
        Self::Unavailable,
        Self::Denied,
        Self::Invalid,
        Self::Cancelled,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(error: &Error) -> Self {
        match error {
            Error::Timeout(_) => Self::Timeout,
            Error::Store(error) if error.kind == StoreErrorKind::Denied => Self::Denied,
            Error::Invalid(_) => Self::Invalid,
            Error::Store(_) | Error::Lost(_) => Self::Unavailable,
        }
    }
}

/// What the store said to a renewal.
pub(crate) enum Said {
    Renewed,
    /// The lease is lost, which is told as such.
    Lost,
    Failed(StoreError),
}

impl Said {
    pub(crate) fn by(answer: &Result<Reply, StoreError>) -> Self {
        match answer {
            Ok(Reply::Held(_)) => Self::Renewed,
            Ok(_) => Self::Lost,
            Err(error) => Self::Failed(error.clone()),
        }
    }
}

/// Whoever watches a client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Arc<Inner>);

struct Inner {
    /// Who listened where the client was built; whoever listens where things happen, if that was nobody.
    dispatch: Option<Dispatch>,
    meters: Meters,
    /// The connection was lost, and there is no other one yet.
    is_cut: AtomicBool,
}

impl Telemetry {
    /// For a client that is built here. Locks of these names, or of a prefix that ends in `*`, have numbers of their own.
    pub(crate) fn here(names: &[String]) -> Self {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        Self(Arc::new(Inner {
            dispatch: (!dispatch.is::<NoSubscriber>()).then_some(dispatch),
            meters: Meters::new(names),
            is_cut: AtomicBool::new(false),
        }))
    }

    /// Somebody asks for a lock.
    pub(crate) fn ask<'a>(&'a self, name: Option<&'a LockName>, clock: &'a Clock) -> Asked<'a> {
        if !is_watched() {
            return Asked(None);
        }
        let lock = name.map(LockName::as_str);
        let span = self.with(|| {
            info_span!(target: TARGET, "leasehold.acquire", lock, fence = Empty, waited_ms = Empty, outcome = Empty)
        });
        Asked(Some(Asking {
            telemetry: self,
            meter: self.0.meters.of(lock),
            name,
            span: span.unwrap_or_else(Span::none),
            clock,
            begun: clock.now(),
        }))
    }

    /// The store put a request in line.
    pub(crate) fn in_line(&self, name: &LockName, busy: &Busy) {
        self.tell(Level::DEBUG, || {
            let holder = Name(&busy.holder.who);
            debug!(target: TARGET, lock = name.as_str(), ahead = busy.ahead, holder = %holder, "in line");
        });
    }

    /// A renewal was answered after so long, with so much `left` of the lease. A failure does not end it.
    pub(crate) fn renewed(
        &self,
        (name, fence): (&LockName, Fence),
        took: Duration,
        said: &Said,
        span: impl FnOnce() -> Option<Arc<Span>>,
        left: impl FnOnce() -> Duration,
    ) {
        if !is_watched() {
            return;
        }
        let (lock, fence) = (name.as_str(), fence.get());
        self.0.meters.of(Some(lock)).renewed(took);
        match said {
            Said::Renewed => self.tell(Level::TRACE, || {
                let (took_ms, left_ms, span) = (ms(took), ms(left()), span());
                trace!(target: TARGET, parent: id(span.as_deref()), lock, fence, took_ms, left_ms, "renewed");
            }),
            Said::Failed(error) => self.tell(Level::WARN, || {
                let (left_ms, span) = (ms(left()), span());
                warn!(target: TARGET, parent: id(span.as_deref()), lock, fence, %error, left_ms, "renewal failed");
            }),
            Said::Lost => {}
        }
    }

    /// The release of a lease came to this. One that `was_lost` before has been told of.
    pub(crate) fn given_back(
        &self,
        name: &LockName,
        fence: Fence,
        result: &Result<(), Error>,
        was_lost: bool,
    ) {
        if !is_watched() {
            return;
        }
        let (lock, fence) = (name.as_str(), fence.get());
        match result {
            Ok(()) => self.tell(
                Level::DEBUG,
                || debug!(target: TARGET, lock, fence, "released"),
            ),
            Err(Error::Lost(_)) if was_lost => {}
            Err(Error::Lost(Lost { cause, .. })) => {
                self.0.meters.of(Some(lock)).lost(cause);
                self.tell(
                    Level::WARN,
                    || warn!(target: TARGET, lock, fence, %cause, "lease lost, as its release showed"),
                );
            }
            Err(error) => self.tell(
                Level::WARN,
                || warn!(target: TARGET, lock, fence, %error, "release not confirmed"),
            ),
        }
    }

    /// A request to the store failed.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) fn failed(&self, kind: StoreErrorKind) {
        self.0.meters.failed(kind);
    }

    /// The client begins to connect.
    pub(crate) fn connecting(&self, store: &str) {
        self.tell(Level::DEBUG, || debug!(target: TARGET, store, "connecting"));
    }

    /// It has connected for the first time.
    pub(crate) fn connected(&self, store: &str) {
        self.tell(Level::INFO, || info!(target: TARGET, store, "connected"));
    }

    /// The connection was lost.
    pub(crate) fn cut(&self, store: &str, why: &str) {
        if !self.0.is_cut.swap(true, Ordering::SeqCst) {
            self.tell(
                Level::WARN,
                || warn!(target: TARGET, store, error = why, "connection lost"),
            );
        }
    }

    /// There is a new connection.
    pub(crate) fn restored(&self, store: &str) {
        if self.0.is_cut.swap(false, Ordering::SeqCst) {
            self.tell(
                Level::INFO,
                || info!(target: TARGET, store, "connection restored"),
            );
        }
    }

    /// Says something, if anybody listens at all.
    fn tell(&self, level: Level, say: impl FnOnce()) {
        if level <= LevelFilter::current() {
            // What the panic was is for its hook to say.
            let _heard: Option<()> = self.with(say);
        }
    }

    /// `None` if who listens panicked.
    fn with<R>(&self, say: impl FnOnce() -> R) -> Option<R> {
        shielded(|| match &self.0.dispatch {
            Some(dispatch) => dispatcher::with_default(dispatch, say),
            None => say(),
        })
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::here(&[])
    }
}

/// A request for a lock. Dropped unanswered, it was cancelled.
#[must_use = "dropping it says that the request was cancelled"]
pub(crate) struct Asked<'a>(Option<Asking<'a>>);

struct Asking<'a> {
    telemetry: &'a Telemetry,
    meter: Meter,
    name: Option<&'a LockName>,
    span: Span,
    clock: &'a Clock,
    begun: Moment,
}

impl Asked<'_> {
    /// It got a lease with this fence, which its user has from here on. `None` says that nobody watches.
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

    /// The lock was busy, and it did not wait.
    pub(crate) fn busy(self) {
        self.end(Outcome::Busy, None);
    }

    /// It got no lease, for this reason.
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

impl Asking<'_> {
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

/// Calls those who watch, whose panics are none of a lock's business.
fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // Nothing of ours is half changed in there.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Whether anybody may want to know more than what is wrong.
pub(crate) fn hears_details() -> bool {
    LevelFilter::current() >= Level::DEBUG
}

/// Whether anybody may want to know.
fn is_watched() -> bool {
    meters::ON || LevelFilter::current() != LevelFilter::OFF
}

fn id(span: Option<&Span>) -> Option<Id> {
    span.and_then(Span::id)
}

/// Milliseconds, as all spans and events tell time.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whom a holder is known as.
struct Name<'a>(&'a Who);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Who::Owner(owner) => owner.fmt(f),
            Who::Foreign { kind, .. } => write!(f, "a foreign client ({kind})"),
        }
    }
}
