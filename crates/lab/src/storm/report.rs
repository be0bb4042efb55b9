//! The result of a soak test, for people and for programs. A run whose controls showed nothing is never clean.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use humantime::format_duration;
use serde::Serialize;

use super::args::Storm;
use crate::history::{FaultKind, Invariant, Status, Verdict};

/// The overall result, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The controls showed the expected violations, and the main campaign showed none.
    Clean,
    /// A control showed nothing, or a fault did not happen: the run proves nothing.
    Invalid,
    /// A promise of Leasehold was broken.
    Violated,
}

/// One campaign.
#[derive(Debug, Clone, Serialize)]
pub struct CampaignFindings {
    /// The judge's verdict.
    pub verdict: Verdict,
    /// From the first worker's start to the last one's end.
    pub seconds: f64,
    /// Locks acquired in each of them.
    pub acquisitions_per_second: f64,
    /// The longest time for which the machine kept a worker from running, in milliseconds: the delay of a thread that only sleeps,
    /// while its process was not stopped.
    pub stalled_ms: u128,
    /// The longest delay of a loss report, in milliseconds, without the time in which the library's thread or the worker's tasks
    /// waited for a processor or its process was stopped. The judge does not use this.
    pub unexplained_ms: u128,
    /// The tolerance of the judge for a loss report, in milliseconds.
    pub tolerance_ms: u128,
    /// The faults that are not possible here, and why.
    pub left_out: Option<String>,
    /// Where replicas took over and nothing else happened: the writes that it cost.
    pub stray: Option<Stray>,
    /// For a control: the violations that it had to show, and how often it did.
    pub control: Option<Control>,
}

/// Writes of holders before their deadlines, after a failover had given their lock to another one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Stray {
    /// Updates that an unfenced resource lost, and changes that a reader saw; accesses that a fenced one refused.
    pub writes: u64,
    /// How often a replica took over.
    pub failovers: u64,
    /// The one by the other.
    pub per_failover: f64,
}

impl Stray {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn of(verdict: &Verdict) -> Self {
        let lost = verdict.found.get(&Invariant::NoLostUpdate);
        let writes = lost.copied().unwrap_or(0) + verdict.counts.refused_decisions;
        let failovers = verdict.counts.faults.get(&FaultKind::Failover);
        let failovers = failovers.copied().unwrap_or(0);
        Self {
            writes,
            failovers,
            per_failover: writes as f64 / failovers.max(1) as f64,
        }
    }
}

/// The violations that a control had to show, and how often it did.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Control {
    /// The violation.
    pub shows: Invariant,
    /// How often it occurred.
    pub times: u64,
}

impl CampaignFindings {
    fn result(&self) -> Conclusion {
        match self.verdict.status {
            Status::Violated => Conclusion::Violated,
            Status::Invalid(_) => Conclusion::Invalid,
            Status::Clean if self.control.is_some_and(|control| control.times == 0) => {
                Conclusion::Invalid
            }
            Status::Clean => Conclusion::Clean,
        }
    }
}

/// The result of all campaigns.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The overall result.
    pub result: Conclusion,
    /// The seed.
    pub seed: u64,
    /// The command to run the same again.
    pub again: String,
    /// The directory of the histories, if they were kept.
    pub histories: Option<PathBuf>,
    /// The controls, and last the main campaign.
    pub campaigns: Vec<CampaignFindings>,
}

impl Report {
    pub(super) fn new(settings: &Storm, campaigns: Vec<CampaignFindings>) -> Self {
        let worst = campaigns.iter().map(CampaignFindings::result).max();
        Self {
            result: worst.unwrap_or(Conclusion::Clean),
            seed: settings.seed,
            again: again(settings),
            histories: None,
            campaigns,
        }
    }
}

fn again(settings: &Storm) -> String {
    let (workers, locks, seed) = (settings.workers, settings.locks, settings.seed);
    let times = [settings.time, settings.ttl(), settings.tolerance];
    let [time, ttl, tolerance] =
        times.map(|duration| format_duration(duration).to_string().replace(' ', ""));
    let resource = settings.resource.to_possible_value();
    let resource = resource.as_ref().map_or("fenced", |value| value.get_name());
    let mut words = format!(
        "storm --seed {seed} --time {time} --workers {workers} --locks {locks} --ttl {ttl} --tolerance {tolerance} --resource {resource}"
    );
    if settings.quorum {
        words.push_str(" --quorum");
    }
    if settings.cluster {
        words.push_str(" --cluster");
    }
    if settings.sentinel {
        words.push_str(" --sentinel");
    }
    if settings.url.is_some() {
        // It may hold a password.
        words.push_str(" --url URL");
    }
    words
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.campaigns {
            writeln!(f, "{found}")?;
        }
        match self.result {
            Conclusion::Clean => writeln!(
                f,
                "clean: the controls showed what goes wrong without protection, and the storm nothing"
            )?,
            Conclusion::Violated => writeln!(
                f,
                "VIOLATED: something that is promised did not hold, see above"
            )?,
            Conclusion::Invalid => writeln!(f, "INVALID: this run says nothing, see above")?,
        }
        if let Some(histories) = &self.histories {
            writeln!(f, "    histories    {}", histories.display())?;
        }
        writeln!(f, "    again        leasehold-lab {}", self.again)
    }
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, writes, failovers) = (self.per_failover, self.writes, self.failovers);
        writeln!(
            f,
            "  stray writes  {rate:.2} per failover: {writes} in {failovers}"
        )
    }
}

impl fmt::Display for CampaignFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verdict,
            seconds,
            acquisitions_per_second,
            stalled_ms,
            unexplained_ms,
            tolerance_ms,
            left_out,
            ..
        } = self;
        let pace = format!(
            "{seconds:.1} s, {acquisitions_per_second:.0} acquisitions a second, workers kept waiting by the machine for up to {stalled_ms} ms"
        );
        let late = format!(
            "  told late     by up to {unexplained_ms} ms for no reason known; {tolerance_ms} ms are let pass, for whatever reason"
        );
        if let Some(left_out) = left_out {
            writeln!(f, "  left out      {left_out}")?;
        }
        let Some(control) = self.control.filter(|_| verdict.status == Status::Clean) else {
            writeln!(f, "{verdict}{late}\n  {pace}")?;
            return self.stray.map_or(Ok(()), |stray| write!(f, "{stray}"));
        };
        // Of expected violations, only the number matters.
        writeln!(f, "{}, a control: {}, {pace}", verdict.run, verdict.system)?;
        write!(f, "{}", verdict.counts)?;
        if let Some(stray) = self.stray {
            write!(f, "{stray}")?;
        }
        match control.times {
            0 => writeln!(f, "  INVALID: {} was to be seen broken", control.shows),
            times => writeln!(
                f,
                "  shows what it must: {} broken {times} times",
                control.shows
            ),
        }
    }
}
