//! Spans and events of locks.

use std::thread;

use leasehold::Error;
use testkit::RedisServer;
use tokio::task::JoinSet;
use tracing::subscriber::set_default;
use tracing::{Instrument, Level, info_span};

use crate::common::{
    Place, TTL, eventually, on_every_store, out_of_time, passing, stand_in_line, take,
};
use crate::listener::{Fields, Listener, Said, Span, has};
use crate::millis;
use crate::scene::Scene;

const CANARY: &str = "C4N4RY-s3cr3t";

on_every_store! {
    leases_that_no_store_is_asked_for_have_spans_too
}

#[track_caller]
fn number(fields: &Fields, name: &str) -> u64 {
    fields[name].parse().expect("a number")
}

async fn until(listener: &Listener, message: &str) -> Said {
    eventually(message, async || !listener.all(message).is_empty()).await;
    listener.all(message).remove(0)
}

#[tokio::test]
async fn an_acquisition_and_a_hold_are_spans_of_the_caller() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let client = Place::memory().client().await;
    let caller = info_span!(target: "test", "caller");
    let lease = take(&client, "x").instrument(caller.clone()).await;
    let fence = lease.fence().to_string();

    let asked = listener.span("leasehold.acquire");
    has(
        &asked.fields,
        &[
            ("lock", "x"),
            ("mode", "exclusive"),
            ("fence", &fence),
            ("outcome", "acquired"),
        ],
    );
    assert!(asked.fields.contains_key("waited_ms") && asked.is_closed());
    let hold = listener.span("leasehold.hold");
    has(
        &hold.fields,
        &[("lock", "x"), ("mode", "exclusive"), ("fence", &fence)],
    );
    assert!(hold.fields.contains_key("waited_ms") && !hold.is_closed());
    assert!(!hold.fields.contains_key("ended"));
    let caller = caller.id().map(|id| id.into_u64());
    assert_eq!(
        (asked.parent, hold.parent, hold.follows),
        (caller, caller, Some(asked.id))
    );
    let acquired = listener.only("acquired");
    assert_eq!(
        (acquired.level, acquired.span),
        (Level::DEBUG, Some(asked.id))
    );
    has(&acquired.fields, &[("lock", "x"), ("fence", &fence)]);

    lease.release().await.expect("held");
    let hold = listener.span("leasehold.hold");
    has(&hold.fields, &[("ended", "released")]);
    assert!(hold.is_closed() && hold.fields.contains_key("held_ms"));
    has(
        &listener.only("released").fields,
        &[("lock", "x"), ("fence", &fence)],
    );
}

#[tokio::test]
async fn spans_tell_the_mode_without_the_number_of_slots() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let client = Scene::memory().client().await;
    let read = client.rw_lock("r").read().acquire().await;
    let permit = client.semaphore("s", 3).acquire().await;
    let refused = client.semaphore("s", 0).acquire().await;
    assert!(refused.is_err() && read.is_ok() && permit.is_ok());
    let modes = |name: &str| -> Vec<Option<String>> {
        let spans = listener.spans(name);
        let modes = spans.iter().map(|span| span.fields.get("mode").cloned());
        modes.collect()
    };
    let [shared, slots] = ["shared", "slots"].map(|mode| Some(mode.to_owned()));
    assert_eq!(modes("leasehold.hold"), [shared.clone(), slots.clone()]);
    assert_eq!(modes("leasehold.acquire"), [shared, slots, None]);
}

#[tokio::test]
async fn who_gets_no_lock_is_told_of_as_well() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let scene = Scene::memory();
    let (holder, client) = (scene.client().await, scene.client().await);
    let lease = take(&holder, "x").await;
    let outcome = |listener: &Listener| -> Span {
        let mut spans = listener.spans("leasehold.acquire");
        spans.pop().expect("a span")
    };

    let busy = client.mutex("x").try_acquire().await.expect("an answer");
    assert!(busy.is_none());
    has(
        &outcome(&listener).fields,
        &[("lock", "x"), ("outcome", "busy")],
    );

    let (_, waited) = out_of_time(client.mutex("x"), millis(50), &scene.time).await;
    assert!(matches!(waited, Err(Error::Timeout(_))), "{waited:?}");
    let timeout = outcome(&listener).fields;
    has(&timeout, &[("outcome", "timeout"), ("waited_ms", "50")]);
    let in_line = listener.only("in line");
    has(&in_line.fields, &[("lock", "x"), ("ahead", "0")]);
    assert!(in_line.fields["holder"].contains("(pid "), "{in_line:?}");

    client.mutex("").acquire().await.expect_err("no name");
    has(&outcome(&listener).fields, &[("outcome", "invalid")]);

    let waiting = tokio::time::timeout(millis(50), client.mutex("x").acquire()).await;
    waiting.expect_err("busy");
    has(&outcome(&listener).fields, &[("outcome", "cancelled")]);
    assert!(outcome(&listener).is_closed());

    let all = listener.all("not acquired");
    let outcomes: Vec<&str> = all
        .iter()
        .map(|said| said.fields["outcome"].as_str())
        .collect();
    assert_eq!(outcomes, ["busy", "timeout", "invalid", "cancelled"]);
    assert!(all.iter().all(|said| said.level == Level::DEBUG));
    drop(lease);
}

#[tokio::test]
async fn the_end_of_a_hold_says_how() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let scene = Scene::memory();
    let client = scene.client().await;
    let ended = async |name: &str| {
        let mut ended = None;
        eventually("the span is closed", async || {
            let spans = listener.spans("leasehold.hold");
            let span = spans.iter().find(|span| span.fields["lock"] == name);
            let closed = span.filter(|span| span.is_closed());
            ended = closed.map(|span| span.fields["ended"].clone());
            ended.is_some()
        })
        .await;
        ended.expect("closed")
    };

    drop(take(&client, "dropped").await);
    assert_eq!(ended("dropped").await, "dropped");

    let held = client.mutex("max").ttl(TTL).max_hold(TTL / 10);
    let held = held.acquire().await.expect("free");
    scene.time.pass(TTL / 10);
    held.lost().await;
    eventually("it is told", async || {
        !listener.all("lease lost").is_empty()
    })
    .await;
    assert_eq!(ended("max").await, "max_hold");
    // The release adds no second report of the loss.
    held.release().await.expect_err("lost");
    let lost = listener.only("lease lost");
    assert_eq!(lost.level, Level::WARN);
    has(&lost.fields, &[("lock", "max")]);
    assert!(lost.fields["cause"].contains("max_hold"), "{lost:?}");

    let lease = take(&client, "closed").await;
    client.close().await;
    assert_eq!(ended("closed").await, "closed");
    assert_eq!(listener.only("lease ended").level, Level::DEBUG);
    drop(lease);
}

/// No renewal comes before the release, so only the release finds the loss.
#[tokio::test]
async fn a_loss_that_only_the_release_shows_is_told() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let place = Place::memory();
    let (client, operator) = place.two().await;
    let lease = take(&client, "x").await;
    assert!(
        operator
            .break_lock("x", lease.fence())
            .await
            .expect("an answer")
    );
    lease.release().await.expect_err("lost");
    let lost = listener.only("lease lost, as its release showed");
    assert_eq!(lost.level, Level::WARN);
    assert!(listener.all("released").is_empty());
}

/// The client's own thread renews. It has no subscriber of its own, only the one from the place that built the client.
#[tokio::test]
async fn what_happens_on_the_clients_own_thread_is_heard() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let scene = Scene::memory();
    let (client, operator) = (scene.client().await, scene.client().await);
    let lease = take(&client, "x").await;
    scene.time.pass(lease.valid_for() / 2);
    let renewed = until(&listener, "renewed").await;
    assert_eq!(renewed.level, Level::TRACE);
    assert_ne!(renewed.thread, thread::current().id());
    has(&renewed.fields, &[("lock", "x")]);
    assert!(number(&renewed.fields, "left_ms") <= 30_000);
    assert_eq!(renewed.span, Some(listener.span("leasehold.hold").id));

    let fence = lease.fence();
    assert!(operator.break_lock("x", fence).await.expect("an answer"));
    scene.time.pass(lease.valid_for() / 2);
    let lost = until(&listener, "lease lost").await;
    assert_ne!(lost.thread, thread::current().id());
    has(&lost.fields, &[("fence", &fence.to_string())]);
    assert!(lost.fields["cause"].contains("no one holds it"), "{lost:?}");
    has(
        &listener.span("leasehold.hold").fields,
        &[("ended", "not_held")],
    );
}

#[tokio::test]
async fn nobody_who_came_later_hears_of_it() {
    let client = Place::memory().client().await;
    let first = Listener::default();
    let second = Listener::default();
    // A client that was built without a subscriber uses the subscriber at the place of each event.
    let heard = set_default(first.clone());
    drop(take(&client, "x").await);
    assert_eq!(first.spans("leasehold.hold").len(), 1);
    let built = Place::memory().client().await;
    drop(heard);
    // A client that was built under a subscriber always uses that one.
    let _listening = set_default(second.clone());
    drop(take(&built, "y").await);
    assert_eq!(first.spans("leasehold.hold").len(), 2);
    assert!(second.spans("leasehold.hold").is_empty());
}

#[tokio::test]
async fn outage_and_return_are_reported_without_password() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let server = RedisServer::builder().virtual_clock().password(CANARY);
    let scene = Scene::at(Place::Redis(Box::new(server.start())));
    let server = scene.server();
    let host = format!("redis://127.0.0.1:{}", server.port());
    let url = format!("redis://:{CANARY}@127.0.0.1:{}/", server.port());
    let client = scene.builder().connect(&url).await.expect("it is up");
    for (message, level) in [("connecting", Level::DEBUG), ("connected", Level::INFO)] {
        let said = listener.only(message);
        assert!(said.fields["store"].starts_with(&host), "{said:?}");
        assert_eq!(said.level, level);
    }
    let lock = client.mutex("x").ttl(TTL);
    let lease = lock.acquire().await.expect("free");

    let before = listener.all("connection lost").len();
    server.kill();
    let cut = until(&listener, "connection lost").await;
    assert_eq!(cut.level, Level::WARN);
    assert!(cut.fields["store"].starts_with(&host), "{cut:?}");
    assert!(!cut.fields.contains_key("node"), "{cut:?}");
    scene.time.pass(lease.valid_for() / 2);
    let failed = until(&listener, "renewal failed");
    let failed = passing(&scene.time, "a renewal", failed).await;
    assert_eq!(failed.level, Level::WARN);
    let fence = lease.fence().to_string();
    has(&failed.fields, &[("lock", "x"), ("fence", &fence)]);
    assert!(failed.fields["error"].contains("127.0.0.1"), "{failed:?}");
    assert!(number(&failed.fields, "left_ms") <= 30_000);
    assert_eq!(failed.span, Some(listener.span("leasehold.hold").id));
    assert!(listener.all("lease lost").is_empty() && !lease.is_lost());
    scene.time.pass(lease.valid_for());
    let lost = until(&listener, "lease lost").await;
    assert!(lost.fields["cause"].contains("deadline"), "{lost:?}");
    has(
        &listener.span("leasehold.hold").fields,
        &[("ended", "deadline")],
    );
    let asking = lock.acquire_within(millis(100));
    let asking = passing(&scene.time, "its limit", asking).await;
    asking.expect_err("it is down");
    let asked = listener.spans("leasehold.acquire").pop().expect("asked");
    has(&asked.fields, &[("outcome", "unavailable")]);

    // The client reports the loss once, however many dials fail.
    assert_eq!(listener.all("connection lost").len(), before + 1);
    server.restart();
    let restored = until(&listener, "connection restored");
    let restored = passing(&scene.time, "a connection", restored).await;
    assert_eq!(restored.level, Level::INFO);
    assert!(!listener.transcript().contains(CANARY));
}

#[tokio::test]
async fn each_node_of_a_quorum_is_lost_and_restored_by_its_name() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let scene = Scene::quorum();
    let client = scene.client().await;
    let servers = scene.place.servers();
    let url = |at: usize| format!("redis://127.0.0.1:{}", servers[at].port());
    // A look at each node waits until all are connected.
    client.inspect_nodes("x").await.expect("it is open");

    let told = async |message: &str, nodes: &[usize]| {
        let many = eventually(message, async || listener.all(message).len() >= nodes.len());
        passing(&scene.time, message, many).await;
        let all = listener.all(message);
        let named: Vec<_> = all.iter().map(|said| said.fields["node"].clone()).collect();
        let expected: Vec<_> = nodes.iter().map(|at| url(*at)).collect();
        assert_eq!(named, expected, "{all:?}");
        let of_quorum = |said: &Said| said.fields["store"].starts_with("quorum of 3: ");
        assert!(all.iter().all(of_quorum), "{all:?}");
    };
    servers[0].kill();
    told("connection lost", &[0]).await;
    servers[1].kill();
    told("connection lost", &[0, 1]).await;
    servers[1].restart();
    told("connection restored", &[1]).await;
    servers[0].restart();
    told("connection restored", &[1, 0]).await;
}

#[tokio::test]
async fn a_release_that_is_not_confirmed_is_told_of() {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let scene = Scene::redis();
    let client = scene.client().await;
    let lease = take(&client, "x").await;
    scene.server().pause();
    let released = scene.as_seconds_pass("its limit", lease.release()).await;
    released.expect_err("no answer");
    let said = listener.only("release not confirmed");
    assert_eq!(said.level, Level::WARN);
    has(&said.fields, &[("lock", "x")]);
    assert!(listener.all("released").is_empty());
    scene.server().resume();
    scene.as_seconds_pass("closing", client.close()).await;
}

/// Each lease has its own hold span, whether it came from the store, from another task, or from a lingering lock.
async fn leases_that_no_store_is_asked_for_have_spans_too(place: Place) {
    let listener = Listener::default();
    let _listening = set_default(listener.clone());
    let client = place.client().await;
    let lock = client.mutex("x").ttl(TTL).linger(TTL);
    let lease = lock.acquire().await.expect("free");
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, lock.clone()).await;
    lease.release().await.expect("held");
    let (_, handed_on) = waiting.join_next().await.expect("one").expect("no panic");
    handed_on.expect("its turn").release().await.expect("held");
    let idle = lock.acquire().await.expect("idle here");
    idle.release().await.expect("held");
    let holds = listener.spans("leasehold.hold");
    let fences: Vec<u64> = holds
        .iter()
        .map(|hold| number(&hold.fields, "fence"))
        .collect();
    assert!(fences.len() == 3 && fences.is_sorted(), "{fences:?}");
    assert!(holds.iter().all(Span::is_closed));
    assert_eq!(listener.all("acquired").len(), 3);
    assert_eq!(listener.all("released").len(), 3);
}
