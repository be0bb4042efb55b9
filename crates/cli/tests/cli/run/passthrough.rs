//! The command under the lock: started as typed, not disturbed, and with its status passed on.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::Stdio;

use crate::common::{Store, on_each_store, tool};

on_each_store! {
    its_status_is_passed_on,
    its_arguments_are_not_touched,
    its_environment_has_the_fence,
    its_input_and_output_are_its_own,
}

fn its_status_is_passed_on(store: &Store) {
    for (script, code) in [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        // A real-time signal.
        ("kill -40 $$", 168),
    ] {
        store.script("x", script).is(code, &[]);
    }
}

fn its_arguments_are_not_touched(store: &Store) {
    let command = ["a b", "", "$HOME", "*", "--", "-n", "--url"];
    let run = store.run(&["x", "--", "printf", "%s\n"]).words(&command);
    run.prints(0, "a b\n\n$HOME\n*\n--\n-n\n--url\n");
    // The name of the program stays unchanged too.
    store.script("x", "echo $0").prints(0, "sh\n");
}

fn its_environment_has_the_fence(store: &Store) {
    let script = r#"echo "$LEASEHOLD_LOCK $LEASEHOLD_TTL_MS $LEASEHOLD_WAITED_MS"; echo $LEASEHOLD_HOLDER; echo $LEASEHOLD_FENCE"#;
    let fences = [1, 2].map(|_| {
        let run = store.run("--ttl 20s --namespace prod --note");
        let done = run.words(&["roll out", "x", "sh", "-c", script]).output();
        let lines: Vec<&str> = done.stdout.lines().collect();
        let [settings, holder, fence] = lines[..] else {
            panic!("{done:?}")
        };
        assert!(settings.starts_with("x 20000 "), "{done:?}");
        let is_whole = holder.ends_with(": roll out)") && holder.contains("(pid ");
        assert!(is_whole, "{done:?}");
        fence.parse::<u64>().expect("a number")
    });
    assert!(fences[0] < fences[1], "{fences:?}");
    if let Some(server) = &store.redis {
        assert_eq!(server.cli(&["EXISTS", "leasehold:fence"]).int(), 1);
    }
}

fn its_input_and_output_are_its_own(store: &Store) {
    let reads = store.run("x tr a-z A-Z").stdin(Stdio::piped());
    let mut running = reads.start();
    let mut stdin = running.child.stdin.take().expect("stdin");
    stdin.write_all(b"through\n").expect("write");
    drop(stdin);
    assert_eq!(running.prints(0, "THROUGH\n").stderr, "");
    let both = store.script("x", "echo out; echo err >&2");
    assert_eq!(both.prints(0, "out\n").stderr, "err\n");
}

#[test]
fn it_inherits_no_files_of_ours() {
    let open = |done: &str| done.lines().count();
    for store in [Store::local(), Store::redis()] {
        let ours = store.run("x ls /proc/self/fd").output();
        let plain = tool("sh", &["-c", "ls /proc/self/fd </dev/null 2>/dev/null"]);
        let plain = String::from_utf8_lossy(&plain.stdout);
        assert_eq!(open(&ours.stdout), open(&plain), "{ours:?}");
    }
}

/// A background job that writes to a terminal with `stty tostop` is stopped, with the wrapper as without it.
#[test]
fn no_signal_is_kept_from_it() {
    let store = Store::local();
    let ours = store.run("x grep SigBlk /proc/self/status").output();
    let plain = tool("grep", &["SigBlk", "/proc/self/status"]);
    assert_eq!(ours.stdout, String::from_utf8_lossy(&plain.stdout));
}
