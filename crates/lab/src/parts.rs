//! The entry point of an experiment's separate processes: this same program, executed again with a configuration in the
//! environment.

use std::process::ExitCode;

use crate::storm::part::Part;
use crate::storm::{judge_process, resource, worker};

/// Runs the role of this process and returns its result; `None` if it is no part of an experiment. Every program that runs
/// experiments calls this first.
pub fn play() -> Option<ExitCode> {
    let played = match Part::ordered()? {
        Ok(Part::Worker(orders)) => worker::work(orders),
        Ok(Part::Resource(orders)) => resource::serve(&orders),
        Ok(Part::Judge(orders)) => judge_process::judge(&orders),
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
