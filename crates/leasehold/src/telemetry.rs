//! Telemetry. [`Telemetry::observe`] is told what happens, and passes it to two sinks: spans and events for `tracing`, and with the feature
//! `metrics` numbers for a recorder. Without that
//! feature and without a subscriber it costs one check. It is not called while a mutex of the client is held, and it
//! reports no secret.
//!
//! All events go to the subscriber of the place where the client was built, since the client's thread has none. A subscriber or recorder
//! that panics loses only what it was told; otherwise it would end all renewals of that thread.

use std::collections::HashSet;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Busy, Fence, HolderIdentity, LockName, Mode, Reply};
use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, info_span};

use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, StoreError, StoreErrorKind};

/// The target that subscribers filter by.
const TARGET: &str = "leasehold";

/// Emits an event of this level, if there is a subscriber.
macro_rules! say {
    ($telemetry:expr, $level:ident, parent: $parent:expr, $($fields:tt)+) => {
        $telemetry.tell(Level::$level, || {
            tracing::event!(target: TARGET, parent: $parent, Level::$level, { $($fields)+ });
        })
    };
    ($telemetry:expr, $level:ident, $($fields:tt)+) => {
        $telemetry.tell(Level::$level, || {
            tracing::event!(target: TARGET, Level::$level, { $($fields)+ });
        })
    };
}

/// The telemetry of a client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Telemetry(Arc<Sinks>);

struct Sinks {
    /// The subscriber of the client. `None` if there was none. Then the subscriber of each event's place is used.
    dispatch: Option<Dispatch>,
    /// The nodes whose connections were lost, as long as there are no new ones. That of a store without nodes has no name.
    cut: Mutex<HashSet<Option<String>>>,
    #[cfg(feature = "metrics")]
    numbers: numbers::Numbers,
}

impl Telemetry {
    /// For a client that is built here, of a quorum with these nodes or of another store. Locks of these names, or of a prefix that ends in `*`, have their own
    /// time series.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "labels of numbers")
    )]
    pub(crate) fn here(names: &[String], nodes: &[String]) -> Self {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        Self(Arc::new(Sinks {
            dispatch: (!dispatch.is::<NoSubscriber>()).then_some(dispatch),
            #[cfg(feature = "metrics")]
            numbers: numbers::Numbers::new(names, nodes),
            cut: Mutex::default(),
        }))
    }

    /// An answer of the store, which is observed if it is a failure.
    pub(crate) fn answered<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.inspect_err(|error| self.observe(Observation::StoreFailed(error.kind)))
    }

    /// A caller asks for a lock. `None` if nobody listens.
    pub(crate) fn ask<'a>(
        &'a self,
        name: Option<&'a LockName>,
        mode: Option<Mode>,
        clock: &'a Clock,
    ) -> Option<Asked<'a>> {
        if !cfg!(feature = "metrics") && LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        let lock = name.map(LockName::as_str);
        let span = self.span(|| {
            let mode = mode.map(mode_word);
            info_span!(target: TARGET, "leasehold.acquire", lock, mode, fence = Empty, waited_ms = Empty, outcome = Empty)
        });
        Some(Asked {
            telemetry: self,
            lock,
            mode,
            span,
            clock,
            begun: clock.now(),
            is_answered: false,
        })
    }

    /// The labels of the names of this client.
    #[cfg(all(feature = "entries", feature = "metrics"))]
    pub(crate) fn labels(&self) -> &numbers::Labels {
        &self.0.numbers.labels
    }

    /// Passes an observation to the sinks.
    pub(crate) fn observe(&self, observation: Observation<'_>) {
        #[cfg(feature = "metrics")]
        self.0.numbers.observe(observation);
        match observation {
            Observation::Asked {
                lock,
                outcome,
                waited,
                span,
                ..
            } => self.asked(lock, outcome, waited, span),
            Observation::Ended(ended) => self.ended(ended),
            Observation::InLine { lock, busy } => {
                say!(self, DEBUG, lock, ahead = busy.ahead, holder = %holder(&busy.holder.who), "in line");
            }
            Observation::Renewed {
                lock,
                fence,
                took,
                said,
                span,
                left,
            } => {
                let (fence, took_ms) = (fence.get(), ms(took));
                match said {
                    // The lease's span lives until the event has been told.
                    Said::Renewed => {
                        say!(self, TRACE, parent: span().as_deref().and_then(|span| span.id()),
                            lock, fence, took_ms, left_ms = ms(left()), "renewed");
                    }
                    Said::Failed(error) => {
                        say!(self, WARN, parent: span().as_deref().and_then(|span| span.id()),
                            lock, fence, %error, left_ms = ms(left()), "renewal failed");
                    }
                    Said::Lost => {}
                }
            }
            Observation::Released {
                lock,
                fence,
                result,
                was_lost,
            } => {
                let fence = fence.get();
                match result {
                    Ok(()) => say!(self, DEBUG, lock, fence, "released"),
                    Err(Error::Lost(_)) if was_lost => {}
                    Err(Error::Lost(lost)) => {
                        let cause = &lost.cause;
                        say!(self, WARN, lock, fence, %cause, "lease lost, as its release showed");
                    }
                    Err(error) => say!(self, WARN, lock, fence, %error, "release not confirmed"),
                }
            }
            Observation::StoreFailed(_) | Observation::NodeFailed(..) => {}
            Observation::Connecting(store) => say!(self, DEBUG, store, "connecting"),
            Observation::Connected(store) => say!(self, INFO, store, "connected"),
            Observation::Cut {
                store,
                node,
                why: error,
            } => {
                if self.cut().insert(node.map(str::to_owned)) {
                    say!(self, WARN, store, node, error, "connection lost");
                }
            }
            Observation::Restored { store, node } => {
                if self.cut().remove(&node.map(str::to_owned)) {
                    say!(self, INFO, store, node, "connection restored");
                }
            }
        }
    }

    fn cut(&self) -> MutexGuard<'_, HashSet<Option<String>>> {
        self.0.cut.lock().unwrap_or_else(PoisonError::into_inner)
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
        let error = match outcome {
            Outcome::Acquired(fence) => {
                let fence = fence.get();
                return say!(self, DEBUG, parent: span.id(), lock, fence, waited_ms, "acquired");
            }
            Outcome::Failed(error) => Some(display(error)),
            Outcome::Busy | Outcome::Cancelled => None,
        };
        say!(self, DEBUG, parent: span.id(), lock, waited_ms, outcome = word, error, "not acquired");
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
            How::Lost(cause @ LossCause::Closed) => {
                say!(self, DEBUG, parent: span.id(), lock, fence, %cause, held_ms, "lease ended");
            }
            How::Lost(cause) => {
                say!(self, WARN, parent: span.id(), lock, fence, %cause, held_ms, "lease lost");
            }
        }
    }

    /// Opens a span. There is none if the subscriber panicked.
    pub(crate) fn span(&self, open: impl FnOnce() -> Span) -> ShieldedSpan {
        ShieldedSpan(self.with(open).unwrap_or_else(Span::none))
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
        shielded(|| match &self.0.dispatch {
            Some(dispatch) => dispatcher::with_default(dispatch, say),
            None => say(),
        })
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::here(&[], &[])
    }
}

/// A request for a lock. If it is dropped without an answer, it was cancelled.
#[must_use = "dropping it says that the request was cancelled"]
pub(crate) struct Asked<'a> {
    telemetry: &'a Telemetry,
    lock: Option<&'a str>,
    /// `None` if it is not allowed.
    mode: Option<Mode>,
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
        let (lock, fence, waited_ms) = (self.lock, fence.get(), ms(waited));
        let mode = self.mode;
        let span = self.telemetry.span(|| {
            let mode = mode.map(mode_word);
            info_span!(target: TARGET, "leasehold.hold", lock, mode, fence, waited_ms, held_ms = Empty, ended = Empty)
        });
        shielded(|| {
            span.follows_from(&*self.span);
        });
        Arc::new(span)
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
            mode: self.mode,
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

/// An event in the life of a client, of a request for a lock, or of a lease.
#[derive(Clone, Copy)]
pub(crate) enum Observation<'a> {
    /// A request for a lock ended after this time. It has no lock, or no mode, if that is not allowed.
    Asked {
        lock: Option<&'a str>,
        #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a label only"))]
        mode: Option<Mode>,
        outcome: Outcome<'a>,
        waited: Duration,
        span: &'a Span,
    },
    /// The use of a lease ended.
    Ended(&'a Ended),
    /// The store put a request in line.
    InLine { lock: &'a str, busy: &'a Busy },
    /// A renewal was answered after this time. A failure does not end the lease.
    Renewed {
        lock: &'a str,
        fence: Fence,
        took: Duration,
        said: &'a Said,
        /// The span of the lease's use.
        span: &'a dyn Fn() -> Option<Arc<ShieldedSpan>>,
        /// What is left of the lease.
        left: &'a dyn Fn() -> Duration,
    },
    /// A release was answered. If the lease `was_lost` before, the loss has been observed already.
    Released {
        lock: &'a str,
        fence: Fence,
        result: &'a Result<(), Error>,
        was_lost: bool,
    },
    /// A request to the store failed.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a number only"))]
    StoreFailed(StoreErrorKind),
    /// A request to this node of a quorum or a cluster failed. A majority may have answered.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a number only"))]
    NodeFailed(&'a str, StoreErrorKind),
    /// The client begins to connect to this store.
    Connecting(&'a str),
    /// The client has connected to this store for the first time.
    Connected(&'a str),
    /// The connection to this node of a store was lost.
    Cut {
        store: &'a str,
        node: Option<&'a str>,
        why: &'a str,
    },
    /// There is a new connection to this node of a store.
    Restored {
        store: &'a str,
        node: Option<&'a str>,
    },
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy)]
pub(crate) enum Outcome<'a> {
    Acquired(Fence),
    Busy,
    Failed(&'a Error),
    /// The future was dropped.
    Cancelled,
}

impl Outcome<'_> {
    fn word(self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::Busy => "busy",
            Self::Failed(Error::Timeout(_)) => "timeout",
            Self::Failed(Error::Store(error)) if error.kind == StoreErrorKind::Denied => "denied",
            Self::Failed(Error::Invalid(_)) => "invalid",
            Self::Failed(Error::Store(_) | Error::Lost(_)) => "unavailable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The end of the use of a lease. It is observed when no mutex of the client is held.
pub(crate) struct Ended {
    pub(crate) lock: LockName,
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a label only"))]
    pub(crate) mode: Mode,
    pub(crate) fence: Fence,
    pub(crate) how: How,
    /// How long it was used.
    pub(crate) held: Duration,
    pub(crate) span: Arc<ShieldedSpan>,
}

/// How the use of a lease ended.
#[derive(Debug, Clone)]
pub(crate) enum How {
    /// Released by its user.
    Released,
    Dropped,
    Lost(LossCause),
}

impl How {
    fn word(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::Lost(cause) => cause_word(cause),
        }
    }
}

/// The store's answer to a renewal.
pub(crate) enum Said {
    Renewed,
    /// The lease is lost. That is observed separately.
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

/// A mode in one word. The number of slots is left out: each value is a time series.
fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slot(_) => "slots",
    }
}

/// A cause in one word.
fn cause_word(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Deadline(_) => "deadline",
        LossCause::NotHeld(_) => "not_held",
        LossCause::MaxHold => "max_hold",
        LossCause::Closed => "closed",
    }
}

// The shield between the client and the subscribers and recorders of a program, which may panic.

/// A span. Its drop may call the subscriber, whose panic is contained.
#[derive(Debug)]
pub(crate) struct ShieldedSpan(Span);

impl Deref for ShieldedSpan {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.0
    }
}

impl Drop for ShieldedSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        shielded(|| drop(span));
    }
}

/// Calls a subscriber or a recorder, and contains its panic.
pub(crate) fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // No state of the client is changed inside.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// The holder as text. An event calls this only if the subscriber wants that event.
fn holder(who: &HolderIdentity) -> String {
    match who {
        HolderIdentity::Owner(owner) => owner.to_string(),
        HolderIdentity::Foreign { kind, .. } => format!("a foreign client ({kind})"),
    }
}

/// Milliseconds, the unit of all spans and events.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The sink of numbers, for the `metrics` recorder that was installed when the client was built. A lock's name becomes a label only if it
/// was declared, since each label is a time series for as long as the program runs.
///
/// All metrics are registered when the client is built, so they show zero at first.
#[cfg(feature = "metrics")]
mod numbers {
    use std::collections::HashMap;
    use std::time::Duration;

    use metrics::{
        Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
        describe_histogram, gauge, histogram,
    };

    use leasehold_core::Mode;

    use super::{How, Observation, Outcome, cause_word, shielded};
    use crate::error::{Error, StoreErrorKind};

    const ACQUIRE: &str = "leasehold_acquire_total";
    const WAIT: &str = "leasehold_wait_seconds";
    const HOLD: &str = "leasehold_hold_seconds";
    const HELD: &str = "leasehold_held";
    const LOST: &str = "leasehold_lost_total";
    const RENEW: &str = "leasehold_renew_seconds";
    const STORE_ERRORS: &str = "leasehold_store_errors_total";
    const NODE_ERRORS: &str = "leasehold_node_errors_total";

    /// The numbers, with their descriptions.
    #[rustfmt::skip]
    const NUMBERS: [(&str, &str); 8] = [
        (ACQUIRE, "Acquisitions by their outcome; busy and timeout are answers and no errors"),
        (WAIT, "How long acquisitions took, by their outcome"),
        (HOLD, "How long leases were held"),
        (HELD, "Leases that are held now"),
        (LOST, "Leases that ended by themselves, by their cause"),
        (RENEW, "How long the store took to answer renewals, failures included"),
        (STORE_ERRORS, "Requests to the store that failed, by the kind of failure"),
        (NODE_ERRORS, "Requests to each node of a quorum or a cluster that failed, by the kind of failure"),
    ];

    /// The label of locks whose names were not declared, where some were.
    const OTHER: &str = "other";

    /// The words of all outcomes of requests.
    #[rustfmt::skip]
    const OUTCOMES: [&str; 7] =
        ["acquired", "busy", "timeout", "unavailable", "denied", "invalid", "cancelled"];

    /// The outcomes of requests that may have waited. The duration of the others says nothing about a busy lock.
    const WAITS: [&str; 3] = ["acquired", "timeout", "cancelled"];

    /// The words of all modes, in the order of [`Series::of_mode`].
    const MODES: [&str; 3] = ["exclusive", "shared", "slots"];

    /// The words of all causes of losses.
    const CAUSES: [&str; 4] = ["deadline", "not_held", "max_hold", "closed"];

    const KINDS: [(StoreErrorKind, &str); 11] = [
        (StoreErrorKind::Unreachable, "unreachable"),
        (StoreErrorKind::TimedOut, "timed_out"),
        (StoreErrorKind::Denied, "denied"),
        (StoreErrorKind::ReadOnly, "read_only"),
        (StoreErrorKind::Full, "full"),
        (StoreErrorKind::Unavailable, "unavailable"),
        (StoreErrorKind::Protocol, "protocol"),
        (StoreErrorKind::Misconfigured, "misconfigured"),
        (StoreErrorKind::Closed, "closed"),
        (StoreErrorKind::Exhausted, "exhausted"),
        (StoreErrorKind::Untrusted, "untrusted"),
    ];

    /// All numbers of a client.
    pub(super) struct Numbers {
        pub(super) labels: Labels,
        /// In the order of the labels.
        all: Vec<Series>,
        errors: Errors,
        /// Of each node of a quorum.
        of_nodes: HashMap<String, Errors>,
    }

    /// Failed requests by their kind.
    type Errors = [(StoreErrorKind, Counter); KINDS.len()];

    /// The numbers of the locks that share a label.
    struct Series {
        asked: [(&'static str, Counter); OUTCOMES.len()],
        modes: [ModeSeries; MODES.len()],
        lost: [(&'static str, Counter); CAUSES.len()],
        renew: Histogram,
    }

    /// The numbers that tell something else of a reader, or of a permit, than of a mutex.
    struct ModeSeries {
        waited: [(&'static str, Histogram); WAITS.len()],
        held: Gauge,
        hold: Histogram,
    }

    /// The labels of the names of a client.
    pub(crate) struct Labels {
        /// Each declared name and prefix. The last one is for all other names, and `None` if none was declared.
        pub(crate) all: Vec<Option<String>>,
        names: HashMap<String, usize>,
        /// Without their `*`, the longest first.
        prefixes: Vec<(String, usize)>,
    }

    impl Labels {
        fn new(declared: &[String]) -> Self {
            let (mut names, mut prefixes) = (HashMap::new(), Vec::new());
            for (at, label) in declared.iter().enumerate() {
                if label.ends_with('*') {
                    prefixes.push((label.trim_end_matches('*').to_owned(), at));
                } else {
                    names.insert(label.clone(), at);
                }
            }
            prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            let rest = (!declared.is_empty()).then(|| OTHER.to_owned());
            Self {
                all: declared.iter().cloned().map(Some).chain([rest]).collect(),
                names,
                prefixes,
            }
        }

        /// The place in [`Labels::all`] of the label of this name. `None` is a name that is not allowed.
        pub(crate) fn of(&self, name: Option<&str>) -> usize {
            let prefixed = |name: &str| {
                let mut prefixes = self.prefixes.iter();
                let found = prefixes.find(|(prefix, _)| name.starts_with(prefix))?;
                Some(found.1)
            };
            let named =
                name.and_then(|name| self.names.get(name).copied().or_else(|| prefixed(name)));
            named.unwrap_or(self.all.len() - 1)
        }
    }

    impl Numbers {
        /// Describes and registers all numbers.
        pub(super) fn new(declared: &[String], nodes: &[String]) -> Self {
            for (name, text) in NUMBERS {
                match name {
                    // Those of a cluster come later.
                    NODE_ERRORS if nodes.is_empty() => {}
                    HELD => describe_gauge!(name, Unit::Count, text),
                    _ if name.ends_with("_seconds") => {
                        describe_histogram!(name, Unit::Seconds, text);
                    }
                    _ => describe_counter!(name, Unit::Count, text),
                }
            }
            let labels = Labels::new(declared);
            let all = labels.all.iter().map(Option::as_deref);
            Self {
                all: all.map(Series::new).collect(),
                labels,
                errors: KINDS
                    .map(|(kind, word)| (kind, zero(counter!(STORE_ERRORS, "kind" => word)))),
                of_nodes: nodes
                    .iter()
                    .map(|node| (node.clone(), of_node(node)))
                    .collect(),
            }
        }

        pub(super) fn observe(&self, observation: Observation<'_>) {
            match observation {
                Observation::Asked {
                    lock,
                    mode,
                    outcome,
                    waited,
                    ..
                } => {
                    let (series, word) = (self.of(lock), outcome.word());
                    count(&series.asked, &word);
                    // A mode that is not allowed neither waits nor holds.
                    let series = series.of_mode(mode.unwrap_or(Mode::Exclusive));
                    if let Some((_, histogram)) = series.waited.iter().find(|(of, _)| *of == word) {
                        record(histogram, waited);
                    }
                    if matches!(outcome, Outcome::Acquired(_)) {
                        shielded(|| series.held.increment(1.0));
                    }
                }
                Observation::Ended(ended) => {
                    let series = self.of(Some(ended.lock.as_str()));
                    let of_mode = series.of_mode(ended.mode);
                    shielded(|| of_mode.held.decrement(1.0));
                    record(&of_mode.hold, ended.held);
                    if let How::Lost(cause) = &ended.how {
                        count(&series.lost, &cause_word(cause));
                    }
                }
                Observation::Renewed { lock, took, .. } => record(&self.of(Some(lock)).renew, took),
                Observation::Released {
                    lock,
                    result: Err(Error::Lost(lost)),
                    was_lost: false,
                    ..
                } => count(&self.of(Some(lock)).lost, &cause_word(&lost.cause)),
                Observation::StoreFailed(kind) => count(&self.errors, &kind),
                Observation::NodeFailed(node, kind) => {
                    if let Some(errors) = self.of_nodes.get(node) {
                        count(errors, &kind);
                    } else {
                        // The nodes of a cluster come and go.
                        shielded(|| count(&of_node(node), &kind));
                    }
                }
                _ => {}
            }
        }

        /// The numbers of this lock. `None` is one whose name is not allowed.
        fn of(&self, lock: Option<&str>) -> &Series {
            &self.all[self.labels.of(lock)]
        }
    }

    impl Series {
        fn new(lock: Option<&str>) -> Self {
            let with = |more: &[(&'static str, &'static str)]| -> Vec<Label> {
                let lock = lock.map(|lock| Label::new("lock", lock.to_owned()));
                let more = more.iter().map(|(key, value)| Label::new(*key, *value));
                lock.into_iter().chain(more).collect()
            };
            let of_mode = |mode: &'static str| {
                let held = gauge!(HELD, with(&[("mode", mode)]));
                // Not set: another client may count there as well.
                held.increment(0.0);
                ModeSeries {
                    waited: WAITS.map(|word| {
                        let labels = with(&[("outcome", word), ("mode", mode)]);
                        (word, histogram!(WAIT, labels))
                    }),
                    held,
                    hold: histogram!(HOLD, with(&[("mode", mode)])),
                }
            };
            Self {
                asked: OUTCOMES
                    .map(|word| (word, zero(counter!(ACQUIRE, with(&[("outcome", word)]))))),
                modes: MODES.map(of_mode),
                lost: CAUSES.map(|word| (word, zero(counter!(LOST, with(&[("cause", word)]))))),
                renew: histogram!(RENEW, with(&[])),
            }
        }

        fn of_mode(&self, mode: Mode) -> &ModeSeries {
            let [exclusive, shared, slots] = &self.modes;
            match mode {
                Mode::Exclusive => exclusive,
                Mode::Shared => shared,
                Mode::Slot(_) => slots,
            }
        }
    }

    fn of_node(node: &str) -> Errors {
        KINDS.map(|(kind, word)| {
            let counter = counter!(NODE_ERRORS, "node" => node.to_owned(), "kind" => word);
            (kind, zero(counter))
        })
    }

    /// Registers the counter by adding zero.
    fn zero(counter: Counter) -> Counter {
        counter.increment(0);
        counter
    }

    fn count<T: PartialEq>(counters: &[(T, Counter)], what: &T) {
        if let Some((_, counter)) = counters.iter().find(|(of, _)| of == what) {
            shielded(|| counter.increment(1));
        }
    }

    fn record(histogram: &Histogram, took: Duration) {
        shielded(|| histogram.record(took));
    }
}
