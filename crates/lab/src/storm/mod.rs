//! The soak test, called *storm* on the command line: many real processes contend for a few locks while they, the server and
//! the connections are stopped, killed and cut. A resource records its decisions. [`history`](crate::history) judges the result.
//!
//! Each run has two *negative controls* without protection, which must show violations. If they show none, the run would
//! have missed violations elsewhere too, and proves nothing.
//!
//! | module | purpose |
//! |---|---|
//! | `campaign` | one run, from the first process to the verdict |
//! | `nemesis`, `stage`, `pool` | the faults; their history, and those of workers; the worker processes |
//! | `servers`, `network`, `clock` | the server, its replica, the network path to them, and their clock |
//! | `quorum` | five servers that vote on each lock: their faults and their controls |
//! | `part`; `worker`, `resource` | the separate processes |
//! | `args`, `report` | the options and the output |

pub mod args;
mod campaign;
mod clock;
mod nemesis;
mod network;
mod part;
mod pool;
mod quorum;
mod report;
mod resource;
mod servers;
mod stage;
mod worker;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use self::args::Storm;
use self::campaign::{Campaign, Ground};
pub use self::part::play;
pub use self::report::{CampaignFindings, Conclusion, Control, Report};
pub use self::resource::Fencing;
use self::worker::System;

use crate::history::Invariant;
use crate::output::{CommandOutput, Terminal};
use crate::server::connect;
use crate::text::json_line;

/// The names of the controls, and of the main campaign.
const CONTROLS: [&str; 2] = ["set-del", "unfenced"];
const STORM: &str = "storm";

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

    /// At most a seventh of each is calm.
    fn campaigns(&self) -> [Campaign; 3] {
        if self.quorum {
            return quorum::campaigns(self);
        }
        let control = self.time / 8;
        let rest = self.time / 4 * 3;
        let unprotected = Campaign {
            name: CONTROLS[1],
            system: System::Leasehold,
            resource: Fencing::Unfenced,
            shows: Some(Invariant::NoLostUpdate),
            storm: control * 6 / 7,
            calm: control / 7,
            outlived: 30,
            ground: Ground::Server,
        };
        [
            Campaign {
                name: CONTROLS[0],
                system: System::SetDel,
                shows: Some(Invariant::Exclusion),
                ..unprotected
            },
            unprotected,
            Campaign {
                name: STORM,
                system: System::Leasehold,
                resource: self.resource,
                shows: None,
                storm: rest * 6 / 7,
                calm: rest / 7,
                outlived: 1,
                ..unprotected
            },
        ]
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
    for campaign in settings.campaigns() {
        let directory = histories.path.join(campaign.name);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let outcome = match campaign.ground {
            Ground::Server => campaign.on_a_server(settings, &directory),
            _ => quorum::run(&campaign, settings, &directory),
        };
        let outcome = outcome.map_err(|why| {
            // A campaign that did not start has left no history.
            if !directory.join("campaign.json").exists() {
                return format!("{}: {why}", campaign.name);
            }
            format!(
                "{}: {why}\n    history    {}",
                campaign.name,
                histories.kept().display()
            )
        })?;
        found.push(outcome);
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
        if let Some(path) = &settings.keep {
            let mut paths = settings
                .campaigns()
                .into_iter()
                .map(|campaign| path.join(campaign.name));
            return match paths.find(|path| path.exists()) {
                Some(used) => Err(format!("{} has a history already", used.display())),
                None => Ok(Self {
                    path: path.clone(),
                    scratch: Cell::new(None),
                }),
            };
        }
        let scratch = tempfile::Builder::new()
            .prefix("leasehold-storm-")
            .tempdir();
        let scratch = scratch.map_err(|error| format!("cannot make a directory: {error}"))?;
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
