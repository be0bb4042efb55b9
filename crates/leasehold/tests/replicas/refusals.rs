//! Servers that confirm nothing, or are not asked to.

use std::env;
use std::path::PathBuf;

use leasehold::{Client, Error, StoreError, StoreErrorKind};
use testkit::{FaultProxy, RedisServer};

use crate::common::{LONG, TTL, store_error};
use crate::{connect, has, soon};

async fn refused(url: &str) -> StoreError {
    let connecting: Result<Client, Error> = Client::connect(url).await;
    store_error(connecting.map(|_| ()))
}

#[tokio::test]
async fn server_that_does_not_wait_is_refused_with_what_to_change() {
    let server = RedisServer::start();
    let user = "on >s resetkeys ~* resetchannels &* +@all -wait";
    let rules = user.split(' ');
    let line: Vec<&str> = ["ACL", "SETUSER", "u"].into_iter().chain(rules).collect();
    assert_eq!(server.cli(&line).text(), "OK");
    let proxy = FaultProxy::start(server.port());
    proxy.deny(
        "WAIT",
        "ERR unknown command 'WAIT', with args beginning with: ",
    );
    let here = format!("127.0.0.1:{}", server.port());
    for (url, kind, help) in [
        (
            format!("redis://u:s@{here}/?replicas=1"),
            StoreErrorKind::Denied,
            "ACL SETUSER USER +wait",
        ),
        (
            format!("{}?replicas=1", proxy.url()),
            StoreErrorKind::Misconfigured,
            "does not know WAIT: connect to such a server and not to a proxy",
        ),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.detail.contains(help), "{error}");
        assert!(!error.may_have_taken_effect, "{error:?}");
    }
    // What the option needs, nobody else needs.
    let without = Client::connect(&format!("redis://u:s@{here}/")).await;
    without.expect("a connection");
}

/// A permission that is taken away later. The acquire is undone.
#[tokio::test]
async fn grant_without_permission_to_wait_is_undone() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&format!("{}?replicas=1", proxy.url())).await;
    proxy.deny(
        "WAIT",
        "NOPERM User u has no permissions to run the 'wait' command",
    );
    let refused = soon("an error", client.mutex("x").ttl(TTL).acquire()).await;
    let error = store_error(refused);
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    assert!(error.detail.contains("+wait"), "{error}");
    crate::common::eventually("it is undone", async || {
        server.cli(&["EXISTS", "x"]).int() == 0
    })
    .await;
}

#[tokio::test]
async fn one_connection_more_only_with_the_option() {
    let server = RedisServer::start();
    for (options, count) in [("", 1), ("?replicas=1", 2)] {
        let proxy = FaultProxy::start(server.port());
        let _client = connect(&format!("{}{options}", proxy.url())).await;
        assert_eq!(proxy.accepted(), count, "{options}");
    }
}

/// The installed server (`None`), and each other one that a variable `REDIS_SERVER_BIN_<name>` names.
fn programs() -> impl Iterator<Item = Option<PathBuf>> {
    let others = env::vars().filter(|(name, _)| name.starts_with("REDIS_SERVER_BIN_"));
    let others = others.map(|(_, path)| Some(PathBuf::from(path)));
    [None].into_iter().chain(others)
}

/// Where the server knows `WAITAOF`; else it is refused.
#[tokio::test]
async fn fsync_has_grants_on_the_disks() {
    for program in programs() {
        let start = |appends: &str, of: Option<u16>| {
            let mut builder = RedisServer::builder().option("appendonly", appends);
            builder = builder.option("repl-diskless-sync-delay", "0");
            if let Some(program) = &program {
                builder = builder.binary(program);
            }
            if let Some(port) = of {
                builder = builder.replica_of(port);
            }
            builder.start()
        };
        let plain = start("no", None);
        let error = refused(&format!("{}?replicas=1&fsync=1", plain.url())).await;
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        if error.detail.contains("does not know WAITAOF") {
            assert!(error.detail.contains("Redis 7.2 and Valkey"), "{error}");
            continue;
        }
        assert!(error.detail.contains("set appendonly yes"), "{error}");

        let primary = start("yes", None);
        let replica = start("yes", Some(primary.port()));
        replica.follows(LONG);
        let options = "replicas=1&fsync=1&replicas_timeout=1m";
        let client = connect(&format!("{}?{options}", primary.url())).await;
        let lease = soon("a lease", client.mutex("x").ttl(TTL * 4).acquire()).await;
        let lease = lease.expect("free");
        assert!(has(&replica, &lease));
        lease.release().await.expect("held");

        // A replica without a file confirms nothing.
        replica.cli(&["CONFIG", "SET", "appendonly", "no"]);
        let options = "replicas=1&fsync=1&replicas_timeout=50ms";
        let client = connect(&format!("{}?{options}", primary.url())).await;
        let refused = soon("an error", client.mutex("x").ttl(TTL).acquire()).await;
        let error = store_error(refused);
        assert!(error.detail.contains("0 of 1 replicas"), "{error}");
    }
}
