//! The telemetry of a client, and its simple events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Busy, Fence, HolderIdentity, LockName};
use tracing::dispatcher::{self, Dispatch};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, debug, info, trace, warn};

#[cfg(all(feature = "entries", feature = "metrics"))]
use super::meters::Labels;
use super::meters::{Meter, Meters, ON};
use super::outcome::Said;
use super::shield::{TARGET, id, ms, shielded};
use crate::error::{Error, Lost, StoreErrorKind};

/// The telemetry of a client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Arc<Inner>);

struct Inner {
    /// The subscriber of the place where the client was built. If there was none, the subscriber of each event's place is used.
    dispatch: Option<Dispatch>,
    meters: Meters,
    /// The connection was lost, and there is no new one yet.
    is_cut: AtomicBool,
}

impl Telemetry {
    /// For a client that is built here. Locks of these names, or of a prefix that ends in `*`, have their own time series.
    pub(crate) fn here(names: &[String]) -> Self {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        Self(Arc::new(Inner {
            dispatch: (!dispatch.is::<NoSubscriber>()).then_some(dispatch),
            meters: Meters::new(names),
            is_cut: AtomicBool::new(false),
        }))
    }

    /// The store put a request in line.
    pub(crate) fn in_line(&self, name: &LockName, busy: &Busy) {
        self.tell(Level::DEBUG, || {
            let holder = Name(&busy.holder.who);
            debug!(target: TARGET, lock = name.as_str(), ahead = busy.ahead, holder = %holder, "in line");
        });
    }

    /// A renewal was answered after this time, with so much `left` of the lease. A failure does not end the lease.
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
        self.meter(Some(lock)).renewed(took);
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

    /// The result of a release. If the lease `was_lost` before, the loss has been reported already.
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
                self.meter(Some(lock)).lost(cause);
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

    /// The client has connected for the first time.
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

    /// The labels of the names of this client.
    #[cfg(all(feature = "entries", feature = "metrics"))]
    pub(crate) fn labels(&self) -> &Labels {
        &self.0.meters.labels
    }

    /// The numbers of this lock. `None` is one whose name is not allowed.
    pub(super) fn meter(&self, name: Option<&str>) -> Meter {
        self.0.meters.of(name)
    }

    /// Emits an event if there is a subscriber.
    pub(super) fn tell(&self, level: Level, say: impl FnOnce()) {
        if level <= LevelFilter::current() {
            // The panic hook reports the panic.
            let _heard: Option<()> = self.with(say);
        }
    }

    /// Calls the subscriber of this client. `None` if it panicked.
    pub(crate) fn with<R>(&self, say: impl FnOnce() -> R) -> Option<R> {
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

/// Whether a subscriber may want more than warnings.
pub(crate) fn hears_details() -> bool {
    LevelFilter::current() >= Level::DEBUG
}

/// Whether there may be a subscriber.
pub(super) fn is_watched() -> bool {
    ON || LevelFilter::current() != LevelFilter::OFF
}

/// The name of a holder.
struct Name<'a>(&'a HolderIdentity);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            HolderIdentity::Owner(owner) => owner.fmt(f),
            HolderIdentity::Foreign { kind, .. } => write!(f, "a foreign client ({kind})"),
        }
    }
}
