//! Detached leases: a program with the token can renew, check and release them.

use std::time::Duration;

use leasehold::{Client, Clock, Detached, LeaseStatus, LossCause, Owner};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{
    LONG, Place, TTL, all_nodes_show, eventually, invalid, look, lost, on_every_store,
    stand_in_line, take,
};

const MS: Duration = Duration::from_millis(1);

/// Takes "m" with a client that is closed then, and returns the token.
async fn left_behind(place: &Place, ttl: Duration) -> (String, u64) {
    let client = place.client().await;
    let lease = take(&client, "m").await;
    let fence = lease.fence();
    let (detached, status) = lease.detach(ttl).await.expect("it was held");
    assert_eq!((detached.name(), status.fence), ("m", fence));
    assert!(left(status) <= ttl);
    client.close().await;
    (detached.token().to_owned(), fence.get())
}

fn left(status: LeaseStatus) -> Duration {
    status.valid_until.since(Clock::system().now())
}

async fn busy(client: &Client) -> bool {
    let answer = client.mutex("m").try_acquire().await;
    answer.expect("the store answers").is_none()
}

/// Waits until all requests of this client so far are answered. Time that passes before would end them, and then the connection.
async fn has_its_answers(client: &Client) {
    all_nodes_show(client, "m", "it is answered", |_| true).await;
}

async fn detached_lease_outlives_client_and_is_found_by_token(place: Place) {
    let (a, b) = place.two().await;
    let (token, fence) = left_behind(&place, TTL).await;
    assert!(busy(&b).await);
    let detached = a.detached("m", &token).expect("it is a token");
    let seen = detached.check().await.expect("it is held");
    assert_eq!(seen.fence.get(), fence);
    assert!(left(seen) <= TTL);
    let renewed = detached.renew(TTL * 4).await.expect("it is held");
    assert!(left(renewed) > TTL * 3);
    assert_eq!(renewed.fence, seen.fence);
    assert!(left(detached.check().await.expect("it is held")) > TTL * 3);
    detached.clone().release().await.expect("it is held");
    take(&b, "m").await.release().await.expect("it is free");
    // A second release has nothing to release, and reports this.
    assert_eq!(
        lost(detached.release().await).cause,
        LossCause::NotHeld(None)
    );
}

async fn nobody_renews_a_detached_lease_and_it_is_never_taken_again(place: Place) {
    let (place, time, [a, b]) = place.in_test_time().await;
    let lease = take(&a, "m").await;
    let (detached, _) = lease.detach(TTL).await.expect("it was held");
    // The client that took the lock is still alive. It must let the lease end.
    has_its_answers(&a).await;
    time.pass(TTL / 2);
    tokio::time::sleep(MS * 100).await;
    let holder = look(&b, "m").await.holder.expect("it is held");
    assert!(holder.expires_in < Some(MS * 29_950), "{holder:?}");
    has_its_answers(&a).await;
    time.pass(TTL);
    place.expire_at_servers("m").await;
    assert!(look(&b, "m").await.holder.is_none());
    for answer in [detached.renew(TTL).await, detached.check().await] {
        assert_eq!(lost(answer).cause, LossCause::NotHeld(None));
    }
    let next = b.mutex("m").ttl(TTL).try_acquire().await;
    let next = next.expect("the store answers").expect("nobody holds it");
    let LossCause::NotHeld(Some(holder)) = lost(detached.renew(TTL).await).cause else {
        panic!("it is held")
    };
    assert_eq!(holder.fence, Some(next.fence()));
    lost(detached.release().await);
    assert!(!next.is_lost());
    next.release().await.expect("nobody else touched it");
}

async fn a_detached_lease_does_not_go_to_the_next_task_here(place: Place) {
    let (a, b) = place.two().await;
    let lease = a.mutex("m").ttl(TTL).linger(TTL).acquire().await;
    let lease = lease.expect("it is free");
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, a.mutex("m").ttl(TTL)).await;
    let (first, owner, token) = (lease.fence(), lease.owner().clone(), lease.token());
    let (detached, _) = lease.detach(TTL).await.expect("it was held");
    assert_eq!(detached.token(), token);
    assert_eq!(
        Owner::parse_with_fence(&token),
        Some((owner.clone(), first))
    );
    assert!(busy(&a).await && busy(&b).await);
    let elsewhere = b.detached("m", &token).expect("it is a token");
    elsewhere.release().await.expect("it is held");
    let next = timeout(LONG, waiting.join_next()).await;
    let next = next.expect("it is its turn").expect("one waits");
    let next = next.expect("no panic").1.expect("it is free");
    assert!(next.fence() > first && *next.owner() != owner);
    next.release().await.expect("it is held");
}

async fn a_broken_or_wrong_one_is_lost(place: Place) {
    let (a, b) = place.two().await;
    let (token, _) = left_behind(&place, TTL).await;
    let detached = a.detached("m", &token).expect("it is a token");
    let wrong = a.detached("n", &token).expect("it is a token");
    assert_eq!(lost(wrong.renew(TTL).await).cause, LossCause::NotHeld(None));
    assert_eq!(lost(wrong.check().await).cause, LossCause::NotHeld(None));
    lost(wrong.release().await);
    assert!(look(&b, "n").await.holder.is_none());
    detached.check().await.expect("as it was");

    let holder = look(&b, "m").await.holder.expect("it is held");
    let fence = holder.fence.expect("it has one");
    assert!(b.break_lock("m", fence).await.expect("the store answers"));
    assert_eq!(
        lost(detached.renew(TTL).await).cause,
        LossCause::NotHeld(None)
    );
    assert!(look(&b, "m").await.holder.is_none(), "not taken again");
    lost(detached.release().await);
}

async fn a_lease_that_is_lost_is_not_detached(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    assert!(b.break_lock("m", lease.fence()).await.expect("it answers"));
    lost(lease.detach(TTL).await);
    assert!(!busy(&b).await);
}

async fn what_cannot_be_used_is_refused(place: Place) {
    let client = place.client().await;
    let (token, _) = left_behind(&place, TTL).await;
    let detached = client.detached("m", &token).expect("it is a token");
    for ttl in [Duration::ZERO, Duration::MAX] {
        invalid(detached.renew(ttl).await);
    }
    for (token, shown) in [
        ("", "\"\""),
        ("S3CR3T", "\"...\""),
        ("lh1.S3CR3T", "\"lh1....\""),
    ] {
        let refused: Result<Detached, _> = client.detached("m", token);
        let text = refused.expect_err("it is none").to_string();
        assert!(text.contains(shown) && !text.contains("S3CR3T"), "{text}");
        assert!(text.contains(&format!("{} bytes", token.len())), "{text}");
    }
    let owner = token.split('#').next().expect("it has a fence");
    for cut_off in [owner.to_owned(), format!("{owner}#")] {
        let refused = client.detached("m", &cut_off);
        let text = refused.expect_err("it has no fence").to_string();
        assert!(text.contains("has no fence at its end"), "{text}");
    }
    let lease = take(&client, "n").await;
    invalid(lease.detach(Duration::ZERO).await);
    eventually("it is free", async || {
        look(&client, "n").await.holder.is_none()
    })
    .await;
}

on_every_store! {
    detached_lease_outlives_client_and_is_found_by_token
    nobody_renews_a_detached_lease_and_it_is_never_taken_again
    a_detached_lease_does_not_go_to_the_next_task_here
    a_broken_or_wrong_one_is_lost
    a_lease_that_is_lost_is_not_detached
    what_cannot_be_used_is_refused
}
