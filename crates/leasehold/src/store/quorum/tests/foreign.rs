//! Locks that another library holds at some of the nodes. Such a library knows no lead, queues nowhere and wakes no waiter.

use std::time::Duration;

use leasehold_core::{Foreign, HolderIdentity, LockName};

use super::{MS, Nodes, SECOND, settle};

impl Nodes {
    /// Another library holds the lock at these nodes, without an end, and at no other one.
    fn held_by_another_library(&self, at: &[usize]) {
        let name = LockName::new("stock").unwrap();
        for (node, memory) in self.memories.iter().enumerate() {
            let foreign = at.contains(&node).then(|| Foreign {
                kind: "string".into(),
                value: b"0123456789abcdef0123456789abcdef".to_vec(),
                expires_at_ms: None,
            });
            memory.meddle(|world| world.entry(&name).foreign = foreign);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_vote_of_a_minority_delays_nobody() {
    for at in [vec![0], vec![1], vec![2], vec![3], vec![4], vec![0, 1]] {
        for count in [3, 5] {
            if at.iter().any(|node| *node >= count) || at.len() * 2 > count {
                continue;
            }
            let nodes = Nodes::new(count);
            let (client, ways, _) = nodes.client();
            nodes.held_by_another_library(&at);
            // It answers first, also if it is the lead.
            for (node, way) in ways.iter().enumerate() {
                if !at.contains(&node) {
                    way.faults().slow(5 * MS);
                }
            }
            let mutex = client.mutex("stock");
            for _ in 0..2 {
                let lease = mutex.try_acquire().await.unwrap();
                lease.expect("it is free").release().await.unwrap();
                let begun = nodes.clock.now();
                let lease = mutex.acquire().await.unwrap();
                let took = nodes.clock.now().since(begun);
                assert!(took < 100 * MS, "{at:?} of {count}: {took:?}");
                lease.release().await.unwrap();
                settle().await;
                assert_eq!(nodes.held_at("stock"), 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_soon_after_a_foreign_majority() {
    for at in [vec![0, 1, 2], vec![0, 1], vec![1, 2], vec![0, 2]] {
        let nodes = Nodes::new(3);
        let ((client, ..), (other, ..)) = (nodes.client(), nodes.client());
        nodes.held_by_another_library(&at);
        assert!(client.mutex("stock").try_acquire().await.unwrap().is_none());
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0, "{at:?}: votes are given back");
        let seen = other.inspect("stock").await.unwrap();
        let holder = seen.holder.expect("a majority names it");
        assert!(matches!(holder.who, HolderIdentity::Foreign { .. }));

        let mutex = client.mutex("stock");
        let waiting = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        tokio::time::sleep(SECOND).await;
        assert!(!waiting.is_finished());
        let begun = nodes.clock.now();
        nodes.held_by_another_library(&[]);
        let lease = waiting.await.unwrap();
        let took: Duration = nodes.clock.now().since(begun);
        // One poll, and a tenth for its jitter.
        assert!(took <= 55 * MS, "{at:?}: {took:?}");
        lease.release().await.unwrap();
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0);
    }
}

/// The lead refuses all of them for a program that is in no queue.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_client_follow_each_other_past_a_foreign_vote() {
    for at in 0..3 {
        let nodes = Nodes::new(3);
        let ((holder, ..), (client, ..)) = (nodes.client(), nodes.client());
        nodes.held_by_another_library(&[at]);
        let held = holder.mutex("stock").acquire().await.unwrap();
        let mut waits = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let mutex = client.mutex("stock");
            waits.spawn(async move {
                let lease = mutex.acquire().await.unwrap();
                lease.release().await.unwrap();
            });
        }
        tokio::time::sleep(SECOND).await;
        let begun = nodes.clock.now();
        held.release().await.unwrap();
        waits.join_all().await;
        let took = nodes.clock.now().since(begun);
        assert!(took < SECOND, "{at}: {took:?}");
    }
}
