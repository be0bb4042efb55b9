//! Numbers of cache entries.

use std::collections::HashMap;

use leasehold::{Client, ClientBuilder};
use leasehold_cache::Cache;
use testkit::{FaultProxy, RedisServer};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::Level;
use tracing::subscriber::set_default;

use super::{Fleet, SECOND, fails, millis, panics, plain, plain_cache, slow};
use crate::common::{LONG, eventually};
use crate::listener::{Listener, has};
use crate::recorder::Numbers;

const READS: [&str; 9] = [
    "fresh",
    "stale",
    "loaded",
    "waited",
    "nothing",
    "busy",
    "failed",
    "unavailable",
    "cancelled",
];
const LOADS: [&str; 8] = [
    "fresh",
    "stale",
    "overtaken",
    "unconfirmed",
    "nothing",
    "failed",
    "panicked",
    "gone",
];
const EARLY: &str = "leasehold_cache_early_refresh_total";
const BACK_OFF: &str = "leasehold_cache_back_off_total";
const LOAD_TIME: &str = "leasehold_cache_load_seconds";

/// A client and its cache that record their numbers here.
fn counted(fleet: &Fleet, numbers: &Numbers, builder: ClientBuilder) -> (Client, Cache) {
    let _recording = metrics::set_default_local_recorder(numbers);
    let client = fleet.client(builder);
    let cache = plain_cache(&client);
    (client, cache)
}

fn read(numbers: &Numbers) -> Vec<(&'static str, i64)> {
    let all = READS.map(|outcome| {
        let series = format!("leasehold_cache_read_total{{outcome={outcome:?}}}");
        (outcome, numbers.sum(&series))
    });
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn waited(outcome: &str) -> String {
    format!("leasehold_cache_wait_seconds{{outcome={outcome:?}}}")
}

/// The loads so far that were in time, or that were late, by outcome.
fn loads(numbers: &Numbers, late: bool) -> Vec<(&'static str, i64)> {
    let all = LOADS.map(|outcome| {
        let series = format!("leasehold_cache_load_total{{late=\"{late}\",outcome={outcome:?}}}");
        (outcome, numbers.sum(&series))
    });
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// The leases lost by their deadline, and the leases lost by a reply of the store.
fn lost(numbers: &Numbers) -> [i64; 2] {
    ["deadline", "not_held"].map(|cause| {
        numbers.sum(&format!(
            "leasehold_cache_lease_lost_total{{cause={cause:?}}}"
        ))
    })
}

fn invalidated(numbers: &Numbers) -> [i64; 2] {
    ["confirmed", "unconfirmed"].map(|word| {
        numbers.sum(&format!(
            "leasehold_cache_invalidate_total{{outcome={word:?}}}"
        ))
    })
}

#[tokio::test(start_paused = true)]
async fn every_read_has_one_outcome() {
    let (fleet, numbers) = (Fleet::new(), Numbers::default());
    let (_client, cache) = counted(&fleet, &numbers, Client::builder());
    let other = plain_cache(&fleet.client(Client::builder()));
    assert_eq!(read(&numbers), []);

    assert!(cache.get::<u32>("home").await.expect("an answer").is_none());
    assert_eq!(read(&numbers), [("nothing", 1)]);
    let (one, two) = tokio::join!(
        cache.get_or_refresh("home", slow(2)).into_future(),
        cache.get_or_refresh("home", slow(2)).into_future(),
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(
        read(&numbers),
        [("loaded", 1), ("waited", 1), ("nothing", 1)]
    );
    for outcome in ["loaded", "waited"] {
        assert_eq!(numbers.count(&waited(outcome)), 1);
        assert!((2.0..2.5).contains(&numbers.seconds(&waited(outcome))));
    }

    // Callers do not wait for a value that is there.
    let fresh = cache.get_or_refresh("home", slow(2)).await;
    assert!(fresh.is_ok() && cache.get::<u32>("home").await.is_ok());
    sleep(61 * SECOND).await;
    let stale = cache.get_or_refresh("home", slow(2)).await;
    assert!(stale.is_ok());
    let so_far = [
        ("fresh", 2),
        ("stale", 1),
        ("loaded", 1),
        ("waited", 1),
        ("nothing", 1),
    ];
    assert_eq!(read(&numbers), so_far);
    assert_eq!(numbers.count(&waited("stale")), 0);

    let loading = tokio::spawn(other.get_or_refresh("busy", slow(60)).into_future());
    sleep(SECOND).await;
    let asking = cache.get_or_refresh("busy", slow(1)).wait_at_most(SECOND);
    assert!(asking.await.is_err());
    let asking = cache.get_or_refresh("busy", slow(1)).into_future();
    assert!(timeout(SECOND, asking).await.is_err());
    // Lets the client notice that the caller has gone.
    sleep(millis(1)).await;
    assert!(cache.get_or_refresh("bad", fails).await.is_err());
    let all = [
        so_far.as_slice(),
        &[("busy", 1), ("failed", 1), ("cancelled", 1)],
    ]
    .concat();
    assert_eq!(read(&numbers), all);
    assert_eq!(numbers.count(&waited("busy")), 1);
    loading.abort();

    // A call for several entries counts one outcome for each.
    let nothing = |_: Vec<String>| async { Ok::<_, String>(HashMap::<String, u32>::new()) };
    let many = cache.get_many_or_refresh(["home", "none"], nothing).await;
    assert_eq!(many.expect("an answer").values.len(), 1);
    let after = read(&numbers);
    assert!(
        after.contains(&("fresh", 3)) && after.contains(&("nothing", 2)),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_load_has_one_outcome_and_late_ones_are_told_apart() {
    let (fleet, numbers) = (Fleet::new(), Numbers::default());
    let (client, cache) = counted(&fleet, &numbers, Client::builder());
    let other = plain_cache(&fleet.client(Client::builder()));
    assert!(cache.get_or_refresh("home", slow(20)).await.is_ok());
    assert!(cache.get_or_refresh("failing", fails).await.is_err());
    assert!(cache.get_or_refresh("panicking", panics).await.is_err());
    let nothing = |_: Vec<String>| async { Ok::<_, String>(HashMap::<String, u32>::new()) };
    let many = cache.get_many_or_refresh(["none"], nothing).await;
    assert!(many.expect("an answer").values.is_empty());
    sleep(millis(1)).await;
    let in_time = [("fresh", 1), ("nothing", 1), ("failed", 1), ("panicked", 1)];
    assert_eq!(loads(&numbers, false), in_time);
    assert_eq!((loads(&numbers, true), lost(&numbers)), (vec![], [0, 0]));
    // Every load counts, whatever its outcome. A lease that is renewed is not lost.
    assert_eq!(numbers.count(LOAD_TIME), 4);
    assert!((20.0..20.5).contains(&numbers.seconds(LOAD_TIME)));

    // The store keeps this late value, since it has no newer one.
    let unrenewed = plain().lease(3 * SECOND).load_at_most(SECOND);
    let load = cache
        .get_or_refresh("late", slow(10))
        .policy(unrenewed.clone());
    assert!(load.await.is_ok());
    sleep(millis(1)).await;
    assert_eq!(loads(&numbers, true), [("fresh", 1)]);
    assert_eq!(lost(&numbers), [1, 0]);
    assert!(other.get::<u32>("late").await.expect("an answer").is_some());

    // The store drops this late value, since another client has loaded meanwhile.
    let late = cache
        .get_or_refresh("overtaken", slow(10))
        .policy(unrenewed);
    let late = tokio::spawn(late.into_future());
    sleep(5 * SECOND).await;
    assert!(other.get_or_refresh("overtaken", slow(1)).await.is_ok());
    assert!(late.await.expect("no panic").is_ok());
    sleep(millis(1)).await;
    assert_eq!(loads(&numbers, true), [("fresh", 1), ("overtaken", 1)]);
    assert_eq!(lost(&numbers), [2, 0]);

    // The invalidation ends the lease. The loader learns this at its next renewal.
    let loading = tokio::spawn(cache.get_or_refresh("gone", slow(10)).into_future());
    sleep(SECOND).await;
    other.invalidate("gone").await.expect("an answer");
    assert!(loading.await.expect("no panic").is_ok());
    sleep(millis(1)).await;
    let late = [("fresh", 1), ("stale", 1), ("overtaken", 1)];
    assert_eq!(loads(&numbers, true), late);
    assert_eq!(lost(&numbers), [2, 1]);

    // The client closes in the middle of a load.
    let loading = tokio::spawn(cache.get_or_refresh("closed", slow(10)).into_future());
    sleep(SECOND).await;
    client.close().await;
    assert!(loading.await.expect("no panic").is_err());
    let in_time = [in_time.as_slice(), &[("gone", 1)]].concat();
    assert_eq!((loads(&numbers, false), lost(&numbers)), (in_time, [2, 1]));
}

#[tokio::test(start_paused = true)]
async fn early_refreshes_back_offs_and_invalidations_are_counted() {
    let (fleet, numbers) = (Fleet::new(), Numbers::default());
    let (_client, cache) = counted(&fleet, &numbers, Client::builder());
    let cache = cache.policy(plain().eagerness(100.0));
    let other = plain_cache(&fleet.client(Client::builder()));
    assert!(cache.get_or_refresh("home", slow(10)).await.is_ok());
    sleep(40 * SECOND).await;
    // No early refresh comes before the last fifth of the fresh time.
    assert!(cache.get_or_refresh("home", slow(10)).await.is_ok());
    assert_eq!(numbers.sum(EARLY), 0);
    sleep(10 * SECOND).await;
    // Chance decides at each read. Twenty reads are more than enough for one refresh.
    for _ in 0..20 {
        assert!(cache.get_or_refresh("home", slow(10)).await.is_ok());
    }
    assert_eq!(numbers.sum(EARLY), 1);
    sleep(11 * SECOND).await;
    assert_eq!(loads(&numbers, false), [("fresh", 2)]);

    // One load fails in this client, and one in another client.
    assert_eq!(numbers.sum(BACK_OFF), 0);
    assert!(cache.get_or_refresh("here", fails).await.is_err());
    assert_eq!(numbers.sum(BACK_OFF), 1);
    assert!(other.get_or_refresh("there", fails).await.is_err());
    sleep(millis(1)).await;
    assert!(cache.get_or_refresh("there", slow(1)).await.is_err());
    // During the back-off, the client does not ask the store again.
    assert!(cache.get_or_refresh("there", slow(1)).await.is_err());
    assert_eq!(numbers.sum(BACK_OFF), 2);

    cache.invalidate("home").await.expect("an answer");
    cache.remove("home").await.expect("an answer");
    other.invalidate("home").await.expect("an answer");
    assert_eq!(invalidated(&numbers), [2, 0]);
}

/// The connection breaks after the reply to the commit was lost: the client cannot know whether it was carried out. The server is away from
/// then on.
#[tokio::test]
async fn what_a_server_does_not_confirm_is_a_warning_and_no_failure() {
    let (listener, numbers) = (Listener::default(), Numbers::default());
    let _listening = set_default(listener.clone());
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let builder = Client::builder().request_timeout(LONG);
    let client = builder.connect(&proxy.url()).await.expect("it is up");
    let cache = {
        let _recording = metrics::set_default_local_recorder(&numbers);
        plain_cache(&client)
    };
    let (begun, is_begun) = oneshot::channel();
    let (end, ends) = oneshot::channel();
    let load = || async move {
        begun.send(()).expect("awaited");
        ends.await.map(|()| 1_u32)
    };
    let loading = tokio::spawn(cache.get_or_refresh("home", load).into_future());
    is_begun.await.expect("it is granted");
    proxy.swallow_replies(true);
    end.send(()).expect("it waits");
    eventually("a reply is lost", async || proxy.swallowed() > 0).await;
    proxy.refuse(true);
    proxy.cut();
    // The caller gets its value even so.
    assert!(loading.await.expect("no panic").is_ok());
    assert!(cache.get::<u32>("home").await.is_err());
    assert!(cache.invalidate("home").await.is_err());
    for message in ["value not confirmed", "invalidation not confirmed"] {
        eventually(message, async || !listener.all(message).is_empty()).await;
        let said = listener.only(message);
        assert_eq!(said.level, Level::WARN);
        has(&said.fields, &[("key", "home")]);
    }
    let counted = async || loads(&numbers, false) == [("unconfirmed", 1)];
    eventually("counted", counted).await;
    assert_eq!(read(&numbers), [("loaded", 1), ("unavailable", 1)]);
    assert_eq!(invalidated(&numbers), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn keys_are_labels_only_where_they_were_declared() {
    let (fleet, numbers) = (Fleet::new(), Numbers::default());
    let builder = Client::builder().namespace("app");
    let builder = builder.metric_names(["home", "user:*"]);
    let (_client, cache) = counted(&fleet, &numbers, builder);
    let before = numbers.all();
    for key in ["home", "user:1", "user:2", "about"] {
        assert!(cache.get_or_refresh(key, slow(1)).await.is_ok());
    }
    let loaded = |key: &str| {
        let series = format!("leasehold_cache_read_total{{key={key:?},outcome=\"loaded\"}}");
        numbers.sum(&series)
    };
    assert_eq!(["home", "user:*", "other"].map(loaded), [1, 2, 1]);
    assert_eq!(numbers.all(), before);
}

#[tokio::test(start_paused = true)]
async fn all_are_described_on_the_page_and_there_from_the_start() {
    let (fleet, numbers) = (Fleet::new(), Numbers::default());
    let builder = Client::builder().metric_names(["declared"]);
    let (_client, _cache) = counted(&fleet, &numbers, builder);
    numbers.are_as_on_the_page(|name| name.starts_with("leasehold_cache_"));
}
