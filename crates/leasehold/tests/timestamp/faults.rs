//! Lost replies, and servers that are away.

use std::time::Duration;

use leasehold::{Client, Error};
use testkit::{FaultProxy, RedisServer, eventually};
use tokio::time::timeout;

use crate::{LONG, TTL, take, value};

async fn connect(proxy: &FaultProxy) -> Client {
    let builder = Client::builder().request_timeout(Duration::from_millis(300));
    builder.connect(&proxy.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t7_an_extension_whose_answer_was_lost_is_still_ours() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    // The server knows the script from here on, so the client sends one command for each request.
    hold.extend(TTL).await.unwrap();
    let before = value(&server, "k");
    proxy.swallow_replies(true);
    let refused = hold.extend(2 * TTL).await;
    let Err(Error::Store(error)) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.may_have_taken_effect, "{error}");
    assert!(!hold.is_lost() && hold.doubt().is_some());
    let carried_out = || value(&server, "k") != before;
    eventually(LONG, "it is carried out", carried_out);
    proxy.swallow_replies(false);
    proxy.cut();
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
    let client = connect(&proxy).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    take(&lock).await.release().await.unwrap();

    proxy.swallow_replies(true);
    let refused = lock.try_acquire().await;
    let Err(Error::Store(error)) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.may_have_taken_effect, "{error}");
    let carried_out = || value(&server, "k").is_some();
    eventually(LONG, "it is carried out", carried_out);
    proxy.swallow_replies(false);
    proxy.cut();
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
    assert!(matches!(hold.release().await, Err(Error::Store(_))));
    let carried_out = || value(&server, "k").is_none();
    eventually(LONG, "it is carried out", carried_out);
    // Another client takes the lock in the same second, with the same deadline.
    server.cli(&["SET", "k", &deadline]);
    proxy.swallow_replies(false);
    proxy.cut();
    client.close().await;
    assert_eq!(value(&server, "k"), Some(deadline));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_server_ends_no_hold_before_its_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy).await;
    let lock = client.timestamp_lock("k").ttl(Duration::from_secs(3));
    let hold = take(&lock).await;
    proxy.refuse(true);
    proxy.cut();
    eventually(LONG, "a renewal fails", || hold.doubt().is_some());
    assert!(!hold.is_lost());
    let refused = lock.try_acquire().await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    proxy.refuse(false);
    eventually(LONG, "it is renewed", || hold.doubt().is_none());
    assert!(!hold.is_lost(), "{:?}", hold.loss());
    proxy.refuse(true);
    proxy.cut();
    let lost = timeout(LONG, hold.lost()).await.expect("its time passes");
    assert!(lost.to_string().contains("last failure"), "{lost}");
}
