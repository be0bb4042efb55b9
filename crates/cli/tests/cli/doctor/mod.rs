//! `leasehold doctor` on servers that each have a problem that it must find, and on servers that refuse it the
//! information.

#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

#[cfg(feature = "cache")]
mod acl;
mod telling;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{FaultProxy, RedisServer, eventually};

use crate::common::{UNHURRIED, without_settings};

const LIMIT: Duration = Duration::from_secs(30);
const CANARY: &str = "S3CR3T-canary";

/// Leaves out the findings of every new server without persistence for `--for correctness`.
const PLAIN: [&str; 4] = ["--ignore", "dur.mode", "--ignore", "id.restart"];

fn run(url: &str, words: &[&str]) -> Output {
    run_trusting(url, words, None)
}

/// Runs the doctor. The doctor trusts only the certificates of `authority`, if it is given.
fn run_trusting(url: &str, words: &[&str], authority: Option<&Path>) -> Output {
    let mut command = Command::new("timeout");
    if let Some(authority) = authority {
        command
            .env("SSL_CERT_FILE", authority)
            .env_remove("SSL_CERT_DIR");
    }
    command.args(["60", env!("CARGO_BIN_EXE_leasehold"), "doctor"]);
    without_settings(&mut command);
    command
        .env("LEASEHOLD_URL", url)
        .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED)
        .args(words);
    let output = command.output();
    let output = output.expect("run leasehold");
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains(CANARY), "{words:?}: {text}");
    }
    output
}

/// The output of `doctor --json`, and the exit code.
#[derive(Debug)]
struct Report {
    code: i32,
    document: Value,
}

impl Report {
    fn of(url: &str, words: &[&str]) -> Self {
        let output = run(url, &[&["--json"], words].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        let document = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
        let code = output.status.code().expect("a code");
        Self { code, document }
    }

    fn quick(url: &str, words: &[&str]) -> Self {
        Self::of(url, &[&["--quick"], words].concat())
    }

    #[track_caller]
    fn finding(&self, id: &str) -> &Value {
        let mut findings = self.document["findings"].as_array().expect("a list").iter();
        let found = findings.find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {:#}", self.document))
    }

    /// The two states of a finding: `efficiency/correctness`.
    #[track_caller]
    fn states(&self, id: &str) -> String {
        let finding = self.finding(id);
        let word = |field: &str| finding[field].as_str().expect("a word").to_owned();
        format!("{}/{}", word("efficiency"), word("correctness"))
    }

    #[track_caller]
    fn has(&self, id: &str, states: &str, words: &[&str]) {
        let finding = self.finding(id);
        assert_eq!(self.states(id), states, "{finding:#}");
        let text = finding.to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is missing: {finding:#}");
        }
        if states.contains("fail") || states.contains("warn") {
            assert!(finding["remedy"].is_string(), "{finding:#}");
        }
    }

    fn ids(&self, state: &str) -> Vec<String> {
        let findings = self.document["findings"].as_array().expect("a list").iter();
        findings
            .filter(|finding| finding["state"] == state)
            .map(|finding| finding["id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let answer = server.cli(&["CONFIG", "SET", name, value]);
    assert_eq!(answer.text(), "OK", "{name} {value}");
}

/// Adds a user with these rules to the server. Returns the URL for that user.
fn with_user(server: &RedisServer, rules: &[&str]) -> String {
    let secret = format!(">{CANARY}");
    let words = ["ACL", "SETUSER", "leasehold", "reset", "on", &secret];
    let answer = server.cli(&[&words, rules].concat());
    assert!(answer.error().is_none(), "{rules:?}: {answer:?}");
    format!("redis://leasehold:{CANARY}@127.0.0.1:{}/", server.port())
}

#[test]
fn each_eviction_policy_is_judged_and_only_noeviction_is_right() {
    let server = RedisServer::builder().option("maxmemory", "100mb").start();
    for (policy, word) in [
        ("volatile-lru", "locks may be the only ones"),
        ("volatile-lfu", "locks may be the only ones"),
        ("volatile-random", "locks may be the only ones"),
        ("volatile-ttl", "locks may be the only ones"),
        ("allkeys-lru", "seldom"),
        ("allkeys-lfu", "seldom"),
        ("allkeys-random", "any key"),
    ] {
        set(&server, "maxmemory-policy", policy);
        let report = Report::quick(
            &server.url(),
            &[&["--for", "correctness"][..], &PLAIN].concat(),
        );
        report.has("mem.policy", "warn/fail", &[policy, word, "noeviction"]);
        assert_eq!(report.code, 78, "{policy}");
    }
    set(&server, "maxmemory", "0");
    Report::quick(&server.url(), &[]).has("mem.policy", "info/warn", &["it is 0 now"]);
    set(&server, "maxmemory-policy", "noeviction");
    let report = Report::quick(
        &server.url(),
        &[&["--for", "correctness"][..], &PLAIN].concat(),
    );
    report.has("mem.policy", "ok/ok", &[]);
    assert_eq!(report.code, 0, "{report:#?}");
}

#[test]
fn what_a_restart_forgets_is_told() {
    let server = RedisServer::start();
    let judged = || Report::quick(&server.url(), &[]);
    judged().has("dur.mode", "warn/fail", &["nothing is written"]);
    judged().has("id.restart", "warn/fail", &["restarted"]);
    set(&server, "save", "3600 1");
    judged().has("dur.mode", "warn/fail", &["snapshot"]);
    set(&server, "appendonly", "yes");
    for (fsync, states) in [
        ("no", "warn/fail"),
        ("everysec", "info/warn"),
        ("always", "ok/ok"),
    ] {
        set(&server, "appendfsync", fsync);
        judged().has("dur.mode", states, &[fsync]);
    }
    judged().has("id.restart", "ok/ok", &[]);
}

#[test]
fn a_save_that_failed_stops_locks() {
    let server = RedisServer::builder()
        .option("enable-protected-configs", "yes")
        .start();
    let dir = tempfile::tempdir().expect("a directory");
    set(&server, "dir", dir.path().to_str().expect("text"));
    drop(dir);
    set(&server, "save", "3600 1");
    server.cli(&["BGSAVE"]);
    eventually(LIMIT, "the save fails", || {
        let info = server.cli(&["INFO", "persistence"]).text();
        info.contains("rdb_last_bgsave_status:err")
    });
    let report = Report::quick(&server.url(), &[]);
    report.has("dur.health", "fail/fail", &["MISCONF", "refuses"]);
    assert_eq!(report.code, 78);
    set(&server, "stop-writes-on-bgsave-error", "no");
    Report::quick(&server.url(), &[]).has("dur.health", "warn/fail", &["rdb_last_bgsave_status"]);
}

#[test]
fn replicas_missing_unneeded_or_used_as_primary() {
    let server = RedisServer::start();
    Report::quick(&server.url(), &[]).has("rep.count", "info/warn", &["no replica"]);
    set(&server, "min-replicas-to-write", "1");
    let report = Report::quick(&server.url(), &[]);
    report.has("rep.short", "fail/fail", &["NOREPLICAS"]);
    assert_eq!(
        (report.code, report.ids("fail")),
        (78, vec!["rep.short".into()])
    );

    let replica = RedisServer::builder().replica_of(server.port()).start();
    eventually(LIMIT, "the replica is in step", || {
        let info = server.cli(&["INFO", "replication"]).text();
        info.contains("min_slaves_good_slaves:1")
    });
    let report = Report::quick(&server.url(), &[]);
    report.has("rep.short", "ok/ok", &[]);
    report.has("rep.ack", "ok/ok", &[]);
    report.has("rep.count", "ok/ok", &[]);
    set(&server, "min-replicas-to-write", "0");
    Report::quick(&server.url(), &[]).has("rep.ack", "info/warn", &["min-replicas-to-write 1"]);

    let report = Report::quick(&replica.url(), &[]);
    let primary = format!("127.0.0.1:{}", server.port());
    report.has("reach.role", "fail/fail", &["READONLY", &primary]);
    assert_eq!(
        (report.code, report.ids("fail")),
        (78, vec!["reach.role".into()])
    );
}

#[test]
fn a_server_without_scripts() {
    for (command, states, code) in [("EVAL", "fail/fail", 78), ("EVALSHA", "warn/warn", 0)] {
        let server = RedisServer::builder()
            .arg("--rename-command")
            .arg(command)
            .arg("")
            .start();
        let report = Report::quick(&server.url(), &[]);
        report.has("cap.lua", states, &[command]);
        assert_eq!(report.code, code);
        // Without EVAL, locks work until the server forgets the loaded scripts.
        assert_eq!(runs(&server.url()), Some(0), "{command}");
    }
    // The server has these commands, but this user may not use them.
    let server = RedisServer::start();
    let url = with_user(&server, &["~*", "&*", "+@all", "-eval", "-evalsha"]);
    let report = Report::quick(&url, &[]);
    report.has("cap.lua", "unknown/unknown", &[]);
    report.has(
        "acl.probe",
        "fail/fail",
        &["+eval: no locks", "ACL SETUSER leasehold"],
    );
    // This user may use the commands, but not all keys.
    let own = ["~jobs:*", "~{jobs:*}:lh-*", "&*", "+@all"];
    let url = with_user(&server, &own);
    let lacks = "lacks ~leasehold:doctor:* ~{leasehold:doctor:*}:lh-* ~leasehold:fence: no locks";
    Report::quick(&url, &[]).has("acl.probe", "fail/fail", &[lacks, "ACL SETUSER leasehold"]);
    let url = with_user(
        &server,
        &[&own[..], &["~leasehold:fence", "~leasehold:index"]].concat(),
    );
    Report::quick(&url, &["--keys", "jobs:*"]).has("acl.probe", "ok/ok", &[]);
    Report::quick(&url, &["--keys", "jobs:a"]).has("acl.probe", "fail/fail", &["doctor"]);
    let report = Report::quick(&url, &["--keys", "other:*"]);
    report.has("acl.probe", "fail/fail", &["may not", "~other:*"]);
    // The name of one lock, and the scratch lock besides.
    let scratch = ["~leasehold:doctor:*", "~{leasehold:doctor:*}:lh-*"];
    let url = with_user(&server, &[&own[..], &["~leasehold:*"], &scratch].concat());
    Report::quick(&url, &["--keys", "jobs:a"]).has("acl.probe", "ok/ok", &[]);
    let report = Report::quick(&url, &["--keys", "other"]);
    report.has("acl.probe", "fail/fail", &["may not", "~other "]);
    let url = with_user(&server, &["~*", "resetchannels", "+@all"]);
    let lacks = "lacks &leasehold:wake:*: waiters poll";
    Report::quick(&url, &[]).has("acl.probe", "warn/warn", &[lacks]);
}

/// The exit code of `leasehold run` for a free lock.
fn runs(url: &str) -> Option<i32> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    run.args(["run", "--try", "--url", url, "doctored", "--", "true"]);
    run.output().expect("run leasehold").status.code()
}

#[test]
fn what_a_service_refuses_in_its_own_words_is_told_with_its_price() {
    let server = RedisServer::start();
    for (command, price) in [
        ("INFO", "counts as one to another server"),
        ("ROLE", "a replica is known only by"),
        ("SUBSCRIBE", "waiters poll"),
        ("SCRIPT", "scripts are sent in full"),
        ("EVALSHA", "scripts are sent in full"),
        ("CLIENT TRACKING", "stay until they are too old"),
    ] {
        let proxy = FaultProxy::start(server.port());
        let words = format!("ERR command '{command}' not support for your account");
        proxy.deny(command, &words);
        let report = Report::quick(&proxy.url(), &[]);
        let (states, said) = match command {
            "INFO" => ("info/info", "INFO is refused"),
            _ => ("warn/warn", words.as_str()),
        };
        report.has("acl.probe", states, &[said, price]);
        assert_eq!((report.code, runs(&proxy.url())), (0, Some(0)), "{command}");
    }
    let proxy = FaultProxy::start(server.port());
    proxy.deny("EVAL", "ERR command 'EVAL' not support for your account");
    proxy.deny(
        "EVALSHA",
        "ERR command 'EVALSHA' not support for your account",
    );
    let report = Report::quick(&proxy.url(), &[]);
    report.has("acl.probe", "fail/fail", &["not support for your account"]);
    assert_eq!((report.code, runs(&proxy.url())), (78, Some(78)));
}

#[test]
fn a_full_server_a_cluster_and_one_that_drops_clients() {
    let server = RedisServer::builder().option("maxclients", "10").start();
    let report = Report::quick(&server.url(), &[]);
    report.has("net.timeout", "ok/ok", &[]);
    report.has("net.clients", "ok/ok", &[]);
    report.has("mem.full", "ok/ok", &[]);

    set(&server, "timeout", "5");
    let report = Report::quick(&server.url(), &[]);
    report.has("net.timeout", "warn/warn", &["timeout=5"]);
    Report::quick(&server.url(), &["--ttl", "12s"]).has("net.timeout", "ok/ok", &[]);
    let code = |words: &[&str]| run(&server.url(), words).status.code();
    assert_eq!(code(&["--quick"]), Some(0), "warnings are no failures");
    assert_eq!(code(&["--quick", "--strict"]), Some(78));
    set(&server, "timeout", "0");

    let mut open: Vec<_> = (0..7).map(|_| server.connection()).collect();
    for connection in &mut open {
        connection.command(&["PING"]);
    }
    Report::quick(&server.url(), &[]).has("net.clients", "warn/warn", &["of 10"]);
    drop(open);

    set(&server, "maxmemory", "1");
    let report = Report::quick(&server.url(), &[]);
    report.has("mem.full", "fail/fail", &["OOM"]);
    assert_eq!(
        (report.code, report.ids("fail")),
        (78, vec!["mem.full".into()])
    );

    let cluster = RedisServer::builder()
        .option("cluster-enabled", "yes")
        .start();
    let report = Report::quick(&cluster.url(), &[]);
    report.has("id.mode", "fail/fail", &["cluster"]);
    assert_eq!(report.code, 78);
}

#[test]
fn locks_that_never_end_and_those_of_other_programs() {
    let server = RedisServer::start();
    let report = Report::quick(&server.url(), &[]);
    report.has("key.immortal", "ok/ok", &[]);
    report.has("key.type", "ok/ok", &[]);
    server.cli(&["SET", "for ever", "someone"]);
    server.cli(&["HSET", "redisson", "someone", "1"]);
    server.cli(&["PEXPIRE", "redisson", "60000"]);
    for name in ["for ever", "redisson", "gone"] {
        server.cli(&["ZADD", "leasehold:index", "1", name]);
    }
    // A name that is not UTF-8 must not hide the other names.
    let odd = r"return redis.call('ZADD', 'leasehold:index', 2, 'odd\255')";
    server.cli(&["EVAL", odd, "0"]);
    let report = Report::quick(&server.url(), &[]);
    report.has("key.immortal", "fail/fail", &["for ever", "--if-fence"]);
    report.has("key.type", "warn/warn", &["redisson", "hash"]);
    assert_eq!(
        (report.code, report.ids("fail")),
        (78, vec!["key.immortal".into()])
    );
    // The doctor changed nothing: the database has the two keys, the index and the fence counter.
    let keys = server.cli(&["DBSIZE"]).int();
    assert_eq!(keys, 4);
    assert_eq!(server.cli(&["EXISTS", "leasehold:fence"]).int(), 1);
    assert_eq!(server.cli(&["ZCARD", "leasehold:index"]).int(), 4);
}

#[test]
fn a_server_that_does_not_tell_is_not_failed_for_it() {
    let silent = [
        "config", "acl", "command", "info", "latency", "cluster", "client",
    ];
    let server = RedisServer::start();
    let minus: Vec<String> = silent.iter().map(|word| format!("-{word}")).collect();
    let minus: Vec<&str> = minus.iter().map(String::as_str).collect();
    let url = with_user(&server, &[&["~*", "&*", "+@all"], &minus[..]].concat());
    let mut renamed = RedisServer::builder();
    for command in ["CONFIG", "ACL", "COMMAND", "LATENCY"] {
        renamed = renamed.arg("--rename-command").arg(command).arg("");
    }
    let renamed = renamed.start();
    for purpose in ["efficiency", "correctness"] {
        let report = Report::quick(&url, &["--for", purpose]);
        assert_eq!(report.code, 0, "{:#}", report.document);
        assert_eq!(report.ids("fail"), Vec::<String>::new());
        assert_eq!(report.ids("warn"), Vec::<String>::new());
        for id in [
            "mem.policy",
            "mem.full",
            "dur.mode",
            "dur.health",
            "id.engine",
            "id.mode",
            "id.restart",
            "acl.wide",
            "cap.cas",
            "net.timeout",
            "lat.script",
        ] {
            report.has(id, "unknown/unknown", &[]);
        }
        // This user may not use CLIENT. A cache needs it to be notified of changes.
        let words = ["wakes arrive", "+client|tracking", "INFO is refused"];
        report.has("acl.probe", "info/info", &words);
    }
    let report = Report::quick(&renamed.url(), &[]);
    assert_eq!((report.code, report.ids("fail")), (0, Vec::new()));
    report.has("net.timeout", "unknown/unknown", &[]);
}

#[test]
fn clocks_that_jump_and_evictions_going_on_are_seen() {
    let clock = RedisServer::builder().virtual_clock().start();
    clock.clock().advance(Duration::from_secs(60));
    let server = RedisServer::builder()
        .option("maxmemory", "4mb")
        .option("maxmemory-policy", "allkeys-lru")
        .start();
    let done = AtomicBool::new(false);
    let (standing, evicting) = thread::scope(|scope| {
        let filling = scope.spawn(|| {
            let (mut connection, value) = (server.connection(), "x".repeat(10_000));
            let mut number = 0_u64;
            while !done.load(Ordering::SeqCst) {
                number += 1;
                let key = format!("cache:{number}");
                connection.command(&["SET", &key, &value]);
            }
        });
        let clock = scope.spawn(|| Report::of(&clock.url(), &[]));
        let evicting = Report::of(&server.url(), &[]);
        done.store(true, Ordering::SeqCst);
        filling.join().expect("it fills");
        (clock.join().expect("a report"), evicting)
    });
    // The clock of this server stands still.
    standing.has("clk.step", "warn/fail", &["jumps"]);
    standing.has("clk.offset", "info/warn", &["apart"]);
    evicting.has("mem.evicted", "warn/fail", &["deleting keys now"]);
    evicting.has("clk.step", "ok/ok", &[]);
    evicting.finding("clk.self");
    evicting.finding("hz");
}
