//! Servers and proxies that speak RESP2 only: they do not know HELLO, or refuse it.

use leasehold::{Client, StoreErrorKind};
use testkit::{FaultProxy, RedisServer, RedisServerBuilder, eventually};

use crate::common::timed as timed_client;
use crate::scene::{
    CANARY, LONG, PLENTY, Timed, connect, has_its_turn, is_free, kill_until_connected, queue_up,
    refused, take, user, within,
};

/// A server that does not know HELLO.
fn resp2() -> RedisServerBuilder {
    RedisServer::builder().args(["--rename-command", "HELLO", ""])
}

/// How many connections of clients are subscribed.
fn listening(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
    list.lines().count()
}

/// The number of connections.
fn connections(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST"]).text();
    // But for that of the kit.
    list.lines().count() - 1
}

/// A waiter gets its turn, while the clock of its client stands still: so it is woken, and does not ask.
async fn a_waiter_is_woken(server: &RedisServer, one: &Client, two: &Client) {
    let lease = take(one, "orders", LONG).await;
    let waiter = queue_up(server, two, "orders", LONG);
    within("the release", lease.release()).await.expect("held");
    has_its_turn(waiter).await;
    assert!(is_free(server, "orders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_and_do_not_ask() {
    let timed = Timed::start_with(resp2());
    let server = &*timed.server;
    let (one, two) = (timed.client().await, timed.client().await);
    assert_eq!((listening(server), connections(server)), (2, 4));
    for _ in 0..3 {
        a_waiter_is_woken(server, &one, &two).await;
    }
    // Each of the two connections is made anew with the other.
    for kind in ["pubsub", "normal"] {
        server.cli(&["CLIENT", "KILL", "TYPE", kind]);
        let listen_again = || (listening(server), connections(server)) == (2, 4);
        timed.eventually("they listen again", listen_again).await;
        let connected = async {
            while one.inspect("orders").await.is_err() || two.inspect("orders").await.is_err() {}
        };
        timed.passing("they are connected again", connected).await;
        a_waiter_is_woken(server, &one, &two).await;
    }
}

/// The wake is lost with the connection that would have brought it, and the waiter asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_missed_its_wake_asks_after_it_reconnects() {
    let timed = Timed::start_with(resp2());
    let (one, two) = (timed.client().await, timed.proxied().await);
    for _ in 0..4 {
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(&timed.server, &two, "orders", LONG);
        let swallowed = timed.proxy.swallowed();
        timed.proxy.swallow_replies(true);
        lease.release().await.expect("held");
        eventually(PLENTY, "the wake is lost", || {
            timed.proxy.swallowed() > swallowed
        });
        assert!(!waiter.is_finished());
        timed.proxy.cut_and_answer();
        timed.has_its_turn(waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_subscribe_polls_over_one_connection() {
    for rules in [
        &["~*", "resetchannels", "+@all"][..],
        &["~*", "&*", "+@all", "-subscribe"],
    ] {
        let timed = Timed::start_with(resp2());
        let server = &*timed.server;
        let url = user(server, rules);
        let client = async || {
            let connecting = timed_client(&timed.clock).connect(&url);
            within("a connection", connecting).await.expect("it polls")
        };
        let (one, two) = (client().await, client().await);
        eventually(PLENTY, "the idle connections are closed", || {
            connections(server) == 2
        });
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(server, &two, "orders", LONG);
        within("the release", lease.release()).await.expect("held");
        assert!(!is_free(server, "orders"), "handed over all the same");
        let told = within("a reply", one.inspect("orders"));
        told.await.expect("an answer");
        assert!(!waiter.is_finished(), "nobody tells it");
        timed.has_its_turn(waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_users_and_databases_work() {
    let server = resp2().password(CANARY).start();
    let host = format!("127.0.0.1:{}", server.port());
    server.cli(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">S3CR3T-app",
        "~*",
        "&*",
        "+@all",
    ]);
    for login in [
        format!(":{CANARY}"),
        format!("default:{CANARY}"),
        "app:S3CR3T-app".into(),
    ] {
        let client = connect(&format!("redis://{login}@{host}/3")).await;
        let lease = take(&client, "orders", LONG).await;
        let mut direct = server.connection();
        assert!(direct.command(&["GET", "orders"]).is_nil(), "{login}");
        direct.command(&["SELECT", "3"]);
        assert_eq!(direct.command(&["GET", "orders"]).text(), lease.token());
        // It logs in again, over both connections.
        kill_until_connected(&server);
        within("a renewal", async {
            while lease.extend(LONG).await.is_err() {}
        })
        .await;
        lease.release().await.expect("held all the time");
    }
    for (login, said) in [
        (":S3CR3T-not@", "WRONGPASS"),
        ("app:S3CR3T-not@", "WRONGPASS"),
        ("nobody:S3CR3T-not@", "WRONGPASS"),
        ("", "NOAUTH"),
    ] {
        for database in ["", "3"] {
            let url = format!("redis://{login}{host}/{database}");
            let verdict = within("a verdict", Client::connect(&url)).await;
            let error = refused(verdict, StoreErrorKind::Denied, &host);
            assert!(error.detail.contains(said), "{error}");
        }
    }
    let nowhere = format!("redis://:{CANARY}@{host}/77");
    let nowhere = within("a verdict", Client::connect(&nowhere)).await;
    let error = refused(nowhere, StoreErrorKind::Protocol, &host);
    assert!(error.detail.contains("index"), "{error}");
}

/// The server speaks RESP3, and what stands before it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_refuses_hello_in_any_words() {
    let server = RedisServer::start();
    for words in [
        "NOPROTO unsupported protocol version",
        "NOPERM this user has no permissions to run the 'hello' command",
        "ERR unknown command 'HELLO', with args beginning with: '3' ",
        "ERR command 'HELLO' not support for normal user",
    ] {
        let proxy = FaultProxy::start(server.port());
        proxy.deny("HELLO", words);
        let (one, two) = (connect(&proxy.url()).await, connect(&proxy.url()).await);
        assert_eq!(listening(&server), 2, "{words}");
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(&server, &two, "orders", LONG);
        lease.release().await.expect("held");
        has_its_turn(waiter).await;
        drop((one, two));
        eventually(PLENTY, "both are closed", || listening(&server) == 0);
    }
}
