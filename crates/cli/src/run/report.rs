//! `--report`: how it ended, for programs. Must never be found half written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus};
use std::time::Duration;

use serde::Serialize;

use crate::exit::{
    BUSY, CONFIG, DENIED, Exit, LOST, NOT_EXECUTABLE, NOT_FOUND, SIGNAL, TIMEOUT, UNAVAILABLE,
    USAGE,
};
use crate::messages::say;
use crate::{output, sys};

/// What is learned on the way.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) lock: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) waited: Option<Duration>,
    pub(crate) held: Option<Duration>,
    /// The command was started.
    pub(crate) started: bool,
    /// How the command itself ended.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) lost: Option<String>,
    /// Whether the store has confirmed the release.
    pub(crate) released: Option<bool>,
}

/// The document. A field that is not known is null.
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
    held_ms: Option<u64>,
    lost_cause: Option<&'a str>,
    released: Option<bool>,
}

impl Facts {
    /// What happened, in one word. `code` is the one before `--busy-code` and `--skip`.
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

/// Where the report goes.
#[derive(Debug)]
pub(crate) enum ReportFile {
    /// It appears under its name when it is complete.
    Whole {
        file: File,
        temporary: PathBuf,
        name: PathBuf,
    },
    /// A pipe or a device.
    Stream(File),
}

impl ReportFile {
    /// Opens `FILE` or `fd:N`, to find out now what cannot be written.
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

    /// Writes it. A failure is said and changes nothing: how it ended matters more than the report of it.
    pub(crate) fn write(self, facts: &Facts, happened: u8, exit: &Exit) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
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

/// Makes a new file of a name that others can guess: in a directory that is theirs too, a link of that name leads elsewhere.
fn create(name: &Path) -> io::Result<File> {
    let create = || File::options().write(true).create_new(true).open(name);
    create().or_else(|error| match error.kind() {
        // Left by a process of the same number that was killed.
        io::ErrorKind::AlreadyExists => fs::remove_file(name).and_then(|()| create()),
        _ => Err(error),
    })
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if let Self::Whole { temporary, .. } = self {
            // After a report was written there is none of this name.
            let _removed: io::Result<()> = fs::remove_file(temporary);
        }
    }
}
