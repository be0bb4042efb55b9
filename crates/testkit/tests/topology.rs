//! Clusters and sentinels: formed, and what moves or fails over.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{RedisCluster, RedisServer, RedisServerBuilder, Sentinels};

fn with_password() -> RedisServerBuilder {
    RedisServer::builder().password("secret")
}

/// The error names the server.
#[track_caller]
fn refuses(server: &RedisServer, command: &[&str], why: &str) {
    let error = server.try_cli(command).expect_err("refused");
    let expected = format!("{} to `{}`: {why}", server.address(), command.join(" "));
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn cluster_moves_a_slot_with_its_keys() {
    let cluster = with_password().start_cluster(3, 0);
    let slot = cluster.slot("{tag}");
    let from = cluster.primary(slot);
    let mut others = cluster
        .nodes()
        .iter()
        .filter(|node| node.port() != from.port());
    let to = others.next().expect("three nodes");
    for key in ["{tag}a", "{tag}b", "{tag}c"] {
        from.cli(&["SET", key, key]);
    }
    refuses(to, &["GET", "{tag}a"], "MOVED");
    cluster.begin_move(slot, to);
    assert!(cluster.move_key("{tag}a", to));
    assert!(!cluster.move_key("{tag}a", to));
    refuses(from, &["GET", "{tag}a"], "ASK");
    assert_eq!(from.cli(&["GET", "{tag}b"]).text(), "{tag}b");
    cluster.move_keys(slot, to);
    cluster.end_move(slot, to);
    for other in others.chain([from]) {
        refuses(other, &["GET", "{tag}a"], "MOVED");
    }
    assert_eq!(cluster.primary(slot).port(), to.port());
    cluster.move_slot(slot, from);
    assert_eq!(from.cli(&["GET", "{tag}c"]).text(), "{tag}c");
    cluster.settle();
}

#[test]
fn cluster_replica_takes_over_by_itself_and_when_told() {
    let cluster = RedisCluster::start(3, 3);
    let slot = cluster.slot("a");
    let old = cluster.primary(slot);
    old.cli(&["SET", "a", "1"]);
    assert_eq!(old.cli(&["WAIT", "1", "10000"]).int(), 1);
    old.kill();
    let new = cluster.primary(slot);
    cluster.settle();
    assert_eq!(new.cli(&["GET", "a"]).int(), 1);
    // It comes back as a replica.
    old.restart();
    cluster.settle();
    cluster.failover(old, "FORCE");
    cluster.settle();
    assert_eq!(old.cli(&["GET", "a"]).int(), 1);
    old.pause();
    cluster.failover(new, "TAKEOVER");
    assert_eq!(cluster.primary(slot).port(), new.port());
    old.resume();
    cluster.settle();
    refuses(old, &["GET", "a"], "MOVED");
}

#[test]
fn sentinels_make_a_replica_the_primary() {
    let sentinel = RedisServer::builder().password("other");
    let watched = with_password().start_watched(2, sentinel, 3);
    assert_eq!(watched.addresses().split(',').count(), 3);
    let old = watched.primary();
    assert_eq!(old.port(), watched.nodes()[0].port());
    old.cli(&["SET", "a", "1"]);
    assert_eq!(old.cli(&["WAIT", "2", "10000"]).int(), 2);
    old.kill();
    let new = watched.successor(old);
    assert_eq!(new.cli(&["GET", "a"]).int(), 1);
    // A sentinel has told it its role, which is in its file.
    new.restart();
    assert_eq!(new.cli(&["ROLE"]).array()[0].text(), "master");
}

#[test]
fn sentinels_that_stalled_name_a_replica_of_a_paused_primary() {
    let watched = Sentinels::start(1, 3);
    watched.sentinels().iter().for_each(RedisServer::pause);
    // After a stall of 2 s, sentinels trust no time.
    thread::sleep(Duration::from_millis(2_500));
    watched.sentinels().iter().for_each(RedisServer::resume);
    let old = watched.primary();
    old.pause();
    let new = watched.successor(old);
    assert_eq!(new.cli(&["ROLE"]).array()[0].text(), "master");
    old.resume();
    assert_eq!(watched.primary().port(), new.port());
}

#[test]
fn peers_speak_tls() {
    let cluster = with_password().tls().start_cluster(2, 1);
    let first = &cluster.nodes()[0];
    assert_eq!(first.address(), format!("127.0.0.1:{}", first.tls_port()));
    first.cli(&["SET", "b", "1"]);
    let slot = cluster.slot("b");
    assert_eq!(cluster.primary(slot).port(), first.port());
    cluster.move_slot(slot, &cluster.nodes()[1]);
    assert_eq!(cluster.nodes()[1].cli(&["GET", "b"]).int(), 1);
    let watched = with_password()
        .tls()
        .start_watched(1, RedisServer::builder(), 3);
    let old = watched.primary();
    old.kill();
    let new = watched.successor(old);
    assert!(watched.sentinels()[0].tls_port() > 0 && new.tls_port() > 0);
}
