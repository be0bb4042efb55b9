//! A child process that can be stopped, continued and killed. Signals go only to a process that
//! is still a child of this one.

use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const LIMIT: Duration = Duration::from_secs(10);

/// A running child; dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    paused: bool,
    /// Set when its end was seen other than through `child`. No signal may follow: another process
    /// may have the number by now.
    reaped: bool,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Self> {
        Ok(Self {
            child: command.spawn()?,
            paused: false,
            reaped: false,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("ask for the child's state")
    }

    /// SIGSTOP; returns when the process is stopped.
    pub(crate) fn pause(&mut self) {
        if self.paused {
            return;
        }
        self.signal(Signal::SIGSTOP);
        // The signal is asynchronous: on another core the process may run for a moment longer.
        let started = Instant::now();
        loop {
            let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
            match waitpid(self.pid(), Some(flags)).expect("wait for the child to stop") {
                WaitStatus::Stopped(..) => break,
                WaitStatus::StillAlive => thread::sleep(Duration::from_micros(200)),
                ended => {
                    self.reaped = true;
                    panic!("the process to pause has ended: {ended:?}");
                }
            }
            assert!(started.elapsed() < LIMIT, "the process does not stop");
        }
        self.paused = true;
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) {
        self.signal(Signal::SIGCONT);
        self.paused = false;
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit 31 bits"))
    }

    fn signal(&mut self, signal: Signal) {
        // An ended child keeps its number until it is waited for, which this does.
        if let Some(status) = self.ended() {
            panic!("cannot send {signal}: the process has ended ({status})");
        }
        kill(self.pid(), signal).expect("signal the child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reaped || matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        // Errors mean that it has just ended, which is the aim; a panic here would abort.
        kill(self.pid(), Signal::SIGCONT).ok();
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
