//! I11: a run without faults or work proves nothing, so an empty history is invalid.

use crate::history::invariant::Invariant::RealCampaign;
use crate::history::verdict::Findings;

pub(super) fn judge(findings: &mut Findings<'_>) {
    let history = findings.history;
    let campaign = &history.campaign;
    let mut wrong = Vec::new();
    for (kind, planned) in &campaign.planned {
        // A stop of no duration does not count.
        let real = history.faults.iter().filter(|fault| {
            let lasting = !kind.lasts() || fault.until_ns.is_none_or(|until| until > fault.at_ns);
            fault.kind == *kind && lasting
        });
        let happened = u64::try_from(real.count()).unwrap_or(u64::MAX);
        if happened < *planned {
            wrong.push(format!(
                "{kind} was planned {planned} times and happened {happened} times"
            ));
        }
    }
    let worked = history
        .processes
        .values()
        .filter(|process| process.last_ns > 0);
    let worked = u64::try_from(worked.count()).unwrap_or(u64::MAX);
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
        findings.add(RealCampaign, None, sentence, Vec::new());
    }
}
