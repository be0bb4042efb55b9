//! The command under the lock: started as typed, not disturbed, and with its status passed on.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::common::{LIMIT, Run, Store, lives, on_each_store, tool};
use nix::sys::signal::Signal;
use testkit::eventually;

on_each_store! {
    its_status_is_passed_on,
    its_arguments_are_not_touched,
    its_environment_has_the_fence,
    its_input_and_output_are_its_own,
}

fn its_status_is_passed_on(store: &Store) {
    store.run(&["x", "true"]).output().is(0, &[]);
    store.run(&["x", "sh", "-c", "exit 7"]).output().is(7, &[]);
    store
        .run(&["x", "sh", "-c", "exit 255"])
        .output()
        .is(255, &[]);
    store
        .run(&["x", "sh", "-c", "kill -KILL $$"])
        .output()
        .is(137, &[]);
    // A real-time signal.
    store
        .run(&["x", "sh", "-c", "kill -40 $$"])
        .output()
        .is(168, &[]);
}

fn its_arguments_are_not_touched(store: &Store) {
    let done = store
        .run(&[
            "x", "--", "printf", "%s\n", "a b", "", "$HOME", "*", "--", "-n", "--url",
        ])
        .output();
    assert_eq!(done.stdout, "a b\n\n$HOME\n*\n--\n-n\n--url\n");
    // The name of the program stays unchanged too.
    let done = store.run(&["x", "sh", "-c", "echo $0"]).output();
    assert_eq!(done.stdout, "sh\n");
}

fn its_environment_has_the_fence(store: &Store) {
    let script = r#"echo "$LEASEHOLD_LOCK $LEASEHOLD_TTL_MS $LEASEHOLD_WAITED_MS"; echo $LEASEHOLD_HOLDER; echo $LEASEHOLD_FENCE"#;
    let mut fences = Vec::new();
    for _ in 0..2 {
        let done = store
            .run(&[
                "--ttl",
                "20s",
                "--note",
                "roll out",
                "--namespace",
                "prod",
                "x",
                "sh",
                "-c",
                script,
            ])
            .output();
        let lines: Vec<&str> = done.stdout.lines().collect();
        let [settings, holder, fence] = lines[..] else {
            panic!("{done:?}")
        };
        assert!(
            settings.starts_with("x 20000 ")
                && holder.ends_with(": roll out)")
                && holder.contains("(pid "),
            "{done:?}"
        );
        fences.push(fence.parse::<u64>().expect("a number"));
    }
    assert!(fences[0] < fences[1], "{fences:?}");
    if let Some(server) = &store.redis {
        let exists = server.cli(&["EXISTS", "leasehold:fence"]);
        assert_eq!(
            format!("{exists:?}"),
            format!("{:?}", testkit::Reply::Int(1))
        );
    }
}

fn its_input_and_output_are_its_own(store: &Store) {
    let mut running = store
        .run(&["x", "tr", "a-z", "A-Z"])
        .stdin(Stdio::piped())
        .start();
    running
        .child
        .stdin
        .take()
        .expect("stdin")
        .write_all(b"through\n")
        .expect("write");
    let done = running.end();
    assert_eq!(
        (done.code(), done.stdout.as_str(), done.stderr.as_str()),
        (0, "THROUGH\n", "")
    );

    let done = store
        .run(&["x", "sh", "-c", "echo out; echo err >&2"])
        .output();
    assert_eq!(
        (done.stdout.as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
}

#[allow(clippy::disallowed_methods, reason = "a server of the test's own")]
#[test]
fn a_command_that_fails_to_start_gives_the_lock_back() {
    let store = Store::local();
    fs::write(store.file("script"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(store.file("script"), fs::Permissions::from_mode(0o755)).unwrap();
    store
        .run(&["x", "./script"])
        .output()
        .is(127, &["interpreter", "(exit 127)"]);
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
    // A file without `#!` is a script for `sh`, as for every shell.
    fs::write(store.file("script"), "exit 5\n").unwrap();
    store.run(&["x", "./script"]).output().is(5, &[]);
}

#[test]
fn it_inherits_no_files_of_ours() {
    let open = |done: &str| done.lines().count();
    for store in [Store::local(), Store::redis()] {
        let ours = store.run(&["x", "ls", "/proc/self/fd"]).output();
        let plain = tool("sh", &["-c", "ls /proc/self/fd </dev/null 2>/dev/null"]);
        assert_eq!(
            open(&ours.stdout),
            open(&String::from_utf8_lossy(&plain.stdout)),
            "{ours:?}"
        );
    }
}

/// A background job that writes to a terminal with `stty tostop` is stopped, with the wrapper as without it.
#[test]
fn no_signal_is_kept_from_it() {
    let store = Store::local();
    let ours = store
        .run(&["x", "grep", "SigBlk", "/proc/self/status"])
        .output();
    let plain = tool("grep", &["SigBlk", "/proc/self/status"]);
    assert_eq!(ours.stdout, String::from_utf8_lossy(&plain.stdout));
}

#[test]
fn it_dies_with_a_wrapper_that_is_killed() {
    let store = Store::local();
    let running = store
        .run(&[
            "x",
            "sh",
            "-c",
            "echo $$ > pid; while :; do sleep 0.05; done",
        ])
        .start();
    let pid = store.number("pid");
    running.signal(Signal::SIGKILL);
    eventually(LIMIT, "the command is dead", || !lives(pid));
    store.run(&["-w", "20", "x", "true"]).output().is(0, &[]);
}

#[test]
fn help_and_version_are_no_errors() {
    let store = Store::local();
    let help = Run::new(store.dir.path()).words(&["--help"]).output();
    assert_eq!((help.code(), help.stderr.as_str()), (0, ""));
    for code in [64, 69, 70, 75, 77, 78, 79, 124, 126, 127] {
        assert!(help.stdout.contains(&format!("\n  {code:<4} ")), "{code}");
    }
    let version = tool(env!("CARGO_BIN_EXE_leasehold"), &["--version"]);
    assert_eq!(
        String::from_utf8_lossy(&version.stdout),
        format!("leasehold {}\n", env!("CARGO_PKG_VERSION"))
    );
    let nothing = tool(env!("CARGO_BIN_EXE_leasehold"), &[]);
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(64), 0));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: leasehold"));
}
