//! Starts a redis-server, the first time and after a kill: its command line, and the wait until
//! this very server answers.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[cfg(target_os = "linux")]
use super::clock::{self, ServerClock};
use super::net::ReservedPort;
use super::resp::{Reply, RespConn};
use super::tls::{Certificates, Signed};
use crate::process::Process;

const READY_LIMIT: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(2);

/// The options of a server, used again at each restart.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) args: Vec<OsString>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) tls: Option<Signed>,
    #[cfg(target_os = "linux")]
    pub(crate) virtual_clock: bool,
    pub(crate) binary: Option<PathBuf>,
}

/// Everything needed to start the same server again.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) options: Options,
    pub(crate) dir: TempDir,
    pub(crate) port: ReservedPort,
    pub(crate) tls_port: ReservedPort,
    pub(crate) certificates: Option<Certificates>,
    #[cfg(target_os = "linux")]
    pub(crate) clock: Option<ServerClock>,
}

/// Another program listens on the port.
#[derive(Debug)]
pub(crate) struct PortTaken;

impl Launch {
    /// Starts on the present ports and waits until the server answers.
    pub(crate) fn run(&self) -> Result<Process, PortTaken> {
        // The outcome is read from the log, which must not contain lines of an earlier run.
        for file in [self.log_path(), self.output_path()] {
            File::create(file).expect("create a log file");
        }
        let mut process = self.spawn();
        self.wait_until_ready(&mut process)?;
        Ok(process)
    }

    /// Like [`run`](Self::run), waiting for the port when it is taken.
    pub(crate) fn run_again(&self) -> Process {
        let started = Instant::now();
        loop {
            if let Ok(process) = self.run() {
                return process;
            }
            let log = self.log();
            assert!(
                started.elapsed() < READY_LIMIT,
                "port {} stays taken:\n{log}",
                self.port.number()
            );
            thread::sleep(READY_POLL);
        }
    }

    /// A connection to this server, logged in when it has a password.
    pub(crate) fn connect(&self) -> std::io::Result<RespConn> {
        let mut connection = RespConn::try_connect(self.port.number())?;
        if let Some(password) = &self.options.password {
            let reply = connection.try_command(&["AUTH", password])?;
            if let Some(error) = reply.error() {
                return Err(std::io::Error::new(ErrorKind::PermissionDenied, error));
            }
        }
        Ok(connection)
    }

    /// The server's log, standard output and standard error.
    pub(crate) fn log(&self) -> String {
        [self.log_path(), self.output_path()]
            .iter()
            .filter_map(|path| fs::read(path).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    pub(crate) fn socket_path(&self) -> Option<PathBuf> {
        self.options
            .unix_socket
            .then(|| self.dir.path().join("redis.sock"))
    }

    pub(crate) fn tls(&self) -> Option<(u16, &Certificates)> {
        let files = self.certificates.as_ref()?;
        Some((self.tls_port.number(), files))
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("redis.log")
    }

    fn output_path(&self) -> PathBuf {
        self.dir.path().join("output.log")
    }

    fn spawn(&self) -> Process {
        let binary = self
            .options
            .binary
            .clone()
            .or_else(|| {
                env::var_os("REDIS_SERVER_BIN")
                    .filter(|path| !path.is_empty())
                    .map(PathBuf::from)
            })
            .unwrap_or_else(|| PathBuf::from("redis-server"));
        let mut command = Command::new(&binary);
        self.arguments(&mut command);
        #[cfg(target_os = "linux")]
        if self.clock.is_some() {
            clock::preload(self.dir.path(), &mut command);
        }
        match Process::spawn(&mut command) {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => panic!(
                "redis-server is not installed: run scripts/test, which installs it \
                 (looked for `{}`)",
                binary.display()
            ),
            Err(error) => panic!("cannot start `{}`: {error}", binary.display()),
        }
    }

    fn arguments(&self, command: &mut Command) {
        let output = File::options()
            .append(true)
            .open(self.output_path())
            .expect("open a log");
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("duplicate a file"))
            .stderr(output)
            .arg("--port")
            .arg(self.port.number().to_string())
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
            ])
            .arg("--dir")
            .arg(self.dir.path())
            .arg("--logfile")
            .arg(self.log_path());
        // A master otherwise waits 5 s for more replicas before the first synchronisation.
        command.args(["--repl-diskless-sync-delay", "0"]);
        if let Some(password) = &self.options.password {
            command.args(["--requirepass", password, "--masterauth", password]);
        }
        if let Some(path) = self.socket_path() {
            command.arg("--unixsocket").arg(path);
        }
        if let Some(files) = &self.certificates {
            command
                .arg("--tls-port")
                .arg(self.tls_port.number().to_string());
            command.arg("--tls-cert-file").arg(&files.cert);
            command.arg("--tls-key-file").arg(&files.key);
            command.arg("--tls-ca-cert-file").arg(&files.ca);
            command.args(["--tls-auth-clients", "no"]);
        }
        command.args(&self.options.args);
    }

    fn wait_until_ready(&self, process: &mut Process) -> Result<(), PortTaken> {
        let started = Instant::now();
        loop {
            if let Some(status) = process.ended() {
                let log = self.log();
                if log.contains("Address already in use") {
                    return Err(PortTaken);
                }
                panic!("redis-server ended at once ({status}):\n{log}");
            }
            if self.answers(process.id()) {
                return Ok(());
            }
            assert!(
                started.elapsed() < READY_LIMIT,
                "redis-server does not answer after {READY_LIMIT:?}:\n{}",
                self.log()
            );
            thread::sleep(READY_POLL);
        }
    }

    /// Whether the process `id` answers. Another test's server may have won the race for the port,
    /// and then answers until this one gives up.
    fn answers(&self, id: u32) -> bool {
        let Ok(mut connection) = self.connect() else {
            return false;
        };
        connection.set_timeout(Duration::from_secs(1));
        let Ok(Reply::Str(pong)) = connection.try_command(&["PING"]) else {
            return false;
        };
        let Ok(Reply::Str(info)) = connection.try_command(&["INFO", "server"]) else {
            return false;
        };
        let own_id = format!("process_id:{id}");
        pong == b"PONG"
            && String::from_utf8_lossy(&info)
                .lines()
                .any(|line| line == own_id)
    }
}
