//! Locks that stay taken for a while after their use (at-least time). They are never freed sooner, and this never makes the work a loss.

use std::time::Duration;

use leasehold::timestamp::Unit;
use leasehold::{Client, Error};
use testkit::{FaultProxy, RedisServer, eventually};
use tokio::time::timeout;

use crate::{LONG, TTL, UNITS, now, take, value};

async fn connect(proxy: &FaultProxy) -> Client {
    let builder = Client::builder().request_timeout(Duration::from_millis(400));
    builder.connect(&proxy.url()).await.unwrap()
}

fn deadline(server: &RedisServer) -> u64 {
    value(server, "k").expect("it is kept").parse().unwrap()
}

/// The server's clock in units.
fn time(server: &RedisServer, unit: Unit) -> u64 {
    let time = server.cli(&["TIME"]);
    let number = |at: usize| u64::try_from(time.array()[at].int()).unwrap();
    unit.at(number(0) * 1_000_000 + number(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_rest_over_a_slow_link_is_no_loss() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        take(&lock).await.release().await.unwrap();
        proxy.delay(Duration::from_millis(60));
        let hold = take(&lock).await;
        hold.release_after(Duration::from_millis(100))
            .await
            .unwrap();
        proxy.delay(Duration::ZERO);
        // The lock stays taken for at most the requested time, rounded up by the protocol. On a slow host the time may be over, and the
        // lock free.
        let most = time(&server, unit) + unit.whole(Duration::from_millis(1_050)) + 1;
        let kept = value(&server, "k").map(|deadline| deadline.parse::<u64>().unwrap());
        assert!(
            kept.is_none_or(|deadline| deadline <= most),
            "{kept:?} {most}"
        );
        eventually(LONG, "its end", || {
            time(&server, unit) > kept.unwrap_or_default()
        });
        take(&lock).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_store_is_asked_again_and_lock_is_kept() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        let hold = take(&lock).await;
        let (before, dials) = (deadline(&server), proxy.accepted());
        proxy.refuse(true);
        proxy.cut();
        let keeping = tokio::spawn(hold.release_after(TTL / 3));
        eventually(LONG, "it is tried", || proxy.accepted() > dials + 2);
        assert!(!keeping.is_finished());
        assert_eq!(deadline(&server), before);
        proxy.refuse(false);
        timeout(LONG, keeping).await.unwrap().unwrap().unwrap();
        let rest = deadline(&server) - time(&server, unit);
        assert!(rest <= unit.whole(TTL / 3) + 1, "{rest}");
        server.cli(&["DEL", "k"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_answer_is_lost_is_kept_and_not_freed() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    // The server knows the script from here on.
    hold.extend(TTL).await.unwrap();
    let before = deadline(&server);
    let called = time(&server, Unit::Seconds);
    proxy.swallow_replies(true);
    // The caller stops waiting, and the request goes on.
    let keeping = hold.release_after(TTL / 3);
    assert!(timeout(Duration::from_millis(600), keeping).await.is_err());
    eventually(LONG, "it was carried out", || deadline(&server) < before);
    let carried_out = time(&server, Unit::Seconds);
    proxy.swallow_replies(false);
    proxy.cut();
    client.close().await;
    // Each attempt rounds the remaining time. So its deadline may be a second before or after the previous one.
    let kept = Unit::Seconds.whole(TTL / 3) + 1;
    let ends = called + kept..=carried_out + kept + 1;
    assert!(ends.contains(&deadline(&server)), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_is_left_to_the_deadline_that_it_has() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    let lock = client.timestamp_lock("k").ttl(Duration::from_secs(1));
    let hold = take(&lock).await;
    let before = value(&server, "k");
    proxy.refuse(true);
    proxy.cut();
    let kept = timeout(LONG, hold.release_after(TTL)).await.unwrap();
    // This is no loss, since the client held the lock during the work.
    assert!(matches!(kept, Err(Error::Store(_))), "{kept:?}");
    proxy.refuse(false);
    client.close().await;
    assert_eq!(value(&server, "k"), before);
}

#[tokio::test]
async fn what_was_lost_cannot_be_kept() {
    let server = crate::frozen();
    let client = crate::connect(&server.url()).await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL)).await;
    let theirs = (now(&server, Unit::Seconds) + 90).to_string();
    server.cli(&["SET", "k", &theirs]);
    let kept = hold.release_after(TTL).await;
    assert!(matches!(kept, Err(Error::Lost(_))), "{kept:?}");
    assert_eq!(value(&server, "k"), Some(theirs));
}
