//! `leasehold dev`: a private server, cluster or primary with sentinels for trying things. It always ends with its user.
//!
//! Three processes: this one, a guardian, and the server. The guardian is this program in its own session, and
//! the server's parent; the server dies with it. The guardian ends the server when its stdin closes, which
//! happens when this process dies. With `eval "$(leasehold dev)"` this process ends at once. Before that it
//! writes the identity of the calling shell to the guardian, which then waits for the end of that shell.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getppid, setsid};
use testkit::{Directory, Process, find_program};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::exit::{Exit, InterruptTarget, NOT_EXECUTABLE, NOT_FOUND, UNAVAILABLE, USAGE, exit};
use crate::messages::{say, shown};
use crate::processes::ProcessStat;
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
    /// Listen on 127.0.0.1:N instead of a socket, for any user of this host; several servers on N and the next ports
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Start a cluster of three primaries instead of one server, on ports of 127.0.0.1
    #[arg(long)]
    cluster: bool,

    /// Start a primary, a replica and three sentinels instead of one server, on ports of 127.0.0.1
    #[arg(long, conflicts_with = "cluster")]
    sentinel: bool,

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
removed with the server. The servers of --cluster and --sentinel listen on the first free ports
from 7000 on, for any user of this host. The command ends all of them if one of them ends.";

/// Runs the verb.
pub(crate) fn dev(args: &Dev) -> Result<Exit, Exit> {
    if env::args_os().next().is_some_and(|name| name == GUARDIAN) {
        return Ok(keep_server(args));
    }
    // First of all: the calling shell may be gone later.
    let owner = CallingShell::find();
    let program = find_server(args.server.as_deref())?;
    let (highest, why) = match (args.cluster, args.sentinel) {
        (true, _) => (
            u16::MAX - BUS - (CLUSTER - 1),
            format!("a server of a cluster also listens on the port {BUS} above its own"),
        ),
        (_, true) => (
            u16::MAX - (WATCHED - 1),
            format!("{WATCHED} servers need a port each"),
        ),
        _ => (u16::MAX, String::new()),
    };
    if let Some(port) = args.port.filter(|port| *port > highest) {
        return Err(exit!(
            USAGE,
            "--port {port}: {why}: give at most {highest} (exit {USAGE})"
        ));
    }
    let server = GuardedServer::start(&program, args)?;
    if let Some((program, words)) = args.command.split_first() {
        let mut command = Command::new(program);
        command.args(words).env("LEASEHOLD_URL", &server.url);
        for name in OTHERS {
            command.env_remove(name);
        }
        in_runtime(run(command, program))
    } else if io::stdout().is_terminal() {
        let what = match (args.cluster, args.sentinel) {
            (true, _) => "a private cluster of three primaries runs",
            (_, true) => "a private primary with a replica and three sentinels runs",
            _ => "a private server runs",
        };
        in_runtime(foreground(server, what))
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
    fn start(program: &Path, args: &Dev) -> Result<Self, Exit> {
        let mut command = Command::new(env::current_exe()?);
        // It may run for long and must not keep a directory in use.
        command
            .current_dir("/")
            .arg0(GUARDIAN)
            .args(["dev", "--server"])
            .arg(program);
        if let Some(port) = args.port {
            command.arg("--port").arg(port.to_string());
        }
        for (option, is_given) in [("--cluster", args.cluster), ("--sentinel", args.sentinel)] {
            command.args(is_given.then_some(option));
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
        if let Some(url) = text.strip_prefix(READY) {
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
async fn foreground(mut server: GuardedServer, what: &str) -> Result<Exit, Exit> {
    let mut signals = Signals::catch()?;
    say(&format!("{what} here until Ctrl-C; in another shell, type"));
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
    // A caller may leave SIGCHLD ignored: then the system discards the status of the command. The handler is
    // installed before the start, and tokio keeps it for the life of this process.
    let _reports_ends = signal(SignalKind::child())?;
    sys::prepare(&mut command, None, || Ok(()));
    let child = tokio::process::Command::from(command).spawn();
    let mut child = child.map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        exit!(code, "{}: {error} (exit {code})", shown(name))
    })?;
    let status = loop {
        let signal = tokio::select! {
            // The end counts first: a signal is for a command that still runs.
            biased;
            status = child.wait() => break status?,
            signal = signals.next() => signal,
        };
        // A key at the terminal has already reached the command.
        let typed = matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && is_at_terminal();
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        if let (false, Some(pid)) = (typed, pid) {
            // Not reaped yet, so the process id is valid; its end is noticed next.
            let _sent: nix::Result<()> = kill(Pid::from_raw(pid), signal);
        }
    };
    // A calling script stops then, as it would without `leasehold`.
    let interrupted = status.signal() == Some(Signal::SIGINT as i32) && is_at_terminal();
    let reach = interrupted.then_some(InterruptTarget::Process);
    Ok(Exit::of_command(status).by_interrupt(reach))
}

/// True if keyboard signals reach this process and the command, which is in its group.
fn is_at_terminal() -> bool {
    Terminal::controlling().is_some_and(|terminal| terminal.is_foreground())
}

/// The prefix of the URL when the server answers. Any other output is an error.
const READY: &str = "ready ";

/// The interval of checks on the server and the shell. The system reports no end of a process that is not a
/// child.
const TICK: Duration = Duration::from_millis(100);

/// Keeps a server until it is no longer needed.
fn keep_server(args: &Dev) -> Exit {
    // A Ctrl-C at the caller's terminal is not for the guardian. Fails only for a group leader, which a new
    // process is not.
    let _session: nix::Result<Pid> = setsid();
    match in_runtime(guard(args)) {
        Ok(exit) => exit,
        // The caller reads this.
        Err(why) => {
            let _said: io::Result<()> = output::write(format!("{}\n", why.text()).as_bytes());
            Exit::quiet(UNAVAILABLE)
        }
    }
}

async fn guard(args: &Dev) -> Result<Exit, Exit> {
    let mut signals = Signals::catch()?;
    let mut told = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        // An error counts as the end.
        let _read: io::Result<usize> = io::stdin().read_to_string(&mut text);
        CallingShell::parse(&text)
    });
    let mut server = tokio::select! {
        server = DevServer::start(args) => server?,
        // The caller gave up before the server answered.
        _ = &mut told => return Ok(Exit::quiet(0)),
        signal = signals.next_ending() => return Ok(Exit::by(signal)),
    };
    let line = format!("{READY}{}\n", server.url);
    output::write(line.as_bytes())?;
    let unneeded = async {
        if let Ok(Some(owner)) = told.await {
            until(|| owner.is_gone()).await;
        }
    };
    tokio::select! {
        () = unneeded => Ok(Exit::quiet(0)),
        () = until(|| server.has_ended()) => Ok(Exit::quiet(UNAVAILABLE)),
        signal = signals.next_ending() => Ok(Exit::by(signal)),
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !holds() {
        tick.tick().await;
    }
}

/// The server's settings: no eviction, persistence, access for this user only.
const OPTIONS: &str = "--protected-mode yes --unixsocketperm 600 --maxmemory-policy noeviction --appendonly yes --appendfsync everysec";

/// The program to run: the given one, or the first installed one.
fn find_server(asked: Option<&Path>) -> Result<PathBuf, Exit> {
    find_program(asked).ok_or_else(|| {
        let missing = match asked {
            Some(asked) => format!(
                "no such program: {} (exit {NOT_FOUND})\n    next    leasehold dev --server /path/to/redis-server",
                shown(asked.as_os_str())
            ),
            None => format!(
                "neither redis-server nor valkey-server is installed (exit {NOT_FOUND})
    Debian, Ubuntu    apt install redis-server
    Fedora            dnf install valkey
    macOS             brew install redis
    elsewhere         leasehold dev --server /path/to/redis-server
    without one       leasehold run --url local: LOCK -- CMD"
            ),
        };
        Exit::saying(NOT_FOUND, missing)
    })
}

/// The running servers. Dropping it kills them; their data is temporary.
struct DevServer {
    nodes: Vec<Node>,
    url: String,
}

impl DevServer {
    /// Starts the servers and waits until they take requests.
    async fn start(args: &Dev) -> Result<Self, Exit> {
        let program = args.server.as_deref();
        let program = program.unwrap_or(Path::new("redis-server"));
        let (mut server, looks) = if args.cluster {
            (Self::cluster(program, args.port).await?, NAMES)
        } else if args.sentinel {
            (Self::watched(program, args.port).await?, 0)
        } else {
            (Self::alone(program, args.port).await?, 0)
        };
        let url = &server.url;
        if let Some(last) = server.nodes.last_mut() {
            last.wait_until(async |_| takes_requests(url, looks).await)
                .await?;
        }
        Ok(server)
    }

    async fn alone(program: &Path, port: Option<u16>) -> Result<Self, Exit> {
        let mut node = Node::start(program, port, &[], None)?;
        node.listens().await?;
        Ok(Self {
            url: match port {
                Some(port) => format!("redis://127.0.0.1:{port}/"),
                None => format!("unix:{}", node.directory.socket().display()),
            },
            nodes: vec![node],
        })
    }

    async fn cluster(program: &Path, first: Option<u16>) -> Result<Self, Exit> {
        let ports = ports(first, CLUSTER, BUS)?;
        let start = |port: &u16| {
            let options = ["--cluster-enabled", "yes"];
            Node::start(program, Some(*port), &options, None)
        };
        let mut nodes = ports.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for node in &mut nodes {
            node.listens().await?;
        }
        form(&nodes, &ports)?;
        Ok(Self {
            nodes,
            url: format!("redis+cluster://{}/", addresses(&ports)),
        })
    }

    async fn watched(program: &Path, first: Option<u16>) -> Result<Self, Exit> {
        let ports = ports(first, WATCHED, 0)?;
        let (servers, sentinels) = ports.split_at(2);
        let mut nodes = Vec::new();
        for port in servers {
            // Else the primary waits 5 s for more replicas.
            let options = ["--repl-diskless-sync-delay", "0"];
            nodes.push(Node::start(program, Some(*port), &options, None)?);
        }
        for node in &mut nodes {
            node.listens().await?;
        }
        let [primary, replica] = &nodes[..] else {
            return Err(io::Error::other("two servers").into());
        };
        let at = format!("127.0.0.1 {}", ports[0]);
        replica.tell(&format!("REPLICAOF {at}"))?;
        // Sentinels ask for replicas when they start, and again only after 10 s.
        let limit = ANSWERS_WITHIN.as_millis() / 2;
        if primary.tell(&format!("WAIT 1 {limit}"))? != ":1" {
            return Err(io::Error::other("the replica does not follow the primary").into());
        }
        let text = format!(
            "sentinel monitor {WATCHED_NAME} {at} 2\nsentinel down-after-milliseconds {WATCHED_NAME} 1000\n\
             sentinel failover-timeout {WATCHED_NAME} 5000\n"
        );
        for port in sentinels {
            let options = ["--sentinel"];
            nodes.push(Node::start(program, Some(*port), &options, Some(&text))?);
        }
        for node in &mut nodes[2..] {
            node.listens().await?;
            // They hear of each other within 2 s. Before, they would let a failover wait.
            let socket = node.directory.socket();
            node.wait_until(async |_| {
                let agree = tell(&socket, &format!("SENTINEL CKQUORUM {WATCHED_NAME}")).is_ok();
                if !agree {
                    sleep(TICK).await;
                }
                agree
            })
            .await?;
        }
        Ok(Self {
            nodes,
            url: format!("redis+sentinel://{}/{WATCHED_NAME}", addresses(sentinels)),
        })
    }

    fn has_ended(&mut self) -> bool {
        let mut nodes = self.nodes.iter_mut();
        nodes.any(|node| !matches!(node.process.ended(), Ok(None)))
    }
}

/// Whether the store can be used. `looks`: how many names are looked at, since a node of a cluster begins to serve its slots after 2 s.
async fn takes_requests(url: &str, looks: u32) -> bool {
    let Ok(client) = Client::connect(url).await else {
        return false;
    };
    let mut does = true;
    for name in 0..looks {
        does = does && client.inspect(&name.to_string()).await.is_ok();
    }
    client.close().await;
    if !does {
        sleep(TICK).await;
    }
    does
}

/// So many names are in the slots of all nodes.
const NAMES: u32 = 64;

/// The number of servers of a cluster, and of a primary with its replica and sentinels.
const CLUSTER: u16 = 3;
const WATCHED: u16 = 5;

/// The name of the primary in the words of its sentinels.
const WATCHED_NAME: &str = "dev";

/// The ports of so many servers: from the given one on, else the first free ones. The port so far `above` each is free as well.
fn ports(first: Option<u16>, count: u16, above: u16) -> Result<Vec<u16>, Exit> {
    if let Some(first) = first {
        return Ok((first..=first + (count - 1)).collect());
    }
    let is_free = |port: &u16| {
        let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        listen(*port).is_ok() && (above == 0 || listen(*port + above).is_ok())
    };
    let free = (7_000..10_000).filter(is_free);
    let ports: Vec<u16> = free.take(count.into()).collect();
    if ports.len() == usize::from(count) {
        return Ok(ports);
    }
    Err(exit!(
        UNAVAILABLE,
        "too few ports from 7000 to 9999 are free (exit {UNAVAILABLE})"
    ))
}

/// These ports of this host, as URLs name them.
fn addresses(ports: &[u16]) -> String {
    let addresses: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    addresses.join(",")
}

/// The distance from the port of a node to that by which it speaks to the others.
const BUS: u16 = 10_000;

/// Makes a cluster of these servers: each has an equal part of the slots, and knows the others.
fn form(nodes: &[Node], ports: &[u16]) -> io::Result<()> {
    for (at, node) in nodes.iter().enumerate() {
        let slots = SLOTS * at / nodes.len()..SLOTS * (at + 1) / nodes.len();
        let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
        // Redis 6.2 knows no ranges.
        node.tell(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))?;
        // Else they would find out by collisions, which takes seconds.
        node.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
    }
    for (at, node) in nodes.iter().enumerate() {
        for port in &ports[at + 1..] {
            node.tell(&format!("CLUSTER MEET 127.0.0.1 {port}"))?;
        }
    }
    Ok(())
}

const SLOTS: usize = 16_384;

/// How long a server may take to answer a command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A running process. Dropping it kills it.
struct Node {
    // Before `directory`, and therefore dropped first: the process ends before its directory is removed.
    process: Process,
    directory: Directory,
}

impl Node {
    /// `file`: the text of its configuration file, which a sentinel cannot do without.
    fn start(
        program: &Path,
        port: Option<u16>,
        options: &[&str],
        file: Option<&str>,
    ) -> Result<Self, Exit> {
        let directory = Directory::make("leasehold-dev-")?;
        let mut command = Command::new(program);
        if let Some(text) = file {
            let path = directory.path().join("server.conf");
            fs::write(&path, text)?;
            command.arg(path);
        }
        directory.configure(&mut command, port.unwrap_or(0))?;
        command.arg("--unixsocket").arg(directory.socket());
        command.args(OPTIONS.split(' ')).args(options);
        command.stdin(Stdio::null());
        // The server does not need them, and they may contain secrets.
        for name in ["LEASEHOLD_URL", "REDIS_URL"] {
            command.env_remove(name);
        }
        sys::prepare(&mut command, None, || Ok(()));
        Ok(Self {
            process: Process::spawn(&mut command)?,
            directory,
        })
    }

    /// Sends a command. Returns the line of the answer.
    fn tell(&self, command: &str) -> io::Result<String> {
        tell(&self.directory.socket(), command)
    }

    /// Waits until the server listens. Its port may belong to another server. The socket does not, and the server opens it last.
    async fn listens(&mut self) -> Result<(), Exit> {
        let socket = self.directory.socket();
        self.wait_until(async |_| socket.exists()).await
    }

    async fn wait_until(&mut self, answers: impl AsyncFn(u32) -> bool) -> Result<(), Exit> {
        let answered = self.process.until_it_answers(sleep, answers).await;
        answered.map_err(|_| Exit::saying(UNAVAILABLE, self.last_words()))
    }

    fn last_words(&self) -> String {
        let words = self.directory.last_words();
        if words.is_empty() {
            return "    it did not answer, and logged nothing".into();
        }
        let lines: Vec<String> = words
            .lines()
            .map(|line| format!("    {}", line.escape_debug()))
            .collect();
        lines.join("\n")
    }
}

/// Sends a command to the server at this socket. Returns the line of the answer.
fn tell(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let answer = answer.trim_end().to_owned();
    if answer.starts_with(['+', ':']) {
        return Ok(answer);
    }
    Err(io::Error::other(answer))
}

/// A process, identified by its id and start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallingShell {
    pid: i32,
    /// The start time in ticks since boot; 0 where the system does not tell.
    started: u64,
}

impl CallingShell {
    /// The shell that runs `$(leasehold dev)`. A shell may fork for that, and the fork ends with this process. A
    /// fork is recognized because it has executed no program.
    ///
    /// None if the shell is gone or in another session: another parent, like `init`, could outlive the use of
    /// the server.
    fn find() -> Option<Self> {
        let mut pid = getppid().as_raw();
        while let Some(seen) = ProcessStat::of(pid)
            && seen.is_fork
            && seen.parent > 0
        {
            pid = seen.parent;
        }
        let started = match (ProcessStat::of(pid), ProcessStat::of(getpid().as_raw())) {
            // A shell and its children share a session; `init` and orphans do not.
            (Some(shell), Some(ours)) => (shell.session == ours.session).then_some(shell.started),
            (None, Some(_)) => None,
            // No /proc.
            (_, None) => (pid > 1).then_some(0),
        }?;
        Some(Self { pid, started })
    }

    /// Parses the output of [`fmt::Display`].
    fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// True if the process has ended.
    fn is_gone(self) -> bool {
        match ProcessStat::of(self.pid) {
            Some(seen) => !seen.lives || seen.started != self.started,
            // Without /proc only the process id is known.
            None => self.started != 0 || kill(Pid::from_raw(self.pid), None) == Err(Errno::ESRCH),
        }
    }
}

impl fmt::Display for CallingShell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_number_and_start() {
        // The test process itself.
        let pid = getpid().as_raw();
        let started = ProcessStat::of(pid).map_or(0, |seen| seen.started);
        let shell = CallingShell { pid, started };
        assert_eq!(CallingShell::parse(&format!("{shell}\n")), Some(shell));
        assert!(!shell.is_gone());
        #[cfg(target_os = "linux")]
        assert!(
            CallingShell {
                started: shell.started + 1,
                ..shell
            }
            .is_gone()
        );
        for text in ["", "1", "x 1"] {
            assert_eq!(CallingShell::parse(text), None);
        }
    }
}
