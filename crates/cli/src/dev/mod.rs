//! `leasehold dev`: a private server for trying things. It always ends with its user.
//!
//! Three processes: this one, a guardian, and the server. The guardian is this program in its own session, and
//! the server's parent; the server dies with it. The guardian ends the server when its stdin closes, which
//! happens when this process dies. With `eval "$(leasehold dev)"` this process ends at once. Before that it
//! writes the identity of the calling shell to the guardian, which then waits for the end of that shell.

mod calling_shell;
mod server;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use self::calling_shell::CallingShell;
use crate::exit::{Exit, InterruptTarget, NOT_EXECUTABLE, NOT_FOUND, UNAVAILABLE, USAGE, exit};
use crate::messages::{say, shown};
use crate::session::in_runtime;
use crate::terminal::{Signals, Terminal};
use crate::{output, sys};

/// The name of a guardian process. A name, unlike an option, does not appear in help and completions.
const GUARDIAN: &str = "leasehold-guardian";

/// Other variables that would select another store.
const OTHERS: [&str; 2] = ["LEASEHOLD_URL_FILE", "LEASEHOLD_PASSWORD_FILE"];

/// Start a private redis-server or valkey-server, to try things with
#[derive(Debug, Args)]
#[command(override_usage = "leasehold dev [OPTIONS] [-- CMD [ARG...]]", after_help = ABOUT)]
pub(crate) struct Dev {
    /// Listen on 127.0.0.1:N instead of a socket, for any user of this host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// The server program; by default redis-server, else valkey-server
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,

    /// A command to run with the server; the server ends with it
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const ABOUT: &str = "\
Three ways to use it:
  eval \"$(leasehold dev)\"       sets LEASEHOLD_URL in this shell; the server ends with the shell
  leasehold dev -- make test    runs a command with LEASEHOLD_URL set, and ends with its status
  leasehold dev                 at a terminal: runs until Ctrl-C, and prints the setting for other shells

The server listens on a socket in a new directory that only you may enter, evicts nothing
(maxmemory-policy noeviction), and writes its data there (appendonly yes). The directory is
removed with the server.";

/// Runs the verb.
pub(crate) fn dev(args: &Dev) -> Result<Exit, Exit> {
    if env::args_os().next().is_some_and(|name| name == GUARDIAN) {
        return Ok(server::keep(args.server.as_deref(), args.port));
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
    said: BufReader<ChildStdout>,
    url: String,
}

impl GuardedServer {
    /// Starts the guardian and the server. Returns when the server answers.
    fn start(program: &Path, port: Option<u16>) -> Result<Self, Exit> {
        let mut command = Command::new(env::current_exe()?);
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
        let mut guardian = command.spawn()?;
        let said = guardian.stdout.take();
        let said = said.ok_or_else(|| io::Error::other("no pipe"))?;
        let mut server = Self {
            guardian,
            said: BufReader::new(said),
            url: String::new(),
        };
        // The guardian's first line has the URL. Any other output is an error.
        let mut text = String::new();
        server.said.read_line(&mut text)?;
        if let Some(url) = text.strip_prefix(server::READY) {
            server.url = url.trim_end().to_owned();
            return Ok(server);
        }
        server.said.read_to_string(&mut text)?;
        let text = text.trim_end();
        Err(exit!(
            UNAVAILABLE,
            "the server did not start (exit {UNAVAILABLE})\n{text}"
        ))
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
    let mut lines = format!("export LEASEHOLD_URL={}\n", server.url);
    let set = OTHERS.into_iter();
    let set = set.filter(|name| env::var_os(name).is_some());
    lines.extend(set.map(|name| format!("unset {name}\n")));
    // If the line is not read, the server cannot be used.
    output::write(lines.as_bytes())?;
    server.leave_to(&owner)?;
    Ok(Exit::quiet(0))
}

/// Keeps the server until Ctrl-C.
async fn foreground(mut server: GuardedServer) -> Result<Exit, Exit> {
    let mut signals = Signals::catch()?;
    say("a private server runs here until Ctrl-C; in another shell, type");
    output::write(format!("export LEASEHOLD_URL={}\n", server.url).as_bytes())?;
    // The guardian writes no more, and is a child: its end is a signal.
    let mut changes = signal(SignalKind::child())?;
    loop {
        if server.guardian.try_wait()?.is_some() {
            return Err(exit!(
                UNAVAILABLE,
                "the server has ended (exit {UNAVAILABLE})"
            ));
        }
        let signal = tokio::select! {
            _ = changes.recv() => continue,
            signal = signals.next_ending() => signal,
        };
        drop(server);
        let interrupted = signal == Signal::SIGINT;
        return Ok(Exit::by(signal).by_interrupt(interrupted.then_some(InterruptTarget::Process)));
    }
}

/// Runs a command to its end. The caller ends the server.
async fn run(mut command: Command, name: &OsString) -> Result<Exit, Exit> {
    let mut signals = Signals::catch()?;
    let mut changes = signal(SignalKind::child())?;
    sys::prepare(&mut command, None, || Ok(()));
    let mut child = command.spawn().map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        exit!(code, "{}: {error} (exit {code})", shown(name))
    })?;
    loop {
        if let Some(status) = child.try_wait()? {
            // A calling script stops then, as it would without `leasehold`.
            let interrupted = status.signal() == Some(Signal::SIGINT as i32) && is_at_terminal();
            let reach = interrupted.then_some(InterruptTarget::Process);
            return Ok(Exit::of_command(status).by_interrupt(reach));
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
