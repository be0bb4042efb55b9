//! A background refresh in a separate process. It keeps no file of the caller open, and starts only if it can
//! find the same store.
//!
//! The process is this program with the same arguments, environment and directory. Its name tells it to refresh
//! the value if no other process does. Its parent has ended by then, so the system reaps it.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys;

/// The name of the process, also in `ps`.
const NAME: &str = "leasehold-refresh";

/// True if this process is a background refresh.
pub(super) fn is_this() -> bool {
    env::args_os().next().is_some_and(|name| name == NAME)
}

/// Starts a background refresh. Its stderr and that of its command are appended to `log`, or discarded.
pub(super) fn start(log: Option<&Path>) -> io::Result<()> {
    let stderr = match log {
        Some(log) => Stdio::from(File::options().create(true).append(true).open(log)?),
        None => Stdio::null(),
    };
    let mut command = Command::new(program()?);
    command
        .arg0(NAME)
        .args(env::args_os().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    sys::detach(&mut command);
    // Not reaped: see above.
    command.spawn().map(drop)
}

/// The file of this program, even if it was replaced meanwhile.
fn program() -> io::Result<PathBuf> {
    let this = Path::new("/proc/self/exe");
    if fs::symlink_metadata(this).is_ok() {
        return Ok(this.to_owned());
    }
    env::current_exe()
}
