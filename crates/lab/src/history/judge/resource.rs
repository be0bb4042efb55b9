//! I4 and I5: the decisions of the resource. The judge computes the highest fence itself.

use std::collections::HashMap;

use super::show;
use crate::history::campaign::Resource;
use crate::history::format::Decision;
use crate::history::invariant::Invariant::{FencedResource, NoLostUpdate};
use crate::history::verdict::Findings;

/// I4.
pub(super) fn fenced(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut highest: HashMap<&str, &Decision> = HashMap::new();
    for decision in &history.decisions {
        let presents = match history.campaign.resource {
            Resource::Unfenced => false,
            Resource::WriteFenced => decision.is_write(),
            Resource::Fenced => true,
        };
        if !presents {
            continue;
        }
        let top = highest.get(decision.lock.as_str()).copied();
        if decision.accepted && decision.fence < top.and_then(|top| top.fence) {
            let sentence = {
                let fence = name(decision.fence);
                format!(
                    "the resource accepted {fence} after {}",
                    name(top.and_then(|top| top.fence))
                )
            };
            let mut window = vec![show::decision(findings, decision)];
            window.extend(top.map(|top| show::decision(findings, top)));
            findings.add(FencedResource, Some(&decision.lock), sentence, window);
        } else if decision.accepted && decision.fence.is_none() {
            let sentence = "the resource accepted what came without a fence".to_owned();
            let window = vec![show::decision(findings, decision)];
            findings.add(FencedResource, Some(&decision.lock), sentence, window);
        }
        if decision.fence > top.and_then(|top| top.fence) {
            highest.insert(&decision.lock, decision);
        }
        let top = highest
            .get(decision.lock.as_str())
            .and_then(|top| top.fence);
        if decision.highest != top {
            let sentence = {
                let (said, is) = (name(decision.highest), name(top));
                format!("the resource takes {said} for the highest it has seen, and it is {is}")
            };
            let window = vec![show::decision(findings, decision)];
            findings.add(FencedResource, Some(&decision.lock), sentence, window);
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
            let mut window = vec![show::decision(findings, decision)];
            window.extend(last.map(|last| show::decision(findings, last)));
            findings.add(NoLostUpdate, Some(&decision.lock), sentence, window);
        }
        if decision.is_write() {
            versions.insert(&decision.lock, (decision.value, Some(decision)));
        }
    }
}
