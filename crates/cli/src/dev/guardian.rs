//! The guardian of a server: its parent, which outlives whoever asked for it by a moment. Must never outlive its server, or
//! say anything but to the process that started it.

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

/// What stands before the URL when the server answers. Anything else is why it does not.
pub(super) const READY: &str = "ready ";

/// How often the server and the shell are looked at. Nothing else tells of the end of a process that is not our child.
const TICK: Duration = Duration::from_millis(100);

/// Keeps a server until nobody needs it.
pub(super) fn keep(args: &Dev) -> Exit {
    // Ctrl-C at the terminal of whoever asked for a server is not for it. Fails only for the leader of a group, which a
    // process that was just started is not.
    let _session: nix::Result<Pid> = setsid();
    match in_runtime(guard(args)) {
        Ok(exit) => exit,
        // Heard by the one that started us.
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
        // An error is an end as well.
        let _read: io::Result<usize> = io::stdin().read_to_string(&mut text);
        CallingShell::parse(&text)
    });
    let mut server = tokio::select! {
        server = DevServer::start(args) => server?,
        // Given up before it answered.
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
