//! Without scripts, another client may change the key between a GET and the next command.

use std::time::Duration;

use leasehold::{Client, Error, LossCause, StoreErrorKind};
use testkit::{FaultProxy, RedisServer};

use crate::{LONG, TTL, frozen, take, value};

/// The number of GETs that the server has executed.
fn looks(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).text();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_get:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Runs a command of another client right after the next GET. The proxy delays the following commands for long enough.
async fn after_the_next_look(server: &RedisServer, deed: &[&str]) {
    let before = looks(server);
    while looks(server) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.cli(deed);
}

/// The delay of each reply and of each command. On a busy machine, the other client's command may come up to twice this time after the GET.
const HELD_UP: Duration = Duration::from_millis(250);

/// A client whose time limit allows several delayed commands.
async fn connect(url: &str) -> Client {
    let builder = Client::builder().request_timeout(LONG);
    builder.connect(url).await.unwrap()
}

#[tokio::test]
async fn an_extension_does_not_make_a_lock_that_was_deleted() {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL).without_scripts();
    let hold = take(&lock).await;
    proxy.delay(HELD_UP);
    let deleted = after_the_next_look(&server, &["DEL", "k"]);
    let (refused, ()) = tokio::join!(hold.extend(TTL), deleted);
    let Err(Error::Lost(lost)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(lost.cause, LossCause::NotHeld(None));
    assert_eq!(value(&server, "k"), None);
}

#[tokio::test]
async fn a_release_of_what_was_deleted_is_a_loss() {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL).without_scripts();
    let hold = take(&lock).await;
    proxy.delay(HELD_UP);
    let deleted = after_the_next_look(&server, &["DEL", "k"]);
    let (refused, ()) = tokio::join!(hold.release(), deleted);
    let Err(Error::Lost(lost)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(lost.cause, LossCause::NotHeld(None));
}

#[tokio::test]
async fn what_is_no_time_and_was_overwritten_is_not_called_left_alone() {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL).without_scripts();
    server.cli(&["SET", "k", "1500000000"]);
    proxy.delay(HELD_UP);
    let written = after_the_next_look(&server, &["SET", "k", "a token"]);
    let (refused, ()) = tokio::join!(lock.try_acquire(), written);
    let Err(Error::Store(error)) = refused else {
        panic!("{refused:?}");
    };
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
    let replaced = async {
        after_the_next_look(&server, &["DEL", "k"]).await;
        server.cli(&["HSET", "k", "a", "b"]);
    };
    let (refused, ()) = tokio::join!(lock.try_acquire(), replaced);
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("a hash") && said.contains("left alone"),
        "{said}"
    );
    assert_eq!(server.cli(&["TYPE", "k"]).text(), "hash");

    // The client takes a lock that another client has freed meanwhile.
    server.cli(&["SET", "k", "1500000000"]);
    let freed = after_the_next_look(&server, &["DEL", "k"]);
    let (hold, ()) = tokio::join!(lock.try_acquire(), freed);
    hold.unwrap().expect("it is free").release().await.unwrap();
}
