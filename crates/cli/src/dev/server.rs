//! A redis-server or valkey-server with safe settings, in a directory that only this user may enter. It ends
//! with its [`DevServer`].

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold::Client;
use nix::unistd::mkdtemp;
use tokio::time::{sleep, timeout};

use super::args::Dev;
use crate::exit::{Exit, NOT_FOUND, UNAVAILABLE};
use crate::messages::shown;
use crate::session::refused_by_system;
use crate::sys;

/// The default server programs, in order of preference.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

const POLL: Duration = Duration::from_millis(5);

/// The time limit for the server's first answer. An empty server needs about 10 ms.
const START: Duration = Duration::from_secs(30);

/// The maximal length of a socket path, below all systems' limits (104 and 108 bytes).
const LONGEST: usize = 100;

/// The number of log lines shown if a server does not start.
const LINES: usize = 4;

/// The program to run: the given one, or the first installed one.
pub(super) fn find(asked: Option<&Path>) -> Result<PathBuf, Exit> {
    let places = env::var_os("PATH").unwrap_or_default();
    let found = |name: &OsStr| {
        let name = Path::new(name);
        let file = if name.components().count() > 1 {
            is_program(name).then(|| name.to_owned())
        } else {
            env::split_paths(&places)
                .map(|directory| directory.join(name))
                .find(|file| is_program(file))
        };
        // The server starts in another directory.
        path::absolute(file?).ok()
    };
    match asked {
        Some(asked) => found(asked.as_os_str()).ok_or_else(|| {
            Exit::saying(
                NOT_FOUND,
                format!(
                    "no such program: {} (exit {NOT_FOUND})\n    next    leasehold dev --server /path/to/redis-server",
                    shown(asked.as_os_str())
                ),
            )
        }),
        None => PROGRAMS.iter().find_map(|name| found(name.as_ref())).ok_or_else(|| {
            Exit::saying(
                NOT_FOUND,
                format!(
                    "neither redis-server nor valkey-server is installed (exit {NOT_FOUND})
    Debian, Ubuntu    apt install redis-server
    Fedora            dnf install valkey
    macOS             brew install redis
    elsewhere         leasehold dev --server /path/to/redis-server
    without one       leasehold run --url local: LOCK -- CMD"
                ),
            )
        }),
    }
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A running server. Dropping it kills the server; its data is temporary.
pub(super) struct DevServer {
    child: Child,
    url: String,
    directory: Directory,
}

impl DevServer {
    /// Starts a server and waits until it answers.
    pub(super) async fn start(args: &Dev) -> Result<Self, Exit> {
        let refused = |error: io::Error| refused_by_system(&error);
        let directory = Directory::make().map_err(refused)?;
        let program = args.server.as_deref().unwrap_or(Path::new(PROGRAMS[0]));
        let mut command = Command::new(program);
        directory
            .configure(&mut command, args.port)
            .map_err(refused)?;
        // The server does not need them, and they may contain secrets.
        for name in ["LEASEHOLD_URL", "REDIS_URL"] {
            command.env_remove(name);
        }
        sys::prepare(&mut command, None, || Ok(()));
        let mut server = Self {
            child: command.spawn().map_err(refused)?,
            url: match args.port {
                Some(port) => format!("redis://127.0.0.1:{port}/"),
                None => format!("unix:{}", directory.socket().display()),
            },
            directory,
        };
        let answers = timeout(START, server.answers()).await;
        match answers {
            Ok(true) => Ok(server),
            _ => Err(Exit::saying(UNAVAILABLE, server.directory.log_tail())),
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
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _killed: io::Result<()> = self.child.kill();
        let _ended: io::Result<ExitStatus> = self.child.wait();
    }
}

/// The server's directory. Dropping it removes the directory.
struct Directory(PathBuf);

impl Directory {
    /// Creates the directory for this user only (mode 0700).
    fn make() -> io::Result<Self> {
        let template = |parent: &Path| parent.join("leasehold-dev-XXXXXX");
        let usual = template(&env::temp_dir());
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        // A socket needs a short path, and the URL a path without special characters of URLs or shells.
        let fits = usual.as_os_str().len() + "/redis.sock".len() <= LONGEST
            && usual.is_absolute()
            && usual.to_str().is_some_and(|path| path.chars().all(plain));
        let template = if fits {
            usual
        } else {
            template(Path::new("/tmp"))
        };
        Ok(Self(mkdtemp(&template)?))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("redis.sock")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Sets the server options: no eviction, persistence, access for this user only.
    fn configure(&self, command: &mut Command, port: Option<u16>) -> io::Result<()> {
        let log = File::create(self.log())?;
        command
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        command.args(["--port", &port.unwrap_or(0).to_string()]);
        command.args(["--bind", "127.0.0.1", "--protected-mode", "yes"]);
        command.arg("--unixsocket").arg(self.socket());
        command.args(["--unixsocketperm", "600"]);
        command.arg("--dir").arg(&self.0);
        command.args(["--maxmemory-policy", "noeviction"]);
        command.args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
        ]);
        command.args(["--daemonize", "no"]);
        Ok(())
    }

    /// The last lines of the log.
    fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        if last.is_empty() {
            return "    it did not answer, and logged nothing".into();
        }
        let words: Vec<String> = last
            .iter()
            .map(|line| format!("    {}", line.escape_debug()))
            .collect();
        words.join("\n")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A failure leaves a few small files in the temporary directory.
        let _removed: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}
