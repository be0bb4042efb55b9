//! The numbers of cache entries. A key becomes a label only if it was declared, as with names of locks.

use std::time::Duration;

use metrics::{
    Counter, Histogram, Label, Unit, counter, describe_counter, describe_histogram, histogram,
};

use super::cache_outcome::{LeaseLost, Load, Read};
use super::counting::{count, zero};
use super::shield::shielded;

const READ: &str = "leasehold_cache_read_total";
const WAIT: &str = "leasehold_cache_wait_seconds";
const LOAD: &str = "leasehold_cache_load_total";
const LOAD_TIME: &str = "leasehold_cache_load_seconds";
const LOST: &str = "leasehold_cache_lease_lost_total";
const EARLY: &str = "leasehold_cache_early_refresh_total";
const BACK_OFF: &str = "leasehold_cache_back_off_total";
const INVALIDATE: &str = "leasehold_cache_invalidate_total";

const READS: [Read; 9] = [
    Read::Fresh,
    Read::Stale,
    Read::Loaded,
    Read::Waited,
    Read::Nothing,
    Read::Busy,
    Read::Failed,
    Read::Unavailable,
    Read::Cancelled,
];

/// The outcomes of reads that may have waited. A read without a value says nothing about the duration of loads.
const WAITS: [Read; 6] = [
    Read::Stale,
    Read::Loaded,
    Read::Waited,
    Read::Busy,
    Read::Failed,
    Read::Cancelled,
];

const LOADS: [Load; 8] = [
    Load::Fresh,
    Load::Stale,
    Load::Overtaken,
    Load::Unconfirmed,
    Load::Nothing,
    Load::Failed,
    Load::Panicked,
    Load::Gone,
];

/// The numbers of the entries that share a label.
pub(super) struct EntryMeters {
    reads: [(Read, Counter); READS.len()],
    waits: [(Read, Histogram); WAITS.len()],
    in_time: [(Load, Counter); LOADS.len()],
    late: [(Load, Counter); LOADS.len()],
    took: Histogram,
    lost: [(LeaseLost, Counter); 2],
    early: Counter,
    back_offs: Counter,
    invalidations: [(bool, Counter); 2],
}

impl EntryMeters {
    pub(super) fn new(key: Option<&str>) -> Self {
        let with = |more: &[(&'static str, &'static str)]| -> Vec<Label> {
            let key = key.map(|key| Label::new("key", key.to_owned()));
            let more = more.iter().map(|(name, value)| Label::new(*name, *value));
            key.into_iter().chain(more).collect()
        };
        let number = |name: &'static str, more: &[_]| zero(counter!(name, with(more)));
        let loads = |late| {
            LOADS.map(|outcome| {
                let labels = [("outcome", outcome.as_str()), ("late", late)];
                (outcome, number(LOAD, &labels))
            })
        };
        Self {
            reads: READS.map(|outcome| (outcome, number(READ, &[("outcome", outcome.as_str())]))),
            waits: WAITS.map(|outcome| {
                let labels = with(&[("outcome", outcome.as_str())]);
                (outcome, histogram!(WAIT, labels))
            }),
            in_time: loads("false"),
            late: loads("true"),
            took: histogram!(LOAD_TIME, with(&[])),
            lost: [LeaseLost::Deadline, LeaseLost::NotHeld]
                .map(|cause| (cause, number(LOST, &[("cause", cause.as_str())]))),
            early: number(EARLY, &[]),
            back_offs: number(BACK_OFF, &[]),
            invalidations: [(true, "confirmed"), (false, "unconfirmed")]
                .map(|(is_sure, word)| (is_sure, number(INVALIDATE, &[("outcome", word)]))),
        }
    }

    pub(super) fn read(&self, outcome: Read) {
        shielded(|| count(&self.reads, &outcome));
    }

    pub(super) fn waited(&self, outcome: Read, waited: Duration) {
        let mut waits = self.waits.iter();
        if let Some((_, histogram)) = waits.find(|(of, _)| *of == outcome) {
            shielded(|| histogram.record(waited));
        }
    }

    pub(super) fn loaded(&self, outcome: Load, late: bool, took: Duration) {
        let loads = if late { &self.late } else { &self.in_time };
        shielded(|| count(loads, &outcome));
        shielded(|| self.took.record(took));
    }

    pub(super) fn lease_lost(&self, how: LeaseLost) {
        shielded(|| count(&self.lost, &how));
    }

    pub(super) fn refreshed_early(&self) {
        shielded(|| self.early.increment(1));
    }

    pub(super) fn backed_off(&self) {
        shielded(|| self.back_offs.increment(1));
    }

    pub(super) fn invalidated(&self, is_sure: bool) {
        shielded(|| count(&self.invalidations, &is_sure));
    }
}

pub(super) fn describe() {
    describe_counter!(
        READ,
        Unit::Count,
        "Reads of cache entries by their outcome; busy is an answer and no error"
    );
    describe_histogram!(
        WAIT,
        Unit::Seconds,
        "How long readers of cache entries waited, by the outcome"
    );
    describe_counter!(
        LOAD,
        Unit::Count,
        "Loads by what became of them, and whether they outlived their lease"
    );
    describe_histogram!(
        LOAD_TIME,
        Unit::Seconds,
        "How long loaders took, however that ended"
    );
    describe_counter!(
        LOST,
        Unit::Count,
        "Leases of loads that ended before the load, by their cause"
    );
    describe_counter!(
        EARLY,
        Unit::Count,
        "Refreshes that were asked for before the value expired"
    );
    describe_counter!(
        BACK_OFF,
        Unit::Count,
        "Back-offs after a load that failed, here or elsewhere"
    );
    describe_counter!(
        INVALIDATE,
        Unit::Count,
        "Invalidations and removals, by whether the store confirmed them"
    );
}
