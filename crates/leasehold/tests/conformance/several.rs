//! Several locks at once: all of them, or none.

use std::time::Duration;

use fastrand::Rng;
use leasehold::kind::Kind;
use leasehold::{All, Client, Error, Lease, Leases, Lock, Mutex};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, on_every_store, take};

const NAMES: [&str; 5] = ["e", "b", "a", "d", "c"];

fn mutexes(client: &Client, names: &[&str]) -> Vec<Mutex> {
    let mutex = |name| client.mutex(name).ttl(TTL);
    names.iter().map(mutex).collect()
}

fn together(client: &Client, locks: &[Mutex]) -> All {
    let all = client.all([]);
    locks.iter().fold(all, |all, lock| all.and(lock))
}

async fn all(client: &Client, names: &[&str]) -> Leases {
    let locks = mutexes(client, names);
    let leases = together(client, &locks).acquire_within(LONG).await;
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
    let order: Vec<&str> = leases.iter().map(Lease::name).collect();
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
    let busy = together(&a, &locks)
        .try_acquire()
        .await
        .expect("it answers");
    assert!(busy.is_none());
    are_free(&b, &["a", "b", "d", "e"]).await;
    let limit = Duration::from_millis(50);
    let late = together(&a, &locks).acquire_within(limit).await;
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
    let waiting = together(&a, &locks);
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
    let fence = leases.get("b").and_then(Lease::fence);
    let broken = b.break_lock("b", fence.expect("of a mutex")).await;
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
async fn never_deadlock(place: Place, add: fn(&mut Rng, &Client, All, &str) -> All) {
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
                let several = names.iter().fold(client.all([]), |all, name| {
                    add(&mut rng, &client, all, name)
                });
                let leases = several.acquire().await.expect("it answers");
                yield_now().await;
                leases.release().await.expect("they were held");
            }
        });
    }
    let done = timeout(LONG, all.join_all()).await;
    done.expect("no client waits for ever");
}

async fn several_in_any_order_never_deadlock(place: Place) {
    never_deadlock(place, |_, client, all, name| {
        all.and(&client.mutex(name).ttl(TTL))
    })
    .await;
}

async fn several_of_random_kinds_never_deadlock(place: Place) {
    never_deadlock(place, |rng, client, all, name| match rng.u8(..3) {
        0 => all.and(&client.mutex(name).ttl(TTL)),
        1 => all.and(&client.rw_lock(name).read().ttl(TTL)),
        _ => all.and(&client.semaphore(name, rng.u16(1..=2)).ttl(TTL)),
    })
    .await;
}

/// Takes this lock if it is free, beside the locks that a test holds.
async fn is_free<K: Kind>(lock: Lock<K>) -> bool {
    let taken = lock.ttl(TTL).try_acquire().await.expect("it answers");
    match taken {
        Some(lease) => lease.release().await.is_ok(),
        None => false,
    }
}

async fn several_kinds_are_held_or_none(place: Place) {
    let (a, b) = place.two().await;
    let mutex = a.mutex("m").ttl(TTL);
    let (read, gpu) = (a.rw_lock("r").read().ttl(TTL), a.semaphore("s", 2).ttl(TTL));
    let several = a.all([&gpu, &read, &mutex]);
    let leases = several.acquire_within(LONG).await.expect("they are free");
    let of = |name| leases.get(name).expect("it is there");
    let (writer, reader, permit) = (of("m"), of("r"), of("s"));
    let modes = [writer, reader, permit].map(|lease| lease.mode().to_string());
    assert_eq!(modes, ["exclusive", "shared", "slot/2"]);
    for lease in [writer, reader] {
        let shown = look(&b, lease.name()).await.holder.expect("it is held");
        assert!(lease.fence().is_some() && lease.slot().is_none());
        assert_eq!(lease.fence(), shown.fence);
    }
    let slot = permit.slot().expect("of a permit");
    let shown = look(&b, "s").await.holder.expect("it is held");
    assert_eq!(
        (Some(slot.number), Some(slot.fence)),
        (shown.slot, shown.fence)
    );
    assert_eq!((slot.number, permit.fence()), (1, None));
    assert!(reader.token().is_none() && permit.token().is_none());
    let token = writer.token().expect("of a mutex");
    let detached = b.detached("m", &token).expect("a token");
    detached.check().await.expect("it is held");
    // Each lets in what its kind lets in.
    assert!(!is_free(b.mutex("m")).await);
    assert!(is_free(b.rw_lock("r").read()).await && !is_free(b.rw_lock("r").write()).await);
    assert!(is_free(b.semaphore("s", 2)).await && !is_free(b.semaphore("s", 1)).await);
    leases.release().await.expect("they were held");
    are_free(&b, &["m", "r", "s"]).await;
    // Each that is busy for its kind refuses all.
    let none = async |busy: &str| {
        let refused = several.try_acquire().await.expect("it answers");
        assert!(refused.is_none(), "{busy}");
        let others = ["m", "r", "s"].into_iter().filter(|name| *name != busy);
        are_free(&b, &others.collect::<Vec<_>>()).await;
    };
    for busy in ["m", "r", "s"] {
        let one = take(&b, busy).await;
        none(busy).await;
        one.release().await.expect("it was held");
    }
    let read_by_another = b.rw_lock("r").read().ttl(TTL).acquire().await;
    let slot_of_another = b.semaphore("s", 2).ttl(TTL).acquire().await;
    let beside = several.try_acquire().await.expect("it answers");
    drop(beside.expect("readers and permits are let in"));
    drop((read_by_another, slot_of_another));
    are_free(&b, &["m", "r", "s"]).await;
}

on_every_store! {
    all_are_held_or_none
    all_are_kept_after_their_release
    who_waits_holds_only_what_comes_before
    one_that_is_lost_ends_the_wait_and_the_work
    several_in_any_order_never_deadlock
}

/// A quorum has mutexes only.
mod kinds {
    use super::{several_kinds_are_held_or_none, several_of_random_kinds_never_deadlock};
    use crate::common::on_every_store_of_entries;

    on_every_store_of_entries! {
        several_kinds_are_held_or_none
        several_of_random_kinds_never_deadlock
    }
}

#[tokio::test]
async fn a_quorum_takes_none_beside_a_reader() {
    let place = Place::quorum();
    let client = place.client().await;
    let (mutex, read) = (client.mutex("m").ttl(TTL), client.rw_lock("r").read());
    let refused = client.all([&mutex, &read]).acquire().await;
    let text = refused.expect_err("no readers").to_string();
    assert!(text.contains("a quorum has exclusive locks only"), "{text}");
    are_free(&client, &["m"]).await;
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
        match together(&a, &locks).acquire().await {
            Err(Error::Invalid(refused)) => assert!(refused.why.contains(says), "{refused}"),
            other => panic!("{other:?}"),
        }
    }
    let (write, read) = (a.mutex("x"), a.rw_lock("x").read());
    let (alone, slot) = (a.semaphore("x", 1), a.semaphore("x", 2));
    for two in [
        a.all([&write, &read]),
        a.all([&read, &alone]),
        a.all([&alone, &slot]),
    ] {
        let refused = two.acquire().await.expect_err("one name");
        let text = refused.to_string();
        assert!(text.contains("is there twice"), "{text}");
    }
    assert_eq!(a.names().await, Ok(Vec::new()));
}
