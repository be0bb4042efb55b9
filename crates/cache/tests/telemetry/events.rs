//! Spans and events of cache entries.

use leasehold::Client;
use tokio::time::sleep;
use tracing::subscriber::set_default;
use tracing::{Instrument, Level, info, info_span};

use super::{Fleet, Load, SECOND, fails, millis, panics, plain, plain_cache, slow};
use crate::listener::{Listener, Panics, has};

/// A load that logs, takes a second, and logs again.
fn talks() -> Load {
    Box::pin(async {
        info!(target: "test", "reading the source");
        sleep(SECOND).await;
        info!(target: "test", "read");
        Ok(4_711_815)
    })
}

#[tokio::test(start_paused = true)]
async fn a_load_is_a_span_with_what_its_loader_says_inside() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let client = Fleet::new().client(Client::builder());
    let cache = plain_cache(&client);
    let caller = info_span!(target: "test", "caller");
    let asking = cache.get_or_refresh("home", talks).into_future();
    asking.instrument(caller.clone()).await.expect("loaded");
    sleep(millis(1)).await;

    let load = listener.span("leasehold.cache.load");
    let told = [
        ("key", "home"),
        ("took_ms", "1000"),
        ("outcome", "fresh"),
        ("late", "false"),
    ];
    has(&load.fields, &told);
    assert!(load.fields["version"].parse::<u64>().is_ok());
    let caller = caller.id().map(|id| id.into_u64());
    // The load may outlive its caller, so its span is no child of the caller's span.
    assert_eq!((load.parent, load.follows), (None, caller));
    assert!(load.is_closed());
    for message in ["reading the source", "read"] {
        assert_eq!(listener.only(message).within, Some(load.id), "{message}");
    }
    let loaded = listener.only("loaded");
    assert_eq!((loaded.level, loaded.span), (Level::DEBUG, Some(load.id)));
    has(&loaded.fields, &told);
    let waited = listener.only("waited for a value");
    assert_eq!(waited.level, Level::DEBUG);
    has(&waited.fields, &[("key", "home"), ("outcome", "loaded")]);
    // The load has not closed the span of its caller.
    let callers = listener.spans("caller");
    assert!(!callers[0].is_closed());
    let before = listener.transcript();
    cache.get_or_refresh("home", talks).await.expect("fresh");
    assert_eq!(listener.transcript(), before, "a hit says nothing");
    assert!(!before.contains("4711815"), "a value is told");
}

#[tokio::test(start_paused = true)]
async fn a_load_keeps_no_span_of_its_caller_open() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let client = Fleet::new().client(Client::builder());
    let cache = plain_cache(&client);
    let caller = info_span!(target: "test", "caller");
    let asking = cache.get_or_refresh("home", slow(10)).wait_at_most(SECOND);
    let asked = asking.into_future().instrument(caller).await;
    assert!(asked.is_err());
    sleep(millis(1)).await;
    assert!(listener.span("caller").is_closed());
    assert!(!listener.span("leasehold.cache.load").is_closed());
}

#[tokio::test(start_paused = true)]
async fn what_goes_wrong_is_told_at_its_level() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let fleet = Fleet::new();
    let client = fleet.client(Client::builder());
    let cache = plain_cache(&client);
    for (key, load) in [("bad", fails as fn() -> Load), ("odd", panics)] {
        assert!(cache.get_or_refresh(key, load).await.is_err());
    }
    let failed = listener.all("load failed");
    assert!(failed.iter().all(|said| said.level == Level::WARN));
    has(
        &failed[0].fields,
        &[("key", "bad"), ("error", "the source is down")],
    );
    has(
        &failed[1].fields,
        &[("error", "the loader panicked: the source is odd")],
    );
    let spans = listener.spans("leasehold.cache.load");
    assert_eq!(
        [&spans[0], &spans[1]].map(|span| span.fields["outcome"].as_str()),
        ["failed", "panicked"]
    );
    let rests = listener.all("backing off");
    assert!(rests.len() == 2 && rests.iter().all(|said| said.level == Level::DEBUG));

    let unrenewed = plain().lease(3 * SECOND).load_at_most(SECOND);
    let load = cache.get_or_refresh("late", slow(10)).policy(unrenewed);
    assert!(load.await.is_ok());
    sleep(millis(1)).await;
    let lost = listener.only("lease of a load lost");
    assert_eq!(lost.level, Level::DEBUG);
    has(&lost.fields, &[("key", "late"), ("cause", "deadline")]);
    has(&listener.only("loaded").fields, &[("late", "true")]);

    cache.invalidate("late").await.expect("an answer");
    has(&listener.only("invalidated").fields, &[("key", "late")]);
    // The client closes in the middle of a load.
    let loading = tokio::spawn(cache.get_or_refresh("closed", slow(10)).into_future());
    sleep(SECOND).await;
    client.close().await;
    assert!(loading.await.expect("no panic").is_err());
    has(&listener.only("no value").fields, &[("outcome", "gone")]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_costs_no_load_and_no_reader() {
    // A load has a span, and enters it.
    let _listening = set_default(Panics(&["record", "follows", "event", "exit", "close"]));
    let fleet = Fleet::new();
    let cache = plain_cache(&fleet.client(Client::builder()));
    for key in ["a", "b"] {
        let got = cache.get_or_refresh(key, slow(10)).await;
        assert_eq!(*got.expect("loaded"), 4_711_815);
        cache.invalidate(key).await.expect("an answer");
        let newer = cache.get_or_refresh(key, slow(1)).must_be_fresh();
        assert!(newer.await.is_ok());
        for load in [fails as fn() -> Load, panics] {
            let bad = format!("bad:{key}");
            assert!(cache.get_or_refresh(bad, load).await.is_err());
        }
    }
}
