//! Errors of `leasehold run` before the command starts: each exit code, and a message that names the right command
//! line.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::common::{Run, Store, on_each_store, rows};
use testkit::RedisServer;

on_each_store! {
    a_busy_lock_is_75_at_once,
    a_lock_that_stays_busy_is_124,
}

fn a_busy_lock_is_75_at_once(store: &Store) {
    let holder = store.hold();
    let held_by = format!("(pid {}: sh), held ", holder.pid());
    let fence = format!("fence {}", store.number("fence"));
    let url = store.pasted_url();
    let next = format!("leasehold run -w 5m --url {url} x -- ...");
    let says = ["\"x\" is busy (exit 75)", &held_by, &fence, &next];
    store.run("-n x touch ran").is(75, &says);
    store.run("-q -n x touch ran").says_nothing(75);
    assert!(!store.file("ran").exists());
}

fn a_lock_that_stays_busy_is_124(store: &Store) {
    let holder = store.hold();
    let held_by = format!("(pid {}: sh)", holder.pid());
    let next = format!("leasehold run --url {} x -- ...", store.pasted_url());
    let says = ["\"x\" is still busy after ", "(exit 124)", &held_by, &next];
    let done = store.run("-w 1 x touch ran").is(124, &says);
    assert!((1.0..20.0).contains(&done.seconds_after("still busy after ")));
    assert!(!store.file("ran").exists());
    // A limit that is not reached has no effect.
    store.let_go();
    store.run("-w 1h x true").is(0, &[]);
}

#[test]
fn input_that_breaks_a_rule_is_64_and_named() {
    let store = Store::local();
    let long = "n".repeat(513);
    let unusual: [(&[&str], &str); 5] = [
        (&["", "true"], "invalid lock name \"\": is empty"),
        (&[&long, "true"], "must be at most 512 bytes, is 513"),
        (
            &["a\nb\x1b[31m", "true"],
            r#"invalid lock name "a\nb\u{1b}[31m": must not hold control characters"#,
        ),
        (&["--note", &long, "x", "true"], "at most 128 bytes, is 513"),
        (&["--namespace", "", "x", "true"], "invalid namespace \"\""),
    ];
    for (words, says) in unusual {
        store.run(words).is(64, &[says, "(exit 64)"]);
    }
    let plain = r#"
        a{b true                           | invalid lock name "a{b": braces
        x                                  | no command after the lock "x"
        x --                               | no command after the lock "x"
        -c true                            | no lock: its name comes after -c STRING
                                           | no lock and no command
        -c true x true                     | give either a command or -c
        --namespace a{ x true              | invalid namespace "a{"
        --ttl 0 x true                     | '0' for '--ttl
        --ttl 10years x true               | '10years' for '--ttl
        --ttl soon x true                  | 'soon' for '--ttl
        -w nonsense x true                 | 'nonsense' for '--wait
        -n -w 5 x true                     | '--try' cannot be used with '--wait
        --tyr x true                       | '--tyr'
        --skip -E 3 x true                 | cannot be used with
        -E 256 x true                      | 256
        -E -1 x true                       | -1
        --ttl 30s --grace 10s x true       | less than a third
        --max-hold 4s --grace 5s x true    | less than --max-hold
        --max-hold 1ms x true              | --max-hold
        --at-least 25h x true              | --at-least
        --on-lost pray x true              | signal:NAME
        --on-lost signal:NONE x true       | signal:NAME
        --max-waiters many x true          | --max-waiters
        --progress loud x true             | --progress
        --timestamp-unit ms x true         | --timestamp-unit cannot be used
        --timestamp-without-scripts x true | --timestamp-without-scripts cannot be used
        --protocol redlock x true          | redlock
        --protocol timestamp x true        | use a mutex
        --protocol timestamp --max-waiters 3 x true | there is no queue
        --protocol timestamp --note n x true | no other client would see it
    "#;
    for [words, says] in rows(plain) {
        store.run(words).is(64, &[says, "(exit 64)"]);
    }
}

#[test]
fn without_a_store_it_is_78_and_shows_the_choices() {
    let store = Store::local();
    let run = || Run::new(store.dir.path()).words("x touch ran");
    let export = "export LEASEHOLD_URL=redis://host:6379/";
    for run in [run(), run().env("LEASEHOLD_URL", "")] {
        run.is(78, &["--url local:", export, "(exit 78)"]);
    }
    assert!(!store.file("ran").exists());
    run().env("LEASEHOLD_URL", &store.url).is(0, &[]);
}

/// No server is there: a request would end with 69.
#[test]
fn a_command_that_cannot_run_is_told_before_any_request() {
    let store = Store::local();
    store.touch("data");
    fs::create_dir(store.file("folder")).unwrap();
    let program = |name: &str, text: &str| {
        fs::write(store.file(name), text).unwrap();
        fs::set_permissions(store.file(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("orphan", "#!/no/such/interpreter -x\n");
    let run = |command: &str, code: i32, says: &[&str]| {
        let run = Run::new(store.dir.path()).words("--url redis://127.0.0.1:1/ x --");
        run.words(&[command]).is(code, says);
    };
    let missing = "\"no-such-command\": command not found";
    run("no-such-command", 127, &[missing, "(exit 127)", "next"]);
    run("./missing", 127, &["\"./missing\": no such file", "next"]);
    run("-n", 127, &["options stand before the lock"]);
    run("", 127, &["(exit 127)"]);
    run("./orphan", 127, &["/no/such/interpreter", "first line"]);
    let mode = ["\"./data\": is not executable", "chmod +x ./data"];
    run("./data", 126, &mode);
    run("./folder", 126, &["\"./folder\": is a directory"]);
    // A file without `#!` is a script for `sh`, as for every shell.
    program("script", "exit 5\n");
    store.run("x ./script").is(5, &[]);
    store.is_free();
}

#[test]
fn a_store_that_cannot_be_reached_is_69_and_no_busy_lock() {
    let store = Store::local();
    // No server is there.
    let url = "redis://user:S3CR3T@127.0.0.1:1/";
    let runs = ["-n", "-w 5", ""].map(|words| {
        let run = Run::new(store.dir.path()).words(words);
        run.words(&["--url", url, "x", "true"]).start()
    });
    for run in runs {
        let done = run.ends(69, &["(exit 69)", "127.0.0.1:1", "may be free or held"]);
        assert!(!done.stderr.contains("busy"), "{done:?}");
    }
    let store = Store::silent_at_times();
    store.server().pause();
    store.run("x true").is(69, &["(exit 69)"]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a server of the test's own")]
fn a_store_that_refuses_is_told_with_its_reason_and_no_secret() {
    let store = Store::with_password();
    let (primary, dir) = (store.server(), store.dir.path());
    let replica = RedisServer::builder().password("S3CR3T");
    let replica = replica.replica_of(primary.port()).start();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = web.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut visitor in web.incoming().flatten() {
            visitor.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        }
    });
    for (user, port, code, why) in [
        (":S3CR3T-WR0NG@", primary.port(), 77, "access denied"),
        ("nobody:S3CR3T@", primary.port(), 77, "access denied"),
        ("", primary.port(), 77, "access denied"),
        (":S3CR3T@", replica.port(), 69, "replica"),
        (":S3CR3T@", http, 78, "(exit 78)"),
    ] {
        let url = format!("redis://{user}127.0.0.1:{port}/");
        let run = Run::new(dir).words(&["--url", &url, "x", "true"]);
        let done = run.is(code, &[why, &format!("127.0.0.1:{port}")]);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    store.run("x true").is(0, &[]);
}

/// A server that answers but refuses writes, for any reason, is not a busy lock.
#[test]
fn a_store_that_takes_no_writes_is_69_and_no_busy_lock() {
    let store = Store::redis();
    for (name, value) in [("maxmemory", "1"), ("min-replicas-to-write", "1")] {
        let set = |value: &str| {
            let reply = store.server().cli(&["CONFIG", "SET", name, value]);
            assert_eq!(reply.text(), "OK", "{name} {value}");
        };
        set(value);
        let runs =
            ["-n", "-w9", "--skip"].map(|words| store.run(words).words("x touch ran").start());
        for run in runs {
            let done = run.ends(69, &["(exit 69)", "may be free or held"]);
            assert!(!done.stderr.contains("busy"), "{name}: {done:?}");
        }
        set("0");
    }
    assert!(!store.file("ran").exists());
    store.is_free();
}
