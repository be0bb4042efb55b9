//! The parts of an experiment that run as processes of their own: this same program, executed again with orders. Must never
//! begin by accident: it takes a word that nobody types and orders in the environment.

use std::env;
use std::process::{ExitCode, Stdio};

use serde::{Deserialize, Serialize};

use crate::process::Process;
use crate::storm::{judged, resource, worker};

/// The one word of its command line.
const WORD: &str = "leasehold-lab-part";

/// Where its orders are.
const ORDERS: &str = "LEASEHOLD_LAB_PART";

/// Who a process is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(crate) enum Part {
    Worker(worker::Orders),
    Resource(resource::Orders),
    Judge(judged::Orders),
}

impl Part {
    /// Starts it. It ends with this process at the latest.
    pub(crate) fn start(&self) -> Result<Process, String> {
        let program =
            env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let orders = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Process::start(&program, |command| {
            command.arg(WORD).env(ORDERS, orders).stdout(Stdio::null());
        })
    }
}

/// Is what the process was started as: `None` if it is no part of an experiment. To be called first of all by each program
/// that runs experiments.
pub fn play() -> Option<ExitCode> {
    let mut words = env::args_os().skip(1);
    if words.next()? != WORD || words.next().is_some() {
        return None;
    }
    let orders = env::var(ORDERS).ok()?;
    let played = match serde_json::from_str(&orders) {
        Ok(Part::Worker(orders)) => worker::work(orders),
        Ok(Part::Resource(orders)) => resource::serve(&orders),
        Ok(Part::Judge(orders)) => judged::judge(&orders),
        Err(error) => Err(format!("{ORDERS}: {error}")),
    };
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("leasehold-lab: {why}");
            ExitCode::FAILURE
        }
    })
}
