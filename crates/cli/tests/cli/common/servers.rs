//! The servers that `leasehold dev` starts for a test, and their users.

#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::eventually;

use super::{LIMIT, Store, UNHURRIED, lives, without_settings};

pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A command in the directory of the test, with `leasehold` on its path and nothing set.
pub(crate) fn command(store: &Store, words: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args([
        "--default-signal=HUP,INT,QUIT,TERM,TSTP,USR1,USR2",
        "setsid",
    ]);
    command.args(words).current_dir(store.dir.path());
    surround(store, &mut command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn surround(store: &Store, command: &mut Command) {
    let programs = Path::new(LEASEHOLD).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    without_settings(command);
    command
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("TMPDIR", store.dir.path())
        .env("XDG_CONFIG_HOME", store.file("config"))
        .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED);
}

pub(crate) fn output(store: &Store, words: &[&str]) -> Output {
    command(store, words).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The servers of this test: each runs in its own directory there.
pub(crate) fn servers(store: &Store) -> Vec<u64> {
    let ours = store.file("leasehold-dev-");
    let ours = ours.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let place = fs::read_link(format!("/proc/{pid}/cwd"));
            place.is_ok_and(|place| place.to_string_lossy().starts_with(ours)) && lives(*pid)
        })
        .collect()
}

pub(crate) fn directories(store: &Store) -> Vec<PathBuf> {
    let entries = fs::read_dir(store.dir.path()).unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("leasehold-dev-"))
        .collect()
}

/// Waits until neither a server nor its directory is left.
#[track_caller]
pub(crate) fn nothing_is_left(store: &Store) {
    eventually(LIMIT, "the server is gone", || servers(store).is_empty());
    eventually(LIMIT, "its directory is gone", || {
        directories(store).is_empty()
    });
}

pub(crate) fn parent_of(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(") ").next().unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

pub(crate) fn send(pid: u64, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// A process that is killed when the test ends.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(store: &Store, words: &[&str]) -> Self {
        let mut command = command(store, words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u64 {
        self.0.id().into()
    }

    pub(crate) fn end(&mut self) -> Option<i32> {
        eventually(LIMIT, "it ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The answer of the server at `url` to a command.
pub(crate) fn ask(url: &str, question: &str) -> Vec<String> {
    let mut server = UnixStream::connect(url.strip_prefix("unix:").unwrap()).unwrap();
    write!(server, "{question}\r\nPING\r\n").unwrap();
    let lines = BufReader::new(server).lines().map(Result::unwrap);
    lines.take_while(|line| line != "+PONG").collect()
}

/// A shell that has evaluated the output of `leasehold dev`, and waits.
pub(crate) fn evaluated(store: &Store, shell: &str, substitution: &str) -> (Running, String) {
    let script = format!(
        "eval \"{substitution}\"; leasehold run x true && echo $LEASEHOLD_URL > url.new && mv url.new url; while ! [ -e let-go ]; do sleep 0.02; done"
    );
    let running = Running::start(store, &[shell, "-c", &script]);
    store.until("url");
    let url = fs::read_to_string(store.file("url")).unwrap();
    (running, url.trim().to_owned())
}
