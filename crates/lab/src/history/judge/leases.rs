//! I1, I2 and I3: the leases of one lock. An acquire without a known outcome is never blamed.

use super::findings::{Findings, milliseconds};
use crate::history::campaign::Resource;
use crate::history::invariant::Invariant::{Exclusion, FenceOrder, UniqueFence};
use crate::history::joined::History;
use crate::history::lease::{Lease, Span};

/// I1: sorted by fence, equal fences are neighbours.
pub(super) fn unique(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut fenced: Vec<(&Lease, u64, Option<u32>)> = Vec::new();
    for lease in &history.leases {
        let epoch = acquired_in(history, lease);
        match lease.fence {
            Some(fence) => fenced.push((lease, fence, epoch)),
            None if history.campaign.resource == Resource::Unfenced => {}
            None => findings.add(UniqueFence, format!("{lease} has no fence"), &[lease]),
        }
    }
    fenced.sort_by_key(|(lease, fence, epoch)| (&lease.lock, *fence, *epoch));
    for pair in fenced.windows(2) {
        let [(one, fence, epoch), (other, other_fence, other_epoch)] = pair else {
            continue;
        };
        if one.lock == other.lock && fence == other_fence && epoch.is_some() && epoch == other_epoch
        {
            let sentence = format!("{one} and {other} got the same fence, {fence}");
            findings.add(UniqueFence, sentence, &[*one, *other]);
        }
    }
}

/// The epoch of its fence, if it is certain. The clock does not matter to the drawing of a fence.
fn acquired_in(history: &History, lease: &Lease) -> Option<u32> {
    history.epoch_of(lease.invoked_ns, lease.acquired_ns)
}

/// I2: in order of invocation, the highest fence completed before; in order of fences, the longest validity of the lower
/// ones.
pub(super) fn ordered(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut fenced: Vec<(&Lease, u64)> = Vec::new();
    for lease in &history.leases {
        fenced.extend(lease.fence.map(|fence| (lease, fence)));
    }
    let mut completed = fenced.clone();
    completed.sort_by_key(|(lease, _)| (&lease.lock, lease.acquired_ns));
    fenced.sort_by_key(|(lease, _)| (&lease.lock, lease.invoked_ns));
    let mut before = completed.into_iter().peekable();
    let mut highest: Option<(&Lease, u64)> = None;
    for (lease, fence) in fenced {
        while let Some((ended, its)) = before.next_if(|(ended, _)| {
            (&ended.lock, ended.acquired_ns) < (&lease.lock, lease.invoked_ns)
        }) {
            if highest.is_none_or(|(top, most)| top.lock != ended.lock || its > most) {
                highest = Some((ended, its));
            }
        }
        let Some((earlier, its)) = highest.filter(|(top, _)| top.lock == lease.lock) else {
            continue;
        };
        // Equal fences of one epoch are a matter of I1.
        let epochs = [earlier, lease].map(|lease| acquired_in(history, lease));
        let twins = its == fence && epochs[0].is_some() && epochs[0] == epochs[1];
        if its >= fence && !twins {
            let sentence = format!(
                "{earlier} was complete, with fence {its}, before {lease} was asked for, and that got {fence}"
            );
            findings.add(FenceOrder, sentence, &[earlier, lease]);
        }
    }
    over_in_order(findings);
}

fn over_in_order(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut fenced: Vec<(&Lease, u64, u32, u64)> = Vec::new();
    for lease in &history.leases {
        if let (Some(fence), Some((era, end))) = (lease.fence, lease.end_in_first_era()) {
            fenced.push((lease, fence, era, end));
        }
    }
    fenced.sort_by_key(|(lease, fence, era, _)| (&lease.lock, *era, *fence));
    let mut longest: Option<(&Lease, u64, u32, u64)> = None;
    for this in fenced {
        let (lease, fence, era, end) = this;
        let same = longest.filter(|(other, _, of, _)| (&other.lock, *of) == (&lease.lock, era));
        if let Some((lower, its, _, until)) = same {
            // An overlap is a matter of I3.
            let apart = lower.acquired_ns >= end;
            if its < fence && until > lease.acquired_ns && apart {
                let sentence =
                    format!("{lower} has fence {its} but began after {lease} with fence {fence}");
                findings.add(FenceOrder, sentence, &[lower, lease]);
            }
        }
        if same.is_none_or(|(_, _, _, until)| end > until) {
            longest = Some(this);
        }
    }
}

/// I3: sorted by their beginning, a span overlaps an earlier one if it begins before the latest end so far.
pub(super) fn exclusive(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut spans: Vec<(&Lease, Span)> = Vec::new();
    for lease in &history.leases {
        spans.extend(lease.spans().map(|span| (lease, span)));
    }
    spans.sort_by_key(|(lease, span)| (&lease.lock, span.era, span.from_ns));
    let mut latest: Option<(&Lease, Span)> = None;
    for this in spans {
        let (lease, span) = this;
        let same = latest.filter(|(other, of)| (&other.lock, of.era) == (&lease.lock, span.era));
        if let Some((other, of)) = same
            && span.from_ns < of.to_ns
            && !std::ptr::eq(lease, other)
        {
            let both = milliseconds(span.to_ns.min(of.to_ns) - span.from_ns);
            let sentence = format!("{other} and {lease} are both valid for {both}");
            findings.add(Exclusion, sentence, &[other, lease]);
        }
        if same.is_none_or(|(_, of)| span.to_ns > of.to_ns) {
            latest = Some(this);
        }
    }
}
