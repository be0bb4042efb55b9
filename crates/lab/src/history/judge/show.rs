//! Formats lines of a history for the window of a violation.

use crate::history::format::{Decision, Operation};
use crate::history::lease::Lease;
use crate::history::verdict::{Findings, Moment, milliseconds};

/// The acquisition of a lease and its end.
pub(super) fn lease(findings: &Findings<'_>, lease: &Lease) -> Vec<Moment> {
    let fence = lease
        .fence
        .map_or(String::new(), |fence| format!(", fence {fence}"));
    let last = lease.claims.iter().max_by_key(|claim| claim.until_ns);
    let deadline = last.and_then(|claim| claim.until_ns);
    let valid = deadline.map_or(String::new(), |until| {
        format!(
            ", valid for {}",
            milliseconds(until.saturating_sub(lease.acquired_ns))
        )
    });
    let owner = &lease.owner;
    let text = format!("{owner} acquired{fence}{valid}");
    let mut begin = findings.moment(lease.acquired, lease.acquired_ns, Some(lease.proc), text);
    begin.begins = true;
    let mut end = match (lease.over, deadline) {
        (Some((at, source)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
            findings.moment(source, at, Some(lease.proc), format!("{owner} over"))
        }
        (_, Some(deadline)) => {
            let text = format!("{owner} past its deadline");
            findings.moment(lease.acquired, deadline, Some(lease.proc), text)
        }
        _ => {
            let text = format!("{owner} last used");
            findings.moment(lease.acquired, lease.used_ns, Some(lease.proc), text)
        }
    };
    end.ends = true;
    vec![begin, end]
}

/// Two leases.
pub(super) fn leases(findings: &Findings<'_>, one: &Lease, other: &Lease) -> Vec<Moment> {
    let mut window = lease(findings, one);
    window.extend(lease(findings, other));
    window
}

/// The beginning of an operation and its end.
pub(super) fn operation(findings: &Findings<'_>, operation: &Operation) -> Vec<Moment> {
    let owner = &operation.owner;
    let proc = Some(operation.proc);
    let text = format!("{owner} {} invoked", operation.what);
    let mut window = vec![findings.moment(operation.invoked, operation.invoked_ns, proc, text)];
    if let Some(done) = operation.done {
        let text = format!("{owner} {} {}", operation.what, done.outcome);
        window.push(findings.moment(done.source, done.at_ns, proc, text));
    }
    window
}

/// A decision of the resource.
pub(super) fn decision(findings: &Findings<'_>, decision: &Decision) -> Moment {
    let word = if decision.accepted {
        "accepts"
    } else {
        "refuses"
    };
    let what = match (decision.is_write(), decision.base) {
        (true, Some(base)) => format!("write on {base} to {}", decision.value),
        (true, None) => format!("write to {}", decision.value),
        (false, _) => format!("read of {}", decision.value),
    };
    let fence = decision
        .fence
        .map_or(String::new(), |fence| format!(", fence {fence}"));
    let text = format!("resource {word} {what}{fence}");
    findings.moment(decision.source, decision.at_ns, Some(decision.proc), text)
}
