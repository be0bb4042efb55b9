//! A failover to a replica that lags: what was done since it was cut off is undone, and who was granted the lock since stands
//! in line again.

use std::time::Duration;

use leasehold::{Client, Error, Lease, LossCause};
use leasehold_core::CLAIM_WINDOW;
use testkit::{FaultProxy, RedisServer, eventually};

use crate::scene::{
    LONG, PLENTY, beside, connect, is_free, joined, lost_by_verdict, millis, now, queue_up, queued,
    set, take, within,
};

fn server() -> testkit::RedisServerBuilder {
    RedisServer::builder().option("repl-diskless-sync-delay", "0")
}

/// Waits until it has all that its primary has.
fn follows(replica: &RedisServer) {
    eventually(PLENTY, "the replica has it all", || {
        let info = replica.cli(&["INFO", "replication"]).text();
        info.contains("master_link_status:up")
    });
}

fn becomes_primary(server: &RedisServer) {
    server.cli(&["REPLICAOF", "NO", "ONE"]);
}

/// A holder for `ttl`, and one that waits behind it, whose lease it is after the replica was cut off. Then the replica's data are
/// the server's, as after a failover to it.
async fn failed_over(primary: &RedisServer, ttl: Duration) -> Lease {
    let replica = server().replica_of(primary.port()).start();
    let (ann, bob) = (connect(&primary.url()).await, connect(&primary.url()).await);
    let before = ann.mutex("x").ttl(ttl).auto_renew(false);
    let before = within("an answer", before.acquire()).await.expect("free");
    let lock = bob.mutex("x").ttl(LONG).auto_renew(false);
    let waiting = beside(async move { lock.acquire().await });
    follows(&replica);
    eventually(PLENTY, "the replica has the line", || {
        queued(&replica, "x") == 1
    });
    becomes_primary(&replica);

    before.release().await.expect("held to the end");
    let lease = joined("its turn", waiting).await.expect("a lease");
    lease.extend(LONG).await.expect("held");

    let port = replica.port().to_string();
    primary.cli(&["REPLICAOF", "127.0.0.1", &port]);
    follows(primary);
    becomes_primary(primary);
    lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stands_in_line_again_has_lost_the_lock() {
    let primary = server().start();
    let lease = failed_over(&primary, LONG).await;
    assert_eq!(queued(&primary, "x"), 1);
    let released = within("an answer", lease.release()).await;
    let Err(Error::Lost(lost)) = released else {
        panic!("{released:?}");
    };
    assert!(
        matches!(lost.cause, LossCause::NotHeld(Some(_))),
        "by the one that held before: {lost}"
    );
    assert_eq!(queued(&primary, "x"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_granted_again_does_not_go_on_under_old_fence() {
    let primary = server().start();
    let lease = failed_over(&primary, millis(4000)).await;
    eventually(PLENTY, "the lease of before has ended", || {
        is_free(&primary, "x")
    });
    // Somebody asks, and the lock goes to who stands in line.
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
    let primary = server().start();
    let lease = failed_over(&primary, LONG).await;
    let elsewhere = connect(&primary.url()).await;
    let token = elsewhere.detached("x", &lease.token()).expect("a token");
    for answer in [token.check().await, token.renew(LONG).await] {
        assert!(matches!(answer, Err(Error::Lost(_))), "{answer:?}");
    }
    let released = token.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    assert_eq!(queued(&primary, "x"), 0);
}

/// The holder of before is gone, and the lock went to the one in line: under a later fence, or, if the clock of the new server
/// is behind, a lower one.
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
            assert!(
                matches!(answer, Err(Error::Lost(_))),
                "later: {later}: {answer:?}"
            );
        }
        let released = again.release().await;
        assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
        assert!(is_free(&server, "x"), "nobody has it");
    }
}

/// The lock went to somebody else while the holder did not look. The answer to its first release is lost, or
/// not.
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
        // By the server's clock it has held for longer than any release here takes.
        server.clock().advance(LONG * 10);

        proxy.swallow_replies(cut);
        let releasing = beside(lease.release());
        if cut {
            eventually(PLENTY, "the answer is lost", || proxy.swallowed() > 0);
            proxy.cut_and_answer();
        }
        let released = joined("an answer", releasing).await;
        let Err(Error::Lost(lost)) = released else {
            panic!("cut off: {cut}: {released:?}");
        };
        assert!(matches!(lost.cause, LossCause::NotHeld(Some(_))), "{lost}");
    }
}

/// Connects with more time than a busy machine takes.
async fn patient(url: String) -> Client {
    let builder = Client::builder()
        .request_timeout(PLENTY)
        .outage_timeout(LONG);
    builder.connect(&url).await.expect("it works")
}

/// The waiter hears of its grant only after the claim has run out on the new primary and another client holds the lock. By the
/// clock of the old primary the grant would be as good as new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_the_new_primary_is_not_dated_by_the_old_one() {
    let old = server().virtual_clock().start();
    let new = server().virtual_clock().replica_of(old.port()).start();
    new.clock().set(old.clock().now());
    follows(&new);
    let proxy = FaultProxy::start(old.port());
    let (ann, waiter) = (connect(&old.url()).await, patient(proxy.url()).await);
    let _before = take(&ann, "x", LONG).await;
    let waiting = queue_up(&old, &waiter, "x", LONG);
    eventually(PLENTY, "the replica has the line", || {
        queued(&new, "x") == 1
    });

    // It has no room for now: the waiter connects, listens and asks, and is told nothing of its time.
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
    // The lock goes to who stands in line.
    let tried = within("an answer", bob.mutex("x").try_acquire()).await;
    assert!(tried.expect("an answer").is_none());
    assert_eq!(queued(&new, "x"), 0, "the waiter was granted the lock");
    new.clock().advance(CLAIM_WINDOW + millis(100));
    // Valkey looks at its clock once in a millisecond.
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
