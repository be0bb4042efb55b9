//! The numbers of a client, for the `metrics` recorder that was installed when the client was built. A lock's name becomes a label only if it
//! was declared, since each label is a time series for as long as the program runs.
//!
//! All metrics are registered when the client is built, so they show zero at first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::outcome::{Outcome, word};
use super::shield::shielded;
use crate::error::{LossCause, StoreErrorKind};

pub(super) const ON: bool = true;

const ACQUIRE: &str = "leasehold_acquire_total";
const WAIT: &str = "leasehold_wait_seconds";
const HOLD: &str = "leasehold_hold_seconds";
const HELD: &str = "leasehold_held";
const LOST: &str = "leasehold_lost_total";
const RENEW: &str = "leasehold_renew_seconds";
const STORE_ERRORS: &str = "leasehold_store_errors_total";

/// The label of locks whose names were not declared, where some were.
const OTHER: &str = "other";

/// The outcomes of requests that may have waited. The duration of the others says nothing about a busy lock.
const WAITS: [Outcome; 3] = [Outcome::Acquired, Outcome::Timeout, Outcome::Cancelled];

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
pub(super) struct Meters {
    pub(super) labels: Labels,
    /// In the order of the labels.
    all: Vec<Meter>,
    errors: [(StoreErrorKind, Counter); KINDS.len()],
}

/// The numbers of the locks that share a label.
#[derive(Clone)]
pub(super) struct Meter(Arc<Series>);

struct Series {
    asked: [(Outcome, Counter); Outcome::ALL.len()],
    waited: [(Outcome, Histogram); WAITS.len()],
    held: Gauge,
    hold: Histogram,
    lost: [(&'static str, Counter); 4],
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

impl Meters {
    pub(super) fn new(declared: &[String]) -> Self {
        describe();
        let labels = Labels::new(declared);
        Self {
            all: (labels.all.iter())
                .map(|label| Meter::new(label.as_deref()))
                .collect(),
            labels,
            errors: KINDS.map(|(kind, word)| (kind, zero(counter!(STORE_ERRORS, "kind" => word)))),
        }
    }

    /// The numbers of this lock. `None` is one whose name is not allowed.
    pub(super) fn of(&self, lock: Option<&str>) -> Meter {
        self.all[self.labels.of(lock)].clone()
    }

    pub(super) fn failed(&self, kind: StoreErrorKind) {
        shielded(|| count(&self.errors, &kind));
    }
}

impl Meter {
    fn new(lock: Option<&str>) -> Self {
        let with = |more: &[(&'static str, &'static str)]| -> Vec<Label> {
            let lock = lock.map(|lock| Label::new("lock", lock.to_owned()));
            let more = more.iter().map(|(key, value)| Label::new(*key, *value));
            lock.into_iter().chain(more).collect()
        };
        let held = gauge!(HELD, with(&[]));
        // Not set: another client may count there as well.
        held.increment(0.0);
        Self(Arc::new(Series {
            asked: Outcome::ALL.map(|outcome| {
                let labels = with(&[("outcome", outcome.as_str())]);
                (outcome, zero(counter!(ACQUIRE, labels)))
            }),
            waited: WAITS.map(|outcome| {
                let labels = with(&[("outcome", outcome.as_str())]);
                (outcome, histogram!(WAIT, labels))
            }),
            held,
            hold: histogram!(HOLD, with(&[])),
            lost: [
                word(&LossCause::Deadline(None)),
                word(&LossCause::NotHeld(None)),
                word(&LossCause::MaxHold),
                word(&LossCause::Closed),
            ]
            .map(|cause| (cause, zero(counter!(LOST, with(&[("cause", cause)]))))),
            renew: histogram!(RENEW, with(&[])),
        }))
    }

    pub(super) fn asked(&self, outcome: Outcome, waited: Duration) {
        shielded(|| count(&self.0.asked, &outcome));
        if let Some((_, histogram)) = self.0.waited.iter().find(|(of, _)| *of == outcome) {
            shielded(|| histogram.record(waited));
        }
    }

    pub(super) fn begun(&self) {
        shielded(|| self.0.held.increment(1.0));
    }

    pub(super) fn ended(&self, held: Duration) {
        shielded(|| self.0.held.decrement(1.0));
        shielded(|| self.0.hold.record(held));
    }

    pub(super) fn lost(&self, cause: &LossCause) {
        shielded(|| count(&self.0.lost, &word(cause)));
    }

    pub(super) fn renewed(&self, took: Duration) {
        shielded(|| self.0.renew.record(took));
    }
}

/// Registers the counter by adding zero.
fn zero(counter: Counter) -> Counter {
    counter.increment(0);
    counter
}

fn count<T: PartialEq>(counters: &[(T, Counter)], what: &T) {
    if let Some((_, counter)) = counters.iter().find(|(of, _)| of == what) {
        counter.increment(1);
    }
}

fn describe() {
    describe_counter!(
        ACQUIRE,
        Unit::Count,
        "Acquisitions by their outcome; busy and timeout are answers and no errors"
    );
    describe_histogram!(
        WAIT,
        Unit::Seconds,
        "How long acquisitions took, by their outcome"
    );
    describe_histogram!(HOLD, Unit::Seconds, "How long leases were held");
    describe_gauge!(HELD, Unit::Count, "Leases that are held now");
    describe_counter!(
        LOST,
        Unit::Count,
        "Leases that ended by themselves, by their cause"
    );
    describe_histogram!(
        RENEW,
        Unit::Seconds,
        "How long the store took to answer renewals, failures included"
    );
    describe_counter!(
        STORE_ERRORS,
        Unit::Count,
        "Requests to the store that failed, by the kind of failure"
    );
}
