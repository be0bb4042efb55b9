//! What happened in a campaign, joined. Must never judge.

use std::collections::BTreeMap;

use crate::campaign::Campaign;
use crate::lease::Lease;
use crate::records::{Decision, Fault, Names, Operation, Process, Removal, Source, Told};

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
