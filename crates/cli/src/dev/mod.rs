//! `leasehold dev`: a private server for trying things. It always ends with its user.
//!
//! Three processes: this one, a guardian, and the server. The guardian is this program in its own session, and
//! the server's parent; the server dies with it. The guardian ends the server when its stdin closes, which
//! happens when this process dies. With `eval "$(leasehold dev)"` this process ends at once. Before that it
//! writes the identity of the calling shell to the guardian, which then waits for the end of that shell.

mod args;
mod calling_shell;
mod guardian;
mod server;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::args::Dev;
use self::calling_shell::CallingShell;
use crate::exit::{Exit, InterruptTarget, NOT_EXECUTABLE, NOT_FOUND, UNAVAILABLE, USAGE, exit};
use crate::messages::{say, shown};
use crate::session::{in_runtime, refused_by_system};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::{output, sys};

/// The name of a guardian process. A name, unlike an option, does not appear in help and completions.
const GUARDIAN: &str = "leasehold-guardian";

/// Other variables that would select another store.
const OTHERS: [&str; 2] = ["LEASEHOLD_URL_FILE", "LEASEHOLD_PASSWORD_FILE"];

/// Runs the verb.
pub(crate) fn dev(args: &Dev) -> Exit {
    begin(args).unwrap_or_else(|exit| exit)
}

fn begin(args: &Dev) -> Result<Exit, Exit> {
    if env::args_os().next().is_some_and(|name| name == GUARDIAN) {
        return Ok(guardian::keep(args));
    }
    // First of all: the calling shell may be gone later.
    let owner = CallingShell::find();
    let program = server::find(args.server.as_deref())?;
    let server = GuardedServer::start(&program, args.port)?;
    if let Some((program, words)) = args.command.split_first() {
        let mut command = Command::new(program);
        command.args(words).env("LEASEHOLD_URL", &server.url);
        for name in OTHERS {
            command.env_remove(name);
        }
        in_runtime(run(command, program))
    } else if io::stdout().is_terminal() {
        in_runtime(foreground(server))
    } else {
        hand_over(server, owner)
    }
}

/// A server with its guardian. Dropping it waits until both have ended.
struct GuardedServer {
    guardian: Child,
    said: Option<BufReader<ChildStdout>>,
    url: String,
}

impl GuardedServer {
    /// Starts the guardian and the server. Returns when the server answers.
    fn start(program: &std::path::Path, port: Option<u16>) -> Result<Self, Exit> {
        let ours = env::current_exe().map_err(|error| refused_by_system(&error))?;
        let mut command = Command::new(ours);
        // It may run for long and must not keep a directory in use.
        command
            .current_dir("/")
            .arg0(GUARDIAN)
            .args(["dev", "--server"])
            .arg(program);
        if let Some(port) = port {
            command.arg("--port").arg(port.to_string());
        }
        // It inherits no file of this process: `$(...)` waits until the last writer of its pipe is gone.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut guardian = command.spawn().map_err(|error| refused_by_system(&error))?;
        let said = guardian.stdout.take().map(BufReader::new);
        let mut server = Self {
            guardian,
            said,
            url: String::new(),
        };
        server.url = server.first_word()?;
        Ok(server)
    }

    /// The URL from the guardian's first line, or the error with all its output.
    fn first_word(&mut self) -> Result<String, Exit> {
        let mut text = String::new();
        let read = |said: &mut BufReader<ChildStdout>, text: &mut String| {
            said.read_line(text)?;
            if !text.starts_with(guardian::READY) {
                said.read_to_string(text)?;
            }
            Ok::<(), io::Error>(())
        };
        if let Some(said) = &mut self.said {
            read(said, &mut text).map_err(|error| refused_by_system(&error))?;
        }
        match text.strip_prefix(guardian::READY) {
            Some(url) => Ok(url.trim_end().to_owned()),
            None => Err(exit!(
                UNAVAILABLE,
                "the server did not start (exit {UNAVAILABLE})\n{}",
                text.trim_end()
            )),
        }
    }

    /// Makes the server end with `owner` instead of with this process.
    fn leave_to(mut self, owner: &CallingShell) -> io::Result<()> {
        if let Some(mut stdin) = self.guardian.stdin.take() {
            stdin.write_all(owner.to_string().as_bytes())?;
        }
        // Not dropped, which would wait for its end.
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for GuardedServer {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        // There is nothing else to do for it.
        let _ended: io::Result<ExitStatus> = self.guardian.wait();
    }
}

/// Prints the line for the shell to evaluate, and ties the server to that shell.
fn hand_over(server: GuardedServer, owner: Option<CallingShell>) -> Result<Exit, Exit> {
    let owner = owner.ok_or_else(|| {
        exit!(USAGE, "there is no shell that the server could end with (exit {USAGE})\n    next    leasehold dev -- CMD")
    })?;
    let export = format!("export LEASEHOLD_URL={}\n", server.url);
    let set = OTHERS
        .into_iter()
        .filter(|name| env::var_os(name).is_some());
    let lines: String = [export]
        .into_iter()
        .chain(set.map(|name| format!("unset {name}\n")))
        .collect();
    // If the line is not read, the server cannot be used.
    output::write(lines.as_bytes())
        .and_then(|()| server.leave_to(&owner))
        .map_err(|error| refused_by_system(&error))?;
    Ok(Exit::quiet(0))
}

/// Keeps the server until Ctrl-C.
async fn foreground(mut server: GuardedServer) -> Result<Exit, Exit> {
    let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
    say("a private server runs here until Ctrl-C; in another shell, type");
    let line = format!("export LEASEHOLD_URL={}\n", server.url);
    output::write(line.as_bytes()).map_err(|error| refused_by_system(&error))?;
    // The guardian writes no more, so the read ends with it.
    let said = server.said.take();
    let ended =
        tokio::task::spawn_blocking(move || said.map(|mut said| said.read_to_end(&mut Vec::new())));
    tokio::select! {
        signal = signals.next_ending() => {
            drop(server);
            let exit = Exit::by(signal);
            Ok(if signal == Signal::SIGINT { exit.by_interrupt(InterruptTarget::Process) } else { exit })
        }
        _ = ended => Err(exit!(UNAVAILABLE, "the server has ended (exit {UNAVAILABLE})")),
    }
}

/// Runs a command to its end. The caller ends the server.
async fn run(mut command: Command, name: &OsString) -> Result<Exit, Exit> {
    let refused = |error: io::Error| refused_by_system(&error);
    let mut signals = Signals::catch().map_err(refused)?;
    let mut changes = signal(SignalKind::child()).map_err(refused)?;
    sys::prepare(&mut command, None, || Ok(()));
    let mut child = command.spawn().map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound {
            NOT_FOUND
        } else {
            NOT_EXECUTABLE
        };
        exit!(code, "{}: {error} (exit {code})", shown(name))
    })?;
    loop {
        if let Some(status) = child.try_wait().map_err(refused)? {
            let exit = Exit::of_command(status);
            // A calling script stops then, as it would without `leasehold`.
            let interrupted = status.signal() == Some(Signal::SIGINT as i32) && is_at_terminal();
            return Ok(if interrupted {
                exit.by_interrupt(InterruptTarget::Process)
            } else {
                exit
            });
        }
        tokio::select! {
            _ = changes.recv() => {}
            signal = signals.next() => pass_on(signal, &child),
        }
    }
}

/// Forwards signals to the command. A key at the terminal has already reached it.
fn pass_on(signal: Signal, child: &Child) {
    let typed = matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && is_at_terminal();
    if let (false, Ok(pid)) = (typed, i32::try_from(child.id())) {
        // Not reaped yet, so the process id is valid; its end is noticed next.
        let _sent: nix::Result<()> = kill(Pid::from_raw(pid), signal);
    }
}

/// True if keyboard signals reach this process and the command, which is in its group.
fn is_at_terminal() -> bool {
    Terminal::controlling().is_some_and(|terminal| terminal.is_foreground())
}
