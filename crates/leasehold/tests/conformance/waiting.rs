//! Waiting in the queue.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Error, HolderIdentity};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{
    LONG, Place, TTL, all_nodes_show, eventually, look, on_every_store, out_of_time, passing,
    stand_in_line, take,
};

/// A time limit on the clock of the test.
const LIMIT: Duration = Duration::from_millis(900);

async fn a_time_limit_names_who_holds_the_lock(place: Place) {
    let (_place, time, [a, b]) = place.in_test_time().await;
    let held = take(&a, "m").await;
    let (_, refused) = out_of_time(b.mutex("m").ttl(TTL), LIMIT, &time).await;
    let error = refused.expect_err("it is held");
    let text = error.to_string();
    let Error::Timeout(refused) = error else {
        panic!("{error:?}")
    };
    assert_eq!((refused.name.as_str(), refused.ahead), ("m", 0));
    assert_eq!(refused.waited, LIMIT);
    let holder = refused.holder.expect("it was seen");
    assert_eq!(holder.fence, Some(held.fence()));
    assert_eq!(holder.who, HolderIdentity::Owner(held.owner().clone()));
    assert!(text.contains(&held.owner().to_string()), "{text}");
    held.release().await.expect("it is held");
    let mutex = b.mutex("m").ttl(TTL);
    let freed = passing(&time, "nobody waits", mutex.acquire()).await;
    drop(freed.expect("nobody waits"));
}

/// Tasks of these clients join the queue one after the other, and each client serves its tasks in that order. The store sees one waiter for
/// each client.
async fn served_in_order(place: Place, clients: &[usize]) {
    let operator = place.client().await;
    let both = [place.client().await, place.client().await];
    let held = take(&operator, "m").await;
    let mut waiting = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let mutex = both[*client].mutex("m").ttl(TTL);
        stand_in_line(&mut waiting, number, mutex).await;
        let contenders: HashSet<_> = clients[..=number].iter().collect();
        let queue = look(&operator, "m").await.queue;
        assert_eq!(queue.len(), contenders.len());
    }
    let mut last = held.fence();
    held.release().await.expect("it is held");
    let mut served: [Vec<usize>; 2] = Default::default();
    for _ in clients {
        let next = timeout(LONG, waiting.join_next()).await;
        let (number, lease) = next
            .expect("a release wakes the next")
            .expect("all came")
            .expect("no task panics");
        let lease = lease.expect("its turn");
        served[clients[number]].push(number);
        assert!(lease.fence() > last && !lease.is_lost());
        last = lease.fence();
        lease.release().await.expect("it is held");
    }
    assert!(
        served.iter().all(|numbers| numbers.is_sorted()),
        "{served:?}"
    );
    let is_empty = async || look(&operator, "m").await.queue.is_empty();
    if let Place::Quorum(..) = place {
        // A majority has confirmed the release, and the server with the queue may be the last one.
        eventually("the queue is empty", is_empty).await;
    } else {
        assert!(is_empty().await);
    }
}

async fn tasks_of_two_clients_are_served_in_order(place: Place) {
    served_in_order(place, &[0, 1, 1, 0, 1]).await;
}

async fn tasks_of_one_client_are_served_in_order(place: Place) {
    served_in_order(place, &[0; 5]).await;
}

/// While another client waits, a client hands the lock to at most sixteen of its own tasks.
async fn a_client_with_many_tasks_does_not_keep_another_waiting(place: Place) {
    let (many, one) = place.two().await;
    let held = take(&many, "m").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, one.mutex("m").ttl(TTL)).await;
    // One connection keeps the order: after this reply, the client knows that another client wants the lock.
    look(&many, "m").await;
    for number in 1..=40 {
        stand_in_line(&mut waiting, number, many.mutex("m").ttl(TTL)).await;
    }
    held.release().await.expect("it is held");
    for served in 0.. {
        let next = timeout(LONG, waiting.join_next()).await;
        let (number, lease) = next
            .expect("all are served")
            .expect("the other one is")
            .expect("no task panics");
        lease.expect("its turn").release().await.expect("held");
        if number == 0 {
            // There are fewer if fifty milliseconds have passed.
            assert!(served <= 16, "{served}");
            return;
        }
    }
}

async fn a_lock_does_not_linger_when_nobody_here_could_want_it(place: Place) {
    let (a, b) = place.two().await;
    let lingering = a.mutex("m").ttl(TTL).linger(TTL);
    let lease = lingering.acquire().await.expect("it is free");
    lease.release().await.expect("it is held");
    drop((lingering, a));
    let lease = timeout(TTL / 3, b.mutex("m").ttl(TTL).acquire()).await;
    let lease = lease.expect("long before the end").expect("its turn");
    lease.release().await.expect("it is held");
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
    let (_place, time, [a, b, c]) = place.in_test_time().await;
    let held = take(&a, "m").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, c.mutex("m").ttl(TTL)).await;
    let (first, refused) = out_of_time(b.mutex("m").ttl(TTL), LIMIT, &time).await;
    refused.expect_err("it is held");
    assert_eq!((first.name.as_str(), first.ahead), ("m", 1));
    assert_eq!(first.holder.fence, Some(held.fence()));
}

async fn who_waits_behind_its_own_is_told_without_a_request(place: Place) {
    let client = place.client().await;
    let held = take(&client, "m").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, client.mutex("m").ttl(TTL)).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mutex = client.mutex("m").ttl(TTL).on_wait(move |waiting| {
        tell.lock().expect("nobody panicked").push(waiting.clone());
    });
    assert!(mutex.try_acquire().await.expect("an answer").is_none());
    let limit = Duration::from_millis(60);
    let error = mutex.acquire_within(limit).await.expect_err("it is held");
    let Error::Timeout(refused) = error else {
        panic!("{error:?}")
    };
    let holder = refused.holder.expect("it is known");
    assert_eq!((holder.fence, refused.ahead), (Some(held.fence()), 1));
    let first = told.lock().expect("nobody panicked").first().cloned();
    let first = first.expect("it was told");
    assert_eq!((first.name.as_str(), first.ahead), ("m", 1));
    assert_eq!(
        first.holder.who,
        HolderIdentity::Owner(held.owner().clone())
    );
    let queue = look(&client, "m").await.queue;
    assert!(queue.is_empty(), "the store sees none of them: {queue:?}");
}

/// A client acquires a lingering lock again without a request. It gives the lock up when another client wants it.
async fn a_lock_lingers_until_another_client_wants_it(place: Place) {
    let (a, b) = place.two().await;
    let mutex = a.mutex("m").ttl(TTL).linger(LONG);
    let first = mutex.acquire().await.expect("it is free");
    let (owner, fence) = (first.owner().clone(), first.fence());
    // Otherwise the other client may get a late vote, and then waits in no queue.
    all_nodes_show(&b, "m", "its votes", |seen| {
        let holder = seen.holder.as_ref().and_then(|holder| holder.fence);
        holder == Some(fence)
    })
    .await;
    first.release().await.expect("it is held");
    let second = mutex.acquire().await.expect("it lingers");
    if place.tells_wanted() {
        assert_eq!(second.owner(), &owner, "the same stay");
        assert_eq!(second.fence().get(), fence.get() + 1);
    }
    assert!(second.fence() > fence);
    second.release().await.expect("it is held");
    let other = b.mutex("m").ttl(TTL);
    let theirs = timeout(LONG / 2, other.acquire());
    let theirs = theirs.await.expect("it is given up").expect("free");
    assert!(theirs.fence() > fence);
}

on_every_store! {
    a_time_limit_names_who_holds_the_lock
    tasks_of_two_clients_are_served_in_order
    a_client_with_many_tasks_does_not_keep_another_waiting
    tasks_of_one_client_are_served_in_order
    nobody_holds_together_with_another
    who_waits_is_told_for_whom_and_behind_how_many
    who_waits_behind_its_own_is_told_without_a_request
    a_lock_lingers_until_another_client_wants_it
    a_lock_does_not_linger_when_nobody_here_could_want_it
}
