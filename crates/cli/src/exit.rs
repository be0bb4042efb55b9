//! The exit codes of this process, and the messages that come with them.
//!
//! The command's own status passes through unchanged. The codes here report a failure of `leasehold` itself.
//! They come from `sysexits.h`, GNU timeout and GNU env, so that systemd and shells have names for them.
//! Commands use 1, 2 and 255 for themselves, so the table leaves these out.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use leasehold::{Error, Invalid, StoreError, StoreErrorKind};
use leasehold_serve::look::first_cause;
use nix::sys::signal::Signal;

use crate::{messages, sys};

/// An exit with a code and a message, written as for `format!`.
macro_rules! exit {
    ($code:expr, $($message:tt)+) => {
        $crate::exit::Exit::saying($code, format!($($message)+))
    };
}
pub(crate) use exit;

/// Wrong use of the command line, or a name or TTL that the library refuses.
pub(crate) const USAGE: u8 = 64;
/// The store is unreachable or temporarily refuses requests. The state of the lock is unknown.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `leasehold cache get`: there is no value.
#[cfg(feature = "cache")]
pub(crate) const NO_VALUE: u8 = 66;
/// A bug in this program, or a refused system call.
pub(crate) const SOFTWARE: u8 = 70;
/// The lock is busy, and `--try` was given.
pub(crate) const BUSY: u8 = 75;
/// The store rejected the user, the password or a permission.
pub(crate) const DENIED: u8 = 77;
/// No store was configured, or the configured one is not usable.
pub(crate) const CONFIG: u8 = 78;
/// The lease was lost and the command was stopped. This code replaces the command's own status.
pub(crate) const LOST: u8 = 79;
/// `--once`: another run has done the work.
pub(crate) const DONE: u8 = 80;
/// `--once-tries`: as many runs have failed as may.
pub(crate) const SPENT: u8 = 81;
/// The lock stayed busy for the whole time of `--wait`.
pub(crate) const TIMEOUT: u8 = 124;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of a signal.
pub(crate) const SIGNAL: u8 = 128;

/// Added to an error when the command did not start.
const NOT_RUN: &str = " The command was not run.";

/// Added to an error when the store did not answer.
pub(crate) const LOCK_UNKNOWN: &str = "The lock may be free or held: this is not known.";

/// The advice for an exhausted system resource.
pub(crate) const MORE_RESOURCES: &str = "raise the limit (ulimit -n for files, ulimit -u for processes), or end programs that use them up";

/// The table that `--help` shows: exit code, whether the command ran, meaning.
pub(crate) const HELP: &str = "\
Exit codes:
  the command's own, or 128+n if signal n ended it or the wait for the lock
  79   ran          the lease was lost or --max-hold is over; the command was stopped, whatever it returned
  80   did not run  --once: the work is done, by another run
  81   did not run  --once-tries: as many runs have failed as may
  75   did not run  the lock is busy (--try), or too many wait for it (--max-waiters); leader: there is none; cache: a load failed on another host
  124  did not run  the lock was busy until the limit of --wait; cache: another process still loads, or CMD took longer than --timeout
  69   did not run  the store cannot be reached or takes no requests for now
  77   did not run  the store refused user, password or permission
  78   did not run  no store was given, a setting is wrong, or the URL is not a store
  64   did not run  wrong usage, or an invalid lock name, TTL, namespace or note
  66   did not run  cache get: there is no value
  126  did not run  the command cannot be executed
  127  did not run  the command was not found
  70   did not run  a bug in leasehold, or a failed system call
";

/// The exit code of this process, with an optional message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    code: u8,
    message: Option<String>,
    interrupted: Option<InterruptTarget>,
}

/// The processes that have not yet received an interrupt from the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptTarget {
    /// This process only, which caught the signal.
    Process,
    /// The whole process group of `leasehold`: the terminal belonged to the command's group.
    Group,
}

impl Exit {
    /// An exit without a message.
    pub(crate) fn quiet(code: u8) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// The exit code of a command, as a shell reports it.
    pub(crate) fn of_command(status: ExitStatus) -> Self {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok());
        Self::quiet(
            code.unwrap_or_else(|| {
                signal().map_or(u8::MAX, |signal| SIGNAL.saturating_add(signal))
            }),
        )
    }

    /// An exit with a message.
    pub(crate) fn saying(code: u8, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::quiet(code)
        }
    }

    /// Adds one more line to the message, unless the line is empty.
    pub(crate) fn adding(mut self, line: &str) -> Self {
        if let (Some(message), false) = (&mut self.message, line.is_empty()) {
            message.extend(["\n    ", line]);
        }
        self
    }

    /// Removes the message if the user wants none.
    pub(crate) fn quiet_if(mut self, is_quiet: bool) -> Self {
        self.message = self.message.filter(|_| !is_quiet);
        self
    }

    /// The message, or an empty string.
    pub(crate) fn text(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// The first line of the message, without the exit code.
    pub(crate) fn reason(&self) -> &str {
        let line = self.text().lines().next().unwrap_or_default();
        line.trim_end_matches(&format!(" (exit {})", self.code))
    }

    /// Replaces a phrase of the message, for verbs where it means something else.
    pub(crate) fn reworded(mut self, from: &str, to: &str) -> Self {
        self.message = self.message.map(|message| message.replace(from, to));
        self
    }

    /// Removes the statement about the command, for verbs that run none.
    pub(crate) fn without_command(self) -> Self {
        self.reworded(NOT_RUN, "")
    }

    /// Removes the statement about the lock, for requests that concern none.
    pub(crate) fn about_no_lock(self) -> Self {
        self.reworded(&format!("    {LOCK_UNKNOWN}{NOT_RUN}\n"), "")
    }

    /// The exit after a signal ended the wait.
    pub(crate) fn by(signal: Signal) -> Self {
        Self::quiet(SIGNAL + signal as u8)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Replaces the exit code, in the message too.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        let (told, now) = (format!("(exit {})", self.code), format!("(exit {code})"));
        self.message = self.message.map(|message| message.replacen(&told, &now, 1));
        self.code = code;
        self
    }

    /// With processes to interrupt, makes this one die of SIGINT. A shell continues its script after exit code
    /// 130, but stops after this.
    pub(crate) fn by_interrupt(mut self, reach: Option<InterruptTarget>) -> Self {
        self.interrupted = reach;
        self
    }

    /// True if an interrupt from the terminal ended the command, or the wait.
    pub(crate) fn is_by_interrupt(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Prints the message and returns the code for `main`.
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

/// The exit for a refused system call that this program needs.
impl From<io::Error> for Exit {
    fn from(error: io::Error) -> Self {
        let next = format!("next    {MORE_RESOURCES}");
        let next: &str = if sys::is_shortage(&error) { &next } else { "" };
        exit!(SOFTWARE, "a system call failed: {error} (exit {SOFTWARE})").adding(next)
    }
}

impl From<Invalid> for Exit {
    fn from(invalid: Invalid) -> Self {
        let code = if ["store URL", "TLS setting"].contains(&invalid.what) {
            CONFIG
        } else {
            USAGE
        };
        exit!(code, "{invalid} (exit {code})")
    }
}

/// An error of the library after which the state of the lock is unknown. Busy locks and lost leases get a longer
/// message where they occur.
impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        let store = match error {
            Error::Invalid(invalid) => return invalid.into(),
            Error::Store(store) => store,
            Error::Timeout(timeout) => return Self::saying(TIMEOUT, timeout.to_string()),
            Error::Lost(lost) => return exit!(LOST, "{lost} (exit {LOST})"),
            other => return Self::saying(SOFTWARE, other.to_string()),
        };
        let (code, advice) = next_step(&store);
        exit!(
            code,
            "{store} (exit {code})\n    {LOCK_UNKNOWN}{NOT_RUN}\n    next    {advice}"
        )
    }
}

/// What the server itself says, and what to do about it.
const SAID: &str = "\
max number of clients => close connections that nobody uses (redis-cli CLIENT LIST), or raise maxclients there
protected mode => on the server, set a password and the addresses to listen to (bind); or connect from its own host
signed by no authority => name the file of its authority: --tls-ca FILE; or, if you know this certificate itself, pin it: --tls-pin sha256:...
is not the pinned one => ask who runs the server whether it has a new one; then --tls-pin sha256:... (openssl x509 -noout -fingerprint -sha256 -in FILE prints it)
its certificate is for => use a host name of the certificate in the URL, or say which one to expect: --tls-name NAME
name that it was asked for => say which name its certificate has: --tls-name NAME
by the clock of this host => renew the certificate of the server, or set the clock of this host (date)
certificate of this client => give one that the server trusts: --tls-cert FILE --tls-key FILE
this system names none => install the package ca-certificates, or name the authority of the server: --tls-ca FILE
LOADING => wait until the server has loaded its data
NOAUTH => give the password: --password-file FILE, or in the URL
in cluster mode => leave the database out of the URL: a cluster has none but 0
DB index => choose a database that the server has: redis-cli CONFIG GET databases
holds no mark => find out what wrote the key, and delete it there
WRONGTYPE => look at the type of the key; another program may use it
replicas confirmed it within => bring the replicas back (redis-cli INFO replication lists them), or ask for fewer: replicas=K in the URL. Until then each request fails; the primary may keep the lock for this request until its TTL ends
not write it to its disk => look at the disk of the primary, or leave fsync out of the URL. The primary may keep the lock for this request until its TTL ends
closed the connection, and said => ask who runs this server, or a proxy before it";

/// Said of sentinels that refuse their login.
const LOGIN_OF_SENTINELS: &str = "give the password of the sentinels, which may be another one: ?sentinel_pass=SECRET in the URL, and &sentinel_user=NAME if it is not that of the default user";

/// The exit code for an error of a store, and what to do next.
fn next_step(error: &StoreError) -> (u8, &'static str) {
    let is_local = error.store.starts_with("local:");
    let code = match error.kind {
        StoreErrorKind::Denied => DENIED,
        StoreErrorKind::Protocol | StoreErrorKind::Misconfigured | StoreErrorKind::Untrusted => {
            CONFIG
        }
        StoreErrorKind::Closed | StoreErrorKind::Exhausted => SOFTWARE,
        _ => UNAVAILABLE,
    };
    let cause = first_cause(error);
    if error.kind == StoreErrorKind::Denied && cause.starts_with("no sentinel") {
        return (code, LOGIN_OF_SENTINELS);
    }
    let mut said = SAID.lines().filter_map(|row| row.split_once(" => "));
    if let Some((_, step)) = said.find(|(words, _)| !is_local && cause.contains(words)) {
        return (code, step);
    }
    let step = match error.kind {
        StoreErrorKind::Denied if is_local => {
            "this user needs to write the file, its -wal and -shm files and its directory; for several users, create it with local:/path/to/file?mode=0660, in a directory with their group and the setgid bit"
        }
        StoreErrorKind::Protocol if is_local => "name a new file, or a lock file of leasehold",
        StoreErrorKind::Denied => {
            "check user and password in the URL, and the permissions of that user (ACL)"
        }
        StoreErrorKind::Protocol if cause.contains("Redis' protocol") => {
            "check that the URL names a Redis or Valkey"
        }
        StoreErrorKind::Protocol => {
            "ask who runs this server, or a proxy before it; leasehold doctor says what locks need"
        }
        StoreErrorKind::Misconfigured => {
            "use the settings that the message names, for all clients alike"
        }
        StoreErrorKind::Untrusted => "look at its certificate: openssl s_client -connect HOST:PORT",
        StoreErrorKind::Closed => "this is a bug in leasehold",
        StoreErrorKind::Exhausted => MORE_RESOURCES,
        StoreErrorKind::ReadOnly => "give the URL of the primary",
        StoreErrorKind::Full if is_local => {
            "free space on its file system (df shows it), or name a file on another one"
        }
        StoreErrorKind::TimedOut if is_local => {
            "find the process that keeps the file locked (lsof), perhaps a stopped one: continue or end it"
        }
        StoreErrorKind::Unavailable if is_local => {
            "check its disk, the quota of this user, and the limits of this process (ulimit -f); or name a file on another file system"
        }
        StoreErrorKind::Unreachable if is_local => {
            "check that this user may write the file and its directory"
        }
        StoreErrorKind::Unreachable | StoreErrorKind::TimedOut => {
            "check that the server runs and that this host may reach it"
        }
        _ => "try again when the store has recovered",
    };
    (code, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_once_and_none_that_commands_use() {
        let code = |row: &str| row.get(2..)?.split_whitespace().next()?.parse().ok();
        let mut codes: Vec<u8> = HELP.lines().filter_map(code).collect();
        codes.sort_unstable();
        assert_eq!(
            codes,
            [64, 66, 69, 70, 75, 77, 78, 79, 80, 81, 124, 126, 127]
        );
        let [busy, denied, config, lost] = [BUSY, DENIED, CONFIG, LOST];
        let named = [USAGE, 66, UNAVAILABLE, SOFTWARE, busy, denied, config, lost];
        assert_eq!(codes[..8], named);
        assert_eq!(
            codes[8..],
            [DONE, SPENT, TIMEOUT, NOT_EXECUTABLE, NOT_FOUND]
        );
    }
}
