//! The judge: from a history to a verdict. It takes no longer than sorting.

mod acquires;
mod findings;
mod leases;
mod reach;
mod resource;
mod truth;

use std::collections::BTreeMap;

use self::findings::Findings;
use crate::history::campaign::FaultKind;
use crate::history::format::{LeaseMode, Outcome};
use crate::history::invariant::Invariant;
use crate::history::joined::History;
use crate::history::verdict::{Counts, Modes, Status, Verdict};

/// Judges a history by all invariants.
pub fn judge(history: &History) -> Verdict {
    let mut findings = Findings::new(history);
    leases::judge(&mut findings);
    resource::fenced(&mut findings);
    resource::no_lost_update(&mut findings);
    resource::steady_reads(&mut findings);
    truth::own_lock_only(&mut findings);
    truth::no_late_success(&mut findings);
    truth::told_in_time(&mut findings);
    acquires::judge(&mut findings);
    real(&mut findings);
    resource::logs_agree(&mut findings);
    let reach = reach::judge(&mut findings);

    // For a reader, in the order of their numbers.
    findings
        .violations
        .sort_by_key(|violation| violation.invariant);
    let shown = findings.found.iter();
    let shown = shown.filter(|(invariant, _)| shows(history, **invariant));
    let shown = shown.map(|(_, count)| count).sum();
    let status = status(history, &findings, shown);
    let mut counts = counts(history);
    counts.told_latest_us = findings.told_latest_us;
    counts.overlaps = findings.overlaps;
    counts.reach = reach;
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
    let (operations, decisions) = (&history.operations, &history.decisions);
    let without_outcome = operations
        .iter()
        .filter(|operation| operation.done.is_none() || operation.is(Outcome::Unknown));
    let refused = history.acquires();
    let mut faults = BTreeMap::new();
    for fault in &history.faults {
        *faults.entry(fault.kind).or_default() += 1;
    }
    Counts {
        processes: count(history.processes.values().filter(|p| p.last_ns > 0)),
        acquisitions: count(&history.leases),
        acquired: modes(history.leases.iter().map(|lease| lease.mode)),
        killed: modes(of_faults(history, FaultKind::KillWorker)),
        broken: modes(of_faults(history, FaultKind::BreakLock)),
        operations: count(operations),
        unknown: count(without_outcome),
        refused: count(refused.filter(|acquire| acquire.is(Outcome::Refused))),
        decisions: count(decisions),
        accepted_writes: count(decisions.iter().filter(|d| d.is_write() && d.accepted)),
        refused_decisions: count(decisions.iter().filter(|d| !d.accepted)),
        removals: count(&history.removals),
        told_lost: count(&history.told),
        told_latest_us: None,
        overlaps: 0,
        reach: None,
        epochs: history.starts.last().map_or(0, |start| start.epoch),
        faults,
    }
}

fn modes(of: impl IntoIterator<Item = LeaseMode>) -> Modes {
    let mut modes = Modes::default();
    for mode in of {
        *match mode {
            LeaseMode::Exclusive => &mut modes.exclusive,
            LeaseMode::Shared => &mut modes.shared,
            LeaseMode::Slot(_) => &mut modes.slots,
        } += 1;
    }
    modes
}

/// The modes of the holders that had a fault of this kind.
fn of_faults(history: &History, kind: FaultKind) -> impl Iterator<Item = LeaseMode> {
    let faults = history.faults.iter().filter(move |it| it.kind == kind);
    faults.filter_map(|fault| fault.mode)
}

fn count(items: impl IntoIterator) -> u64 {
    u64::try_from(items.into_iter().count()).unwrap_or(u64::MAX)
}

/// I11: a run without faults or work proves nothing, so an empty history is invalid.
fn real(findings: &mut Findings<'_>) {
    let history = findings.history;
    let campaign = &history.campaign;
    let mut wrong = Vec::new();
    for (kind, planned) in &campaign.planned {
        // A stop of no duration does not count.
        let real = history.faults.iter().filter(|fault| {
            let lasting = !kind.lasts() || fault.until_ns.is_none_or(|until| until > fault.at_ns);
            fault.kind == *kind && lasting
        });
        let happened = count(real);
        if happened < *planned {
            wrong.push(format!(
                "{kind} was planned {planned} times and happened {happened} times"
            ));
        }
    }
    let worked = count(history.processes.values().filter(|p| p.last_ns > 0));
    if worked < campaign.workers {
        wrong.push(format!(
            "{worked} of {} workers did anything",
            campaign.workers
        ));
    }
    if history.leases.is_empty() {
        wrong.push("no lock was ever acquired".to_owned());
    }
    if !history
        .decisions
        .iter()
        .any(|decision| decision.is_write() && decision.accepted)
    {
        wrong.push("the resource accepted no write".to_owned());
    }
    for (proc, process) in &history.processes {
        if let Some(at_ns) = process.unhurt_ns {
            wrong.push(format!(
                "worker {proc} wrote a line, at {at_ns} ns, while it was stopped or after it was killed"
            ));
        }
    }
    match (campaign.bounds.acquire_after_calm_ms, history.calm) {
        (Some(_), None) => wrong.push("there was no calm".to_owned()),
        (_, Some(calm)) if history.faults.iter().any(|fault| fault.at_ns > calm) => {
            wrong.push("a fault followed the calm".to_owned());
        }
        _ => {}
    }
    for sentence in wrong {
        findings.add(Invariant::RealCampaign, sentence, &[]);
    }
}
