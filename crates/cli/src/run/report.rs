//! `--report`: a JSON document about the end of a run. A regular file appears only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus};

use leasehold::Fence;
use serde::Serialize;
use serde_json::Value;

use crate::acquire_ui::WaitFacts;
use crate::exit::{
    BUSY, CONFIG, DENIED, DONE, Exit, LOST, NOT_EXECUTABLE, NOT_FOUND, SIGNAL, SPENT, TIMEOUT,
    UNAVAILABLE, USAGE,
};
use crate::messages::{say, without_advice};
use crate::view::{HolderJson, millis};
use crate::{output, sys};

/// The JSON document about a run, which the run fills in as it proceeds. A field is null until the run knows it.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "schema", rename = "leasehold.report/1")]
pub(crate) struct Report {
    outcome: &'static str,
    exit_code: u8,
    pub(crate) lock: Option<String>,
    pub(crate) fence: Option<u64>,
    /// How the lock was held: `exclusive`, `shared` or `slot/<how many>`, and the number of the slot.
    pub(crate) mode: Option<String>,
    pub(crate) slot: Option<u16>,
    /// With `--also`: all locks.
    pub(crate) locks: Option<Value>,
    /// The firing of `--once`, and the number of this run of it.
    pub(crate) firing: Option<String>,
    pub(crate) firing_run: Option<u32>,
    /// The command was started.
    pub(crate) started: bool,
    command_code: Option<i32>,
    command_signal: Option<i32>,
    pub(crate) waited_ms: Option<u64>,
    /// The lock that this run did not get.
    busy_lock: Option<String>,
    /// The holder of the lock, if this run did not get it.
    holder: Option<HolderJson>,
    holder_fence: Option<u64>,
    held_for_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) lost_cause: Option<String>,
    /// The lock whose lease was lost.
    pub(crate) lost_lock: Option<String>,
    /// True if the store confirmed the release.
    pub(crate) released: Option<bool>,
    /// The command was killed, but did not die.
    #[serde(skip)]
    pub(crate) still_runs: bool,
}

impl Report {
    /// Begins again, for another command under the same lock.
    pub(crate) fn restart(&mut self) {
        let lock = self.lock.take();
        *self = Self {
            lock,
            ..Self::default()
        };
    }

    /// Keeps what is known of a wait without a lease.
    pub(crate) fn set_refused(&mut self, known: &WaitFacts) {
        let holder = known.holder.as_ref();
        self.waited_ms = Some(millis(known.waited));
        self.holder = holder.map(|holder| HolderJson::of(&holder.who));
        self.holder_fence = holder.and_then(|holder| holder.fence).map(Fence::get);
        self.held_for_ms = holder.and_then(|holder| holder.held_for).map(millis);
        self.busy_lock.clone_from(&known.busy);
        let lost = known.lost.as_ref();
        self.lost_lock = lost.map(|lost| lost.name.clone());
        self.lost_cause = lost.map(|lost| without_advice(&lost.reason()));
    }

    /// Keeps the exit status of the command itself.
    pub(crate) fn set_status(&mut self, status: Option<ExitStatus>) {
        self.command_code = status.and_then(|status| status.code());
        self.command_signal = status.and_then(|status| status.signal());
    }

    /// The outcome as one word. `code` is the exit code before `--busy-code` and `--skip` change it.
    fn outcome(&self, code: u8) -> &'static str {
        match code {
            LOST if self.lost_cause.is_some() => "lost",
            _ if self.started => "ended",
            DONE => "done",
            SPENT => "spent",
            BUSY => "busy",
            TIMEOUT => "timeout",
            UNAVAILABLE => "unavailable",
            DENIED => "denied",
            CONFIG => "config",
            USAGE => "refused",
            NOT_EXECUTABLE => "not_executable",
            NOT_FOUND => "not_found",
            SIGNAL.. => "interrupted",
            _ => "fault",
        }
    }
}

/// The destination of the report.
#[derive(Debug)]
pub(crate) struct ReportFile {
    file: File,
    /// For a regular file, its temporary name and its final name. It is renamed when it is complete.
    names: Option<(PathBuf, PathBuf)>,
}

impl ReportFile {
    /// Opens `FILE` or `fd:N`. Called early, to find unwritable destinations before the lock is taken.
    pub(crate) fn open(to: &str) -> io::Result<Self> {
        if let Some(number) = to.strip_prefix("fd:") {
            let number = number
                .parse()
                .map_err(|_| io::Error::other("fd: is followed by a number"))?;
            let missing = || io::Error::other("no such file descriptor");
            let file = sys::inherited(number).ok_or_else(missing)?;
            return Ok(Self { file, names: None });
        }
        let name = PathBuf::from(to);
        if fs::metadata(&name).is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(&name)?;
            return Ok(Self { file, names: None });
        }
        let file_name = name
            .file_name()
            .ok_or_else(|| io::Error::other("is no name of a file"))?;
        let hidden = format!(".{}.{}", file_name.to_string_lossy(), process::id());
        let temporary = name.parent().unwrap_or(Path::new("")).join(hidden);
        Ok(Self {
            file: create(&temporary)?,
            names: Some((temporary, name)),
        })
    }

    /// Writes the report. `happened` is the exit code before `--busy-code` and `--skip` change it. A failure is
    /// printed but does not change the exit code.
    pub(crate) fn write(self, mut report: Report, happened: u8, exit: &Exit) {
        report.outcome = report.outcome(happened);
        report.exit_code = exit.code();
        if let Err(error) = self.put(&output::json(&report)) {
            say(&format!("the report could not be written: {error}"));
        }
    }

    fn put(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        match &self.names {
            Some((temporary, name)) => fs::rename(temporary, name),
            None => Ok(()),
        }
    }
}

/// Creates a file exclusively. Others can guess its name, and in a shared directory could place a link there.
fn create(name: &Path) -> io::Result<File> {
    let create = || File::options().write(true).create_new(true).open(name);
    create().or_else(|error| match error.kind() {
        // Left by a killed process with the same process id.
        io::ErrorKind::AlreadyExists => fs::remove_file(name).and_then(|()| create()),
        _ => Err(error),
    })
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            // After a complete write this file has been renamed.
            let _removed: io::Result<()> = fs::remove_file(temporary);
        }
    }
}
