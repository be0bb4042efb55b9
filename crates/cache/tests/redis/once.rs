//! One load for each expiry, in a fleet of four processes, from every state that an entry can be in.
//!
//! It is exactly one load, on a busy machine too: the lease of a load is 10 s here, and the load takes 20 ms. A second load is correct only
//! in two cases. The loading process stops for longer than its lease, or the server loses the lease (a `FLUSHALL` during the load).

use std::slice;

use leasehold_cache::{Cache, Policy};
use testkit::{RedisServer, eventually};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, TTL, test_time, timed};
use crate::fleet::{Fleet, Member, PLENTY, Told, total, waiters};

const PROCESSES: usize = 4;

/// Each process makes 100 calls, 250 in a second.
const TRAFFIC: &str = "offer key=hot calls=100 every=4000";

/// Four processes read a stored entry, and `event` changes it, perhaps with a fifth process. Exactly one load follows.
#[track_caller]
fn one_load_follows(event: impl FnOnce(&Fleet, &mut Member)) {
    let mut fleet = Fleet::start(PROCESSES + 1);
    let mut fifth = fleet.processes.pop().expect("there are five");
    fleet.store("hot", "");
    fleet.begin(TRAFFIC);
    eventually(PLENTY, "they read it", || fleet.commands()["get"] > 5);
    event(&fleet, &mut fifth);
    let told = fleet.end();
    check(&told, "during it");
    // On a busy machine, some processes may have ended before the change. This round lets them read the entry.
    let told = fleet.all(TRAFFIC);
    check(&told, "after it");
    assert_eq!(fleet.source.loads("hot"), 2, "{told:?}");
    fleet.assert_nothing_stays();
}

#[track_caller]
fn check(told: &[Told], when: &str) {
    for kind in ["busy", "error"] {
        assert_eq!(total(told, kind), 0, "{when}: {told:?}");
    }
    let answered = ["fresh", "stale", "waited", "loaded"];
    let answered: u64 = answered.iter().map(|how| total(told, how)).sum();
    assert_eq!(answered, 400, "{when}: {told:?}");
}

/// Callers that come one after the other, and callers that all come at once.
#[test]
fn missing() {
    let mut fleet = Fleet::start(PROCESSES);
    for (key, traffic) in [
        ("hot", "calls=100 every=4000"),
        ("crowd", "callers=100 takes=200"),
    ] {
        let told = fleet.all(&format!("offer key={key} {traffic}"));
        assert_eq!(fleet.source.loads(key), 1, "{told:?}");
        check(&told, key);
    }
    fleet.assert_nothing_stays();
}

#[test]
fn soft_expired() {
    let mut fleet = Fleet::start(PROCESSES);
    fleet.store("hot", "fresh=20 stale=60000");
    std::thread::sleep(std::time::Duration::from_millis(30));
    // The source is closed until all calls are answered.
    let told = fleet.all(&format!("{TRAFFIC} closed=1"));
    assert_eq!(total(&told, "stale"), 400, "nobody waits: {told:?}");
    fleet.source.sign("open", "hot");
    let told = fleet.all(TRAFFIC);
    check(&told, "soft-expired");
    assert_eq!(fleet.source.loads("hot"), 2, "{told:?}");
}

#[test]
fn hard_expired() {
    let mut fleet = Fleet::start(PROCESSES);
    fleet.store("hot", "fresh=20 stale=0");
    eventually(PLENTY, "it is gone", || {
        fleet.server.cli(&["EXISTS", "hot"]).int() == 0
    });
    let told = fleet.all(TRAFFIC);
    assert_eq!(fleet.source.loads("hot"), 2, "{told:?}");
    check(&told, "hard-expired");
}

/// The fifth process changes the register, and then invalidates or removes the entry.
fn writes(remove: u8) -> impl FnOnce(&Fleet, &mut Member) {
    move |_, fifth| {
        fifth.order(&format!("write key=hot value=1 remove={remove}"));
        fifth.answer();
    }
}

#[test]
fn invalidated_under_traffic() {
    one_load_follows(writes(0));
}

#[test]
fn removed_under_traffic() {
    one_load_follows(writes(1));
}

#[test]
fn flushed_under_traffic() {
    one_load_follows(|fleet, _| assert_eq!(fleet.server.cli(&["FLUSHALL"]).text(), "OK"));
}

/// The clock of the clients stands still, so no waiter polls: the client that loads notifies them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_told() {
    let server = RedisServer::builder().virtual_clock().start();
    let (_time, clock) = test_time(slice::from_ref(&server));
    let connect = async || {
        let client = timed(&clock).connect(&server.url()).await;
        let policy = Policy::default().lease(TTL).wait_at_most(10 * LONG);
        Cache::new(&client.expect("it is up")).policy(policy)
    };
    let (loads, waits) = (connect().await, connect().await);
    let (end, ends) = oneshot::channel();
    let load = || async move { ends.await.map(|()| 1_u64) };
    let loading = tokio::spawn(loads.get_or_refresh("hot", load).into_future());
    eventually(PLENTY, "it loads", || {
        server.cli(&["EXISTS", "{hot}:lh-cache"]).int() == 1
    });
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let second = || async { Err::<u64, _>("a second load") };
        let call = waits.get_or_refresh("hot", second).into_future();
        waiting.spawn(timeout(LONG, call));
    }
    eventually(PLENTY, "they wait", || waiters(&server, "hot") == 1);
    end.send(()).expect("it waits for this");
    loading.await.expect("no panic").expect("a value");
    while let Some(got) = waiting.join_next().await {
        let got = got.expect("no panic").expect("an answer");
        assert_eq!(*got.expect("a value"), 1);
    }
}
