//! I4, I5 and I12: the decisions of the resource, and whether its users know of the same ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use super::findings::Findings;
use crate::history::campaign::Resource;
use crate::history::format::{Decision, Operation, OperationKind, Outcome};
use crate::history::invariant::Invariant::{FencedResource, LogsAgree, NoLostUpdate};
use crate::history::lease::Lease;

/// A lock, or a slot of one.
type DatumName<'a> = (&'a str, Option<u16>);

/// I4. The judge computes the highest fence itself.
pub(super) fn fenced(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut highest: HashMap<DatumName<'_>, &Decision> = HashMap::new();
    for decision in &history.decisions {
        if !history.campaign.resource.wants_fence(decision.is_write()) {
            continue;
        }
        let top = highest.get(&decision.datum()).copied();
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
            highest.insert(decision.datum(), decision);
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

/// I5: the reads of a reader's lease. A resource that asks for no fence of reads does not protect a reader that is late.
pub(super) fn steady_reads(findings: &mut Findings<'_>) {
    let history = findings.history;
    if history.campaign.resource == Resource::WriteFenced {
        return;
    }
    let mut first: HashMap<usize, (u64, &Operation)> = HashMap::new();
    for operation in &history.operations {
        let lease = history.lease(operation.lease);
        let value = operation.done.and_then(|done| done.value);
        let (Some(at), Some(value)) = (operation.lease, value) else {
            continue;
        };
        if !lease.is_some_and(Lease::is_shared) {
            continue;
        }
        let (before, read) = *first.entry(at).or_insert((value, operation));
        if before != value {
            let sentence = format!("a reader read version {before}, and then version {value}");
            findings.add(NoLostUpdate, sentence, &[&lease, read, operation]);
        }
    }
}

/// I5.
pub(super) fn no_lost_update(findings: &mut Findings<'_>) {
    let decisions = findings.history.decisions.iter();
    let mut versions: HashMap<DatumName<'_>, (u64, Option<&Decision>)> = HashMap::new();
    for decision in decisions.filter(|decision| decision.accepted) {
        let of_lock = versions.get(&decision.datum());
        let (version, last) = of_lock.copied().unwrap_or((0, None));
        let wrong = if !decision.is_write() {
            (decision.value != version).then(|| {
                format!(
                    "a read answered {}, and the version was {version}",
                    decision.value
                )
            })
        } else if decision.base != Some(version) {
            let base = decision.base;
            let base = base.map_or("nothing".to_owned(), |base| base.to_string());
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
            versions.insert(decision.datum(), (decision.value, Some(decision)));
        }
    }
}

/// The common part of an operation and its decision: the fence (if the resource is presented one), process, lock and slot, whether it
/// is a write, and whether it was accepted.
type Key<'a> = (Option<u64>, u64, DatumName<'a>, bool, bool);

/// The operations and the decisions that may belong together, each in order of time.
#[derive(Default)]
struct Meeting<'a> {
    /// Each with its end, if its outcome is known. Without one, it may be decided any time later.
    asked: Vec<(&'a Operation, Option<u64>)>,
    decided: Vec<&'a Decision>,
}

/// I12: each entry of one log is matched with one of the other.
pub(super) fn logs_agree(findings: &mut Findings<'_>) {
    under_a_lease(findings);
    let history = findings.history;
    let resource = history.campaign.resource;
    let mut meetings: BTreeMap<Key<'_>, Meeting<'_>> = BTreeMap::new();
    for operation in &history.operations {
        let write = operation.what == OperationKind::Write;
        if !write && operation.what != OperationKind::Read {
            continue;
        }
        let lease = history.lease(operation.lease);
        let fence = operation.fence.or(lease.and_then(|lease| lease.fence));
        let fence = fence.filter(|_| resource.wants_fence(write));
        let known = operation
            .done
            .filter(|done| done.outcome != Outcome::Unknown);
        for accepted in [true, false] {
            if known.is_none_or(|done| accepted == (done.outcome == Outcome::Ok)) {
                let datum = (&*operation.lock, lease.and_then(|lease| lease.slot));
                let key = (fence, operation.proc, datum, write, accepted);
                let meeting = meetings.entry(key).or_default();
                meeting
                    .asked
                    .push((operation, known.map(|done| done.at_ns)));
            }
        }
    }
    for decision in &history.decisions {
        let write = decision.is_write();
        let fence = decision.fence.filter(|_| resource.wants_fence(write));
        let key = (
            fence,
            decision.proc,
            decision.datum(),
            write,
            decision.accepted,
        );
        meetings.entry(key).or_default().decided.push(decision);
    }
    let (mut operations, mut decisions) = (Vec::new(), Vec::new());
    for meeting in meetings.values() {
        // Two questions: can each operation with a known outcome get its own decision, and each decision its own operation? If
        // both are possible separately, they are possible together (Mendelsohn and Dulmage).
        operations.extend(meeting.unmatched(true).0);
        decisions.extend(meeting.unmatched(false).1);
    }
    operations.sort_by_key(|operation| operation.invoked_ns);
    decisions.sort_by_key(|decision| decision.at_ns);
    for operation in operations {
        let outcome = operation
            .done
            .map_or("no".to_owned(), |done| done.outcome.to_string());
        let what = operation.what;
        let sentence =
            format!("a {what} with outcome {outcome} that the resource knows nothing of");
        findings.add(LogsAgree, sentence, &[operation]);
    }
    for decision in decisions {
        let sentence = format!("a decision that worker {} did not ask for", decision.proc);
        findings.add(LogsAgree, sentence, &[decision]);
    }
}

impl<'a> Meeting<'a> {
    /// Gives each decision, in order of time, to the open operation that must end first. This leaves the fewest unmatched, which it returns.
    fn unmatched(&self, only_certain: bool) -> (Vec<&'a Operation>, Vec<&'a Decision>) {
        let (mut operations, mut decisions) = (Vec::new(), Vec::new());
        let asked = self.asked.iter().enumerate();
        let mut asked = asked
            .filter(|(_, (_, end))| !only_certain || end.is_some())
            .peekable();
        let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for decision in &self.decided {
            while let Some((at, (_, end))) =
                asked.next_if(|(_, (operation, _))| operation.invoked_ns <= decision.at_ns)
            {
                open.push(Reverse((end.unwrap_or(u64::MAX), at)));
            }
            let mut found = false;
            while let Some(Reverse((end, at))) = open.pop() {
                found = end >= decision.at_ns;
                if found {
                    break;
                }
                operations.push(self.asked[at].0);
            }
            if !found {
                decisions.push(*decision);
            }
        }
        let open = open.into_iter().map(|Reverse((_, at))| at);
        let rest = open.chain(asked.map(|(at, _)| at));
        operations.extend(rest.map(|at| self.asked[at].0));
        (operations, decisions)
    }
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
