//! The numbers of a quorum are those of one store: a node that fails while a majority answers counts as a failed node, and as no error.

use leasehold::Error;
use testkit::RedisServer;

use crate::common::{TTL, eventually, passing, renewed};
use crate::recorder::Numbers;
use crate::scene::Scene;

const HELD: &str = "leasehold_held{mode=\"exclusive\"}";
const RENEW: &str = "leasehold_renew_seconds";

/// The counters whose names begin so, added up.
fn all(numbers: &Numbers, name: &str) -> i64 {
    let names = numbers.all().into_iter();
    let names = names.filter(|series| series.starts_with(name));
    names.map(|series| numbers.sum(&series)).sum()
}

/// Whether requests to each server failed.
fn have_failed(numbers: &Numbers, servers: &[RedisServer]) -> Vec<bool> {
    let of = |server: &RedisServer| {
        let node = format!("node=\"redis://127.0.0.1:{}\"", server.port());
        let names = numbers.all().into_iter();
        let names = names.filter(|series| series.contains(&node));
        names.map(|series| numbers.sum(&series)).sum::<i64>() > 0
    };
    servers.iter().map(of).collect()
}

#[tokio::test]
async fn failures_count_when_no_majority_is_left() {
    let (numbers, scene) = (Numbers::default(), Scene::quorum());
    let (servers, time) = (scene.place.servers(), &scene.time);
    let client = numbers.client(&scene.place, scene.builder()).await;
    let mutex = client.mutex("x").ttl(TTL);
    servers[0].kill();
    let lease = passing(time, "a majority", mutex.acquire()).await;
    let lease = lease.expect("two servers answer");
    let before = numbers.count(RENEW);
    for _ in 0..3 {
        renewed(time, &lease).await;
    }
    let counted = async || numbers.count(RENEW) >= before + 3;
    eventually("renewals", counted).await;
    passing(time, "answers", async {
        client.inspect("x").await.expect("two servers answer");
        client.inspect_nodes("x").await.expect("it is open");
        let busy = client.mutex("y").try_acquire().await;
        drop(busy.expect("two servers answer"));
    })
    .await;
    assert_eq!(all(&numbers, "leasehold_store_errors_total"), 0);
    assert_eq!(have_failed(&numbers, servers), [true, false, false]);
    assert_eq!(numbers.sum(HELD), 1);
    let acquired = "leasehold_acquire_total{outcome=\"acquired\"}";
    assert_eq!(numbers.sum(acquired), 2);

    servers[1].kill();
    time.pass(lease.valid_for() / 2);
    let failing = eventually("a renewal fails", async || lease.doubt().is_some());
    passing(time, "a failure", failing).await;
    assert!(!lease.is_lost());
    time.pass(lease.valid_for());
    lease.lost().await;
    let lost = "leasehold_lost_total{cause=\"deadline\"}";
    eventually("it is told", async || numbers.sum(lost) == 1).await;
    assert_eq!(numbers.sum(HELD), 0);
    let before = all(&numbers, "leasehold_store_errors_total");
    assert!(before > 0);
    let lock = client.mutex("y");
    let refused = passing(time, "a refusal", lock.try_acquire()).await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    let unavailable = "leasehold_acquire_total{outcome=\"unavailable\"}";
    assert_eq!(numbers.sum(unavailable), 1);
    let inspecting = client.inspect_nodes("x");
    let inspected = passing(time, "an answer", inspecting).await;
    let inspected = inspected.expect("it is open");
    assert!(inspected.lock.is_err());
    assert!(all(&numbers, "leasehold_store_errors_total") > before);
    assert_eq!(have_failed(&numbers, servers), [true, true, false]);
}
