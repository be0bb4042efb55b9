//! The library refuses wrong input before any I/O, and names it.

use std::time::Duration;

use leasehold::{Client, Invalid, Mutex};
use testkit::RedisServer;

use crate::common::{Place, TTL, eventually, invalid, look, on_every_store, take};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks that every method that acquires refuses the lock.
async fn refused(mutex: Mutex) -> Invalid {
    let by_try = invalid(mutex.try_acquire().await);
    assert_eq!(by_try, invalid(mutex.acquire().await));
    assert_eq!(by_try, invalid(mutex.acquire_within(TTL).await));
    by_try
}

/// A client of a server that no longer runs. So its refusals come without a request.
async fn without_a_store() -> Client {
    let server = RedisServer::start();
    Client::connect(&server.url()).await.expect("it answers")
}

#[tokio::test]
async fn names_that_cannot_be_keys() {
    let client = without_a_store().await;
    let long = "x".repeat(513);
    for (name, shown, why) in [
        ("", "\"\"", "is empty"),
        (long.as_str(), "xxx", "at most 512 bytes, is 513"),
        ("a\nb", "a\\nb", "control characters"),
        ("tab\there", "tab\\there", "control characters"),
        ("del\u{7f}", "del\\u{7f}", "control characters"),
        ("{a", "{a", "braces"),
        ("a}", "a}", "braces"),
        ("{}a", "{}a", "braces"),
        ("{a}", "{a}", "braces"),
        ("{a}{b}c", "{a}{b}c", "braces"),
        ("a:lh-queue", "a:lh-queue", "choose another"),
        ("leasehold:index", "leasehold:index", "choose another"),
    ] {
        let error = refused(client.mutex(name)).await;
        assert_eq!(error.what, "lock name");
        let text = error.to_string();
        assert!(text.contains(shown) && text.contains(why), "{text}");
        assert_eq!(invalid(client.inspect(name).await), error);
        let fence = leasehold::Fence::new(1);
        assert_eq!(invalid(client.break_lock(name, fence).await), error);
    }
}

#[tokio::test]
async fn settings_out_of_bounds() {
    let client = without_a_store().await;
    let mutex = || client.mutex("m");
    for ttl in [Duration::ZERO, MS * 9, DAY + MS, DAY * 3650, Duration::MAX] {
        let error = refused(mutex().ttl(ttl)).await;
        assert_eq!((error.what, error.input), ("TTL", format!("{ttl:?}")));
        assert_eq!(error.why, "must be from 10 ms to 24 h");
    }
    let error = refused(mutex().note("n".repeat(129))).await;
    assert_eq!(error.what, "note");
    assert!(error.why.contains("at most 128 bytes, is 129"), "{error}");
    let error = refused(mutex().max_hold(MS * 9)).await;
    assert_eq!((error.what, error.input.as_str()), ("max_hold", "9ms"));
}

#[tokio::test]
async fn urls_of_no_store() {
    for (url, shown, says) in [
        ("", "\"\"", "redis"),
        ("localhost", "\"...\"", "redis"),
        ("http://127.0.0.1/", "\"http:...\"", "redis"),
        // The text before the colon may be a user or a password.
        ("memcached:S3CR3T", "\"...\"", "redis"),
        ("REDIS://127.0.0.1/", "\"REDIS:...\"", "redis"),
        ("redis://:S3CR3T@127.0.0.1:99999/", "\"redis:...\"", "redis"),
        ("memory:x", "\"memory:...\"", "write memory:"),
    ] {
        let error = invalid(Client::connect(url).await);
        let text = error.to_string();
        assert_eq!(error.what, "store URL");
        assert!(text.contains(shown) && text.contains(says), "{text}");
        assert!(!text.contains("S3CR3T"), "{text}");
    }
    let error = invalid(Client::connect("local:/no/such/directory/file").await);
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}

#[tokio::test]
async fn clients_with_settings_out_of_bounds() {
    let builder = Client::builder;
    let nowhere = "redis://127.0.0.1:1/";
    for (builder, what) in [
        (builder().namespace(""), "namespace"),
        (builder().namespace("a{b"), "namespace"),
        (builder().namespace("n".repeat(129)), "namespace"),
        (builder().host("h".repeat(129)), "host"),
        (builder().request_timeout(MS * 9), "request timeout"),
        (builder().request_timeout(MS * 60_001), "request timeout"),
        (builder().outage_timeout(DAY + MS), "outage timeout"),
    ] {
        let error = invalid(builder.connect(nowhere).await);
        assert_eq!(error.what, what);
    }
}

async fn what_is_at_the_limit_is_taken(place: Place) {
    let builder = Client::builder()
        .namespace("n".repeat(128))
        .host("h".repeat(128))
        .request_timeout(MS * 60_000)
        .outage_timeout(DAY);
    let client = place.connect(builder).await.expect("it works");
    let longest = "x".repeat(512);
    for name in [&longest, "x", "{user}:42", " a b ", "ключ"] {
        let mutex = client.mutex(name).note("n".repeat(128));
        for ttl in [MS * 500, DAY] {
            let lease = mutex.clone().ttl(ttl).acquire().await;
            let lease = lease.expect("it is good");
            assert_eq!(lease.name(), name);
            lease.release().await.expect("it is held");
        }
    }
}

async fn a_lease_refuses_bad_durations_and_stays_as_it_is(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    for ttl in [Duration::ZERO, MS * 9, DAY + MS] {
        let error = invalid(lease.extend(ttl).await);
        assert_eq!((error.what, error.input), ("TTL", format!("{ttl:?}")));
    }
    assert!(!lease.is_lost() && !lease.is_doubtful());
    invalid(lease.release_after(Duration::ZERO).await);
    eventually("it is released at once", async || {
        look(&b, "m").await.holder.is_none()
    })
    .await;
}

on_every_store! {
    what_is_at_the_limit_is_taken
    a_lease_refuses_bad_durations_and_stays_as_it_is
}
