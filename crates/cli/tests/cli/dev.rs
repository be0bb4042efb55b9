//! `leasehold dev`: a temporary server, which always ends with its user.

// /proc and `setsid --ctty` are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::common::pty::Session;
use crate::common::{LEASEHOLD, LIMIT, Run, Running, Store, lives, tool};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{RedisServer, eventually, free_port};

/// The servers of this test: each runs in its own directory there.
fn servers(store: &Store) -> Vec<u64> {
    let ours = store.file("leasehold-dev-");
    let ours = ours.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &u64| {
        let place = fs::read_link(format!("/proc/{pid}/cwd"));
        place.is_ok_and(|place| place.to_string_lossy().starts_with(ours)) && lives(*pid)
    };
    pids.filter(is_ours).collect()
}

fn has_directory(store: &Store) -> bool {
    let mut entries = fs::read_dir(store.dir.path()).unwrap().flatten();
    entries.any(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .contains("leasehold-dev-")
    })
}

/// Waits until neither a server nor its directory is left.
#[track_caller]
pub(crate) fn nothing_is_left(store: &Store) {
    eventually(LIMIT, "the server is gone", || servers(store).is_empty());
    eventually(LIMIT, "its directory is gone", || !has_directory(store));
}

/// Neither is left now.
#[track_caller]
fn nothing_is_left_now(store: &Store) {
    assert!(servers(store).is_empty() && !has_directory(store));
}

fn parent_of(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(") ").next().unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

fn send(pid: u64, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// The answer of the server at `url` to a command.
fn ask(url: &str, question: &str) -> Vec<String> {
    let mut server = UnixStream::connect(url.strip_prefix("unix:").unwrap()).unwrap();
    write!(server, "{question}\r\nPING\r\n").unwrap();
    let lines = BufReader::new(server).lines().map(Result::unwrap);
    lines.take_while(|line| line != "+PONG").collect()
}

/// `leasehold dev -- sh -c SCRIPT`.
fn dev(store: &Store, script: &str) -> Run {
    store.program("leasehold dev -- sh -c").words(&[script])
}

/// A shell that has evaluated the output of `leasehold dev`, and waits.
fn evaluated(store: &Store, shell: &str, substitution: &str) -> (Running, String) {
    let script = format!(
        "eval \"{substitution}\"; leasehold run x true && echo $LEASEHOLD_URL > url.new && mv url.new url; while ! [ -e let-go ]; do sleep 0.02; done"
    );
    let running = store.program(&[shell, "-c", &script]).start();
    store.until("url");
    let url = fs::read_to_string(store.file("url")).unwrap();
    (running, url.trim().to_owned())
}

/// A session with a terminal.
fn session(store: &Store, words: &[&str]) -> Session {
    Session::start(words, |command| {
        store.surround(command);
        command.current_dir(store.dir.path());
    })
}

#[test]
fn a_command_gets_a_server_which_ends_with_it() {
    let store = Store::local();
    let script = "
        leasehold run x sh -c 'echo fence=$LEASEHOLD_FENCE' && echo $LEASEHOLD_URL $LEASEHOLD_URL_FILE && stat -c %a ${LEASEHOLD_URL#unix:} $(dirname ${LEASEHOLD_URL#unix:})
        exit 3";
    let run = dev(&store, script).env("LEASEHOLD_URL_FILE", "/no/such");
    let done = run.is(3, &[]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("fence="), "{done:?}");
    assert!(lines[1].starts_with("unix:/") && lines[1].ends_with("/redis.sock"));
    assert_eq!(lines[2..], ["600", "700"]);
    // The server and its directory are gone when the command ends.
    nothing_is_left_now(&store);

    let missing = store.program("leasehold dev -- no-such-command");
    missing.is(127, &["leasehold: \"no-such-command\""]);
    dev(&store, "kill -KILL $$").is(137, &[]);
    nothing_is_left_now(&store);

    // The caller lets the system discard the status of each child.
    let ignoring = store.program("env --ignore-signal=CHLD leasehold dev -- sh -c");
    ignoring.words(&["exit 3"]).is(3, &[]);
    nothing_is_left_now(&store);
}

#[test]
fn a_server_for_a_shell_ends_with_the_shell() {
    for (shell, substitution) in [
        ("sh", "$(leasehold dev)"),
        ("bash", "$(leasehold dev)"),
        // In these cases the substitution has its own process, which ends at once.
        ("sh", "$(leasehold dev && true)"),
        ("bash", "$(X=1; leasehold dev; true)"),
        ("bash", "$( (leasehold dev); true)"),
    ] {
        let store = Store::local();
        let (running, url) = evaluated(&store, shell, substitution);
        assert_eq!(servers(&store).len(), 1, "{shell} {substitution}");
        for (setting, value) in [
            ("maxmemory-policy", "noeviction"),
            ("appendonly", "yes"),
            ("protected-mode", "yes"),
            ("port", "0"),
        ] {
            let answer = ask(&url, &format!("CONFIG GET {setting}"));
            assert_eq!(answer.last().unwrap(), value, "{setting}: {answer:?}");
        }
        // The shell ends by itself, or the test kills it.
        if substitution.contains("true") {
            drop(running);
        } else {
            store.touch("let-go");
            running.end();
        }
        nothing_is_left(&store);
    }
}

#[test]
fn a_server_that_nobody_can_use_is_not_kept() {
    let store = Store::local();
    // The reader of the output has ended, so no program can learn the URL.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let command = store.program(&["sh", "-c", "leasehold dev; exit $?"]);
    let done = command.stdout(writer).raw();
    assert_eq!(done.status.code(), Some(70), "{done:?}");
    nothing_is_left(&store);
}

#[test]
fn no_kill_leaves_a_server_behind() {
    let store = Store::local();
    let started = dev(&store, "touch on; exec sleep 1000").start();
    store.until("on");
    assert_eq!(servers(&store).len(), 1);
    drop(started);
    nothing_is_left(&store);

    // The test kills the guardian.
    let store = Store::local();
    let (shell, _) = evaluated(&store, "sh", "$(leasehold dev)");
    send(parent_of(servers(&store)[0]), Signal::SIGKILL);
    eventually(LIMIT, "the server is gone", || servers(&store).is_empty());
    store.touch("let-go");
    shell.end();

    // The guardian gets SIGTERM, as when the system shuts down.
    let store = Store::local();
    let (_shell, _) = evaluated(&store, "sh", "$(leasehold dev)");
    send(parent_of(servers(&store)[0]), Signal::SIGTERM);
    nothing_is_left(&store);

    // The test kills `leasehold dev` before the server answers.
    let store = Store::local();
    let slow = store.file("slow");
    fs::write(&slow, "#!/bin/sh\ntouch ../started\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let started = store.program("leasehold dev --server ./slow").start();
    store.until("started");
    drop(started);
    nothing_is_left(&store);
}

#[test]
fn a_signal_is_for_the_command() {
    let store = Store::local();
    let script = "trap 'exit 9' TERM; touch on; while :; do sleep 0.02; done";
    let started = dev(&store, script).start();
    store.until("on");
    started.signal(Signal::SIGTERM);
    started.ends(9, &[]);
    assert!(servers(&store).is_empty());
}

#[test]
fn ctrl_c_is_for_the_command_once() {
    let store = Store::local();
    let at_terminal = |script: &str| {
        let script = format!("leasehold dev -- sh -c '{script}'; echo went on rc=$?");
        let mut session = session(&store, &["bash", "-c", &script]);
        store.until("on");
        session.press("\x03");
        session.end();
        fs::remove_file(store.file("on")).unwrap();
        nothing_is_left(&store);
        session.shown()
    };
    let trap = r#"trap "echo int; exit 9" INT; touch on; while :; do sleep 0.02; done"#;
    let shown = at_terminal(trap);
    assert!(shown.contains("went on rc=9"), "{shown}");
    assert_eq!(shown.matches("int\r\n").count(), 1, "{shown}");
    // Without a trap, the surrounding script ends too.
    let shown = at_terminal("touch on; exec sleep 1000");
    assert!(!shown.contains("went on"), "{shown}");
}

#[test]
fn an_orphan_starts_no_server() {
    let store = Store::local();
    // The parent is in another session, like `init`.
    let script = "setsid --wait leasehold dev; echo $?";
    let done = store.program(&["sh", "-c", script]).prints(0, "64\n");
    assert!(done.stderr.contains("leasehold dev -- CMD"), "{done:?}");
    nothing_is_left(&store);
}

#[test]
fn at_a_terminal_it_runs_until_ctrl_c() {
    let store = Store::local();
    let script = "leasehold dev; echo went on; true";
    let mut shell = session(&store, &["bash", "-c", script]);
    for text in ["until Ctrl-C", "export LEASEHOLD_URL=unix:", "/redis.sock"] {
        shell.until(text);
    }
    assert_eq!(servers(&store).len(), 1);
    shell.press("\x03");
    shell.end();
    // Ctrl-C ends the script, as with any other program.
    assert!(!shell.shown().contains("went on"), "{}", shell.shown());
    nothing_is_left(&store);

    for (option, what) in [
        (
            "--cluster",
            "a private cluster of three primaries runs here",
        ),
        ("--sentinel", "a replica and three sentinels runs here"),
    ] {
        let mut dev = session(&store, &["leasehold", "dev", option]);
        dev.until(what);
        dev.press("\x03");
        dev.end();
        nothing_is_left(&store);
    }

    // When the server ends, `leasehold dev` ends too.
    let mut dev = session(&store, &["leasehold", "dev"]);
    dev.until("/redis.sock");
    send(servers(&store)[0], Signal::SIGKILL);
    dev.until("the server has ended");
    assert_eq!(dev.end().code(), Some(69));
    nothing_is_left(&store);
}

#[test]
fn ctrl_c_at_the_prompt_does_not_end_a_server_of_the_shell() {
    let store = Store::local();
    let mut session = session(&store, &["bash", "--norc", "--noprofile", "-i"]);
    session.until("prompt> ");
    session.press("eval \"$(leasehold dev)\"; echo done=$?\n");
    session.until("done=0");
    session.until("prompt> ");
    session.press("sh -c 'echo in=$((1 + 1)); exec sleep 1000'\n");
    // Waits until the shell is in the foreground of the terminal.
    session.until("in=2\r\n");
    session.press("\x03");
    session.until("prompt> ");
    session.press("leasehold run x echo got=it\n");
    session.until("got=it\r\n");
    assert_eq!(servers(&store).len(), 1);
    // The terminal hangs up, which ends the shell.
    drop(session);
    nothing_is_left(&store);
}

#[test]
fn without_a_server_it_says_what_to_install() {
    let store = Store::local();
    let nothing = Command::new(LEASEHOLD)
        .arg("dev")
        .env("PATH", "/no/such")
        .output();
    let nothing = nothing.unwrap();
    assert_eq!(nothing.status.code(), Some(127), "{nothing:?}");
    let said = String::from_utf8_lossy(&nothing.stderr);
    for words in ["redis-server", "valkey-server", "apt install", "(exit 127)"] {
        assert!(said.contains(words), "{said}");
    }
    let missing = store.program("leasehold dev --server ./missing");
    missing.is(127, &[]);

    let other = RedisServer::start();
    let taken = store.program(&format!("leasehold dev --port {}", other.port()));
    let done = taken.is(69, &["Address already in use"]);
    assert_eq!(done.stdout, "");
    nothing_is_left(&store);
}

#[test]
fn another_server_will_do() {
    let store = Store::local();
    let real = tool("sh", &["-c", "command -v redis-server"]);
    let real = String::from_utf8(real.stdout).unwrap();
    let programs = store.file("programs");
    fs::create_dir(&programs).unwrap();
    for link in [store.file("my-server"), programs.join("valkey-server")] {
        symlink(real.trim(), link).unwrap();
    }
    for (words, path) in [
        (&["--server", "./my-server"][..], "/no/such"),
        (&[], programs.to_str().unwrap()),
    ] {
        let mut command = Command::new(LEASEHOLD);
        store.surround(&mut command);
        command.arg("dev").args(words);
        command.args(["--", LEASEHOLD, "run", "x", "/bin/true"]);
        let command = command.env("PATH", path).current_dir(store.dir.path());
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        nothing_is_left(&store);
    }
}

#[test]
fn a_cluster_works_at_once_and_leaves_nothing() {
    let store = Store::local();
    let dev = store.program("leasehold dev --cluster -- sh -c");
    // Names in the slots of each server.
    let script = "for name in 1 2 3 4 5 6; do leasehold run $name true || exit; done
        leasehold doctor --quick --all | grep -e c.nodes -e c.state; echo $LEASEHOLD_URL; touch on; while ! [ -e let-go ]; do sleep 0.02; done";
    let started = dev.words(&[script]).start();
    store.until("on");
    assert_eq!(servers(&store).len(), 3);
    store.touch("let-go");
    let done = started.ends(0, &[]);
    for text in [
        "3 primaries, 0 replicas",
        "each slot has a node",
        "redis+cluster://127.0.0.1:",
    ] {
        assert!(done.stdout.contains(text), "{done:?}");
    }
    nothing_is_left_now(&store);

    let high = store.program("leasehold dev --cluster --port 55534");
    high.is(64, &["--port 55534", "at most 55533"]);
}

#[test]
fn sentinels_name_another_primary_and_leave_nothing() {
    let store = Store::local();
    let dev = store.program("leasehold dev --sentinel -- sh -c");
    let script = "echo $LEASEHOLD_URL; leasehold run x true || exit; touch on; while ! [ -e moved ]; do sleep 0.02; done
        leasehold run x echo after || exit; touch done; while ! [ -e let-go ]; do sleep 0.02; done";
    let started = dev.words(&[script]).start();
    store.until("on");
    assert_eq!(servers(&store).len(), 5);
    let folders = fs::read_dir(store.dir.path()).unwrap().flatten();
    let sentinels = folders.map(|folder| folder.path());
    let sentinels = sentinels.filter(|folder| folder.join("server.conf").exists());
    let sentinels = sentinels.map(|folder| format!("unix:{}", folder.join("redis.sock").display()));
    let sentinels: Vec<String> = sentinels.collect();
    assert_eq!(sentinels.len(), 3);
    let primary = |url: &String| ask(url, "SENTINEL GET-MASTER-ADDR-BY-NAME dev");
    let before = primary(&sentinels[0]);
    assert_eq!(ask(&sentinels[0], "SENTINEL FAILOVER dev"), ["+OK"]);
    // A client believes the first that answers. The lock that the old primary may still grant would be lost.
    eventually(LIMIT, "another primary for all of them", || {
        sentinels.iter().all(|url| primary(url) != before)
    });
    store.touch("moved");
    store.until("done");
    store.touch("let-go");
    let done = started.ends(0, &[]);
    let url = "redis+sentinel://127.0.0.1:";
    assert!(done.stdout.starts_with(url), "{done:?}");
    assert!(done.stdout.ends_with("/dev\nafter\n"), "{done:?}");
    nothing_is_left_now(&store);

    let high = store.program("leasehold dev --sentinel --port 65532");
    high.is(64, &["--port 65532", "at most 65531"]);
    let both = store.program("leasehold dev --sentinel --cluster");
    both.is(64, &["--cluster"]);
}

#[test]
fn a_port_is_for_programs_without_sockets() {
    let store = Store::local();
    // Not an ephemeral port: a connection of another test might use it by now.
    let port = free_port();
    let dev = store.program(&format!("leasehold dev --port {port} -- sh -c"));
    let dev = dev.words(&["leasehold run x echo $LEASEHOLD_URL"]);
    dev.prints(0, &format!("redis://127.0.0.1:{port}/\n"));
    nothing_is_left(&store);
}
