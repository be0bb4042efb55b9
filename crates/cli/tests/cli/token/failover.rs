//! The token of a former waiter after a failover to a lagging replica, on which its owner still waits.

use testkit::{RedisServer, eventually};

use super::{acquired, is, leasehold};
use crate::common::{LIMIT, Store};

fn queued(server: &RedisServer) -> i64 {
    server.cli(&["ZCARD", "{x}:lh-queue"]).int()
}

/// Waits until the replica has all data of its primary.
fn follows(replica: &RedisServer) {
    eventually(LIMIT, "the replica has it all", || {
        let info = replica.cli(&["INFO", "replication"]).text();
        info.contains("master_link_status:up")
    });
}

fn becomes_primary(server: &RedisServer) {
    server.cli(&["REPLICAOF", "NO", "ONE"]);
}

/// Takes "x" after a wait, and returns its token. Then restores the server's earlier data: another client holds,
/// and the token's owner waits.
fn failed_over(store: &Store) -> String {
    let primary = store.server();
    let replica = RedisServer::builder()
        .option("repl-diskless-sync-delay", "0")
        .replica_of(primary.port())
        .start();
    let first = acquired(store, "1h");
    let waiting = store.verb("acquire", &["--ttl", "1h", "x"]).start();
    follows(&replica);
    eventually(LIMIT, "the replica has the line", || queued(&replica) == 1);
    becomes_primary(&replica);

    let released = leasehold(store, &["release", "x"], &[("LEASEHOLD_TOKEN", &first)]);
    is(&released, 0, &[]);
    let waited = waiting.end();
    assert_eq!(waited.code(), 0, "{waited:?}");
    let token = waited.stdout.trim_end().to_owned();
    let held = leasehold(store, &["check", "x"], &[("LEASEHOLD_TOKEN", &token)]);
    is(&held, 0, &[]);

    let port = replica.port().to_string();
    primary.cli(&["REPLICAOF", "127.0.0.1", &port]);
    follows(primary);
    becomes_primary(primary);
    assert_eq!(queued(primary), 1);
    token
}

#[test]
fn a_token_whose_owner_only_waits_after_a_failover_is_79() {
    let store = Store::redis();
    let token = failed_over(&store);
    let set = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", token.as_str())];
    for verb in [
        ["check"].as_slice(),
        &["renew", "--ttl", "1h"],
        &["release"],
    ] {
        let output = leasehold(&store, verb, &set);
        is(&output, 79, &["you do not hold \"x\" any more", "held by"]);
    }
    // The token's owner has left the queue anyway.
    assert_eq!(queued(store.server()), 0);
}
