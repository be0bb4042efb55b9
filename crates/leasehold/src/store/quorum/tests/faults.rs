//! Nodes that fail, hang or forget.

use leasehold_core::{Fence, World};

use super::verbs::WITHOUT_LEAD;
use super::{MS, Nodes, SECOND, settle};
use crate::error::{Error, StoreErrorKind};
use crate::store::memory::Memory;

/// A fault of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Fails,
    Hangs,
    LosesReplies,
}

pub(super) fn set(way: &Memory, fault: Fault) {
    match fault {
        Fault::Fails => way.faults().fail(StoreErrorKind::Unreachable),
        Fault::Hangs => way.faults().hang(),
        Fault::LosesReplies => way.faults().lose_replies(),
    }
}

/// Applies a fault to the nodes of a mask.
pub(super) fn set_all(ways: &[Memory], mask: u32, fault: Fault) {
    for (node, way) in ways.iter().enumerate() {
        if mask >> node & 1 == 1 {
            set(way, fault);
        } else {
            way.faults().heal();
        }
    }
}

/// Every set of faulty nodes, for 3 and for 5 nodes, and whether a majority is left.
pub(super) fn masks() -> impl Iterator<Item = (usize, u32, bool)> {
    [3_usize, 5].into_iter().flat_map(|nodes| {
        (0..1_u32 << nodes).map(move |mask| {
            let left = nodes - usize::try_from(mask.count_ones()).unwrap();
            (nodes, mask, left > nodes / 2)
        })
    })
}

pub(super) const FAULTS: [Fault; 3] = [Fault::Fails, Fault::Hangs, Fault::LosesReplies];

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_while_a_majority_answers() {
    for fault in FAULTS {
        for (count, mask, has_majority) in masks() {
            let nodes = Nodes::new(count);
            let (client, ways, store) = nodes.client();
            set_all(&ways, mask, fault);
            let begun = nodes.clock.now();
            let outcome = client.mutex("stock").acquire_within(SECOND).await;
            match outcome {
                Ok(lease) => {
                    assert!(has_majority, "{fault:?} {count} {mask:b}");
                    let took = nodes.clock.now().since(begun);
                    let what = format!("{fault:?} {count} {mask:b}: {took:?}");
                    assert!(took < WITHOUT_LEAD, "{what}");
                    lease.release().await.unwrap();
                }
                Err(error) => {
                    assert!(!has_majority, "{fault:?} {count} {mask:b}: {error}");
                    assert!(
                        matches!(error, Error::Store(_) | Error::Timeout(_)),
                        "{error}"
                    );
                }
            }
            // The nodes come back, and get the releases that they missed.
            set_all(&ways, 0, fault);
            tokio::time::sleep(40 * SECOND).await;
            assert_eq!(nodes.held_at("stock"), 0, "{fault:?} {count} {mask:b}");
            assert_eq!(
                store.quorum().lock().owners.len(),
                0,
                "{fault:?} {count} {mask:b}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_while_a_majority_answers_and_lost_on_time() {
    for fault in FAULTS {
        for (count, mask, has_majority) in masks() {
            let nodes = Nodes::new(count);
            let (client, ways, _) = nodes.client();
            let mutex = client.mutex("stock").ttl(3 * SECOND);
            let lease = mutex.acquire().await.unwrap();
            set_all(&ways, mask, fault);
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(!lease.is_lost(), has_majority, "{fault:?} {count} {mask:b}");
            if has_majority {
                lease.release().await.unwrap();
                assert!(
                    nodes.held_at("stock") <= count / 2,
                    "{fault:?} {count} {mask:b}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_confirmed_by_a_majority() {
    for fault in [Fault::Fails, Fault::Hangs] {
        for (count, mask, has_majority) in masks() {
            let nodes = Nodes::new(count);
            let (client, ways, _) = nodes.client();
            let lease = client.mutex("stock").acquire().await.unwrap();
            set_all(&ways, mask, fault);
            let released = tokio::time::timeout(5 * SECOND, lease.release()).await;
            let is_released = matches!(released, Ok(Ok(())));
            assert_eq!(is_released, has_majority, "{fault:?} {count} {mask:b}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgets_gives_no_vote_until_its_quarantine_ends() {
    let nodes = Nodes::new(3);
    let ((client, ..), (other, other_ways, _)) = (nodes.client(), nodes.client());
    let lease = client.mutex("stock").acquire().await.unwrap();
    settle().await;
    nodes.memories[0].meddle(|world| *world = World::node(None));
    // One node alone is no majority.
    other_ways[2].faults().fail(StoreErrorKind::Unreachable);
    let outcome = other.mutex("other").acquire_within(SECOND).await;
    let said = outcome.unwrap_err().to_string();
    for why in ["no vote for another 3", "; memory:: cannot connect: "] {
        assert!(said.contains(why), "{said}");
    }
    assert!(!lease.is_lost());
    // After the quarantine the next renewal gets its vote back.
    tokio::time::sleep(45 * SECOND).await;
    assert_eq!(nodes.held_at("stock"), 3);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_the_lead_delays_its_waiters_only() {
    for lead in 0..3 {
        let nodes = Nodes::new(3);
        let ((a, a_ways, _), (b, b_ways, _)) = (nodes.client(), nodes.client());
        let lease = a.mutex("stock").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { b.mutex("stock").acquire().await.unwrap() });
        settle().await;
        for ways in [&a_ways, &b_ways] {
            ways[lead].faults().fail(StoreErrorKind::Unreachable);
        }
        let begun = nodes.clock.now();
        lease.release().await.unwrap();
        let next = waiting.await.unwrap();
        let took = nodes.clock.now().since(begun);
        assert!(took < 2 * SECOND, "{lead}: {took:?}");
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_vote_at_the_lead_delays_a_client_once_and_briefly() {
    let nodes = Nodes::new(3);
    let ((gone, ..), (client, ..)) = (nodes.client(), nodes.client());
    let leases: Vec<_> = {
        let lease = gone.mutex("stock").acquire().await.unwrap();
        settle().await;
        // The other nodes have lost this vote, and the owner is gone.
        let held: Vec<_> = nodes.holders("stock");
        assert!(held.iter().all(Option::is_some));
        vec![lease]
    };
    let name = leasehold_core::LockName::new("stock").unwrap();
    let lead = {
        let (_, _, store) = nodes.client();
        let quorum = store.quorum();
        let state = quorum.lock();
        state.leads.of(&name)
    };
    for (node, memory) in nodes.memories.iter().enumerate() {
        if node != lead {
            memory.meddle(|world| world.entry(&name).holders.clear());
        }
    }
    // Its client renews nothing any more.
    std::mem::forget(leases);
    for longest in [60 * MS, MS, MS] {
        let begun = nodes.clock.now();
        let lease = client.mutex("stock").try_acquire().await.unwrap();
        let took = nodes.clock.now().since(begun);
        assert!(took < longest, "{took:?}");
        lease.expect("nobody holds it").release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_busy_while_a_majority_answers() {
    for (count, mask, has_majority) in masks() {
        let nodes = Nodes::new(count);
        let ((client, ..), (other, ways, _)) = (nodes.client(), nodes.client());
        let lease = client.mutex("stock").acquire().await.unwrap();
        settle().await;
        set_all(&ways, mask, Fault::Fails);
        let outcome = other.mutex("stock").try_acquire().await;
        let is_busy = matches!(outcome, Ok(None));
        assert_eq!(is_busy, has_majority, "{count} {mask:b}: {outcome:?}");
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_gets_a_release_after_its_votes() {
    for slow in [vec![0], vec![1], vec![2], vec![0, 2]] {
        let nodes = Nodes::new(5);
        let (client, ways, store) = nodes.client();
        for node in &slow {
            ways[*node].faults().slow(50 * MS);
        }
        for _ in 0..3 {
            let lease = client.mutex("stock").try_acquire().await.unwrap();
            lease.expect("it is free").release().await.unwrap();
            tokio::time::sleep(SECOND).await;
            assert_eq!(nodes.held_at("stock"), 0, "{slow:?}");
            assert_eq!(store.quorum().lock().owners.len(), 0, "{slow:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_higher_fence_of_the_holder_counts() {
    let nodes = Nodes::new(3);
    let (client, ways, _) = nodes.client();
    let mutex = client.mutex("stock").ttl(3 * SECOND);
    let lease = mutex.acquire().await.unwrap();
    settle().await;
    // As if it had granted the lock to this waiter by itself, with a fence of its own.
    let name = leasehold_core::LockName::new("stock").unwrap();
    nodes.memories[0].meddle(|world| {
        let fences = &mut world.entry(&name).holders[0].fences;
        fences.first = Fence::new(fences.first.get() + 1_000);
    });
    tokio::time::sleep(3 * SECOND).await;
    ways[1].faults().fail(StoreErrorKind::Unreachable);
    tokio::time::sleep(10 * SECOND).await;
    assert!(!lease.is_lost());
    let seen = client.inspect("stock").await.unwrap().holder.unwrap();
    assert!(seen.fence >= Some(lease.fence()));
    lease.release().await.unwrap();
    assert!(nodes.holders("stock")[0].is_none());
}

#[tokio::test(start_paused = true)]
async fn a_release_counts_a_node_with_a_higher_fence() {
    for (lost, is_lost) in [(vec![1], false), (vec![1, 2], true)] {
        let nodes = Nodes::new(3);
        let (client, ..) = nodes.client();
        let lease = (client.mutex("stock").ttl(3 * SECOND)).acquire().await;
        let lease = lease.unwrap();
        let name = leasehold_core::LockName::new("stock").unwrap();
        nodes.memories[0].meddle(|world| {
            let fences = &mut world.entry(&name).holders[0].fences;
            fences.first = Fence::new(fences.first.get() + 1_000);
        });
        // A renewal finds it.
        tokio::time::sleep(2 * SECOND).await;
        for node in lost {
            nodes.memories[node].meddle(|world| world.entry(&name).holders.clear());
        }
        let released = lease.release().await;
        assert_eq!(released.is_err(), is_lost, "{released:?}");
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_expired_is_given_again_at_a_renewal() {
    for count in [3, 5] {
        let nodes = Nodes::new(count);
        let (client, ways, _) = nodes.client();
        let lease = (client.mutex("stock").ttl(3 * SECOND)).acquire().await;
        let lease = lease.unwrap();
        settle().await;
        for node in [0, count - 1] {
            // Its counter remembers the fence of the lease.
            ways[node].faults().fail(StoreErrorKind::Unreachable);
            tokio::time::sleep(4 * SECOND).await;
            assert_eq!(nodes.held_at("stock"), count - 1, "{node} of {count}");
            ways[node].faults().heal();
            tokio::time::sleep(3 * SECOND).await;
            assert_eq!(nodes.held_at("stock"), count, "{node} of {count}");
        }
        // With the first node's vote the others are not needed.
        for way in ways.iter().skip(1).take(count / 2) {
            way.faults().fail(StoreErrorKind::Unreachable);
        }
        tokio::time::sleep(10 * SECOND).await;
        assert!(!lease.is_lost());
        assert!(client.inspect("stock").await.unwrap().holder.is_some());
        lease.release().await.unwrap();
        for way in &ways {
            way.faults().heal();
        }
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(nodes.held_at("stock"), 0);
    }
}

/// The others say that the lock is held, and by whom. The lead alone knows the place in the queue.
#[tokio::test(start_paused = true)]
async fn a_silent_lead_makes_no_held_lock_unknown() {
    for count in [3, 5] {
        let nodes = Nodes::new(count);
        let ((holder, ..), (client, ways, store)) = (nodes.client(), nodes.client());
        let lease = holder.mutex("stock").acquire().await.unwrap();
        settle().await;
        let name = leasehold_core::LockName::new("stock").unwrap();
        let lead = store.quorum().lock().leads.of(&name);
        ways[lead].faults().hang();
        let begun = nodes.clock.now();
        let tried = client.mutex("stock").try_acquire().await;
        assert!(matches!(tried, Ok(None)), "{tried:?}");
        let took = nodes.clock.now().since(begun);
        assert!(took < 50 * MS, "{took:?}");
        for limit in [100 * MS, 200 * MS, SECOND, 3 * SECOND] {
            let begun = nodes.clock.now();
            let refused = client.mutex("stock").acquire_within(limit).await;
            assert!(
                matches!(refused, Err(Error::Timeout(_))),
                "{limit:?}: {refused:?}"
            );
            let took = nodes.clock.now().since(begun);
            assert!(took <= limit + 50 * MS, "{limit:?}: {took:?}");
        }
        // A waiter is served, too: it stands in the queue of another node.
        let mutex = client.mutex("stock");
        let (waited, released) = tokio::join!(mutex.acquire(), async {
            tokio::time::sleep(5 * SECOND).await;
            let begun = nodes.clock.now();
            lease.release().await.unwrap();
            begun
        });
        let took = nodes.clock.now().since(released);
        assert!(took < 100 * MS, "{took:?}");
        waited.unwrap().release().await.unwrap();
    }
}

/// A process that ends leaves nothing at a node that is silent: its requests there are answered in their order.
#[tokio::test(start_paused = true)]
async fn a_silent_node_does_not_delay_the_end_of_a_client() {
    let nodes = Nodes::new(5);
    for held in [false, true] {
        let (client, ways, store) = nodes.client();
        let name = leasehold_core::LockName::new("stock").unwrap();
        let lead = store.quorum().lock().leads.of(&name);
        ways[lead].faults().slow(10 * SECOND);
        let (holder, ..) = nodes.client();
        let mut other = None;
        if held {
            other = Some(holder.mutex("stock").acquire().await.unwrap());
        }
        let lease = client.mutex("stock").try_acquire().await.unwrap();
        assert_eq!(lease.is_none(), held);
        if let Some(lease) = lease {
            lease.release().await.unwrap();
        } else {
            let waited = client.mutex("stock").acquire_within(200 * MS).await;
            assert!(matches!(waited, Err(Error::Timeout(_))), "{waited:?}");
        }
        let begun = nodes.clock.now();
        assert!(client.close_within(SECOND).await);
        let took = nodes.clock.now().since(begun);
        assert!(took < 50 * MS, "{took:?}");
        if let Some(other) = other {
            other.release().await.unwrap();
        }
        tokio::time::sleep(11 * SECOND).await;
        assert_eq!(nodes.held_at("stock"), 0, "{held}");
    }
}

/// Only the lead knows who waits. A majority may renew the lease without it.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_the_lead_forgets_no_waiter() {
    let nodes = Nodes::new(3);
    let ((holder, ways, store), (other, ..)) = (nodes.client(), nodes.client());
    let mutex = holder.mutex("stock").linger(30 * SECOND);
    let lease = mutex.acquire().await.unwrap();
    settle().await;
    let waiting = tokio::spawn(async move { other.mutex("stock").acquire().await.unwrap() });
    settle().await;
    let name = leasehold_core::LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    ways[lead].faults().slow(10 * MS);
    lease.extend(30 * SECOND).await.unwrap();
    let begun = nodes.clock.now();
    lease.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    let took = nodes.clock.now().since(begun);
    assert!(took < 100 * MS, "{took:?}");
}
