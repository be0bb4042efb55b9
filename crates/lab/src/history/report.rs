//! The verdict as text for people. It names what was not judged.

use std::fmt;

use crate::history::verdict::{Counts, Moment, Status, Verdict, Violation};

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run, seed, system, ..
        } = self;
        let control = if self.control { ", a control" } else { "" };
        writeln!(f, "{run}, seed {seed}: {system}{control}")?;
        write!(f, "{}", self.counts)?;
        for not_judged in &self.not_judged {
            writeln!(f, "  not judged    {not_judged}")?;
        }
        for (invariant, count) in &self.found {
            writeln!(f, "\n{invariant}: {count} times")?;
            for violation in self
                .violations
                .iter()
                .filter(|it| it.invariant == *invariant)
            {
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
                writeln!(
                    f,
                    "clean: 0 in {n} acquisitions bounds the rate at {} with 95 % confidence under this fault mix",
                    rate(n)
                )
            }
        }
    }
}

/// 3/n: at a higher rate, to see none in n has a probability below 5 %.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn rate(n: u64) -> String {
    format!("3/{n} = {:.1e}", 3.0 / n.max(1) as f64)
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acquisitions,
            processes,
            operations,
            unknown,
            refused,
            ..
        } = self;
        writeln!(
            f,
            "  acquisitions  {acquisitions} by {processes} processes; {refused} refused"
        )?;
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
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let faults = if faults.is_empty() {
            "none".to_owned()
        } else {
            faults.join(", ")
        };
        writeln!(
            f,
            "  faults        {faults}; the store lost its data {} times",
            self.epochs
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
