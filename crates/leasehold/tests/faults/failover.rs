//! A failover to a replica that lags. The failover undoes all changes since the replica was cut off. A client that was granted the lock
//! since then is a waiter again.

use leasehold::{Client, Lease, LossCause};
use leasehold_core::CLAIM_WINDOW;
use testkit::{FaultProxy, RedisServer, eventually};

use crate::common::lost;
use crate::scene::{
    LONG, PLENTY, beside, connect, is_free, joined, lost_by_verdict, millis, now, patient,
    queue_up, queued, set, take, within,
};

fn server() -> testkit::RedisServerBuilder {
    RedisServer::builder().option("repl-diskless-sync-delay", "0")
}

fn becomes_primary(server: &RedisServer) {
    server.cli(&["REPLICAOF", "NO", "ONE"]);
}

/// `ann` holds the lock on a server whose clock stands still, and `bob` waits. The replica is cut off, and then `bob` gets the lock. At the end the server takes over
/// the replica's data, as in a failover. Returns the lease of `bob`.
async fn failed_over(primary: &RedisServer) -> Lease {
    let replica = server().virtual_clock().replica_of(primary.port()).start();
    // Time stands still, so `bob` counts as alive however long all of this takes.
    replica.clock().set(primary.clock().now());
    let (ann, bob) = (connect(&primary.url()).await, connect(&primary.url()).await);
    let before = ann.mutex("x").ttl(LONG).auto_renew(false);
    let before = within("an answer", before.acquire()).await.expect("free");
    let lock = bob.mutex("x").ttl(LONG).auto_renew(false);
    let waiting = beside(async move { lock.acquire().await });
    replica.follows(PLENTY);
    eventually(PLENTY, "the replica has the line", || {
        queued(&replica, "x") == 1
    });
    becomes_primary(&replica);

    before.release().await.expect("held to the end");
    let lease = joined("its turn", waiting).await.expect("a lease");
    lease.extend(LONG).await.expect("held");

    let port = replica.port().to_string();
    primary.cli(&["REPLICAOF", "127.0.0.1", &port]);
    primary.follows(PLENTY);
    becomes_primary(primary);
    // Later than each fence that it has drawn and forgotten.
    primary.clock().advance(millis(1));
    lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stands_in_line_again_has_lost_the_lock() {
    let primary = server().virtual_clock().start();
    let lease = failed_over(&primary).await;
    assert_eq!(queued(&primary, "x"), 1);
    let lost = lost(within("an answer", lease.release()).await);
    assert!(
        matches!(lost.cause, LossCause::NotHeld(Some(_))),
        "by the one that held before: {lost}"
    );
    assert_eq!(queued(&primary, "x"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_granted_again_does_not_go_on_under_old_fence() {
    let primary = server().virtual_clock().start();
    let lease = failed_over(&primary).await;
    // The lease of before ends.
    assert_eq!(primary.cli(&["DEL", "x"]).int(), 1);
    // A request of another client makes the store grant the lock to the waiter.
    let cid = connect(&primary.url()).await;
    let tried = within("an answer", cid.mutex("x").try_acquire()).await;
    assert!(tried.expect("an answer").is_none());
    within("an answer", lease.extend(LONG))
        .await
        .expect_err("granted again is not held");
    lost_by_verdict(&lease).await;
    eventually(PLENTY, "what nobody has is given back", || {
        is_free(&primary, "x")
    });
    let taken = take(&cid, "x", LONG).await;
    taken.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_one_that_stands_in_line_again_is_lost() {
    let primary = server().virtual_clock().start();
    let lease = failed_over(&primary).await;
    let elsewhere = connect(&primary.url()).await;
    let token = elsewhere.detached("x", &lease.token()).expect("a token");
    for answer in [token.check().await, token.renew(LONG).await] {
        lost(answer);
    }
    lost(token.release().await);
    assert_eq!(queued(&primary, "x"), 0);
}

/// The store has granted the lock to its owner again, since the owner was in the queue. The new fence is later, or lower if the clock of
/// the new server is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_one_that_was_granted_the_lock_again_is_lost() {
    for later in [true, false] {
        let server = RedisServer::builder().virtual_clock().start();
        let (ann, bob) = (connect(&server.url()).await, connect(&server.url()).await);
        let lease = take(&ann, "x", LONG * 20).await;
        let token = lease.token();
        let (fence, millions) = (lease.fence().get(), 60_000_000);
        let granted = if later {
            fence + millions
        } else {
            fence - millions
        };
        let value = format!("{}#{granted}", lease.owner().token());
        server.cli(&["SET", "x", &value, "KEEPTTL"]);

        let again = bob.detached("x", &token).expect("a token");
        for answer in [again.check().await, again.renew(LONG).await] {
            lost(answer);
        }
        lost(again.release().await);
        assert!(is_free(&server, "x"), "nobody has it");
    }
}

/// Another client took the lock, and the holder did not notice. The reply to the holder's first release is lost, or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_also_if_the_first_release_was_not_answered() {
    for cut in [false, true] {
        let server = RedisServer::builder().virtual_clock().start();
        let proxy = FaultProxy::start(server.port());
        let (ann, bob) = (connect(&proxy.url()).await, connect(&server.url()).await);
        let lock = ann.mutex("x").ttl(LONG * 20).auto_renew(false);
        let lease = within("an answer", lock.acquire()).await.expect("free");
        server.cli(&["DEL", "x"]);
        let _other = take(&bob, "x", LONG * 20).await;
        // By the server's clock, the holder has had the lock for longer than any release in this test takes.
        server.clock().advance(LONG * 10);

        proxy.swallow_replies(cut);
        let releasing = beside(lease.release());
        if cut {
            eventually(PLENTY, "the answer is lost", || proxy.swallowed() > 0);
            proxy.cut_and_answer();
        }
        let lost = lost(joined("an answer", releasing).await);
        assert!(matches!(lost.cause, LossCause::NotHeld(Some(_))), "{lost}");
    }
}

/// Connects with a time limit of outages that a busy machine keeps.
async fn connect_patiently(url: String) -> Client {
    let builder = patient().outage_timeout(LONG);
    builder.connect(&url).await.expect("it works")
}

/// The waiter is notified of its grant too late: the claim window on the new primary is over, and another client holds the lock. By the
/// clock of the old primary, the grant would still be new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_the_new_primary_is_not_dated_by_the_old_one() {
    let old = server().virtual_clock().start();
    let new = server().virtual_clock().replica_of(old.port()).start();
    new.clock().set(old.clock().now());
    new.follows(PLENTY);
    let proxy = FaultProxy::start(old.port());
    let (ann, waiter) = (
        connect(&old.url()).await,
        connect_patiently(proxy.url()).await,
    );
    let _before = take(&ann, "x", LONG).await;
    let waiting = queue_up(&old, &waiter, "x", LONG);
    eventually(PLENTY, "the replica has the line", || {
        queued(&new, "x") == 1
    });

    // The new primary has no memory for now. The waiter connects, subscribes and sends its request, but learns nothing of the server's
    // time.
    set(&new, "maxmemory", "1");
    new.cli(&["CONFIG", "RESETSTAT"]);
    becomes_primary(&new);
    proxy.redirect(new.port());
    proxy.cut();
    let last_heard = now();
    eventually(PLENTY, "the waiter has asked it", || {
        let asked = new.cli(&["INFO", "commandstats"]).text();
        asked.contains("cmdstat_evalsha:")
    });
    proxy.blackhole(true);
    set(&new, "maxmemory", "0");
    let bob = connect(&new.url()).await;
    new.cli(&["DEL", "x"]);
    new.clock().advance(now().since(last_heard));
    // This request makes the store grant the lock to the waiter.
    let tried = within("an answer", bob.mutex("x").try_acquire()).await;
    assert!(tried.expect("an answer").is_none());
    assert_eq!(queued(&new, "x"), 0, "the waiter was granted the lock");
    new.clock().advance(CLAIM_WINDOW + millis(100));
    // Valkey reads its clock once in a millisecond.
    eventually(PLENTY, "the claim has run out", || is_free(&new, "x"));
    let other = take(&bob, "x", LONG).await;

    proxy.blackhole(false);
    eventually(PLENTY, "it stands in line again, or has a lease", || {
        queued(&new, "x") == 1 || waiting.is_finished()
    });
    assert!(!waiting.is_finished(), "two at once");
    let fence = other.fence();
    other.release().await.expect("held to the end");
    let lease = joined("its turn", waiting).await.expect("a lease");
    assert!(lease.fence() > fence, "{:?} after {fence:?}", lease.fence());
}
