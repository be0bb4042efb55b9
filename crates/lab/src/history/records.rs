//! The records of a history, each with the line that it was read from.

use crate::history::campaign::FaultKind;
use crate::history::format::{OperationKind, Outcome};

/// One line of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// A worker process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// The time of its last line.
    pub(crate) last_ns: u64,
    pub(crate) killed_ns: Option<u64>,
    /// The times in which it was stopped: disjoint, in order.
    pub(crate) stops: Vec<(u64, u64)>,
    /// When it wrote a line although it was stopped or killed, if it did.
    pub(crate) unhurt_ns: Option<u64>,
}

impl Process {
    /// When it was last certainly alive, or when the nemesis reported its kill.
    pub(crate) fn end_ns(&self) -> u64 {
        self.last_ns.max(self.killed_ns.unwrap_or(0))
    }
}

/// An operation of a worker, and its outcome.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) proc: u64,
    pub(crate) what: OperationKind,
    pub(crate) lock: String,
    pub(crate) owner: String,
    pub(crate) invoked_ns: u64,
    pub(crate) invoked: Source,
    pub(crate) fence: Option<u64>,
    /// The deadline that its holder knew then.
    pub(crate) valid_until_ns: Option<u64>,
    pub(crate) done: Option<Completion>,
    /// The index of its lease.
    pub(crate) lease: Option<usize>,
}

impl Operation {
    pub(crate) fn is(&self, outcome: Outcome) -> bool {
        self.done.is_some_and(|done| done.outcome == outcome)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) at_ns: u64,
    pub(crate) outcome: Outcome,
    pub(crate) fence: Option<u64>,
    pub(crate) valid_until_ns: Option<u64>,
    pub(crate) source: Source,
}

/// A loss report: the holder was told that its lease is over.
#[derive(Debug)]
pub(crate) struct LossReport {
    pub(crate) proc: u64,
    pub(crate) lock: String,
    pub(crate) at_ns: u64,
    pub(crate) source: Source,
    pub(crate) lease: Option<usize>,
}

/// A decision of the resource.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) lock: String,
    pub(crate) proc: u64,
    pub(crate) write: bool,
    pub(crate) fence: Option<u64>,
    pub(crate) base: Option<u64>,
    pub(crate) value: u64,
    pub(crate) accepted: bool,
    pub(crate) highest: Option<u64>,
    pub(crate) at_ns: u64,
    pub(crate) source: Source,
}

/// The removal of a lock from the store.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) lock: String,
    pub(crate) by: String,
    /// The owner of the lock, or `none`.
    pub(crate) whose: String,
    pub(crate) at_ns: u64,
    pub(crate) source: Source,
}

/// A fault that the nemesis caused.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) target: String,
    pub(crate) at_ns: u64,
    pub(crate) until_ns: Option<u64>,
    /// How far a clock jumped.
    pub(crate) by_ns: Option<u64>,
    pub(crate) source: Source,
}
