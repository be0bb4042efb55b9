//! Another server answers a client that has only timestamp locks. The client doubts them, checks them at once, and reports a loss with its
//! reason.

use std::time::Duration;

use leasehold::timestamp::TimestampHold;
use leasehold::{LossCause, Lost, Replaced};
use testkit::{FaultProxy, RedisServer, eventually};
use tokio::time::timeout;

use crate::{LONG, UNITS, connect, take, value};

/// A TTL whose first renewal, after a third, is later than any test waits.
const HOUR: Duration = Duration::from_secs(3600);

async fn lost_by_verdict(hold: &TimestampHold) -> Lost {
    let lost = timeout(LONG, hold.lost()).await.expect("it is told");
    println!("{lost}");
    assert!(matches!(lost.cause, LossCause::NotHeld(_)), "{lost}");
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_data_is_asked_at_once() {
    for unit in UNITS {
        for auto_renew in [true, false] {
            let server = RedisServer::start();
            let client = connect(&server.url()).await;
            let lock = client.timestamp_lock("k").ttl(HOUR).unit(unit);
            let hold = take(&lock.clone().auto_renew(auto_renew)).await;
            server.restart();
            let lost = lost_by_verdict(&hold).await;
            assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
            assert!(lost.to_string().contains("the server was replaced"));
            // The new server granted this hold itself, so its loss has another reason.
            let again = take(&lock).await;
            server.cli(&["DEL", "k"]);
            assert!(again.extend(HOUR).await.is_err());
            assert_eq!(again.loss().expect("it is lost").replaced, None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_took_over_is_asked_at_once() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder()
        .option("repl-diskless-sync-delay", "0")
        .replica_of(primary.port())
        .start();
    // A server draws another replication id when its first replica comes. The client has to read that one.
    replica.follows(LONG);
    let proxy = FaultProxy::start(primary.port());
    let client = connect(&proxy.url()).await;
    let lock = |name: &str| client.timestamp_lock(name).ttl(HOUR);
    let kept = take(&lock("kept")).await;
    let plain = take(&lock("plain").without_scripts()).await;
    let lacking = take(&lock("lacking")).await;
    let granted_until = kept.valid_until().min(plain.valid_until());
    eventually(LONG, "the replica follows", || {
        ["kept", "plain", "lacking"].map(|name| value(&replica, name).is_some()) == [true; 3]
    });

    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    // Simulates that the write did not reach the replica.
    replica.cli(&["DEL", "lacking"]);
    proxy.redirect(replica.port());
    proxy.cut();
    let lost = lost_by_verdict(&lacking).await;
    assert_eq!(lost.replaced, Some(Replaced::Successor), "{lost}");
    for hold in [kept, plain] {
        eventually(LONG, "it is confirmed", || {
            hold.valid_until() > granted_until && hold.doubt().is_none()
        });
        hold.release().await.expect("held all the time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_server_is_not_asked() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let hold = take(&client.timestamp_lock("k").ttl(HOUR)).await;
    let granted_until = hold.valid_until();
    proxy.cut();
    // A reply proves that the client is connected again.
    eventually(LONG, "a new connection", || proxy.accepted() > 1);
    let other = client.timestamp_lock("other").ttl(HOUR);
    let answered = async { while other.try_acquire().await.is_err() {} };
    timeout(LONG, answered).await.expect("an answer");
    assert_eq!((hold.doubt(), hold.valid_until()), (None, granted_until));
}
