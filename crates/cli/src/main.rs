//! The command `leasehold`: one module for each verb, and what the verbs share.
//!
//! | module | what it is for |
//! |---|---|
//! | [`args`] | the command line |
//! | [`exit`] | the table of exit codes |
//! | [`store`], [`session`] | the choice of the store of the locks, and one connection to it |
//! | [`config`], [`inherited_store`] | settings from variables and files, their values, files with secrets; the store of a
//! nested call |
//! | [`acquire_ui`] | waiting for a lock, and the progress shown meanwhile |
//! | [`hold`] | `leasehold hold`: a lock for a program in any language, over pipes |
//! | `serve`, `ui` | `leasehold serve`: leases over HTTP; `leasehold ui`: the page about locks |
//! | [`token`] | `leasehold acquire`, `renew`, `release`, `check`: a lock across the steps of a pipeline |
//! | [`run`] | `leasehold run`: a command under a lock; `leasehold elect`: while it leads |
//! | `cache` | `leasehold cache`: the output of a slow command, cached for all hosts |
//! | [`dev`] | `leasehold dev`: a private server to try things with |
//! | [`pages`] | `leasehold help`, `completions`, `man`, and the layout of `-h` and `--help` |
//! | [`inspect`], [`leader`], [`wait`], [`watch`], [`break_lock`] | the operator's verbs: `inspect`, `leader`, `wait`, `watch` and
//! `break` |
//! | [`look`] | the requests of these verbs: many locks at once, and polling |
//! | [`view`], [`output`] | a lock as shown to operators, and the writing to stdout |
//! | [`quorum`] | `leasehold quorum`: prepares the servers of a quorum |
//! | [`doctor`], [`diagnosis`] | `leasehold doctor`: checks that a store is fit for locks; its tables of checks |
//! | [`service`] | messages to systemd |
//! | [`terminal`], [`sys`], [`processes`] | signals and the terminal, system calls, other processes |
//! | [`messages`], [`verbose`] | messages on stderr, their colour, and the log lines of `-v` |

mod acquire_ui;
mod args;
mod break_lock;
#[cfg(feature = "cache")]
mod cache;
mod config;
mod dev;
mod diagnosis;
mod doctor;
mod exit;
mod held;
mod hold;
mod inherited_store;
mod inspect;
mod leader;
mod look;
mod messages;
mod output;
mod pages;
mod processes;
mod quorum;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod service;
mod session;
mod store;
mod sys;
mod terminal;
mod token;
#[cfg(feature = "serve")]
mod ui;
mod verbose;
mod view;
mod wait;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::args::Verb;
use crate::exit::{Exit, SOFTWARE, exit};

fn main() -> ExitCode {
    terminal::write_from_background();
    // Unwinding runs the destructors first: they kill the command and release the lock.
    catch_unwind(AssertUnwindSafe(verb))
        .unwrap_or_else(|_| {
            // The message of the panic is already on stderr.
            Err(exit!(
                SOFTWARE,
                "this is a bug in leasehold (exit {SOFTWARE}): please report the lines above"
            ))
        })
        .unwrap_or_else(|exit| exit)
        .leave()
}

/// Parses the command line and runs the verb.
fn verb() -> Result<Exit, Exit> {
    match args::parse()? {
        Verb::Run(args) => run::run(&args),
        Verb::Elect(args) => run::elect(*args),
        Verb::Dev(args) => dev::dev(&args),
        Verb::Completions(args) => pages::completions(&args, args::command()),
        Verb::Man(args) => pages::man(&args, args::command()),
        Verb::Help(args) => pages::help(&args, args::command()),
        Verb::Inspect(args) => inspect::inspect(&args).map_err(Exit::without_command),
        Verb::Leader(args) => leader::leader(&args).map_err(Exit::without_command),
        Verb::Wait(args) => wait::wait(&args).map_err(Exit::without_command),
        Verb::Watch(args) => watch::watch(&args).map_err(Exit::without_command),
        Verb::Break(args) => break_lock::break_lock(&args).map_err(Exit::without_command),
        Verb::Hold(args) => hold::hold(&args),
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::serve(&args),
        #[cfg(feature = "serve")]
        Verb::Ui(args) => ui::ui(&args),
        Verb::Acquire(args) => token::acquire(&args),
        Verb::Renew(args) => token::renew(&args),
        Verb::Release(args) => token::release(&args),
        Verb::Check(args) => token::check(&args),
        #[cfg(feature = "cache")]
        Verb::Cache(args) => cache::cache(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Quorum(args) => quorum::quorum(&args).map_err(Exit::without_command),
    }
}
