//! The telemetry of a cache: its reads and loads as spans, events and numbers. It reports no value. [`Telemetry::observe`] is told what
//! happens, as that of the library.
//!
//! All of it goes to the subscriber of the client. A subscriber that panics loses only its own event. A key becomes a label of the numbers only
//! if the client declared it, as the name of a lock does.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Moment;
use leasehold::entries::{Entries, SharedSpan, shielded};
use leasehold_core::LockName;
use leasehold_core::cache::{CommitOutcome, Version};
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::span::Entered;
use tracing::{Level, Span, info_span};

use crate::policy::millis;
use crate::value::{Error, Origin, Refusal};

/// The target that subscribers filter by.
const TARGET: &str = "leasehold";

/// The word for the outcome of a read.
fn word(end: Result<Origin, &Refusal>) -> &'static str {
    match end {
        Ok(Origin::Fresh) => "fresh",
        Ok(Origin::Stale) => "stale",
        Ok(Origin::Loaded) => "loaded",
        Ok(Origin::Waited) => "waited",
        // A loader of several keys had none, or the call had no loader.
        Err(Refusal::Nothing) => "nothing",
        Err(Refusal::Busy(_)) => "busy",
        Err(Refusal::Store(_)) => "unavailable",
        Err(_) => "failed",
    }
}

/// The outcome of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadEnd {
    /// The value is stored as fresh.
    Fresh,
    /// The value is stored as stale, since the entry was invalidated meanwhile.
    Stale,
    /// The value was dropped: a newer one is stored.
    Overtaken,
    /// The store did not confirm the value.
    Unconfirmed,
    /// The loader had no value.
    Nothing,
    Failed,
    Panicked,
    /// The loader ended with its runtime or its client.
    Gone,
}

/// The words for them, in their order.
#[rustfmt::skip]
const LOADS: [&str; 8] =
    ["fresh", "stale", "overtaken", "unconfirmed", "nothing", "failed", "panicked", "gone"];

impl From<Option<CommitOutcome>> for LoadEnd {
    fn from(kept: Option<CommitOutcome>) -> Self {
        match kept {
            Some(CommitOutcome::Fresh(_)) => Self::Fresh,
            Some(CommitOutcome::Stale) => Self::Stale,
            Some(CommitOutcome::Overtaken) => Self::Overtaken,
            None => Self::Unconfirmed,
        }
    }
}

/// How the lease of a load ended before the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseLost {
    /// The lease was not renewed in time.
    Deadline,
    /// The store ended it earlier: the entry was invalidated, or the store lost its data.
    NotHeld,
}

/// The words for them, in their order.
const CAUSES: [&str; 2] = ["deadline", "not_held"];

/// Emits an event of this level, if the subscriber of the client wants it.
macro_rules! say {
    ($telemetry:expr, $level:ident, parent: $parent:expr, $($fields:tt)+) => {
        $telemetry.entries.tell(Level::$level, || {
            tracing::event!(target: TARGET, parent: $parent, Level::$level, { $($fields)+ });
        })
    };
    ($telemetry:expr, $level:ident, $($fields:tt)+) => {
        $telemetry.entries.tell(Level::$level, || {
            tracing::event!(target: TARGET, Level::$level, { $($fields)+ });
        })
    };
}

/// An event of an entry, of a read or of a load.
#[derive(Clone, Copy)]
pub(crate) enum Observation<'a> {
    /// A read ended with this outcome. It waited for this time, if no value could be served at once.
    Read(&'static str, Option<Duration>),
    /// A reader of a fresh value refreshes it early.
    RefreshesEarly,
    /// A load failed, in this or another process. This client does not ask for the entry for this time.
    BacksOff(Duration),
    /// The entry was invalidated. With an error, it may have been.
    Invalidated(Option<&'a Error>),
    /// The lease of a load ended before the load.
    LeaseLost(&'a Loading, LeaseLost),
    /// A load ended. The loader took this time, and failed with this text.
    Loaded(&'a Loading, LoadEnd, Duration, Option<&'a str>),
}

/// The telemetry of a cache.
pub(crate) struct Telemetry {
    entries: Entries,
    /// The numbers, in the order of the client's labels.
    #[cfg(feature = "metrics")]
    series: Vec<numbers::Series>,
}

impl Telemetry {
    pub(crate) fn new(entries: Entries) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            series: numbers::Series::of(entries.labels()),
            entries,
        }
    }

    /// A caller began to read an entry at this moment.
    pub(crate) fn read(&self, key: &LockName, begun: Moment) -> Reading<'_> {
        let is_watched = cfg!(feature = "metrics") || LevelFilter::current() != LevelFilter::OFF;
        Reading {
            watched: is_watched.then(|| (self, key.clone())),
            begun,
            waits: false,
        }
    }

    /// The current span, for work that it causes elsewhere.
    pub(crate) fn caller(&self) -> Option<SharedSpan> {
        let is_watched = LevelFilter::current() >= Level::INFO;
        is_watched.then(|| self.entries.span(Span::current))
    }

    /// The store granted a load, for a read within the span of this caller.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: &LockName,
        version: Version,
        caller: Option<&SharedSpan>,
    ) -> Loading {
        let span = self.entries.span(|| {
            let (key, version) = (key.as_str(), version.get());
            let span = info_span!(
                target: TARGET, parent: None, "leasehold.cache.load",
                key, version, took_ms = Empty, outcome = Empty, late = Empty
            );
            span.follows_from(caller.and_then(|caller| caller.id()));
            span
        });
        Loading {
            telemetry: self.clone(),
            key: key.clone(),
            span,
            begun: self.entries.clock().now(),
            late: false,
            ended: false,
        }
    }

    /// Passes an observation to the sinks.
    pub(crate) fn observe(&self, key: &LockName, observation: Observation<'_>) {
        #[cfg(feature = "metrics")]
        self.series[self.entries.label_of(key)].observe(observation);
        let key = key.as_str();
        match observation {
            Observation::Read(_, None) => {}
            Observation::Read(outcome, Some(waited)) => {
                let waited_ms = millis(waited);
                say!(self, DEBUG, key, outcome, waited_ms, "waited for a value");
            }
            Observation::RefreshesEarly => say!(self, DEBUG, key, "refreshing early"),
            Observation::BacksOff(left) => {
                say!(self, DEBUG, key, left_ms = millis(left), "backing off");
            }
            Observation::Invalidated(None) => say!(self, DEBUG, key, "invalidated"),
            Observation::Invalidated(Some(error)) => {
                say!(self, WARN, key, %error, "invalidation not confirmed");
            }
            Observation::LeaseLost(load, how) => {
                let cause = CAUSES[how as usize];
                say!(self, DEBUG, parent: load.span.id(), key, cause, "lease of a load lost");
            }
            Observation::Loaded(load, end, took, error) => self.loaded(load, end, took, error),
        }
    }

    fn loaded(&self, load: &Loading, end: LoadEnd, took: Duration, error: Option<&str>) {
        let (key, outcome, took_ms) = (load.key.as_str(), LOADS[end as usize], millis(took));
        let Loading { span, late, .. } = load;
        shielded(|| {
            span.record("took_ms", took_ms);
            span.record("outcome", outcome);
            span.record("late", late);
        });
        match end {
            LoadEnd::Fresh | LoadEnd::Stale | LoadEnd::Overtaken => {
                say!(self, DEBUG, parent: span.id(), key, took_ms, outcome, late, "loaded");
            }
            LoadEnd::Nothing | LoadEnd::Gone => {
                say!(self, DEBUG, parent: span.id(), key, took_ms, outcome, "no value");
            }
            LoadEnd::Unconfirmed => {
                say!(self, WARN, parent: span.id(), key, took_ms, late, "value not confirmed");
            }
            LoadEnd::Failed | LoadEnd::Panicked => {
                say!(self, WARN, parent: span.id(), key, error, took_ms, "load failed");
            }
        }
    }
}

/// A read under way. If it is dropped without an outcome, it was cancelled.
#[must_use = "dropping it says that the read was cancelled"]
pub(crate) struct Reading<'a> {
    /// `None` if there is no subscriber, and after the end.
    watched: Option<(&'a Telemetry, LockName)>,
    begun: Moment,
    waits: bool,
}

impl Reading<'_> {
    /// No value can be served at once.
    pub(crate) fn waits(&mut self) {
        self.waits = true;
    }

    pub(crate) fn ended(mut self, end: Result<Origin, &Refusal>) {
        self.end(word(end));
    }

    fn end(&mut self, outcome: &'static str) {
        if let Some((telemetry, key)) = self.watched.take() {
            let waited = || telemetry.entries.clock().now().since(self.begun);
            telemetry.observe(&key, Observation::Read(outcome, self.waits.then(waited)));
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.end("cancelled");
    }
}

/// A load under way. If it is dropped without an outcome, its loader has ended with its runtime.
#[must_use = "dropping it says that the loader has gone"]
pub(crate) struct Loading {
    telemetry: Arc<Telemetry>,
    key: LockName,
    span: SharedSpan,
    begun: Moment,
    /// The lease of the load has ended.
    late: bool,
    ended: bool,
}

impl Loading {
    /// `work` within the span of this load. Unlike with `tracing`'s own type, a subscriber that panics does not end the work.
    pub(crate) fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let (span, mut work) = (self.span.clone(), Box::pin(work));
        poll_fn(move |context| {
            let _inside = Inside(shielded(|| span.enter()));
            work.as_mut().poll(context)
        })
    }

    /// The lease ended before the load. Reported once.
    pub(crate) fn lease_lost(&mut self, how: LeaseLost) {
        if !std::mem::replace(&mut self.late, true) {
            self.observe(Observation::LeaseLost(self, how));
        }
    }

    /// The load ended. The loader took this time, and failed with this text.
    pub(crate) fn ended(mut self, end: LoadEnd, took: Duration, error: Option<&str>) {
        self.ended = true;
        self.observe(Observation::Loaded(&self, end, took, error));
    }

    fn observe(&self, observation: Observation<'_>) {
        self.telemetry.observe(&self.key, observation);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.ended {
            let took = self.telemetry.entries.clock().now().since(self.begun);
            self.observe(Observation::Loaded(self, LoadEnd::Gone, took, None));
        }
    }
}

/// Leaves the span of a load, also when the work panics.
struct Inside<'a>(Option<Entered<'a>>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let entered = self.0.take();
        shielded(|| drop(entered));
    }
}

#[cfg(feature = "metrics")]
mod numbers {
    //! The numbers, for the recorder that was installed when the cache was made.

    use leasehold::entries::shielded;
    use metrics::{
        Counter, Histogram, Label, Unit, counter, describe_counter, describe_histogram, histogram,
    };

    use super::{CAUSES, LOADS, Observation};

    const READ: &str = "leasehold_cache_read_total";
    const WAIT: &str = "leasehold_cache_wait_seconds";
    const LOAD: &str = "leasehold_cache_load_total";
    const LOAD_TIME: &str = "leasehold_cache_load_seconds";
    const LEASE_LOST: &str = "leasehold_cache_lease_lost_total";
    const EARLY_REFRESH: &str = "leasehold_cache_early_refresh_total";
    const BACK_OFF: &str = "leasehold_cache_back_off_total";
    const INVALIDATE: &str = "leasehold_cache_invalidate_total";

    /// The outcomes of a read.
    #[rustfmt::skip]
    const READS: [&str; 9] =
        ["fresh", "stale", "loaded", "waited", "nothing", "busy", "failed", "unavailable", "cancelled"];

    /// The numbers, with their descriptions.
    #[rustfmt::skip]
    const NUMBERS: [(&str, &str); 8] = [
        (READ, "Reads of cache entries by their outcome; busy is an answer and no error"),
        (WAIT, "How long readers of cache entries waited, by the outcome"),
        (LOAD, "Loads by what became of them, and whether they outlived their lease"),
        (LOAD_TIME, "How long loaders took, however that ended"),
        (LEASE_LOST, "Leases of loads that ended before the load, by their cause"),
        (EARLY_REFRESH, "Refreshes that were asked for before the value expired"),
        (BACK_OFF, "Back-offs after a load that failed, here or elsewhere"),
        (INVALIDATE, "Invalidations and removals, by whether the store confirmed them"),
    ];

    /// The numbers of the entries that share a label.
    pub(super) struct Series {
        reads: [Counter; READS.len()],
        waits: [Histogram; READS.len()],
        /// Of loads in time, and of late ones.
        loads: [[Counter; LOADS.len()]; 2],
        load_time: Histogram,
        leases_lost: [Counter; CAUSES.len()],
        early_refreshes: Counter,
        back_offs: Counter,
        /// Unconfirmed, and confirmed.
        invalidations: [Counter; 2],
    }

    impl Series {
        /// Describes and registers all numbers, so they show zero at first.
        pub(super) fn of(labels: &[Option<String>]) -> Vec<Self> {
            for (name, text) in NUMBERS {
                if name.ends_with("_seconds") {
                    describe_histogram!(name, Unit::Seconds, text);
                } else {
                    describe_counter!(name, Unit::Count, text);
                }
            }
            let labels = labels.iter().map(Option::as_deref);
            labels.map(Self::new).collect()
        }

        pub(super) fn observe(&self, observation: Observation<'_>) {
            let counter = match observation {
                Observation::Read(outcome, waited) => {
                    let place = READS.iter().position(|word| *word == outcome);
                    let place = place.unwrap_or_default();
                    if let Some(waited) = waited {
                        shielded(|| self.waits[place].record(waited));
                    }
                    &self.reads[place]
                }
                Observation::RefreshesEarly => &self.early_refreshes,
                Observation::BacksOff(_) => &self.back_offs,
                Observation::Invalidated(error) => {
                    &self.invalidations[usize::from(error.is_none())]
                }
                Observation::LeaseLost(_, how) => &self.leases_lost[how as usize],
                Observation::Loaded(load, end, took, _) => {
                    shielded(|| self.load_time.record(took));
                    &self.loads[usize::from(load.late)][end as usize]
                }
            };
            shielded(|| counter.increment(1));
        }

        fn new(label: Option<&str>) -> Self {
            let with = |more: &[(&'static str, &'static str)]| -> Vec<Label> {
                let key = label.map(|label| Label::new("key", label.to_owned()));
                let more = more.iter().map(|(name, value)| Label::new(*name, *value));
                key.into_iter().chain(more).collect()
            };
            let counter = |name: &'static str, more: &[(&'static str, &'static str)]| {
                let counter = counter!(name, with(more));
                counter.increment(0);
                counter
            };
            let loads = |late: &'static str| {
                LOADS.map(|word| {
                    let labels = [("outcome", word), ("late", late)];
                    counter(LOAD, &labels)
                })
            };
            let wait = |word: &'static str| match word {
                // These are served at once, or say nothing about the duration of loads.
                "fresh" | "nothing" | "unavailable" => Histogram::noop(),
                _ => histogram!(WAIT, with(&[("outcome", word)])),
            };
            Self {
                reads: READS.map(|word| counter(READ, &[("outcome", word)])),
                waits: READS.map(wait),
                loads: ["false", "true"].map(loads),
                load_time: histogram!(LOAD_TIME, with(&[])),
                leases_lost: CAUSES.map(|word| counter(LEASE_LOST, &[("cause", word)])),
                early_refreshes: counter(EARLY_REFRESH, &[]),
                back_offs: counter(BACK_OFF, &[]),
                invalidations: ["unconfirmed", "confirmed"]
                    .map(|word| counter(INVALIDATE, &[("outcome", word)])),
            }
        }
    }
}
