//! Read/write locks and semaphores.

#![allow(clippy::disallowed_methods, reason = "the rule is for the library")]

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, Error, HolderIdentity, LossCause, Mode, Permit, ReadLease};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, lost, on_every_store, take};

async fn read(client: &Client) -> ReadLease {
    let lock = client.rw_lock("m").read().ttl(TTL);
    let lease = lock.try_acquire().await.expect("the store answers");
    lease.expect("no writer")
}

async fn permit(client: &Client, slots: u16) -> Option<Permit> {
    let lock = client.semaphore("m", slots).ttl(TTL);
    lock.try_acquire().await.expect("the store answers")
}

/// Starts to wait for a read lock or a permit, and returns when the waiter is in the queue.
macro_rules! queues {
    ($client:expr, $lock:expr) => {{
        let before = look($client, "m").await.queue.len();
        let waits = tokio::spawn($lock.ttl(TTL).acquire_owned());
        let queued = async || look($client, "m").await.queue.len() > before;
        eventually("it queues", queued).await;
        waits
    }};
}

macro_rules! got {
    ($waits:expr) => {
        timeout(LONG, $waits)
            .await
            .expect("in time")
            .expect("no panic")
            .expect("it answers")
    };
}

async fn readers_hold_together(place: Place) {
    let (a, b) = place.two().await;
    let (one, other) = (read(&a).await, read(&b).await);
    assert_eq!(one.fence().is_none(), place.is_quorum());
    assert_eq!(one.fence(), other.fence(), "one phase");
    let seen = look(&a, "m").await;
    let holders: Vec<_> = seen.holders().collect();
    assert_eq!(holders.len(), 2);
    assert!(holders.iter().all(|holder| holder.mode == Mode::Shared));
    assert!(
        b.mutex("m")
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    if !place.is_quorum() {
        assert!(permit(&b, 3).await.is_none());
    }
    one.release().await.expect("held");
    assert!(
        b.mutex("m")
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    other.release().await.expect("held");
    let writer = take(&a, "m").await;
    assert!(
        b.rw_lock("m")
            .read()
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    writer.release().await.expect("held");
}

async fn a_writer_waits_for_all_readers_and_no_reader_passes_it(place: Place) {
    let (a, b) = place.two().await;
    let (one, other) = (read(&a).await, read(&b).await);
    let writer = queues!(&a, place.client().await.rw_lock("m").write());
    // The notice of a waiter stops further readers of the clients that hold.
    let late = queues!(&a, place.client().await.rw_lock("m").read());
    one.release().await.expect("held");
    assert!(!writer.is_finished());
    let before = other.fence();
    other.release().await.expect("held");
    let writer = got!(writer);
    assert!(Some(writer.fence()) > before && !late.is_finished());
    let fence = writer.fence();
    writer.release().await.expect("held");
    let late = got!(late);
    let is_next = late.fence() > Some(fence);
    assert!(is_next || place.is_quorum(), "the next phase");
    late.release().await.expect("held");
}

async fn readers_behind_a_writer_enter_together(place: Place) {
    let (a, b) = place.two().await;
    let writer = take(&a, "m").await;
    let fence = writer.fence();
    let mut late = Vec::new();
    for client in [&b, &place.client().await, &place.client().await] {
        late.push(queues!(&a, client.rw_lock("m").read()));
    }
    writer.release().await.expect("held");
    let mut readers = Vec::new();
    for waits in late {
        readers.push(got!(waits));
    }
    assert!(
        readers
            .iter()
            .all(|reader| reader.fence() == readers[0].fence())
    );
    let is_next = readers[0].fence() > Some(fence);
    assert!(is_next || place.is_quorum());
    assert_eq!(look(&a, "m").await.holders().count(), 3);
    for reader in readers {
        reader.release().await.expect("held");
    }
    assert!(look(&a, "m").await.holder.is_none());
}

async fn readers_of_one_client_share_one_hold(place: Place) {
    let (a, b) = place.two().await;
    let first = read(&a).await;
    let more = join_all((0..20).map(|_| read(&a))).await;
    assert_eq!(look(&b, "m").await.holders().count(), 1);
    assert!(more.iter().all(|reader| reader.fence() == first.fence()));
    assert!(more.iter().all(|reader| reader.owner() == first.owner()));
    first.release().await.expect("held");
    let mut more = more.into_iter();
    let last = more.next().expect("twenty");
    for reader in more {
        reader.release().await.expect("held");
    }
    last.extend(TTL * 2).await.expect("it is held");
    assert!(last.valid_for() > TTL);
    // A writer of this client waits for them, and stops those that come later.
    let writes = queues_here(&a).await;
    assert!(
        a.rw_lock("m")
            .read()
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    last.release().await.expect("held");
    got!(writes).release().await.expect("held");
    assert!(look(&b, "m").await.holder.is_none());
}

/// A writer that waits in this client.
async fn queues_here(client: &Client) -> tokio::task::JoinHandle<Result<leasehold::Lease, Error>> {
    let waits = tokio::spawn(client.mutex("m").ttl(TTL).acquire_owned());
    let waiting = async || {
        let busy = client.rw_lock("m").read().try_acquire().await;
        busy.expect("an answer").is_none()
    };
    eventually("it waits", waiting).await;
    waits
}

async fn a_reader_ends_by_its_own_limit(place: Place) {
    let a = place.client().await;
    let keeps = read(&a).await;
    let limit = Duration::from_millis(50);
    let short = a.rw_lock("m").read().ttl(TTL).max_hold(limit);
    let short = short.acquire().await.expect("it joins");
    let told = timeout(LONG, short.lost()).await.expect("in time");
    assert_eq!(told.cause, LossCause::MaxHold);
    lost(short.release().await);
    keeps.extend(TTL).await.expect("it is held");
    keeps.release().await.expect("held");
    assert!(look(&a, "m").await.holder.is_none());
}

async fn a_reader_that_is_lost_is_told(place: Place) {
    let (a, b) = place.two().await;
    let readers = [read(&a).await, read(&a).await];
    let holder = look(&b, "m").await.holder.expect("they hold");
    let fence = holder.fence.expect("it has a number");
    assert!(b.break_lock("m", fence).await.expect("an answer"));
    lost(readers[0].extend(TTL).await);
    for reader in readers {
        assert!(matches!(reader.lost().await.cause, LossCause::NotHeld(_)));
        lost(reader.release().await);
    }
    take(&b, "m").await.release().await.expect("held");
}

async fn as_many_hold_as_there_are_slots(place: Place) {
    let (a, b) = place.two().await;
    let mut permits = Vec::new();
    for client in [&a, &b, &a] {
        permits.push(permit(client, 3).await.expect("a slot is free"));
    }
    let numbers: Vec<u16> = permits.iter().map(|permit| permit.slot().number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    for client in [&a, &b] {
        assert!(permit(client, 3).await.is_none());
        assert!(
            client
                .mutex("m")
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
        assert!(
            client
                .rw_lock("m")
                .read()
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
    }
    let seen = look(&a, "m").await;
    assert_eq!(seen.holders().count(), 3);
    // A larger number counts at once, and a smaller one waits.
    let fourth = permit(&b, 4).await.expect("a fourth slot");
    assert_eq!(fourth.slot().number, 4);
    let second = permits.remove(1);
    let fence = second.slot().fence;
    second.release().await.expect("held");
    assert!(permit(&b, 3).await.is_none());
    let again = permit(&b, 4).await.expect("the second is free");
    assert_eq!(again.slot().number, 2, "the smallest that is free");
    assert!(again.slot().fence > fence);
    permits.extend([fourth, again]);
    for permit in permits {
        permit.release().await.expect("held");
    }
    take(&a, "m").await.release().await.expect("held");
}

async fn who_waits_for_a_slot_gets_the_next(place: Place) {
    let (a, b) = place.two().await;
    let held = [permit(&a, 2).await, permit(&a, 2).await];
    let [first, second] = held.map(|permit| permit.expect("it is free"));
    let waits = queues!(&a, b.semaphore("m", 2));
    let fence = first.slot().fence;
    first.release().await.expect("held");
    let got = got!(waits);
    assert_eq!(got.slot().number, 1);
    assert!(got.slot().fence > fence);
    got.extend(TTL).await.expect("it is held");
    second.release().await.expect("held");
    got.release().await.expect("held");
    assert!(look(&a, "m").await.holder.is_none());
}

async fn tasks_of_one_client_take_turns(place: Place) {
    let (a, b) = place.two().await;
    let mut all = JoinSet::new();
    for _ in 0..40 {
        for client in [&a, &b] {
            let lock = client.semaphore("m", 3).ttl(TTL);
            all.spawn(async move {
                let permit = lock.acquire().await.expect("it answers");
                let number = permit.slot().number;
                permit.release().await.expect("held");
                number
            });
        }
    }
    let numbers = timeout(LONG, all.join_all()).await.expect("in time");
    assert!(numbers.iter().all(|number| (1..=3).contains(number)));
    let free = async || {
        let seen = look(&a, "m").await;
        seen.holder.is_none() && seen.queue.is_empty()
    };
    eventually("nothing is left", free).await;
}

#[track_caller]
fn is_not_held(cause: &LossCause) {
    assert!(matches!(cause, LossCause::NotHeld(_)), "{cause}");
}

async fn a_break_by_owner_ends_one_of_several(place: Place) {
    let (a, b) = place.two().await;
    let operator = place.client().await;
    let (stuck, other) = (read(&a).await, read(&b).await);
    let writer = queues!(&operator, place.client().await.rw_lock("m").write());
    let broken = operator.break_holder("m", stuck.owner()).await;
    assert!(broken.expect("it answers"));
    let seen = look(&operator, "m").await;
    let holders: Vec<_> = seen.holders().map(|holder| holder.who.clone()).collect();
    assert_eq!(holders, [HolderIdentity::Owner(other.owner().clone())]);
    is_not_held(&lost(stuck.extend(TTL).await).cause);
    other.extend(TTL).await.expect("it holds on");
    let again = operator.break_holder("m", stuck.owner()).await;
    assert!(!again.expect("it answers"), "it holds no more");
    let broken = operator.break_holder("m", other.owner()).await;
    assert!(broken.expect("it answers"));
    let writer = got!(writer);
    is_not_held(&lost(other.release().await).cause);
    writer.release().await.expect("it was held");

    let (one, two) = (permit(&a, 2).await, permit(&b, 2).await);
    let (one, two) = (one.expect("free"), two.expect("free"));
    let broken = operator.break_holder("m", one.owner()).await;
    assert!(broken.expect("it answers"));
    let next = permit(&operator, 2).await.expect("its slot is free");
    assert_eq!(next.slot().number, 1);
    two.release().await.expect("it holds on");
    is_not_held(&lost(one.release().await).cause);
    next.release().await.expect("it was held");
}

on_every_store! {
    readers_hold_together
    a_writer_waits_for_all_readers_and_no_reader_passes_it
    readers_behind_a_writer_enter_together
    readers_of_one_client_share_one_hold
    a_reader_ends_by_its_own_limit
    a_reader_that_is_lost_is_told
}

/// A quorum has no semaphores.
mod slots {
    use super::{
        a_break_by_owner_ends_one_of_several, as_many_hold_as_there_are_slots,
        tasks_of_one_client_take_turns, who_waits_for_a_slot_gets_the_next,
    };
    use crate::common::on_every_store_of_entries;

    on_every_store_of_entries! {
        a_break_by_owner_ends_one_of_several
        as_many_hold_as_there_are_slots
        who_waits_for_a_slot_gets_the_next
        tasks_of_one_client_take_turns
    }
}

#[tokio::test]
async fn a_quorum_has_no_slots() {
    let place = Place::quorum();
    let client = place.client().await;
    let refused = client.semaphore("m", 3).acquire().await;
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("a quorum has no semaphores"), "{text}");
    take(&client, "m").await.release().await.expect("held");
}

#[tokio::test]
async fn numbers_of_slots_are_checked() {
    let client = Place::memory().client().await;
    for slots in [0, 1_001] {
        let refused = client.semaphore("m", slots).try_acquire().await;
        let text = refused.expect_err("not a number of slots").to_string();
        assert!(text.contains("1 to 1000"), "{text}");
    }
    let most = client.semaphore("m", 1_000).acquire().await;
    most.expect("it is free").release().await.expect("held");
}
