//! One load for each expiry, in a fleet of four processes, from every state that an entry can be in.
//!
//! It is exactly one load, on a busy machine too: the lease of a load is 10 s here, and the load takes 20 ms. A second load is correct only
//! in two cases. The loading process stops for longer than its lease, or the server loses the lease (a `FLUSHALL` during the load).

use testkit::eventually;
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::fleet::{Fleet, Member, PLENTY, Told, total};

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
    for kind in ["busy", "failed", "error"] {
        assert_eq!(total(told, kind), 0, "{when}: {told:?}");
    }
    let answered = ["fresh", "stale", "waited", "loaded"];
    let answered: u64 = answered.iter().map(|how| total(told, how)).sum();
    assert_eq!(answered, 400, "{when}: {told:?}");
}

#[test]
fn missing() {
    let mut fleet = Fleet::start(PROCESSES);
    let told = fleet.all(TRAFFIC);
    assert_eq!(fleet.source.loads("hot"), 1, "{told:?}");
    check(&told, "missing");
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

/// Sends an order to the fifth process.
fn does(order: &str) -> impl FnOnce(&Fleet, &mut Member) {
    move |_, fifth| {
        fifth.order(order);
        assert_eq!(fifth.answer().get("ok"), 1);
    }
}

#[test]
fn invalidated_under_traffic() {
    one_load_follows(does("invalidate key=hot"));
}

#[test]
fn removed_under_traffic() {
    one_load_follows(does("remove key=hot"));
}

#[test]
fn flushed_under_traffic() {
    one_load_follows(|fleet, _| assert_eq!(fleet.server.cli(&["FLUSHALL"]).text(), "OK"));
}

/// 200 callers request a missing entry at once, and one load serves them all.
#[test]
fn many_callers_at_once_share_one_load() {
    let mut fleet = Fleet::start(PROCESSES);
    for round in 0..2 {
        let key = format!("hot-{round}");
        let told = fleet.all(&format!("offer key={key} callers=50 takes=200"));
        assert_eq!(fleet.source.loads(&key), 1, "{told:?}");
        assert_eq!(
            total(&told, "waited") + total(&told, "loaded") + total(&told, "fresh"),
            200,
            "{told:?}"
        );
    }
}

/// The clock of the clients stands still, so no waiter polls: the client that loads notifies them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_told() {
    let clients = Clients::connect(2).await;
    let load = clients.load(0, 1).await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        waiting.spawn(clients.reader(1));
    }
    eventually(PLENTY, "they wait", || clients.waiters() == 1);
    load.ends();
    while let Some(got) = waiting.join_next().await {
        let got = got.expect("no panic").expect("a value");
        assert_eq!(*got, 1);
    }
}
