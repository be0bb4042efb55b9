//! Starts a redis-server, the first time and after a kill, and waits until this very server
//! answers.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{self, ServerClock};
use super::net::ReservedPort;
use super::resp::{Reply, RespConn};
use super::tls::{Certificates, Signed};
use super::wait::block_on;
use crate::directory::Directory;
use crate::process::{Process, watched};

/// How long another program may keep the port of a server that starts again.
const TAKEN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// The options of a server, used again at each restart.
#[derive(Debug, Default, Clone)]
pub(crate) struct Options {
    pub(crate) args: Vec<OsString>,
    /// The text that the launcher writes into the server's configuration file before the first start. `None` starts a server without such
    /// a file. The server rewrites the file when its role changes, so a restart keeps the role.
    pub(crate) file: Option<String>,
    /// The port of its cluster bus is reserved too.
    pub(crate) bus: bool,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) tls: Option<Signed>,
    pub(crate) virtual_clock: bool,
    pub(crate) binary: Option<PathBuf>,
}

/// Everything needed to start the same server again.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) options: Options,
    pub(crate) program: PathBuf,
    pub(crate) directory: Directory,
    pub(crate) port: ReservedPort,
    pub(crate) tls_port: ReservedPort,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) clock: Option<ServerClock>,
}

impl Launch {
    /// Starts on the present ports and waits until the server answers. `None` if another program
    /// listens there.
    pub(crate) fn run(&self) -> Result<Option<Process>, String> {
        let shown = self.program.display();
        let mut process = self
            .spawn()
            .map_err(|error| format!("cannot start {shown}: {error}"))?;
        let pause = async |pause| thread::sleep(pause);
        let up = process.until_it_answers(pause, async |id| self.answers(id));
        match block_on(up) {
            Ok(()) => Ok(Some(process)),
            Err(_) if self.directory.log().contains("Address already in use") => Ok(None),
            Err(why) => Err(format!("{shown} {why}:\n{}", self.directory.last_words())),
        }
    }

    /// Like [`run`](Self::run), waiting for the port when it is taken.
    pub(crate) fn run_again(&self) -> Result<Process, String> {
        let started = Instant::now();
        loop {
            if let Some(process) = self.run()? {
                return Ok(process);
            }
            if started.elapsed() > TAKEN {
                let port = self.port.number();
                let words = self.directory.last_words();
                return Err(format!("port {port} stays taken:\n{words}"));
            }
            thread::sleep(POLL);
        }
    }

    /// A connection to this server, logged in when it has a password.
    pub(crate) fn connect(&self) -> io::Result<RespConn> {
        let mut connection = RespConn::try_connect(self.port.number())?;
        if let Some(password) = &self.options.password {
            let reply = connection.try_command(&["AUTH", password])?;
            if let Some(error) = reply.error() {
                return Err(io::Error::new(ErrorKind::PermissionDenied, error));
            }
        }
        Ok(connection)
    }

    pub(crate) fn socket_path(&self) -> Option<PathBuf> {
        self.options.unix_socket.then(|| self.directory.socket())
    }

    pub(crate) fn tls(&self) -> Option<(u16, &Certificates)> {
        let files = self.certificates.as_ref()?;
        Some((self.tls_port.number(), files))
    }

    fn spawn(&self) -> io::Result<Process> {
        let mut command = watched(&self.program);
        if let Some(first) = &self.options.file {
            let file = self.directory.path().join("server.conf");
            if !file.exists() {
                fs::write(&file, first)?;
            }
            command.arg(file);
        }
        self.directory.configure(&mut command, self.port.number())?;
        // A master otherwise waits 5 s for more replicas before the first synchronisation.
        command.args(["--repl-diskless-sync-delay", "0"]);
        if let Some(password) = &self.options.password {
            command.args(["--requirepass", password, "--masterauth", password]);
        }
        if let Some(path) = self.socket_path() {
            command.arg("--unixsocket").arg(path);
        }
        if let Some((port, files)) = self.tls() {
            command.arg("--tls-port").arg(port.to_string());
            command.arg("--tls-cert-file").arg(&files.cert);
            command.arg("--tls-key-file").arg(&files.key);
            command.arg("--tls-ca-cert-file").arg(&files.ca);
            command.args(["--tls-auth-clients", "no"]);
        }
        command.args(&self.options.args);
        if self.clock.is_some() {
            clock::preload(self.directory.path(), &mut command);
        }
        for (name, value) in &self.options.environment {
            command.env(name, value);
        }
        Process::spawn(&mut command)
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
