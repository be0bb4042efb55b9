//! The verdict on a history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::campaign::FaultKind;
use crate::history::invariant::Invariant;

/// The verdict on a history; `Display` is the report for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the run.
    pub run: String,
    /// Its seed.
    pub seed: u64,
    /// The system that was judged.
    pub system: String,
    /// Whether the run had to show violations.
    pub control: bool,
    /// The result.
    pub status: Status,
    /// The numbers of judged items.
    pub counts: Counts,
    /// The number of violations of each invariant.
    pub found: BTreeMap<Invariant, u64>,
    /// The number of violations that a control had to show.
    pub shown: u64,
    /// The first violation of each invariant, with those that a control had to show.
    pub violations: Vec<Violation>,
    /// The parts that were not judged, with the reasons.
    pub not_judged: Vec<String>,
}

/// The result of a judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// No violation; or a control showed the expected ones and no other.
    Clean,
    /// An invariant is violated.
    Violated,
    /// The run proves nothing, for this reason.
    Invalid(String),
}

/// The numbers of judged items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Worker processes with an operation.
    pub processes: u64,
    /// Acquired leases.
    pub acquisitions: u64,
    /// Operations of workers.
    pub operations: u64,
    /// Operations without an outcome: unknown, or interrupted by the death of their process.
    pub unknown: u64,
    /// Refused acquires.
    pub refused: u64,
    /// Decisions of the resource.
    pub decisions: u64,
    /// Accepted writes.
    pub accepted_writes: u64,
    /// Refused reads and writes.
    pub refused_decisions: u64,
    /// Recorded removals.
    pub removals: u64,
    /// Holders that were told of a loss.
    pub told_lost: u64,
    /// The longest time from the deadline to the loss report of a holder that was not stopped, in microseconds.
    pub told_latest_us: Option<i64>,
    /// How often the store lost its data.
    pub epochs: u32,
    /// The faults.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// One violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The lock, if it concerns one.
    pub lock: Option<String>,
    /// A description in one sentence.
    pub sentence: String,
    /// The lines that show it, in order of time, with the faults between them.
    pub window: Vec<Moment>,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `file:line`.
    pub place: String,
    /// Its time.
    pub at_ns: u64,
    /// The worker, if it concerns one.
    pub proc: Option<u64>,
    /// Its description.
    pub text: String,
    /// A lease is valid from here on.
    pub begins: bool,
    /// It is not from here on.
    pub ends: bool,
}
