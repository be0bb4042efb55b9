//! Values that a client keeps in its process: on a real server, which notifies the client of changes, and in memory.

use testkit::{FaultProxy, RedisServer, eventually};

use super::common::LONG;
use super::*;

/// Two caches: one keeps values in the process for `max_age`, and the other does not.
async fn two(server: &RedisServer, max_age: Duration) -> (Cache, Cache) {
    let url = server.url();
    let connect = async || {
        let builder = Client::builder().request_timeout(LONG);
        builder.connect(&url).await.unwrap()
    };
    let keeps = Cache::in_process(&connect().await, 1_000_000, max_age);
    let other = Cache::new(&connect().await);
    let policy = Policy::default().jitter(0.0).eagerness(0.0);
    (keeps.policy(policy.clone()), other.policy(policy))
}

async fn value(cache: &Cache, next: u32) -> u32 {
    let loader = move || async move { Ok::<u32, String>(next) };
    let got = cache.get_or_refresh("home", loader).must_be_fresh();
    *got.await.unwrap()
}

/// Waits until the store has the value. The loader's caller gets it earlier.
async fn settled(cache: &Cache, next: u32) {
    common::eventually("it is stored", async || {
        let got = cache.get::<u32>("home").await.unwrap();
        got.is_some_and(|got| *got == next)
    })
    .await;
}

/// The number of GETs that the server has executed.
fn gets(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let stats = stats.text();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_get:"));
    line.map_or(0, |line| {
        let calls = line.split("calls=").nth(1).unwrap();
        calls.split(',').next().unwrap().parse().unwrap()
    })
}

/// Waits until a read of this value needs no request. A notification of the store may still be on the way, and removes the value once.
async fn is_kept(server: &RedisServer, keeps: &Cache, expected: u32) {
    let mut costs = u64::MAX;
    for _ in 0..100 {
        let before = gets(server);
        assert_eq!(value(keeps, 99).await, expected);
        costs = gets(server) - before;
        if costs == 0 {
            break;
        }
    }
    assert_eq!(costs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_value_costs_no_request_until_it_changes() {
    let server = RedisServer::start();
    let (keeps, other) = two(&server, 3_600 * SECOND).await;
    assert_eq!(value(&keeps, 1).await, 1);
    settled(&other, 1).await;
    is_kept(&server, &keeps, 1).await;
    let before = gets(&server);
    for _ in 0..100 {
        assert_eq!(value(&keeps, 2).await, 1);
    }
    assert_eq!(gets(&server), before);

    // The client is notified of every change: an invalidation, a newer value, a deletion by any client, the loss of all data.
    let changes: [(&str, u32); 4] = [
        ("invalidate", 10),
        ("remove", 20),
        ("DEL", 30),
        ("FLUSHALL", 40),
    ];
    for (change, next) in changes {
        match change {
            "invalidate" => other.invalidate("home").await.unwrap(),
            "remove" => other.remove("home").await.unwrap(),
            "DEL" => drop(server.cli(&["DEL", "home"])),
            _ => drop(server.cli(&["FLUSHALL"])),
        }
        common::eventually(change, async || value(&keeps, next).await == next).await;
        assert_eq!(value(&other, 99).await, next);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_invalidation_is_seen_at_once() {
    let server = RedisServer::start();
    let (keeps, _) = two(&server, 3_600 * SECOND).await;
    for round in 0..200 {
        assert_eq!(value(&keeps, round).await, round);
        assert_eq!(value(&keeps, 1_000).await, round);
        keeps.invalidate("home").await.unwrap();
    }
}

/// On `local:`, no push says what another cache of the client did.
#[tokio::test]
async fn an_invalidation_through_another_cache_is_seen_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("local:{}/cache.db", dir.path().display());
    let client = Client::connect(&url).await.unwrap();
    let keeps = Cache::in_process(&client, 1_000_000, 3_600 * SECOND);
    let other = Cache::new(&client);
    for round in 0..20 {
        assert_eq!(value(&keeps, round).await, round);
        settled(&other, round).await;
        assert_eq!(value(&keeps, 1_000).await, round);
        other.invalidate("home").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_kept_outlives_a_connection() {
    let server = RedisServer::start();
    let (keeps, other) = two(&server, 3_600 * SECOND).await;
    assert_eq!(value(&keeps, 1).await, 1);
    settled(&other, 1).await;
    is_kept(&server, &keeps, 1).await;
    // The type `pubsub` means every connection with a subscription. The command repeats, because a client may connect just then.
    eventually(LONG, "both are cut off", || {
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).int() >= 2
    });
    // No client is connected now, so the server can notify none of this deletion.
    server.cli(&["DEL", "home"]);
    common::eventually("the deletion is noticed", async || {
        let loader = || async { Ok::<u32, String>(3) };
        let got = keeps.get_or_refresh("home", loader).must_be_fresh().await;
        // A request may fail while there is no connection.
        got.is_ok_and(|got| *got == 3)
    })
    .await;
    // The client keeps values again, after the new connection has subscribed to notifications.
    settled(&other, 3).await;
    is_kept(&server, &keeps, 3).await;
}

#[test]
fn push_is_heard_though_runtime_of_client_is_gone() {
    let server = RedisServer::start();
    for blocks in [true, false] {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (cache, other) = executor.block_on(async {
            server.cli(&["FLUSHALL"]);
            let (cache, other) = two(&server, 3_600 * SECOND).await;
            assert_eq!(value(&cache, 1).await, 1);
            settled(&other, 1).await;
            is_kept(&server, &cache, 1).await;
            (cache, other)
        });
        // The server accepts no new connection now. So the notification must come over the existing one.
        server.cli(&["CONFIG", "SET", "maxclients", "1"]);
        if !blocks {
            drop(executor);
        }
        testkit::block_on(other.invalidate("home")).unwrap();
        eventually(LONG, "what was kept is dropped", || {
            let seen = testkit::block_on(cache.get::<u32>("home")).unwrap();
            seen.is_none_or(|got| got.origin() != Origin::Fresh)
        });
        server.cli(&["CONFIG", "SET", "maxclients", "1000"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_kept_where_client_tracking_is_refused() {
    let server = RedisServer::start();
    for words in [
        "ERR this plan has no CLIENT TRACKING",
        "NOPERM this user has no permissions to run the 'client|tracking' command",
        "CLIENT TRACKING: DENIED",
    ] {
        server.cli(&["FLUSHALL"]);
        let proxy = FaultProxy::start(server.port());
        proxy.deny("CLIENT TRACKING", words);
        let builder = Client::builder().request_timeout(LONG);
        let client = builder.connect(&proxy.url()).await.unwrap();
        let keeps = Cache::in_process(&client, 1_000_000, 3_600 * SECOND);
        for round in [1, 2] {
            common::eventually(words, async || value(&keeps, round).await == round).await;
            settled(&keeps, round).await;
            is_kept(&server, &keeps, round).await;
            // A new connection goes without as well. No push tells of the change meanwhile.
            server.cli(&["DEL", "home"]);
            proxy.cut();
        }
    }
}

/// The server would agree to track, and could push nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_kept_without_tracking_where_resp3_is_refused() {
    let server = RedisServer::builder()
        .args(["--rename-command", "HELLO", ""])
        .start();
    let builder = Client::builder().request_timeout(LONG);
    let client = builder.connect(&server.url()).await.unwrap();
    let keeps = Cache::in_process(&client, 1_000_000, 3_600 * SECOND);
    assert_eq!(value(&keeps, 1).await, 1);
    settled(&keeps, 1).await;
    is_kept(&server, &keeps, 1).await;
    let sent = server.cli(&["INFO", "commandstats"]).text();
    assert!(!sent.contains("cmdstat_client|tracking"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_pushes_is_kept_for_its_bound() {
    let fleet = Fleet::new();
    let cache = Cache::in_process(&fleet.client(), 1_000_000, 5 * SECOND);
    assert_eq!(value(&cache, 1).await, 1);
    assert_eq!(value(&cache, 2).await, 1);
    // The store loses all data without a notification.
    fleet.memory.clear();
    sleep(5 * SECOND).await;
    assert_eq!(fleet.read(&cache).await, (1, Origin::Fresh));
    sleep(SECOND).await;
    assert_eq!(fleet.read(&cache).await, (1, Origin::Loaded));
}
