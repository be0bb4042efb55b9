//! The command `leasehold`. Reads as a table of contents; must never hold anything but that.
//!
//! | module | what it is for |
//! |---|---|
//! | [`args`] | what was typed |
//! | [`exit`] | how this process can end: the one table of exit codes |
//! | [`run`] | the story of `leasehold run`, from the lock to the exit code |
//! | [`program`] | finding the command before the lock is taken |
//! | [`wait`], [`progress`] | the time in line, and what is said meanwhile |
//! | [`child`], [`supervise`], [`stop`] | the command under the lease: started, watched, stopped in time |
//! | [`signals`], [`terminal`], [`sys`] | what processes, signals and terminals need |
//! | [`text`] | what people read |

mod args;
mod child;
mod exit;
mod program;
mod progress;
mod run;
mod signals;
mod stop;
mod supervise;
mod sys;
mod terminal;
mod text;
mod wait;

use std::process::ExitCode;

fn main() -> ExitCode {
    terminal::write_from_background();
    match args::parse() {
        Ok(args) => run::run(&args).leave(),
        Err(exit) => exit.leave(),
    }
}
