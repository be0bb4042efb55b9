//! A redis-server or valkey-server with safe settings, in a directory that only this user may enter. Its guardian is
//! its parent process, which ends it when its user is gone.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::Client;
use nix::unistd::{Pid, setsid};
use testkit::{Directory, Process, find_program};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::calling_shell::CallingShell;
use crate::exit::{Exit, NOT_FOUND, UNAVAILABLE};
use crate::messages::shown;
use crate::session::in_runtime;
use crate::terminal::Signals;
use crate::{output, sys};

/// The prefix of the URL when the server answers. Any other output is an error.
pub(super) const READY: &str = "ready ";

/// The interval of checks on the server and the shell. The system reports no end of a process that is not a
/// child.
const TICK: Duration = Duration::from_millis(100);

/// Keeps a server until it is no longer needed.
pub(super) fn keep(program: Option<&Path>, port: Option<u16>) -> Exit {
    // A Ctrl-C at the caller's terminal is not for the guardian. Fails only for a group leader, which a new
    // process is not.
    let _session: nix::Result<Pid> = setsid();
    match in_runtime(guard(program, port)) {
        Ok(exit) => exit,
        // The caller reads this.
        Err(why) => {
            let _said: io::Result<()> = output::write(format!("{}\n", why.text()).as_bytes());
            Exit::quiet(UNAVAILABLE)
        }
    }
}

async fn guard(program: Option<&Path>, port: Option<u16>) -> Result<Exit, Exit> {
    let mut signals = Signals::catch()?;
    let mut told = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        // An error counts as the end.
        let _read: io::Result<usize> = io::stdin().read_to_string(&mut text);
        CallingShell::parse(&text)
    });
    let mut server = tokio::select! {
        server = DevServer::start(program, port) => server?,
        // The caller gave up before the server answered.
        _ = &mut told => return Ok(Exit::quiet(0)),
        signal = signals.next_ending() => return Ok(Exit::by(signal)),
    };
    let line = format!("{READY}{}\n", server.url);
    output::write(line.as_bytes())?;
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

/// The server's settings: no eviction, persistence, access for this user only.
const OPTIONS: &str = "--protected-mode yes --unixsocketperm 600 --maxmemory-policy noeviction --appendonly yes --appendfsync everysec";

const POLL: Duration = Duration::from_millis(5);

/// The time limit for the server's first answer. An empty server needs about 10 ms.
const START: Duration = Duration::from_secs(30);

/// The program to run: the given one, or the first installed one.
pub(super) fn find(asked: Option<&Path>) -> Result<PathBuf, Exit> {
    find_program(asked).ok_or_else(|| {
        let missing = match asked {
            Some(asked) => format!(
                "no such program: {} (exit {NOT_FOUND})\n    next    leasehold dev --server /path/to/redis-server",
                shown(asked.as_os_str())
            ),
            None => format!(
                "neither redis-server nor valkey-server is installed (exit {NOT_FOUND})
    Debian, Ubuntu    apt install redis-server
    Fedora            dnf install valkey
    macOS             brew install redis
    elsewhere         leasehold dev --server /path/to/redis-server
    without one       leasehold run --url local: LOCK -- CMD"
            ),
        };
        Exit::saying(NOT_FOUND, missing)
    })
}

/// A running server. Dropping it kills the server; its data is temporary.
struct DevServer {
    // Before `directory`, and therefore dropped first: the process ends before its directory is removed.
    process: Process,
    url: String,
    directory: Directory,
}

impl DevServer {
    /// Starts a server and waits until it answers.
    async fn start(program: Option<&Path>, port: Option<u16>) -> Result<Self, Exit> {
        let directory = Directory::make("leasehold-dev-")?;
        let mut command = Command::new(program.unwrap_or(Path::new("redis-server")));
        directory.configure(&mut command, port.unwrap_or(0))?;
        command.arg("--unixsocket").arg(directory.socket());
        command.args(OPTIONS.split(' ')).stdin(Stdio::null());
        // The server does not need them, and they may contain secrets.
        for name in ["LEASEHOLD_URL", "REDIS_URL"] {
            command.env_remove(name);
        }
        sys::prepare(&mut command, None, || Ok(()));
        let mut server = Self {
            process: Process::spawn(&mut command)?,
            url: match port {
                Some(port) => format!("redis://127.0.0.1:{port}/"),
                None => format!("unix:{}", directory.socket().display()),
            },
            directory,
        };
        let answers = timeout(START, server.answers()).await;
        match answers {
            Ok(true) => Ok(server),
            _ => Err(Exit::saying(UNAVAILABLE, server.last_words())),
        }
    }

    /// Waits until the server answers or has ended.
    async fn answers(&mut self) -> bool {
        loop {
            if self.has_ended() {
                return false;
            }
            // Checks its socket first: the port may belong to another server.
            if self.directory.socket().exists()
                && let Ok(client) = Client::connect(&self.url).await
            {
                client.close().await;
                return !self.has_ended();
            }
            sleep(POLL).await;
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.process.ended(), Ok(None))
    }

    fn last_words(&self) -> String {
        let words = self.directory.last_words();
        if words.is_empty() {
            return "    it did not answer, and logged nothing".into();
        }
        let lines: Vec<String> = words
            .lines()
            .map(|line| format!("    {}", line.escape_debug()))
            .collect();
        lines.join("\n")
    }
}
