//! `--report`: a JSON document about the end of a run. A regular file appears only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus};
use std::time::Duration;

use leasehold::{Fence, HolderView};
use serde::Serialize;

use crate::acquire_ui::Refused;
use crate::exit::{
    BUSY, CONFIG, DENIED, Exit, LOST, NOT_EXECUTABLE, NOT_FOUND, SIGNAL, TIMEOUT, UNAVAILABLE,
    USAGE,
};
use crate::messages::say;
use crate::view::{HolderJson, millis};
use crate::{output, sys};

/// The facts of a run, collected while it proceeds.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) lock: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) waited: Option<Duration>,
    pub(crate) held: Option<Duration>,
    /// The holder of the lock, if this run did not get it.
    pub(crate) holder: Option<HolderView>,
    /// The command was started.
    pub(crate) started: bool,
    /// The exit status of the command itself.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) lost: Option<String>,
    /// True if the store confirmed the release.
    pub(crate) released: Option<bool>,
}

/// The JSON document. Unknown fields are null.
#[derive(Debug, Serialize)]
struct ReportDocument<'a> {
    schema: &'static str,
    outcome: &'static str,
    exit_code: u8,
    lock: Option<&'a str>,
    fence: Option<u64>,
    started: bool,
    command_code: Option<i32>,
    command_signal: Option<i32>,
    waited_ms: Option<u64>,
    holder: Option<HolderJson>,
    holder_fence: Option<u64>,
    held_for_ms: Option<u64>,
    held_ms: Option<u64>,
    lost_cause: Option<&'a str>,
    released: Option<bool>,
}

impl Facts {
    /// Keeps what is known of a wait without a lease. Returns the exit.
    pub(crate) fn refused(&mut self, refused: Refused) -> Exit {
        self.waited = Some(refused.waited);
        self.holder = refused.holder;
        refused.exit
    }

    /// The outcome as one word. `code` is the exit code before `--busy-code` and `--skip` change it.
    fn outcome(&self, code: u8) -> &'static str {
        match code {
            LOST if self.lost.is_some() => "lost",
            _ if self.started => "ended",
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
pub(crate) enum ReportFile {
    /// A regular file, renamed to its final name when complete.
    Whole {
        file: File,
        temporary: PathBuf,
        name: PathBuf,
    },
    /// A pipe or a device.
    Stream(File),
}

impl ReportFile {
    /// Opens `FILE` or `fd:N`. Called early, to find unwritable destinations before the lock is taken.
    pub(crate) fn open(to: &str) -> io::Result<Self> {
        if let Some(number) = to.strip_prefix("fd:") {
            let number = number
                .parse()
                .map_err(|_| io::Error::other("fd: is followed by a number"))?;
            let missing = || io::Error::other("no such file descriptor");
            return sys::inherited(number).map(Self::Stream).ok_or_else(missing);
        }
        let name = PathBuf::from(to);
        if fs::metadata(&name).is_ok_and(|found| !found.is_file()) {
            return File::options().write(true).open(&name).map(Self::Stream);
        }
        let file_name = name
            .file_name()
            .ok_or_else(|| io::Error::other("is no name of a file"))?;
        let hidden = format!(".{}.{}", file_name.to_string_lossy(), process::id());
        let temporary = name.parent().unwrap_or(Path::new("")).join(hidden);
        let file = create(&temporary)?;
        Ok(Self::Whole {
            file,
            temporary,
            name,
        })
    }

    /// Writes the report. A failure is printed but does not change the exit code.
    pub(crate) fn write(self, facts: &Facts, happened: u8, exit: &Exit) {
        let holder = facts.holder.as_ref();
        let document = ReportDocument {
            schema: "leasehold.report/1",
            outcome: facts.outcome(happened),
            exit_code: exit.code(),
            lock: facts.lock.as_deref(),
            fence: facts.fence,
            started: facts.started,
            command_code: facts.status.and_then(|status| status.code()),
            command_signal: facts.status.and_then(|status| status.signal()),
            waited_ms: facts.waited.map(millis),
            holder: holder.map(|holder| HolderJson::of(&holder.who)),
            holder_fence: holder.and_then(|holder| holder.fence).map(Fence::get),
            held_for_ms: holder.and_then(|holder| holder.held_for).map(millis),
            held_ms: facts.held.map(millis),
            lost_cause: facts.lost.as_deref(),
            released: facts.released,
        };
        let written = output::json(&document)
            .map_err(io::Error::from)
            .and_then(|text| self.put(&(text + "\n")));
        if let Err(error) = written {
            say(&format!("the report could not be written: {error}"));
        }
    }

    fn put(mut self, text: &str) -> io::Result<()> {
        match &mut self {
            Self::Stream(stream) => stream.write_all(text.as_bytes()),
            Self::Whole {
                file,
                temporary,
                name,
            } => {
                file.write_all(text.as_bytes())?;
                fs::rename(temporary, name)
            }
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
        if let Self::Whole { temporary, .. } = self {
            // After a complete write this file has been renamed.
            let _removed: io::Result<()> = fs::remove_file(temporary);
        }
    }
}
