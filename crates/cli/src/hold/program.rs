//! The program that holds the lock: the parent process, if it is the one that keeps stdin open. A forked child of
//! it has a copy of the pipe, so the end of stdin alone does not show the end of the program.
//!
//! Another parent has only launched this process (a subshell, `setsid`, `timeout`, `ssh`), and may end before the
//! work does. Then the end of stdin alone ends the hold.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::unistd::{Pid, getppid};

/// The permission bit of an entry in `/proc/PID/fd` that is open for writing.
const WRITABLE: u32 = 0o200;

/// The process that started this one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    parent: Pid,
    /// It keeps stdin open.
    has_stdin: bool,
}

impl Program {
    /// Must be called first: if the parent ends before, the process that adopts this one counts as the parent.
    pub(super) fn find() -> Self {
        let mut program = Self {
            parent: getppid(),
            has_stdin: false,
        };
        program.look_again();
        program
    }

    /// A shell opens a named pipe only while this process starts, so the first look may have been too early.
    pub(super) fn look_again(&mut self) {
        self.has_stdin |= keeps_stdin_open(self.parent);
    }

    /// True if the program has ended. The system then gives this process another parent.
    pub(super) fn has_ended(self) -> bool {
        self.has_stdin && getppid() != self.parent
    }
}

/// True if `parent` can write to the pipe or socket that is this process's stdin.
fn keeps_stdin_open(parent: Pid) -> bool {
    let Ok(stdin) = fs::metadata("/proc/self/fd/0") else {
        return false;
    };
    #[cfg(target_os = "linux")]
    if stdin.file_type().is_socket() {
        return crate::sys::peer(io::stdin()) == Some(parent);
    }
    if !stdin.file_type().is_fifo() {
        return false;
    }
    match fs::read_dir(format!("/proc/{parent}/fd")) {
        Ok(files) => files
            .flatten()
            .any(|file| is_writer(&file.path(), &stdin).unwrap_or(false)),
        // A program that has changed its user lets no other process look. A launcher does.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn is_writer(file: &Path, stdin: &Metadata) -> io::Result<bool> {
    let seen = fs::metadata(file)?;
    let is_stdin = (seen.dev(), seen.ino()) == (stdin.dev(), stdin.ino());
    Ok(is_stdin && fs::symlink_metadata(file)?.mode() & WRITABLE != 0)
}
