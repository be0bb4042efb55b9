//! I8 and I10: the acquires of one lock. One without an outcome counts as a possible holder only.

use super::findings::{Findings, milliseconds};
use crate::history::format::{Operation, Outcome};
use crate::history::invariant::Invariant::{Liveness, UnknownResolves};

/// I8: sweeps in order of beginnings, with the latest and the second latest end of possible holders so far. A refusal is explained
/// if one of them, other than itself, began before the refusal ended and ended after it began.
pub(super) fn explained(findings: &mut Findings<'_>) {
    let history = findings.history;
    let mut holds: Vec<(u64, u64, &Operation)> = Vec::new();
    let mut refusals: Vec<(u64, &Operation)> = Vec::new();
    for acquire in history.acquires() {
        let (from, until) = history.may_hold(acquire);
        holds.push((from, until, acquire));
        if let Some(done) = acquire.done.filter(|done| done.outcome == Outcome::Refused) {
            refusals.push((done.at_ns, acquire));
        }
    }
    holds.sort_by_key(|(from, _, acquire)| (&acquire.lock, *from));
    refusals.sort_by_key(|(at, acquire)| (&acquire.lock, *at));
    let mut begun = holds.into_iter().peekable();
    let mut latest = Latest::default();
    for (refused_ns, refused) in refusals {
        while let Some((_, until, acquire)) = begun
            .next_if(|(from, _, acquire)| (&acquire.lock, *from) <= (&refused.lock, refused_ns))
        {
            latest.add(until, acquire);
        }
        let other = latest.but(refused);
        if other.is_some_and(|(until, _)| until >= refused.invoked_ns) {
            continue;
        }
        let who = match other {
            Some((until, other)) => format!(
                "the last that may have held it is worker {}'s {}, until {} before",
                other.proc,
                other.owner,
                milliseconds(refused.invoked_ns - until)
            ),
            None => "nobody had ever asked for it".to_owned(),
        };
        let sentence = format!(
            "worker {} was refused while nobody can have held the lock: {who}",
            refused.proc
        );
        let other = other.map(|(_, other)| other);
        findings.add(UnknownResolves, sentence, &[refused, &other]);
    }
}

/// The latest two ends among the acquires of one lock.
#[derive(Default)]
struct Latest<'a> {
    first: Option<(u64, &'a Operation)>,
    second: Option<(u64, &'a Operation)>,
}

impl<'a> Latest<'a> {
    fn add(&mut self, until: u64, acquire: &'a Operation) {
        if self
            .first
            .is_some_and(|(_, first)| first.lock != acquire.lock)
        {
            *self = Self::default();
        }
        if self.first.is_none_or(|(latest, _)| until > latest) {
            self.second = self.first.replace((until, acquire));
        } else if self.second.is_none_or(|(latest, _)| until > latest) {
            self.second = Some((until, acquire));
        }
    }

    /// The latest end of another acquire of this lock.
    fn but(&self, refused: &Operation) -> Option<(u64, &'a Operation)> {
        let both = [self.first, self.second].into_iter().flatten();
        let mut others = both.filter(|(_, acquire)| !std::ptr::eq(*acquire, refused));
        others
            .next()
            .filter(|(_, other)| other.lock == refused.lock)
    }
}

/// I10: the bound counts the acquires ahead.
pub(super) fn live(findings: &mut Findings<'_>) {
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
        let holds = of_lock.iter().map(|acquire| history.may_hold(acquire));
        let (began, mut through): (Vec<u64>, Vec<u64>) = holds.unzip();
        through.sort_unstable();
        // When an acquire that was invoked then must have ended, and the number of acquires ahead of it.
        let due_of = |invoked_ns: u64| {
            let began = began.partition_point(|began| *began < invoked_ns);
            let through = through.partition_point(|through| *through <= invoked_ns);
            let ahead = u64::try_from(began.saturating_sub(through)).unwrap_or(u64::MAX);
            let allowed = bound_ns.saturating_mul(ahead.saturating_add(1));
            (invoked_ns.saturating_add(allowed), ahead)
        };
        let after = of_lock.partition_point(|acquire| acquire.invoked_ns < calm_ns);
        let asked = of_lock.get(after..).unwrap_or_default();
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
            continue;
        };
        let (due, ahead) = due_of(first.invoked_ns);
        let with = |outcome| asked.iter().filter(move |acquire| acquire.is(outcome));
        let after_due = |acquire: &&Operation| acquire.done.is_some_and(|done| done.at_ns > due);
        if let Some(last) = with(Outcome::Refused).rfind(|it| after_due(it))
            && with(Outcome::Ok).all(after_due)
        {
            let due = milliseconds(due - first.invoked_ns);
            let sentence = format!(
                "after the calm nobody got the lock within {due}, with {ahead} ahead, and some asked"
            );
            findings.add(Liveness, sentence, &[*first, *last]);
        }
    }
}
