//! The sink of numbers, for the `metrics` recorder that was installed when the client was built. A lock's name becomes a label only if it
//! was declared, since each label is a time series for as long as the program runs.
//!
//! All metrics are registered when the client is built, so they show zero at first.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::observation::{How, Observation, Outcome, cause_word, shielded};
use crate::error::{Error, StoreErrorKind};

const ACQUIRE: &str = "leasehold_acquire_total";
const WAIT: &str = "leasehold_wait_seconds";
const HOLD: &str = "leasehold_hold_seconds";
const HELD: &str = "leasehold_held";
const LOST: &str = "leasehold_lost_total";
const RENEW: &str = "leasehold_renew_seconds";
const STORE_ERRORS: &str = "leasehold_store_errors_total";

/// The numbers, with their descriptions.
#[rustfmt::skip]
const NUMBERS: [(&str, &str); 7] = [
    (ACQUIRE, "Acquisitions by their outcome; busy and timeout are answers and no errors"),
    (WAIT, "How long acquisitions took, by their outcome"),
    (HOLD, "How long leases were held"),
    (HELD, "Leases that are held now"),
    (LOST, "Leases that ended by themselves, by their cause"),
    (RENEW, "How long the store took to answer renewals, failures included"),
    (STORE_ERRORS, "Requests to the store that failed, by the kind of failure"),
];

/// The label of locks whose names were not declared, where some were.
const OTHER: &str = "other";

/// The words of all outcomes of requests.
#[rustfmt::skip]
const OUTCOMES: [&str; 7] =
    ["acquired", "busy", "timeout", "unavailable", "denied", "invalid", "cancelled"];

/// The outcomes of requests that may have waited. The duration of the others says nothing about a busy lock.
const WAITS: [&str; 3] = ["acquired", "timeout", "cancelled"];

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
    errors: [(StoreErrorKind, Counter); KINDS.len()],
}

/// The numbers of the locks that share a label.
struct Series {
    asked: [(&'static str, Counter); OUTCOMES.len()],
    waited: [(&'static str, Histogram); WAITS.len()],
    held: Gauge,
    hold: Histogram,
    lost: [(&'static str, Counter); CAUSES.len()],
    renew: Histogram,
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
        let named = name.and_then(|name| self.names.get(name).copied().or_else(|| prefixed(name)));
        named.unwrap_or(self.all.len() - 1)
    }
}

impl Numbers {
    /// Describes and registers all numbers.
    pub(super) fn new(declared: &[String]) -> Self {
        for (name, text) in NUMBERS {
            match name {
                HELD => describe_gauge!(name, Unit::Count, text),
                _ if name.ends_with("_seconds") => describe_histogram!(name, Unit::Seconds, text),
                _ => describe_counter!(name, Unit::Count, text),
            }
        }
        let labels = Labels::new(declared);
        let all = labels.all.iter().map(Option::as_deref);
        Self {
            all: all.map(Series::new).collect(),
            labels,
            errors: KINDS.map(|(kind, word)| (kind, zero(counter!(STORE_ERRORS, "kind" => word)))),
        }
    }

    pub(super) fn observe(&self, observation: Observation<'_>) {
        match observation {
            Observation::Asked {
                lock,
                outcome,
                waited,
                ..
            } => {
                let (series, word) = (self.of(lock), outcome.word());
                count(&series.asked, &word);
                if let Some((_, histogram)) = series.waited.iter().find(|(of, _)| *of == word) {
                    record(histogram, waited);
                }
                if matches!(outcome, Outcome::Acquired(_)) {
                    shielded(|| series.held.increment(1.0));
                }
            }
            Observation::Ended(ended) => {
                let series = self.of(Some(ended.lock.as_str()));
                shielded(|| series.held.decrement(1.0));
                record(&series.hold, ended.held);
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
        let held = gauge!(HELD, with(&[]));
        // Not set: another client may count there as well.
        held.increment(0.0);
        Self {
            asked: OUTCOMES.map(|word| (word, zero(counter!(ACQUIRE, with(&[("outcome", word)]))))),
            waited: WAITS.map(|word| (word, histogram!(WAIT, with(&[("outcome", word)])))),
            held,
            hold: histogram!(HOLD, with(&[])),
            lost: CAUSES.map(|word| (word, zero(counter!(LOST, with(&[("cause", word)]))))),
            renew: histogram!(RENEW, with(&[])),
        }
    }
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
