//! Errors of `leasehold run` before the command starts: each exit code, and a message that names the right command
//! line.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::thread;

use crate::common::{Run, Store, on_each_store};
use testkit::RedisServer;

on_each_store! {
    a_busy_lock_is_75_at_once,
    a_lock_that_stays_busy_is_124,
}

fn a_busy_lock_is_75_at_once(store: &Store) {
    let holder = store.hold();
    let fence = format!("fence {}", store.number("fence"));
    store.run(&["-n", "x", "touch", "ran"]).output().is(
        75,
        &[
            "\"x\" is busy (exit 75)",
            &format!("(pid {}: sh), held ", holder.pid()),
            &fence,
            "left",
            "0 waiting",
            &format!("leasehold run -w 5m --url {} x -- ...", store.pasted_url()),
        ],
    );
    assert_eq!(
        store
            .run(&["-q", "-n", "x", "touch", "ran"])
            .output()
            .stderr,
        ""
    );
    assert!(!store.file("ran").exists());
}

fn a_lock_that_stays_busy_is_124(store: &Store) {
    let holder = store.hold();
    let done = store.run(&["-w", "1", "x", "touch", "ran"]).output();
    done.is(
        124,
        &[
            "\"x\" is still busy after ",
            "(exit 124)",
            &format!("(pid {}: sh)", holder.pid()),
            &format!("leasehold run --url {} x -- ...", store.pasted_url()),
        ],
    );
    assert!((1.0..20.0).contains(&done.seconds_after("still busy after ")));
    assert!(!store.file("ran").exists());
    // A limit that is not reached has no effect.
    store.let_go();
    store.run(&["-w", "1h", "x", "true"]).output().is(0, &[]);
}

#[test]
fn input_that_breaks_a_rule_is_64_and_named() {
    let store = Store::local();
    let long = "n".repeat(513);
    let bad: [(&[&str], &str); 17] = [
        (&["", "true"], "invalid lock name \"\": is empty"),
        (&[&long, "true"], "must be at most 512 bytes, is 513"),
        (
            &["a\nb\x1b[31m", "true"],
            r#"invalid lock name "a\nb\u{1b}[31m": must not hold control characters"#,
        ),
        (&["a{b", "true"], "invalid lock name \"a{b\": braces"),
        (&["x"], "no command after the lock \"x\""),
        (&["x", "--"], "no command after the lock \"x\""),
        (&["-c", "true"], "no lock: its name comes after -c STRING"),
        (&[], "no lock and no command"),
        (&["--ttl", "0", "x", "true"], "'0' for '--ttl"),
        (&["--ttl", "10years", "x", "true"], "'10years' for '--ttl"),
        (&["--ttl", "soon", "x", "true"], "'soon' for '--ttl"),
        (&["-w", "nonsense", "x", "true"], "'nonsense' for '--wait"),
        (
            &["-n", "-w", "5", "x", "true"],
            "'--try' cannot be used with '--wait",
        ),
        (&["--tyr", "x", "true"], "'--tyr'"),
        (
            &["--note", &long, "x", "true"],
            "must be at most 128 bytes, is 513",
        ),
        (&["--namespace", "", "x", "true"], "invalid namespace \"\""),
        (
            &["--namespace", "a{", "x", "true"],
            "invalid namespace \"a{\"",
        ),
    ];
    for (words, says) in bad {
        store.run(words).output().is(64, &[says, "(exit 64)"]);
    }
}

#[test]
fn without_a_store_it_is_78_and_shows_the_choices() {
    let store = Store::local();
    for url in [None, Some("")] {
        let run = Run::new(store.dir.path()).words(&["x", "touch", "ran"]);
        let run = url
            .into_iter()
            .fold(run, |run, url| run.env("LEASEHOLD_URL", url));
        run.output().is(
            78,
            &[
                "--url local:",
                "export LEASEHOLD_URL=redis://host:6379/",
                "(exit 78)",
            ],
        );
    }
    Run::new(store.dir.path())
        .words(&["x", "true"])
        .env("LEASEHOLD_URL", &store.url)
        .output()
        .is(0, &[]);
    assert!(!store.file("ran").exists());
}

#[test]
fn a_url_that_names_no_store_is_78_and_never_shown() {
    let store = Store::local();
    for (url, says) in [
        ("etcd://user:S3CR3T@host/", "unknown scheme"),
        (
            "redis://user:S3CR3T@host:port/",
            "write redis://host[:port][/db]",
        ),
        ("host-S3CR3T", "no scheme"),
        ("memory:", "exclude no other process"),
    ] {
        let done = Run::new(store.dir.path())
            .words(&["--url", url, "x", "true"])
            .output();
        done.is(78, &[says, "(exit 78)"]);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    // The URL stands in the wrong place.
    for words in [
        ["--Url=redis://u:S3CR3T@h/", "x", "true"],
        [
            "--url=redis://u:S3CR3T@h/",
            "--url=redis://u:S3CR3T@h/",
            "x",
        ],
    ] {
        let done = Run::new(store.dir.path()).words(&words).output();
        done.is(64, &[]);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    let help = Run::new(store.dir.path())
        .words(&["--help"])
        .env("LEASEHOLD_URL", "redis://u:S3CR3T@h/")
        .output();
    assert!(
        help.code() == 0 && !help.stdout.contains("S3CR3T"),
        "{help:?}"
    );
}

#[test]
fn script_without_interpreter_is_127_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter -x\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // No server is there: a request would end with 69.
    let words = ["--url", "redis://127.0.0.1:1/", "x", "./script"];
    let done = Run::new(dir.path()).words(&words).output();
    done.is(127, &["(exit 127)", "/no/such/interpreter", "first line"]);
}

#[test]
fn a_store_that_cannot_be_reached_is_69_and_no_busy_lock() {
    let store = Store::local();
    // No server is there.
    let url = "redis://user:S3CR3T@127.0.0.1:1/";
    let words = [vec!["-n"], vec!["-w", "5"], vec![]];
    let runs = words.map(|words| {
        let run = Run::new(store.dir.path()).words(&words);
        run.words(&["--url", url, "x", "true"]).start()
    });
    for run in runs {
        let done = run.end();
        done.is(69, &["(exit 69)", "127.0.0.1:1", "may be free or held"]);
        assert!(
            !done.stderr.contains("busy") && !done.stderr.contains("S3CR3T"),
            "{done:?}"
        );
    }
    let store = Store::silent_at_times();
    store.server().pause();
    store.run(&["x", "true"]).output().is(69, &["(exit 69)"]);
}

#[test]
fn a_store_that_refuses_is_told_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let primary = RedisServer::builder().password("S3CR3T").start();
    let at = |user: &str| format!("redis://{user}@127.0.0.1:{}/", primary.port());
    for url in [at(":S3CR3T-WR0NG"), at("nobody:S3CR3T"), primary.url()] {
        let done = Run::new(dir.path())
            .words(&["--url", &url, "x", "true"])
            .output();
        done.is(
            77,
            &[
                "access denied",
                "(exit 77)",
                &format!("127.0.0.1:{}", primary.port()),
            ],
        );
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    Run::new(dir.path())
        .words(&["--url", &at(":S3CR3T"), "x", "true"])
        .output()
        .is(0, &[]);

    let replica = RedisServer::builder()
        .password("S3CR3T")
        .replica_of(primary.port())
        .start();
    let url = format!("redis://:S3CR3T@127.0.0.1:{}/", replica.port());
    let done = Run::new(dir.path())
        .words(&["--url", &url, "x", "true"])
        .output();
    done.is(
        69,
        &[
            "replica",
            "(exit 69)",
            &format!("127.0.0.1:{}", replica.port()),
        ],
    );
    assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a server of the test's own")]
fn what_is_no_redis_is_78() {
    let dir = tempfile::tempdir().unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:S3CR3T@{}/", web.local_addr().unwrap());
    thread::spawn(move || {
        for mut visitor in web.incoming().flatten() {
            visitor.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        }
    });
    let done = Run::new(dir.path())
        .words(&["--url", &url, "x", "true"])
        .output();
    done.is(78, &["(exit 78)", "127.0.0.1"]);
    assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
}

#[test]
fn a_command_that_cannot_run_is_told_before_the_lock_is_touched() {
    let store = Store::local();
    store.touch("data");
    fs::create_dir(store.file("folder")).unwrap();
    // An unreachable store, which gets no request.
    let run = |command: &str| {
        Run::new(store.dir.path())
            .words(&["--url", "redis://127.0.0.1:1/", "x", "--", command])
            .output()
    };
    run("no-such-command").is(
        127,
        &[
            "\"no-such-command\": command not found",
            "(exit 127)",
            "next",
        ],
    );
    run("./missing").is(127, &["\"./missing\": no such file", "(exit 127)", "next"]);
    run("-n").is(127, &["options stand before the lock"]);
    run("").is(127, &["(exit 127)"]);
    run("./data").is(126, &["\"./data\": is not executable", "chmod +x ./data"]);
    run("./folder").is(126, &["\"./folder\": is a directory", "(exit 126)"]);
}

/// A server that answers but refuses writes, for any reason, is not a busy lock.
#[test]
fn a_store_that_takes_no_writes_is_69_and_no_busy_lock() {
    let store = Store::redis();
    let server = store.server();
    let refused = |why: &str| {
        let words = [["-n", "x"], ["-w9", "x"], ["--skip", "x"]];
        for run in words.map(|words| store.run(&words).words(&["touch", "ran"]).start()) {
            let done = run.end();
            done.is(69, &["(exit 69)", "may be free or held"]);
            assert!(!done.stderr.contains("busy"), "{why}: {done:?}");
        }
    };
    let set = |name: &str, value: &str| {
        assert!(
            server
                .cli(&["CONFIG", "SET", name, value])
                .error()
                .is_none(),
            "{name} {value}"
        );
    };
    set("maxmemory", "1");
    refused("OOM");
    set("maxmemory", "0");
    set("min-replicas-to-write", "1");
    refused("NOREPLICAS");
    set("min-replicas-to-write", "0");
    assert!(!store.file("ran").exists());
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
}
