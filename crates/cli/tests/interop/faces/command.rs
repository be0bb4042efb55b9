//! The actor of the command: a `leasehold run` for each request. Its CMD ends when the lock is to be released.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Answer, Step, orders};

/// CMD says what it holds, and ends with its stdin.
const CMD: &str = r#"
printf '{"fence":%s,"slot":%s,"token":"%s"}\n' "${LEASEHOLD_FENCE:-null}" "${LEASEHOLD_SLOT:-null}" "$LEASEHOLD_TOKEN"
exec cat"#;

/// A `leasehold run`.
struct Run {
    lock: String,
    pid: Pid,
    /// The stdin of CMD.
    stdin: Option<ChildStdin>,
    token: String,
    /// How it ended.
    end: Option<String>,
}

type Runs = Mutex<BTreeMap<String, Run>>;

pub(super) fn act() {
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let runs = Runs::default();
    thread::scope(|scope| {
        for (name, verb, step) in orders() {
            if verb == "acquire" {
                let mut child = start(&step);
                let run = Run {
                    lock: step.lock.unwrap(),
                    pid: Pid::from_raw(i32::try_from(child.id()).unwrap()),
                    stdin: child.stdin.take(),
                    token: String::new(),
                    end: None,
                };
                runs.lock().unwrap().insert(name.clone(), run);
                let runs = &runs;
                scope.spawn(move || follow(&name, child, runs));
            } else {
                obey(&name, &verb, runs.lock().unwrap().get_mut(&name).unwrap());
            }
        }
        runs.lock().unwrap().clear();
    });
}

fn obey(name: &str, verb: &str, run: &mut Run) {
    match (verb, &run.end) {
        ("cancel", _) => kill(run.pid, Signal::SIGTERM).unwrap(),
        ("release", None) => run.stdin = None,
        ("release", Some(end)) => Answer::of(name, end).say(),
        ("check", _) => {
            let mut check = leasehold();
            check.arg("check").env("LEASEHOLD_LOCK", &run.lock);
            let checked = check.env("LEASEHOLD_TOKEN", &run.token).output();
            let is = match checked.unwrap().status.code() {
                Some(0) => "valid",
                Some(79) => "lost",
                _ => "unknown",
            };
            Answer::of(name, is).say();
        }
        _ => Answer::of(name, "cannot").say(),
    }
}

fn leasehold() -> Command {
    Command::new(env::var_os("LEASEHOLD").unwrap())
}

fn start(step: &Step) -> Child {
    let mut command = leasehold();
    command
        .arg("run")
        .arg(format!("--ttl={}ms", step.ttl.unwrap()));
    match step.wait {
        None => {}
        Some(0) => _ = command.arg("--try"),
        Some(wait) => _ = command.arg(format!("--wait={wait}ms")),
    }
    if step.mode.as_deref() == Some("read") {
        command.arg("--shared");
    }
    command.args(step.slots.map(|slots| format!("--slots={slots}")));
    command.args(
        step.also
            .iter()
            .flatten()
            .map(|lock| format!("--also={lock}")),
    );
    command
        .arg(step.lock.as_ref().unwrap())
        .args(["--", "sh", "-c", CMD]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Says what becomes of a run.
fn follow(name: &str, mut child: Child, runs: &Runs) {
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (status, said) = thread::scope(|scope| {
        let said = scope.spawn(|| hear(name, stderr));
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).unwrap();
        if let Ok(held) = serde_json::from_str::<Value>(&line) {
            if let Some(run) = runs.lock().unwrap().get_mut(name) {
                held["token"].as_str().unwrap().clone_into(&mut run.token);
            }
            Answer {
                fence: held["fence"].as_u64(),
                slot: held["slot"].as_u64().and_then(|slot| slot.try_into().ok()),
                ..Answer::of(name, "held")
            }
            .say();
        }
        (child.wait().unwrap(), said.join().unwrap())
    });
    let end = match status.code() {
        Some(0) => "released",
        Some(75) => "busy",
        Some(124) => "timeout",
        Some(79) => "lost",
        Some(69) => "unavailable",
        Some(64) => "refused",
        Some(143) => "cancelled",
        _ => &format!("{status}: {said}"),
    };
    if let Some(run) = runs.lock().unwrap().get_mut(name) {
        run.end = Some(end.to_owned());
    }
    Answer::of(name, end).say();
}

/// Reads the messages of a run, which begin with those about the wait.
fn hear(name: &str, stderr: ChildStderr) -> String {
    let mut said = Vec::new();
    for line in BufReader::new(stderr).lines().map(Result::unwrap) {
        if said.is_empty() && line.contains("waiting for") {
            Answer::of(name, "waiting").say();
        }
        said.push(line);
    }
    said.join("\n")
}
