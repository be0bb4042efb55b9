//! The telemetry of a lease's use, from its delivery to its end.

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
    /// Released by its user.
    Released,
    /// Dropped.
    Dropped,
    /// Lost.
    Lost(LossCause),
}

/// A delivered lease, while there is a subscriber.
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

    /// The span of its use. Shared, since cloning a span calls the subscriber.
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
            // By the user's wish.
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

/// The end of a use. It is reported when no mutex of the client is held.
#[must_use = "who watches is to be told"]
pub(crate) struct Ended(Option<(Watched, How, Duration)>);

impl Ended {
    /// The use had ended before, or there is no subscriber.
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
