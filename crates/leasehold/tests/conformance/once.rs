//! Work that is done once: at most one run of a firing is successful.

use std::time::Duration;

use leasehold::{Client, Error, Lease, Once, StoreErrorKind, Turn};
use testkit::{FaultProxy, RedisServer};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, lost, on_every_store_of_entries};

/// The work of this firing, which has one.
fn firing(client: &Client) -> Once {
    let nightly = client.mutex("nightly").ttl(TTL).note("report");
    nightly.once("2026-11-27 {Berlin}")
}

/// Begins a run of a firing that must be possible, and returns its number.
async fn begin(client: &Client, firing: &Once) -> (Lease, u32) {
    let lease = client.mutex("nightly").ttl(TTL).acquire_within(LONG).await;
    let lease = lease.expect("the store answers");
    match firing.begin(&lease).await {
        Ok(Turn::Mine(number)) => (lease, number),
        other => panic!("{other:?}"),
    }
}

/// Does the work of a firing, which must be open.
async fn finish(client: &Client, firing: &Once) {
    let (lease, _) = begin(client, firing).await;
    firing.finish(&lease).await.expect("it is held");
    lease.release().await.expect("it is held");
}

/// What a caller is told that does nothing.
async fn told(firing: &Once) -> Option<Turn<()>> {
    let turn = firing.try_run(async |_| -> Result<(), Error> { panic!("there is nothing to do") });
    turn.await.expect("the store answers")
}

async fn is_done(client: &Client) -> bool {
    let past = firing(client).past().await.expect("the store answers");
    past.is_some_and(|past| past.is_done)
}

async fn a_firing_is_done_once(place: Place) {
    let (a, b) = place.two().await;
    assert_eq!(firing(&b).past().await, Ok(None));
    let nightly = firing(&a);
    let turn = nightly.run(async |lease| Ok::<_, Error>(lease.fence()));
    let Ok(Turn::Mine(fence)) = turn.await else {
        panic!("it is new");
    };
    for client in [&a, &b] {
        let Some(Turn::Done(past)) = told(&firing(client)).await else {
            panic!("it is done");
        };
        assert_eq!((past.by.client(), past.fence), (a.id(), fence));
        assert_eq!((past.number, &*past.by.note()), (1, "report"));
        assert_eq!(firing(client).past().await, Ok(Some(past)));
    }
    finish(&b, &b.once("nightly", "2026-11-28")).await;
}

async fn a_failed_run_leaves_the_firing_open(place: Place) {
    let (a, b) = place.two().await;
    let nightly = firing(&a);
    let failed = nightly.run(async |_| Err::<(), _>(Failed("no paper".into())));
    assert_eq!(failed.await.expect_err("it failed").0, "no paper");
    let past = firing(&b).past().await.expect("the store answers");
    assert!(past.is_some_and(|past| !past.is_done && past.number == 1));
    let (lease, number) = begin(&b, &firing(&b)).await;
    assert_eq!(number, 2);
    drop(lease);
    finish(&a, &firing(&a)).await;
    assert!(is_done(&b).await);
}

#[derive(Debug)]
struct Failed(String);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

async fn no_more_runs_begin_than_may(place: Place) {
    let (a, b) = place.two().await;
    let twice = firing(&a).tries(2);
    for number in 1..=2 {
        assert_eq!(begin(&a, &twice).await.1, number);
    }
    let spent = firing(&b).tries(2);
    let third = spent.run_within(LONG, async |_| -> Result<(), Error> { panic!("not again") });
    match third.await.expect("the store answers") {
        Turn::Spent(last) => assert_eq!((last.number, last.by.client()), (2, a.id())),
        other => panic!("{other:?}"),
    }
    // Who may not run keeps no lock, and without a limit more may begin.
    assert_eq!(begin(&b, &firing(&b)).await.1, 3);
}

async fn a_run_that_lost_its_lease_is_not_done(place: Place) {
    let (a, b) = place.two().await;
    let (lease, _) = begin(&a, &firing(&a)).await;
    let broken = b.break_lock("nightly", lease.fence()).await;
    assert!(broken.expect("the store answers"));
    let late = firing(&a).finish(&lease).await.expect_err("it was broken");
    assert!(late.is_lost(), "{late}");
    assert!(!is_done(&b).await);
    finish(&b, &firing(&b)).await;
    let late = firing(&a)
        .finish(&lease)
        .await
        .expect_err("another run did it");
    assert!(late.is_lost(), "{late}");
}

async fn a_mark_is_kept_of_a_lock_that_is_gone(place: Place) {
    let (a, b) = place.two().await;
    let (lease, _) = begin(&a, &firing(&a)).await;
    firing(&a).finish(&lease).await.expect("it is held");
    let broken = b.break_lock("nightly", lease.fence()).await;
    assert!(broken.expect("the store answers"));
    lost(lease.release().await);
    assert!(matches!(told(&firing(&b)).await, Some(Turn::Done(_))));
}

async fn who_waits_for_a_run_hears_that_it_is_done(place: Place) {
    let (a, b) = place.two().await;
    let (lease, _) = begin(&a, &firing(&a)).await;
    assert_eq!(told(&firing(&b)).await, None);
    let mut waiting = JoinSet::new();
    let waits = firing(&b);
    waiting.spawn(async move { waits.run(async |_| Ok::<_, Error>(())).await });
    let queued = async || !look(&a, "nightly").await.queue.is_empty();
    eventually("it waits", queued).await;
    firing(&a).finish(&lease).await.expect("it is held");
    let fence = lease.fence();
    lease.release().await.expect("it is held");
    let told = timeout(LONG, waiting.join_next()).await.expect("in time");
    match told.expect("it waits").expect("no panic") {
        Ok(Turn::Done(past)) => assert_eq!(past.fence, fence),
        other => panic!("{other:?}"),
    }
}

async fn a_mark_is_told_while_another_firing_runs(place: Place) {
    let (a, b) = place.two().await;
    finish(&a, &firing(&a)).await;
    let _running = begin(&a, &a.once("nightly", "2026-11-28")).await;
    assert!(matches!(told(&firing(&b)).await, Some(Turn::Done(_))));
}

async fn every_step_may_be_repeated(place: Place) {
    let (a, _) = place.two().await;
    let once = firing(&a).tries(1);
    let (lease, number) = begin(&a, &once).await;
    assert_eq!(once.begin(&lease).await, Ok(Turn::Mine(number)));
    for _ in 0..2 {
        assert_eq!(once.finish(&lease).await, Ok(()));
    }
    assert!(matches!(once.begin(&lease).await, Ok(Turn::Done(_))));
    let other = a.once("hourly", "2026-11-27").begin(&lease).await;
    assert!(matches!(other, Err(Error::Invalid(_))), "{other:?}");
}

async fn a_least_time_counts_for_runs_only(place: Place) {
    let (a, b) = place.two().await;
    let slow = b.mutex("nightly").at_least(LONG);
    let spent = slow.once("2026-11-28").tries(1);
    drop(begin(&a, &spent).await);
    let turn = spent.run(async |_| -> Result<(), Error> { panic!("not again") });
    assert!(matches!(turn.await, Ok(Turn::Spent(_))));
    let next = slow.once("2026-11-29");
    let turn = next.run(async |_| Ok::<_, Error>(()));
    assert!(matches!(turn.await, Ok(Turn::Mine(()))));
    assert_eq!(told(&a.once("nightly", "2026-11-30")).await, None);
}

async fn a_firing_is_forgotten_after_its_time(place: Place) {
    let (a, b) = place.two().await;
    finish(&a, &firing(&a).keep(Duration::from_secs(1))).await;
    let gone = async || firing(&b).past().await == Ok(None);
    assert!(!gone().await);
    eventually("it is forgotten", gone).await;
}

async fn the_store_tells_its_time(place: Place) {
    let (a, b) = place.two().await;
    let first = a.mutex("nightly").store_time().await;
    let next = b.mutex("nightly").store_time().await;
    let (first, next) = (first.expect("it answers"), next.expect("it answers"));
    assert!(first <= next, "{first:?} {next:?}");
    let (lease, _) = begin(&a, &firing(&a)).await;
    let past = firing(&a).past().await.expect("it answers");
    assert!(past.is_some_and(|past| past.at >= next && past.fence == lease.fence()));
}

on_every_store_of_entries! {
    a_firing_is_done_once
    a_failed_run_leaves_the_firing_open
    no_more_runs_begin_than_may
    a_run_that_lost_its_lease_is_not_done
    a_mark_is_kept_of_a_lock_that_is_gone
    who_waits_for_a_run_hears_that_it_is_done
    a_mark_is_told_while_another_firing_runs
    every_step_may_be_repeated
    a_least_time_counts_for_runs_only
    a_firing_is_forgotten_after_its_time
    the_store_tells_its_time
}

/// The lock is gone between the last two requests of the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_lock_is_gone_before_its_release_is_done() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = Client::connect(&proxy.url()).await.expect("it works");
    let nightly = firing(&client);
    let run = nightly.run(async |_| {
        // Its mark, and then its release.
        proxy.hold_after("EVALSHA");
        Ok::<_, Error>(())
    });
    let gone = async {
        eventually("it is released", async || proxy.is_holding()).await;
        assert_eq!(server.cli(&["DEL", "nightly"]).int(), 1);
        proxy.go_on();
    };
    let (turn, ()) = tokio::join!(run, gone);
    assert_eq!(turn, Ok(Turn::Mine(())));
    assert!(is_done(&client).await);
}

#[tokio::test]
async fn bad_settings_take_no_lock() {
    let (a, b) = Place::memory().two().await;
    for (once, what) in [
        (a.once("nightly", ""), "firing"),
        (a.once("nightly", "a\n"), "firing"),
        (a.once("", "a"), "lock name"),
        (
            firing(&a).keep(Duration::from_millis(999)),
            "time to keep a firing",
        ),
        (firing(&a).keep(Duration::MAX), "time to keep a firing"),
    ] {
        let refused = once.run(async |_| -> Result<(), Error> { panic!("it is refused") });
        match refused.await {
            Err(Error::Invalid(refused)) => assert_eq!(refused.what, what),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(look(&b, "nightly").await.holder, None);
}

#[tokio::test]
async fn a_quorum_keeps_no_firings() {
    let place = Place::quorum();
    let client = place.client().await;
    let nightly = firing(&client);
    let refused = nightly.run(async |_| -> Result<(), Error> { panic!("it is refused") });
    match refused.await {
        Err(Error::Store(error)) => assert_eq!(error.kind, StoreErrorKind::Misconfigured),
        other => panic!("{other:?}"),
    }
    assert_eq!(look(&client, "nightly").await.holder, None);
}
