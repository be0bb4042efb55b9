//! The renewals of a hold, and every way in which it ends.

use std::time::Duration;

use leasehold::{Clock, Error, LossCause};
use testkit::{RedisServer, eventually};
use tokio::time::timeout;

use crate::recipe::Plain;
use crate::{LONG, TTL, UNITS, connect, frozen, take, value};

#[tokio::test]
async fn t6_a_hold_counts_from_before_it_was_asked_for() {
    let server = RedisServer::start();
    let proxy = testkit::FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        take(&lock).await.release().await.unwrap();
        let late = Duration::from_millis(400);
        proxy.delay(late);
        let clock = Clock::system();
        let sent = clock.now();
        let hold = take(&lock).await;
        proxy.delay(Duration::ZERO);
        let relied_on = hold.valid_until().since(sent);
        let certain = (TTL * 99 / 100).saturating_sub(Duration::from_millis(2));
        assert!(relied_on < certain + late, "{relied_on:?}");
        assert!(hold.valid_for() + late / 2 < certain);
        hold.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_a_hold_renews_itself_until_it_is_given_back() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    for unit in UNITS {
        let ttl = Duration::from_millis(1500);
        let lock = client.timestamp_lock("k").ttl(ttl).unit(unit);
        let hold = take(&lock).await;
        let first = hold.valid_until();
        let clock = Clock::system();
        eventually(LONG, "it is renewed twice", || {
            hold.valid_until().since(first) > ttl / 2
        });
        // Waits until the first deadline has passed.
        clock_reaches(&clock, first).await;
        assert!(!hold.is_lost());
        // A renewal may come between the two reads.
        let written: u64 = value(&server, "k").unwrap().parse().unwrap();
        eventually(LONG, "it knows", || hold.deadline() >= written);
        hold.release().await.unwrap();
        assert_eq!(value(&server, "k"), None);
        tokio::time::sleep(ttl / 2).await;
        assert_eq!(value(&server, "k"), None, "nothing renews it any more");
    }
}

async fn clock_reaches(clock: &Clock, moment: leasehold::Moment) {
    tokio::time::sleep(moment.since(clock.now())).await;
}

#[tokio::test]
async fn t6_without_renewal_it_is_lost_at_its_deadline() {
    let server = frozen();
    let client = connect(&server.url()).await;
    // A request may take a third of this TTL.
    let ttl = Duration::from_millis(900);
    let lock = client.timestamp_lock("k").ttl(ttl).auto_renew(false);
    let hold = take(&lock).await;
    // The server's clock stands still, so only the client's clock shows the deadline.
    let lost = timeout(LONG, hold.lost()).await.expect("its time passes");
    assert_eq!(lost.cause, LossCause::Deadline(None));
    assert!(matches!(hold.extend(TTL).await, Err(Error::Lost(_))));
    assert!(matches!(hold.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn extending_by_hand_moves_the_deadline_both_ways() {
    let server = frozen();
    let client = connect(&server.url()).await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        let hold = take(&lock).await;
        let first = hold.deadline();
        for (ttl, later) in [(2 * TTL, true), (TTL / 2, false)] {
            hold.extend(ttl).await.unwrap();
            assert_eq!(hold.deadline() > first, later);
            assert!(hold.valid_for() < ttl && hold.valid_for() > ttl * 9 / 10);
            assert_eq!(value(&server, "k"), Some(hold.deadline().to_string()));
        }
        assert!(matches!(
            hold.extend(Duration::ZERO).await,
            Err(Error::Invalid(_))
        ));
        hold.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_kept_ends_by_its_deadline() {
    let server = frozen();
    let client = connect(&server.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    take(&lock).await.release_after(TTL / 2).await.unwrap();
    let least = server.clock().now() / 1_000_000 + 16;
    client.close().await;
    let left: u64 = value(&server, "k").unwrap().parse().unwrap();
    // One second more if this host was slow.
    assert!((least..=least + 1).contains(&left), "{left}");
}

#[tokio::test]
async fn t5_a_server_clock_that_jumps_is_followed() {
    let server = frozen();
    let client = connect(&server.url()).await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL)).await;
    for jump in [20_i64, -15] {
        let to = server.clock().now().saturating_add_signed(jump * 1_000_000);
        server.clock().set(to);
        hold.extend(TTL).await.unwrap();
        // One second more if this host was slow.
        let least = to / 1_000_000 + 31;
        let written = hold.deadline();
        assert!((least..=least + 1).contains(&written), "{jump}: {written}");
    }
    hold.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_goes_away_leaves_it_free() {
    let server = frozen();
    let proxy = testkit::FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let free = || value(&server, "k").is_none();

    drop(take(&lock).await);
    eventually(LONG, "a dropped hold is released", free);

    // The caller drops the future after the client has sent the request, and before the reply.
    proxy.delay(Duration::from_millis(30));
    let mut asking = Box::pin(lock.acquire());
    let pending = futures_like::poll_once(asking.as_mut()).await;
    assert!(pending.is_none());
    drop(asking);
    proxy.delay(Duration::ZERO);
    let hold = lock.acquire_within(LONG).await.expect("nobody hears of it");
    hold.release().await.unwrap();

    // The caller drops the future while the client waits.
    let mut theirs = Plain::new(&server, leasehold::timestamp::Unit::Seconds);
    let deadline = theirs.lock("k", 30).unwrap();
    assert!(
        timeout(Duration::from_millis(120), lock.acquire())
            .await
            .is_err()
    );
    theirs.unlock("k", deadline);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(free(), "nobody waits any more");

    let hold = take(&lock).await;
    client.close().await;
    assert!(free());
    assert_eq!(hold.loss().unwrap().cause, LossCause::Closed);
    assert!(matches!(lock.try_acquire().await, Err(Error::Store(_))));
}

mod futures_like {
    use std::future::{Future, poll_fn};
    use std::pin::Pin;
    use std::task::Poll;

    /// The output of a future at its first poll, if it is ready.
    pub(super) async fn poll_once<F: Future + ?Sized>(
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}
