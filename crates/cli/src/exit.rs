//! How this process ends: one table of exit codes. Must never use a code that commands use for themselves (1, 2, 255).
//!
//! The command's own status passes through unchanged; the codes here are for what happened instead of it. They come from
//! `sysexits.h` and from GNU timeout and env, so that systemd and shells have names for them.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use leasehold::{Error, Invalid, StoreErrorKind};
use nix::sys::signal::Signal;

use crate::{messages, sys};

/// Wrong use of the command line, or a name or TTL that the library refuses.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached or takes no requests for now: nothing is known of the lock.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `leasehold cache get`: there is no value.
#[cfg(feature = "cache")]
pub(crate) const NO_VALUE: u8 = 66;
/// A fault of this program, or the system refused it something.
pub(crate) const SOFTWARE: u8 = 70;
/// The lock is busy, and `--try` was given.
pub(crate) const BUSY: u8 = 75;
/// The store refused user, password or permission.
pub(crate) const DENIED: u8 = 77;
/// No store was given, or what was given is none.
pub(crate) const CONFIG: u8 = 78;
/// The lease was lost and the command was stopped, whatever it returned.
pub(crate) const LOST: u8 = 79;
/// The lock was busy until the limit of `--wait`.
pub(crate) const TIMEOUT: u8 = 124;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal.
pub(crate) const SIGNAL: u8 = 128;

/// What an error says more where a command was to run.
const NOT_RUN: &str = " The command was not run.";

/// What an error says of a lock where the store did not answer.
pub(crate) const LOCK_UNKNOWN: &str = "The lock may be free or held: the store did not say.";

/// What to do where this host or process lacks something.
pub(crate) const MORE_RESOURCES: &str =
    "raise the limit (ulimit -n for files, ulimit -u for processes), or end what uses them up";

/// Code, whether the command ran, what it means.
const TABLE: [(u8, &str, &str); 11] = [
    (
        LOST,
        "ran",
        "the lease was lost or --max-hold is over; the command was stopped, whatever it returned",
    ),
    (
        BUSY,
        "did not run",
        "the lock is busy (--try), or too many wait for it (--max-waiters); cache: a load has failed elsewhere",
    ),
    (
        TIMEOUT,
        "did not run",
        "the lock was busy until the limit of --wait; cache: another still loads, or CMD took longer than --timeout",
    ),
    (
        UNAVAILABLE,
        "did not run",
        "the store cannot be reached or takes no requests for now",
    ),
    (
        DENIED,
        "did not run",
        "the store refused user, password or permission",
    ),
    (
        CONFIG,
        "did not run",
        "no store was given, or a setting is wrong, or it is no store",
    ),
    (
        USAGE,
        "did not run",
        "wrong use, or a bad lock name, TTL, namespace or note",
    ),
    (66, "did not run", "cache get: there is no value"),
    (
        NOT_EXECUTABLE,
        "did not run",
        "the command cannot be executed",
    ),
    (NOT_FOUND, "did not run", "the command was not found"),
    (
        SOFTWARE,
        "did not run",
        "a fault of leasehold or of the system",
    ),
];

/// The table, as `--help` shows it.
pub(crate) fn help() -> String {
    let rows = TABLE.map(|(code, ran, meaning)| format!("  {code:<4} {ran:<12} {meaning}\n"));
    format!(
        "Exit codes:\n  the command's own, or 128+n if signal n ended it or the waiting for the lock\n{}",
        rows.concat()
    )
}

/// The end of this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    code: u8,
    message: Option<String>,
    interrupted: Option<InterruptTarget>,
}

/// Whom an interrupt from the terminal has not reached yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptTarget {
    /// This process, which caught it.
    Process,
    /// All of our process group, since the terminal belonged to the command's.
    Group,
}

impl Exit {
    /// An end without a word: the command's own status.
    pub(crate) fn quiet(code: u8) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// The end of a command, as a shell would tell it.
    pub(crate) fn of_command(status: ExitStatus) -> Self {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok());
        Self::quiet(
            code.unwrap_or_else(|| {
                signal().map_or(u8::MAX, |signal| SIGNAL.saturating_add(signal))
            }),
        )
    }

    /// An end that is explained.
    pub(crate) fn saying(code: u8, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::quiet(code)
        }
    }

    /// The same, with one more line.
    pub(crate) fn adding(self, line: &str) -> Self {
        Self {
            message: self.message.map(|message| format!("{message}\n    {line}")),
            ..self
        }
    }

    /// The explanation.
    pub(crate) fn text(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// What went wrong, in one line and without its code.
    #[cfg(feature = "cache")]
    pub(crate) fn reason(&self) -> &str {
        let line = self.text().lines().next().unwrap_or_default();
        line.trim_end_matches(&format!(" (exit {})", self.code))
    }

    /// The same end of a verb that runs no command.
    pub(crate) fn without_command(mut self) -> Self {
        self.message = self.message.map(|message| message.replace(NOT_RUN, ""));
        self
    }

    /// The same end with other words where a verb means something else.
    #[cfg(feature = "cache")]
    pub(crate) fn reworded(mut self, from: &str, to: &str) -> Self {
        self.message = self.message.map(|message| message.replace(from, to));
        self
    }

    /// This program has a fault, of which the lines before this one tell.
    pub(crate) fn of_a_panic() -> Self {
        Self::saying(
            SOFTWARE,
            format!(
                "this is a fault of leasehold (exit {SOFTWARE}): please report the lines above"
            ),
        )
    }

    /// A signal ended the waiting.
    pub(crate) fn by(signal: Signal) -> Self {
        Self::quiet(SIGNAL + signal as u8)
    }

    /// The code that it ends with.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The same words with another code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        let (told, now) = (format!("(exit {})", self.code), format!("(exit {code})"));
        let message = self.message.map(|message| message.replacen(&told, &now, 1));
        Self {
            code,
            message,
            ..self
        }
    }

    /// The same end, by dying of SIGINT: a shell goes on with its script after an exit code of 130, and stops after this.
    pub(crate) fn by_interrupt(self, reach: InterruptTarget) -> Self {
        Self {
            interrupted: Some(reach),
            ..self
        }
    }

    /// Says it, and makes it the end of `main`.
    pub(crate) fn leave(self) -> ExitCode {
        if let Some(message) = &self.message {
            messages::say_error(message);
        }
        if let Some(reach) = self.interrupted {
            sys::die_of_interrupt(reach == InterruptTarget::Group);
        }
        ExitCode::from(self.code)
    }
}

impl From<Invalid> for Exit {
    fn from(invalid: Invalid) -> Self {
        let code = if invalid.what == "store URL" {
            CONFIG
        } else {
            USAGE
        };
        Self::saying(code, format!("{invalid} (exit {code})"))
    }
}

/// An error of the library that leaves the lock's state unknown. Busy locks and lost leases are told with more words
/// where they happen.
impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        let store = match error {
            Error::Invalid(invalid) => return invalid.into(),
            Error::Store(store) => store,
            Error::Timeout(timeout) => return Self::saying(TIMEOUT, timeout.to_string()),
            Error::Lost(lost) => return Self::saying(LOST, lost.to_string()),
            other => return Self::saying(SOFTWARE, other.to_string()),
        };
        let is_local = store.store.starts_with("local:");
        let (code, advice) = match store.kind {
            StoreErrorKind::Denied if is_local => (
                DENIED,
                "this user needs to write the file, its -wal and -shm files and its directory; for several users, let it be made by local:/path/to/file?mode=0660, in a directory with their group and the setgid bit",
            ),
            StoreErrorKind::Protocol if is_local => (
                CONFIG,
                "name a file that does not exist yet, or one of leasehold",
            ),
            StoreErrorKind::Protocol if store.detail.contains("DB index") => (
                CONFIG,
                "choose a database that the server has: redis-cli CONFIG GET databases",
            ),
            StoreErrorKind::Denied => (
                DENIED,
                "check user and password in the URL, and what that user may do (ACL)",
            ),
            StoreErrorKind::Protocol => (
                CONFIG,
                "check that the URL names a Redis or Valkey, and what the key holds",
            ),
            StoreErrorKind::Closed => (SOFTWARE, "this is a fault of leasehold"),
            StoreErrorKind::Exhausted => (SOFTWARE, MORE_RESOURCES),
            StoreErrorKind::ReadOnly => (UNAVAILABLE, "give the URL of the primary"),
            StoreErrorKind::Unreachable if is_local => (
                UNAVAILABLE,
                "check that this user may write the file and its directory",
            ),
            StoreErrorKind::Unreachable | StoreErrorKind::TimedOut => (
                UNAVAILABLE,
                "check that the server runs and that this host may reach it",
            ),
            _ => (UNAVAILABLE, "try again when the store has recovered"),
        };
        Self::saying(
            code,
            format!("{store} (exit {code})\n    {LOCK_UNKNOWN}{NOT_RUN}\n    next    {advice}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_once_and_none_that_commands_use() {
        let mut codes: Vec<u8> = TABLE.iter().map(|(code, ..)| *code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [64, 66, 69, 70, 75, 77, 78, 79, 124, 126, 127]);
        for code in codes {
            assert!(help().contains(&format!("\n  {code:<4} ")), "{code}");
        }
    }

    #[test]
    fn a_bad_url_is_configuration_and_a_bad_name_is_usage() {
        assert_eq!(
            Exit::from(Invalid::new("store URL", "x:...", "unknown scheme")).code,
            CONFIG
        );
        assert_eq!(
            Exit::from(Invalid::new("lock name", "", "is empty")).code,
            USAGE
        );
    }

    #[test]
    fn statuses_are_what_a_shell_says() {
        for (raw, shell) in [
            (0, 0),
            (7 << 8, 7),
            (255 << 8, 255),
            (9, 137),
            (2, 130),
            (64, 192),
        ] {
            assert_eq!(Exit::of_command(ExitStatus::from_raw(raw)).code(), shell);
        }
    }
}
