//! I1, I2 and I3: the leases of one lock. An acquire without a known outcome is never blamed.

use std::collections::HashMap;

use super::findings::{Findings, milliseconds};
use crate::history::campaign::Resource;
use crate::history::format::{LeaseMode, Operation};
use crate::history::invariant::Invariant::{Exclusion, FenceOrder, UniqueFence};
use crate::history::joined::{History, add_span, by_lock, last_begun};
use crate::history::lease::{Lease, Scope, Span};

/// A lease with its fence, and the epoch of that, if it is certain.
type Fenced<'a> = (&'a Lease, u64, Option<u32>);

pub(super) fn judge(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut acquires = by_lock(history.acquires(), |acquire| &acquire.lock);
    for (lock, leases) in by_lock(&history.leases, |lease| &lease.lock) {
        let mut fenced: Vec<Fenced<'_>> = Vec::new();
        for &lease in &leases {
            // The clock does not matter to the drawing of a fence.
            let epoch = history.epoch_of(&lease.lock, lease.invoked_ns, lease.acquired_ns);
            match lease.fence {
                Some(fence) => fenced.push((lease, fence, epoch)),
                None if history.campaign.resource == Resource::Unfenced => {}
                None if history.campaign.nodes > 0 && lease.is_shared() => {}
                None => findings.add(UniqueFence, format!("{lease} has no fence"), &[lease]),
            }
        }
        unique(findings, &mut fenced);
        let acquires = acquires.remove(lock).unwrap_or_default();
        let unheard = Unheard::new(history, acquires);
        one_phase(findings, &fenced, &unheard);
        ordered(findings, &mut fenced, &unheard);
        over_in_order(findings, &mut fenced);
        exclusive(findings, &leases);
        findings.overlaps += overlaps(&leases);
    }
}

/// I1: sorted by fence, equal fences are neighbours. Readers that hold together have one.
fn unique(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>]) {
    fenced.sort_by_key(|(lease, fence, epoch)| (*fence, *epoch, lease.mode, lease.invoked_ns));
    for pair in fenced.windows(2) {
        let [(one, fence, epoch), (other, other_fence, other_epoch)] = pair else {
            continue;
        };
        let is_phase = one.is_shared() && other.is_shared();
        if fence == other_fence && epoch.is_some() && epoch == other_epoch && !is_phase {
            let sentence = format!("{one} and {other} got the same fence, {fence}");
            findings.add(UniqueFence, sentence, &[*one, *other]);
        }
    }
}

/// The times in which readers of a lock may have held it without a line about that: while they asked, since a stopped process may not
/// have heard of a grant before that was over; and later, if there is no outcome.
struct Unheard {
    /// Disjoint, in order.
    times: Vec<(u64, u64)>,
    /// Each beginning, in order, with the latest end of those so far.
    begun: Vec<(u64, u64)>,
}

impl Unheard {
    fn new(history: &History, mut acquires: Vec<&Operation>) -> Self {
        acquires.retain(|acquire| acquire.mode == LeaseMode::Shared);
        acquires.sort_by_key(|acquire| acquire.invoked_ns);
        let (mut times, mut begun, mut latest) = (Vec::new(), Vec::new(), 0);
        for acquire in acquires {
            let span = match history.lease(acquire.lease) {
                Some(lease) => (acquire.invoked_ns, lease.acquired_ns),
                None => history.may_hold(acquire),
            };
            latest = span.1.max(latest);
            begun.push((span.0, latest));
            add_span(&mut times, span);
        }
        Self { times, begun }
    }

    /// Until when some of them may have held the lock, from then on.
    fn until(&self, at_ns: u64) -> u64 {
        let open = last_begun(&self.times, at_ns);
        open.map_or(at_ns, |(_, end)| end.max(at_ns))
    }

    /// The first beginning of those that may have held it at that time.
    fn since(&self, at_ns: u64) -> u64 {
        let over = self.begun.partition_point(|(_, end)| *end < at_ns);
        let first = self.begun.get(over);
        first.map_or(at_ns, |(from, _)| at_ns.min(*from))
    }
}

/// I1: in order of invocation, the readers of one fence are one phase: each one came before all of those before it had left, as far as
/// anybody knows.
fn one_phase(findings: &mut Findings<'_>, fenced: &[Fenced<'_>], unheard: &Unheard) {
    let history = findings.history;
    let mut phase: Option<(Fenced<'_>, u64)> = None;
    for &reader in fenced.iter().filter(|(lease, ..)| lease.is_shared()) {
        let (lease, fence, epoch) = reader;
        let until = history.may_last(lease);
        phase = Some(match phase {
            Some(((last, its, its_epoch), latest)) if its == fence && its_epoch == epoch => {
                let latest = unheard.until(latest);
                if epoch.is_some() && lease.invoked_ns > latest {
                    let sentence = format!(
                        "{lease} got fence {fence} of the readers before it, when all of them had left"
                    );
                    findings.add(UniqueFence, sentence, &[last, lease]);
                }
                if until > latest {
                    (reader, until)
                } else {
                    ((last, its, its_epoch), latest)
                }
            }
            _ => (reader, until),
        });
    }
}

/// I2: in order of invocation, the highest fence completed before. A store that lost its last writes may still have a phase of readers,
/// which others join: such a reader is not compared.
fn ordered(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>], unheard: &Unheard) {
    let history = findings.history;
    let mut phases: HashMap<u64, u64> = HashMap::new();
    for (lease, fence, _) in fenced.iter().filter(|(lease, ..)| lease.is_shared()) {
        let since = unheard.since(lease.invoked_ns);
        let begun = phases.entry(*fence).or_insert(since);
        *begun = since.min(*begun);
    }
    let mut completed = fenced.to_vec();
    completed.sort_by_key(|(lease, ..)| lease.acquired_ns);
    fenced.sort_by_key(|(lease, ..)| lease.invoked_ns);
    let mut before = completed.into_iter().peekable();
    let mut highest: HashMap<Scope, Fenced<'_>> = HashMap::new();
    for &(lease, fence, epoch) in &*fenced {
        while let Some(ended) = before.next_if(|(it, ..)| it.acquired_ns < lease.invoked_ns) {
            for part in ended.0.takes() {
                let of_part = highest.entry(part).or_insert(ended);
                if ended.1 > of_part.1 {
                    *of_part = ended;
                }
            }
        }
        // A process hands on a lock that was broken until it knows.
        let is_broken = lease.broken_ns.is_some_and(|at| at <= lease.acquired_ns);
        let begun = phases.get(&fence).filter(|_| lease.is_shared());
        let is_kept = begun.is_some_and(|begun| {
            let epoch = history.epoch_of(&lease.lock, *begun, lease.acquired_ns);
            epoch.is_none()
        });
        if is_broken || is_kept {
            continue;
        }
        let before = comparable(lease).filter_map(|part| highest.get(&part).copied());
        let Some((earlier, its, its_epoch)) = before.max_by_key(|(_, fence, _)| *fence) else {
            continue;
        };
        // Equal fences of one epoch are a matter of I1, as are those of readers.
        let is_phase = lease.is_shared() && earlier.is_shared();
        let twins = its == fence && (is_phase || epoch.is_some() && epoch == its_epoch);
        if its >= fence && !twins {
            let sentence = format!(
                "{earlier} was complete, with fence {its}, before {lease} was asked for, and that got {fence}"
            );
            findings.add(FenceOrder, sentence, &[earlier, lease]);
        }
    }
}

/// The leases whose fences say which came first: those that it excludes, and readers of one lock.
fn comparable(lease: &Lease) -> impl Iterator<Item = Scope> {
    let readers = lease.is_shared().then_some(Scope::Readers);
    lease.excludes().chain(readers)
}

/// I2: in order of fences, the longest validity of the lower ones of each era. Readers of one phase do not hide those of the phase before.
fn over_in_order(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>]) {
    fenced.sort_by_key(|(_, fence, _)| *fence);
    let in_eras = fenced.iter().filter_map(|&(lease, fence, _)| {
        let (era, end) = lease.end_in_first_era()?;
        Some((lease, fence, era, end))
    });
    let in_eras: Vec<_> = in_eras.collect();
    let mut longest: HashMap<(u32, Scope), (&Lease, u64, u64)> = HashMap::new();
    for equals in in_eras.chunk_by(|(_, fence, ..), (_, next, ..)| fence == next) {
        for &(lease, fence, era, end) in equals {
            let lower = comparable(lease).filter_map(|part| longest.get(&(era, part)).copied());
            let Some((lower, its, until)) = lower.max_by_key(|(_, _, until)| *until) else {
                continue;
            };
            // An overlap is a matter of I3, but for readers.
            let apart = lower.acquired_ns >= end || lower.is_shared() && lease.is_shared();
            if until > lease.acquired_ns && apart {
                let sentence = format!(
                    "{lower} has fence {its} but was not over before {lease} with fence {fence}"
                );
                findings.add(FenceOrder, sentence, &[lower, lease]);
            }
        }
        for &(lease, fence, era, end) in equals {
            for part in lease.takes() {
                let of_part = longest.entry((era, part)).or_insert((lease, fence, end));
                if end > of_part.2 {
                    *of_part = (lease, fence, end);
                }
            }
        }
    }
}

/// How many leases began before the end of an earlier one that excludes them, by what both holders knew. I3 says which of them nothing
/// excuses.
fn overlaps(leases: &[&Lease]) -> u64 {
    let mut leases = leases.to_vec();
    leases.sort_by_key(|lease| lease.acquired_ns);
    let mut latest: HashMap<Scope, u64> = HashMap::new();
    let mut count = 0;
    for lease in leases {
        let over = lease.over.map_or(u64::MAX, |(at, _)| at);
        let end = lease.deadline_ns.unwrap_or(lease.used_ns).min(over);
        let before = lease.excludes().filter_map(|part| latest.get(&part));
        if before
            .max()
            .is_some_and(|before| lease.acquired_ns < end.min(*before))
        {
            count += 1;
        }
        for part in lease.takes() {
            let of_part = latest.entry(part).or_default();
            *of_part = end.max(*of_part);
        }
    }
    count
}

/// I3: sorted by their beginning, a span overlaps an earlier one of its era that excludes it if it begins before the latest end so far.
fn exclusive(findings: &mut Findings<'_>, leases: &[&Lease]) {
    for lease in leases {
        if let (LeaseMode::Slot(slots), Some(slot)) = (lease.mode, lease.slot)
            && !(1..=slots).contains(&slot)
        {
            let sentence = format!("{lease} has slot {slot} of {slots}");
            findings.add(Exclusion, sentence, &[*lease]);
        }
    }
    let spans = leases
        .iter()
        .flat_map(|&lease| lease.spans().map(move |span| (lease, span)));
    let mut spans: Vec<(&Lease, Span)> = spans.collect();
    spans.sort_by_key(|(_, span)| span.from_ns);
    let mut latest: HashMap<(u32, Scope), (&Lease, Span)> = HashMap::new();
    for (lease, span) in spans {
        let others = lease.excludes();
        let others = others.filter_map(|part| latest.get(&(span.era, part)).copied());
        let others = others.filter(|(other, _)| !std::ptr::eq(lease, *other));
        if let Some((other, of)) = others.max_by_key(|(_, of)| of.to_ns)
            && span.from_ns < of.to_ns
        {
            let both = milliseconds(span.to_ns.min(of.to_ns) - span.from_ns);
            let sentence = format!("{other} and {lease} are both valid for {both}");
            findings.add(Exclusion, sentence, &[other, lease]);
        }
        for part in lease.takes() {
            let of_part = latest.entry((span.era, part)).or_insert((lease, span));
            if span.to_ns > of_part.1.to_ns {
                *of_part = (lease, span);
            }
        }
    }
}
