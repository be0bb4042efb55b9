//! Several locks at once: all of them, or none.

use std::time::Duration;

use fastrand::Rng;
use leasehold::{Client, Error, Leases, Mutex};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, on_every_store, take};

const NAMES: [&str; 5] = ["e", "b", "a", "d", "c"];

fn mutexes(client: &Client, names: &[&str]) -> Vec<Mutex> {
    let mutex = |name| client.mutex(name).ttl(TTL);
    names.iter().map(mutex).collect()
}

async fn all(client: &Client, names: &[&str]) -> Leases {
    let locks = mutexes(client, names);
    let leases = client.all(&locks).acquire_within(LONG).await;
    leases.expect("they get free")
}

async fn are_free(client: &Client, names: &[&str]) {
    for name in names {
        let free = async || look(client, name).await.holder.is_none();
        eventually("it is free", free).await;
    }
}

async fn all_are_held_or_none(place: Place) {
    let (a, b) = place.two().await;
    let leases = all(&a, &NAMES).await;
    let order: Vec<&str> = leases.iter().map(leasehold::Lease::name).collect();
    assert_eq!(order, ["a", "b", "c", "d", "e"]);
    for name in NAMES {
        let lease = leases.get(name).expect("it is there");
        let other = b.mutex(name).try_acquire().await.expect("it answers");
        assert!(other.is_none() && lease.valid_until() >= leases.valid_until());
    }
    assert!(leases.get("f").is_none());
    leases.release().await.expect("they were held");
    are_free(&b, &NAMES).await;
    let one = take(&b, "c").await;
    let locks = mutexes(&a, &NAMES);
    let busy = a.all(&locks).try_acquire().await.expect("it answers");
    assert!(busy.is_none());
    are_free(&b, &["a", "b", "d", "e"]).await;
    let late = a
        .all(&locks)
        .acquire_within(Duration::from_millis(50))
        .await;
    match late {
        Err(Error::Timeout(timeout)) => assert_eq!(timeout.name, "c"),
        other => panic!("{other:?}"),
    }
    are_free(&b, &["a", "b", "d", "e"]).await;
    one.release().await.expect("it was held");
    drop(all(&a, &NAMES).await);
    are_free(&b, &NAMES).await;
}

async fn who_waits_holds_only_what_comes_before(place: Place) {
    let (a, b) = place.two().await;
    let one = take(&b, "c").await;
    let locks = mutexes(&a, &NAMES);
    let waiting = a.all(&locks);
    let mut waits = JoinSet::new();
    waits.spawn(async move { waiting.acquire().await });
    let queued = async || !look(&b, "c").await.queue.is_empty();
    eventually("it waits", queued).await;
    for (name, is_held) in [("a", true), ("b", true), ("d", false), ("e", false)] {
        let seen = async || look(&b, name).await.holder.is_some() == is_held;
        eventually("by the order of keys", seen).await;
    }
    one.release().await.expect("it was held");
    let got = timeout(LONG, waits.join_next()).await.expect("in time");
    let got = got
        .expect("it waits")
        .expect("no panic")
        .expect("it answers");
    assert_eq!(got.iter().count(), NAMES.len());
}

async fn all_are_kept_after_their_release(place: Place) {
    let (a, b) = place.two().await;
    let leases = all(&a, &["a", "b"]).await;
    assert_eq!(leases.doubt(), None);
    leases.release_after(TTL).await.expect("they were held");
    for name in ["a", "b"] {
        assert!(look(&b, name).await.holder.is_some(), "{name}");
    }
    let leases = all(&a, &["c", "d"]).await;
    let too_short = leases.release_after(Duration::ZERO).await;
    assert!(matches!(too_short, Err(Error::Invalid(_))), "{too_short:?}");
    are_free(&b, &["c", "d"]).await;
}

async fn one_that_is_lost_ends_the_wait_and_the_work(place: Place) {
    let (a, b) = place.two().await;
    let leases = all(&a, &["a", "b"]).await;
    let fence = leases.get("b").expect("it is there").fence();
    let broken = b.break_lock("b", fence).await;
    assert!(broken.expect("it answers"));
    // A renewal finds out.
    let told = leases.get("b").expect("it is there").extend(TTL).await;
    assert!(told.expect_err("it was broken").is_lost());
    let lost = leases
        .run(async |_| std::future::pending::<Result<(), Error>>().await)
        .await;
    let Err(Error::Lost(lost)) = lost else {
        panic!("it was broken: {lost:?}");
    };
    assert_eq!(lost.name, "b");
    are_free(&b, &["a", "b"]).await;
}

/// Three clients take random subsets in random order, each of them many times.
async fn several_in_any_order_never_deadlock(place: Place) {
    let rounds = if matches!(place, Place::Memory(_)) {
        500
    } else {
        60
    };
    let mut all = JoinSet::new();
    for seed in 0..3 {
        let client = place.client().await;
        all.spawn(async move {
            let mut rng = Rng::with_seed(seed);
            for _ in 0..rounds {
                let mut names = NAMES;
                rng.shuffle(&mut names);
                let names = &names[..rng.usize(1..=NAMES.len())];
                let locks = mutexes(&client, names);
                let leases = client.all(&locks).acquire().await.expect("it answers");
                yield_now().await;
                leases.release().await.expect("they were held");
            }
        });
    }
    let done = timeout(LONG, all.join_all()).await;
    done.expect("no client waits for ever");
}

on_every_store! {
    all_are_held_or_none
    all_are_kept_after_their_release
    who_waits_holds_only_what_comes_before
    one_that_is_lost_ends_the_wait_and_the_work
    several_in_any_order_never_deadlock
}

#[tokio::test]
async fn what_cannot_be_taken_together_is_refused() {
    let (a, b) = Place::memory().two().await;
    let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let [one, other] = [&a, &b].map(|client| client.mutex("x"));
    for (locks, says) in [
        (Vec::new(), "1 to 32 locks"),
        (mutexes(&a, &many), "1 to 32 locks"),
        (mutexes(&a, &["x", "y", "x"]), "is there twice"),
        (mutexes(&a, &["x", ""]), "is empty"),
        (vec![one, other], "belongs to another client"),
    ] {
        match a.all(&locks).acquire().await {
            Err(Error::Invalid(refused)) => assert!(refused.why.contains(says), "{refused}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(a.names().await, Ok(Vec::new()));
}
