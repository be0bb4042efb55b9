//! A slot moves, with its locks. A lease lives on: its key is enough to renew and to release it. Who wants the lock waits for the end of
//! the move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use leasehold::{Client, Fence, Lease};
#[cfg(feature = "entries")]
use leasehold_core::cache::Step;
use testkit::RedisCluster;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::{TTL, eventually, look, lost, stand_in_line, take};
use crate::scene::{MOMENTS, Moment, Moving, beside, connect, joined, millis, soon};

/// At each moment of a move, on locks with names of their own: one slot moves to and fro.
async fn at_each_moment(test: impl AsyncFn(&Moving<'_>, [Client; 2], Moment)) {
    let cluster = RedisCluster::start(2, 0);
    for moment in MOMENTS {
        let name = format!("{{m}}{moment:?}");
        let moving = Moving::new(&cluster, &name);
        let clients = [connect(&cluster).await, connect(&cluster).await];
        test(&moving, clients, moment).await;
    }
}

/// Renews the lease and releases it at this moment of a move, which ends then. Returns its fence.
async fn given_back(lease: Lease, moving: &Moving<'_>, moment: Moment) -> Fence {
    let to = moving.another();
    moving.until(moment, to);
    let what = format!("{moment:?}");
    for _ in 0..3 {
        soon(&what, lease.extend(TTL)).await.expect(&what);
    }
    let fence = lease.fence();
    soon(&what, lease.release()).await.expect(&what);
    moving.to_its_end(moment, to);
    fence
}

/// The output of `future`, which begins at this moment of a move. The move goes on to its end meanwhile.
async fn during<T: Send + 'static>(
    moving: &Moving<'_>,
    moment: Moment,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let to = moving.another();
    moving.until(moment, to);
    let task = beside(future);
    sleep(millis(100)).await;
    moving.to_its_end(moment, to);
    joined(&format!("{moment:?}"), task).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_and_released_at_each_moment() {
    at_each_moment(async |moving, [one, other], moment| {
        let lease = take(&one, moving.name).await;
        let fence = given_back(lease, moving, moment).await;
        let what = format!("{moment:?}");
        let lock = other.mutex(moving.name).ttl(TTL);
        let next = soon(&what, lock.acquire()).await.expect("it is free");
        assert!(next.fence() > fence, "{what}");
        next.release().await.expect("held");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_served_after_the_move() {
    at_each_moment(async |moving, [one, other], moment| {
        let lease = take(&one, moving.name).await;
        let mut waiting = JoinSet::new();
        stand_in_line(&mut waiting, 0, other.mutex(moving.name).ttl(TTL)).await;
        let fence = given_back(lease, moving, moment).await;
        let what = format!("{moment:?}");
        let served = soon(&what, waiting.join_next()).await;
        let (_, next) = served.expect("one waits").expect("no panic");
        let next = next.expect(&what);
        assert!(next.fence() > fence, "{what}");
        next.release().await.expect("held");
        let seen = look(&one, moving.name).await;
        assert!(seen.holder.is_none() && seen.queue.is_empty(), "{seen:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_during_a_move_is_delayed_and_not_refused() {
    at_each_moment(async |moving, [one, other], moment| {
        let before = take(&one, moving.name).await;
        let fence = before.fence();
        before.release().await.expect("held");
        let what = format!("{moment:?}");
        let lock = other.mutex(moving.name).ttl(TTL);
        let asked = during(moving, moment, async move { lock.acquire().await }).await;
        let lease = asked.expect(&what);
        assert!(lease.fence() > fence, "{what}");
        lease.release().await.expect("held");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_breaks_a_lock_that_has_moved() {
    at_each_moment(async |moving, [one, other], moment| {
        let lease = take(&one, moving.name).await;
        let (name, fence) = (moving.name.to_owned(), lease.fence());
        let what = format!("{moment:?}");
        let breaks = async move { other.break_lock(&name, fence).await };
        during(moving, moment, breaks).await.expect(&what);
        lost(soon(&what, lease.release()).await);
    })
    .await;
}

/// The server forgets `ASKING` after one command.
#[cfg(feature = "entries")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_has_moved_is_read_and_watched() {
    let cluster = RedisCluster::start(2, 0);
    let client = connect(&cluster).await;
    let moving = Moving::new(&cluster, "{m}x");
    cluster
        .primary(cluster.slot("{m}x"))
        .cli(&["SET", "{m}x", "no entry"]);
    let entries = client.entries();
    let keys = [entries.key("{m}x").expect("a key")];
    let read = async || soon("it is read", entries.look(&keys, true)).await;
    read().await.expect("before");
    let to = moving.another();
    moving.until(Moment::Keys, to);
    read().await.expect("by its node to come");
    moving.to_its_end(Moment::Keys, to);
    read().await.expect("after");
}

/// Its two keys are at two nodes for a while. Then the node to come has both, and is asked (`ASKING`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firing_is_looked_at_and_finished_where_its_keys_are() {
    let cluster = RedisCluster::start(2, 0);
    let one = connect(&cluster).await;
    let url = format!("redis+cluster://{}", cluster.addresses());
    let patient = Client::builder().request_timeout(millis(6_000));
    let other = patient.connect(&url).await.expect("it works");
    for moment in [Moment::Lock, Moment::Rest] {
        let (name, what) = (format!("{{m}}{moment:?}"), format!("{moment:?}"));
        let moving = Moving::new(&cluster, &name);
        let lease = take(&one, &name).await;
        let [firing, theirs] = [&one, &other].map(|client| client.once(&name, "x"));
        drop(firing.begin(&lease).await.expect(&what));
        let to = moving.another();
        moving.until(moment, to);
        let looks = beside(async move { (theirs.past().await, theirs) });
        sleep(millis(100)).await;
        cluster.move_keys(cluster.slot(&name), to);
        let (begun, theirs) = joined(&what, looks).await;
        let begun = begun.expect(&what).expect(&what);
        assert!(begun.fence == lease.fence() && !begun.is_done, "{what}");
        soon(&what, firing.finish(&lease)).await.expect(&what);
        let done = soon(&what, theirs.past()).await.expect(&what);
        assert!(done.is_some_and(|past| past.is_done), "{what}");
        moving.to_its_end(moment, to);
        lease.release().await.expect("held");
    }
}

/// It has two keys, of which one does not exist.
#[cfg(feature = "entries")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_on_an_entry_says_that_its_slot_is_moved() {
    let cluster = RedisCluster::start(2, 0);
    let url = format!("redis+cluster://{}", cluster.addresses());
    let client = Client::builder().request_timeout(millis(6_000));
    let client = client.connect(&url).await.expect("it works");
    let moving = Moving::new(&cluster, "{m}x");
    let node = cluster.primary(cluster.slot(moving.name));
    node.cli(&["SET", moving.name, "no entry"]);
    moving.until(Moment::Begun, moving.another());
    let entries = client.entries();
    let key = entries.key(moving.name).expect("a key");
    let step = Step::Invalidate { remove: false };
    let refused = soon("it is refused", entries.take(&key, &step)).await;
    let error = refused.expect_err("its keys are at two nodes");
    assert_eq!(
        error.kind,
        leasehold::StoreErrorKind::Unavailable,
        "{error}"
    );
    assert!(error.detail.contains("is being moved"), "{error}");
    assert!(!error.may_have_taken_effect, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_all_names_at_each_moment() {
    at_each_moment(async |moving, [one, other], moment| {
        let lease = take(&one, moving.name).await;
        let index = "leasehold:index";
        let node = moving.cluster.primary(moving.cluster.slot(index));
        node.cli(&["ZADD", index, "9999999999999", moving.name]);
        let to = moving.another();
        moving.until(moment, to);
        let what = format!("{moment:?}");
        let names = soon(&what, other.names()).await.expect(&what);
        assert!(
            names.iter().any(|name| name == moving.name),
            "{what}: {names:?}"
        );
        moving.to_its_end(moment, to);
        lease.release().await.expect("held");
    })
    .await;
}

/// A script that drops the last of them may not look for the queue: the server takes that for a key at the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_have_gone_do_not_refuse_who_asks_during_a_move() {
    let cluster = RedisCluster::start(2, 0);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let moving = Moving::new(&cluster, "{m}x");
    let lease = take(&one, moving.name).await;
    let node = cluster.primary(cluster.slot(moving.name));
    let gone = format!("lh1.{}.{}.h:1:", "0".repeat(32), "0".repeat(16));
    node.cli(&["ZADD", "{m}x:lh-queue", "1", &gone]);
    let record = "exclusive 30000 1 - 1";
    node.cli(&["HSET", "{m}x:lh-waiters", &gone, record]);
    let to = moving.another();
    moving.until(Moment::Begun, to);
    let lock = other.mutex(moving.name).ttl(TTL);
    let asks = beside(async move { lock.acquire().await });
    sleep(millis(300)).await;
    moving.to_its_end(Moment::Begun, to);
    lease.release().await.expect("held");
    let next = joined("its turn", asks).await.expect("its turn");
    next.release().await.expect("held");
}

/// One slot moves thirty times, while clients renew and take its locks. The campaign in `scripts/soak` moves it more often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_is_lost_while_its_slot_moves_again_and_again() {
    let moves =
        std::env::var("LEASEHOLD_MOVES").map_or(30, |moves| moves.parse().expect("a number"));
    let cluster = RedisCluster::start(2, 0);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let names: Vec<String> = (0..20).map(|number| format!("{{m}}{number}")).collect();
    let mut held = Vec::new();
    for name in &names {
        let lock = one.mutex(name).ttl(millis(6_000));
        held.push(lock.acquire().await.expect("free"));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (inside, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut busy = JoinSet::new();
    for client in [&one, &one, &other, &other] {
        let lock = client.mutex("{m}busy").ttl(TTL);
        let (is_over, inside, served) = (is_over.clone(), inside.clone(), served.clone());
        busy.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let lease = lock.acquire().await.expect("its turn");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.expect("held");
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for number in 0..moves {
        let before = served.load(Ordering::SeqCst);
        let moving = Moving::new(&cluster, "{m}busy");
        moving.until(Moment::After, moving.another());
        eventually(&format!("served after move {number}"), async || {
            served.load(Ordering::SeqCst) > before + 4
        })
        .await;
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = soon("all end", busy.join_next()).await {
        ended.expect("no panic");
    }
    for lease in held {
        assert!(!lease.is_lost(), "{:?}", lease.loss());
        lease.extend(TTL).await.expect("held");
        lease.release().await.expect("held");
    }
}

/// The server ends subscriptions when a slot leaves it, and says so between replies. Each reply still goes to who asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_ends_unasked_shifts_no_reply() {
    let cluster = RedisCluster::start(2, 0);
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let moving = Moving::new(&cluster, "{m}x");
    let lease = take(&one, "{m}x").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, other.mutex("{m}x").ttl(TTL)).await;
    // Locks beside it on the node that loses the slot: each with its own fence.
    let from = cluster.primary(cluster.slot("{m}x")).port();
    let stays = (0..2_000).map(|number| format!("n{number}"));
    let here = stays.filter(|name| cluster.primary(cluster.slot(name)).port() == from);
    let names: Vec<String> = here.take(50).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(take(&other, name).await);
    }
    let to = moving.another();
    moving.until(Moment::Keys, to);
    let looks = async {
        for _ in 0..20 {
            let seen = join_all(names.iter().map(|name| other.inspect(name))).await;
            for (seen, lease) in seen.into_iter().zip(&held) {
                let holder = seen.expect("an answer").holder.expect("held");
                assert_eq!(holder.fence, Some(lease.fence()), "{}", lease.name());
            }
        }
    };
    let ends = async {
        sleep(millis(1)).await;
        moving.to_its_end(Moment::Keys, to);
    };
    tokio::join!(looks, ends);
    lease.release().await.expect("held");
    let served = soon("it is served", waiting.join_next()).await;
    let (_, next) = served.expect("one waits").expect("no panic");
    next.expect("its turn").release().await.expect("held");
    soon(
        "all are given back",
        join_all(held.into_iter().map(Lease::release)),
    )
    .await
    .into_iter()
    .for_each(|released| released.expect("held"));
}
