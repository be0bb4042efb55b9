//! The judge: from a history to a verdict. It takes no longer than sorting.

mod exclusion;
mod explained;
mod fences;
mod liveness;
mod logs;
mod real;
mod resource;
mod show;
mod truth;

use std::collections::BTreeMap;

use crate::history::format::{OperationKind, Outcome};
use crate::history::invariant::Invariant;
use crate::history::joined::History;
use crate::history::verdict::{Counts, Findings, Status, Verdict};

/// Judges a history by all invariants.
pub fn judge(history: &History) -> Verdict {
    let mut findings = Findings::new(history);
    fences::unique(&mut findings);
    fences::ordered(&mut findings);
    exclusion::judge(&mut findings);
    resource::fenced(&mut findings);
    resource::no_lost_update(&mut findings);
    truth::own_lock_only(&mut findings);
    truth::no_late_success(&mut findings);
    truth::told_in_time(&mut findings);
    explained::judge(&mut findings);
    liveness::judge(&mut findings);
    real::judge(&mut findings);
    logs::judge(&mut findings);

    let shown = shown(history, &findings.found);
    let status = status(history, &findings, shown);
    let mut counts = counts(history);
    counts.told_latest_us = findings.told_latest_us;
    Verdict {
        run: history.campaign.run.clone(),
        seed: history.campaign.seed,
        system: history.campaign.system.clone(),
        control: history.campaign.control,
        status,
        counts,
        found: findings.found,
        shown,
        violations: findings.violations,
        not_judged: findings.not_judged,
    }
}

/// The violations that a control must show: a lost update, and for an unsafe lock also two holders or the removal of
/// another's lock.
fn shows(history: &History, invariant: Invariant) -> bool {
    use Invariant::{Exclusion, NoLostUpdate, OwnLockOnly};
    let trusted = history.campaign.trusts_the_lock();
    history.campaign.control
        && match invariant {
            NoLostUpdate => true,
            Exclusion | OwnLockOnly => !trusted,
            _ => false,
        }
}

/// The violations that a control may show: for an unsafe lock, all of the lock's invariants.
fn forgiven(history: &History, invariant: Invariant) -> bool {
    use Invariant::{FencedResource, LogsAgree, RealCampaign};
    shows(history, invariant)
        || !history.campaign.trusts_the_lock()
            && !matches!(invariant, FencedResource | RealCampaign | LogsAgree)
}

fn shown(history: &History, found: &BTreeMap<Invariant, u64>) -> u64 {
    let shown = found
        .iter()
        .filter(|(invariant, _)| shows(history, **invariant));
    shown.map(|(_, count)| count).sum()
}

fn status(history: &History, findings: &Findings<'_>, shown: u64) -> Status {
    let broken = findings
        .found
        .keys()
        .any(|invariant| *invariant != Invariant::RealCampaign && !forgiven(history, *invariant));
    let unreal = findings.violations.iter();
    let unreal = unreal.filter(|violation| violation.invariant == Invariant::RealCampaign);
    let unreal: Vec<&str> = unreal
        .map(|violation| violation.sentence.as_str())
        .collect();
    if broken {
        Status::Violated
    } else if !unreal.is_empty() {
        Status::Invalid(unreal.join("; "))
    } else if history.campaign.control && shown == 0 {
        Status::Invalid("the control showed no violation".to_owned())
    } else {
        Status::Clean
    }
}

fn counts(history: &History) -> Counts {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let operations = &history.operations;
    let mut faults = BTreeMap::new();
    for fault in &history.faults {
        *faults.entry(fault.kind).or_default() += 1;
    }
    let decisions = &history.decisions;
    Counts {
        processes: count(history.processes.values().filter(|p| p.last_ns > 0).count()),
        acquisitions: count(history.leases.len()),
        operations: count(operations.len()),
        unknown: count(
            operations
                .iter()
                .filter(|op| op.done.is_none() || op.is(Outcome::Unknown))
                .count(),
        ),
        refused: count(
            operations
                .iter()
                .filter(|op| op.what == OperationKind::Acquire && op.is(Outcome::Refused))
                .count(),
        ),
        decisions: count(decisions.len()),
        accepted_writes: count(
            decisions
                .iter()
                .filter(|d| d.is_write() && d.accepted)
                .count(),
        ),
        refused_decisions: count(decisions.iter().filter(|d| !d.accepted).count()),
        removals: count(history.removals.len()),
        told_lost: count(history.told.len()),
        told_latest_us: None,
        epochs: history.starts.last().map_or(0, |(_, epoch)| *epoch),
        faults,
    }
}
