//! What a URL may say of a cluster.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use leasehold::{Client, StoreErrorKind};
use testkit::{RedisCluster, RedisServer};
use tokio::net::TcpStream;

use crate::common::{TTL, eventually, invalid, store_error, take};
use crate::scene::{Moment, Moving, connect, soon};

/// Takes and releases locks on all nodes.
async fn works(client: &Client) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        let lease = take(client, name).await;
        lease.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_enough_to_find_the_others() {
    let cluster = RedisCluster::start(3, 1);
    // Also by the URL of a single server, and by a replica.
    for node in cluster.nodes() {
        for scheme in ["redis+cluster", "valkey+cluster", "redis"] {
            let url = format!("{scheme}://{}/", node.address());
            works(&Client::connect(&url).await.expect("it works")).await;
        }
    }
    let nobody = testkit::ReservedPort::new();
    let url = format!(
        "redis+cluster://127.0.0.1:{},{}/",
        nobody.number(),
        cluster.nodes()[2].address()
    );
    works(
        &Client::connect(&url)
            .await
            .expect("the second node answers"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_have_the_login_of_the_url() {
    let cluster = RedisServer::builder()
        .password("secret")
        .start_cluster(2, 0);
    let url = format!("redis+cluster://:secret@{}/", cluster.addresses());
    works(&Client::connect(&url).await.expect("it works")).await;
    let url = format!("redis+cluster://:wrong@{}/", cluster.addresses());
    let error = store_error(Client::connect(&url).await);
    assert_eq!(error.kind, StoreErrorKind::Denied);
    assert!(!error.to_string().contains("wrong@"), "{error}");
}

/// The function gets the host and the port of each node, also of those that the URL does not name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_dialed_by_the_function_of_the_program() {
    let cluster = RedisCluster::start(3, 0);
    let dialed = Arc::<Mutex<BTreeSet<u16>>>::default();
    let noted = dialed.clone();
    let dial = move |host: String, port: u16| {
        noted.lock().unwrap().insert(port);
        TcpStream::connect((host, port))
    };
    let url = format!("redis+cluster://{}/", cluster.nodes()[0].address());
    let connecting = Client::builder().dial(dial).connect(&url);
    works(&connecting.await.expect("it works")).await;
    let ports = cluster.nodes().iter().map(RedisServer::port).collect();
    assert_eq!(*dialed.lock().unwrap(), ports);
}

/// The nodes send a client on that may not ask for the map.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_ask_for_the_slots_is_sent_on() {
    let cluster = RedisCluster::start(3, 0);
    for node in cluster.nodes() {
        node.cli(&["ACL", "SETUSER", "default", "-cluster|slots"]);
    }
    works(&connect(&cluster).await).await;
}

/// Also a node that has not the slot of the key by which scripts are tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_time_is_refused_at_each_node() {
    let cluster = RedisCluster::start(2, 0);
    for node in cluster.nodes() {
        node.cli(&["ACL", "SETUSER", "default", "-time"]);
    }
    let client = connect(&cluster).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let refused = soon("an error", client.mutex(name).acquire()).await;
        let error = store_error(refused);
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
        assert!(error.detail.contains("+time"), "{name}: {error}");
    }
}

/// The certificates are for the names of the nodes, and a node that sends a step on says an address.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_tls_are_known_by_their_names() {
    let cluster = RedisServer::builder()
        .tls()
        .args(["--bind", "127.0.0.1", "127.0.0.2"])
        .args(["--cluster-announce-ip", "127.0.0.2"])
        .args(["--cluster-announce-hostname", "localhost"])
        .start_cluster(2, 0);
    let first = &cluster.nodes()[0];
    let (port, ca) = (first.tls_port(), first.ca_path().display());
    let url = format!("rediss+cluster://localhost:{port}/?tls_ca={ca}");
    let client = Client::connect(&url).await.expect("it works");
    let lease = take(&client, "{m}x").await;
    let moving = Moving::new(&cluster, "{m}x");
    for moment in [Moment::Lock, Moment::After, Moment::Before] {
        let to = moving.another();
        moving.until(moment, to);
        let what = format!("{moment:?}");
        soon(&what, lease.extend(TTL)).await.expect(&what);
        moving.to_its_end(moment, to);
        soon(&what, lease.extend(TTL)).await.expect(&what);
    }
    lease.release().await.expect("held");
}

/// Nobody tells such a user who has the slots of a node that is silent. The others know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_ask_for_the_slots_needs_no_first_node() {
    let cluster = RedisCluster::start(3, 3);
    for node in cluster.nodes() {
        node.cli(&["ACL", "SETUSER", "default", "-cluster|slots"]);
    }
    let client = connect(&cluster).await;
    works(&client).await;
    let first = &cluster.nodes()[0];
    let follows = |other: &&RedisServer| {
        let role = other.cli(&["ROLE"]);
        let role = role.array();
        role[0].text() == "slave" && role[2].int() == i64::from(first.port())
    };
    let replica = cluster.nodes().iter().find(follows).expect("it has one");
    first.kill();
    cluster.failover(replica, "TAKEOVER");
    eventually("the others serve all slots", async || {
        let mut all = true;
        for name in ["a", "b", "c", "d", "e", "f"] {
            match client.mutex(name).ttl(TTL).try_acquire().await {
                Ok(Some(lease)) => lease.release().await.expect("held"),
                _ => all = false,
            }
        }
        all
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_with_what_to_write() {
    let single = RedisServer::start();
    let url = format!("redis+cluster://{}/", single.address());
    let error = store_error(Client::connect(&url).await);
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.detail.contains("redis://"), "{error}");
    for (url, said) in [
        ("redis+cluster://a,b/3", "database"),
        ("redis+cluster://a,,b", "host"),
        ("redis+cluster://a,b:x/", "port"),
        ("redis+cluster:///", "host"),
    ] {
        let error = invalid(Client::connect(url).await);
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_says_so() {
    let alone = RedisServer::builder()
        .option("cluster-enabled", "yes")
        .start();
    let client = Client::connect(&alone.url()).await.expect("it answers");
    let error = store_error(client.mutex("a").try_acquire().await);
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(
        error.detail.contains("no node of the cluster serves") && !error.may_have_taken_effect,
        "{error}"
    );
}
