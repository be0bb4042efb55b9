//! The programs of servers, and child processes that can be paused, resumed and killed. Signals go only to a process that is
//! still a child of this one.

use std::env;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The default server programs, in order of preference.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// How long a process may take to stop after SIGSTOP.
const STOP: Duration = Duration::from_secs(10);

/// How long a server may take to answer. Without data to load it takes a hundredth of a second.
const START: Duration = Duration::from_secs(30);

/// The pause between two attempts to reach a server that starts.
const POLL: Duration = Duration::from_millis(2);

/// `$0` is the program, which replaces this shell; the part in brackets remains as its child. A line on the pipe says that the
/// program has ended, so its number may belong to another process by now.
///
/// The remaining shell ignores SIGHUP: if this process ends while the program is stopped, the kernel sends SIGHUP to their
/// process group.
const WATCHED: &str = r#"exec 3<&0; trap '' HUP
(read -r ended <&3 || kill -9 $$) & trap - HUP; exec "$0" "$@" </dev/null 3<&-"#;

/// Finds the program of a server: the one asked for by path or name, else the first installed one. `None` if there is none.
pub fn find_program(asked: Option<&Path>) -> Option<PathBuf> {
    let places = env::var_os("PATH").unwrap_or_default();
    let found = |name: &Path| {
        let file = if name.components().count() > 1 {
            is_program(name).then(|| name.to_owned())
        } else {
            env::split_paths(&places)
                .map(|place| place.join(name))
                .find(|file| is_program(file))
        };
        // The server starts in another directory.
        path::absolute(file?).ok()
    };
    match asked {
        Some(asked) => found(asked),
        None => PROGRAMS.iter().find_map(|name| found(Path::new(name))),
    }
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The command of a program that cannot outlive this process, however this one ends, and even if the program is paused.
///
/// The program has a watching shell as its child. The shell reads a pipe whose other end only the [`Process`] has, and kills its
/// parent when that end closes. Linux can also kill a child with its parent. But that is the *thread* that started the child, so
/// a server that tests share would end with the first of them.
pub fn watched(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHED]).arg(program);
    // Ctrl-C at the terminal is for this process, which then ends and takes the program along.
    command.stdin(Stdio::piped()).process_group(0);
    command
}

/// A child process. Dropping it kills the process, also a paused one, and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The pipe of a watching shell. Not the child's own stdin, which waiting for the child would close too early.
    watch: Option<ChildStdin>,
    paused: bool,
    /// The process was waited for. No signal may follow: another process may have its id by now.
    gone: bool,
}

impl Process {
    /// Starts the command. A piped stdin belongs to the shell of [`watched`].
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        Ok(Self {
            watch: child.stdin.take(),
            child,
            paused: false,
            gone: false,
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process lives and is not paused.
    pub fn runs(&mut self) -> bool {
        !self.paused && matches!(self.ended(), Ok(None))
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.dismiss();
        }
        Ok(status)
    }

    /// Waits until this server answers: `answers` asks the server with this process id, and `pause` lets time pass. A caller without a
    /// runtime blocks in both. An error says what became of the server.
    pub async fn until_it_answers(
        &mut self,
        pause: impl AsyncFn(Duration),
        answers: impl AsyncFn(u32) -> bool,
    ) -> Result<(), String> {
        let (started, mut answered) = (Instant::now(), false);
        loop {
            if let Some(status) = self.ended().map_err(|error| error.to_string())? {
                return Err(format!("ended at once ({status})"));
            }
            // It lives after the answer, so the answer was not that of a server that took its port.
            if answered {
                return Ok(());
            }
            answered = answers(self.id()).await;
            if !answered {
                if started.elapsed() > START {
                    return Err(format!("does not answer after {START:?}"));
                }
                pause(POLL).await;
            }
        }
    }

    /// Stops the process (SIGSTOP). Returns when it has stopped.
    pub fn pause(&mut self) -> Result<(), String> {
        if self.paused {
            return Ok(());
        }
        self.signal(Signal::SIGSTOP)?;
        // The signal is asynchronous: on another core the process may run for a moment longer.
        let started = Instant::now();
        while started.elapsed() < STOP {
            let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
            match waitpid(self.pid(), Some(flags)) {
                Ok(WaitStatus::Stopped(..)) => {
                    self.paused = true;
                    return Ok(());
                }
                Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_micros(200)),
                Ok(ended) => {
                    self.dismiss();
                    return Err(format!("the process to pause has ended: {ended:?}"));
                }
                Err(error) => return Err(format!("cannot wait for {}: {error}", self.pid())),
            }
        }
        Err(format!("process {} does not stop", self.pid()))
    }

    /// Continues a paused process (SIGCONT).
    pub fn resume(&mut self) -> Result<(), String> {
        self.signal(Signal::SIGCONT)?;
        self.paused = false;
        Ok(())
    }

    /// Kills the process and waits until it is gone.
    pub fn kill(&mut self) -> Result<(), String> {
        if self.gone {
            return Ok(());
        }
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map_err(|error| format!("cannot kill process {}: {error}", self.pid()))?;
        self.dismiss();
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let pid = self.pid();
        let refused = |why: String| format!("cannot send {signal} to process {pid}: {why}");
        // An ended child keeps its number until it is waited for, which this does.
        match self.ended() {
            Ok(None) => kill(pid, signal).map_err(|error| refused(error.to_string())),
            Ok(Some(status)) => Err(refused(format!("it has ended ({status})"))),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.id()).expect("process ids fit 31 bits"))
    }

    /// Tells the watching shell, if there is one, that the program has ended.
    fn dismiss(&mut self) {
        self.gone = true;
        // An error means that the shell is gone as well.
        let _told: Option<io::Result<()>> =
            self.watch.take().map(|mut watch| watch.write_all(b"\n"));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If this fails, the end of the pipe still tells the watching shell.
        let _killed: Result<(), String> = self.kill();
    }
}
