//! The output of the doctor for a person, for a store that it cannot use, and for each kind of connection.

use std::fs;
use std::process::Command;

use testkit::{RedisServer, ReservedPort};

use super::{CANARY, Report, output, run};

#[test]
fn a_person_reads_the_worst_first_and_what_to_do() {
    let server = RedisServer::builder()
        .option("maxmemory", "100mb")
        .option("maxmemory-policy", "volatile-lru")
        .password(CANARY)
        .start();
    let url = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    let output = run(&url, &["--quick", "--for", "correctness"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let place = format!("redis://127.0.0.1:{}  Redis ", server.port());
    assert!(lines[0].starts_with(&place), "{text}");
    for word in [" standalone master, up ", "lease 30s, renew 10s"] {
        assert!(lines[0].contains(word), "{text}");
    }
    let at = |word: &str| lines.iter().position(|line| line.contains(word));
    let policy = at("FAIL mem.policy").expect(&text);
    assert!(
        lines[policy + 1].contains("fix: CONFIG SET maxmemory-policy noeviction"),
        "{text}"
    );
    assert!(at("WARN rep.count").expect(&text) > policy, "{text}");
    let last = lines.last().expect("a summary");
    assert!(
        last.starts_with("ok   ") && last.ends_with("-> exit 78"),
        "{text}"
    );
    assert!(!text.contains("\nok   mem.full"), "{text}");

    let output = run(&url, &["--quick", "--all"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in [
        "ok   mem.full",
        "info id.engine",
        "WARN mem.policy",
        "-> exit 0",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // The summary says that the stricter purpose would report more failures.
    assert!(
        text.contains("more would fail: leasehold doctor --for correctness"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn no_server_no_login_and_no_redis_have_codes_of_their_own() {
    let server = RedisServer::builder().password("another").start();
    let reserved = ReservedPort::new();
    let nobody = format!("redis://:{CANARY}@127.0.0.1:{}/", reserved.number());
    let wrong = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    for (url, code) in [
        (nobody.as_str(), 69),
        (&wrong, 77),
        ("redis://:S3CR3T-canary@host/x", 78),
        ("memory:", 78),
    ] {
        for words in [&["--quick"][..], &["--json"], &["--acl"]] {
            let output = run(url, words);
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            assert!(output.stdout.is_empty(), "{output:?}");
            assert!(!output.stderr.is_empty());
        }
    }
}

#[test]
fn over_tls_and_over_a_unix_socket() {
    let server = RedisServer::builder()
        .tls()
        .unix_socket()
        .password(CANARY)
        .start();
    let tls = format!("rediss://:{CANARY}@127.0.0.1:{}/", server.tls_port());
    let socket = format!("unix:{}?pass={CANARY}", server.socket_path().display());
    for url in [tls, socket] {
        let mut trusting = Command::new("timeout");
        let trusts = trusting.env("SSL_CERT_FILE", server.ca_path());
        trusts.env_remove("SSL_CERT_DIR");
        let output = output(&url, trusting, &["--quick", "--all"]);
        let text = String::from_utf8_lossy(&output.stdout);
        for word in ["ok   sec.tls       nobody on the way", "ok   acl.probe "] {
            assert!(text.contains(word), "{word}: {output:?}");
        }
    }
}

#[test]
fn a_file_of_this_host_is_fit_and_says_how_far_it_reaches() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("local:{}/locks.db", dir.path().display());
    let report = Report::of(&url, "");
    report.ends(0, &["fail"], &[]);
    report.has("file.write", "ok/ok", &[]);
    report.has("scope.host", "info/info", &["this host"]);
    assert!(report.document["acl"].is_null());
    assert_eq!(run(&url, &["--acl"]).status.code(), Some(78));
    // An unknown id leaves out no check.
    let typo = run(&url, &["--quick", "--ignore", "file.wirte"]);
    let said = String::from_utf8_lossy(&typo.stderr);
    assert!(said.contains("no such check was made"), "{said}");
    assert!(fs::exists(dir.path().join("locks.db")).expect("look"));
}
