//! A replica takes over. The leases of its slots are confirmed at once, or lost and told.

use futures_util::future::join_all;
use leasehold::{Client, Clock, Lease};
use testkit::{FaultProxy, RedisCluster, RedisServer};
use tokio::time::sleep;

use crate::common::{TTL, all_are_confirmed, all_are_lost, eventually, take, timed};
use crate::scene::{beside, connect, joined, millis, soon};

/// Names whose slots this node has.
fn names_at(cluster: &RedisCluster, node: &RedisServer, many: usize) -> Vec<String> {
    let names = (0..).map(|number| format!("n{number}"));
    let here = names.filter(|name| cluster.primary(cluster.slot(name)).port() == node.port());
    here.take(many).collect()
}

async fn take_all(client: &Client, names: &[String]) -> Vec<Lease> {
    join_all(names.iter().map(|name| take(client, name))).await
}

/// Waits until a replica has all that the node has written. `WAIT` counts the writes of its own connection.
fn is_replicated(node: &RedisServer, name: &str) {
    let mut connection = node.connection();
    let set = connection.command(&["SET", &format!("{{{name}}}last"), "1"]);
    assert_eq!(set.text(), "OK");
    assert_eq!(connection.command(&["WAIT", "1", "10000"]).int(), 1);
}

/// The replica of this node.
fn replica_of<'a>(cluster: &'a RedisCluster, node: &RedisServer) -> &'a RedisServer {
    let port = i64::from(node.port());
    let follows = |other: &&RedisServer| {
        let role = other.cli(&["ROLE"]);
        let role = role.array();
        role[0].text() == "slave" && role[2].int() == port
    };
    cluster.nodes().iter().find(follows).expect("it has one")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_replica_has_is_confirmed_and_what_it_lacks_is_lost() {
    let cluster = RedisServer::builder()
        .password("secret")
        .start_cluster(3, 3);
    let client = connect(&cluster).await;
    let node = &cluster.nodes()[0];
    let names = names_at(&cluster, node, 60);
    let (known, unknown) = names.split_at(30);
    let known = take_all(&client, known).await;
    let elsewhere = take_all(&client, &names_at(&cluster, &cluster.nodes()[1], 10)).await;
    is_replicated(node, &names[0]);
    let replica = replica_of(&cluster, node);
    // From now on, the replica receives nothing.
    replica.cli(&["CONFIG", "SET", "masterauth", "wrong"]);
    node.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let unknown = take_all(&client, unknown).await;

    cluster.failover(replica, "TAKEOVER");
    all_are_lost(unknown).await;
    let fences = all_are_confirmed(known).await;
    // Fences rise also where the counter of the replica was behind.
    let again = take_all(&client, &names[..30]).await;
    for (again, before) in again.iter().zip(fences) {
        assert!(again.fence() > before);
    }
    for lease in elsewhere {
        lease.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_waiters_outlive_a_primary_that_is_killed_or_paused() {
    let cluster = RedisCluster::start(3, 3);
    for paused in [false, true] {
        let node = &cluster.nodes()[usize::from(paused)];
        let names = names_at(&cluster, node, 20);
        let (one, other) = (connect(&cluster).await, connect(&cluster).await);
        let held = take_all(&one, &names).await;
        let lock = other.mutex(&names[0]).ttl(TTL);
        let waiter = beside(async move { lock.acquire().await });
        eventually("it waits", async || {
            let seen = one.inspect(&names[0]).await.expect("an answer");
            !seen.queue.is_empty()
        })
        .await;
        is_replicated(node, &names[0]);
        let replica = replica_of(&cluster, node);
        if paused {
            node.pause();
        } else {
            node.kill();
        }
        cluster.failover(replica, "TAKEOVER");
        for lease in &held {
            soon("it is renewed", async {
                while lease.extend(TTL).await.is_err() {
                    tokio::time::sleep(millis(5)).await;
                }
            })
            .await;
        }
        for lease in held {
            lease.release().await.expect("held");
        }
        let served = joined("it is served", waiter).await;
        served.expect("its turn").release().await.expect("held");
        if paused {
            node.resume();
        } else {
            node.restart();
        }
        cluster.settle();
    }
}

/// As where a name leads to nodes whose addresses change when they start again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_all_others_are_found_by_the_url() {
    let before = RedisCluster::start(1, 0);
    let name = FaultProxy::start(before.nodes()[0].port());
    let clock = Clock::manual();
    let url = format!("redis+cluster://127.0.0.1:{}/", name.port());
    let client = timed(&clock).connect(&url).await.expect("it works");
    take(&client, "a").await.release().await.expect("held");
    eventually("the name is out of use", async || {
        // A connection that ends is a reason to ask for the map.
        name.cut();
        clock.advance(millis(30_000));
        // Longer than the pause before the next one.
        sleep(millis(400)).await;
        name.connections() == 0
    })
    .await;
    let after = RedisCluster::start(1, 0);
    name.redirect(after.nodes()[0].port());
    drop(before);
    eventually("it is found", async || {
        let asks = beside({
            let lock = client.mutex("a").ttl(TTL);
            async move { lock.try_acquire().await }
        });
        let passes = async {
            loop {
                sleep(millis(5)).await;
                clock.advance(millis(5));
            }
        };
        tokio::select! {
            taken = joined("an answer", asks) => matches!(taken, Ok(Some(_))),
            () = passes => unreachable!("time does not end"),
        }
    })
    .await;
}
