//! I1, I2 and I3: the leases of one lock. An acquire without a known outcome is never blamed.

use std::collections::HashMap;

use super::findings::{Findings, milliseconds};
use crate::history::campaign::Resource;
use crate::history::invariant::Invariant::{Exclusion, FenceOrder, UniqueFence};
use crate::history::joined::by_lock;
use crate::history::lease::{Lease, Span};

/// A lease with its fence, and the epoch of that, if it is certain.
type Fenced<'a> = (&'a Lease, u64, Option<u32>);

pub(super) fn judge(findings: &mut Findings<'_>) {
    let history = findings.history;
    for leases in by_lock(&history.leases, |lease| &lease.lock).into_values() {
        let mut fenced: Vec<Fenced<'_>> = Vec::new();
        for &lease in &leases {
            // The clock does not matter to the drawing of a fence.
            let epoch = history.epoch_of(&lease.lock, lease.invoked_ns, lease.acquired_ns);
            match lease.fence {
                Some(fence) => fenced.push((lease, fence, epoch)),
                None if history.campaign.resource == Resource::Unfenced => {}
                None => findings.add(UniqueFence, format!("{lease} has no fence"), &[lease]),
            }
        }
        unique(findings, &mut fenced);
        ordered(findings, &mut fenced);
        over_in_order(findings, &mut fenced);
        exclusive(findings, &leases);
        findings.overlaps += overlaps(&leases);
    }
}

/// I1: sorted by fence, equal fences are neighbours.
fn unique(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>]) {
    fenced.sort_by_key(|(_, fence, epoch)| (*fence, *epoch));
    for pair in fenced.windows(2) {
        let [(one, fence, epoch), (other, other_fence, other_epoch)] = pair else {
            continue;
        };
        if fence == other_fence && epoch.is_some() && epoch == other_epoch {
            let sentence = format!("{one} and {other} got the same fence, {fence}");
            findings.add(UniqueFence, sentence, &[*one, *other]);
        }
    }
}

/// I2: in order of invocation, the highest fence completed before.
fn ordered(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>]) {
    let mut completed = fenced.to_vec();
    completed.sort_by_key(|(lease, ..)| lease.acquired_ns);
    fenced.sort_by_key(|(lease, ..)| lease.invoked_ns);
    let mut before = completed.into_iter().peekable();
    let mut highest: Option<Fenced<'_>> = None;
    for &(lease, fence, epoch) in &*fenced {
        while let Some(ended) = before.next_if(|(it, ..)| it.acquired_ns < lease.invoked_ns) {
            if highest.is_none_or(|(_, most, _)| ended.1 > most) {
                highest = Some(ended);
            }
        }
        let Some((earlier, its, its_epoch)) = highest else {
            continue;
        };
        // Equal fences of one epoch are a matter of I1.
        let twins = its == fence && epoch.is_some() && epoch == its_epoch;
        if its >= fence && !twins {
            let sentence = format!(
                "{earlier} was complete, with fence {its}, before {lease} was asked for, and that got {fence}"
            );
            findings.add(FenceOrder, sentence, &[earlier, lease]);
        }
    }
}

/// I2: in order of fences, the longest validity of the lower ones of each era.
fn over_in_order(findings: &mut Findings<'_>, fenced: &mut [Fenced<'_>]) {
    fenced.sort_by_key(|(_, fence, _)| *fence);
    let mut longest: HashMap<u32, (&Lease, u64, u64)> = HashMap::new();
    for &(lease, fence, _) in &*fenced {
        let Some((era, end)) = lease.end_in_first_era() else {
            continue;
        };
        let same = longest.get(&era).copied();
        if let Some((lower, its, until)) = same {
            // An overlap is a matter of I3.
            let apart = lower.acquired_ns >= end;
            if its < fence && until > lease.acquired_ns && apart {
                let sentence =
                    format!("{lower} has fence {its} but began after {lease} with fence {fence}");
                findings.add(FenceOrder, sentence, &[lower, lease]);
            }
        }
        if same.is_none_or(|(_, _, until)| end > until) {
            longest.insert(era, (lease, fence, end));
        }
    }
}

/// How many leases began before the end of an earlier one, by what both holders knew. I3 says which of them nothing excuses.
fn overlaps(leases: &[&Lease]) -> u64 {
    let mut leases = leases.to_vec();
    leases.sort_by_key(|lease| lease.acquired_ns);
    let (mut latest, mut count) = (0, 0);
    for lease in leases {
        let over = lease.over.map_or(u64::MAX, |(at, _)| at);
        let end = lease.deadline_ns.unwrap_or(lease.used_ns).min(over);
        if lease.acquired_ns < latest.min(end) {
            count += 1;
        }
        latest = latest.max(end);
    }
    count
}

/// I3: sorted by their beginning, a span overlaps an earlier one of its era if it begins before the latest end so far.
fn exclusive(findings: &mut Findings<'_>, leases: &[&Lease]) {
    let spans = leases
        .iter()
        .flat_map(|&lease| lease.spans().map(move |span| (lease, span)));
    let mut spans: Vec<(&Lease, Span)> = spans.collect();
    spans.sort_by_key(|(_, span)| span.from_ns);
    let mut latest: HashMap<u32, (&Lease, Span)> = HashMap::new();
    for (lease, span) in spans {
        let same = latest.get(&span.era).copied();
        if let Some((other, of)) = same
            && span.from_ns < of.to_ns
            && !std::ptr::eq(lease, other)
        {
            let both = milliseconds(span.to_ns.min(of.to_ns) - span.from_ns);
            let sentence = format!("{other} and {lease} are both valid for {both}");
            findings.add(Exclusion, sentence, &[other, lease]);
        }
        if same.is_none_or(|(_, of)| span.to_ns > of.to_ns) {
            latest.insert(span.era, (lease, span));
        }
    }
}
