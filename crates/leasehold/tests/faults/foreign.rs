//! Other programs' locks on the same key: ours and theirs exclude each other, and neither breaks the other's.

use std::sync::{Arc, Mutex};

use leasehold::{Error, Who};
use testkit::{RedisServer, eventually};

use crate::scene::{
    LONG, PLENTY, beside, connect, is_free, joined, kill_connections, millis, now, queue_up, take,
    within,
};

/// What redlock clients of every language send to release.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lease_is_waited_for_until_it_ends() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    // Before it begins: nobody knows how late its answer is heard.
    let began = now();
    let set = server.cli(&["SET", "orders", "somebody", "NX", "PX", "1500"]);
    assert_eq!(set.text(), "OK");
    assert!(
        client
            .mutex("orders")
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    let waiter = queue_up(&server, &client, "orders", LONG);
    let lease = joined("the end of the foreign lease", waiter)
        .await
        .expect("free");
    assert!(now().since(began) > millis(1400), "never taken");
    lease.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_without_an_end_is_waited_for_and_never_taken() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    server.cli(&["SET", "orders", "somebody"]);
    // How long it had waited at each answer.
    let answers = Arc::new(Mutex::new(Vec::new()));
    let lock = client.mutex("orders").ttl(LONG).on_wait({
        let answers = answers.clone();
        move |waiting| answers.lock().expect("no panic").push(waiting.waited)
    });
    let waiter = beside(async move { lock.acquire().await });
    eventually(PLENTY, "it has asked often", || {
        answers.lock().expect("no panic").len() > 20
    });
    let mut gaps: Vec<_> = {
        let answers = answers.lock().expect("no panic");
        answers
            .windows(2)
            .map(|pair| pair[1].abs_diff(pair[0]))
            .collect()
    };
    gaps.sort_unstable();
    println!("asked again after {:?} (median)", gaps[gaps.len() / 2]);
    assert!(gaps[gaps.len() / 2] < millis(125), "each 50 ms: {gaps:?}");
    assert_eq!(server.cli(&["GET", "orders"]).text(), "somebody");
    assert_eq!(server.cli(&["PTTL", "orders"]).int(), -1);

    server.cli(&["DEL", "orders"]);
    let deleted = now();
    let lease = joined("its turn", waiter).await.expect("free");
    println!("held {:?} after DEL", now().since(deleted));
    lease.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_any_type_are_busy_and_named_and_left_alone() {
    let server = RedisServer::start();
    let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for (kind, make) in [
        ("string", &["SET", "k", "7"][..]),
        ("hash", &["HSET", "k", "somebody:1", "1"]),
        ("zset", &["ZADD", "k", "9", "somebody"]),
        ("list", &["RPUSH", "k", "somebody"]),
        ("set", &["SADD", "k", "somebody"]),
        ("stream", &["XADD", "k", "*", "who", "somebody"]),
    ] {
        server.cli(make);
        let dump = server.cli(&["DUMP", "k"]);
        let lock = client.mutex("k").ttl(LONG);
        assert!(
            lock.try_acquire().await.expect("no exception").is_none(),
            "{kind}"
        );
        // Who is first in line asks each 50 ms, and an answer that is late when the limit passes is a store that does not answer. Who
        // is second asks once.
        let first = queue_up(&server, &other, "k", LONG);
        let refused = within("the limit", lock.acquire_within(millis(900))).await;
        first.abort();
        let Err(Error::Timeout(timeout)) = refused else {
            panic!("{kind}: {refused:?}");
        };
        assert!(
            timeout
                .to_string()
                .contains(&format!("foreign lock of type {kind}")),
            "{timeout}"
        );
        let holder = timeout.holder.expect("somebody holds it");
        assert!(
            matches!(&holder.who, Who::Foreign { kind: seen, .. } if seen == kind),
            "{holder:?}"
        );
        assert!(holder.fence.is_none() && holder.expires_in.is_none());
        let seen = client
            .inspect("k")
            .await
            .expect("no exception")
            .holder
            .expect("seen");
        assert!(
            matches!(&seen.who, Who::Foreign { kind: seen, .. } if seen == kind),
            "{seen:?}"
        );
        eventually(PLENTY, "nobody waits any more", || {
            server
                .cli(&["EXISTS", "{k}:lh-queue", "{k}:lh-waiters"])
                .int()
                == 0
        });
        assert_eq!(server.cli(&["DUMP", "k"]), dump, "{kind}: left alone");
        let waiter = queue_up(&server, &client, "k", LONG);
        server.cli(&["DEL", "k"]);
        let lease = joined("its turn", waiter).await.expect("free");
        lease.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_clients_are_excluded_and_their_scripts_work_on_our_token() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", LONG).await;
    let theirs = || server.cli(&["SET", "orders", "theirs", "NX", "PX", "30000"]);
    let delete = |token: &str| {
        server
            .cli(&["EVAL", COMPARE_AND_DELETE, "1", "orders", token])
            .int()
    };
    assert!(theirs().is_nil(), "we hold it");
    assert_eq!(delete("theirs"), 0);
    lease.extend(LONG).await.expect("held");
    let token = lease.owner().token().to_owned();
    assert_eq!(delete(&token), 1);
    assert_eq!(theirs().text(), "OK");
    let verdict = lease.extend(LONG).await;
    let Err(Error::Lost(lost)) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(
        lost.to_string().contains("foreign lock of type string"),
        "{lost}"
    );
    assert!(lease.release().await.is_err());
    assert_eq!(server.cli(&["GET", "orders"]).text(), "theirs");

    // They end while nobody is connected, and the one in line is told by nobody.
    let waiter = queue_up(&server, &client, "orders", LONG);
    kill_connections(&server);
    assert_eq!(delete("theirs"), 1);
    let next = joined("its turn", waiter).await.expect("free");
    next.release().await.expect("held");
    assert!(is_free(&server, "orders"));
}
