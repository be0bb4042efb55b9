//! The command `leasehold`: one module for each verb, and what the verbs share.
//!
//! | module | what it is for |
//! |---|---|
//! | [`args`], [`values`] | the command line and its values |
//! | [`help`] | the layout of `-h` and `--help` |
//! | [`exit`] | the table of exit codes |
//! | [`store`], [`session`] | the store of the locks, and one connection to it |
//! | [`config`], [`secret`], [`address`] | settings from variables and files, files with secrets, URLs without
//! their secrets |
//! | [`acquire_ui`] | waiting for a lock, and the progress shown meanwhile |
//! | [`hold`] | `leasehold hold`: a lock for a program in any language, over pipes |
//! | [`token`] | `leasehold acquire`, `renew`, `release`, `check`: a lock across the steps of a pipeline |
//! | [`run`] | `leasehold run`: a command under a lock |
//! | `cache` | `leasehold cache`: the output of a slow command, cached for all hosts |
//! | [`dev`] | `leasehold dev`: a private server to try things with |
//! | [`pages`] | `leasehold help`, `completions`, `man` |
//! | [`inspect`], [`wait`], [`watch`], [`break_lock`] | the operator's verbs: `inspect`, `wait`, `watch` and
//! `break` |
//! | [`look`] | the requests of these verbs: many locks at once, and polling |
//! | [`view`], [`output`] | a lock as shown to operators, and the writing to stdout |
//! | [`quorum`] | `leasehold quorum`: prepares the servers of a quorum |
//! | [`doctor`], [`diagnosis`] | `leasehold doctor`: checks that a store is fit for locks; its tables of checks |
//! | [`signals`], [`terminal`], [`sys`] | signals, the terminal, system calls |
//! | [`messages`], [`style`], [`verbose`] | messages on stderr, their colour, and the log lines of `-v` |

mod acquire_ui;
mod address;
mod args;
mod break_lock;
#[cfg(feature = "cache")]
mod cache;
mod config;
mod dev;
mod diagnosis;
mod doctor;
mod exit;
mod help;
mod hold;
mod inherited_store;
mod inspect;
mod look;
mod messages;
mod output;
mod pages;
mod quorum;
mod run;
mod secret;
mod session;
mod signals;
mod store;
mod style;
mod sys;
mod terminal;
mod token;
mod values;
mod verbose;
mod view;
mod wait;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::args::Verb;
use crate::exit::Exit;

fn main() -> ExitCode {
    terminal::write_from_background();
    // Unwinding runs the destructors first: they kill the command and release the lock.
    catch_unwind(AssertUnwindSafe(verb))
        .unwrap_or_else(|_| Exit::of_a_panic())
        .leave()
}

/// Parses the command line and runs the verb.
fn verb() -> Exit {
    match args::parse() {
        Ok(Verb::Run(args)) => run::run(&args),
        Ok(Verb::Dev(args)) => dev::dev(&args),
        Ok(Verb::Completions(args)) => pages::completions(&args, args::command()),
        Ok(Verb::Man(args)) => pages::man(&args, args::command()),
        Ok(Verb::Help(args)) => pages::help(&args, args::command()),
        Ok(Verb::Inspect(args)) => inspect::inspect(&args),
        Ok(Verb::Wait(args)) => wait::wait(&args),
        Ok(Verb::Watch(args)) => watch::watch(&args),
        Ok(Verb::Break(args)) => break_lock::break_lock(&args),
        Ok(Verb::Hold(args)) => hold::hold(&args),
        Ok(Verb::Acquire(args)) => token::acquire(&args),
        Ok(Verb::Renew(args)) => token::renew(&args),
        Ok(Verb::Release(args)) => token::release(&args),
        Ok(Verb::Check(args)) => token::check(&args),
        #[cfg(feature = "cache")]
        Ok(Verb::Cache(args)) => cache::cache(&args),
        Ok(Verb::Doctor(args)) => doctor::doctor(&args),
        Ok(Verb::Quorum(args)) => quorum::quorum(&args),
        Err(exit) => exit,
    }
}
