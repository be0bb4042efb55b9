//! The numbers of a quorum are those of one store: a node that fails while a majority answers is no error.

use leasehold::{Client, Error};

use crate::common::{Place, eventually};
use crate::millis;
use crate::recorder::Numbers;

const HELD: &str = "leasehold_held";
const RENEW: &str = "leasehold_renew_seconds";

/// The counters whose names begin so, added up.
fn all(numbers: &Numbers, name: &str) -> i64 {
    let names = numbers.all().into_iter();
    let names = names.filter(|series| series.starts_with(name));
    names.map(|series| numbers.sum(&series)).sum()
}

#[tokio::test]
async fn failures_count_when_no_majority_is_left() {
    let (numbers, place) = (Numbers::default(), Place::quorum());
    let builder = Client::builder().request_timeout(millis(300));
    let client = numbers.client(&place, builder).await;
    let mutex = client.mutex("x").ttl(millis(1_500));
    place.servers()[0].kill();
    let lease = mutex.acquire().await.expect("two servers answer");
    let renewals = numbers.count(RENEW);
    eventually("renewals", async || numbers.count(RENEW) > renewals + 2).await;
    client.inspect("x").await.expect("two servers answer");
    client.inspect_nodes("x").await.expect("it is open");
    let busy = client.mutex("y").try_acquire().await;
    drop(busy.expect("two servers answer"));
    assert_eq!(all(&numbers, "leasehold_store_errors_total"), 0);
    assert_eq!(numbers.sum(HELD), 1);
    let acquired = "leasehold_acquire_total{outcome=\"acquired\"}";
    assert_eq!(numbers.sum(acquired), 2);

    place.servers()[1].kill();
    lease.lost().await;
    let lost = "leasehold_lost_total{cause=\"deadline\"}";
    eventually("it is told", async || numbers.sum(lost) == 1).await;
    assert_eq!(numbers.sum(HELD), 0);
    let before = all(&numbers, "leasehold_store_errors_total");
    assert!(before > 0);
    let refused = client.mutex("y").try_acquire().await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    let unavailable = "leasehold_acquire_total{outcome=\"unavailable\"}";
    assert_eq!(numbers.sum(unavailable), 1);
    let inspected = client.inspect_nodes("x").await.expect("it is open");
    assert!(inspected.lock.is_err());
    assert!(all(&numbers, "leasehold_store_errors_total") > before);
}
