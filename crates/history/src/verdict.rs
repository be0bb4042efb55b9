//! What is said of a history. Must never say more than was found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::campaign::FaultKind;
use crate::history::History;
use crate::invariant::Invariant;
use crate::records::Source;

/// What is said of a history; `Display` is the report for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What the run is called.
    pub run: String,
    /// What it was drawn from.
    pub seed: u64,
    /// The system that was judged.
    pub system: String,
    /// Whether violations were to be shown.
    pub control: bool,
    /// What comes of it all.
    pub status: Status,
    /// How much was looked at.
    pub counts: Counts,
    /// How many violations of each invariant there are.
    pub found: BTreeMap<Invariant, u64>,
    /// How many of them a control was to show.
    pub shown: u64,
    /// The first of each invariant, with what a control was to show.
    pub violations: Vec<Violation>,
    /// What was not judged, and why.
    pub not_judged: Vec<String>,
}

/// What comes of a judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Nothing is wrong; or a control showed what it was to show and nothing else.
    Clean,
    /// An invariant does not hold.
    Violated,
    /// The run says nothing, for this reason.
    Invalid(String),
}

/// How much was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Worker processes that did something.
    pub processes: u64,
    /// Leases that were had.
    pub acquisitions: u64,
    /// Operations of workers.
    pub operations: u64,
    /// Those without an outcome: unknown, or their process died in them.
    pub unknown: u64,
    /// Acquires that were refused.
    pub refused: u64,
    /// What the resource decided.
    pub decisions: u64,
    /// Writes that it accepted.
    pub accepted_writes: u64,
    /// What it refused.
    pub refused_decisions: u64,
    /// Removals that somebody wrote down.
    pub removals: u64,
    /// Holders that were told of a loss.
    pub told_lost: u64,
    /// How long after its deadline a holder that was not stopped was told at the latest, in microseconds.
    pub told_latest_us: Option<i64>,
    /// How often the store lost its data.
    pub epochs: u32,
    /// What the nemesis did.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// A promise that was broken, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// The lock, if it is of one.
    pub lock: Option<String>,
    /// What happened, in one sentence.
    pub sentence: String,
    /// The lines that show it, in order of time, with the faults between them.
    pub window: Vec<Moment>,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `file:line`.
    pub place: String,
    /// When.
    pub at_ns: u64,
    /// The worker, if it is of one.
    pub proc: Option<u64>,
    /// What it says.
    pub text: String,
    /// A lease is valid from here on.
    pub begins: bool,
    /// It is not from here on.
    pub ends: bool,
}

/// How many violations of each invariant are kept with their window.
const KEPT: u64 = 5;
/// How many faults a window shows.
const FAULTS_SHOWN: usize = 6;

/// What was found so far.
pub(crate) struct Findings<'a> {
    pub(crate) history: &'a History,
    pub(crate) found: BTreeMap<Invariant, u64>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) not_judged: Vec<String>,
    pub(crate) told_latest_us: Option<i64>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(history: &'a History) -> Self {
        Self {
            history,
            found: BTreeMap::new(),
            violations: Vec::new(),
            not_judged: Vec::new(),
            told_latest_us: None,
        }
    }

    pub(crate) fn add(
        &mut self,
        invariant: Invariant,
        lock: Option<u32>,
        sentence: String,
        mut window: Vec<Moment>,
    ) {
        let count = self.found.entry(invariant).or_default();
        *count += 1;
        if *count > KEPT {
            return;
        }
        self.add_faults(&mut window);
        window.sort_by_key(|moment| moment.at_ns);
        self.violations.push(Violation {
            invariant,
            lock: lock.map(|lock| self.history.names.name(lock).to_owned()),
            sentence,
            window,
        });
    }

    /// The faults between the first moment and the last.
    fn add_faults(&self, window: &mut Vec<Moment>) {
        let from = window.iter().map(|moment| moment.at_ns).min();
        let to = window.iter().map(|moment| moment.at_ns).max();
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let faults = &self.history.faults;
        let first = faults.partition_point(|fault| fault.at_ns < from);
        let between = faults.iter().skip(first);
        for fault in between
            .take_while(|fault| fault.at_ns <= to)
            .take(FAULTS_SHOWN)
        {
            let until = fault.until_ns.map_or(String::new(), |until| {
                format!(", for {}", milliseconds(until - fault.at_ns))
            });
            let by = fault
                .by_ns
                .map_or(String::new(), |by| format!(", by {}", milliseconds(by)));
            window.push(Moment {
                place: self.history.place(fault.source),
                at_ns: fault.at_ns,
                proc: None,
                text: format!("{} {}{by}{until}", fault.kind.name(), fault.target),
                begins: false,
                ends: false,
            });
        }
    }

    pub(crate) fn moment(
        &self,
        source: Source,
        at_ns: u64,
        proc: Option<u64>,
        text: String,
    ) -> Moment {
        Moment {
            place: self.history.place(source),
            at_ns,
            proc,
            text,
            begins: false,
            ends: false,
        }
    }
}

/// Nanoseconds as milliseconds with three decimals, without rounding up.
pub(crate) fn milliseconds(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
}
