//! `leasehold doctor` on servers that each have a problem that it must find, and on servers that refuse it the
//! information.

#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

#[cfg(feature = "cache")]
mod acl;
mod cluster;
mod telling;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{FaultProxy, RedisServer, eventually};

use crate::common::{LEASEHOLD, LIMIT, UNHURRIED, Words, json, rows, without_settings};

const CANARY: &str = "S3CR3T-canary";

/// Runs the doctor.
fn run(url: &str, words: &(impl Words + ?Sized)) -> Output {
    output(url, Command::new("timeout"), &words.list())
}

/// Runs the doctor by `timeout`, which may have an environment.
fn output(url: &str, mut timeout: Command, words: &[&str]) -> Output {
    timeout.args(["60", LEASEHOLD, "doctor"]).args(words);
    without_settings(&mut timeout);
    timeout
        .env("LEASEHOLD_URL", url)
        .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED);
    let output = timeout.output().expect("run leasehold");
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
    fn of(url: &str, words: &(impl Words + ?Sized)) -> Self {
        let output = run(url, &[&["--json"], &words.list()[..]].concat());
        Self {
            code: output.status.code().expect("a code"),
            document: json(&String::from_utf8_lossy(&output.stdout)),
        }
    }

    fn quick(url: &str, words: &(impl Words + ?Sized)) -> Self {
        Self::of(url, &[&["--quick"], &words.list()[..]].concat())
    }

    fn findings(&self) -> std::slice::Iter<'_, Value> {
        self.document["findings"].as_array().expect("a list").iter()
    }

    #[track_caller]
    fn finding(&self, id: &str) -> &Value {
        let found = self.findings().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {:#}", self.document))
    }

    /// Checks the two states of a finding, `efficiency/correctness`, and the words in it.
    #[track_caller]
    fn has(&self, id: &str, states: &str, words: &[&str]) {
        let finding = self.finding(id);
        let word = |field: &str| finding[field].as_str().expect("a word").to_owned();
        let found = format!("{}/{}", word("efficiency"), word("correctness"));
        assert_eq!(found, states, "{finding:#}");
        let text = finding.to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is missing: {finding:#}");
        }
        if states.contains("fail") || states.contains("warn") {
            assert!(finding["remedy"].is_string(), "{finding:#}");
        }
    }

    /// Checks the exit code, and which checks have one of these states.
    #[track_caller]
    fn ends(&self, code: i32, states: &[&str], ids: &[&str]) {
        let has_one = |finding: &&Value| states.iter().any(|state| finding["state"] == *state);
        let found = self.findings().filter(has_one);
        let found: Vec<&str> = found.filter_map(|it| it["id"].as_str()).collect();
        assert_eq!((self.code, &found[..]), (code, ids), "{:#}", self.document);
    }
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let answer = server.cli(&["CONFIG", "SET", name, value]);
    assert_eq!(answer.text(), "OK", "{name} {value}");
}

/// Adds a user with these rules to the server. Returns the URL for that user.
fn with_user(server: &RedisServer, rules: &(impl Words + ?Sized)) -> String {
    let rules = rules.list();
    let secret = format!(">{CANARY}");
    let words = ["ACL", "SETUSER", "leasehold", "reset", "on", &secret];
    let answer = server.cli(&[&words, &rules[..]].concat());
    assert!(answer.error().is_none(), "{rules:?}: {answer:?}");
    format!("redis://leasehold:{CANARY}@127.0.0.1:{}/", server.port())
}

#[test]
fn each_eviction_policy_is_judged_and_only_noeviction_is_right() {
    let server = RedisServer::builder().option("maxmemory", "100mb").start();
    // Without the findings of every new server without persistence.
    let strict = "--for correctness --ignore dur.mode --ignore id.restart";
    let table = "
        volatile-lru    | locks may be the only ones
        volatile-lfu    | locks may be the only ones
        volatile-random | locks may be the only ones
        volatile-ttl    | locks may be the only ones
        allkeys-lru     | seldom
        allkeys-lfu     | seldom
        allkeys-random  | any key
    ";
    for [policy, word] in rows(table) {
        set(&server, "maxmemory-policy", policy);
        let report = Report::quick(&server.url(), strict);
        report.has("mem.policy", "warn/fail", &[policy, word, "noeviction"]);
        assert_eq!(report.code, 78, "{policy}");
    }
    set(&server, "maxmemory", "0");
    Report::quick(&server.url(), "").has("mem.policy", "info/warn", &["it is 0 now"]);
    set(&server, "maxmemory-policy", "noeviction");
    let report = Report::quick(&server.url(), strict);
    report.has("mem.policy", "ok/ok", &[]);
    assert_eq!(report.code, 0, "{report:#?}");
}

#[test]
fn what_a_restart_forgets_is_told() {
    let server = RedisServer::start();
    let judged = || Report::quick(&server.url(), "");
    judged().has("dur.mode", "warn/fail", &["nothing is written"]);
    judged().has("id.restart", "warn/fail", &["restarted"]);
    for (setting, value, states, word) in [
        ("save", "3600 1", "warn/fail", "snapshot"),
        ("appendonly", "yes", "info/warn", "everysec"),
        ("appendfsync", "no", "warn/fail", "no"),
        ("appendfsync", "always", "ok/ok", "always"),
    ] {
        set(&server, setting, value);
        judged().has("dur.mode", states, &[word]);
    }
    judged().has("id.restart", "ok/ok", &[]);
}

#[test]
fn a_save_that_failed_stops_locks() {
    let server = RedisServer::builder().option("enable-protected-configs", "yes");
    let server = server.start();
    let dir = tempfile::tempdir().expect("a directory");
    set(&server, "dir", dir.path().to_str().expect("text"));
    drop(dir);
    set(&server, "save", "3600 1");
    server.cli(&["BGSAVE"]);
    eventually(LIMIT, "the save fails", || {
        let info = server.cli(&["INFO", "persistence"]).text();
        info.contains("rdb_last_bgsave_status:err")
    });
    let report = Report::quick(&server.url(), "");
    report.has("dur.health", "fail/fail", &["MISCONF", "refuses"]);
    assert_eq!(report.code, 78);
    set(&server, "stop-writes-on-bgsave-error", "no");
    Report::quick(&server.url(), "").has("dur.health", "warn/fail", &["rdb_last_bgsave_status"]);
}

#[test]
fn replicas_missing_unneeded_or_used_as_primary() {
    let server = RedisServer::start();
    let judged = || Report::quick(&server.url(), "");
    judged().has("rep.count", "info/warn", &["no replica"]);
    set(&server, "min-replicas-to-write", "1");
    let report = judged();
    report.has("rep.short", "fail/fail", &["NOREPLICAS"]);
    report.ends(78, &["fail"], &["rep.short"]);

    let replica = RedisServer::builder().replica_of(server.port()).start();
    eventually(LIMIT, "the replica is in step", || {
        let info = server.cli(&["INFO", "replication"]).text();
        info.contains("min_slaves_good_slaves:1")
    });
    let report = judged();
    for id in ["rep.short", "rep.ack", "rep.count"] {
        report.has(id, "ok/ok", &[]);
    }
    set(&server, "min-replicas-to-write", "0");
    judged().has("rep.ack", "info/warn", &["min-replicas-to-write 1"]);

    let report = Report::quick(&replica.url(), "");
    let primary = format!("127.0.0.1:{}", server.port());
    report.has("reach.role", "fail/fail", &["READONLY", &primary]);
    report.ends(78, &["fail"], &["reach.role"]);
}

#[test]
fn a_server_without_scripts() {
    for (command, states, code) in [("EVAL", "fail/fail", 78), ("EVALSHA", "warn/warn", 0)] {
        let server = RedisServer::builder().args(["--rename-command", command, ""]);
        let server = server.start();
        let report = Report::quick(&server.url(), "");
        report.has("cap.lua", states, &[command]);
        assert_eq!(report.code, code);
        // Without EVAL, locks work until the server forgets the loaded scripts.
        assert_eq!(runs(&server.url()), Some(0), "{command}");
    }
    // The server has these commands, but this user may not use them.
    let server = RedisServer::start();
    let url = with_user(&server, "~* &* +@all -eval -evalsha");
    Report::quick(&url, "").has("cap.lua", "unknown/unknown", &[]);
}

/// What a user may not do, and what it costs.
#[test]
fn rights_of_the_user_are_judged_by_what_locks_need() {
    let server = RedisServer::start();
    // These users may use all commands, but not all keys. The last ones may use the scratch lock besides the locks.
    let some = "~jobs:* ~{jobs:*}:lh-* &* +@all";
    let counted = &format!("{some} ~leasehold:fence ~leasehold:index");
    let scratch = &format!("{some} ~leasehold:* ~leasehold:doctor:* ~{{leasehold:doctor:*}}:lh-*");
    let keys = "lacks ~leasehold:doctor:* ~{leasehold:doctor:*}:lh-* ~leasehold:fence: no locks";
    for (rules, words, states, says) in [
        (
            "~* &* +@all -eval -evalsha",
            "",
            "fail/fail",
            "+eval: no locks",
        ),
        (some, "", "fail/fail", keys),
        (counted, "--keys jobs:*", "ok/ok", ""),
        (counted, "--keys jobs:a", "fail/fail", "doctor"),
        (counted, "--keys other:*", "fail/fail", "~other:*"),
        (scratch, "--keys jobs:a", "ok/ok", ""),
        (scratch, "--keys other", "fail/fail", "~other "),
        (
            "~* resetchannels +@all",
            "",
            "warn/warn",
            "lacks &leasehold:wake:*: waiters poll",
        ),
    ] {
        let report = Report::quick(&with_user(&server, rules), words);
        report.has("acl.probe", states, &[says]);
        if states == "fail/fail" && words.is_empty() {
            report.has("acl.probe", states, &["ACL SETUSER leasehold"]);
        }
    }
}

/// The exit code of `leasehold run` for a free lock.
fn runs(url: &str) -> Option<i32> {
    let mut run = Command::new(LEASEHOLD);
    run.args(["run", "--try", "--url", url, "doctored", "--", "true"]);
    run.output().expect("run leasehold").status.code()
}

#[test]
fn what_a_service_refuses_in_its_own_words_is_told_with_its_price() {
    let server = RedisServer::start();
    let refused = |command: &str| format!("ERR command '{command}' not support for your account");
    for (command, price) in [
        ("INFO", "counts as one to another server"),
        ("ROLE", "a replica is known only by"),
        ("SUBSCRIBE", "waiters poll"),
        ("SCRIPT", "scripts are sent in full"),
        ("EVALSHA", "scripts are sent in full"),
        ("CLIENT TRACKING", "stay until they are too old"),
    ] {
        let proxy = FaultProxy::start(server.port());
        let words = refused(command);
        proxy.deny(command, &words);
        let report = Report::quick(&proxy.url(), "");
        let (states, said) = match command {
            "INFO" => ("info/info", "INFO is refused"),
            _ => ("warn/warn", words.as_str()),
        };
        report.has("acl.probe", states, &[said, price]);
        assert_eq!((report.code, runs(&proxy.url())), (0, Some(0)), "{command}");
    }
    let proxy = FaultProxy::start(server.port());
    for command in ["EVAL", "EVALSHA"] {
        proxy.deny(command, &refused(command));
    }
    let report = Report::quick(&proxy.url(), "");
    report.has("acl.probe", "fail/fail", &["not support for your account"]);
    assert_eq!((report.code, runs(&proxy.url())), (78, Some(78)));
}

/// Here too, the words of the service name no command.
#[test]
fn a_service_that_refuses_scripts_or_their_clock_is_told_as_such() {
    let server = RedisServer::start();
    for (words, says) in [
        ("ERR unsupported command", "it runs no scripts"),
        (
            "ERR This Redis command is not allowed from script script: 0a, on @user_script:1.",
            "it lets no script use TIME",
        ),
    ] {
        let proxy = FaultProxy::start(server.port());
        for command in ["EVAL", "EVALSHA"] {
            proxy.deny(command, words);
        }
        let report = Report::quick(&proxy.url(), "");
        report.has(
            "acl.probe",
            "fail/fail",
            &[says, words, "a service that permits"],
        );
        assert_eq!((report.code, runs(&proxy.url())), (78, Some(78)));
    }
}

#[test]
fn a_full_server_and_one_that_drops_clients() {
    let server = RedisServer::builder().option("maxclients", "10").start();
    let judged = |words: &str| Report::quick(&server.url(), words);
    let report = judged("");
    for id in ["net.timeout", "net.clients", "mem.full"] {
        report.has(id, "ok/ok", &[]);
    }

    set(&server, "timeout", "5");
    let report = judged("");
    report.has("net.timeout", "warn/warn", &["timeout=5"]);
    assert_eq!(report.code, 0, "warnings are no failures");
    assert_eq!(judged("--strict").code, 78);
    judged("--ttl 12s").has("net.timeout", "ok/ok", &[]);
    set(&server, "timeout", "0");

    let mut open: Vec<_> = (0..7).map(|_| server.connection()).collect();
    for connection in &mut open {
        connection.command(&["PING"]);
    }
    judged("").has("net.clients", "warn/warn", &["of 10"]);
    drop(open);

    set(&server, "maxmemory", "1");
    let report = judged("");
    report.has("mem.full", "fail/fail", &["OOM"]);
    report.ends(78, &["fail"], &["mem.full"]);
}

#[test]
fn locks_that_never_end_and_those_of_other_programs() {
    let server = RedisServer::start();
    let report = Report::quick(&server.url(), "");
    for id in ["key.immortal", "key.type"] {
        report.has(id, "ok/ok", &[]);
    }
    server.cli(&["SET", "for ever", "someone"]);
    server.cli(&["HSET", "redisson", "someone", "1"]);
    server.cli(&["PEXPIRE", "redisson", "60000"]);
    for name in ["for ever", "redisson", "gone"] {
        server.cli(&["ZADD", "leasehold:index", "1", name]);
    }
    // A name that is not UTF-8 must not hide the other names.
    let odd = r"return redis.call('ZADD', 'leasehold:index', 2, 'odd\255')";
    server.cli(&["EVAL", odd, "0"]);
    let report = Report::quick(&server.url(), "");
    report.has("key.immortal", "fail/fail", &["for ever", "--if-fence"]);
    report.has("key.type", "warn/warn", &["redisson", "hash"]);
    report.ends(78, &["fail"], &["key.immortal"]);
    // The doctor changed nothing: the database has the two keys, the index and the fence counter.
    for (question, answer) in [
        (&["DBSIZE"][..], 4),
        (&["EXISTS", "leasehold:fence"], 1),
        (&["ZCARD", "leasehold:index"], 4),
    ] {
        assert_eq!(server.cli(question).int(), answer, "{question:?}");
    }
}

#[test]
fn a_server_that_does_not_tell_is_not_failed_for_it() {
    let server = RedisServer::start();
    let silent = "~* &* +@all -config -acl -command -info -latency -cluster -client";
    let url = with_user(&server, silent);
    let unknown = "mem.policy mem.full dur.mode dur.health id.engine id.mode id.restart acl.wide \
                   cap.cas net.timeout lat.script";
    for purpose in ["efficiency", "correctness"] {
        let report = Report::quick(&url, &["--for", purpose]);
        report.ends(0, &["fail", "warn"], &[]);
        for id in unknown.split(' ') {
            report.has(id, "unknown/unknown", &[]);
        }
        // This user may not use CLIENT. A cache needs it to be notified of changes.
        let words = ["wakes arrive", "+client|tracking", "INFO is refused"];
        report.has("acl.probe", "info/info", &words);
    }
    let renamed = ["CONFIG", "ACL", "COMMAND", "LATENCY"].into_iter();
    let renamed = renamed.fold(RedisServer::builder(), |server, command| {
        server.args(["--rename-command", command, ""])
    });
    let report = Report::quick(&renamed.start().url(), "");
    report.ends(0, &["fail"], &[]);
    report.has("net.timeout", "unknown/unknown", &[]);
}

#[test]
fn clocks_that_jump_and_evictions_going_on_are_seen() {
    let clock = RedisServer::builder().virtual_clock().start();
    clock.clock().advance(Duration::from_secs(60));
    let small = RedisServer::builder().option("maxmemory", "4mb");
    let server = small.option("maxmemory-policy", "allkeys-lru").start();
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
        let clock = scope.spawn(|| Report::of(&clock.url(), ""));
        let evicting = Report::of(&server.url(), "");
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
