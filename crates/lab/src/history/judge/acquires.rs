//! I8 and I10: the acquires of one lock. One without an outcome counts as a possible holder only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::findings::{Findings, milliseconds};
use crate::history::campaign::FaultKind;
use crate::history::format::{LeaseMode, Operation, Outcome};
use crate::history::invariant::Invariant::{Liveness, UnknownResolves};
use crate::history::joined::{History, add_span, by_lock, last_begun};
use crate::history::lease::Scope;

pub(super) fn judge(findings: &mut Findings<'_>) {
    let history = findings.history;
    let bound = history.campaign.bounds.acquire_after_calm_ms;
    let bound = bound.map(|ms| ms.saturating_mul(1_000_000));
    let bound = bound.zip(history.calm);
    if bound.is_none() {
        let why = "I10: the campaign sets no bound, or there was no calm";
        findings.not_judged.push(why.to_owned());
    }
    for mut acquires in by_lock(history.acquires(), |acquire| &acquire.lock).into_values() {
        acquires.sort_by_key(|acquire| acquire.invoked_ns);
        let holds = acquires.iter().map(|acquire| history.may_hold(acquire).1);
        let holds: Vec<u64> = holds.collect();
        explained(findings, &acquires, &holds);
        if let Some((bound_ns, calm_ns)) = bound {
            live(findings, &acquires, holds, bound_ns, calm_ns);
        }
    }
}

/// I8: sweeps in order of beginnings, with the latest and the second latest end so far of possible holders of each part of the lock. A
/// refusal is explained if one of them, other than itself, began before the refusal ended and ended after it began, and excludes it. A
/// slot is also refused while as many others may have had one, or have asked for it: as many as there are, or as another request that is
/// ahead of it waits for, and that one; and anybody while the store may have lost who holds.
fn explained(findings: &mut Findings<'_>, acquires: &[&Operation], holds: &[u64]) {
    let mut begun = acquires.iter().zip(holds).peekable();
    let with_slot = acquires.iter().zip(holds);
    let with_slot = with_slot.filter(|(acquire, _)| matches!(acquire.mode, LeaseMode::Slot(_)));
    let mut slots_over: Vec<u64> = with_slot.map(|(_, until)| *until).collect();
    slots_over.sort_unstable();
    let mut slots_begun = 0;
    // By the number of slots that was asked for: until when one may have waited, of those so far.
    let mut waited: BTreeMap<u16, u64> = BTreeMap::new();
    let nameless = nameless(findings.history, acquires, holds);
    let refused = acquires.iter().filter(|it| it.is(Outcome::Refused));
    let mut refusals: Vec<(u64, &Operation)> = refused
        .filter_map(|acquire| Some((acquire.done?.at_ns, *acquire)))
        .collect();
    refusals.sort_by_key(|(at_ns, _)| *at_ns);
    let mut latest: HashMap<Scope, Vec<(u64, &Operation)>> = HashMap::new();
    for (refused_ns, refused) in refusals {
        while let Some((acquire, until)) =
            begun.next_if(|(acquire, _)| acquire.invoked_ns <= refused_ns)
        {
            if let LeaseMode::Slot(slots) = acquire.mode {
                slots_begun += 1;
                let lease = findings.history.lease(acquire.lease);
                let until = lease.map_or(*until, |lease| lease.acquired_ns);
                let latest = waited.entry(slots).or_default();
                *latest = until.max(*latest);
            }
            for part in acquire.mode.takes(None) {
                let latest = latest.entry(part).or_default();
                latest.push((*until, *acquire));
                latest.sort_by_key(|(until, _)| Reverse(*until));
                latest.truncate(2);
            }
        }
        let others = refused.mode.excludes(None);
        let others = others.filter_map(|part| latest.get(&part)).flatten();
        let others = others.filter(|(_, it)| !std::ptr::eq(*it, refused));
        let other = others.max_by_key(|(until, _)| *until).copied();
        if other.is_some_and(|(until, _)| until >= refused.invoked_ns) {
            continue;
        }
        let lost = last_begun(&nameless, refused_ns);
        if lost.is_some_and(|(_, end)| end >= refused.invoked_ns) {
            continue;
        }
        if let LeaseMode::Slot(slots) = refused.mode {
            let over = slots_over.partition_point(|until| *until < refused.invoked_ns);
            let mut fewer = waited.range(..slots);
            let fewest = fewer.find(|(_, until)| **until >= refused.invoked_ns);
            // A request for fewer slots, which may be ahead, is one of them.
            let enough = fewest.map_or(slots, |(fewest, _)| fewest + 1);
            // So is the refused one.
            if slots_begun - over > usize::from(enough) {
                continue;
            }
        }
        let who = match other {
            Some((until, other)) => format!(
                "the last that may have held it is worker {}'s {}, until {} before",
                other.proc,
                other.owner,
                milliseconds(refused.invoked_ns - until)
            ),
            None => "nobody had ever asked for it in a way that excludes this".to_owned(),
        };
        let sentence = format!(
            "worker {} was refused while nobody can have held the lock: {who}",
            refused.proc
        );
        let other = other.map(|(_, other)| other);
        findings.add(UnknownResolves, sentence, &[refused, &other]);
    }
}

/// The times in which several held the lock and the store may not have known who, since that was evicted: it then waits for the last of
/// them.
fn nameless(history: &History, acquires: &[&Operation], holds: &[u64]) -> Vec<(u64, u64)> {
    let mut times = Vec::new();
    let lock = acquires.first().map(|acquire| acquire.lock.as_str());
    let faults = history.faults.iter();
    for fault in faults.filter(|it| it.kind == FaultKind::Evict && it.lock.as_deref() == lock) {
        let (from_ns, to_ns) = fault.span();
        for (acquire, until) in acquires.iter().zip(holds) {
            let is_one = acquire.mode != LeaseMode::Exclusive;
            if is_one && acquire.invoked_ns <= to_ns && *until >= from_ns {
                let until_ns = history.may_linger(acquire.invoked_ns, to_ns);
                add_span(&mut times, (from_ns, until_ns));
            }
        }
    }
    times
}

/// I10: the bound counts the acquires ahead.
fn live(
    findings: &mut Findings<'_>,
    acquires: &[&Operation],
    mut holds: Vec<u64>,
    bound_ns: u64,
    calm_ns: u64,
) {
    let history = findings.history;
    let end_ns = history.end_ns();
    holds.sort_unstable();
    // When an acquire that was invoked then must have ended, and the number of acquires ahead of it.
    let due_of = |invoked_ns: u64| {
        let began = acquires.partition_point(|acquire| acquire.invoked_ns < invoked_ns);
        let through = holds.partition_point(|through| *through <= invoked_ns);
        let ahead = u64::try_from(began.saturating_sub(through)).unwrap_or(u64::MAX);
        let allowed = bound_ns.saturating_mul(ahead.saturating_add(1));
        (invoked_ns.saturating_add(allowed), ahead)
    };
    let after = acquires.partition_point(|acquire| acquire.invoked_ns < calm_ns);
    let asked = &acquires[after..];
    for acquire in asked {
        let ended = acquire.done.map_or(end_ns, |done| done.at_ns);
        let (due, ahead) = due_of(acquire.invoked_ns);
        let process = history.processes.get(&acquire.proc);
        if ended <= due || process.is_some_and(|process| process.killed_ns.is_some()) {
            continue;
        }
        let how = acquire
            .done
            .map_or("has no end".to_owned(), |done| done.outcome.to_string());
        let after = milliseconds(ended - acquire.invoked_ns);
        let due = milliseconds(due - acquire.invoked_ns);
        let sentence = format!(
            "an acquire after the calm {how} after {after}, with {ahead} ahead: due in {due}"
        );
        findings.add(Liveness, sentence, &[*acquire]);
    }
    let Some(first) = asked.first() else {
        return;
    };
    let (due, ahead) = due_of(first.invoked_ns);
    let with = |outcome| asked.iter().filter(move |acquire| acquire.is(outcome));
    let after_due = |acquire: &&&Operation| acquire.done.is_some_and(|done| done.at_ns > due);
    if let Some(last) = with(Outcome::Refused).rfind(|it| after_due(it))
        && with(Outcome::Ok).all(|it| after_due(&it))
    {
        let due = milliseconds(due - first.invoked_ns);
        let sentence = format!(
            "after the calm nobody got the lock within {due}, with {ahead} ahead, and some asked"
        );
        findings.add(Liveness, sentence, &[*first, *last]);
    }
}
