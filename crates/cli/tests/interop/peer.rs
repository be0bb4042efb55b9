//! A process that takes locks on request: Leasehold or a foreign library. It ends with the test.
//!
//! It answers each line with a line: `try NAME TTL` and `wait NAME TTL` (milliseconds, 0: no end) with `held` or
//! `busy`, `release` with `released` or `lost`, `count NAME TTL TURNS WHO` with `counted`. The peers in Rust,
//! Python and JavaScript stop counting when the key `enough` exists. The first line is `ready VERSION`.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use testkit::{RedisServer, eventually};

use crate::scene::NAME;
use crate::{Tale, foreign, side};

/// A time limit that no working peer reaches.
const PLENTY: u16 = 60_000;

pub(crate) struct Peer {
    child: Child,
    /// Its stdin, until that is closed.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    pub(crate) version: String,
}

impl Peer {
    pub(crate) fn start(command: &Command) -> Self {
        let mut command = ending_with_us(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: its kill takes along the processes that it started.
        command.process_group(0);
        let mut child = command.spawn().expect("the program starts");
        let (to, from) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut peer = Self {
            child,
            to,
            from: BufReader::new(from),
            version: String::new(),
        };
        let ready = peer.answer();
        let Some(version) = ready.strip_prefix("ready ") else {
            panic!("it began with {ready:?}");
        };
        version.clone_into(&mut peer.version);
        peer
    }

    /// Sends a request.
    pub(crate) fn tell(&mut self, line: &str) {
        let to = self.to.as_mut().expect("its stdin is open");
        writeln!(to, "{line}").expect("it reads");
        to.flush().expect("it reads");
    }

    /// Reads the answer.
    pub(crate) fn answer(&mut self) -> String {
        assert!(self.is_ready(PLENTY.into()), "no answer within {PLENTY} ms");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it writes text");
        assert!(!line.is_empty(), "it ended: see what it said above");
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// True if the peer answers within this time.
    pub(crate) fn answers_within(&mut self, limit: Duration) -> bool {
        self.is_ready(PollTimeout::try_from(limit).expect("some seconds"))
    }

    fn is_ready(&self, limit: PollTimeout) -> bool {
        let mut outputs = [PollFd::new(self.from.get_ref().as_fd(), PollFlags::POLLIN)];
        !self.from.buffer().is_empty() || poll(&mut outputs, limit).expect("a pipe") == 1
    }

    /// Sends SIGSTOP. The peer does nothing until [`resume`](Self::resume).
    pub(crate) fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("it lives");
        let state = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("a child");
        assert!(matches!(state, WaitStatus::Stopped(..)), "{state:?}");
    }

    pub(crate) fn resume(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("it lives");
    }

    /// Closes the peer's stdin, and waits until it has ended by itself.
    pub(crate) fn end(mut self) {
        self.to = None;
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "it ended by itself: {status}");
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.kill_all();
    }

    /// Sends SIGKILL to the peer and the processes of its group. Its stdin stays open.
    pub(crate) fn kill_all(&mut self) {
        // It keeps its number until it is waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            killpg(self.pid(), Signal::SIGKILL).expect("it lives");
        }
        self.child.wait().expect("it ends");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit 31 bits"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Makes the system kill the command when the starting thread ends, since a killed test cannot clean up. Without
/// `setpriv`, as on macOS, a peer ends at its next read.
pub(crate) fn ending_with_us(command: &Command) -> Command {
    let mut bound = if foreign::works("setpriv", &["--version"]) {
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--"]);
        bound.arg(command.get_program());
        bound
    } else {
        Command::new(command.get_program())
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    bound
}

pub(crate) const STORIES: &[Tale] = &[(
    "peer a_killed_test_leaves_nobody_behind",
    a_killed_test_leaves_nobody_behind,
)];

/// The argument that makes this program a test with a peer that waits for an endless lock.
pub(crate) const WORD: &str = "one-that-waits";

pub(crate) fn one_that_waits(port: u16) -> ! {
    let mut peer = Peer::start(&side::command("leasehold", port, "{}"));
    peer.tell(&format!("wait {NAME} 30000"));
    loop {
        thread::park();
    }
}

fn a_killed_test_leaves_nobody_behind() -> String {
    const LIMIT: Duration = Duration::from_secs(20);
    let server = RedisServer::start();
    server.cli(&["SET", NAME, "for ever"]);
    let port = server.port().to_string();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([WORD, &port]);
    let mut test = ending_with_us(&command).spawn().expect("it starts");
    let queue = format!("{{{NAME}}}:lh-queue");
    let waits = || server.cli(&["ZCARD", &queue]).int() == 1;
    eventually(LIMIT, "its peer waits", waits);
    test.kill().expect("it lives");
    test.wait().expect("it ends");
    // The only remaining connection is the test's.
    let clients = || server.cli(&["CLIENT", "LIST"]).text().lines().count();
    eventually(LIMIT, "the peer has ended", || clients() == 1);
    String::new()
}
