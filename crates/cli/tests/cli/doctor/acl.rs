//! The ACL line: the server accepts it, every part of the library works with it, and no rule in it is superfluous.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{Client, Error, Lease, Turn};
use leasehold_cache::{Cache, Policy};
use testkit::{RedisCluster, RedisServer};

use super::{LIMIT, Report, run, with_user};

/// Where the keys are.
#[derive(Clone, Copy)]
enum Place<'a> {
    Server(&'a RedisServer),
    Cluster(&'a RedisCluster),
}

impl<'a> Place<'a> {
    /// The server that has this key.
    fn of(self, key: &str) -> &'a RedisServer {
        match self {
            Self::Server(server) => server,
            Self::Cluster(cluster) => cluster.primary(cluster.slot(key)),
        }
    }

    fn all(self) -> &'a [RedisServer] {
        match self {
            Self::Server(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }
}

/// Does everything that the library can do, as the user of `url`, on locks whose names begin with `prefix`.
/// Returns `None` at the first error.
async fn everything(url: &str, place: Place<'_>, prefix: &str) -> Option<()> {
    let ttl = Duration::from_secs(20);
    let name = format!("{prefix}x");
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(url).await.ok()?);
    }
    let [one, two, three] = &clients[..] else {
        return None;
    };
    let lease = one.mutex(&name).ttl(ttl).acquire().await.ok()?;
    let waiting = |client: &Client| {
        let mutex = client.mutex(&name).ttl(ttl);
        tokio::spawn(async move { mutex.acquire().await })
    };
    let queue = async |length| {
        let key = format!("{{{name}}}:lh-queue");
        while place.of(&key).cli(&["ZCARD", &key]).int() != length {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let second = waiting(two);
    queue(1).await;
    let third = waiting(three);
    queue(2).await;
    // The third waiter leaves the queue.
    third.abort();
    queue(1).await;
    lease.extend(ttl).await.ok()?;
    lease.release().await.ok()?;
    let lease: Result<Lease, Error> = second.await.ok()?;
    let lease = lease.ok()?;
    lease.extend(ttl).await.ok()?;
    // The client writes the index in separate requests.
    while one.names().await.ok()?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fence = one.inspect(&name).await.ok()?.holder?.fence?;
    assert!(one.break_lock(&name, fence).await.ok()?);
    while !one.names().await.ok()?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A hash in the lock's key is another program's lock.
    let foreign = format!("{prefix}foreign");
    let server = place.of(&foreign);
    server.cli(&["HSET", &foreign, "someone", "1"]);
    let seen = one.inspect(&foreign).await.ok()?;
    server.cli(&["DEL", &foreign]);
    assert!(seen.holder.is_some());
    let deadline = one.timestamp_lock(&foreign).ttl(ttl);
    for lock in [deadline.clone(), deadline.without_scripts()] {
        let hold = lock.try_acquire().await.ok()?.expect("it is free");
        hold.extend(ttl).await.ok()?;
        hold.release().await.ok()?;
    }
    let kinds = format!("{prefix}kinds");
    let reader = one.rw_lock(&kinds).read().ttl(ttl).acquire().await.ok()?;
    reader.extend(ttl).await.ok()?;
    while one.names().await.ok()?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reader.release().await.ok()?;
    let permit = one.semaphore(&kinds, 2).ttl(ttl).acquire().await.ok()?;
    permit.extend(ttl).await.ok()?;
    permit.release().await.ok()?;
    while !one.names().await.ok()?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let firing = one.once(&name, "2026-11-27").keep(Duration::from_secs(1));
    let turn = firing.run(async |_| Ok::<_, Error>(())).await.ok()?;
    assert!(matches!(turn, Turn::Mine(())));
    every_entry(url, place, prefix).await
}

/// Uses cache entries in each way: loads, renews, waits, keeps values in the process, reads several, fails,
/// invalidates and removes.
async fn every_entry(url: &str, place: Place<'_>, prefix: &str) -> Option<()> {
    let (key, bad) = (format!("{prefix}entry"), format!("{prefix}bad"));
    let policy = Policy::default().lease(Duration::from_secs(6));
    let clients = [
        Client::connect(url).await.ok()?,
        Client::connect(url).await.ok()?,
    ];
    let one = Cache::in_process(&clients[0], 1_000_000, Duration::from_secs(60));
    let one = one.policy(policy.clone());
    let two = Cache::new(&clients[1]).policy(policy);
    // Takes so long that the client renews the lease.
    let is_renewed = Arc::new(AtomicBool::new(false));
    let loader = is_renewed.clone();
    let slow = move || {
        let is_renewed = loader.clone();
        async move {
            while !is_renewed.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok::<u32, String>(1)
        }
    };
    let renewed = async {
        let control = format!("{{{key}}}:lh-cache");
        let until = || place.of(&control).cli(&["HGET", &control, "until"]);
        let mut begun = until();
        while begun.is_nil() || until() == begun {
            tokio::time::sleep(Duration::from_millis(5)).await;
            begun = if begun.is_nil() { until() } else { begun };
        }
        is_renewed.store(true, Ordering::SeqCst);
    };
    let loads = one.get_or_refresh(&key, slow.clone()).into_future();
    let waits = two.get_or_refresh(&key, slow.clone()).into_future();
    let (loads, waits, ()) = tokio::join!(loads, waits, renewed);
    assert_eq!((*loads.ok()?, *waits.ok()?), (1, 1));
    assert!(one.get::<u32>(&bad).await.ok()?.is_none());
    for cache in [&one, &two] {
        let got = cache.get_or_refresh(&key, slow.clone()).await.ok()?;
        assert_eq!(*got, 1);
        let none = |_: Vec<String>| async { Ok::<_, String>(HashMap::<String, u32>::new()) };
        let many = cache.get_many_or_refresh([&key, &bad], none).await.ok()?;
        assert_eq!(many.values.len(), 1, "{many:?}");
    }
    let fails = || async { Err::<u32, String>("no".into()) };
    let failed = two.get_or_refresh(&bad, fails).await;
    assert!(failed.is_err());
    two.invalidate(&key).await.ok()?;
    let newer = || async { Ok::<u32, String>(2) };
    // `one` keeps the old value in its process until the server notifies it of the change.
    while *one.get_or_refresh(&key, newer).must_be_fresh().await.ok()? != 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while two.get::<u32>(&key).await.ok()?.map(|got| *got) != Some(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    one.remove(&key).await.ok()?;
    assert!(two.get::<u32>(&key).await.ok()?.is_none());
    // The clients may still send requests. `close` waits for them, so that none comes after the deletion.
    for client in clients {
        client.close().await;
    }
    for key in [key, bad] {
        let control = format!("{{{key}}}:lh-cache");
        place.of(&key).cli(&["DEL", &key, &control]);
    }
    Some(())
}

/// The entries of the ACL log, or `None` if no server has refused anything since the log was reset.
fn refused(place: Place<'_>) -> Option<String> {
    place.all().iter().find_map(|server| {
        let log = server.cli(&["ACL", "LOG"]);
        let entries = log.array();
        (!entries.is_empty()).then(|| format!("{entries:?}"))
    })
}

/// Runs [`everything`] until its end or until the server refuses a command. Returns the refusals.
fn use_it_all(url: &str, place: Place<'_>, prefix: &str) -> Option<String> {
    for server in place.all() {
        // A replica refuses it.
        server.cli(&["FLUSHALL"]);
        server.cli(&["ACL", "LOG", "RESET"]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let until_refused = async {
            while refused(place).is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let all = async {
            tokio::select! {
                done = everything(url, place, prefix) => done,
                () = until_refused => None,
            }
        };
        let done = tokio::time::timeout(LIMIT, all).await.expect("an end");
        assert!(
            done.is_some() || refused(place).is_some(),
            "it failed without a refusal"
        );
    });
    refused(place)
}

/// True if the user of the ACL line may not use names that begin with `prefix`. Starts its own server: clients
/// repeat a refused request for a while, and the next test must not see those refusals.
fn is_refused(line: &str, prefix: &str) -> bool {
    let server = RedisServer::start();
    let url = with_user(&server, &rules(line));
    use_it_all(&url, Place::Server(&server), prefix).is_some()
}

/// The rules of an ACL line, without the words that name the user.
fn rules(line: &str) -> Vec<&str> {
    let rules = line
        .trim()
        .strip_prefix("ACL SETUSER leasehold on >SECRET ")
        .unwrap_or_else(|| panic!("{line}"));
    rules.split(' ').collect()
}

fn acl(server: &RedisServer, words: &[&str]) -> String {
    acl_of(&server.url(), words)
}

fn acl_of(url: &str, words: &[&str]) -> String {
    let output = run(url, &[&["--acl"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn acl_line_is_accepted_and_sufficient() {
    let server = RedisServer::start();
    for (words, prefix) in [(&[][..], ""), (&["--keys", "jobs:*"], "jobs:")] {
        let line = acl(&server, words);
        let url = with_user(&server, &rules(&line));
        assert_eq!(
            use_it_all(&url, Place::Server(&server), prefix),
            None,
            "{line}"
        );
        for purpose in ["efficiency", "correctness"] {
            let report = Report::quick(&url, &["--for", purpose]);
            report.has("acl.probe", "ok/ok", &["wakes arrive"]);
            // This user may not even send `ACL WHOAMI`.
            report.has("acl.wide", "unknown/unknown", &[]);
        }
        assert_eq!(server.cli(&["DBSIZE"]).int(), 1, "the fence counter");
    }
    let line = acl(&server, &["--keys", "jobs:*"]);
    assert!(is_refused(&line, "other:"), "{line}");
    // The pattern matches lock names. The namespace and the key template surround it in the keys.
    let around = ["--namespace", "prod", "--key-template", "lock:{}"];
    for (keys, prefix) in [("jobs:*", "lock:prod:jobs:"), ("*", "lock:prod:")] {
        let line = acl(&server, &[&around[..], &["--keys", keys]].concat());
        let url = with_user(&server, &rules(&line));
        assert_eq!(
            use_it_all(&url, Place::Server(&server), prefix),
            None,
            "{line}"
        );
        assert!(is_refused(&line, "jobs:"), "{line}");
    }
    // In another database, the line has one more rule.
    let other = run(&format!("{}3", server.url()), &["--acl"]);
    assert!(String::from_utf8_lossy(&other.stdout).contains(" +select"));
}

#[test]
fn acl_line_of_a_cluster_is_sufficient_and_needed() {
    let cluster = RedisCluster::start(3, 1);
    let place = Place::Cluster(&cluster);
    let url = |rules: &[&str]| {
        let urls = cluster.nodes().iter().map(|node| with_user(node, rules));
        urls.collect::<Vec<_>>().swap_remove(0)
    };
    let plain = format!("redis+cluster://{}/", cluster.addresses());
    for (words, prefix) in [(&[][..], ""), (&["--keys", "jobs:*"], "jobs:")] {
        let line = acl_of(&plain, words);
        assert!(
            line.contains("~*") || line.contains(" ~leasehold:fence:* "),
            "{line}"
        );
        let url = url(&rules(&line));
        assert_eq!(use_it_all(&url, place, prefix), None, "{line}");
        let report = Report::quick(&url, words);
        for node in report.findings().filter(|it| it["id"] == "acl.probe") {
            assert_eq!(node["correctness"], "ok", "{node:#}");
        }
    }
    let line = acl_of(&plain, &[]);
    let all = rules(&line);
    for part in [
        "+cluster|slots",
        "+asking",
        "+ssubscribe",
        "+spublish",
        "+pubsub|shardnumsub",
    ] {
        let fewer: Vec<&str> = all.iter().copied().filter(|rule| *rule != part).collect();
        assert_eq!(fewer.len() + 1, all.len(), "{part}: {line}");
        let report = Report::quick(&url(&fewer), "");
        report.has("acl.probe", "warn/warn", &[part]);
    }
}

#[test]
fn a_pattern_that_turns_text_round_does_not_do_so_in_json() {
    let server = RedisServer::start();
    let output = run(
        &server.url(),
        &["--quick", "--json", "--keys", "jobs:\u{202e}*"],
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("jobs:\\u202e*"), "{text}");
    assert!(!text.contains('\u{202e}'), "{text}");
}

#[test]
fn nothing_in_the_acl_line_can_be_left_out() {
    let server = RedisServer::start();
    let line = acl(&server, &[]);
    let all = rules(&line);
    let parts: Vec<&str> = all
        .iter()
        .copied()
        .filter(|rule| rule.starts_with('+'))
        .collect();
    assert!(parts.len() > 20, "{line}");
    // In parallel, since each use waits for a renewal.
    thread::scope(|scope| {
        for parts in parts.chunks(4) {
            scope.spawn(|| parts.iter().for_each(|part| is_used(part, &all)));
        }
    });
}

/// Without this rule the server refuses something, and the doctor says so.
fn is_used(part: &str, all: &[&str]) {
    let server = RedisServer::start();
    let fewer: Vec<&str> = all.iter().copied().filter(|rule| *rule != part).collect();
    let url = with_user(&server, &fewer);
    let refused = use_it_all(&url, Place::Server(&server), "");
    let report = Report::quick(&url, "");
    match part {
        // Only the doctor uses these two commands. Without them it reports the check as unknown.
        "+ping" => report.has("reach.ping", "unknown/unknown", &[]),
        "+info" => report.has("mem.policy", "unknown/unknown", &[]),
        part => {
            assert!(refused.is_some(), "{part} is not used");
            let probe = report.finding("acl.probe");
            let told = probe["text"].as_str().expect("a text").contains(part);
            assert!(told && probe["state"] != "ok", "{part}: {probe:#}");
        }
    }
}
