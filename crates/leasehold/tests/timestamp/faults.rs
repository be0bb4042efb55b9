//! Lost replies, and servers that are away.

use std::time::Duration;

use testkit::{FaultProxy, RedisServer};
use tokio::time::timeout;

use crate::common::{eventually, store_error};
use crate::{LONG, STEP, TTL, connect, pass_until, proxied_scene, take, value};

/// Waits until the server has carried the request out and its reply is lost, and then cuts the connection that lost it. New ones lose
/// their replies too, so nothing is known until [`recovers`].
async fn loses_the_reply(proxy: &FaultProxy, carried_out: impl Fn() -> bool) {
    eventually("it is carried out", async || carried_out()).await;
    proxy.cut();
}

/// New connections have replies.
fn recovers(proxy: &FaultProxy) {
    proxy.cut_and_answer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t7_an_extension_whose_answer_was_lost_is_still_ours() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    // The server knows the script from here on, so the client sends one command for each request.
    hold.extend(TTL).await.unwrap();
    let before = value(&server, "k");
    proxy.swallow_replies(true);
    let carried_out = || value(&server, "k") != before;
    let lost = loses_the_reply(&proxy, carried_out);
    let (refused, ()) = tokio::join!(hold.extend(2 * TTL), lost);
    let error = store_error(refused);
    assert!(error.may_have_taken_effect, "{error}");
    assert!(!hold.is_lost() && hold.doubt().is_some());
    recovers(&proxy);
    let extend = async {
        while hold.extend(TTL).await.is_err() {
            assert!(!hold.is_lost(), "{:?}", hold.loss());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, extend).await.expect("it comes back");
    assert_eq!(hold.doubt(), None);
    hold.release().await.unwrap();
    assert_eq!(value(&server, "k"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t7_acquire_or_release_with_lost_answer_is_left_alone() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    take(&lock).await.release().await.unwrap();

    proxy.swallow_replies(true);
    let lost = loses_the_reply(&proxy, || value(&server, "k").is_some());
    let (refused, ()) = tokio::join!(lock.try_acquire(), lost);
    let error = store_error(refused);
    assert!(error.may_have_taken_effect, "{error}");
    recovers(&proxy);
    let again = async {
        loop {
            match lock.try_acquire().await {
                Ok(hold) => return hold,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let hold = timeout(LONG, again).await.unwrap();
    assert!(hold.is_none(), "it may be another's by now");
    server.cli(&["DEL", "k"]);

    let hold = take(&lock).await;
    let deadline = hold.deadline().to_string();
    proxy.swallow_replies(true);
    let lost = loses_the_reply(&proxy, || value(&server, "k").is_none());
    let (refused, ()) = tokio::join!(hold.release(), lost);
    store_error(refused);
    // Another client takes the lock in the same second, with the same deadline.
    server.cli(&["SET", "k", &deadline]);
    recovers(&proxy);
    client.close().await;
    assert_eq!(value(&server, "k"), Some(deadline));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_server_ends_no_hold_before_its_deadline() {
    let (_server, proxy, time, client) = proxied_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    let fails_to_renew = || {
        proxy.refuse(true);
        proxy.cut();
        time.pass(TTL / 3);
        pass_until(&time, STEP, "a renewal fails", || hold.doubt().is_some());
        assert!(!hold.is_lost());
    };
    fails_to_renew();
    let asking = tokio::spawn(async move { lock.try_acquire().await });
    pass_until(&time, STEP, "it is told", || asking.is_finished());
    store_error(asking.await.unwrap());
    proxy.refuse(false);
    pass_until(&time, STEP, "it is renewed", || hold.doubt().is_none());
    assert!(!hold.is_lost(), "{:?}", hold.loss());
    fails_to_renew();
    let (lost, ()) = tokio::join!(timeout(LONG, hold.lost()), async {
        time.pass(hold.valid_for());
    });
    let lost = lost.expect("its time passes").to_string();
    assert!(lost.contains("last failure"), "{lost}");
}
