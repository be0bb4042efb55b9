//! I4, I5 and I12: the decisions of the resource, and whether its users know of the same ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::findings::Findings;
use crate::history::format::{Decision, Operation, OperationKind, Outcome};
use crate::history::invariant::Invariant::{FencedResource, LogsAgree, NoLostUpdate};
use crate::history::lease::Lease;

/// I4. The judge computes the highest fence itself.
pub(super) fn fenced(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut highest: HashMap<&str, &Decision> = HashMap::new();
    for decision in &history.decisions {
        if !history.campaign.resource.wants_fence(decision.is_write()) {
            continue;
        }
        let top = highest.get(decision.lock.as_str()).copied();
        let most = top.and_then(|top| top.fence);
        if decision.accepted && decision.fence < most {
            let (fence, most) = (name(decision.fence), name(most));
            let sentence = format!("the resource accepted {fence} after {most}");
            findings.add(FencedResource, sentence, &[decision, &top]);
        } else if decision.accepted && decision.fence.is_none() {
            let sentence = "the resource accepted what came without a fence".to_owned();
            findings.add(FencedResource, sentence, &[decision]);
        }
        if decision.fence > most {
            highest.insert(&decision.lock, decision);
        }
        let most = most.max(decision.fence);
        if decision.highest != most {
            let (said, is) = (name(decision.highest), name(most));
            let sentence =
                format!("the resource takes {said} for the highest it has seen, and it is {is}");
            findings.add(FencedResource, sentence, &[decision]);
        }
    }
}

fn name(fence: Option<u64>) -> String {
    fence.map_or("no fence".to_owned(), |fence| format!("fence {fence}"))
}

/// I5.
pub(super) fn no_lost_update(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut versions: HashMap<&str, (u64, Option<&Decision>)> = HashMap::new();
    for decision in history
        .decisions
        .iter()
        .filter(|decision| decision.accepted)
    {
        let (version, last) = versions
            .get(decision.lock.as_str())
            .copied()
            .unwrap_or((0, None));
        let wrong = if !decision.is_write() {
            (decision.value != version).then(|| {
                format!(
                    "a read answered {}, and the version was {version}",
                    decision.value
                )
            })
        } else if decision.base != Some(version) {
            let base = decision
                .base
                .map_or("nothing".to_owned(), |base| base.to_string());
            Some(format!(
                "worker {}'s write was based on {base}, and the version was {version}: an update is lost",
                decision.proc
            ))
        } else if Some(decision.value) != version.checked_add(1) {
            Some(format!("version {} follows {version}", decision.value))
        } else {
            None
        };
        if let Some(sentence) = wrong {
            findings.add(NoLostUpdate, sentence, &[decision, &last]);
        }
        if decision.is_write() {
            versions.insert(&decision.lock, (decision.value, Some(decision)));
        }
    }
}

/// The common part of an operation and its decision: the fence (if the resource is presented one), process, lock, whether it
/// is a write, and whether it was accepted.
type Key<'a> = (Option<u64>, u64, &'a str, bool, bool);

/// An operation or a decision, by key and time.
struct Entry<'a> {
    key: Key<'a>,
    at_ns: u64,
    what: Side<'a>,
}

enum Side<'a> {
    /// An operation, and whether its outcome is known.
    Asked(&'a Operation, bool),
    Decided(&'a Decision),
}

/// I12: each entry of one log is matched with one of the other.
pub(super) fn logs_agree(findings: &mut Findings<'_>) {
    under_a_lease(findings);
    let history = findings.history;
    let resource = history.campaign.resource;
    let mut entries = Vec::new();
    for operation in &history.operations {
        let write = operation.what == OperationKind::Write;
        if !write && operation.what != OperationKind::Read {
            continue;
        }
        let lease = history.lease(operation.lease);
        let fence = operation.fence.or(lease.and_then(|lease| lease.fence));
        let fence = fence.filter(|_| resource.wants_fence(write));
        let mut ask = |accepted, certain| {
            entries.push(Entry {
                key: (fence, operation.proc, &operation.lock, write, accepted),
                at_ns: operation.invoked_ns,
                what: Side::Asked(operation, certain),
            });
        };
        match operation.done.map(|done| done.outcome) {
            Some(Outcome::Ok) => ask(true, true),
            Some(Outcome::Refused | Outcome::Lost) => ask(false, true),
            // Without an outcome, it may be either.
            Some(Outcome::Unknown) | None => {
                ask(true, false);
                ask(false, false);
            }
        }
    }
    for decision in &history.decisions {
        let write = decision.is_write();
        let fence = decision.fence.filter(|_| resource.wants_fence(write));
        entries.push(Entry {
            key: (
                fence,
                decision.proc,
                &decision.lock,
                write,
                decision.accepted,
            ),
            at_ns: decision.at_ns,
            what: Side::Decided(decision),
        });
    }
    // At equal times, operations come first: they were pushed first.
    entries.sort_by_key(|entry| (entry.key, entry.at_ns));
    let mut lonely = Unmatched::default();
    for meeting in entries.chunk_by(|one, other| one.key == other.key) {
        // Two questions: can each operation with a known outcome get its own decision, and each decision its own operation? If
        // both are possible separately, they are possible together (Mendelsohn and Dulmage).
        lonely.operations.extend(pair(meeting, true).operations);
        lonely.decisions.extend(pair(meeting, false).decisions);
    }
    lonely.report(findings);
}

/// Operations that need a lease and have none, or whose fence is not that of their lease.
fn under_a_lease(findings: &mut Findings<'_>) {
    let history = findings.history;
    // The release of such an acquire may find a lock.
    let mut open = HashSet::new();
    for acquire in history.acquires() {
        if acquire.done.is_none() || acquire.is(Outcome::Unknown) {
            open.insert((&acquire.lock, &acquire.owner));
        }
    }
    for operation in &history.operations {
        let what = operation.what;
        let lease = history.lease(operation.lease);
        let answered = operation.done.and_then(|done| done.fence);
        let other = |fence: Option<u64>, lease: &Lease| fence.is_some() && fence != lease.fence;
        let sentence = match (operation.what, lease) {
            (OperationKind::Acquire, _) => continue,
            (OperationKind::Release, None)
                if !operation.is(Outcome::Ok)
                    || open.contains(&(&operation.lock, &operation.owner)) =>
            {
                continue;
            }
            (_, None) => format!("a {what} under a lease that was never acquired"),
            (_, Some(lease)) if other(operation.fence, lease) || other(answered, lease) => {
                format!("a {what} with a fence that is not its lease's")
            }
            _ => continue,
        };
        findings.add(LogsAgree, sentence, &[operation]);
    }
    for told in history.told.iter().filter(|told| told.lease.is_none()) {
        let sentence = "told of the loss of a lease that was never acquired".to_owned();
        findings.add(LogsAgree, sentence, &[told]);
    }
}

/// The entries without a match.
#[derive(Default)]
struct Unmatched<'a> {
    operations: Vec<&'a Operation>,
    decisions: Vec<&'a Decision>,
}

/// Gives each decision, in order of time, to the open operation that must end first. This leaves the fewest unmatched.
fn pair<'a>(meeting: &[Entry<'a>], only_certain: bool) -> Unmatched<'a> {
    let mut lonely = Unmatched::default();
    let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let operation = |at: usize| match meeting.get(at).map(|entry| &entry.what) {
        Some(Side::Asked(operation, _)) => Some(*operation),
        _ => None,
    };
    for (at, entry) in meeting.iter().enumerate() {
        match entry.what {
            Side::Asked(_, false) if only_certain => {}
            Side::Asked(operation, certain) => {
                // An operation without an outcome may be decided any time later.
                let end = operation.done.filter(|_| certain);
                open.push(Reverse((end.map_or(u64::MAX, |done| done.at_ns), at)));
            }
            Side::Decided(decision) => {
                let mut found = false;
                while let Some(Reverse((end, at))) = open.pop() {
                    found = end >= decision.at_ns;
                    if found {
                        break;
                    }
                    lonely.operations.extend(operation(at));
                }
                if !found {
                    lonely.decisions.push(decision);
                }
            }
        }
    }
    let rest = open
        .into_iter()
        .filter_map(|Reverse((_, at))| operation(at));
    lonely.operations.extend(rest);
    lonely
}

impl Unmatched<'_> {
    /// Sorts the unmatched entries by time.
    fn report(mut self, findings: &mut Findings<'_>) {
        self.operations
            .sort_by_key(|operation| operation.invoked_ns);
        self.decisions.sort_by_key(|decision| decision.at_ns);
        for operation in self.operations {
            let outcome = operation
                .done
                .map_or("no".to_owned(), |done| done.outcome.to_string());
            let what = operation.what;
            let sentence =
                format!("a {what} with outcome {outcome} that the resource knows nothing of");
            findings.add(LogsAgree, sentence, &[operation]);
        }
        for decision in self.decisions {
            let sentence = format!("a decision that worker {} did not ask for", decision.proc);
            findings.add(LogsAgree, sentence, &[decision]);
        }
    }
}
