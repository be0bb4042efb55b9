//! A cluster is examined as a whole: each node, and what they have in common.

use testkit::{RedisCluster, RedisServer, eventually};

use super::{CANARY, Report, run, set, with_user};
use crate::common::LIMIT;

/// The URL of a node, as the doctor names it.
fn named(node: &RedisServer) -> String {
    format!("redis://{}", node.address())
}

/// Waits until each node tells of all others. A replica without data is no replica to them.
fn tells_all(cluster: RedisCluster) -> RedisCluster {
    let places = |node: &RedisServer| format!("{:?}", node.cli(&["CLUSTER", "SLOTS"]));
    for key in 0..20 {
        let key = format!("key:{key}");
        let node = cluster.primary(cluster.slot(&key));
        assert_eq!(node.cli(&["SET", &key, "1"]).text(), "OK");
    }
    let nodes = cluster.nodes();
    eventually(LIMIT, "each node knows all", || {
        let names = |places: &str| {
            let port = |node: &RedisServer| places.contains(&node.port().to_string());
            nodes.iter().all(port)
        };
        nodes.iter().all(|node| names(&places(node)))
    });
    cluster
}

#[test]
fn all_nodes_are_examined_by_any_url_of_the_cluster() {
    let cluster = tells_all(RedisCluster::start(3, 1));
    let [first, second, third, replica] = cluster.nodes() else {
        panic!("four nodes");
    };
    for url in [
        // A replica.
        replica.url(),
        format!("redis+cluster://{}/", cluster.addresses()),
        // The first one is no more.
        format!("redis+cluster://127.0.0.1:1,{}/", first.address()),
    ] {
        let report = Report::quick(&url, "");
        report.has("c.nodes", "ok/ok", &["3 primaries, 1 replicas"]);
        report.ends(0, &["fail"], &[]);
    }
    let judged = |words: &str| Report::quick(&first.url(), words);
    let report = judged("");
    assert_eq!(report.document["server"]["mode"], "cluster");
    for id in ["c.state", "c.versions", "c.clocks", "c.failover"] {
        report.has(id, "ok/ok", &[]);
    }
    let of = |report: &Report, id: &str, node: &RedisServer, states: &str| {
        let (node, [efficiency, correctness]) = (named(node), split(states));
        let is_it = |it: &&serde_json::Value| {
            let text = it["text"].as_str().expect("a text");
            it["id"] == id && text.starts_with(&format!("{node}: "))
        };
        let found = report.findings().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{id} of {node}: {report:#?}"));
        assert_eq!(found["efficiency"], efficiency, "{found:#}");
        assert_eq!(found["correctness"], correctness, "{found:#}");
    };
    // Only the first one has a replica.
    of(&report, "rep.count", first, "ok/ok");
    of(&report, "rep.count", second, "info/warn");
    of(&report, "acl.probe", third, "ok/ok");
    of(&report, "acl.probe", replica, "ok/ok");

    report.has("c.coverage", "info/info", &["no lock works"]);
    for node in cluster.nodes() {
        set(node, "cluster-require-full-coverage", "no");
    }
    set(second, "cluster-node-timeout", "19500");
    set(third, "maxmemory", "100mb");
    set(third, "maxmemory-policy", "allkeys-lru");
    let report = judged("");
    report.has("c.coverage", "ok/ok", &[]);
    report.has("c.failover", "warn/warn", &["cluster-node-timeout=19500"]);
    of(&report, "mem.policy", first, "ok/ok");
    of(&report, "mem.policy", third, "warn/fail");
    judged("--ttl 60s").has("c.failover", "ok/ok", &[]);
    let set_back = |node| set(node, "cluster-node-timeout", "1000");
    set_back(second);

    // The cluster forgets a replica that has failed.
    replica.kill();
    eventually(LIMIT, "the others know it", || {
        let told = first.cli(&["CLUSTER", "NODES"]).text();
        told.lines().any(|line| line.contains("slave,fail "))
    });
    judged("").has("c.nodes", "info/warn", &["knows 4 nodes"]);

    // The locks in its slots are lost.
    third.kill();
    eventually(LIMIT, "the others know it", || {
        let told = first.cli(&["CLUSTER", "INFO"]).text();
        told.contains("cluster_slots_fail:5")
    });
    let report = judged("");
    report.has("c.nodes", "fail/fail", &["2 of 3 nodes", &named(third)]);
    assert_eq!(report.code, 78);
}

/// Behind a proxy, or with renamed commands.
#[test]
fn a_cluster_without_hello_is_examined_as_one() {
    let server = RedisServer::builder().args(["--rename-command", "HELLO", ""]);
    let cluster = server.start_cluster(1, 0);
    for url in [
        cluster.nodes()[0].url(),
        format!("redis+cluster://{}/", cluster.addresses()),
    ] {
        let report = Report::quick(&url, "");
        report.has("c.state", "ok/ok", &[]);
        let why = ["HELLO is refused", "waiters poll"];
        report.has("acl.probe", "warn/warn", &why);
    }
}

fn split(states: &str) -> [&str; 2] {
    let (efficiency, correctness) = states.split_once('/').expect("two states");
    [efficiency, correctness]
}

#[test]
fn a_user_that_a_replica_lacks_is_told_before_it_takes_over() {
    let cluster = tells_all(RedisCluster::start(3, 3));
    let rules = "~* &* +@all";
    let (replica, others) = cluster.nodes().split_last().expect("nodes");
    let urls: Vec<String> = others.iter().map(|node| with_user(node, rules)).collect();
    let report = Report::quick(&urls[0], "");
    report.has("c.nodes", "warn/warn", &["5 of 6 nodes", &named(replica)]);
    with_user(replica, "~* &* +@all -eval");
    let report = Report::quick(&urls[0], "");
    report.has("c.nodes", "ok/ok", &["3 primaries, 3 replicas"]);
    report.ends(78, &["fail"], &["acl.probe"]);
    report.has("acl.probe", "ok/ok", &[]);

    with_user(replica, rules);
    for node in cluster.nodes() {
        with_user(node, "~* &* +@all -cluster");
    }
    let report = Report::quick(&urls[0], "");
    report.has("c.nodes", "unknown/unknown", &["+cluster|slots"]);
}

#[test]
fn a_node_without_slots_and_a_server_that_is_no_node() {
    let node = RedisServer::builder().option("cluster-enabled", "yes");
    let node = node.start();
    let report = Report::quick(&node.url(), "");
    report.has("c.nodes", "fail/fail", &["no node has slots"]);
    report.has("c.state", "fail/fail", &["CLUSTERDOWN"]);
    assert_eq!(report.code, 78);

    let server = RedisServer::start();
    let url = format!("redis+cluster://:{CANARY}@{}/", server.address());
    let refused = run(&url, "--quick");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{said}");
    assert!(
        said.contains("write redis:// for a single server"),
        "{said}"
    );
}
