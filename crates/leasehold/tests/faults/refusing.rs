//! A server that is up and refuses writes for a while: replicas are missing, a save failed, or the server was demoted. And a server or
//! proxy that refuses, for good and in words of its own, what locks can do without.

use leasehold::{Error, Lease, StoreErrorKind};
use testkit::{FaultProxy, RedisServer, ReservedPort, eventually};

use crate::scene::{
    LONG, PLENTY, connect, has_its_turn, is_free, joined, queue_up, refused, set, take, within,
};

/// Checks that a renewal fails with `kind`, and that after `set_back` the lease is held as before.
async fn doubtful_until(
    lease: &Lease,
    kind: StoreErrorKind,
    server: &RedisServer,
    set_back: impl FnOnce(),
) {
    let host = format!("redis://127.0.0.1:{}", server.port());
    let failed = async {
        loop {
            let failed = lease.extend(LONG).await;
            // The client may connect again first, since the server was demoted.
            let connects = matches!(&failed, Err(Error::Store(error)) if error.kind == StoreErrorKind::Unreachable);
            if !connects {
                return failed;
            }
        }
    };
    refused(within("a verdict", failed).await, kind, &host);
    assert!(lease.is_doubtful() && !lease.is_lost());
    set_back();
    eventually(PLENTY, "it is renewed", || !lease.is_doubtful());
    assert!(!lease.is_lost());
    within("a verdict", lease.extend(LONG))
        .await
        .expect("held as before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_missing() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = take(&one, "orders", LONG).await;
    let waiter = queue_up(&server, &two, "orders", LONG);
    let demand = |replicas| set(&server, "min-replicas-to-write", replicas);
    demand("1");
    doubtful_until(&lease, StoreErrorKind::Unavailable, &server, || {
        demand("0");
    })
    .await;

    assert!(!waiter.is_finished() && !lease.is_lost());
    lease.release().await.expect("held all the time");
    has_its_turn(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saving_failed() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = RedisServer::builder()
        .option("dir", dir.path().to_str().expect("a path in UTF-8"))
        .arg("--save")
        .arg("3600")
        .arg("1000000")
        .start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", LONG).await;
    // Without the directory, the server cannot write the file, not even as root.
    dir.close().expect("remove the directory");
    server.cli(&["BGSAVE"]);
    eventually(PLENTY, "saving fails", || {
        let info = server.cli(&["INFO", "persistence"]).text();
        info.contains("rdb_last_bgsave_status:err")
    });
    let newcomer = within("a verdict", client.mutex("other").try_acquire()).await;
    let error = refused(newcomer, StoreErrorKind::Unavailable, "127.0.0.1");
    assert!(error.detail.contains("MISCONF"), "{error}");
    doubtful_until(&lease, StoreErrorKind::Unavailable, &server, || {
        set(&server, "stop-writes-on-bgsave-error", "no");
    })
    .await;
    lease.release().await.expect("held all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_demoted_and_promoted_again() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = take(&one, "orders", LONG).await;
    let waiter = queue_up(&server, &two, "orders", LONG);
    // The primary does not exist, so the new replica keeps its data.
    let reserved = ReservedPort::new();
    let nowhere = reserved.number().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &nowhere]);
    let newcomer = within("a verdict", two.mutex("other").try_acquire()).await;
    refused(newcomer, StoreErrorKind::ReadOnly, "127.0.0.1");
    doubtful_until(&lease, StoreErrorKind::ReadOnly, &server, || {
        server.cli(&["REPLICAOF", "NO", "ONE"]);
    })
    .await;
    assert!(!waiter.is_finished());
    lease.release().await.expect("held all the time");
    has_its_turn(waiter).await;
    assert!(is_free(&server, "orders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_place_for_locks() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    let refusal = within("a verdict", leasehold::Client::connect(&replica.url())).await;
    let host = format!("redis://127.0.0.1:{}", replica.port());
    let error = refused(refusal, StoreErrorKind::ReadOnly, &host);
    let where_to = format!("127.0.0.1:{}", primary.port());
    assert!(error.detail.contains(&where_to), "{error}");
}

/// What a lock can do without.
const OPTIONAL: [&str; 8] = [
    "ROLE",
    "INFO",
    "SCRIPT",
    "EVALSHA",
    "CLIENT SETINFO",
    "SUBSCRIBE",
    "PUBSUB",
    "PING",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_needed_may_be_refused_in_any_words() {
    let server = RedisServer::start();
    let words = [
        "ERR command 'X' not support for your account",
        "PERM this plan has no X",
        "NOPERM this user has no permissions to run the 'X' command",
        "ERR unknown command 'X'",
        "X: DENIED",
    ];
    let each = OPTIONAL.iter().map(std::slice::from_ref);
    for (number, refused) in each.chain([&OPTIONAL[..]]).enumerate() {
        let proxy = FaultProxy::start(server.port());
        for command in refused {
            let said = words[number % words.len()].replace('X', command);
            proxy.deny(command, &said);
        }
        let (one, two) = (connect(&proxy.url()).await, connect(&proxy.url()).await);
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(&server, &two, "orders", LONG);
        // A new connection goes without as well.
        proxy.cut();
        within("a renewal", async {
            while lease.extend(LONG).await.is_err() {}
        })
        .await;
        lease.release().await.expect("held all the time");
        let next = joined("the waiter's turn", waiter).await;
        let next = next.unwrap_or_else(|error| panic!("without {refused:?}: {error}"));
        next.release().await.expect("held");
        assert!(is_free(&server, "orders"), "{refused:?}");
    }
}
