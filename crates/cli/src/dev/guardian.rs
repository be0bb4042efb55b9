//! The guardian of a server: its parent process, which ends the server when its user is gone.

use std::io::{self, Read};
use std::time::Duration;

use nix::unistd::{Pid, setsid};
use tokio::time::{MissedTickBehavior, interval};

use super::args::Dev;
use super::calling_shell::CallingShell;
use super::server::DevServer;
use crate::exit::{Exit, UNAVAILABLE};
use crate::output;
use crate::session::{in_runtime, refused_by_system};
use crate::signals::Signals;

/// The prefix of the URL when the server answers. Any other output is an error.
pub(super) const READY: &str = "ready ";

/// The interval of checks on the server and the shell. The system reports no end of a process that is not a
/// child.
const TICK: Duration = Duration::from_millis(100);

/// Keeps a server until it is no longer needed.
pub(super) fn keep(args: &Dev) -> Exit {
    // A Ctrl-C at the caller's terminal is not for the guardian. Fails only for a group leader, which a new
    // process is not.
    let _session: nix::Result<Pid> = setsid();
    match in_runtime(guard(args)) {
        Ok(exit) => exit,
        // The caller reads this.
        Err(why) => {
            let _said: io::Result<()> = output::write(format!("{}\n", why.text()).as_bytes());
            Exit::quiet(UNAVAILABLE)
        }
    }
}

async fn guard(args: &Dev) -> Result<Exit, Exit> {
    let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
    let mut told = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        // An error counts as the end.
        let _read: io::Result<usize> = io::stdin().read_to_string(&mut text);
        CallingShell::parse(&text)
    });
    let mut server = tokio::select! {
        server = DevServer::start(args) => server?,
        // The caller gave up before the server answered.
        _ = &mut told => return Ok(Exit::quiet(0)),
        signal = signals.next_ending() => return Ok(Exit::by(signal)),
    };
    let line = format!("{READY}{}\n", server.url());
    output::write(line.as_bytes()).map_err(|error| refused_by_system(&error))?;
    let unneeded = async {
        if let Ok(Some(owner)) = told.await {
            until(|| owner.is_gone()).await;
        }
    };
    tokio::select! {
        () = unneeded => Ok(Exit::quiet(0)),
        () = until(|| server.has_ended()) => Ok(Exit::quiet(UNAVAILABLE)),
        signal = signals.next_ending() => Ok(Exit::by(signal)),
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !holds() {
        tick.tick().await;
    }
}
