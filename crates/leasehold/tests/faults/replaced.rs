//! Another server answers the client. The client doubts the grants of the old server and checks them at once. It reports a loss at once,
//! with the reason.

use std::time::Duration;

use leasehold::{Lost, Replaced};
use testkit::{FaultProxy, RedisServer, eventually};

use crate::scene::{PLENTY, connect, is_free, lost_by_verdict, take};

/// A TTL whose first renewal, after a third, is later than any test waits.
const HOUR: Duration = Duration::from_secs(3600);

#[track_caller]
fn says(lost: &Lost, how: Replaced) {
    assert_eq!(lost.replaced, Some(how), "{lost}");
    assert!(
        lost.to_string().contains("the server was replaced"),
        "{lost}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_data_is_asked_at_once() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", HOUR).await;
    server.restart();
    let lost = lost_by_verdict(&lease).await;
    println!("{lost}");
    says(&lost, Replaced::Other);
    // The new server granted this lease itself, so its loss has another reason.
    let again = take(&client, "orders", HOUR).await;
    server.cli(&["DEL", "orders"]);
    assert!(again.extend(HOUR).await.is_err());
    assert_eq!(again.loss().expect("it is lost").replaced, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_with_its_data_confirms_at_once() {
    let server = RedisServer::builder()
        .option("appendonly", "yes")
        .option("appendfsync", "always")
        .start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", HOUR).await;
    let granted_until = lease.valid_until();
    server.restart();
    eventually(PLENTY, "it is renewed", || {
        lease.valid_until() > granted_until
    });
    assert!(!lease.is_lost() && !lease.is_doubtful());
    lease.release().await.expect("held all the time");
    assert!(is_free(&server, "orders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_server_is_not_asked() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lease = take(&client, "orders", HOUR).await;
    let granted_until = lease.valid_until();
    proxy.cut();
    // A reply proves that the client is connected again.
    eventually(PLENTY, "a new connection", || proxy.accepted() > 1);
    drop(take(&client, "other", HOUR).await);
    assert!(!lease.is_doubtful());
    assert_eq!(lease.valid_until(), granted_until);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_took_over_is_asked_at_once() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder()
        .option("repl-diskless-sync-delay", "0")
        .replica_of(primary.port())
        .start();
    // A server draws another replication id when its first replica comes. The client has to read that one.
    replica.follows(PLENTY);
    let proxy = FaultProxy::start(primary.port());
    let client = connect(&proxy.url()).await;
    let (kept, lacking) = (
        take(&client, "kept", HOUR).await,
        take(&client, "lacking", HOUR).await,
    );
    let granted_until = kept.valid_until();
    let has = |name: &str| replica.cli(&["EXISTS", name]).int() == 1;
    eventually(PLENTY, "the replica follows", || {
        has("kept") && has("lacking")
    });

    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    // Simulates that the write did not reach the replica.
    replica.cli(&["DEL", "lacking"]);
    proxy.redirect(replica.port());
    proxy.cut();
    let lost = lost_by_verdict(&lacking).await;
    println!("{lost}");
    says(&lost, Replaced::Successor);
    eventually(PLENTY, "it is confirmed", || {
        kept.valid_until() > granted_until
    });
    assert!(!kept.is_doubtful());
    kept.release().await.expect("held all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_ask_which_server_it_is_confirms_each_time() {
    let server = RedisServer::start();
    let rules = ["ACL", "SETUSER", "default", "-info"];
    assert_eq!(server.cli(&rules).text(), "OK");
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lease = take(&client, "orders", HOUR).await;
    let granted_until = lease.valid_until();
    proxy.cut();
    eventually(PLENTY, "it is confirmed", || {
        lease.valid_until() > granted_until
    });
    assert!(!lease.is_doubtful() && !lease.is_lost());
}
