//! The violations of a history, and the parts of it that show them.

use std::collections::BTreeMap;

use crate::history::format::{Decision, LeaseMode, LossReport, Operation, Removal, Source};
use crate::history::invariant::Invariant;
use crate::history::joined::History;
use crate::history::lease::Lease;
use crate::history::verdict::{Moment, Violation};

/// How many violations of each invariant keep their window.
const KEPT: u64 = 5;
/// How many faults a window shows.
const FAULTS_SHOWN: usize = 6;

/// The violations found so far.
pub(super) struct Findings<'a> {
    pub(super) history: &'a History,
    pub(super) found: BTreeMap<Invariant, u64>,
    pub(super) violations: Vec<Violation>,
    pub(super) not_judged: Vec<String>,
    pub(super) told_latest_us: Option<i64>,
    pub(super) overlaps: u64,
}

impl<'a> Findings<'a> {
    pub(super) fn new(history: &'a History) -> Self {
        Self {
            history,
            found: BTreeMap::new(),
            violations: Vec::new(),
            not_judged: Vec::new(),
            told_latest_us: None,
            overlaps: 0,
        }
    }

    /// Adds a violation. These parts of the history show it; it concerns the lock of the first one.
    pub(super) fn add(&mut self, invariant: Invariant, sentence: String, parts: &[&dyn Shown]) {
        let count = self.found.entry(invariant).or_default();
        *count += 1;
        if *count > KEPT {
            return;
        }
        let (mut lock, mut window) = (None, Vec::new());
        for part in parts {
            let (of, moments) = part.shown(self.history);
            lock = lock.or(of);
            window.extend(moments);
        }
        self.add_faults(&mut window);
        window.sort_by_key(|moment| moment.at_ns);
        self.violations.push(Violation {
            invariant,
            lock: lock.map(str::to_owned),
            sentence,
            window,
        });
    }

    /// The faults between the first moment and the last.
    fn add_faults(&self, window: &mut Vec<Moment>) {
        let from = window.iter().map(|moment| moment.at_ns).min();
        let to = window.iter().map(|moment| moment.at_ns).max();
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let faults = &self.history.faults;
        let first = faults.partition_point(|fault| fault.at_ns < from);
        let between = faults.iter().skip(first);
        for fault in between
            .take_while(|fault| fault.at_ns <= to)
            .take(FAULTS_SHOWN)
        {
            let until = fault.until_ns.map_or(String::new(), |until| {
                format!(", for {}", milliseconds(until - fault.at_ns))
            });
            let by = fault
                .by_ns
                .map_or(String::new(), |by| format!(", by {}", milliseconds(by)));
            let lock = fault.lock.as_ref();
            let target = lock.unwrap_or(&fault.target);
            let text = format!("{} {target}{by}{until}", fault.kind);
            window.push(moment(self.history, fault.source, fault.at_ns, None, text));
        }
    }
}

/// A part of a history that the window of a violation shows: its lock, if there is such a part, and its lines.
pub(super) trait Shown {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>);
}

impl<T: Shown> Shown for Option<&T> {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        self.map_or((None, Vec::new()), |part| part.shown(history))
    }
}

/// The acquisition of a lease and its end.
impl Shown for Lease {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        let (owner, proc) = (&self.owner, Some(self.proc));
        let last = self.claims.iter().max_by_key(|claim| claim.until_ns);
        let deadline = last.and_then(|claim| claim.until_ns);
        let valid = deadline.map_or(String::new(), |until| {
            let valid_ns = until.saturating_sub(self.acquired_ns);
            format!(", valid for {}", milliseconds(valid_ns))
        });
        let how = match (self.mode, self.slot) {
            (LeaseMode::Shared, _) => " as a reader".to_owned(),
            (_, Some(slot)) => format!(" slot {slot}"),
            _ => String::new(),
        };
        let text = format!("{owner} acquired{how}{}{valid}", with_fence(self.fence));
        let begin = moment(history, self.acquired, self.acquired_ns, proc, text);
        let (source, at_ns, how) = match (self.over, deadline) {
            (Some((at, source)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                (source, at, "over")
            }
            (_, Some(deadline)) => (self.acquired, deadline, "past its deadline"),
            _ => (self.acquired, self.used_ns, "last used"),
        };
        let end = moment(history, source, at_ns, proc, format!("{owner} {how}"));
        let begin = Moment {
            begins: true,
            ..begin
        };
        (Some(&self.lock), vec![begin, Moment { ends: true, ..end }])
    }
}

/// The beginning of an operation and its end.
impl Shown for Operation {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        let (owner, proc) = (&self.owner, Some(self.proc));
        let text = format!("{owner} {} invoked", self.what);
        let begin = moment(history, self.invoked, self.invoked_ns, proc, text);
        let end = self.done.map(|done| {
            let text = format!("{owner} {} {}", self.what, done.outcome);
            moment(history, done.source, done.at_ns, proc, text)
        });
        (
            Some(&self.lock),
            std::iter::once(begin).chain(end).collect(),
        )
    }
}

impl Shown for LossReport {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        let text = format!("{} told lost", self.owner);
        let proc = Some(self.proc);
        let moment = moment(history, self.source, self.at_ns, proc, text);
        (Some(&self.lock), vec![moment])
    }
}

impl Shown for Decision {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        let word = if self.accepted { "accepts" } else { "refuses" };
        let what = match (self.is_write(), self.base) {
            (true, Some(base)) => format!("write on {base} to {}", self.value),
            (true, None) => format!("write to {}", self.value),
            (false, _) => format!("read of {}", self.value),
        };
        let text = format!("resource {word} {what}{}", with_fence(self.fence));
        let proc = Some(self.proc);
        let moment = moment(history, self.source, self.at_ns, proc, text);
        (Some(&self.lock), vec![moment])
    }
}

impl Shown for Removal {
    fn shown(&self, history: &History) -> (Option<&str>, Vec<Moment>) {
        let text = format!("{} removes the lock of {}", self.by, self.whose);
        let moment = moment(history, self.source, self.at_ns, None, text);
        (Some(&self.lock), vec![moment])
    }
}

fn moment(
    history: &History,
    source: Source,
    at_ns: u64,
    proc: Option<u64>,
    text: String,
) -> Moment {
    Moment {
        place: history.place(source),
        at_ns,
        proc,
        text,
        begins: false,
        ends: false,
    }
}

fn with_fence(fence: Option<u64>) -> String {
    fence.map_or(String::new(), |fence| format!(", fence {fence}"))
}

/// Nanoseconds as milliseconds with three decimals, without rounding up.
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
}
