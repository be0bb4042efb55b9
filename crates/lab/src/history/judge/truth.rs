//! I6, I7 and I9: the reports of a lock to its holder. A process is not blamed for reports after its death.

use super::findings::{Findings, milliseconds};
use crate::history::format::{OperationKind, Outcome, Removal};
use crate::history::invariant::Invariant::{NoLateSuccess, OwnLockOnly, ToldInTime};

/// I6.
pub(super) fn own_lock_only(findings: &mut Findings<'_>) {
    let history = findings.history;
    if history.removals.is_empty() {
        let why = "I6: nobody wrote down whose lock a release removed";
        findings.not_judged.push(why.to_owned());
    }
    for removal in &history.removals {
        let Removal {
            lock, by, whose, ..
        } = removal;
        if whose == by || whose == "none" {
            continue;
        }
        let sentence = format!("the release of {by} removed the lock of {whose}");
        // Finding the lease that lost its lock takes a pass over all leases, so it is done once.
        let mut leases = history.leases.iter();
        let is_first = !findings.found.contains_key(&OwnLockOnly);
        let robbed = is_first
            .then(|| leases.rfind(|lease| lease.lock == *lock && lease.owner == *whose))
            .flatten();
        findings.add(OwnLockOnly, sentence, &[removal, &robbed]);
    }
}

/// I7.
pub(super) fn no_late_success(findings: &mut Findings<'_>) {
    let history = findings.history;
    let slack = history.campaign.bounds.scheduling_ns();
    for operation in &history.operations {
        let Some(done) = operation.done.filter(|_| operation.is(Outcome::Ok)) else {
            continue;
        };
        let what = operation.what;
        let lease = history.lease(operation.lease);
        let over = lease.and_then(|lease| lease.known_over_ns);
        let sentence = match (operation.what, done.valid_until_ns, over) {
            (OperationKind::Acquire | OperationKind::Extend, Some(until), _)
                if done.at_ns > until.saturating_add(slack)
                    && !history.stopped(operation.proc, operation.invoked_ns, done.at_ns) =>
            {
                let late = milliseconds(done.at_ns - until);
                format!("an {what} was reported as done {late} after the deadline that it names")
            }
            (OperationKind::Extend | OperationKind::Release, _, Some(over))
                if over < operation.invoked_ns =>
            {
                let after = milliseconds(operation.invoked_ns - over);
                format!("{what} was ok, begun {after} after its holder knew that the lease is over")
            }
            _ => continue,
        };
        findings.add(NoLateSuccess, sentence, &[operation, &lease]);
    }
}

/// I9.
pub(super) fn told_in_time(findings: &mut Findings<'_>) {
    told_late(findings);
    let history = findings.history;
    let slack = history.campaign.bounds.scheduling_ns();
    // A holder that still relies on a lease past its deadline was not told of the loss.
    for operation in &history.operations {
        let lease = history.lease(operation.lease);
        let (Some(lease), Some(deadline)) = (lease, operation.valid_until_ns) else {
            continue;
        };
        let at_ns = operation.invoked_ns;
        let knows = lease.known_over_ns.is_some_and(|over| over <= at_ns);
        if operation.what == OperationKind::Release
            || knows
            || at_ns <= deadline.saturating_add(slack)
            || history.stopped(operation.proc, lease.invoked_ns, at_ns)
        {
            continue;
        }
        let sentence = format!(
            "{lease} was used for a {} {} after its deadline, and its holder had not been told",
            operation.what,
            milliseconds(at_ns - deadline)
        );
        findings.add(ToldInTime, sentence, &[lease, operation]);
    }
}

fn told_late(findings: &mut Findings<'_>) {
    let history = findings.history;
    let slack = history.campaign.bounds.scheduling_ns();
    for told in &history.told {
        let lease = history.lease(told.lease);
        let running = lease.filter(|it| !history.stopped(told.proc, it.invoked_ns, told.at_ns));
        let Some((lease, deadline)) = running.and_then(|lease| Some((lease, lease.deadline_ns?)))
        else {
            continue;
        };
        let late = (i128::from(told.at_ns) - i128::from(deadline)) / 1_000;
        // A difference of 64-bit nanoseconds, so it fits.
        let late = i64::try_from(late).unwrap_or_default();
        findings.told_latest_us = findings.told_latest_us.max(Some(late));
        if told.at_ns > deadline.saturating_add(slack) {
            let late = milliseconds(told.at_ns - deadline);
            let sentence = format!("{lease} was told lost {late} after its deadline");
            findings.add(ToldInTime, sentence, &[lease, told]);
        }
    }
}
