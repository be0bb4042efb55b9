//! The command `leasehold`. Reads as a table of contents; must never hold anything but that.
//!
//! | module | what it is for |
//! |---|---|
//! | [`args`], [`values`] | what was typed |
//! | [`help`] | what `-h` leaves out, and the sections of `--help` |
//! | [`exit`] | how this process can end: the one table of exit codes |
//! | [`store`], [`session`] | where the locks live, and one connection to it |
//! | [`config`], [`secret`], [`address`] | settings that were not typed, files with secrets, what may be shown of a URL |
//! | [`wait`] | the time in line, and what is said meanwhile |
//! | [`hold`] | `leasehold hold`: a lock for a program in any language, over pipes |
//! | [`token`] | `leasehold acquire`, `renew`, `release`, `check`: a lock in the steps of a pipeline |
//! | [`run`] | `leasehold run`: a command under a lock |
//! | `cache` | `leasehold cache`: what a slow command prints, kept for all hosts |
//! | [`dev`] | `leasehold dev`: a private server to try it with |
//! | `lab` | `leasehold lab`: what is wrong with other locks, and how we know of ours |
//! | [`pages`] | `leasehold help`, `completions`, `man` |
//! | [`inspect`], [`wait`], [`watch`], [`break_lock`] | the verbs that look: `inspect`, `wait`, `watch`, and `break` |
//! | [`seen`], [`out`] | a lock as others see it, and what goes to stdout |
//! | [`doctor`] | `leasehold doctor`: whether a store is fit for locks |
//! | [`signals`], [`terminal`], [`sys`] | what processes, signals and terminals need |
//! | [`text`], [`style`], [`verbose`] | what people read, and its colour |

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
#[cfg(feature = "lab")]
mod lab;
mod messages;
mod output;
mod pages;
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
    #[cfg(feature = "lab")]
    if let Some(played) = leasehold_lab::parts::play() {
        return played;
    }
    terminal::write_from_background();
    // What dies with this thread is let go first: a command is killed, a lock given back.
    catch_unwind(AssertUnwindSafe(verb))
        .unwrap_or_else(|_| Exit::of_a_panic())
        .leave()
}

/// Does what was asked for.
fn verb() -> Exit {
    match args::parse() {
        Ok(Verb::Run(args)) => run::run(&args),
        Ok(Verb::Dev(args)) => dev::dev(&args),
        #[cfg(feature = "lab")]
        Ok(Verb::Lab(args)) => lab::lab(&args),
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
        Err(exit) => exit,
    }
}
