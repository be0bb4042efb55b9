//! A refresh that nobody waits for, by a process of its own. Must never keep anything of the caller's open, and never be started
//! where it could not find the same store.
//!
//! It is this program with the same words, environment and directory, which by its name knows what it is to do: to see to a newer
//! value if nobody else does. Whoever started it has ended by then, so it falls to the system to bury it.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys;

/// What it is called, in `ps` as well.
const NAME: &str = "leasehold-refresh";

/// Whether this process is one.
pub(super) fn is_this() -> bool {
    env::args_os().next().is_some_and(|name| name == NAME)
}

/// Starts one. What it and its command say goes to the end of `log`, or nowhere.
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
    // It is not waited for: see above.
    command.spawn().map(drop)
}

/// This program, even where its file has been replaced meanwhile.
fn program() -> io::Result<PathBuf> {
    let this = Path::new("/proc/self/exe");
    if fs::symlink_metadata(this).is_ok() {
        return Ok(this.to_owned());
    }
    env::current_exe()
}
