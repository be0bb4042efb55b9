//! A server whose memory is full. It may evict no key.

use leasehold::StoreErrorKind;
use testkit::RedisServer;

use crate::scene::{LONG, Timed, is_free, queue_up, refused, set, take, within};

/// Sets the memory limit below the memory of an empty server.
fn fill(server: &RedisServer) {
    set(server, "maxmemory", "1");
    let write = server.cli(&["SET", "anything", "at all"]);
    assert!(
        write.error().is_some_and(|error| error.contains("OOM")),
        "{write:?}"
    );
}

fn make_room(server: &RedisServer) {
    set(server, "maxmemory", "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_kept_and_given_back_and_nothing_new_is_taken() {
    let options = RedisServer::builder().option("maxmemory-policy", "noeviction");
    let timed = Timed::start_with(options);
    let server = &*timed.server;
    let (one, two) = (timed.client().await, timed.client().await);
    let lease = take(&one, "orders", LONG).await;
    let waiter = queue_up(server, &two, "orders", LONG);
    fill(server);

    let host = format!("redis://127.0.0.1:{}", server.port());
    let newcomer = within("a verdict", two.mutex("other").try_acquire()).await;
    refused(newcomer, StoreErrorKind::Full, &host);
    let newcomer = within("a verdict", two.mutex("other").acquire()).await;
    let error = refused(newcomer, StoreErrorKind::Full, &host);
    assert!(!error.may_have_taken_effect && is_free(server, "other"));

    lease.extend(LONG).await.expect("PEXPIRE takes no memory");
    assert!(!waiter.is_finished());
    lease.release().await.expect("DEL takes no memory");

    let next = timed
        .joined("the waiter's turn", waiter)
        .await
        .expect("granted while memory is full");
    // The client renews for longer than a TTL, and then the test renews by hand.
    timed.outlives_its_ttl(&next).await;
    assert!(!next.is_doubtful());
    next.extend(LONG).await.expect("renewed");
    assert!(
        two.mutex("other").try_acquire().await.is_err(),
        "still full"
    );
    next.release().await.expect("held");
    assert!(is_free(server, "orders"));

    make_room(server);
    let lease = take(&two, "other", LONG).await;
    lease.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_line_outlasts_a_full_server() {
    let timed = Timed::start();
    let server = &*timed.server;
    let (one, two) = (timed.client().await, timed.client().await);
    // The client does not renew this lease, so it ends while the server is full. Its holder releases nothing.
    let lock = one.mutex("orders").ttl(LONG).auto_renew(false);
    let lease = lock
        .try_acquire()
        .await
        .expect("an answer")
        .expect("it is free");
    let waiter = queue_up(server, &two, "orders", LONG);
    fill(server);
    timed.lost_at_deadline(&lease).await;
    make_room(server);
    let next = timed
        .joined("the waiter's turn", waiter)
        .await
        .expect("a server that may have room again");
    assert!(next.fence() > lease.fence());
    next.release().await.expect("held");
}
