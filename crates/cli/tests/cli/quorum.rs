//! The command on a quorum: its set-up, its faults, and its refusals. The verbs of locks are tried on it as on each store.

#![cfg(target_os = "linux")]

mod verbs;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use leasehold::Clock;
use testkit::{RedisServer, eventually};

use crate::common::{Done, LIMIT, Store};

fn init(store: &Store, words: &str) -> Done {
    store.leasehold("quorum init").words(words).output()
}

fn doctor(store: &Store) -> Done {
    store.leasehold("doctor --quick").output()
}

/// A look at the lock "x" that shows this. A look waits only briefly for a server that is slower than the others.
fn seen(store: &Store, text: &str) -> Done {
    let mut seen = None;
    eventually(LIMIT, &format!("inspect shows {text:?}"), || {
        let done = store.verb("inspect", "x").is(0, &[]);
        seen = Some(done).filter(|done| done.stdout.contains(text));
        seen.is_some()
    });
    seen.expect("a look")
}

fn fence(store: &Store) -> u64 {
    let done = store.script("x", "echo $LEASEHOLD_FENCE").is(0, &[]);
    done.stdout.trim().parse().expect("a fence")
}

#[test]
fn new_servers_vote_after_init_and_not_before() {
    let store = Store::quorum_without_marks();
    let says = ["gives no vote for another", "The command was not run"];
    store.run("x true").is(69, &says);
    // The first request has marked them, as servers that may have lost their data.
    eventually(LIMIT, "all are marked", || {
        init(&store, "").stdout.contains("all of them vote in")
    });

    let store = Store::quorum_without_marks();
    let report = init(&store, "--json").json();
    assert_eq!(report["schema"], "leasehold.quorum-init/1");
    assert_eq!(report["outcome"], "new");
    assert_eq!(report["votes_in_ms"], 0);
    let first = fence(&store);
    init(&store, "").shows(&["nothing was changed"]);
    assert!(fence(&store) > first);
}

#[test]
fn other_terms_are_refused_until_init_again() {
    let store = Store::quorum();
    fence(&store);
    let url = store.url.replace("24h", "40s");
    let other = |words: &str| store.leasehold(words).env("LEASEHOLD_URL", &url);
    let counts = "this client counts 3 nodes with leases of at most 40s";
    other("run x true").is(78, &["leases of at most 86400s", counts]);
    other("quorum init").is(78, &["another longest TTL", "add --again"]);
    // The leases of the former terms may last for a day.
    let again = other("quorum init --again").output();
    again.shows(&["vote in 1d00h"]);
    other("run x true").is(69, &["gives no vote for another"]);
    store.run("x true").is(78, &["leases of at most 40s"]);
}

#[test]
fn without_a_verdict_only_the_document_of_named_locks_is_printed() {
    let store = Store::quorum();
    for server in &store.quorum {
        server.cli(&["SET", "x", "somebody"]);
        server.cli(&["ZADD", "leasehold:index", "9e15", "x"]);
    }
    let url = store.url.replace("24h", "40s");
    let inspect = |words: &str| {
        let run = store.leasehold("inspect").words(words);
        run.env("LEASEHOLD_URL", &url)
    };
    let says = "leases of at most 86400s";
    for words in ["x", "x y", "", "--json"] {
        let done = inspect(words).is(78, &[says]);
        assert_eq!(done.stdout, "", "{words}");
    }
    let came = "the URL came from LEASEHOLD_URL: ";
    let shown = inspect("--json x").is(78, &[says, came]);
    assert_eq!(shown.json()["locks"][0]["state"], "unknown");
}

#[test]
fn words_about_one_server_are_not_taken_for_those_of_another() {
    let store = Store::quorum();
    let [one, two, three] = &store.quorum[..] else {
        panic!()
    };
    let inspect = |code: i32, says: &[&str]| {
        let done = store.leasehold("inspect --json x").is(code, says);
        let views = &done.json()["locks"][0]["nodes"];
        assert_eq!(views[0]["state"], "unknown", "{done:?}");
    };
    // It denies something, and the other one speaks of a key: this is no lock that is hidden.
    one.cli(&["ACL", "SETUSER", "default", "-info"]);
    two.cli(&["SET", "leasehold:quorum", "hello"]);
    inspect(77, &["+info", "its key leasehold:quorum"]);
    // A password would not help: the marks of the other two leave no majority.
    one.cli(&["CONFIG", "SET", "requirepass", "S3CR3T"]);
    three.cli(&["SET", "leasehold:quorum", "hello"]);
    inspect(78, &["NOAUTH", "next    find out what wrote the key"]);
}

#[test]
fn a_lost_server_is_not_noticed_but_by_the_doctor() {
    let store = Store::quorum();
    let before = fence(&store);
    store.quorum[1].kill();
    let clock = Clock::system();
    let begun = clock.now();
    assert!(fence(&store) > before);
    let took = clock.now().since(begun);
    // Not after the limit of an outage.
    assert!(took < Duration::from_secs(10), "{took:?}");
    doctor(&store).shows(&["WARN q.nodes       2 of 3 servers answer"]);
    store.quorum[2].kill();
    store
        .run("x true")
        .is(69, &["no majority (2 of 3 nodes are needed)"]);
    init(&store, "--again").is(69, &["cannot connect"]);
}

#[test]
fn a_server_that_lost_its_data_keeps_out() {
    let store = Store::quorum();
    fence(&store);
    store.quorum[0].cli(&["FLUSHALL"]);
    // The other two are a majority.
    fence(&store);
    doctor(&store).shows(&["WARN q.marks"]);
    store.quorum[1].cli(&["FLUSHALL"]);
    store.run("x true").is(69, &["gives no vote for another"]);
    init(&store, "").shows(&["all of them vote in"]);
}

#[test]
fn servers_started_again_are_told_before_any_request() {
    let store = Store::quorum();
    fence(&store);
    for server in &store.quorum {
        assert_eq!(server.cli(&["SAVE"]).text(), "OK");
        server.restart();
    }
    let red = store.leasehold("doctor --quick").is(78, &[]);
    red.shows(&[
        "FAIL q.marks",
        "was started again, or has the data of another server",
        "0 of 3 vote, and a lock needs 2",
    ]);
    init(&store, "").shows(&["have this mark already, and all of them vote in 1d00h"]);
    // The next client would make them vote at once.
    let durable = format!("{}&durable=1", store.url);
    let all = store.leasehold("doctor --quick --all");
    let all = all.env("LEASEHOLD_URL", &durable).output();
    all.shows(&["each server has the mark of this quorum"]);
    let all = store.leasehold("quorum init --json");
    let all = all.env("LEASEHOLD_URL", &durable).output().json();
    assert_eq!(all["votes_in_ms"], 0, "{all}");
    store.run("x true").is(69, &["gives no vote for another"]);
    doctor(&store).shows(&["FAIL q.marks", "keeps out for another"]);
}

#[test]
fn a_mark_that_is_garbage_is_called_that() {
    const MARK: &str = "leasehold:quorum";
    let store = Store::quorum();
    let [one, two, _] = &store.quorum[..] else {
        panic!()
    };
    one.cli(&["SET", MARK, "hello"]);
    fence(&store);
    let says = "its key leasehold:quorum holds no mark";
    doctor(&store).shows(&["WARN q.marks", says, "DEL leasehold:quorum there"]);
    two.cli(&["DEL", MARK]);
    two.cli(&["RPUSH", MARK, "hello"]);
    doctor(&store).shows(&["FAIL q.marks", says, "1 of 3 vote, and a lock needs 2"]);
    let next = "next    find out what wrote the key, and delete it there";
    store.run("x true").is(78, &[says, next]);
    store.leasehold("quorum init").is(78, &[says, next]);
    one.cli(&["DEL", MARK]);
    store.leasehold("quorum init").is(78, &[says, next]);
    two.cli(&["DEL", MARK]);
    store.run("x true").is(69, &["gives no vote for another"]);
    two.cli(&["DEL", MARK]);
    two.cli(&["RPUSH", MARK, "hello"]);
    init(&store, "--again").shows(&["marked anew"]);
    doctor(&store).shows(&["keeps out for another"]);
}

#[test]
fn a_user_who_may_not_ask_which_server_it_is_gets_the_acl_line() {
    let store = Store::quorum();
    for server in &store.quorum {
        let rule = server.cli(&["ACL", "SETUSER", "default", "-info"]);
        assert_eq!(rule.text(), "OK");
    }
    let says = ["ACL SETUSER USER +info", "leasehold doctor --acl"];
    store.run("x true").is(77, &says);
    let line = "ACL SETUSER leasehold on >SECRET";
    doctor(&store).shows(&["FAIL q.marks", "does not say which server it is", line]);
    let acl = store.leasehold("doctor --acl").is(0, &[]);
    acl.shows(&[line, " +info"]);
}

#[test]
fn a_lease_lasts_no_longer_than_the_quorum_allows() {
    let mut store = Store::quorum_without_marks();
    store.url = store.url.replace("24h", "20s");
    init(&store, "").shows(&["vote now"]);
    let ttl = store.script("x", "echo $LEASEHOLD_TTL_MS").is(0, &[]);
    assert_eq!(ttl.stdout, "20000\n");
    let mut holding = store.verb("hold", "x").stdin(Stdio::piped()).start();
    holding.until_it_writes("\"ttl_ms\":20000");
    drop(holding.child.stdin.take());
    holding.ends(0, &[]);
    assert_eq!(store.json("doctor", "--quick", 0)["ttl_ms"], 20_000);
    let refused = ["is longer than the longest TTL of quorum of 3"];
    store.run("--ttl 21s x true").is(64, &refused);
}

#[test]
fn one_server_is_no_quorum_and_a_replica_no_node() {
    let store = Store::quorum();
    let [a, b, c] = &store.quorum[..] else {
        panic!()
    };
    let port = a.port().to_string();
    let urls = format!("{} redis://localhost:{port}/ {}", a.url(), b.url());
    let init = |urls: &str| store.leasehold("quorum init").env("LEASEHOLD_URL", urls);
    init(&urls).is(78, &["it is the server of", "a server of its own"]);
    init(&a.url()).is(78, &["is no quorum"]);
    c.cli(&["REPLICAOF", "127.0.0.1", &port]);
    init(&store.url).is(78, &["it is no primary"]);
    fence(&store);
    doctor(&store).shows(&["FAIL q.alone"]);
}

#[test]
fn what_a_quorum_cannot_have_is_refused_with_a_sentence() {
    let store = Store::quorum();
    let timestamp = store.run("--protocol timestamp x true");
    timestamp.is(64, &["is for keys shared with other programs in a Redis"]);
    let url = store.url.replace("24h", "40s");
    for (option, says) in [
        ("--ttl", "is longer than the longest TTL of quorum of 3"),
        ("--at-least", "41s is longer than a lock of quorum of 3"),
    ] {
        let long = store.leasehold(&["run", option, "41s", "x", "touch", "ran"]);
        long.env("LEASEHOLD_URL", &url).is(64, &[says]);
        assert!(!store.file("ran").exists());
    }
    if cfg!(feature = "cache") {
        let refused = store.leasehold("cache get x");
        refused.is(78, &["it keeps no cache entries"]);
    }
}

#[test]
fn an_encrypted_quorum_needs_the_certificates_of_a_majority() {
    let mut store = Store::local();
    let server = || RedisServer::builder().tls().start();
    store.quorum = vec![server(), server(), server()];
    let hosts = store
        .quorum
        .iter()
        .map(|it| format!("localhost:{}", it.tls_port()));
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let file = store.file("ca.crt");
    store.url = format!(
        "rediss+quorum://{hosts}/?max_ttl=24h&tls_ca={}",
        file.display()
    );
    let trust = |servers: &[RedisServer]| {
        let read = |server: &RedisServer| fs::read_to_string(server.ca_path()).expect("PEM");
        fs::write(&file, servers.iter().map(read).collect::<String>()).expect("a file");
    };
    let address = format!("rediss://localhost:{}", store.quorum[0].tls_port());
    let why = "signed by no authority";
    let cycle = || {
        let token = store.leasehold("acquire --ttl 30s y").is(0, &[]).stdout;
        for words in ["check y", "renew --ttl 30s y", "check y", "release y"] {
            let verb = store.leasehold(words);
            verb.env("LEASEHOLD_TOKEN", token.trim()).is(0, &[]);
        }
    };
    trust(&store.quorum);
    let report = init(&store, "--json").json();
    assert_eq!(report["outcome"], "new");
    cycle();
    let holder = store.hold();
    store.all_vote("x", store.number("fence"));
    seen(&store, "votes   3 of 3\n");
    doctor(&store).is(0, &[]);

    trust(&store.quorum[1..]);
    seen(&store, why).shows(&["votes   2 of 3\n", &address]);
    doctor(&store).shows(&["2 of 3 servers answer", &address, why]);
    store.let_go();
    holder.ends(0, &[]);
    cycle();
    trust(&store.quorum[..1]);
    store.run("x true").is(78, &[why]);
}
