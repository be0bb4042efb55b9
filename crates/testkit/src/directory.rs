//! The directory of a private server: its socket, its log and its data.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::mkdtemp;

/// The maximal length of a socket path, below all systems' limits (104 and 108 bytes).
const LONGEST: usize = 100;

/// The number of log lines shown if a server does not start.
const LINES: usize = 4;

/// A temporary directory that only this user may enter. Dropping it removes it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates a directory (mode 0700) whose name begins with `prefix`.
    pub fn make(prefix: &str) -> io::Result<Self> {
        let template = |parent: &Path| parent.join(format!("{prefix}XXXXXX"));
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

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path for the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("redis.sock")
    }

    /// Adds the options of every private server to its command. The server listens on `port` of 127.0.0.1, or on none if that is
    /// 0. It keeps its files in this directory. Later options replace these.
    pub fn configure(&self, command: &mut Command, port: u16) -> io::Result<()> {
        // A start is judged by the log, which must not contain lines of an earlier run.
        let log = File::create(self.log_path())?;
        command
            .current_dir(&self.0)
            .stdout(log.try_clone()?)
            .stderr(log);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.arg("--dir").arg(&self.0);
        command.args(["--save", "", "--daemonize", "no"]);
        Ok(())
    }

    /// The output of the server since its last start.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The last lines of the log, which say why a server did not start.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.0.join("log")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A failure leaves a few small files in the temporary directory.
        let _removed: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}
