//! A redis-server or valkey-server with safe settings, in a directory that only this user may enter. It ends
//! with its [`DevServer`].

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::Client;
use testkit::{Directory, Process, find_program};
use tokio::time::{sleep, timeout};

use super::args::Dev;
use crate::exit::{Exit, NOT_FOUND, UNAVAILABLE};
use crate::messages::shown;
use crate::session::refused_by_system;
use crate::sys;

/// The server's settings: no eviction, persistence, access for this user only.
const OPTIONS: [&str; 10] = [
    "--protected-mode",
    "yes",
    "--unixsocketperm",
    "600",
    "--maxmemory-policy",
    "noeviction",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
];

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
pub(super) struct DevServer {
    // Before `directory`, and therefore dropped first: the process ends before its directory is removed.
    process: Process,
    url: String,
    directory: Directory,
}

impl DevServer {
    /// Starts a server and waits until it answers.
    pub(super) async fn start(args: &Dev) -> Result<Self, Exit> {
        let refused = |error: io::Error| refused_by_system(&error);
        let directory = Directory::make("leasehold-dev-").map_err(refused)?;
        let program = args.server.as_deref().unwrap_or(Path::new("redis-server"));
        let mut command = Command::new(program);
        directory
            .configure(&mut command, args.port.unwrap_or(0))
            .map_err(refused)?;
        command.arg("--unixsocket").arg(directory.socket());
        command.args(OPTIONS).stdin(Stdio::null());
        // The server does not need them, and they may contain secrets.
        for name in ["LEASEHOLD_URL", "REDIS_URL"] {
            command.env_remove(name);
        }
        sys::prepare(&mut command, None, || Ok(()));
        let mut server = Self {
            process: Process::spawn(&mut command).map_err(refused)?,
            url: match args.port {
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

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn has_ended(&mut self) -> bool {
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
