//! The parts of an experiment that run as processes of their own: this same program, executed again with orders. Must never
//! begin by accident: it takes a word that nobody types and orders in the environment.

use std::process::ExitCode;

use crate::storm::part::Part;
use crate::storm::{judge_process, resource, worker};

/// Is what the process was started as: `None` if it is no part of an experiment. To be called first of all by each program
/// that runs experiments.
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
