//! The separate processes of a run: this same program, executed again with a configuration in the environment. A secret command
//! line word prevents an accidental start.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use testkit::{Process, watched};

use super::{resource, worker};
use crate::history::{self, Verdict};
use crate::host_time;

/// The only word of its command line.
const WORD: &str = "leasehold-lab-part";

/// The environment variable with its configuration.
const CONFIG: &str = "LEASEHOLD_LAB_PART";

/// The role of a process, with its configuration.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(crate) enum Part {
    Worker(worker::WorkerConfig),
    Resource(resource::ResourceConfig),
    /// The directory of the history, and the file for the verdict. It gets nothing else, so it knows only what was recorded.
    Judge {
        history: PathBuf,
        verdict: PathBuf,
    },
}

impl Part {
    /// Starts the process. It ends with this process at the latest.
    pub(crate) fn start(&self) -> Result<Process, String> {
        let program =
            env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let config = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let mut command = watched(&program);
        command.arg(WORD).env(CONFIG, config).stdout(Stdio::null());
        Process::spawn(&mut command)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))
    }

    /// The role of this process; `None` if it is no part of an experiment.
    fn ordered() -> Option<Result<Self, String>> {
        let mut words = env::args_os().skip(1);
        if words.next()? != WORD || words.next().is_some() {
            return None;
        }
        let config = env::var(CONFIG).ok()?;
        Some(serde_json::from_str(&config).map_err(|error| format!("{CONFIG}: {error}")))
    }
}

/// A directory that is removed when it is dropped.
pub(super) fn scratch() -> Result<TempDir, String> {
    let made = tempfile::Builder::new()
        .prefix("leasehold-storm-")
        .tempdir();
    made.map_err(|error| format!("cannot make a directory: {error}"))
}

/// Waits until a part has ended; an error if it takes longer than this, or if it has failed.
pub(super) fn succeeds(process: &mut Process, name: &str, limit: Duration) -> Result<(), String> {
    let until = host_time::up().saturating_add(limit);
    loop {
        match process.ended().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{name} has failed: {status}")),
            None if host_time::up() > until => {
                return Err(format!("{name} does not come to an end in time"));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Runs the role of this process and returns its result; `None` if it is no part of an experiment. The program that runs
/// experiments calls this first.
pub fn play() -> Option<ExitCode> {
    let played = match Part::ordered()? {
        Ok(Part::Worker(orders)) => worker::work(orders),
        Ok(Part::Resource(orders)) => resource::serve(&orders),
        Ok(Part::Judge { history, verdict }) => judge(&history, &verdict),
        Err(why) => Err(why),
    };
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("leasehold-lab: {why}");
            ExitCode::FAILURE
        }
    })
}

/// Reads and judges a history, and writes the verdict.
fn judge(history: &Path, verdict: &Path) -> Result<(), String> {
    let judged: Result<Verdict, String> = history::read(history)
        .map(|history| history::judge(&history))
        .map_err(|unreadable| unreadable.to_string());
    let text = serde_json::to_string(&judged).map_err(|error| error.to_string())?;
    fs::write(verdict, text).map_err(|error| format!("{}: {error}", verdict.display()))
}
