//! Child processes that cannot outlive this one, however it ends. Must never signal a process that is not its child.
//!
//! Each is watched over by a shell that is its child: it reads a pipe whose other end only this process has, and kills its
//! parent when that end closes. So it does even if this process is killed, and even if its parent is stopped.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `$0` is the program, which takes the place of this shell; the part in brackets stays behind as its child. A line that is
/// read says that the program has ended, so that its number may be another process's by now.
///
/// The shell that stays ignores SIGHUP: when this process ends while the program is stopped, their group is an orphan with a
/// stopped member, and the kernel sends one to all of it.
const WATCHED: &str = r#"exec 3<&0; trap '' HUP
(read -r ended <&3 || kill -9 $$) & trap - HUP; exec "$0" "$@" </dev/null 3<&-"#;

/// A process that was started. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// What its shell reads. Not the child's own, which waiting for it would close before it has ended.
    watch: Option<ChildStdin>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a program, prepared as told.
    pub(crate) fn start(
        program: &Path,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self, String> {
        let mut command = Command::new("sh");
        command.args(["-c", WATCHED]).arg(program);
        prepare(&mut command);
        // Ctrl-C at the terminal is for the lab, which then ends and takes them with it.
        command.stdin(Stdio::piped()).process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Self {
            watch: child.stdin.take(),
            child,
            ended: None,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
            self.dismiss();
        }
        Ok(self.ended)
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.pid()).map_err(|error| error.to_string())?;
        if self.ended.is_some() {
            return Err("the process has ended".into());
        }
        // Not waited for yet, so that the number is still its own.
        kill(Pid::from_raw(pid), signal)
            .map_err(|error| format!("cannot send {signal} to process {pid}: {error}"))
    }

    /// Ends it as a crash does, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        if self.ended.is_some() {
            return Ok(());
        }
        let ended = self.child.kill().and_then(|()| self.child.wait());
        self.ended =
            Some(ended.map_err(|error| format!("cannot kill process {}: {error}", self.pid()))?);
        self.dismiss();
        Ok(())
    }

    /// Tells the shell that watches over it that it has ended.
    fn dismiss(&mut self) {
        if self.ended.is_some() {
            // An error means that the shell is gone as well.
            let _told: Option<io::Result<()>> =
                self.watch.take().map(|mut watch| watch.write_all(b"\n"));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If this is refused, the end of the pipe still tells the shell that watches over it.
        let _killed: Result<(), String> = self.kill();
    }
}
