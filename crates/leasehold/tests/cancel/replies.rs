//! Requests that Redis executes, but whose reply is lost. The caller then gives up.

use std::slice;

use leasehold::{Client, ClientBuilder};
use testkit::{FaultProxy, RedisServer};

use crate::common::{LONG, TTL, eventually, look, passing, take, test_time, timed};
use crate::poll_n_times_then_drop;

/// A client behind a proxy that can lose replies, and an operator's client with a direct connection.
struct Scene {
    server: RedisServer,
    proxy: FaultProxy,
    client: Client,
    operator: Client,
}

impl Scene {
    async fn begin() -> Self {
        let builder = Client::builder().request_timeout(LONG);
        Self::of(RedisServer::start(), builder).await
    }

    async fn of(server: RedisServer, builder: ClientBuilder) -> Self {
        let proxy = FaultProxy::start(server.port());
        let client = builder.connect(&proxy.url()).await.expect("it answers");
        let operator = Client::connect(&server.url()).await.expect("it answers");
        let scene = Self {
            server,
            proxy,
            client,
            operator,
        };
        // The server knows the scripts from here on, so it executes the first request of the test.
        let lease = take(&scene.client, "m").await;
        lease.release().await.expect("it is held");
        scene
    }

    fn mutex(&self) -> leasehold::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    /// Waits until the proxy has discarded a reply.
    async fn a_reply_is_lost(&self) {
        let lost = async || self.proxy.swallowed() > 0;
        eventually("a reply is lost", lost).await;
    }

    /// Repairs the network, and cuts the connections that lost a reply. A TCP connection cannot lose bytes and go on.
    fn recovers(&self) {
        self.proxy.cut_and_answer();
    }

    /// Waits until the store has granted the lock and the proxy has discarded the reply.
    async fn an_acquisition_is_carried_out(&self) {
        self.a_reply_is_lost().await;
        assert!(
            !self.server.cli(&["GET", "m"]).is_nil(),
            "it was carried out"
        );
    }

    /// Repairs the network, and checks that the lock is free before its TTL ends.
    async fn recovers_and_is_clean(&self) {
        self.recovers();
        eventually("it is undone", async || {
            let seen = look(&self.operator, "m").await;
            seen.holder.is_none() && seen.queue.is_empty()
        })
        .await;
        let lease = take(&self.operator, "m").await;
        lease.release().await.expect("it is held");
    }
}

#[tokio::test]
async fn an_acquisition_that_was_carried_out_is_undone() {
    let scene = Scene::begin().await;
    scene.proxy.swallow_replies(true);
    let mutex = scene.mutex();
    assert!(poll_n_times_then_drop(1, mutex.acquire()).await.is_none());
    scene.an_acquisition_is_carried_out().await;
    scene.recovers_and_is_clean().await;
}

#[tokio::test]
async fn acquisition_given_up_after_lost_reply_is_undone() {
    let server = RedisServer::builder().virtual_clock().start();
    let (time, clock) = test_time(slice::from_ref(&server));
    let scene = Scene::of(server, timed(&clock)).await;
    scene.proxy.swallow_replies(true);
    let mutex = scene.mutex();
    let limit = TTL / 10;
    let limit_passes = async {
        scene.an_acquisition_is_carried_out().await;
        time.pass(limit);
    };
    let (given_up, ()) = tokio::join!(mutex.acquire_within(limit), limit_passes);
    let leasehold::Error::Store(error) = given_up.expect_err("no reply") else {
        panic!("no reply says that it is busy")
    };
    assert!(error.may_have_taken_effect, "{error}");
    passing(&time, "it is clean", scene.recovers_and_is_clean()).await;
}

#[tokio::test]
async fn a_place_in_the_queue_that_was_given_is_given_back() {
    let scene = Scene::begin().await;
    let held = take(&scene.operator, "m").await;
    let mutex = scene.mutex();
    // After this, the client knows that others want the lock, so its next request joins the queue.
    let busy = mutex.try_acquire().await.expect("it answers");
    assert!(busy.is_none());
    scene.proxy.swallow_replies(true);
    assert!(poll_n_times_then_drop(1, mutex.acquire()).await.is_none());
    scene.a_reply_is_lost().await;
    assert_eq!(look(&scene.operator, "m").await.queue.len(), 1);
    held.release().await.expect("it is held");
    scene.recovers_and_is_clean().await;
}

#[tokio::test]
async fn a_lease_dropped_while_replies_are_lost_is_released() {
    let scene = Scene::begin().await;
    let lease = take(&scene.client, "m").await;
    scene.proxy.swallow_replies(true);
    drop(lease);
    scene.a_reply_is_lost().await;
    scene.recovers_and_is_clean().await;
}
