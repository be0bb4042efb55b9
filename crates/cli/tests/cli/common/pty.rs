//! A terminal with a simulated user.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use testkit::eventually;

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
    screen: Arc<Mutex<Vec<u8>>>,
    /// Ends when no process has the terminal open.
    reader: JoinHandle<()>,
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
        command
            .args([
                "--default-signal=HUP,INT,QUIT,TERM,TSTP",
                "setsid",
                "--ctty",
            ])
            .args(words);
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
        let mut output = keyboard.try_clone().expect("duplicate");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let into = screen.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                into.lock()
                    .expect("not poisoned")
                    .extend_from_slice(&buffer[..length]);
            }
        });
        Self {
            child,
            keyboard,
            screen,
            reader,
            read: 0,
        }
    }

    /// Presses keys: `\x03` is Ctrl-C, `\x1a` Ctrl-Z.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
    }

    /// The whole output.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("not poisoned")).into_owned()
    }

    /// Waits until `text` appears after the previously expected text.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let mut found = None;
        let (screen, from) = (self.screen.clone(), self.read);
        let find = || {
            let shown = screen.lock().expect("not poisoned")[from..].to_vec();
            found = shown
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            found.is_some()
        };
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(LIMIT, text, find);
        }));
        assert!(shown.is_ok(), "{text:?} is not shown:\n{}", self.shown());
        self.read += found.expect("found") + text.len();
    }

    /// Waits for the end of the session's leader.
    pub(crate) fn end(&mut self) -> ExitStatus {
        eventually(LIMIT, "the session ends", || {
            self.child.try_wait().expect("ask for the state").is_some()
        });
        // The last output may be delayed; but other processes may hold the terminal for good.
        let begun = Instant::now();
        while !self.reader.is_finished() && begun.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(1));
        }
        self.child.wait().expect("the status")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}
