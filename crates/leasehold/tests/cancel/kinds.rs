//! Readers and permits, dropped at any moment: no hold and no place is left, not even where nobody looks.

use std::pin::Pin;

use futures_util::future::join_all;
use leasehold::kind::{Kind, Shared, Slots};
use leasehold::{Client, Error, Lease, Lock};
use tokio::time::sleep;

use crate::common::{LONG, Place, TTL, at_each_poll, eventually};
use crate::still::{local, memory, redis};
use crate::{MOMENTS, Scene, poll_n_times_then_drop, poll_once_then_drop_after};

type Acquiring<'a, K> = Pin<Box<dyn Future<Output = Result<Option<Lease<K>>, Error>> + Send + 'a>>;

/// The lock of a kind, by the name of the scene.
type Of<K> = fn(&Client) -> Lock<K>;

fn reads(client: &Client) -> Lock<Shared> {
    client.rw_lock("m").read().ttl(TTL)
}

fn slots(client: &Client) -> Lock<Slots> {
    client.semaphore("m", 2).ttl(TTL)
}

/// The methods that acquire.
fn ways<K: Kind>(lock: &Lock<K>) -> [Acquiring<'_, K>; 3] {
    [
        Box::pin(async { lock.acquire().await.map(Some) }),
        Box::pin(async { lock.acquire_within(LONG).await.map(Some) }),
        Box::pin(lock.try_acquire()),
    ]
}

async fn held<K: Kind>(lock: &Lock<K>) -> Lease<K> {
    let lease = lock.try_acquire().await.expect("the store answers");
    lease.expect("it is admitted")
}

/// The lock is soon free, and no holder is left behind a lock that is free: an operator does not see those.
async fn nothing_is_left(scene: &Scene) {
    scene.is_free_soon().await;
    let empty = async || {
        let servers = scene.place.servers().iter();
        let mut left =
            servers.map(|server| server.cli(&["EXISTS", "m", "{m}:lh-queue", "{m}:lh-waiters"]));
        left.all(|left| left.int() == 0)
    };
    eventually("no key is left", empty).await;
}

async fn a_free_lock<K: Kind>(place: Place, of: Of<K>) {
    let scene = Scene::at(place).await;
    let lock = of(&scene.client);
    for way in 0..ways(&lock).len() {
        at_each_poll(async |n| {
            let [one, two, three] = ways(&lock);
            let way = [one, two, three].into_iter().nth(way).expect("a way");
            let output = poll_n_times_then_drop(n, way).await;
            let ended = output.is_some();
            drop(output.map(|lease| lease.expect("it is free").expect("it is free")));
            nothing_is_left(&scene).await;
            ended
        })
        .await;
    }
    for moment in MOMENTS {
        for way in ways(&lock) {
            poll_once_then_drop_after(way, sleep(moment)).await;
            nothing_is_left(&scene).await;
        }
    }
}

async fn beside_others_of_its_client<K: Kind>(place: Place, of: Of<K>) {
    let scene = Scene::at(place).await;
    let lock = of(&scene.client);
    let first = held(&lock).await;
    at_each_poll(async |n| {
        let output = poll_n_times_then_drop(n, lock.acquire()).await;
        output.is_some()
    })
    .await;
    for moment in MOMENTS {
        // Some of them get one, and some wait.
        let all = (0..4).flat_map(|_| ways(&lock));
        let all = all.map(|way| poll_once_then_drop_after(way, sleep(moment)));
        join_all(all).await;
    }
    first.extend(TTL).await.expect("it is held");
    first.release().await.expect("it is held");
    nothing_is_left(&scene).await;
}

async fn behind_another<K: Kind>(place: Place, of: Of<K>) {
    let scene = Scene::at(place).await;
    let lock = of(&scene.client);
    for moment in MOMENTS {
        for way in ways(&lock) {
            let held = scene.held_by_another().await;
            poll_once_then_drop_after(way, sleep(moment)).await;
            scene.waits_for_nobody_after(held).await;
        }
    }
    for moment in MOMENTS {
        let held = scene.held_by_another().await;
        let handed_over = async {
            scene.shows_a_waiter().await;
            drop(held);
            sleep(moment).await;
        };
        let all = (0..3).map(|_| lock.acquire());
        poll_once_then_drop_after(join_all(all), handed_over).await;
        nothing_is_left(&scene).await;
    }
}

async fn given_back_and_extended<K: Kind>(place: Place, of: Of<K>) {
    let scene = Scene::at(place).await;
    let lock = of(&scene.client);
    at_each_poll(async |n| {
        let lease = held(&lock).await;
        let extended = poll_n_times_then_drop(n, lease.extend(TTL)).await;
        let released = poll_n_times_then_drop(n, lease.release()).await;
        nothing_is_left(&scene).await;
        extended.is_some() && released.is_some()
    })
    .await;
    // The last of those that share a hold gives it back, also without the client.
    for dropped_first in [true, false] {
        let client = scene.place.client().await;
        let leases = [held(&of(&client)).await, held(&of(&client)).await];
        let [one, other] = leases;
        drop(one);
        if dropped_first {
            drop(client);
            drop(other);
        } else {
            drop(other);
            drop(client);
        }
        nothing_is_left(&scene).await;
    }
}

/// Makes tests of behaviours for both kinds.
macro_rules! of_both_kinds {
    ($store:ident: $($behaviour:ident)*) => {
        mod $store {
            $(
                mod $behaviour {
                    use super::super::{$behaviour, $store, reads, slots};

                    #[tokio::test]
                    async fn of_readers() {
                        $behaviour($store(), reads).await;
                    }

                    #[tokio::test]
                    async fn of_permits() {
                        $behaviour($store(), slots).await;
                    }
                }
            )*
        }
    };
    ($($behaviour:ident)*) => {
        of_both_kinds! { memory: $($behaviour)* }
        of_both_kinds! { local: $($behaviour)* }
        of_both_kinds! { redis: $($behaviour)* }
    };
}

of_both_kinds! {
    a_free_lock
    beside_others_of_its_client
    behind_another
    given_back_and_extended
}

/// Makes tests of behaviours for readers of a quorum, which has no permits.
macro_rules! of_a_quorum {
    ($($behaviour:ident)*) => {
        mod quorum {
            use super::{Place, reads};

            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour(Place::quorum(), reads).await;
                }
            )*
        }
    };
}

of_a_quorum! {
    a_free_lock
    beside_others_of_its_client
    behind_another
    given_back_and_extended
}
