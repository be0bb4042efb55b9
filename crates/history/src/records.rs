//! The records that a history is made of, each with the line that it was read from. Must never judge.

use std::collections::HashMap;

use crate::campaign::FaultKind;
use crate::format::{Outcome, What};

/// One line of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// The names of locks and owners, as numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<String, u32>,
    all: Vec<String>,
}

impl Names {
    pub(crate) fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.known.get(&name) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(name.clone());
        self.known.insert(name, number);
        number
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("?", String::as_str)
    }
}

/// What is known of a worker process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// The time of its last line.
    pub(crate) last_ns: u64,
    pub(crate) killed_ns: Option<u64>,
    /// From when to when it was stopped: apart from each other, in order of time.
    pub(crate) stops: Vec<(u64, u64)>,
    /// When it wrote a line although it was stopped or killed, if it did.
    pub(crate) unhurt_ns: Option<u64>,
}

impl Process {
    /// When it was last alive for certain, or the nemesis said that it had killed it.
    pub(crate) fn end_ns(&self) -> u64 {
        self.last_ns.max(self.killed_ns.unwrap_or(0))
    }
}

/// What a worker did, and what came of it.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) proc: u64,
    pub(crate) what: What,
    pub(crate) lock: u32,
    pub(crate) owner: u32,
    pub(crate) invoked_ns: u64,
    pub(crate) invoked: Source,
    pub(crate) fence: Option<u64>,
    /// The deadline that its holder then knew.
    pub(crate) valid_until_ns: Option<u64>,
    pub(crate) done: Option<Done>,
    /// Which of the leases it belongs to.
    pub(crate) lease: Option<usize>,
}

impl Operation {
    pub(crate) fn is(&self, outcome: Outcome) -> bool {
        self.done.is_some_and(|done| done.outcome == outcome)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) at_ns: u64,
    pub(crate) outcome: Outcome,
    pub(crate) fence: Option<u64>,
    pub(crate) valid_until_ns: Option<u64>,
    pub(crate) source: Source,
}

/// A lease's end as its holder was told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) proc: u64,
    pub(crate) lock: u32,
    pub(crate) at_ns: u64,
    pub(crate) source: Source,
    pub(crate) lease: Option<usize>,
}

/// What the resource decided.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) lock: u32,
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

/// A lock that was taken out of the store.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) lock: u32,
    pub(crate) by: u32,
    /// The owner that it belonged to, if any.
    pub(crate) whose: Option<u32>,
    pub(crate) at_ns: u64,
    pub(crate) source: Source,
}

/// What the nemesis did.
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
