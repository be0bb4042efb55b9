//! I13: what a quorum owes while a majority of its nodes is in reach.

use super::findings::{Findings, Shown, milliseconds};
use crate::history::format::{Operation, Outcome};
use crate::history::invariant::Invariant::Available;
use crate::history::joined::{History, add_span, by_lock};
use crate::history::verdict::Reach;

/// Judges it; `None` if the store is one server.
pub(super) fn judge(findings: &mut Findings<'_>) -> Option<Reach> {
    let history = findings.history;
    let campaign = &history.campaign;
    if campaign.nodes == 0 {
        return None;
    }
    let is_late = 2 * campaign.bounds.scheduling_ms > campaign.ttl_ms;
    if is_late {
        let why = "I13: lost leases and missing answers are only counted, since a process may be late by over half a TTL";
        findings.not_judged.push(why.to_owned());
    }
    let out = history.out_of_reach.iter().map(|(from, to)| to - from);
    let renewed = history.leases.iter().filter(|lease| {
        let over_ns = history.over_ns(lease);
        lease.renews && over_ns.saturating_sub(lease.acquired_ns) > campaign.ttl_ns()
    });
    let renewed = u64::try_from(renewed.count()).unwrap_or(u64::MAX);
    Some(Reach {
        renewed,
        lost: lost(findings, !is_late),
        unanswered: unanswered(findings, !is_late),
        longest_idle_us: idle(findings) / 1_000,
        out_ms: out.sum::<u64>() / 1_000_000,
    })
}

/// Whether a process was stopped in a span or near it. With a longer tolerance, a stop every few seconds would excuse all that a
/// process does.
fn was_stopped(history: &History, proc: u64, from_ns: u64, to_ns: u64) -> bool {
    let slack_ns = history.campaign.bounds.scheduling_ns();
    let most_ns = history.campaign.ttl_ns() / 2;
    history.stopped_within(proc, from_ns, to_ns, slack_ns.min(most_ns))
}

fn lost(findings: &mut Findings<'_>, is_judged: bool) -> u64 {
    let history = findings.history;
    let told = history.told.iter();
    let told = told.map(|told| (told.lease, told.at_ns, told as &dyn Shown));
    let answered = history.operations.iter();
    let answered = answered.filter(|it| it.is(Outcome::Lost));
    let answered = answered.filter_map(|it| Some((it.lease, it.done?.at_ns, it as &dyn Shown)));
    let mut count = 0;
    for (lease, at_ns, line) in told.chain(answered) {
        // Its holder learns of a loss once: it knew it already at a later line.
        let lease = history.lease(lease);
        let Some(lease) = lease.filter(|lease| lease.known_over_ns == Some(at_ns)) else {
            continue;
        };
        let is_early = lease.deadline_ns.is_some_and(|due| at_ns < due);
        // What began before that was renewed since, if a majority was in reach.
        let from_ns = at_ns.saturating_sub(2 * history.campaign.ttl_ns());
        if (lease.renews || is_early)
            && history.in_reach(from_ns, at_ns)
            && !was_stopped(history, lease.proc, from_ns, at_ns)
        {
            count += 1;
            if is_judged {
                let sentence = format!("{lease} was lost while a majority was in reach");
                findings.add(Available, sentence, &[lease, line]);
            }
        }
    }
    count
}

fn unanswered(findings: &mut Findings<'_>, is_judged: bool) -> u64 {
    let history = findings.history;
    let mut count = 0;
    for operation in &history.operations {
        let Some(done) = operation.done.filter(|done| done.no_answer) else {
            continue;
        };
        if history.in_reach(operation.invoked_ns, done.at_ns)
            && !was_stopped(history, operation.proc, operation.invoked_ns, done.at_ns)
        {
            count += 1;
            if is_judged {
                let what = operation.what;
                let sentence = format!("no answer to this {what} while a majority was in reach");
                findings.add(Available, sentence, &[operation]);
            }
        }
    }
    count
}

/// The longest wait for a lock that nobody held, in nanoseconds.
fn idle(findings: &mut Findings<'_>) -> u64 {
    let history = findings.history;
    let bound = history.campaign.bounds.idle_ms;
    let bound_ns = bound.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
    let mut longest_ns = 0;
    for acquires in by_lock(history.acquires(), |acquire| &acquire.lock).into_values() {
        let mut held: Vec<(u64, u64)> = history.out_of_reach.clone();
        let leases = acquires.iter().filter_map(|it| history.lease(it.lease));
        held.extend(leases.map(|lease| (lease.acquired_ns, history.over_ns(lease))));
        for (waited_ns, waiter) in waits(history, &acquires, held) {
            longest_ns = longest_ns.max(waited_ns);
            if waited_ns > bound_ns {
                let waited = milliseconds(waited_ns);
                let sentence = format!(
                    "worker {} waited {waited} for a lock that nobody held, while a majority was in reach",
                    waiter.proc
                );
                findings.add(Available, sentence, &[waiter]);
            }
        }
    }
    longest_ns
}

/// The longest wait in each gap between these times, if anybody waited.
fn waits<'a>(
    history: &History,
    acquires: &[&'a Operation],
    mut held: Vec<(u64, u64)>,
) -> Vec<(u64, &'a Operation)> {
    let waiting = acquires.iter().filter_map(|acquire| {
        let (proc, from_ns) = (acquire.proc, acquire.invoked_ns);
        let end_ns = acquire.done.map(|done| done.at_ns);
        let end_ns = end_ns.unwrap_or_else(|| history.process_end_ns(proc, from_ns));
        // A stopped process takes no lock.
        let waits = !was_stopped(history, proc, from_ns, end_ns);
        waits.then_some((from_ns, end_ns, *acquire))
    });
    let mut waiting: Vec<(u64, u64, &Operation)> = waiting.collect();
    waiting.sort_by_key(|(from_ns, ..)| *from_ns);
    held.sort_unstable();
    let mut merged = Vec::new();
    for span in held {
        add_span(&mut merged, span);
    }
    let begins = std::iter::once(0).chain(merged.iter().map(|(_, to)| *to));
    let ends = merged.iter().map(|(from, _)| *from);
    let gaps = begins.zip(ends.chain([u64::MAX]));
    let (mut longest, mut next) = (Vec::new(), 0);
    // The one of those that began so far which ends last.
    let mut last: Option<(u64, &Operation)> = None;
    for (from_ns, to_ns) in gaps {
        // Of those that waited before, it waits longest; of the others, each one is looked at.
        let mut best =
            last.map(|(end_ns, acquire)| (end_ns.min(to_ns).saturating_sub(from_ns), acquire));
        while let Some(&(begun_ns, end_ns, acquire)) = waiting.get(next)
            && begun_ns < to_ns
        {
            let waited = end_ns.min(to_ns).saturating_sub(begun_ns.max(from_ns));
            if best.is_none_or(|(most, _)| waited > most) {
                best = Some((waited, acquire));
            }
            if last.is_none_or(|(end, _)| end_ns > end) {
                last = Some((end_ns, acquire));
            }
            next += 1;
        }
        longest.extend(best.filter(|(waited, _)| *waited > 0));
    }
    longest
}
