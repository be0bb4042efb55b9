//! The sink of spans and events, for the `tracing` subscriber of the place where the client was built.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Fence, HolderIdentity};
use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::span::Id;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, debug, info, info_span, trace, warn};

use super::observation::{Ended, How, Observation, Outcome, Said, ShieldedSpan, shielded};
use crate::error::{Error, LossCause};

/// The target that subscribers filter by.
const TARGET: &str = "leasehold";

/// The subscriber of a client.
pub(crate) struct Events {
    /// `None` if there was none. Then the subscriber of each event's place is used.
    dispatch: Option<Dispatch>,
    /// The connection was lost, and there is no new one yet.
    is_cut: AtomicBool,
}

impl Events {
    pub(super) fn here() -> Self {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        Self {
            dispatch: (!dispatch.is::<NoSubscriber>()).then_some(dispatch),
            is_cut: AtomicBool::new(false),
        }
    }

    /// The span of a request for a lock.
    pub(super) fn acquire(&self, lock: Option<&str>) -> ShieldedSpan {
        self.span(|| {
            info_span!(target: TARGET, "leasehold.acquire", lock, fence = Empty, waited_ms = Empty, outcome = Empty)
        })
    }

    /// The span of the use of a lease, which the request with the span `asked` has got.
    pub(super) fn hold(
        &self,
        lock: Option<&str>,
        fence: Fence,
        waited: Duration,
        asked: &Span,
    ) -> ShieldedSpan {
        let (fence, waited_ms) = (fence.get(), ms(waited));
        let span = self.span(|| {
            info_span!(target: TARGET, "leasehold.hold", lock, fence, waited_ms, held_ms = Empty, ended = Empty)
        });
        shielded(|| {
            span.follows_from(asked);
        });
        span
    }

    pub(super) fn observe(&self, observation: Observation<'_>) {
        match observation {
            Observation::Asked {
                lock,
                outcome,
                waited,
                span,
            } => self.asked(lock, outcome, waited, span),
            Observation::Ended(ended) => self.ended(ended),
            Observation::InLine { lock, busy } => self.tell(Level::DEBUG, || {
                debug!(target: TARGET, lock, ahead = busy.ahead, holder = %holder(&busy.holder.who), "in line");
            }),
            Observation::Renewed {
                lock,
                fence,
                took,
                said,
                span,
                left,
            } => match said {
                Said::Renewed => self.tell(Level::TRACE, || {
                    let (took_ms, left_ms, span) = (ms(took), ms(left()), span());
                    trace!(target: TARGET, parent: id(span.as_deref()), lock, fence = fence.get(), took_ms, left_ms, "renewed");
                }),
                Said::Failed(error) => self.tell(Level::WARN, || {
                    let (left_ms, span) = (ms(left()), span());
                    warn!(target: TARGET, parent: id(span.as_deref()), lock, fence = fence.get(), %error, left_ms, "renewal failed");
                }),
                Said::Lost => {}
            },
            Observation::Released {
                lock,
                fence,
                result,
                was_lost,
            } => {
                let fence = fence.get();
                match result {
                    Ok(()) => self.tell(Level::DEBUG, || {
                        debug!(target: TARGET, lock, fence, "released");
                    }),
                    Err(Error::Lost(_)) if was_lost => {}
                    Err(Error::Lost(lost)) => self.tell(Level::WARN, || {
                        let cause = &lost.cause;
                        warn!(target: TARGET, lock, fence, %cause, "lease lost, as its release showed");
                    }),
                    Err(error) => self.tell(Level::WARN, || {
                        warn!(target: TARGET, lock, fence, %error, "release not confirmed");
                    }),
                }
            }
            Observation::StoreFailed(_) => {}
            Observation::Connecting(store) => self.tell(Level::DEBUG, || {
                debug!(target: TARGET, store, "connecting");
            }),
            Observation::Connected(store) => self.tell(Level::INFO, || {
                info!(target: TARGET, store, "connected");
            }),
            Observation::Cut { store, why: error } => {
                if !self.is_cut.swap(true, Ordering::SeqCst) {
                    self.tell(Level::WARN, || {
                        warn!(target: TARGET, store, error, "connection lost");
                    });
                }
            }
            Observation::Restored(store) => {
                if self.is_cut.swap(false, Ordering::SeqCst) {
                    self.tell(Level::INFO, || {
                        info!(target: TARGET, store, "connection restored");
                    });
                }
            }
        }
    }

    /// Busy and cancelled are answers. A store that gives none matters to the caller, who gets the error.
    fn asked(&self, lock: Option<&str>, outcome: Outcome<'_>, waited: Duration, span: &Span) {
        let (word, waited_ms) = (outcome.word(), ms(waited));
        if let Outcome::Acquired(fence) = outcome {
            shielded(|| {
                span.record("fence", fence.get());
            });
        }
        shielded(|| {
            span.record("waited_ms", waited_ms);
            span.record("outcome", word);
        });
        self.tell(Level::DEBUG, || {
            let error = match outcome {
                Outcome::Acquired(fence) => {
                    let fence = fence.get();
                    debug!(target: TARGET, parent: span.id(), lock, fence, waited_ms, "acquired");
                    return;
                }
                Outcome::Failed(error) => Some(display(error)),
                Outcome::Busy | Outcome::Cancelled => None,
            };
            debug!(target: TARGET, parent: span.id(), lock, waited_ms, outcome = word, error, "not acquired");
        });
    }

    fn ended(&self, ended: &Ended) {
        let (how, span) = (&ended.how, &ended.span);
        let (lock, fence, held_ms) = (ended.lock.as_str(), ended.fence.get(), ms(ended.held));
        shielded(|| {
            span.record("held_ms", held_ms);
            span.record("ended", how.word());
        });
        match how {
            How::Released | How::Dropped => {}
            // By the user's wish.
            How::Lost(cause @ LossCause::Closed) => self.tell(Level::DEBUG, || {
                debug!(target: TARGET, parent: span.id(), lock, fence, %cause, held_ms, "lease ended");
            }),
            How::Lost(cause) => self.tell(Level::WARN, || {
                warn!(target: TARGET, parent: span.id(), lock, fence, %cause, held_ms, "lease lost");
            }),
        }
    }

    /// Opens a span. There is none if the subscriber panicked.
    pub(crate) fn span(&self, open: impl FnOnce() -> Span) -> ShieldedSpan {
        ShieldedSpan::new(self.with(open).unwrap_or_else(Span::none))
    }

    /// Emits an event if there is a subscriber.
    pub(crate) fn tell(&self, level: Level, say: impl FnOnce()) {
        if level <= LevelFilter::current() {
            // The panic hook reports the panic.
            let _heard: Option<()> = self.with(say);
        }
    }

    /// Calls the subscriber of this client. `None` if it panicked.
    fn with<R>(&self, say: impl FnOnce() -> R) -> Option<R> {
        shielded(|| match &self.dispatch {
            Some(dispatch) => dispatcher::with_default(dispatch, say),
            None => say(),
        })
    }
}

/// The holder as text. An event calls this only if the subscriber wants that event.
fn holder(who: &HolderIdentity) -> String {
    match who {
        HolderIdentity::Owner(owner) => owner.to_string(),
        HolderIdentity::Foreign { kind, .. } => format!("a foreign client ({kind})"),
    }
}

fn id(span: Option<&ShieldedSpan>) -> Option<Id> {
    span.and_then(|span| span.id())
}

/// Milliseconds, the unit of all spans and events.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
