//! A campaign's history, joined from its files.

use std::collections::BTreeMap;

use crate::history::campaign::{Campaign, FaultKind};
use crate::history::format::{
    Decision, Fault, LossReport, Operation, OperationKind, Outcome, Removal, ServerStart, Source,
    Unwell,
};
use crate::history::lease::Lease;

/// A history: operations with outcomes and leases, the resource's decisions, and the faults.
#[derive(Debug, Default)]
pub struct History {
    pub(crate) campaign: Campaign,
    pub(crate) files: Vec<String>,
    pub(crate) processes: BTreeMap<u64, Process>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) told: Vec<LossReport>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) removals: Vec<Removal>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) calm: Option<u64>,
    pub(crate) starts: Vec<ServerStart>,
    /// The times in which the server, or the network path to it, did not work: disjoint, in order.
    pub(crate) outages: Vec<(u64, u64)>,
    /// The times whose effects were lost later: disjoint, in order.
    pub(crate) forgotten: Vec<(u64, u64)>,
    /// The times in which the server's clock jumped forward: disjoint, in order.
    pub(crate) set_forward: Vec<(u64, u64)>,
    /// The times in which the server's clock jumped back, and by how much: in order.
    pub(crate) set_back: Vec<(u64, u64, u64)>,
    pub(crate) unwell: Vec<Unwell>,
    /// The times in which too many nodes of a quorum were unwell for a majority: disjoint, in order.
    pub(crate) out_of_reach: Vec<(u64, u64)>,
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
    fn end_ns(&self) -> u64 {
        self.last_ns.max(self.killed_ns.unwrap_or(0))
    }
}

impl History {
    /// Sorts the faults, and joins those of the server and of each worker.
    pub(crate) fn join_faults(&mut self) {
        self.out_of_reach = self.without_majority();
        self.faults.sort_by_key(|fault| fault.at_ns);
        let faults = &self.faults;
        let spans = |of: fn(FaultKind) -> bool| {
            let mut spans = Vec::new();
            for fault in faults.iter().filter(|fault| of(fault.kind)) {
                add_span(&mut spans, fault.span());
            }
            spans
        };
        self.outages = spans(FaultKind::delays_requests);
        self.forgotten = spans(|kind| kind == FaultKind::Failover);
        self.set_forward = spans(|kind| kind == FaultKind::ClockForward);
        for fault in &self.faults {
            let (from, to) = fault.span();
            let worker = fault.worker();
            let process = worker.map(|proc| self.processes.entry(proc).or_default());
            match (fault.kind, process) {
                (FaultKind::StopWorker, Some(process)) => {
                    let until_ns = fault.until_ns.unwrap_or(u64::MAX);
                    add_span(&mut process.stops, (from, until_ns));
                }
                (FaultKind::KillWorker, Some(process)) => process.killed_ns = Some(from),
                (FaultKind::ClockBack, _) => {
                    self.set_back.extend(fault.by_ns.map(|by| (from, to, by)));
                }
                _ => {}
            }
        }
    }

    /// The times in which no majority of the nodes was in reach.
    fn without_majority(&self) -> Vec<(u64, u64)> {
        let recovery_ns = self.campaign.bounds.recovery_ns();
        let mut unwell: Vec<&Unwell> = self.unwell.iter().collect();
        unwell.sort_by_key(|unwell| unwell.at_ns);
        let mut nodes: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for unwell in unwell {
            let until_ns = unwell.until_ns.saturating_add(recovery_ns);
            let spans = nodes.entry(&unwell.target).or_default();
            add_span(spans, (unwell.at_ns, until_ns));
        }
        let spans = nodes.into_values().flatten();
        let mut changes: Vec<(u64, bool)> = spans
            .flat_map(|(from, to)| [(from, true), (to, false)])
            .collect();
        changes.sort_unstable();
        // The most nodes that a majority can do without.
        let spared = self.campaign.nodes.saturating_sub(1) / 2;
        let (mut count, mut since, mut times) = (0, 0, Vec::new());
        for (at_ns, falls_ill) in changes {
            if falls_ill {
                count += 1;
                if count == spared + 1 {
                    since = at_ns;
                }
            } else {
                if count == spared + 1 {
                    add_span(&mut times, (since, at_ns));
                }
                count -= 1;
            }
        }
        times
    }

    /// Whether a majority was in reach all the time.
    pub(crate) fn in_reach(&self, from_ns: u64, to_ns: u64) -> bool {
        last_begun(&self.out_of_reach, to_ns).is_none_or(|(_, end)| end < from_ns)
    }

    /// When a lease was over as far as anybody knows: its holder was told or has released it, or its process is dead.
    pub(crate) fn over_ns(&self, lease: &Lease) -> u64 {
        let release = lease.release.and_then(|at| self.operations.get(at));
        let released = release.and_then(|release| release.done);
        let known = lease.known_over_ns.or(released.map(|done| done.at_ns));
        known.unwrap_or_else(|| self.process_end_ns(lease.proc, lease.used_ns))
    }

    /// The end of the process of an operation that has none.
    pub(crate) fn process_end_ns(&self, proc: u64, begun_ns: u64) -> u64 {
        let process = self.processes.get(&proc);
        process.map_or(begun_ns, Process::end_ns)
    }

    /// The lease with this index.
    pub(crate) fn lease(&self, at: Option<usize>) -> Option<&Lease> {
        self.leases.get(at?)
    }

    /// The acquires, also those without an outcome.
    pub(crate) fn acquires(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.operations.iter();
        operations.filter(|operation| operation.what == OperationKind::Acquire)
    }

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

    /// The epoch of a lock in a time span, if it has only one, and only one server that may grant it.
    pub(crate) fn epoch_of(&self, lock: &str, from_ns: u64, to_ns: u64) -> Option<u32> {
        let begun = |at_ns| self.starts.partition_point(|start| start.at_ns <= at_ns);
        let epoch = |begun| {
            let mut before = self.starts.iter().take(begun).rev();
            let last = before.find(|start| start.concerns(lock));
            last.map_or(0, |start| start.epoch)
        };
        let (from, to) = (begun(from_ns), begun(to_ns));
        let mut after = self.starts.iter().skip(to);
        let next = after.find(|start| start.concerns(lock));
        let has_two = next
            .and_then(|start| start.since_ns)
            .is_some_and(|since| since <= to_ns);
        (epoch(from) == epoch(to) && !has_two).then(|| epoch(from))
    }

    /// The era of a deadline that was requested after `from` and known at a later time. In an era the store keeps its data and no
    /// lock ends early. `None` if the era is not certain. A lock that lasts until then was requested at most a TTL before it.
    pub(crate) fn era_of(
        &self,
        lock: &str,
        asked_ns: u64,
        known_ns: u64,
        until_ns: Option<u64>,
    ) -> Option<u32> {
        let epoch = self.epoch_of(lock, asked_ns, known_ns)?;
        let longest = until_ns.map(|until| until.saturating_sub(self.campaign.ttl_ns()));
        let asked_ns = longest.map_or(asked_ns, |longest| longest.min(asked_ns));
        let over = self.set_forward.partition_point(|(_, to)| *to <= asked_ns);
        let begun = self
            .set_forward
            .partition_point(|(from, _)| *from < known_ns);
        let steps = u32::try_from(begun).unwrap_or(u32::MAX);
        // Both only rise, and so does their sum.
        (over == begun).then(|| epoch.saturating_add(steps))
    }

    /// Until when the store may hold a lock that would end at `until_ns` on an undisturbed clock: longer by each step back.
    fn prolonged_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
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

    /// Whether the nemesis had stopped the process at some time in a span, the tolerance included.
    pub(crate) fn stopped(&self, proc: u64, from_ns: u64, to_ns: u64) -> bool {
        self.stopped_within(proc, from_ns, to_ns, self.campaign.bounds.scheduling_ns())
    }

    /// Whether the nemesis had stopped the process in a span, or no longer before or after it than that.
    pub(crate) fn stopped_within(&self, proc: u64, from_ns: u64, to_ns: u64, slack: u64) -> bool {
        self.processes.get(&proc).is_some_and(|process| {
            last_begun(&process.stops, to_ns.saturating_add(slack))
                .is_some_and(|(_, cont)| cont.saturating_add(slack) >= from_ns)
        })
    }

    /// The time at which the effects of this moment were lost, if they were: the store may be in an earlier state from then on.
    fn forgotten_ns(&self, at_ns: u64) -> Option<u64> {
        let failover = last_begun(&self.forgotten, at_ns);
        failover.map(|(_, lost)| lost).filter(|lost| *lost >= at_ns)
    }

    /// The time at which the server answers a request of this moment: at once, or at the end of the outage.
    fn served_ns(&self, at_ns: u64) -> u64 {
        let outage = last_begun(&self.outages, at_ns);
        outage.map_or(at_ns, |(_, end)| end.max(at_ns))
    }

    /// Whether an acquire may have got what another one of its process asked for before this time, and left behind without a lease.
    pub(crate) fn is_handed_on(&self, acquire: usize, before_ns: u64) -> bool {
        let (earlier, rest) = self.operations.split_at(acquire);
        let Some(acquire) = rest.first() else {
            return false;
        };
        let is_alike = |it: &Operation| {
            (it.what, it.proc, it.mode) == (OperationKind::Acquire, acquire.proc, acquire.mode)
                && it.lock == acquire.lock
        };
        let mut left = earlier
            .iter()
            .filter(|it| is_alike(it) && it.lease.is_none() && it.invoked_ns <= before_ns);
        left.any(|it| {
            let end_ns = it.done.map_or(u64::MAX, |done| done.at_ns);
            self.may_linger(it.invoked_ns, end_ns) >= acquire.invoked_ns
        })
    }

    /// The time in which an acquire may have had the lock: while in progress, as a lease, or as an orphan.
    pub(crate) fn may_hold(&self, acquire: &Operation) -> (u64, u64) {
        let from_ns = acquire.invoked_ns;
        let until = match (acquire.done, self.lease(acquire.lease)) {
            (_, Some(lease)) => self.held_until(lease),
            (Some(done), None) if done.outcome == Outcome::Refused => {
                self.back(from_ns, done.at_ns)
            }
            (Some(done), None) => self.may_linger(from_ns, done.at_ns),
            (None, None) => self.may_linger(from_ns, self.process_end_ns(acquire.proc, from_ns)),
        };
        (from_ns, until)
    }

    /// Until when the lease may have been in the store: until the reply to its release. Without one, until a TTL and the orphan
    /// bound after its last sign of life, which is the end of its process if the library may have renewed it.
    fn held_until(&self, lease: &Lease) -> u64 {
        let release = lease.release.and_then(|at| self.operations.get(at));
        let heard = match release.and_then(|release| release.done) {
            Some(done) if done.outcome != Outcome::Unknown => {
                let gone_ns = self.back(lease.invoked_ns, done.at_ns);
                // The holder reports it by its own deadline, and the store keeps it longer by the amount that its clock was set back.
                return if done.outcome == Outcome::Lost {
                    self.prolonged_ns(lease.invoked_ns, gone_ns)
                } else {
                    gone_ns
                };
            }
            Some(done) => done.at_ns,
            None if lease.is_told => lease.used_ns,
            None => self.process_end_ns(lease.proc, lease.used_ns),
        };
        self.may_linger(lease.invoked_ns, heard)
    }

    /// Until when the lease may have been in the store, if a loss that its holder reports says nothing about the store: a request that was
    /// delayed may have renewed it.
    pub(crate) fn may_last(&self, lease: &Lease) -> u64 {
        let release = lease.release.and_then(|at| self.operations.get(at));
        let until_ns = self.held_until(lease);
        match release {
            Some(release) if release.is(Outcome::Ok) => until_ns,
            _ => self.may_linger(lease.invoked_ns, until_ns),
        }
    }

    /// Until when the store may hold a lock that was certainly gone at that time: a TTL and the orphan bound after a failover to
    /// a replica that had not received the removal.
    fn back(&self, from_ns: u64, gone_ns: u64) -> u64 {
        let lost = self.forgotten_ns(gone_ns);
        lost.map_or(gone_ns, |lost| self.may_linger(from_ns, lost))
    }

    /// Until when the store may hold a lock that was requested at `from_ns` with the last sign of life at `heard_ns`: a TTL and
    /// the orphan bound, counted from the end of the outage at that time if any, plus the amount by which its clock was set back.
    pub(crate) fn may_linger(&self, from_ns: u64, heard_ns: u64) -> u64 {
        let heard_ns = self.forgotten_ns(heard_ns).unwrap_or(heard_ns);
        let until_ns = self
            .served_ns(heard_ns)
            .saturating_add(self.campaign.ttl_ns())
            .saturating_add(self.campaign.bounds.orphan_ns());
        self.prolonged_ns(from_ns, until_ns)
    }
}

/// Adds a span that begins no earlier than the last one, and merges them if they overlap. So they stay disjoint, and the ends are in
/// order as well.
pub(crate) fn add_span(spans: &mut Vec<(u64, u64)>, (from, to): (u64, u64)) {
    match spans.last_mut() {
        Some((_, end)) if from <= *end => *end = to.max(*end),
        _ => spans.push((from, to)),
    }
}

/// The last span that had begun by then, which is also the one with the latest end.
pub(crate) fn last_begun(times: &[(u64, u64)], at_ns: u64) -> Option<(u64, u64)> {
    let begun = times.partition_point(|(from, _)| *from <= at_ns);
    times.get(begun.checked_sub(1)?).copied()
}

/// The items of each lock, in the same order.
pub(crate) fn by_lock<'a, T>(
    items: impl IntoIterator<Item = &'a T>,
    lock: impl Fn(&'a T) -> &'a str,
) -> BTreeMap<&'a str, Vec<&'a T>> {
    let mut locks: BTreeMap<&str, Vec<&T>> = BTreeMap::new();
    for item in items {
        locks.entry(lock(item)).or_default().push(item);
    }
    locks
}
