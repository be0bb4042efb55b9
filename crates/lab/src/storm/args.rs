//! How a storm is asked for on a command line. Must never hold a default that [`Settings`] would not have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leasehold_history::{Status, judge, read};

use super::{Conclusion, Fencing, Settings, storm};
use crate::command::{Asked, Said};
use crate::host_time;
use crate::text::json_line;

/// Let processes fight for locks while they and the server are stopped and killed, and judge what they did
#[derive(Debug, Args)]
pub struct Storm {
    /// For how long, the two controls included (an eighth each)
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = humantime::parse_duration)]
    time: Duration,

    /// How many processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=200))]
    workers: u64,

    /// How many locks
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    locks: u64,

    /// How long a lease lasts
    #[arg(long, value_name = "DUR", default_value = "200ms", value_parser = humantime::parse_duration)]
    ttl: Duration,

    /// How late a process may come to write what happened to it: more on a machine that has much else to do
    #[arg(long, value_name = "DUR", default_value = "250ms", value_parser = humantime::parse_duration)]
    tolerance: Duration,

    /// What faults and work are drawn from; by default, another one each time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// What the resource asks for
    #[arg(long, value_enum, default_value = "fenced")]
    resource: Fencing,

    /// A server to use, instead of one of its own; it is then left alone, and only workers are stopped and killed
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Keep the histories here, even if nothing is wrong
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Storm {
    fn settings(&self) -> Settings {
        Settings {
            workers: self.workers,
            locks: self.locks,
            ttl: self.ttl,
            time: self.time,
            tolerance: self.tolerance,
            // Short enough to type.
            seed: self
                .seed
                .unwrap_or_else(|| host_time::up_ns() / 1_000 % 1_000_000),
            resource: self.resource,
            url: self.url.clone(),
            directory: self.keep.clone(),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// As [`storm`].
    pub(crate) fn run(&self, asked: &Asked) -> Result<Said, String> {
        let settings = self.settings();
        (asked.progress)(&format!(
            "a storm of {:?}, seed {}",
            settings.time, settings.seed
        ));
        let report = storm(&settings)?;
        Ok(Said {
            text: if self.json {
                report.json() + "\n"
            } else {
                report.to_string()
            },
            fine: report.result == Conclusion::Clean,
        })
    }
}

/// Judge the history of a storm once more
#[derive(Debug, Args)]
pub struct Judge {
    /// Where it is: what `storm --keep` was given, or a directory in there
    #[arg(value_name = "DIR")]
    history: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Judge {
    /// Reads and judges it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn run(&self) -> Result<Said, String> {
        let history = read(&self.history).map_err(|unreadable| unreadable.to_string())?;
        let verdict = judge(&history);
        Ok(Said {
            text: if self.json {
                json_line(&verdict)
            } else {
                verdict.to_string()
            },
            fine: verdict.status == Status::Clean,
        })
    }
}
