//! The attribute `#[locked]`: functions of every shape, and what a caller sees of the lock, on memory and on a real Redis. What must not
//! compile is in `crates/macros/tests`.

#![allow(clippy::unwrap_used, reason = "an error fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod shapes;

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Clock, Error, Fence, LossCause, Memory, StoreErrorKind, blocking, locked};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::common::{LONG, Place, look, on_every_store, passing};

#[derive(Debug)]
enum Refused {
    Lock(Error),
    Empty,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[derive(Clone)]
struct Shop {
    locks: Client,
}

impl Shop {
    /// How many are inside, counting itself.
    #[locked("orders:{id}", client = self.locks)]
    async fn pack(&self, id: u64, inside: &AtomicU32) -> Result<u32, Error> {
        let found = inside.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(found + 1)
    }

    #[locked("orders:{id}", client = self.locks)]
    fn pack_blocking(&self, id: u64, inside: &AtomicU32) -> Result<u32, Error> {
        let found = inside.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(found + 1)
    }

    /// A reader, and its phase.
    #[locked("orders:{id}", client = self.locks, shared, lease = lease)]
    async fn look(&self, id: u64, at: &Barrier) -> Result<Option<Fence>, Error> {
        at.wait().await;
        Ok(lease.fence())
    }

    #[locked("seats:{shop}", client = self.locks, slots = 2, lease = permit)]
    async fn sit(&self, shop: u64, at: &Barrier) -> Result<u16, Error> {
        at.wait().await;
        Ok(permit.slot().number)
    }

    #[locked("seats:{shop}", client = self.locks, slots = 2, wait = "no", lease = permit)]
    fn sit_blocking(&self, shop: u64) -> Result<u16, Error> {
        Ok(permit.slot().number)
    }

    #[locked("orders:{id}", client = self.locks)]
    async fn meet(&self, id: u64, at: &Barrier) -> Result<(), Error> {
        at.wait().await;
        Ok(())
    }

    #[locked("orders:{}", id, ttl = "60s", lease = lease, client = self.locks)]
    async fn hang(&self, id: u64, dropped: impl Drop, tell: impl Fn(Fence)) -> Result<(), Refused> {
        tell(lease.fence());
        let _dropped = dropped;
        pending().await
    }

    #[locked("orders:{id}", wait = "no", client = self.locks)]
    async fn only_if_free(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", wait = "10s", client = self.locks)]
    async fn waits(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", skip, client = self.locks)]
    async fn skips(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", wait = "10s", skip, client = &self.locks)]
    async fn waits_then_skips(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", wait = "no", client = self.locks)]
    fn only_if_free_blocking(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", skip, client = blocking::Client::from(self.locks.clone()))]
    fn skips_blocking(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}", lease = lease, client = self.locks)]
    fn broken_meanwhile(&self, id: u64) -> Result<(), Refused> {
        let shop = blocking::Client::from(self.locks.clone());
        assert!(shop.break_lock(lease.name(), lease.fence())?);
        Ok(())
    }
}

/// Tells when it is dropped.
struct Dropped<F: FnMut()>(F);

impl<F: FnMut()> Drop for Dropped<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

async fn two_shops(place: &Place) -> [Shop; 2] {
    let (one, other) = place.two().await;
    [one, other].map(|locks| Shop { locks })
}

async fn calls_with_one_id_exclude_each_other(place: Place) {
    let inside: &_ = Box::leak(Box::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for shop in two_shops(&place).await {
        for _ in 0..8 {
            let (task, thread) = (shop.clone(), shop.clone());
            tasks.spawn(async move { task.pack(7, inside).await });
            tasks.spawn_blocking(move || thread.pack_blocking(7, inside));
        }
    }
    let most = tasks.join_all().await.into_iter();
    assert_eq!(most.map(|found| found.unwrap()).max(), Some(1));
}

async fn calls_with_other_ids_run_beside_each_other(place: Place) {
    let [shop, other] = two_shops(&place).await;
    let both_are_inside = Barrier::new(2);
    let both = async {
        tokio::try_join!(
            shop.meet(1, &both_are_inside),
            other.meet(2, &both_are_inside)
        )
    };
    timeout(LONG, both).await.unwrap().unwrap();
}

async fn a_loss_cancels_the_body(place: Place) {
    let (_place, time, [locks, operator]) = place.in_test_time().await;
    let shop = Shop { locks };
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let is_dropped = AtomicU32::new(0);
    let dropped = Dropped(|| {
        is_dropped.fetch_add(1, Ordering::SeqCst);
    });
    let hangs = shop.hang(7, dropped, move |fence| tell.send(fence).unwrap());
    let breaks = async {
        let fence = told.recv().await.unwrap();
        assert!(operator.break_lock("orders:7", fence).await.unwrap());
        time.pass(Duration::from_secs(20));
    };
    let both = async { tokio::join!(hangs, breaks).0 };
    let ended = passing(&time, "the loss", both).await;
    let Err(Refused::Lock(Error::Lost(lost))) = ended else {
        panic!("{ended:?}");
    };
    assert!(matches!(lost.cause, LossCause::NotHeld(None)), "{lost}");
    assert_eq!(is_dropped.load(Ordering::SeqCst), 1);
}

async fn a_busy_lock_is_an_error_or_skipped(place: Place) {
    let [shop, other] = two_shops(&place).await;
    let held = other.locks.mutex("orders:7").acquire().await.unwrap();
    let busy = shop.only_if_free(7).await.unwrap_err();
    assert_eq!(busy.to_string(), "\"orders:7\" is busy");
    assert!(busy.is_timeout());
    assert_eq!(shop.skips(7).await, Ok(0));
    assert_eq!(shop.only_if_free(8).await, Ok(8));
    let in_thread = shop.clone();
    let answers = spawn_blocking(move || {
        assert!(in_thread.only_if_free_blocking(7).unwrap_err().is_timeout());
        assert_eq!(in_thread.skips_blocking(7), Ok(0));
        (
            in_thread.only_if_free_blocking(8),
            in_thread.skips_blocking(8),
        )
    });
    assert_eq!(answers.await.unwrap(), (Ok(8), Ok(8)));
    held.release().await.unwrap();
    assert_eq!(shop.only_if_free(7).await, Ok(7));
    assert_eq!(shop.skips(7).await, Ok(7));
}

async fn blocking_body_that_was_unprotected_is_an_error(place: Place) {
    let [shop, _] = two_shops(&place).await;
    let ended = spawn_blocking(move || shop.broken_meanwhile(7))
        .await
        .unwrap();
    assert!(
        matches!(&ended, Err(Refused::Lock(error)) if error.is_lost()),
        "{ended:?}"
    );
}

async fn readers_and_slots_run_beside_each_other(place: Place) {
    let shop = Shop {
        locks: place.client().await,
    };
    // Both have to be inside at once.
    let at = Barrier::new(2);
    let both = async { tokio::join!(shop.look(7, &at), shop.look(7, &at)) };
    let (one, other) = timeout(LONG, both).await.expect("they meet");
    assert_eq!(one.unwrap(), other.unwrap(), "one phase");
    let both = async { tokio::join!(shop.sit(7, &at), shop.sit(7, &at)) };
    let (one, other) = timeout(LONG, both).await.expect("they meet");
    let mut seats = [one.unwrap(), other.unwrap()];
    seats.sort_unstable();
    assert_eq!(seats, [1, 2]);
    let held = [1, 2].map(|_| shop.locks.semaphore("seats:7", 2));
    let _first = held[0].acquire().await.unwrap();
    let _second = held[1].acquire().await.unwrap();
    let full = spawn_blocking(move || shop.sit_blocking(7)).await.unwrap();
    assert!(matches!(full, Err(Error::Timeout(_))), "{full:?}");
}

on_every_store! { memory:
    calls_with_one_id_exclude_each_other
    calls_with_other_ids_run_beside_each_other
    a_loss_cancels_the_body
    a_busy_lock_is_an_error_or_skipped
    blocking_body_that_was_unprotected_is_an_error
    readers_and_slots_run_beside_each_other
}
on_every_store! { redis:
    calls_with_one_id_exclude_each_other
    calls_with_other_ids_run_beside_each_other
    a_loss_cancels_the_body
    a_busy_lock_is_an_error_or_skipped
    blocking_body_that_was_unprotected_is_an_error
    readers_and_slots_run_beside_each_other
}

fn on_virtual_time() -> (Memory, Clock, Client) {
    let clock = Clock::virtual_time();
    let memory = Memory::new(clock.clone());
    let client = Client::builder().clock(clock.clone()).embedded(&memory);
    (memory, clock, client.expect("a paused runtime"))
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_its_limit() {
    let (_memory, clock, locks) = on_virtual_time();
    let shop = Shop { locks };
    let held = shop.locks.mutex("orders:7").acquire().await.unwrap();
    let begun = clock.now();
    let Err(Error::Timeout(busy)) = shop.waits(7).await else {
        panic!("it is held");
    };
    assert_eq!(busy.waited, Duration::from_secs(10));
    assert_eq!(shop.waits_then_skips(7).await, Ok(0));
    assert_eq!(clock.now().since(begun), Duration::from_secs(20));
    let (waits, ()) = tokio::join!(shop.waits(7), async { drop(held) });
    assert_eq!(waits, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_those_of_the_lock() {
    #[locked("orders:{id}", ttl = "1m", note = format!("order-{id}"), max_hold = "1h 30m", at_least = "2h", client = locks)]
    async fn pack(id: u64, locks: &Client) -> Result<(), Error> {
        let holder = look(locks, "orders:7").await.holder.unwrap();
        assert!(format!("{holder:?}").contains("order-7"), "{holder:?}");
        assert!(holder.expires_in > Some(Duration::from_secs(59)));
        if id == 7 { Ok(()) } else { pending().await }
    }

    let (_memory, clock, locks) = on_virtual_time();
    pack(7, &locks).await.unwrap();
    assert!(
        locks
            .mutex("orders:7")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let begun = clock.now();
    drop(locks.mutex("orders:7").acquire().await.unwrap());
    let kept = clock.now().since(begun);
    assert!(kept.as_secs().abs_diff(7_200) < 60, "{kept:?}");

    #[locked("hung", max_hold = "1h 30m", client = locks)]
    async fn hang(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let Err(Error::Lost(lost)) = hang(&locks).await else {
        panic!("it hangs");
    };
    assert_eq!(lost.cause, LossCause::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_the_body_comes_before_that_of_the_release() {
    #[locked("orders", client = locks)]
    async fn pack(count: u32, locks: &Client, memory: &Memory) -> Result<u32, Refused> {
        memory.faults().fail(StoreErrorKind::Unreachable);
        if count == 0 {
            return Err(Refused::Empty);
        }
        Ok(count)
    }

    let (memory, _clock, locks) = on_virtual_time();
    // The release goes on in the background.
    assert!(matches!(pack(7, &locks, &memory).await, Ok(7)));
    memory.faults().heal();
    assert!(matches!(
        pack(0, &locks, &memory).await,
        Err(Refused::Empty)
    ));
}

#[tokio::test]
async fn a_lock_with_a_bad_name_is_an_error_of_the_call() {
    #[locked("{name}", client = client)]
    async fn pack(name: &str, client: &Client) -> Result<(), Refused> {
        panic!("{name} is no name")
    }

    #[locked("{name}", client = client)]
    fn pack_blocking(name: &str, client: &Client) -> Result<(), Refused> {
        panic!("{name} is no name")
    }

    let client = Client::embedded().unwrap();
    for ended in [pack("", &client).await, pack_blocking("", &client)] {
        let Err(Refused::Lock(Error::Invalid(invalid))) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(invalid.what, "lock name");
    }
}

#[tokio::test]
async fn double_braces_make_a_hash_tag() {
    #[locked("{{{user}}}:{id}", lease = lease, client = client)]
    async fn name(user: &str, id: u64, client: &Client) -> Result<String, Error> {
        Ok(lease.name().to_owned())
    }

    let client = Client::embedded().unwrap();
    assert_eq!(name("alice", 7, &client).await.unwrap(), "{alice}:7");
}

#[tokio::test]
async fn arguments_are_dropped_under_the_lock() {
    #[locked("orders", client = client, wait = "no")]
    async fn pack(client: &Client, tidies: Dropped<impl FnMut()>) -> Result<(), Error> {
        let _tidies = &tidies;
        Ok(())
    }

    #[locked("orders", client = client, wait = "no")]
    fn pack_blocking(client: &Client, tidies: Dropped<impl FnMut()>) -> Result<(), Error> {
        let _tidies = &tidies;
        Ok(())
    }

    let client = Client::embedded().unwrap();
    let free = |client: &Client| {
        let client = blocking::Client::from(client.clone());
        client.inspect("orders").unwrap().holder.is_none()
    };
    let held = AtomicU32::new(0);
    let tidies = || {
        Dropped(|| {
            held.fetch_add(u32::from(!free(&client)), Ordering::SeqCst);
        })
    };
    pack(&client, tidies()).await.unwrap();
    pack_blocking(&client, tidies()).unwrap();
    assert_eq!(held.load(Ordering::SeqCst), 2);
    assert!(free(&client));
}

/// The one test of this process that sets it.
#[tokio::test]
async fn the_default_client_is_set_once() {
    #[locked("orders:{id}")]
    async fn pack(id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[locked("orders:{id}")]
    fn pack_blocking(id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    for without in [pack(7).await, pack_blocking(7)] {
        let Err(Error::Invalid(invalid)) = without else {
            panic!("{without:?}");
        };
        assert!(invalid.why.contains("leasehold::set_default"), "{invalid}");
    }
    let client = Client::embedded().unwrap();
    leasehold::set_default(client.clone()).unwrap();
    let again = leasehold::set_default(Client::embedded().unwrap());
    assert!(matches!(again, Err(Error::Invalid(_))), "{again:?}");
    let held = client.mutex("orders:7").acquire().await.unwrap();
    assert!(timeout(Duration::from_millis(1), pack(7)).await.is_err());
    held.release().await.unwrap();
    assert_eq!(pack(7).await, Ok(7));
    let in_thread = spawn_blocking(|| pack_blocking(7)).await.unwrap();
    assert_eq!(in_thread, Ok(7));
}
