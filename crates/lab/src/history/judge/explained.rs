//! I8. An acquire without outcome counts as a possible holder only.

use super::show;
use crate::history::format::{Operation, Outcome};
use crate::history::invariant::Invariant::UnknownResolves;
use crate::history::verdict::{Findings, milliseconds};

/// Sweeps in order of beginnings, with the latest and the second latest end of possible holders so far. A refusal is explained
/// if one of them, other than itself, began before the refusal ended and ended after it began.
pub(super) fn judge(findings: &mut Findings<'_>) {
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
        let sentence = {
            let who = match other {
                Some((until, other)) => format!(
                    "the last that may have held it is worker {}'s {}, until {} before",
                    other.proc,
                    other.owner,
                    milliseconds(refused.invoked_ns - until)
                ),
                None => "nobody had ever asked for it".to_owned(),
            };
            format!(
                "worker {} was refused while nobody can have held the lock: {who}",
                refused.proc
            )
        };
        let mut window = show::operation(findings, refused);
        window.extend(
            other
                .into_iter()
                .flat_map(|(_, other)| show::operation(findings, other)),
        );
        findings.add(UnknownResolves, Some(&refused.lock), sentence, window);
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
