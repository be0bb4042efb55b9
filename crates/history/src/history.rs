//! What happened in a campaign, joined. Must never judge.

use std::collections::BTreeMap;

use crate::format::{Outcome, What};
use crate::lease::Lease;
use crate::{Campaign, FaultKind};

/// A history that was read: operations with their outcomes, the leases they belong to, the resource's decisions, the faults.
#[derive(Debug)]
pub struct History {
    pub(crate) campaign: Campaign,
    pub(crate) files: Vec<String>,
    pub(crate) names: Names,
    pub(crate) processes: BTreeMap<u64, Process>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) told: Vec<Told>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) removals: Vec<Removal>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) calm: Option<(u64, Source)>,
    pub(crate) starts: Vec<(u64, u32)>,
    /// From when to when the server, or the way to it, did not work: apart from each other, in order of time.
    pub(crate) outages: Vec<(u64, u64)>,
    /// From when to when all that was done is lost since: apart from each other, in order of time.
    pub(crate) forgotten: Vec<(u64, u64)>,
    /// Between which times the server's clock jumped forward: apart from each other, in order of time.
    pub(crate) set_forward: Vec<(u64, u64)>,
    /// Between which times the server's clock jumped back, and by how much: in order of time.
    pub(crate) set_back: Vec<(u64, u64, u64)>,
}

impl History {
    /// `file:line`.
    pub(crate) fn place(&self, source: Source) -> String {
        let file = self.files.get(source.file as usize);
        format!("{}:{}", file.map_or("?", String::as_str), source.line)
    }

    /// The time of the last line of all.
    pub(crate) fn end_ns(&self) -> u64 {
        let processes = self.processes.values().map(|process| process.last_ns);
        let decisions = self.decisions.iter().map(|decision| decision.at_ns);
        processes.chain(decisions).max().unwrap_or(0)
    }

    /// The epoch at a time.
    pub(crate) fn epoch(&self, at_ns: u64) -> u32 {
        let after = self.starts.partition_point(|(start, _)| *start <= at_ns);
        match after.checked_sub(1).and_then(|at| self.starts.get(at)) {
            Some((_, epoch)) => *epoch,
            None => 0,
        }
    }

    /// The epoch of all between two times, if it is one.
    pub(crate) fn epoch_of(&self, from_ns: u64, to_ns: u64) -> Option<u32> {
        let epoch = self.epoch(from_ns);
        (epoch == self.epoch(to_ns)).then_some(epoch)
    }

    /// The era of a deadline that was asked for after one time and known at another: in an era the store keeps its data, and no lock
    /// ends before its time. `None` if that is not certain. What lasts until then was asked for no longer than a TTL before it.
    pub(crate) fn era_of(
        &self,
        asked_ns: u64,
        known_ns: u64,
        until_ns: Option<u64>,
    ) -> Option<u32> {
        let epoch = self.epoch_of(asked_ns, known_ns)?;
        let longest = until_ns.map(|until| until.saturating_sub(self.campaign.ttl_ns()));
        let asked_ns = longest.map_or(asked_ns, |longest| longest.min(asked_ns));
        let over = self.set_forward.partition_point(|(_, to)| *to <= asked_ns);
        let begun = self
            .set_forward
            .partition_point(|(from, _)| *from < known_ns);
        let steps = u32::try_from(begun).unwrap_or(u32::MAX);
        // Both only rise, and so does their sum with each of them.
        (over == begun).then(|| epoch.saturating_add(steps))
    }

    /// Until when the store may hold what would end at `until_ns` if the clock were not set back: what it may have held then lasts
    /// longer by the step.
    pub(crate) fn prolonged_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let before = self.set_back.partition_point(|(_, to, _)| *to < from_ns);
        let mut until_ns = until_ns;
        for (at_ns, _, by) in self.set_back.iter().skip(before) {
            if *at_ns > until_ns {
                break;
            }
            until_ns = until_ns.saturating_add(*by);
        }
        until_ns
    }

    /// Whether the nemesis had the process stopped at some time between two times, the tolerance included.
    pub(crate) fn stopped(&self, proc: u64, from_ns: u64, to_ns: u64) -> bool {
        let slack = self.campaign.bounds.scheduling_ns();
        self.processes.get(&proc).is_some_and(|process| {
            last_begun(&process.stops, to_ns.saturating_add(slack))
                .is_some_and(|(_, cont)| cont.saturating_add(slack) >= from_ns)
        })
    }

    /// When what was done at this time was lost, if it was: from then on the store may be as it was before.
    pub(crate) fn forgotten_ns(&self, at_ns: u64) -> Option<u64> {
        let failover = last_begun(&self.forgotten, at_ns);
        failover.map(|(_, lost)| lost).filter(|lost| *lost >= at_ns)
    }

    /// When the server works that was asked at this time: at once, or when what keeps it from that is over.
    pub(crate) fn served_ns(&self, at_ns: u64) -> u64 {
        let outage = last_begun(&self.outages, at_ns);
        outage.map_or(at_ns, |(_, end)| end.max(at_ns))
    }
}

/// Times in order of their beginning, those joined that meet: apart from each other, so that their ends are in order as well.
pub(crate) fn joined(times: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in times {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// The last of such times that had begun by then, which is also the one of the latest end.
pub(crate) fn last_begun(times: &[(u64, u64)], at_ns: u64) -> Option<(u64, u64)> {
    let begun = times.partition_point(|(from, _)| *from <= at_ns);
    times.get(begun.checked_sub(1)?).copied()
}

/// One line of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// The names of locks and owners, as numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: std::collections::HashMap<String, u32>,
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
