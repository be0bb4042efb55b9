//! A terminal with a simulated user.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use testkit::eventually;

use super::collected::{Collected, collect};
use super::{LIMIT, UNHURRIED};

/// The time for which other processes than the session leader may hold a terminal.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The two sides of a new terminal. Not `openpty`: processes that other tests start at the same moment would
/// inherit both and keep the terminal open.
fn terminal() -> std::io::Result<(OwnedFd, File)> {
    let ours = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(ours)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(ptsname_r(&master)?)?;
    Ok((master.into(), slave))
}

/// A session with its own terminal. Dropping it hangs up.
pub(crate) struct Session {
    child: Child,
    keyboard: File,
    screen: Collected,
    /// How much of the screen has been read by [`Session::until`].
    read: usize,
}

impl Session {
    /// Starts `words` as the leader of the session.
    pub(crate) fn start(words: &[&str], configure: impl FnOnce(&mut Command)) -> Self {
        let (master, slave) = terminal().expect("a terminal");
        let screen = || slave.try_clone().expect("duplicate");
        let mut command = Command::new("env");
        // `setsid --ctty` makes its stdin the controlling terminal, and becomes the command without a fork.
        let signals = "--default-signal=HUP,INT,QUIT,TERM,TSTP";
        command.args([signals, "setsid", "--ctty"]).args(words);
        command.stdin(screen()).stdout(screen()).stderr(screen());
        command
            .env("TERM", "xterm")
            .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED)
            // Colours would split the expected text; a test of colours removes this.
            .env("NO_COLOR", "1")
            .env("PS1", "prompt> ")
            .env("HISTFILE", "/dev/null");
        configure(&mut command);
        let child = command.spawn().expect("start a session");
        drop((slave, command));
        let keyboard = File::from(master);
        Self {
            child,
            screen: collect(keyboard.try_clone().expect("duplicate")),
            keyboard,
            read: 0,
        }
    }

    /// Presses keys: `\x03` is Ctrl-C, `\x1a` Ctrl-Z.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
    }

    /// The whole output.
    pub(crate) fn shown(&self) -> String {
        self.screen.text()
    }

    /// Waits until `text` appears after the previously expected text.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let mut found = None;
        eventually(LIMIT, &format!("shows {text:?}"), || {
            found = self.shown()[self.read..].find(text);
            found.is_some()
        });
        self.read += found.expect("found") + text.len();
    }

    /// Waits for the end of the session's leader.
    pub(crate) fn end(&mut self) -> ExitStatus {
        eventually(LIMIT, "the session ends", || {
            self.child.try_wait().expect("ask for the state").is_some()
        });
        // The last output may be delayed; but other processes may hold the terminal for good.
        let begun = Instant::now();
        while !self.screen.has_ended() && begun.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(1));
        }
        self.child.wait().expect("the status")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the screen shows:\n{}", self.shown());
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}
