//! Addresses, users and passwords. Every refusal names the host and the cause, and never the password.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, StoreError, StoreErrorKind};
use testkit::{FaultProxy, RedisServer, ReservedPort};

use crate::common::invalid;
use crate::scene::{
    CANARY, LONG, PLENTY, connect, has_its_turn, is_free, joined, now, queue_up, refused,
    shows_no_password, take, user, within,
};

/// The time limit of a request that nobody answers. A stall only lets it end later.
const EXPIRES_SOON: Duration = Duration::from_secs(1);

/// The error of the first lock, at a server without scripts.
async fn first_refusal(url: &str, kind: StoreErrorKind, host: &str) -> StoreError {
    let client = connect(url).await;
    let verdict = within("a verdict", client.mutex("orders").acquire()).await;
    let error = refused(verdict, kind, host);
    assert!(!error.may_have_taken_effect, "{error}");
    error
}

/// The error for a URL that the client cannot use.
async fn refusal(url: &str, kind: StoreErrorKind, host: &str) -> StoreError {
    // A verdict that needs this limit would come too late.
    let builder = Client::builder().request_timeout(PLENTY * 3);
    verdict(builder, url, kind, host).await
}

async fn verdict(
    builder: ClientBuilder,
    url: &str,
    kind: StoreErrorKind,
    host: &str,
) -> StoreError {
    let asked = within("a verdict", builder.connect(url)).await;
    let error = refused(asked, kind, host);
    println!("{error}");
    error
}

/// A server, and the URL of a user that has these `rules`.
fn with_user(rules: &[&str]) -> (RedisServer, String) {
    let server = RedisServer::start();
    let url = user(&server, rules);
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_wrong_missing_or_right() {
    let server = RedisServer::builder().password("the right one").start();
    let host = format!("127.0.0.1:{}", server.port());
    for user in ["", "default", "nobody"] {
        let url = format!("redis://{user}:{CANARY}@{host}/");
        refusal(&url, StoreErrorKind::Denied, &host).await;
    }
    let error = refusal(&server.url(), StoreErrorKind::Denied, &host).await;
    assert!(error.detail.contains("NOAUTH"), "{error}");

    let server = RedisServer::builder().password(CANARY).start();
    let url = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    let builder = Client::builder().namespace("app");
    assert!(!format!("{builder:#?}").contains(CANARY));
    let client = builder.connect(&url).await.expect("the password is right");
    let lock = client.mutex("orders").ttl(LONG);
    let lease = lock.acquire().await.expect("free");
    let shown = [
        format!("{client:#?}"),
        format!("{lock:#?}"),
        format!("{lease:#?}"),
    ];
    assert!(shown.iter().all(|text| !text.contains(CANARY)), "{shown:?}");

    // An operator changes the password while the client uses it. Later the server stops too.
    server.cli(&["CONFIG", "SET", "requirepass", "another one"]);
    crate::scene::kill_connections(&server);
    let verdict = within("a verdict", client.mutex("other").try_acquire()).await;
    refused(verdict, StoreErrorKind::Denied, &server.port().to_string());
    server.kill();
    for _ in 0..2 {
        let Err(error) = within("a verdict", lease.extend(LONG)).await else {
            panic!("nobody can have answered");
        };
        shows_no_password(&error);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_cannot_be_read() {
    for url in [
        format!("redis://worker:{CANARY}@host:99999/"),
        format!("redis://worker:{CANARY}@host/x"),
        format!("redis://worker:{CANARY}/@host/"),
        format!("postgres://worker:{CANARY}@host/"),
        format!("unix:/tmp/s?db=x&pass={CANARY}"),
        format!("worker:{CANARY}@host"),
        CANARY.to_owned(),
    ] {
        shows_no_password(&invalid(Client::connect(&url).await));
    }
}

/// It could neither renew nor release them. Its mutexes work as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_count_holders_gets_no_reader_and_no_permit() {
    for (command, may_read) in [("zcount", false), ("zrangebyscore", true), ("hlen", true)] {
        let (server, url) = with_user(&["~*", "&*", "+@all", &format!("-{command}")]);
        let (client, host) = (connect(&url).await, server.port().to_string());
        let is_refused =
            |error: StoreError| assert!(!error.may_have_taken_effect, "{command}: {error}");
        let slot = client.semaphore("orders", 2).try_acquire().await;
        is_refused(refused(slot, StoreErrorKind::Denied, &host));
        let read = client.rw_lock("orders").read().try_acquire().await;
        if may_read {
            let lease = read.expect("it may").expect("free");
            lease.extend(LONG).await.expect("held");
            lease.release().await.expect("held");
        } else {
            is_refused(refused(read, StoreErrorKind::Denied, &host));
        }
        let lease = take(&client, "orders", LONG).await;
        lease.extend(LONG).await.expect("held");
        lease.release().await.expect("held");
        // A reader of another user is not taken for a free lock.
        let other = connect(&server.url()).await;
        let other = other.rw_lock("orders").read().acquire().await;
        let other = other.expect("free");
        let busy = client.mutex("orders").try_acquire().await;
        if command == "zcount" {
            is_refused(refused(busy, StoreErrorKind::Denied, &host));
        } else {
            assert!(!matches!(busy, Ok(Some(_))), "{busy:?}");
        }
        other.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_run_scripts() {
    for rules in [&["-@scripting"][..], &["-eval", "-evalsha"]] {
        let (server, url) = with_user(&[&["~*", "&*", "+@all"][..], rules].concat());
        let host = format!("redis://127.0.0.1:{}", server.port());
        let error = first_refusal(&url, StoreErrorKind::Denied, &host).await;
        for said in ["'eval'", "+eval +evalsha", "doctor --acl"] {
            assert!(error.detail.contains(said), "{error}");
        }
    }
}

/// Some of the commands are gone, and the other ones do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_scripts_is_refused() {
    let without = |commands: &[&str]| {
        let renamed = commands
            .iter()
            .flat_map(|name| ["--rename-command", name, ""]);
        RedisServer::builder().args(renamed).start()
    };
    for commands in [
        &["EVAL", "EVALSHA", "SCRIPT"][..],
        &["EVAL", "EVALSHA"],
        &["EVAL", "SCRIPT"],
    ] {
        let server = without(commands);
        let host = format!("redis://127.0.0.1:{}", server.port());
        let error = first_refusal(&server.url(), StoreErrorKind::Misconfigured, &host).await;
        for said in [
            "runs no scripts",
            "rename-command",
            "Lua module",
            "unknown command 'EVAL'",
        ] {
            assert!(error.detail.contains(said), "{error}");
        }
    }
    for command in ["EVAL", "EVALSHA", "SCRIPT"] {
        let server = without(&[command]);
        let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(&server, &two, "orders", LONG);
        lease.release().await.expect("held");
        has_its_turn(waiter).await;
        assert!(is_free(&server, "orders"), "without {command}");
    }
}

/// The words of Valkey without its Lua module.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_scripting_engine_is_refused() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    for command in ["EVAL", "SCRIPT LOAD"] {
        proxy.deny(command, "ERR Could not find scripting engine 'lua'");
    }
    let host = format!("redis://127.0.0.1:{}", proxy.port());
    let error = first_refusal(&proxy.url(), StoreErrorKind::Misconfigured, &host).await;
    assert!(error.detail.contains("Lua module"), "{error}");
}

/// In the words of services and proxies, which often do not name the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_refused_without_their_name_are_refused() {
    let server = RedisServer::start();
    for words in ["ERR unsupported command", "ERR command not supported"] {
        let proxy = FaultProxy::start(server.port());
        for command in ["EVAL", "EVALSHA", "SCRIPT"] {
            proxy.deny(command, words);
        }
        let host = format!("redis://127.0.0.1:{}", proxy.port());
        let error = first_refusal(&proxy.url(), StoreErrorKind::Misconfigured, &host).await;
        for said in ["runs no scripts", words] {
            assert!(error.detail.contains(said), "{error}");
        }
        // Scripts by their text do without the others.
        let proxy = FaultProxy::start(server.port());
        proxy.deny("EVALSHA", words);
        proxy.deny("SCRIPT", words);
        let lease = take(&connect(&proxy.url()).await, "orders", LONG).await;
        lease.release().await.expect("held");
    }
}

/// Scripts run, and may not ask for the time: for this user, on this server, or in the words of `ElastiCache` Serverless in 2024.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_without_the_time_are_refused() {
    let (server, url) = with_user(&["~*", "&*", "+@all", "-time"]);
    let host = format!("redis://127.0.0.1:{}", server.port());
    let error = first_refusal(&url, StoreErrorKind::Denied, &host).await;
    for said in ["may not use TIME", "+time", "doctor --acl"] {
        assert!(error.detail.contains(said), "{error}");
    }
    let options = RedisServer::builder().args(["--rename-command", "TIME", ""]);
    let without = options.start();
    let proxy = FaultProxy::start(server.port());
    for command in ["EVAL", "EVALSHA"] {
        let words =
            "ERR This Redis command is not allowed from script script: 0a, on @user_script:1.";
        proxy.deny(command, words);
    }
    for (port, url) in [(without.port(), without.url()), (proxy.port(), proxy.url())] {
        let host = format!("redis://127.0.0.1:{port}");
        let error = first_refusal(&url, StoreErrorKind::Misconfigured, &host).await;
        for said in [
            "no script use TIME",
            "permits TIME in scripts",
            "from script",
        ] {
            assert!(error.detail.contains(said), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_touch_the_key() {
    let (server, url) = with_user(&["~app:*", "~{app:*", "~leasehold:fence", "&*", "+@all"]);
    let client = connect(&url).await;
    let verdict = within("a verdict", client.mutex("orders").try_acquire()).await;
    refused(verdict, StoreErrorKind::Denied, "127.0.0.1");
    assert!(is_free(&server, "orders"));
    let lease = take(&client, "app:orders", LONG).await;
    lease.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_run_a_command_that_the_script_needs() {
    let (server, url) = with_user(&["~*", "&*", "+@all", "-set"]);
    let client = connect(&url).await;
    let verdict = within("a verdict", client.mutex("orders").try_acquire()).await;
    let error = refused(verdict, StoreErrorKind::Denied, "127.0.0.1");
    assert!(is_free(&server, "orders"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_listen_or_publish_waits_by_polling() {
    for rules in [
        ["~*", "resetchannels", "+@all"].as_slice(),
        &["~*", "&*", "+@all", "-subscribe", "-publish"],
    ] {
        let (server, url) = with_user(rules);
        let (one, two) = (connect(&url).await, connect(&url).await);
        let all = connect(&server.url()).await;
        // The queue has two waiters. The first may not subscribe. The second may, but the client before it may not notify it.
        let lease = take(&one, "orders", LONG).await;
        let deaf = queue_up(&server, &two, "orders", LONG);
        let hearing = queue_up(&server, &all, "orders", LONG);
        let called = now();
        lease.release().await.expect("held");
        assert!(!is_free(&server, "orders"), "handed over all the same");
        let deaf = joined("by polling", deaf).await.expect("granted");
        println!("{rules:?}: {:?}", now().since(called));
        assert!(!hearing.is_finished());
        let called = now();
        deaf.release().await.expect("held");
        assert!(!is_free(&server, "orders"), "handed over all the same");
        let hearing = joined("by polling", hearing).await.expect("granted");
        println!("{rules:?}: {:?}", now().since(called));
        hearing.release().await.expect("held");
        assert!(is_free(&server, "orders"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_there() {
    let nobody = ReservedPort::new();
    let host = format!("127.0.0.1:{}", nobody.number());
    let url = format!("redis://:{CANARY}@{host}/");
    let error = refusal(&url, StoreErrorKind::Unreachable, &host).await;
    assert!(
        error.detail.contains("refused") && !error.may_have_taken_effect,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_in_which_no_node_has_the_slot_says_so() {
    let cluster = RedisServer::builder().option("cluster-require-full-coverage", "no");
    let cluster = cluster.start_cluster(1, 0);
    let (node, slot) = (&cluster.nodes()[0], cluster.slot("orders").to_string());
    let lost = node.cli(&["CLUSTER", "DELSLOTS", &slot]);
    assert_eq!(lost.text(), "OK");
    let client = Client::builder().request_timeout(Duration::from_secs(6));
    let client = client.connect(&node.url()).await.expect("the others work");
    let asked = within("a verdict", client.mutex("orders").try_acquire()).await;
    let host = format!("127.0.0.1:{}", node.port());
    let error = refused(asked.map(drop), StoreErrorKind::Unavailable, &host);
    let said = error.detail.to_lowercase();
    assert!(
        said.contains("slot") && !error.may_have_taken_effect,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_leaves_nobody_deaf() {
    // Every version knows this name. Since 7.0 the option has a second name, busy-reply-threshold.
    let server = RedisServer::builder()
        .option("lua-time-limit", "50")
        .start();
    let proxy = FaultProxy::start(server.port());
    let (holder, waits) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let lease = take(&holder, "orders", LONG).await;
    let waiter = queue_up(&server, &waits, "orders", LONG);
    let mut hog = server.connection();
    hog.send(&["EVAL", "while true do end", "0"]).expect("sent");
    let busy = || {
        server
            .cli(&["GET", "x"])
            .error()
            .is_some_and(|error| error.contains("BUSY"))
    };
    testkit::eventually(PLENTY, "the script hogs the server", busy);
    // The client connects again while the server is busy. It must not take the BUSY error for a refusal.
    let before = proxy.accepted();
    proxy.cut();
    testkit::eventually(PLENTY, "it tries again", || proxy.accepted() >= before + 3);
    server.cli(&["SCRIPT", "KILL"]);
    testkit::eventually(PLENTY, "the script has ended", || !busy());
    let record = || {
        let records = server.cli(&["HVALS", "{orders}:lh-waiters"]);
        records
            .array()
            .first()
            .map(testkit::Reply::text)
            .unwrap_or_default()
    };
    testkit::eventually(PLENTY, "it listens again", || {
        record().contains("leasehold:wake:")
            && !server
                .cli(&["CLIENT", "LIST", "TYPE", "pubsub"])
                .text()
                .is_empty()
    });
    lease.release().await.expect("held");
    has_its_turn(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_listens_says_nothing() {
    // The listener accepts no connection, but the kernel completes it anyway.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    let url = format!("redis://:{CANARY}@{host}/");
    let builder = Client::builder().request_timeout(EXPIRES_SOON);
    verdict(builder, &url, StoreErrorKind::TimedOut, &host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_exist() {
    let server = RedisServer::start();
    let host = format!("127.0.0.1:{}/77", server.port());
    let url = format!("redis://{host}");
    let error = refusal(&url, StoreErrorKind::Protocol, &host).await;
    assert!(error.detail.contains("index"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_unix_socket_as_a_user_in_a_database_of_its_own() {
    let server = RedisServer::builder().unix_socket().start();
    let by_port = user(&server, &["~*", "&*", "+@all"]);
    let path = server.socket_path();
    let path = path.to_str().expect("a path in UTF-8");
    let query = format!("db=3&user=worker&pass={CANARY}");
    for url in [format!("unix:{path}?{query}"), format!("{by_port}3")] {
        let client = connect(&url).await;
        let waiting = connect(&url).await;
        let lease = take(&client, "orders", LONG).await;
        let mut direct = server.connection();
        assert!(
            direct.command(&["GET", "orders"]).is_nil(),
            "not in database 0"
        );
        direct.command(&["SELECT", "3"]);
        let token = direct.command(&["GET", "orders"]).text();
        assert_eq!(token, lease.token());
        let users = server.cli(&["CLIENT", "LIST"]).text();
        assert!(users.contains("user=worker"), "{users}");
        let lock = waiting.mutex("orders").ttl(LONG);
        let waiter = crate::scene::beside(async move { lock.acquire().await });
        testkit::eventually(PLENTY, "the waiter is in line", || {
            direct.command(&["ZCARD", "{orders}:lh-queue"]).int() == 1
        });
        lease.release().await.expect("held");
        has_its_turn(waiter).await;
        assert_eq!(direct.command(&["EXISTS", "orders"]).int(), 0);
    }
    let wrong = format!("unix:{path}?user=worker&pass={CANARY}-not");
    refusal(&wrong, StoreErrorKind::Denied, path).await;
    let nowhere = format!("unix:{path}.not?{query}");
    refusal(&nowhere, StoreErrorKind::Unreachable, path).await;
}

/// Answers two connections with these bytes, the second of which only lets the thread end. Returns the error of the first.
async fn refusal_by(says: String, kind: StoreErrorKind) -> StoreError {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    // A server that has an error to tell does so first, and to everyone.
    let is_error = says.starts_with('-');
    let login = if is_error { "" } else { ":S3CR3T-canary@" };
    tokio::task::spawn_blocking(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.expect("a connection");
            if !is_error {
                let count = stream.read(&mut [0; 512]).expect("a request");
                assert!(count > 0, "the client speaks first");
            }
            stream.write_all(says.as_bytes()).expect("said");
        }
    });
    let url = format!("redis://{login}{host}/");
    let error = refusal(&url, kind, &host).await;
    drop(Client::connect(&url).await);
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_answers_is_not_a_redis() {
    let page = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let error = refusal_by(page.to_owned(), StoreErrorKind::Protocol).await;
    assert!(error.detail.contains("does not speak Redis"), "{error}");
    // Half an answer is no proof of another protocol.
    let half = "%7\r\n$6\r\nserver\r\n$5\r\nre".to_owned();
    let error = refusal_by(half, StoreErrorKind::Unreachable).await;
    assert!(!error.may_have_taken_effect, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_before_it_closes_is_told() {
    let full = RedisServer::start();
    // The kit's own first connection may not be closed yet, so the limit is set by the one that has to count.
    let mut only = full.connection();
    only.command(&["CONFIG", "SET", "maxclients", "1"]);
    let host = format!("127.0.0.1:{}", full.port());
    let error = refusal(&full.url(), StoreErrorKind::Unavailable, &host).await;
    assert!(error.detail.contains("max number of clients"), "{error}");

    // Redis' words to clients from other hosts.
    let protected = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside.";
    for (said, kind) in [
        (protected, StoreErrorKind::Denied),
        (
            "LOADING Redis is loading the dataset in memory",
            StoreErrorKind::Unavailable,
        ),
        (
            "ERR this proxy takes no more clients today",
            StoreErrorKind::Unreachable,
        ),
    ] {
        let error = refusal_by(format!("-{said}\r\n"), kind).await;
        let words = said.split_once(' ').expect("words").1;
        assert!(error.detail.contains(words), "{error}");
        assert!(!error.detail.contains("right port"), "{error}");
    }
}
