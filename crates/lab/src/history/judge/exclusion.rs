//! I3. An acquire without a known outcome is never blamed.

use super::show;
use crate::history::invariant::Invariant::Exclusion;
use crate::history::lease::{Lease, Span};
use crate::history::verdict::{Findings, milliseconds};

/// Sorted by their beginning, a span overlaps an earlier one if it begins before the latest end so far.
pub(super) fn judge(findings: &mut Findings<'_>) {
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
            let sentence = {
                let both = milliseconds(span.to_ns.min(of.to_ns) - span.from_ns);
                format!("{other} and {lease} are both valid for {both}")
            };
            let window = show::leases(findings, other, lease);
            findings.add(Exclusion, Some(&lease.lock), sentence, window);
        }
        if same.is_none_or(|(_, of)| span.to_ns > of.to_ns) {
            latest = Some(this);
        }
    }
}
