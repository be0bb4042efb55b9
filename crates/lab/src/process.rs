//! Child processes that cannot outlive this one, however it ends.
//!
//! Each has a watching shell as its child. The shell reads a pipe whose other end only this process has, and kills its parent
//! when that end closes. This works even if this process is killed, and even if the child is stopped.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `$0` is the program, which replaces this shell; the part in brackets remains as its child. A line on the pipe says that the
/// program has ended, so its number may belong to another process by now.
///
/// The remaining shell ignores SIGHUP: if this process ends while the program is stopped, the kernel sends SIGHUP to their
/// process group.
const WATCHED: &str = r#"exec 3<&0; trap '' HUP
(read -r ended <&3 || kill -9 $$) & trap - HUP; exec "$0" "$@" </dev/null 3<&-"#;

/// A process that was started. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The shell's pipe. Not the child's own stdin, which waiting for the child would close too early.
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
        // Ctrl-C at the terminal is for the lab, which then ends and takes the children with it.
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

    /// The exit status, if it has ended.
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
        // Not waited for yet, so the number is still its own.
        kill(Pid::from_raw(pid), signal)
            .map_err(|error| format!("cannot send {signal} to process {pid}: {error}"))
    }

    /// Kills it and waits until it is gone.
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

    /// Tells the watching shell that the program has ended.
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
        // If this fails, the end of the pipe still tells the watching shell.
        let _killed: Result<(), String> = self.kill();
    }
}
