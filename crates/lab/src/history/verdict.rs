//! The verdict on a history, and its text for people, which names what was not judged.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::campaign::FaultKind;
use crate::history::invariant::Invariant;

/// The verdict on a history; `Display` is the report for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the run.
    pub run: String,
    /// Its seed.
    pub seed: u64,
    /// The system that was judged.
    pub system: String,
    /// Whether the run had to show violations.
    pub control: bool,
    /// The result.
    pub status: Status,
    /// The numbers of judged items.
    pub counts: Counts,
    /// The number of violations of each invariant.
    pub found: BTreeMap<Invariant, u64>,
    /// The number of violations that a control had to show.
    pub shown: u64,
    /// The first violation of each invariant, with those that a control had to show.
    pub violations: Vec<Violation>,
    /// The parts that were not judged, with the reasons.
    pub not_judged: Vec<String>,
}

/// The result of a judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// No violation; or a control showed the expected ones and no other.
    Clean,
    /// An invariant is violated.
    Violated,
    /// The run proves nothing, for this reason.
    Invalid(String),
}

/// The numbers of judged items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Worker processes with an operation.
    pub processes: u64,
    /// Acquired leases.
    pub acquisitions: u64,
    /// Those of each mode.
    pub acquired: Modes,
    /// The holders whose process was killed.
    pub killed: Modes,
    /// The holders whose lock was broken.
    pub broken: Modes,
    /// Operations of workers.
    pub operations: u64,
    /// Operations without an outcome: unknown, or interrupted by the death of their process.
    pub unknown: u64,
    /// Refused acquires.
    pub refused: u64,
    /// Decisions of the resource.
    pub decisions: u64,
    /// Accepted writes.
    pub accepted_writes: u64,
    /// Refused reads and writes.
    pub refused_decisions: u64,
    /// Recorded removals.
    pub removals: u64,
    /// Holders that were told of a loss.
    pub told_lost: u64,
    /// The longest time from the deadline to the loss report of a holder that was not stopped, in microseconds.
    pub told_latest_us: Option<i64>,
    /// Leases that began before the end of an earlier one of their lock, excused (as after a loss of data) or not (I3).
    pub overlaps: u64,
    /// For a quorum: what happened while a majority of its nodes was in reach.
    pub reach: Option<Reach>,
    /// How often the store lost its data.
    pub epochs: u32,
    /// The faults.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// How many leases or holders of each mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// Alone: of mutexes and writers.
    pub exclusive: u64,
    /// Of readers.
    pub shared: u64,
    /// Of slots of semaphores.
    pub slots: u64,
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            exclusive,
            shared,
            slots,
        } = self;
        write!(
            f,
            "{exclusive} alone, {shared} of readers, {slots} of slots"
        )
    }
}

/// What must not happen while a majority of the nodes of a quorum is in reach (I13).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Leases that renewed themselves and outlived a TTL, in all.
    pub renewed: u64,
    /// Leases that healthy holders lost.
    pub lost: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// The longest wait for a lock that nobody held, in microseconds.
    pub longest_idle_us: u64,
    /// How long no majority was in reach, in milliseconds: then none of these counts.
    pub out_ms: u64,
}

/// One violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The lock, if it concerns one.
    pub lock: Option<String>,
    /// A description in one sentence.
    pub sentence: String,
    /// The lines that show it, in order of time, with the faults between them.
    pub window: Vec<Moment>,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `file:line`.
    pub place: String,
    /// Its time.
    pub at_ns: u64,
    /// The worker, if it concerns one.
    pub proc: Option<u64>,
    /// Its description.
    pub text: String,
    /// A lease is valid from here on.
    pub begins: bool,
    /// It is not from here on.
    pub ends: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = if self.control { ", a control" } else { "" };
        writeln!(
            f,
            "{}, seed {}: {}{control}",
            self.run, self.seed, self.system
        )?;
        write!(f, "{}", self.counts)?;
        for not_judged in &self.not_judged {
            writeln!(f, "  not judged    {not_judged}")?;
        }
        for (invariant, count) in &self.found {
            writeln!(f, "\n{invariant}: {count} times")?;
            let shown = self.violations.iter();
            for violation in shown.filter(|it| it.invariant == *invariant) {
                write!(f, "{violation}")?;
            }
        }
        writeln!(f)?;
        match &self.status {
            Status::Invalid(why) => writeln!(f, "INVALID: {why}"),
            Status::Violated => writeln!(f, "VIOLATED"),
            Status::Clean if self.control => {
                writeln!(f, "clean: the control showed {} violations", self.shown)
            }
            Status::Clean => {
                let n = self.counts.acquisitions;
                // At a higher rate, to see none in n has a probability below 5 %.
                #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
                let rate = 3.0 / n.max(1) as f64;
                writeln!(
                    f,
                    "clean: 0 in {n} acquisitions bounds the rate at 3/{n} = {rate:.1e} with 95 % confidence under this fault mix"
                )
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  acquisitions  {} by {} processes; {} refused",
            self.acquisitions, self.processes, self.refused
        )?;
        writeln!(f, "  modes         {}", self.acquired)?;
        writeln!(f, "  killed        {}", self.killed)?;
        writeln!(f, "  broken        {}", self.broken)?;
        let (operations, unknown) = (self.operations, self.unknown);
        writeln!(
            f,
            "  operations    {operations}, {unknown} without an outcome"
        )?;
        writeln!(
            f,
            "  resource      {} decisions, {} writes accepted, {} accesses refused",
            self.decisions, self.accepted_writes, self.refused_decisions
        )?;
        write!(f, "  told lost     {}", self.told_lost)?;
        match self.told_latest_us {
            Some(late) if late > 0 => writeln!(f, ", the latest {late} us after its deadline")?,
            Some(late) => writeln!(f, ", the latest {} us before its deadline", -late)?,
            None => writeln!(f)?,
        }
        writeln!(f, "  overlaps      {} leases", self.overlaps)?;
        if let Some(reach) = self.reach {
            let Reach {
                renewed,
                lost,
                unanswered,
                ..
            } = reach;
            let (idle_ms, out_ms) = (reach.longest_idle_us / 1_000, reach.out_ms);
            writeln!(
                f,
                "  in reach      {lost} leases lost ({renewed} were renewed), {unanswered} requests without an answer, {idle_ms} ms the longest wait for a free lock"
            )?;
            writeln!(f, "  out of reach  {out_ms} ms without a majority")?;
        }
        let faults = self.faults.iter();
        let faults: Vec<String> = faults.map(|(kind, n)| format!("{kind} {n}")).collect();
        let faults = if faults.is_empty() {
            "none".to_owned()
        } else {
            faults.join(", ")
        };
        let epochs = self.epochs;
        writeln!(
            f,
            "  faults        {faults}; the store lost its data {epochs} times"
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lock {
            Some(lock) => writeln!(f, "  lock {lock}: {}", self.sentence)?,
            None => writeln!(f, "  {}", self.sentence)?,
        }
        timeline(f, &self.window)
    }
}

/// One column per process; a lease is a vertical line from its beginning to its end.
fn timeline(f: &mut fmt::Formatter<'_>, window: &[Moment]) -> fmt::Result {
    let Some(first) = window.first() else {
        return Ok(());
    };
    let mut procs: Vec<u64> = window.iter().filter_map(|moment| moment.proc).collect();
    procs.sort_unstable();
    procs.dedup();
    let mut valid: Vec<u64> = Vec::new();
    let names = procs
        .iter()
        .map(|proc| format!(" {:<7}", format!("w{proc}")));
    let head = format!("    {:>12} {}", "ms", names.collect::<String>());
    writeln!(f, "{}", head.trim_end())?;
    for moment in window {
        let since = moment.at_ns - first.at_ns;
        write!(
            f,
            "    {:>12} ",
            format!("+{}.{:03}", since / 1_000_000, since / 1_000 % 1_000)
        )?;
        for proc in &procs {
            let mark = match (moment.proc == Some(*proc), moment.begins, moment.ends) {
                (true, true, _) | (true, _, true) => "+--",
                (true, _, _) if valid.contains(proc) => "| *",
                (true, _, _) => "  *",
                _ if valid.contains(proc) => "|",
                _ => "",
            };
            write!(f, " {mark:<7}")?;
        }
        let proc = moment.proc.unwrap_or_default();
        if moment.begins {
            valid.push(proc);
        } else if moment.ends {
            let at = valid.iter().position(|open| *open == proc);
            at.map(|at| valid.swap_remove(at));
        }
        writeln!(f, " {}  ({})", moment.text, moment.place)?;
    }
    Ok(())
}
