//! The order of one client's requests, on a server that forgets the scripts or refuses a batch.

use std::time::Duration;

use leasehold::Client;
use testkit::RedisServer;

use crate::scene::{LONG, connect, take, user, within};

/// Releases a lease and at once acquires the lock with another note, so that the client asks the store. Calls `before` in each round.
/// Returns the number of busy replies.
async fn gives_back_and_takes(client: &Client, mut before: impl AsyncFnMut(usize)) -> usize {
    let (lock, other) = (client.mutex("app:orders"), client.mutex("app:orders"));
    let (lock, other) = (lock.ttl(LONG), other.ttl(LONG).note("other"));
    let mut busy = 0;
    for round in 0..100 {
        let lease = within("its turn", lock.acquire()).await.expect("free");
        before(round).await;
        drop(lease);
        match within("an answer", other.try_acquire())
            .await
            .expect("asked")
        {
            Some(again) => again.release().await.expect("held"),
            None => busy += 1,
        }
    }
    busy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_lock_is_not_busy_after_script_flush() {
    let server = RedisServer::start();
    let (client, third) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut held = Vec::new();
    let busy = gives_back_and_takes(&client, async |round| {
        server.cli(&["SCRIPT", "FLUSH"]);
        // Now the server knows the script that takes a lock, and not the one that frees it.
        held.push(take(&third, &format!("third {round}"), LONG).await);
    })
    .await;
    assert_eq!(busy, 0, "of 100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_given_back_is_never_busy_beside_one_that_is_forbidden() {
    let server = RedisServer::start();
    let rules = ["~app:*", "~{app:*", "~leasehold:fence", "&*", "+@all"];
    let client = connect(&user(&server, &rules)).await;
    let forbidden = client.mutex("orders");
    let busy = gives_back_and_takes(&client, async |_| {
        // This request is in one batch with the next ones, or close to them.
        let asked = forbidden.try_acquire();
        drop(tokio::time::timeout(Duration::from_micros(50), asked).await);
    })
    .await;
    assert_eq!(busy, 0, "of 100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_finds_the_scripts_that_every_lock_needs() {
    let server = RedisServer::start();
    let scripts = || {
        let memory = server.cli(&["INFO", "memory"]).text();
        let line = memory
            .lines()
            .find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
        line.expect("every version says so").trim().to_owned()
    };
    assert_eq!(scripts(), "0");
    let first = connect(&server.url()).await;
    assert_eq!(scripts(), "5", "with the one that does nothing");
    let lease = take(&first, "orders", LONG).await;
    lease.release().await.expect("held");
    assert_eq!(scripts(), "5", "no other was needed");
    let _second = connect(&server.url()).await;
    let sent = server.cli(&["INFO", "commandstats"]).text();
    // Each connection runs that one by its text, and no other.
    assert!(sent.contains("cmdstat_eval:calls=2,"), "{sent}");
    // Redis 6.2 adds up the checks of each client (EXISTS) and the loads of the first one (LOAD).
    let counts = ["cmdstat_script|load:calls=4,", "cmdstat_script:calls=6,"];
    let loads = sent
        .lines()
        .find(|line| counts.iter().any(|count| line.starts_with(count)));
    assert!(loads.is_some(), "the second finds them there: {sent}");
}
