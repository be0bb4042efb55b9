//! A private redis-server or valkey-server on a free port of 127.0.0.1, with its own directory. It ends with the process that
//! started it, however that ends.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::host_time;
use crate::process::Process;

/// Tried in this order, unless `REDIS_SERVER_BIN` names a program.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// Below the range of outgoing connections: one of those could take the port while the server is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const ATTEMPTS: u16 = 50;

/// How long a server may take to answer. Without data to load it takes a hundredth of a second.
const START: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// A server that runs, or was killed and can be started again. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct OwnServer {
    program: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    port: u16,
    running: Option<Process>,
    directory: TempDir,
}

impl OwnServer {
    /// Starts one with these options of its command line, such as `["--appendonly", "yes"]`, and waits until it answers.
    ///
    /// # Errors
    /// What to do if no server is installed; the end of its log if it does not start.
    pub fn start(options: &[&str]) -> Result<Self, String> {
        Self::start_in(options, Vec::new())
    }

    /// Starts a server with additional environment variables, also after a restart.
    ///
    /// # Errors
    /// As [`OwnServer::start`].
    pub fn start_in(
        options: &[&str],
        environment: Vec<(&'static str, PathBuf)>,
    ) -> Result<Self, String> {
        let directory = tempfile::Builder::new()
            .prefix("leasehold-lab-")
            .tempdir()
            .map_err(|error| format!("cannot make a directory for a server: {error}"))?;
        let mut server = Self {
            program: find()?,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            environment,
            port: 0,
            running: None,
            directory,
        };
        for attempt in 0..ATTEMPTS {
            server.port = free_port(attempt)?;
            if server.run()? {
                return Ok(server);
            }
        }
        Err(format!(
            "no free port for a server among {ATTEMPTS} from {} to {}",
            PORTS.start, PORTS.end
        ))
    }

    /// `redis://127.0.0.1:PORT/`; the same after a restart.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port it listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The process, as long as it was not killed.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Process::pid)
    }

    /// Kills it. Its data stays for [`OwnServer::restart`].
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<(), String> {
        self.running
            .take()
            .map_or(Ok(()), |mut process| process.kill())
    }

    /// Kills it if it still runs, starts it again with the same data on the same port, and waits until it answers.
    ///
    /// # Errors
    /// The end of its log if it does not start.
    pub fn restart(&mut self) -> Result<(), String> {
        self.kill()?;
        let from = host_time::up();
        while !self.run()? {
            if host_time::up().saturating_sub(from) > START {
                return Err(format!(
                    "port {} stays taken:\n{}",
                    self.port,
                    self.last_words()
                ));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops it (SIGSTOP): it keeps its connections and does not answer.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop(&self) -> Result<(), String> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it.
    ///
    /// # Errors
    /// When it does not run.
    pub fn cont(&self) -> Result<(), String> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let process = self.running.as_ref().ok_or("the server does not run")?;
        process.signal(signal)
    }

    /// Starts the program on the current port. False if the port was taken.
    fn run(&mut self) -> Result<bool, String> {
        let refused = |error: io::Error| format!("cannot write the log of a server: {error}");
        let log = File::create(self.log()).map_err(refused)?;
        let errors = log.try_clone().map_err(refused)?;
        let process = Process::start(&self.program, |command| {
            command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
            command
                .arg("--dir")
                .arg(self.directory.path())
                .args(&self.options);
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            command.stdout(log).stderr(errors);
        });
        self.running = Some(process?);
        let ready = self.answers();
        if !matches!(ready, Ok(true)) {
            self.kill()?;
        }
        ready
    }

    /// Waits until it answers. False if it ended because the port was taken.
    fn answers(&mut self) -> Result<bool, String> {
        let from = host_time::up();
        loop {
            let ended = self
                .running
                .as_mut()
                .is_none_or(|process| !matches!(process.ended(), Ok(None)));
            if !ended && self.is_on_the_port() {
                return Ok(true);
            }
            if ended && self.last_words().contains("Address already in use") {
                return Ok(false);
            }
            if ended || host_time::up().saturating_sub(from) > START {
                let ended = if ended {
                    "ended at once"
                } else {
                    "does not answer"
                };
                return Err(format!(
                    "{} {ended}:\n{}",
                    self.program.display(),
                    self.last_words()
                ));
            }
            thread::sleep(POLL);
        }
    }

    /// Whether this process answers, with all data loaded: another program's server may have won the port.
    fn is_on_the_port(&self) -> bool {
        let info = connect(&self.url(), Duration::from_secs(1)).and_then(|mut connection| {
            let _loaded: String = redis::cmd("PING").query(&mut connection)?;
            redis::cmd("INFO").arg("server").query(&mut connection)
        });
        let info: String = info.unwrap_or_default();
        let own = self.pid().map(|pid| format!("process_id:{pid}"));
        info.lines().any(|line| own.as_deref() == Some(line))
    }

    /// Sends a command on a new connection.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T, String> {
        let asked = self.connect().and_then(|mut connection| {
            let mut command = redis::Cmd::new();
            command.arg(words).query(&mut connection)
        });
        asked.map_err(|error| format!("{}: {error}", words.join(" ")))
    }

    /// A new connection to it.
    pub(crate) fn connect(&self) -> redis::RedisResult<redis::Connection> {
        connect(&self.url(), Duration::from_secs(10))
    }

    /// Makes it a replica of the server on this port, or a primary.
    pub(crate) fn follow(&self, port: Option<u16>) -> Result<(), String> {
        let port = port.map(|port| port.to_string());
        match port {
            Some(port) => self.ask(&["REPLICAOF", "127.0.0.1", &port]),
            None => self.ask(&["REPLICAOF", "NO", "ONE"]),
        }
    }

    /// The time on its clock, in microseconds.
    pub(crate) fn time_us(&self) -> Result<i64, String> {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"])?;
        Ok(seconds * 1_000_000 + micros)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    }
}

/// A new connection to a server, on which each answer may take so long.
pub(crate) fn connect(url: &str, limit: Duration) -> redis::RedisResult<redis::Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    Ok(connection)
}

fn find() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("REDIS_SERVER_BIN").filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let places = env::var_os("PATH").unwrap_or_default();
    let installed = |name: &str| {
        env::split_paths(&places)
            .map(|place| place.join(name))
            .find(|file| is_program(file))
    };
    PROGRAMS.iter().find_map(|name| installed(name)).ok_or_else(|| {
        "neither redis-server nor valkey-server is installed: apt install redis-server, dnf install valkey, \
         brew install redis, or set REDIS_SERVER_BIN=/path/to/redis-server"
            .into()
    })
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A port without a listener. Concurrent processes begin at different places.
fn free_port(attempt: u16) -> Result<u16, String> {
    let count = PORTS.end - PORTS.start;
    let mixed = u64::from(std::process::id()) * 7_919
        + host_time::up_ns() / 1_000
        + u64::from(attempt) * 101;
    let first = u16::try_from(mixed % u64::from(count)).unwrap_or_default();
    (0..count)
        .map(|step| PORTS.start + (first + step) % count)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or_else(|| format!("no free port from {} to {}", PORTS.start, PORTS.end))
}
