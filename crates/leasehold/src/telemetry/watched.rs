//! The use of a lease, from the moment its user has it to its end. Must never be ended twice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, LockName};
use tracing::{Level, Span, debug, warn};

use super::listener::Telemetry;
use super::meters::Meter;
use super::outcome::word;
use super::shield::{TARGET, ms, shielded};
use crate::error::LossCause;

/// How the use of a lease ended.
#[derive(Debug, Clone)]
pub(crate) enum How {
    /// It was released by hand.
    Released,
    /// It was dropped.
    Dropped,
    /// It was lost.
    Lost(LossCause),
}

/// A lease that its user has, and that somebody watches.
pub(crate) struct Watched {
    telemetry: Telemetry,
    meter: Meter,
    name: LockName,
    fence: Fence,
    span: Arc<Span>,
}

impl Watched {
    pub(super) fn new(
        telemetry: Telemetry,
        meter: Meter,
        name: LockName,
        fence: Fence,
        span: Span,
    ) -> Self {
        meter.begun();
        Self {
            telemetry,
            meter,
            name,
            fence,
            span: Arc::new(span),
        }
    }

    /// The span of its use. Shared, since to clone a span is to call who listens.
    pub(crate) fn span(&self) -> Arc<Span> {
        self.span.clone()
    }

    fn end(self, how: &How, held: Duration) {
        let (lock, fence, held_ms) = (self.name.as_str(), self.fence.get(), ms(held));
        self.meter.ended(held);
        let ended = match how {
            How::Released => "released",
            How::Dropped => "dropped",
            How::Lost(cause) => word(cause),
        };
        shielded(|| {
            self.span.record("held_ms", held_ms);
            self.span.record("ended", ended);
        });
        let How::Lost(cause) = how else {
            return;
        };
        self.meter.lost(cause);
        if *cause == LossCause::Closed {
            // As asked for.
            self.telemetry.tell(Level::DEBUG, || {
                debug!(target: TARGET, parent: self.span.id(), lock, fence, %cause, held_ms, "lease ended");
            });
        } else {
            self.telemetry.tell(Level::WARN, || {
                warn!(target: TARGET, parent: self.span.id(), lock, fence, %cause, held_ms, "lease lost");
            });
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

/// The end of a use, to be told as soon as no lock of ours is held.
#[must_use = "who watches is to be told"]
pub(crate) struct Ended(Option<(Watched, How, Duration)>);

impl Ended {
    /// It had ended before, or nobody watches.
    pub(crate) const fn unseen() -> Self {
        Self(None)
    }

    pub(crate) fn new(watched: Watched, how: How, held: Duration) -> Self {
        Self(Some((watched, how, held)))
    }

    pub(crate) fn tell(self) {
        if let Some((watched, how, held)) = self.0 {
            watched.end(&how, held);
        }
    }
}
