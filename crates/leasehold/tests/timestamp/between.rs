//! Without scripts, another client may change the key between a GET and the next command.

use leasehold::timestamp::TimestampLock;
use leasehold::{LossCause, StoreErrorKind};
use testkit::{FaultProxy, RedisServer};

use crate::common::{eventually, lost, store_error};
use crate::{TTL, connect, frozen, take, value};

/// Runs commands of another client between the next GET and the command after it, which the proxy holds meanwhile.
fn after_the_next_look(proxy: &FaultProxy, deed: impl FnOnce()) -> impl Future<Output = ()> {
    // Before the request, which the caller sends as soon as both are polled.
    proxy.hold_after("GET");
    async move {
        eventually("the next command is held", async || proxy.is_holding()).await;
        deed();
        proxy.go_on();
    }
}

/// A server, a proxy before it, and a lock behind the proxy.
async fn without_scripts() -> (RedisServer, FaultProxy, TimestampLock) {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL).without_scripts();
    (server, proxy, lock)
}

#[tokio::test]
async fn what_was_deleted_is_a_loss_and_is_not_made_again() {
    let (server, proxy, lock) = without_scripts().await;
    let by_another = || after_the_next_look(&proxy, || drop(server.cli(&["DEL", "k"])));
    let hold = take(&lock).await;
    let deleted = by_another();
    let (extended, ()) = tokio::join!(hold.extend(TTL), deleted);
    let hold = take(&lock).await;
    let deleted = by_another();
    let (released, ()) = tokio::join!(hold.release(), deleted);
    for refused in [extended, released] {
        assert_eq!(lost(refused).cause, LossCause::NotHeld(None));
    }
    assert_eq!(value(&server, "k"), None);
}

#[tokio::test]
async fn what_is_no_time_and_was_overwritten_is_not_called_left_alone() {
    let (server, proxy, lock) = without_scripts().await;
    server.cli(&["SET", "k", "1500000000"]);
    let written = after_the_next_look(&proxy, || {
        server.cli(&["SET", "k", "a token"]);
    });
    let (refused, ()) = tokio::join!(lock.try_acquire(), written);
    let error = store_error(refused);
    assert_eq!(error.kind, StoreErrorKind::Protocol, "{error}");
    let said = error.to_string();
    assert!(
        error.may_have_taken_effect && said.contains("\"a token\""),
        "{said}"
    );
    assert!(
        said.contains("has been overwritten") && !said.contains("left alone"),
        "{said}"
    );

    // The client does not overwrite a value of another type.
    server.cli(&["SET", "k", "1500000000"]);
    let replaced = after_the_next_look(&proxy, || {
        server.cli(&["DEL", "k"]);
        server.cli(&["HSET", "k", "a", "b"]);
    });
    let (refused, ()) = tokio::join!(lock.try_acquire(), replaced);
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("a hash") && said.contains("left alone"),
        "{said}"
    );
    assert_eq!(server.cli(&["TYPE", "k"]).text(), "hash");

    // The client takes a lock that another client has freed meanwhile.
    server.cli(&["SET", "k", "1500000000"]);
    let freed = after_the_next_look(&proxy, || drop(server.cli(&["DEL", "k"])));
    let (hold, ()) = tokio::join!(lock.try_acquire(), freed);
    hold.unwrap().expect("it is free").release().await.unwrap();
}
