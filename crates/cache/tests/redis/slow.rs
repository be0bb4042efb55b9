//! A load that takes longer than its lease.

use std::time::Duration;

use leasehold_cache::Origin;
use testkit::eventually;
use tokio::task::JoinSet;

use crate::clients::{Clients, LEASE, RunningLoad, policy};
use crate::common::{self, LONG};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_it_stays_the_only_one() {
    let clients = Clients::connect(4).await;
    let load = clients.load(0, 1).await;
    let mut waiting = JoinSet::new();
    for client in 0..4 {
        for _ in 0..5 {
            waiting.spawn(clients.reader(client));
        }
    }
    eventually(LONG, "they wait", || clients.waiters() == 3);
    // More than two leases.
    for _ in 0..7 {
        clients.renews().await;
    }
    assert_eq!(clients.loads(), 1);
    load.ends();
    while let Some(got) = waiting.join_next().await {
        assert_eq!(*got.expect("no panic").expect("a value"), 1);
    }
    assert_eq!(clients.loads(), 1);
}

/// Without renewals, other clients load too, one for each lease. The cache keeps the first value that arrives, and serves all callers with
/// it. A lock with a check at the end would discard every value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_renewed_it_still_fills_the_cache() {
    let clients = Clients::connect(4).await;
    let unrenewed = policy().load_at_most(Duration::ZERO);
    let mut loads = Vec::new();
    for (client, value) in [(0, 1), (1, 2), (2, 3)] {
        loads.push(clients.asks(client, value, unrenewed.clone()));
        let begun = || clients.loads() == value;
        eventually(LONG, "it loads", begun);
        clients.time.pass(LEASE + Duration::from_millis(1));
    }
    let mut ended = loads.into_iter().map(RunningLoad::ends);
    let first = ended.next().expect("there are three");
    assert_eq!(*first.await.expect("no panic").expect("a value"), 1);
    let stored = async || clients.server.cli(&["EXISTS", "hot"]).int() == 1;
    common::eventually("it is stored", stored).await;
    for client in 0..4 {
        let got = clients.reader(client).await.expect("a value");
        assert_eq!((*got, got.origin()), (1, Origin::Fresh), "{client}");
    }
    for other in ended {
        other.await.expect("no panic").expect("a value");
    }
    assert_eq!(clients.loads(), 3);
}
