//! The soak test, called *storm* on the command line: many real processes contend for a few locks while they, the servers and
//! the connections are stopped, killed and cut. A resource records its decisions. [`history`](crate::history) judges the result.
//!
//! Each run has two *negative controls* without protection, which must show violations. If they show none, the run would
//! have missed violations elsewhere too, and proves nothing.
//!
//! `storm --quorum` uses five servers that vote on each lock, the *nodes*. They are restarted without data, with all of them, or with
//! older ones. At most two nodes are unwell at a time, counting those that may have lost their memory and give no vote yet, and those
//! whose fences others refuse. Then no healthy holder may lose its lease, and each request has an answer (I13). Between these times,
//! about a third of all, a majority is stopped or cut off at once, and may lose its memory: then no lock is granted, and all holders
//! must learn in time that they have lost theirs.
//!
//! `storm --cluster` and `storm --sentinel` have replicas that take over, after a time without their primary: they lack its last
//! writes. Overlaps of leases are then excused for the locks of that primary (I3), and fences are not. Two campaigns before the storm
//! have these faults only, and count the stray writes: a control without fences, and `confirmed`. There a replica confirms each lease, so the judge
//! excuses nothing.
//!
//! The controls of a quorum have no quarantine, and no majority. *No certificate* is a control of the models only: of the ladder
//! (`quorum-no-certificate`), of the lab's `quorum` and of core's tests.
//!
//! | module | purpose |
//! |---|---|
//! | `campaign` | one run, from the first process to the verdict; the controls |
//! | `schedule`, `nemesis` | the faults: drawn from a seed, and caused; those of fleets in `nemesis::failover` |
//! | `stage` | the worker processes, and the history of the faults |
//! | `servers`, `clock` | one server with a replica, or the nodes of a quorum; their wall clock |
//! | `fleet` | a cluster, or what sentinels watch |
//! | `kinds` | which locks are read/write locks, semaphores and mutexes |
//! | `part`; `worker`, `resource` | the separate processes |
//! | `args`, `report` | the options and the output |

pub mod args;
mod campaign;
mod clock;
mod fleet;
mod kinds;
mod nemesis;
mod part;
mod report;
mod resource;
mod schedule;
mod servers;
mod stage;
mod worker;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use self::args::Storm;
use self::campaign::Campaign;
pub use self::part::play;
pub use self::report::{CampaignFindings, Conclusion, Control, Report};
pub use self::resource::Fencing;

use crate::output::{CommandOutput, Terminal};
use crate::server::connect;
use crate::text::json_line;

impl Storm {
    /// Runs it.
    ///
    /// # Errors
    /// As [`storm`].
    pub(crate) fn run(&self, json: bool, asked: &Terminal) -> Result<CommandOutput, String> {
        (asked.progress)(&format!("a storm of {:?}, seed {}", self.time, self.seed));
        let report = storm(self)?;
        Ok(CommandOutput {
            text: if json {
                json_line("leasehold.lab-storm/1", &report)
            } else {
                report.to_string()
            },
            fine: report.result == Conclusion::Clean,
        })
    }
}

/// Runs the two controls, and then the main campaign.
///
/// # Errors
/// When the test itself fails: there is no server, a process ends by itself, a history cannot be read.
pub fn storm(settings: &Storm) -> Result<Report, String> {
    if let Some(url) = &settings.url {
        reach(url)?;
    }
    let histories = Histories::new(settings)?;
    let mut found = Vec::new();
    for campaign in Campaign::all(settings) {
        let name = campaign.kind.name();
        let directory = histories.path.join(name);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let outcome = campaign.run(settings, &directory).map_err(|why| {
            // A campaign that did not start has left no history.
            if !directory.join("campaign.json").exists() {
                return format!("{name}: {why}");
            }
            let kept = histories.kept();
            format!("{name}: {why}\n    history    {}", kept.display())
        });
        found.push(outcome?);
    }
    let mut report = Report::new(settings, found);
    if settings.keep.is_some() || report.result != Conclusion::Clean {
        report.histories = Some(histories.kept());
    }
    Ok(report)
}

/// Checks that a foreign server answers; otherwise all workers would retry until the time is up.
fn reach(url: &str) -> Result<(), String> {
    let ping =
        |mut connection: redis::Connection| redis::cmd("PING").query::<String>(&mut connection);
    let answer = connect(url, Duration::from_secs(5)).and_then(ping);
    // The URL may hold a password.
    let silent = |error| format!("the server of --url does not answer: {error}");
    answer.map(drop).map_err(silent)
}

/// The directory of the histories.
struct Histories {
    path: PathBuf,
    /// Removed in the end, unless it is kept.
    scratch: Cell<Option<TempDir>>,
}

impl Histories {
    fn new(settings: &Storm) -> Result<Self, String> {
        if let Some(path) = settings.keep.clone() {
            let campaigns = Campaign::all(settings).into_iter();
            let used = campaigns
                .map(|campaign| path.join(campaign.kind.name()))
                .find(|path| path.exists());
            if let Some(used) = used {
                return Err(format!("{} has a history already", used.display()));
            }
            return Ok(Self {
                path,
                scratch: Cell::new(None),
            });
        }
        let scratch = part::scratch()?;
        Ok(Self {
            path: scratch.path().to_owned(),
            scratch: Cell::new(Some(scratch)),
        })
    }

    /// Keeps the directory.
    fn kept(&self) -> PathBuf {
        self.scratch
            .take()
            .map_or_else(|| self.path.clone(), TempDir::keep)
    }
}
