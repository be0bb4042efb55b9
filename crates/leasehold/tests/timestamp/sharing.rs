//! Leasehold and plain clients exclude each other on one key.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leasehold::timestamp::Unit;
use leasehold::{Error, LossCause};
use testkit::{RedisServer, RespConn};
use tokio::time::timeout;

use crate::common::lost;
use crate::recipe::Plain;
use crate::{LONG, TTL, UNITS, connect, now, scene, take, timed_scene, value};

#[tokio::test]
async fn each_keeps_the_other_out_until_it_releases() {
    let (server, client) = scene().await;
    for (unit, ours) in UNITS.map(|unit| (unit, client.timestamp_lock("k").ttl(TTL).unit(unit))) {
        let mut theirs = Plain::new(&server, unit);
        for lock in [ours.clone(), ours.without_scripts()] {
            let hold = take(&lock).await;
            let written = now(&server, unit) + unit.whole(TTL) + 1;
            assert_eq!(value(&server, "k"), Some(written.to_string()), "{unit:?}");
            assert_eq!(hold.deadline(), written);
            assert_eq!(theirs.lock("k", 30), None, "{unit:?}");
            assert!(lock.try_acquire().await.unwrap().is_none());
            hold.release().await.unwrap();
            assert_eq!(value(&server, "k"), None);

            let deadline = theirs.lock("k", unit.whole(TTL)).expect("it is free");
            assert_eq!(deadline, written);
            assert!(lock.try_acquire().await.unwrap().is_none());
            assert_eq!(value(&server, "k"), Some(deadline.to_string()));
            theirs.unlock("k", deadline);
            take(&lock).await.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn t4_passed_deadline_may_be_taken_and_loss_is_noticed() {
    let (server, client) = scene().await;
    let mut theirs = Plain::new(&server, Unit::Seconds);
    for lock in [
        client.timestamp_lock("k"),
        client.timestamp_lock("k").without_scripts(),
    ] {
        let lock = lock.ttl(TTL).auto_renew(false);
        let [first, second] = [take(&lock).await, {
            server.clock().advance(TTL + Duration::from_secs(3));
            take(&lock).await
        }];
        // Another hold of Leasehold has the key now. The first hold neither extends nor frees it.
        lost(first.extend(TTL).await);
        assert!(first.is_lost() && first.valid_for().is_zero());
        drop(first);
        assert_eq!(value(&server, "k"), Some(second.deadline().to_string()));

        server.clock().advance(TTL + Duration::from_secs(3));
        let deadline = theirs.lock("k", 30).expect("it has passed");
        let lost = lost(second.release().await);
        assert!(matches!(lost.cause, LossCause::NotHeld(Some(_))), "{lost}");
        assert_eq!(value(&server, "k"), Some(deadline.to_string()));
        theirs.unlock("k", deadline);
    }
}

#[tokio::test]
async fn t4_ones_own_deadline_that_passed_is_left_alone() {
    let (server, client) = scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL).auto_renew(false);
    let hold = take(&lock).await;
    server.clock().set(hold.deadline() * 1_000_000);
    let deadline = hold.deadline().to_string();
    let lost = lost(hold.release().await);
    assert_eq!(lost.cause, LossCause::Deadline(None));
    assert_eq!(value(&server, "k"), Some(deadline));
}

#[tokio::test]
async fn a_foreign_getset_over_our_deadline_is_a_loss() {
    let (server, time, client) = timed_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    let mut late = Plain::new(&server, Unit::Seconds);
    assert_eq!(late.take_over("k", 60), None, "it came too late, and knows");
    let written = value(&server, "k");
    assert!(!hold.is_lost());
    // The client notices the loss at its next renewal, without a call of the holder.
    time.pass(TTL / 3);
    let lost = timeout(LONG, hold.lost()).await.expect("it notices");
    assert!(matches!(lost.cause, LossCause::NotHeld(Some(_))), "{lost}");
    drop(hold);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(value(&server, "k"), written);
}

#[tokio::test]
async fn a_waiter_is_told_of_it_and_has_it_soon_after_its_release() {
    let (server, client) = scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let mut theirs = Plain::new(&server, Unit::Seconds);
    let deadline = theirs.lock("k", 30).expect("it is free");
    let limit = Duration::from_millis(120);
    let refused = lock.acquire_within(limit).await;
    let Err(Error::Timeout(timed_out)) = refused else {
        panic!("{refused:?}");
    };
    assert!(timed_out.waited >= limit && timed_out.name == "k");
    let seen = timed_out.holder.expect("somebody holds it");
    assert_eq!(seen.expires_in.map(|left| left.as_secs()), Some(32));

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let lock = lock.on_wait(move |waiting| {
        tell.send(waiting.clone()).unwrap();
        panic!("it is not called again");
    });
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let heard = timeout(LONG, told.recv()).await.unwrap().unwrap();
    assert_eq!((heard.name.as_str(), heard.ahead), ("k", 0));
    assert_eq!(heard.holder.expires_in.map(|left| left.as_secs()), Some(32));
    theirs.unlock("k", deadline);
    let hold = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(told.try_recv().is_err());
    hold.release().await.unwrap();
}

/// Reads, computes and writes: two concurrent calls lose an update.
fn add_one(connection: &mut RespConn) {
    let seen = connection.command(&["GET", "sum"]);
    let seen = if seen.is_nil() { 0 } else { seen.int() };
    thread::yield_now();
    connection.command(&["SET", "sum", &(seen + 1).to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_both_sides_raise_loses_nothing() {
    const TURNS: i64 = 100;
    let server = Arc::new(RedisServer::start());
    let foreign: Vec<_> = (0..2)
        .map(|_| {
            let server = server.clone();
            thread::spawn(move || {
                let mut counter = server.connection();
                let mut lock = Plain::in_real_time(&server, Unit::Seconds);
                for _ in 0..TURNS {
                    let deadline = loop {
                        if let Some(deadline) = lock.lock("k", 60) {
                            break deadline;
                        }
                        thread::yield_now();
                    };
                    add_one(&mut counter);
                    lock.unlock("k", deadline);
                }
            })
        })
        .collect();
    let client = connect(&server.url()).await;
    let mut ours = tokio::task::JoinSet::new();
    for lock in [
        client.timestamp_lock("k"),
        client.timestamp_lock("k").without_scripts(),
    ] {
        let mut counter = server.connection();
        ours.spawn(async move {
            for _ in 0..TURNS {
                let hold = loop {
                    if let Some(hold) = lock.try_acquire().await.unwrap() {
                        break hold;
                    }
                    tokio::task::yield_now().await;
                };
                add_one(&mut counter);
                hold.release().await.unwrap();
            }
        });
    }
    ours.join_all().await;
    for thread in foreign {
        thread.join().unwrap();
    }
    assert_eq!(server.cli(&["GET", "sum"]).int(), 4 * TURNS);
}
