//! Standing in line.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Clock, Error, Who};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, look, on_every_store, stand_in_line, take};

async fn a_time_limit_names_who_holds_the_lock(place: Place) {
    let (a, b) = (place.client().await, place.client().await);
    let held = take(&a, "m").await;
    let limit = Duration::from_millis(60);
    let (clock, mutex) = (Clock::system(), b.mutex("m").ttl(TTL));
    let begun = clock.now();
    let error = mutex.acquire_within(limit).await.expect_err("it is held");
    assert!(clock.now().since(begun) >= limit);
    let text = error.to_string();
    let Error::Timeout(refused) = error else {
        panic!("{error:?}")
    };
    assert_eq!((refused.name.as_str(), refused.ahead), ("m", 0));
    assert!(refused.waited >= limit);
    let holder = refused.holder.expect("it was seen");
    assert_eq!(holder.fence, Some(held.fence()));
    assert_eq!(holder.who, Who::Owner(held.owner().clone()));
    assert!(text.contains(&held.owner().to_string()), "{text}");
    held.release().await.expect("it is held");
    let freed = timeout(LONG, mutex.acquire()).await.expect("nobody waits");
    drop(freed.expect("nobody waits"));
}

async fn a_free_lock_is_had_at_once_however_short_the_limit(place: Place) {
    let client = place.client().await;
    let mutex = client.mutex("m").ttl(TTL);
    drop(mutex.acquire_within(LONG).await.expect("it is free"));
}

/// Five tasks come one after the other, and are served one after the other.
async fn served_in_order(place: Place, clients: [usize; 5]) {
    let operator = place.client().await;
    let both = [place.client().await, place.client().await];
    let held = take(&operator, "m").await;
    let mut waiting = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let mutex = both[client].mutex("m").ttl(TTL);
        stand_in_line(&mut waiting, number, mutex).await;
        assert_eq!(look(&operator, "m").await.queue.len(), number + 1);
    }
    let mut last = held.fence();
    held.release().await.expect("it is held");
    for turn in 0..clients.len() {
        let next = timeout(LONG, waiting.join_next()).await;
        let (number, lease) = next
            .expect("a release wakes the next")
            .expect("five came")
            .expect("no task panics");
        let lease = lease.expect("its turn");
        assert_eq!(number, turn);
        assert!(lease.fence() > last && !lease.is_lost());
        last = lease.fence();
        lease.release().await.expect("it is held");
    }
    assert!(look(&operator, "m").await.queue.is_empty());
}

async fn tasks_of_two_clients_are_served_in_order(place: Place) {
    served_in_order(place, [0, 1, 1, 0, 1]).await;
}

async fn tasks_of_one_client_are_served_in_order(place: Place) {
    served_in_order(place, [0; 5]).await;
}

async fn nobody_holds_together_with_another(place: Place) {
    let clients = [place.client().await, place.client().await];
    let inside = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let mutex = clients[task % 2].mutex("m").ttl(TTL);
        let inside = inside.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let lease = mutex.acquire().await.expect("its turn");
                {
                    let alone = inside.try_lock();
                    let mut count = alone.expect("nobody else is inside");
                    *count += 1;
                    std::thread::yield_now();
                }
                lease.release().await.expect("it is held");
            }
        });
    }
    timeout(LONG, tasks.join_all())
        .await
        .expect("all are served");
    assert_eq!(*inside.lock().expect("nobody panicked"), 60);
}

async fn who_waits_is_told_for_whom_and_behind_how_many(place: Place) {
    let (a, b) = (place.client().await, place.client().await);
    let held = take(&a, "m").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, a.mutex("m").ttl(TTL)).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mutex = b.mutex("m").ttl(TTL);
    let mutex = mutex.on_wait(move |waiting| {
        tell.lock().expect("nobody panicked").push(waiting.clone());
    });
    let limit = Duration::from_millis(60);
    mutex.acquire_within(limit).await.expect_err("it is held");
    let told = told.lock().expect("nobody panicked");
    let first = told.first().expect("it was told");
    assert_eq!((first.name.as_str(), first.ahead), ("m", 1));
    assert_eq!(first.holder.fence, Some(held.fence()));
}

on_every_store! {
    a_time_limit_names_who_holds_the_lock
    a_free_lock_is_had_at_once_however_short_the_limit
    tasks_of_two_clients_are_served_in_order
    tasks_of_one_client_are_served_in_order
    nobody_holds_together_with_another
    who_waits_is_told_for_whom_and_behind_how_many
}
