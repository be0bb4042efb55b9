//! I10. The bound counts the acquires ahead.

use super::show;
use crate::history::format::{Operation, Outcome};
use crate::history::invariant::Invariant::Liveness;
use crate::history::verdict::{Findings, milliseconds};

pub(super) fn judge(findings: &mut Findings<'_>) {
    let history = findings.history;
    let bound = history.campaign.bounds.acquire_after_calm_ms;
    let (Some(bound), Some(calm_ns)) = (bound, history.calm) else {
        let why = "I10: the campaign sets no bound, or there was no calm";
        findings.not_judged.push(why.to_owned());
        return;
    };
    let mut by_lock: Vec<&Operation> = history.acquires().collect();
    by_lock.sort_by_key(|acquire| (&acquire.lock, acquire.invoked_ns));
    let (bound_ns, end_ns) = (bound.saturating_mul(1_000_000), history.end_ns());
    for of_lock in by_lock.chunk_by(|one, other| one.lock == other.lock) {
        let line = LockAcquires::new(findings, of_lock, bound_ns, end_ns);
        let after = of_lock.partition_point(|acquire| acquire.invoked_ns < calm_ns);
        let asked = of_lock.get(after..).unwrap_or_default();
        for acquire in asked {
            line.ends(findings, acquire);
        }
        line.had_by_someone(findings, asked);
    }
}

/// The acquires of a lock: when they began and when they were finished.
struct LockAcquires {
    bound_ns: u64,
    /// The end of the history.
    end_ns: u64,
    began: Vec<u64>,
    through: Vec<u64>,
}

impl LockAcquires {
    fn new(findings: &Findings<'_>, acquires: &[&Operation], bound_ns: u64, end_ns: u64) -> Self {
        let holds = acquires
            .iter()
            .map(|acquire| findings.history.may_hold(acquire));
        let (began, mut through): (Vec<u64>, Vec<u64>) = holds.unzip();
        through.sort_unstable();
        Self {
            bound_ns,
            end_ns,
            began,
            through,
        }
    }

    /// The time at which an acquire that was invoked then must have ended, and the number of acquires ahead of it.
    fn due(&self, invoked_ns: u64) -> (u64, u64) {
        let began = self.began.partition_point(|began| *began < invoked_ns);
        let through = self
            .through
            .partition_point(|through| *through <= invoked_ns);
        let ahead = u64::try_from(began.saturating_sub(through)).unwrap_or(u64::MAX);
        let allowed = self.bound_ns.saturating_mul(ahead.saturating_add(1));
        (invoked_ns.saturating_add(allowed), ahead)
    }

    fn ends(&self, findings: &mut Findings<'_>, acquire: &Operation) {
        let history = findings.history;
        let process = history.processes.get(&acquire.proc);
        if process.is_some_and(|process| process.killed_ns.is_some()) {
            return;
        }
        let ended = acquire.done.map_or(self.end_ns, |done| done.at_ns);
        let (due, ahead) = self.due(acquire.invoked_ns);
        if ended > due {
            let sentence = {
                let how = acquire
                    .done
                    .map_or("has no end".to_owned(), |done| done.outcome.to_string());
                let after = milliseconds(ended - acquire.invoked_ns);
                let due = milliseconds(due - acquire.invoked_ns);
                format!(
                    "an acquire after the calm {how} after {after}, with {ahead} ahead: due in {due}"
                )
            };
            let window = show::operation(findings, acquire);
            findings.add(Liveness, Some(&acquire.lock), sentence, window);
        }
    }

    fn had_by_someone(&self, findings: &mut Findings<'_>, asked: &[&Operation]) {
        let Some(first) = asked.first() else {
            return;
        };
        let (due, ahead) = self.due(first.invoked_ns);
        let mut refused = asked.iter().filter(|acquire| {
            acquire.is(Outcome::Refused) && acquire.done.is_some_and(|done| done.at_ns > due)
        });
        let had = asked.iter().filter(|acquire| acquire.is(Outcome::Ok));
        let had = had
            .filter_map(|acquire| acquire.done)
            .map(|done| done.at_ns)
            .min();
        let Some(last) = refused
            .next_back()
            .filter(|_| had.is_none_or(|had| had > due))
        else {
            return;
        };
        let sentence = {
            let due = milliseconds(due - first.invoked_ns);
            format!(
                "after the calm nobody got the lock within {due}, with {ahead} ahead, and some asked"
            )
        };
        let mut window = show::operation(findings, first);
        window.extend(show::operation(findings, last));
        findings.add(Liveness, Some(&first.lock), sentence, window);
    }
}
