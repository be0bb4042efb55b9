//! Real sentinels: what their URL may say, and that a client follows them to another primary.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::doctor::{Examination, Facts};
use leasehold::{Client, ClientBuilder, Lease, Mutex, StoreErrorKind};
use testkit::{RedisServer, ReservedPort, Sentinels};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{
    LONG, all_are_confirmed, all_are_lost, eventually, look, stand_in_line, store_error,
};

/// No lease of such a TTL is renewed, and no request with such a limit given up, before a test fails.
const HOUR: Duration = Duration::from_secs(3600);

/// What a user of a sentinel needs. As in `docs/operations.md`.
const RIGHTS: &str = "+sentinel|get-master-addr-by-name +sentinel|sentinels +sentinel|myid +subscribe resetchannels &+switch-master";

/// The output of `future`, which needs no limit to pass.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let output = timeout(LONG, future).await;
    output.unwrap_or_else(|_| panic!("not soon: {what}"))
}

async fn connect(url: &str) -> Client {
    connect_by(Client::builder(), url).await
}

async fn connect_by(builder: ClientBuilder, url: &str) -> Client {
    let builder = builder.request_timeout(LONG * 3).outage_timeout(HOUR);
    soon("a client", builder.connect(url))
        .await
        .expect("it works")
}

fn lock(client: &Client, name: &str) -> Mutex {
    client.mutex(name).ttl(HOUR)
}

async fn take_all(client: &Client, names: &[String]) -> Vec<Lease> {
    let takes = names.iter().map(async |name| {
        let taken = lock(client, name).try_acquire().await;
        taken.expect("an answer").expect("nobody holds it")
    });
    soon("all leases", join_all(takes)).await
}

fn names(letter: char) -> Vec<String> {
    (0..20).map(|number| format!("{letter}{number}")).collect()
}

/// Waits until the replica has what was written. `WAIT` waits only for what was written over the same connection.
fn is_replicated(primary: &RedisServer) {
    primary.cli(&["SET", "mark", "1"]);
    assert_eq!(primary.cli(&["WAIT", "1", "10000"]).int(), 1);
}

/// Renews a lease, which may take a few attempts while one server replaces another.
async fn extended(lease: &Lease) {
    soon("a renewal", async {
        while lease.extend(HOUR).await.is_err() {
            assert!(!lease.is_lost(), "{:?}", lease.loss());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Each wrong URL says what is wrong with it.
async fn refuses_what_does_not_fit(watched: &Sentinels, hosts: &str) {
    let of = |url: &str| {
        let url = url.to_owned();
        async move {
            let error = store_error(soon("a verdict", Client::connect(&url)).await);
            assert!(!error.to_string().contains("S3CR3T"), "{error}");
            error
        }
    };
    let nobody = ReservedPort::new();
    let nobody = format!("127.0.0.1:{}", nobody.number());
    let [sentinel, server] = [&watched.sentinels()[1], &watched.nodes()[0]];
    let (sentinel, server) = (sentinel.address(), server.address());
    let name = Sentinels::NAME;
    for (url, kind, said) in [
        (
            format!("redis+sentinel://:S3CR3T@{hosts}/other?sentinel_pass=S3CR3T2"),
            StoreErrorKind::Misconfigured,
            "no primary named other",
        ),
        (
            format!("redis+sentinel://:S3CR3T@{hosts}/{name}?sentinel_pass=S3CR3T"),
            StoreErrorKind::Denied,
            "sentinel_pass",
        ),
        (
            format!("redis+sentinel://:S3CR3T@{hosts}/{name}"),
            StoreErrorKind::Denied,
            "sentinel_pass",
        ),
        (
            format!("redis+sentinel://:S3CR3T2@{hosts}/{name}?sentinel_pass=S3CR3T2"),
            StoreErrorKind::Denied,
            "the sentinels name redis://127.0.0.1:",
        ),
        (
            format!("redis+sentinel://{nobody},{nobody}/{name}"),
            StoreErrorKind::Unreachable,
            "no sentinel names the primary: sentinel 127.0.0.1:",
        ),
        (
            format!("redis+sentinel://{server}/{name}?sentinel_pass=S3CR3T"),
            StoreErrorKind::Misconfigured,
            "redis://host:port/",
        ),
        (
            format!("redis://:S3CR3T2@{sentinel}/"),
            StoreErrorKind::Misconfigured,
            "redis+sentinel://host[:26379]/main",
        ),
    ] {
        let error = of(&url).await;
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let error = of(&format!("redis+sentinel://{hosts}/{name}")).await;
    assert_eq!(error.store, format!("redis+sentinel://{hosts}/{name}"));
}

/// The primary is killed while one of three sentinels is down. The replica has some of the leases, and lacks the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_new_primary_lacks_is_lost_at_once() {
    let watched = RedisServer::builder().password("S3CR3T").start_watched(
        1,
        RedisServer::builder().password("S3CR3T2"),
        3,
    );
    // The first two lead to the third, and the first is down.
    let hosts = watched.addresses();
    let (hosts, _) = hosts.rsplit_once(',').expect("three");
    watched.sentinels()[0].kill();
    assert!(include_str!("../../../../docs/operations.md").contains(RIGHTS));
    refuses_what_does_not_fit(&watched, hosts).await;

    let name = Sentinels::NAME;
    for sentinel in &watched.sentinels()[1..] {
        let create = format!("ACL SETUSER looks on >S3CR3T3 {RIGHTS}");
        sentinel.cli(&create.split(' ').collect::<Vec<_>>());
    }
    let login = "sentinel_user=looks&sentinel_pass=S3CR3T3";
    let url = format!("redis+sentinel://:S3CR3T@{hosts}/{name}/3?{login}");
    let (ann, bob) = (connect(&url).await, connect(&url).await);
    let [primary, replica] = watched.nodes() else {
        panic!("two")
    };
    let known = take_all(&ann, &names('k')).await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, lock(&bob, "k0")).await;
    is_replicated(primary);
    // From now on, the replica receives nothing.
    replica.cli(&["CONFIG", "SET", "masterauth", "wrong"]);
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let unknown = take_all(&ann, &names('u')).await;

    primary.kill();
    all_are_lost(unknown).await;
    let fences = all_are_confirmed(known).await;
    let served = soon("its turn", waiting.join_next()).await;
    let (_, served) = served.expect("one waits").expect("no panic");
    served.expect("its turn").release().await.expect("held");
    let again = take_all(&ann, &names('k')).await;
    for (again, before) in again.iter().zip(fences) {
        assert!(again.fence() > before);
    }
    let how = Examination::new(HOUR).glance();
    let facts = Box::pin(Client::builder().examine(&url, &how));
    let facts = soon("its facts", facts).await.expect("it answers").facts;
    assert!(matches!(facts, Facts::Server(_)));
}

/// The primary is paused: the client hears nothing of it, and has no request that would end for that. Later it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_primary_is_left_by_word_of_the_sentinels() {
    let watched = RedisServer::builder()
        .tls()
        .start_watched(1, RedisServer::builder(), 3);
    let authority = watched.nodes()[0].ca_path().display().to_string();
    let (hosts, name) = (watched.addresses(), Sentinels::NAME);
    let url = format!("rediss+sentinel://{hosts}/{name}?tls_ca={authority}");
    let client = connect(&url).await;
    let old = watched.primary();
    let lease = lock(&client, "a").acquire().await.expect("free");
    // The streams of another client are made by a function of the program.
    let dialed = Arc::<std::sync::Mutex<BTreeSet<u16>>>::default();
    let noted = dialed.clone();
    let dial = move |host: String, port: u16| {
        noted.lock().unwrap().insert(port);
        TcpStream::connect((host, port))
    };
    let dials = connect_by(Client::builder().dial(dial), &url).await;
    let by_dial = lock(&dials, "b").acquire().await.expect("free");
    is_replicated(old);
    old.pause();
    let new = watched.successor(old);
    extended(&lease).await;
    extended(&by_dial).await;
    let ports = [old, new, &watched.sentinels()[0]].map(RedisServer::tls_port);
    assert!(dialed.lock().unwrap().is_superset(&ports.into()));
    by_dial.release().await.expect("held");
    dials.close().await;
    assert!(
        new.cli(&["INFO", "commandstats"])
            .text()
            .contains("evalsha")
    );

    // It still takes itself for a primary. It first executes what it was sent before.
    old.resume();
    old.cli(&["PING"]);
    old.cli(&["PING"]);
    old.cli(&["CONFIG", "RESETSTAT"]);
    // Also if the sentinel that is asked first does not answer.
    for sentinel in watched.sentinels().iter().take(2) {
        sentinel.pause();
        new.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        extended(&lease).await;
        sentinel.resume();
    }
    extended(&lease).await;
    lease.release().await.expect("held");
    let seen = look(&client, "a").await;
    assert!(seen.holder.is_none());
    eventually("it was sent nothing", async || {
        // The sentinel that makes it a replica closes its connections.
        let stats = old.try_cli(&["INFO", "commandstats"]);
        stats.is_ok_and(|stats| !stats.text().contains("evalsha"))
    })
    .await;
}
