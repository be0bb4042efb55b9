//! The program that holds the lock, on the other side of the pipes: its commands on stdin, and whether it still lives.
//!
//! The commands are NDJSON. The end of stdin ends the hold; an invalid line does not.
//!
//! The program is the parent process, if that keeps stdin open. A forked child of it has a copy of the pipe, so the
//! end of stdin alone does not show the end of the program. Another parent has only launched this process (a subshell,
//! `setsid`, `timeout`, `ssh`), and may end before the work does. Then the end of stdin alone ends the hold.

use std::fs::{self, Metadata};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::thread;

use nix::unistd::{Pid, getppid};
use serde::Deserialize;
use tokio::sync::mpsc::{Receiver, channel};

/// The longest line, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The number of lines read ahead.
const AHEAD: usize = 16;

/// A line of stdin, or the error of an invalid one.
pub(super) type StdinLine = Result<HoldCommand, String>;

/// A command of the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum HoldCommand {
    Release,
    Check,
}

/// Starts reading the lines of stdin. The channel closes at the end of stdin.
pub(super) fn listen() -> io::Result<Receiver<StdinLine>> {
    let (sender, said) = channel(AHEAD);
    // A read of stdin cannot be cancelled: the thread ends with the process.
    let read = move || {
        let mut stdin = io::stdin().lock();
        while let Some(line) = next(&mut stdin) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("commands".into()).spawn(read)?;
    Ok(said)
}

/// The next line that is not empty; `None` at the end of stdin or after an error.
fn next(input: &mut impl BufRead) -> Option<StdinLine> {
    loop {
        let mut line = Vec::new();
        let length = input
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .ok()?;
        if length == 0 {
            return None;
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            skip_line(input)?;
            return Some(Err(format!("a line is longer than {LONGEST} bytes")));
        }
        if !line.trim_ascii().is_empty() {
            return Some(parse(&line));
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> Option<()> {
    loop {
        let buffer = input.fill_buf().ok()?;
        if buffer.is_empty() {
            return Some(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |at| at + 1);
        input.consume(length);
        if end.is_some() {
            return Some(());
        }
    }
}

fn parse(line: &[u8]) -> StdinLine {
    serde_json::from_slice(line).map_err(|error| {
        format!(
            r#"not understood: {error}; write {{"do":"release"}} or {{"do":"check"}}, one per line"#
        )
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut text: &[u8]) -> Vec<StdinLine> {
        std::iter::from_fn(|| next(&mut text)).collect()
    }

    #[test]
    fn lines_are_read_one_by_one_and_nonsense_ends_nothing() {
        let long = "x".repeat(200_000);
        let text = format!(
            "{{\"do\":\"check\",\"more\":1}}\n\n  \r\n{{\"do\":\"dance\"}}\n{long}\n\u{ff}\n{{\"do\":\"release\"}}"
        );
        let said = all(text.as_bytes());
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(said[0], Ok(HoldCommand::Check));
        assert!(matches!(&said[1], Err(why) if why.contains("dance")));
        assert!(matches!(&said[2], Err(why) if why.contains("longer")));
        assert!(said[3].is_err());
        assert_eq!(said[4], Ok(HoldCommand::Release));
    }
}
