//! `leasehold dev`: a temporary server, which always ends with its user.

// /proc and `setsid --ctty` are Linux'.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::pty::Session;
use crate::common::servers::{
    LEASEHOLD, Running, ask, command, directories, evaluated, nothing_is_left, output, parent_of,
    send, servers, surround, text,
};
use crate::common::{self, LIMIT, Store};
use nix::sys::signal::Signal;
use testkit::{RedisServer, eventually, free_port};

#[test]
fn a_command_gets_a_server_which_ends_with_it() {
    let store = Store::local();
    let script = "
        leasehold run x sh -c 'echo fence=$LEASEHOLD_FENCE' && echo $LEASEHOLD_URL $LEASEHOLD_URL_FILE && stat -c %a ${LEASEHOLD_URL#unix:} $(dirname ${LEASEHOLD_URL#unix:})
        exit 3";
    let done = command(&store, &["leasehold", "dev", "--", "sh", "-c", script])
        .env("LEASEHOLD_URL_FILE", "/no/such")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let said = text(&done.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("fence="), "{done:?}");
    assert!(lines[1].starts_with("unix:/") && lines[1].ends_with("/redis.sock"));
    assert_eq!(lines[2..], ["600", "700"]);
    // The server and its directory are gone when the command ends.
    assert!(servers(&store).is_empty() && directories(&store).is_empty());

    let done = output(&store, &["leasehold", "dev", "--", "no-such-command"]);
    assert_eq!(done.status.code(), Some(127), "{done:?}");
    assert!(text(&done.stderr).contains("leasehold: \"no-such-command\""));
    let done = output(
        &store,
        &["leasehold", "dev", "--", "sh", "-c", "kill -KILL $$"],
    );
    assert_eq!(done.status.code(), Some(137), "{done:?}");
    assert!(servers(&store).is_empty() && directories(&store).is_empty());
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
        let (mut running, url) = evaluated(&store, shell, substitution);
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
            send(running.pid(), Signal::SIGKILL);
        } else {
            store.touch("let-go");
        }
        running.end();
        nothing_is_left(&store);
    }
}

#[test]
fn a_server_that_nobody_can_use_is_not_kept() {
    let store = Store::local();
    // The reader of the output has ended, so no program can learn the URL.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&store, &["sh", "-c", "leasehold dev; exit $?"]);
    let done = command.stdout(writer).output().unwrap();
    assert_eq!(done.status.code(), Some(70), "{done:?}");
    nothing_is_left(&store);
}

#[test]
fn no_kill_leaves_a_server_behind() {
    let store = Store::local();
    let mut started = Running::start(
        &store,
        &[
            "leasehold",
            "dev",
            "--",
            "sh",
            "-c",
            "touch on; exec sleep 1000",
        ],
    );
    store.until("on");
    assert_eq!(servers(&store).len(), 1);
    send(started.pid(), Signal::SIGKILL);
    started.end();
    nothing_is_left(&store);

    // The test kills the guardian.
    let store = Store::local();
    let (mut shell, _) = evaluated(&store, "sh", "$(leasehold dev)");
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
    let words = ["leasehold", "dev", "--server", slow.to_str().unwrap()];
    let mut started = Running::start(&store, &words);
    store.until("started");
    send(started.pid(), Signal::SIGKILL);
    started.end();
    nothing_is_left(&store);
}

#[test]
fn a_signal_is_for_the_command() {
    let store = Store::local();
    let script = "trap 'exit 9' TERM; touch on; while :; do sleep 0.02; done";
    let mut started = Running::start(&store, &["leasehold", "dev", "--", "sh", "-c", script]);
    store.until("on");
    send(started.pid(), Signal::SIGTERM);
    assert_eq!(started.end(), Some(9));
    assert!(servers(&store).is_empty());
}

#[test]
fn ctrl_c_is_for_the_command_once() {
    let store = Store::local();
    let at_terminal = |script: &str| {
        let script = format!("leasehold dev -- sh -c '{script}'; echo went on rc=$?");
        let mut session = Session::start(&["bash", "-c", &script], |command| {
            surround(&store, command);
            command.current_dir(store.dir.path());
        });
        store.until("on");
        session.press("\x03");
        session.end();
        fs::remove_file(store.file("on")).unwrap();
        nothing_is_left(&store);
        session.shown()
    };
    let trap = r#"trap "echo int; exit 9" INT; touch on; while :; do sleep 0.02; done"#;
    let shown = at_terminal(trap);
    assert!(
        shown.contains("went on rc=9") && shown.matches("int\r\n").count() == 1,
        "{shown}"
    );
    // Without a trap, the surrounding script ends too.
    let shown = at_terminal("touch on; exec sleep 1000");
    assert!(!shown.contains("went on"), "{shown}");
}

#[test]
fn an_orphan_starts_no_server() {
    let store = Store::local();
    // The parent is in another session, like `init`.
    let script = "setsid --wait leasehold dev; echo $?";
    let done = output(&store, &["sh", "-c", script]);
    assert_eq!(text(&done.stdout), "64\n", "{done:?}");
    assert!(
        text(&done.stderr).contains("leasehold dev -- CMD"),
        "{done:?}"
    );
    nothing_is_left(&store);
}

#[test]
fn at_a_terminal_it_runs_until_ctrl_c() {
    let store = Store::local();
    let script = "leasehold dev; echo went on; true";
    let mut session = Session::start(&["bash", "-c", script], |command| {
        surround(&store, command);
    });
    session.until("until Ctrl-C");
    session.until("export LEASEHOLD_URL=unix:");
    session.until("/redis.sock");
    assert_eq!(servers(&store).len(), 1);
    session.press("\x03");
    session.end();
    // Ctrl-C ends the script, as with any other program.
    assert!(!session.shown().contains("went on"), "{}", session.shown());
    nothing_is_left(&store);

    // When the server ends, `leasehold dev` ends too.
    let mut session = Session::start(&["leasehold", "dev"], |command| {
        surround(&store, command);
    });
    session.until("/redis.sock");
    send(servers(&store)[0], Signal::SIGKILL);
    session.until("the server has ended");
    assert_eq!(session.end().code(), Some(69));
    nothing_is_left(&store);
}

#[test]
fn ctrl_c_at_the_prompt_does_not_end_a_server_of_the_shell() {
    let store = Store::local();
    let mut session = Session::start(&["bash", "--norc", "--noprofile", "-i"], |command| {
        surround(&store, command);
    });
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
    let done = Command::new(LEASEHOLD)
        .arg("dev")
        .env("PATH", "/no/such")
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(127), "{done:?}");
    let said = text(&done.stderr);
    for words in ["redis-server", "valkey-server", "apt install", "(exit 127)"] {
        assert!(said.contains(words), "{said}");
    }
    let done = output(&store, &["leasehold", "dev", "--server", "./missing"]);
    assert_eq!(done.status.code(), Some(127), "{done:?}");

    let other = RedisServer::start();
    let port = other.port().to_string();
    let done = output(&store, &["leasehold", "dev", "--port", &port]);
    assert_eq!(done.status.code(), Some(69), "{done:?}");
    assert!(
        text(&done.stderr).contains("Address already in use"),
        "{done:?}"
    );
    assert_eq!(done.stdout, b"");
    nothing_is_left(&store);
}

#[test]
fn another_server_will_do() {
    let store = Store::local();
    let real = common::tool("sh", &["-c", "command -v redis-server"]);
    let real = text(&real.stdout);
    let programs = store.file("programs");
    fs::create_dir(&programs).unwrap();
    for link in [store.file("my-server"), programs.join("valkey-server")] {
        std::os::unix::fs::symlink(real.trim(), link).unwrap();
    }
    let lock = [LEASEHOLD, "run", "x", "/bin/true"];
    let dev = |words: &[&str], path: &str| {
        let mut command = Command::new(LEASEHOLD);
        surround(&store, &mut command);
        command.arg("dev").args(words).arg("--").args(lock);
        let done = command
            .env("PATH", path)
            .current_dir(store.dir.path())
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        nothing_is_left(&store);
    };
    dev(&["--server", "./my-server"], "/no/such");
    dev(&[], programs.to_str().unwrap());
}

#[test]
fn a_port_is_for_programs_without_sockets() {
    let store = Store::local();
    // Not an ephemeral port: a connection of another test might use it by now.
    let port = free_port().to_string();
    let script = "leasehold run x echo $LEASEHOLD_URL";
    let words = [
        "leasehold",
        "dev",
        "--port",
        &port,
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = output(&store, &words);
    assert_eq!(
        text(&done.stdout),
        format!("redis://127.0.0.1:{port}/\n"),
        "{done:?}"
    );
    nothing_is_left(&store);
}
