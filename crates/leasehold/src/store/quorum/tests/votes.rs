//! Locks of a quorum without faults.

use leasehold_core::World;
use leasehold_core::quorum::Mark;

use super::{MS, Nodes, SECOND, longest, settle, terms};
use crate::error::{Error, StoreErrorKind};

#[tokio::test(start_paused = true)]
async fn a_lease_has_one_fence_at_all_nodes_and_leaves_nothing() {
    let nodes = Nodes::new(3);
    let (client, _, store) = nodes.client();
    let mut last = None;
    for _ in 0..3 {
        let lease = client.mutex("stock").acquire().await.unwrap();
        settle().await;
        let fence = lease.fence();
        for holder in nodes.holders("stock") {
            assert_eq!(holder.unwrap().1, fence);
        }
        assert!(last < Some(fence));
        last = Some(fence);
        lease.release().await.unwrap();
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0);
        assert_eq!(store.quorum().lock().owners.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_and_at_once() {
    let nodes = Nodes::new(5);
    let clients: Vec<_> = (0..4).map(|_| nodes.client().0).collect();
    let first = clients[0].mutex("stock").acquire().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for (at, client) in clients.iter().enumerate().skip(1) {
        let (mutex, tell) = (client.mutex("stock"), tell.clone());
        tokio::spawn(async move {
            let lease = mutex.acquire().await.unwrap();
            tell.send((at, lease.fence())).unwrap();
            tokio::time::sleep(10 * MS).await;
            lease.release().await.unwrap();
        });
        settle().await;
    }
    let mut last = first.fence();
    let begun = nodes.clock.now();
    first.release().await.unwrap();
    for expected in 1..4 {
        let (at, fence) = told.recv().await.unwrap();
        assert_eq!(at, expected);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    let took = nodes.clock.now().since(begun);
    assert!(took < 100 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn of_clients_that_try_together_one_has_the_lock() {
    for nodes in [3, 5] {
        let nodes = Nodes::new(nodes);
        let clients: Vec<_> = (0..5).map(|_| nodes.client()).collect();
        // Each client reaches another node first.
        for (at, (_, ways, _)) in clients.iter().enumerate() {
            for (node, way) in ways.iter().enumerate() {
                let after = (at + node) % ways.len();
                way.faults().slow(MS * u32::try_from(after + 1).unwrap());
            }
        }
        for round in 0..20 {
            let name = format!("stock-{round}");
            let tries = clients.iter().map(|(client, ..)| {
                let mutex = client.mutex(name.clone());
                async move { mutex.try_acquire().await.unwrap() }
            });
            let leases = futures_util::future::join_all(tries).await;
            let held = leases.iter().flatten().count();
            assert_eq!(held, 1, "round {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_count_differently_never_mix() {
    let nodes = Nodes::new(3);
    let (other, ..) = nodes.client_counting(longest(3, 60));
    let refused = other
        .mutex("stock")
        .acquire_within(SECOND)
        .await
        .unwrap_err();
    let Error::Store(refused) = refused else {
        panic!("{refused}")
    };
    let said = refused.to_string();
    assert!(
        said.contains("belongs to a quorum of 3 nodes with leases of at most 30s"),
        "{said}"
    );
    assert!(
        said.contains("this client counts 3 nodes with leases of at most 60s"),
        "{said}"
    );
    assert_eq!(nodes.held_at("stock"), 0);
}

/// Two new nodes and one that refuses the client leave no majority of five. The other two decide whether a later try may succeed.
#[tokio::test(start_paused = true)]
async fn a_wrong_setting_is_told_in_whatever_order_nodes_answer() {
    for new in [[0, 1], [3, 4], [0, 4]] {
        let nodes = Nodes::new(5);
        for (node, memory) in nodes.memories.iter().enumerate() {
            let mark = Mark {
                terms: terms(3),
                made_at_ms: 0,
            };
            let mark = (!new.contains(&node)).then_some(mark);
            memory.meddle(|world| *world = World::node(mark));
        }
        let (client, ..) = nodes.client();
        let refused = client.mutex("stock").try_acquire().await.unwrap_err();
        let Error::Store(refused) = refused else {
            panic!("{refused}")
        };
        assert_eq!(refused.kind, StoreErrorKind::Misconfigured, "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_outlives_its_ttl() {
    let nodes = Nodes::new(3);
    let (client, ..) = nodes.client();
    let lease = client
        .mutex("stock")
        .ttl(3 * SECOND)
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(!lease.is_lost());
    assert_eq!(nodes.held_at("stock"), 3);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_and_breaks_the_holder() {
    let nodes = Nodes::new(3);
    let ((client, ..), (operator, ..)) = (nodes.client(), nodes.client());
    let lease = client.mutex("stock").acquire().await.unwrap();
    let seen = operator.inspect("stock").await.unwrap();
    let fence = seen.holder.unwrap().fence.unwrap();
    assert_eq!(fence, lease.fence());
    assert!(operator.break_lock("stock", fence).await.unwrap());
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0);
    tokio::time::sleep(30 * SECOND).await;
    assert!(lease.is_lost());
}

/// The lead answers last. It may queue an owner, so a client that leaves a queue waits for it; an operator's break does not depend on it.
#[tokio::test(start_paused = true)]
async fn only_an_owner_that_held_is_a_holder_that_was_broken() {
    let nodes = Nodes::new(3);
    let ((client, ..), (operator, ways, store)) = (nodes.client(), nodes.client());
    let name = leasehold_core::LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    ways[lead].faults().slow(SECOND);
    let lease = client.mutex("stock").acquire().await.unwrap();
    let owner = lease.owner().clone();
    assert!(operator.break_holder("stock", &owner).await.unwrap());
    assert!(!operator.break_holder("stock", &owner).await.unwrap());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(nodes.held_at("stock"), 0);
    let stranger = nodes.client().0;
    assert!(!stranger.break_holder("stock", &owner).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_ttl_above_the_longest_is_refused_before_any_request() {
    let nodes = Nodes::new(3);
    let (client, ..) = nodes.client();
    let long = 31 * SECOND;
    let mutex = client.mutex("stock").ttl(long);
    let refused = mutex.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert!(
        refused.to_string().contains("max_ttl in its URL"),
        "{refused}"
    );
    let refused = client.mutex("stock").at_least(long).acquire().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let lease = client.mutex("stock").acquire().await.unwrap();
    assert!(matches!(lease.extend(long).await, Err(Error::Invalid(_))));
    let refused = lease.release_after(long).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let lease = client.mutex("stock").acquire().await.unwrap();
    let refused = lease.detach(long).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_pass_waiters_of_a_slow_lead() {
    for is_new in [false, true] {
        newcomer_of_a_slow_lead(is_new).await;
    }
}

/// A client releases the lock while another one waits. It asks again at once, or a process asks that knows nothing of the lock.
async fn newcomer_of_a_slow_lead(is_new: bool) {
    let nodes = Nodes::new(3);
    let ((here, ways, store), (other, slow_ways, _)) = (nodes.client(), nodes.client());
    let name = leasehold_core::LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    for (_, way) in (slow_ways.iter().enumerate()).filter(|(node, _)| *node != lead) {
        way.faults().slow(2 * MS);
    }
    for round in 0..20 {
        let lease = here.mutex("stock").acquire().await.unwrap();
        let waiter = other.mutex("stock");
        let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap().fence() });
        settle().await;
        // The other nodes answer this client first.
        let stranger = nodes.client();
        let (newcomer, its_ways) = if is_new {
            (&stranger.0, &stranger.1)
        } else {
            (&here, &ways)
        };
        its_ways[lead].faults().slow(5 * MS);
        lease.release().await.unwrap();
        let next = newcomer.mutex("stock").acquire().await.unwrap();
        assert!(waiting.is_finished(), "round {round}");
        let first = waiting.await.unwrap();
        assert!(first < next.fence(), "round {round}");
        next.release().await.unwrap();
        ways[lead].faults().heal();
        settle().await;
    }
}

/// The client sends the release again, so its caller must not take it for one without effect.
#[tokio::test(start_paused = true)]
async fn a_release_that_no_node_received_may_take_effect() {
    let nodes = Nodes::new(3);
    let (client, ways, _) = nodes.client();
    let lease = client.mutex("stock").acquire().await.unwrap();
    let (detached, _) = lease.detach(20 * SECOND).await.unwrap();
    settle().await;
    for way in &ways {
        way.faults().fail(StoreErrorKind::Unreachable);
    }
    let Err(Error::Store(error)) = detached.release().await else {
        panic!("no node has confirmed it");
    };
    assert!(error.may_have_taken_effect, "{error}");
    assert_eq!(nodes.held_at("stock"), 3);
    for way in &ways {
        way.faults().heal();
    }
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(nodes.held_at("stock"), 0, "it was sent again");
}

/// Twenty clients try without a pause, at nodes that are slow in different ways. They take the votes that a waiter needs to use its grant.
#[tokio::test(start_paused = true)]
async fn a_storm_of_tries_does_not_starve_a_waiter() {
    let nodes = Nodes::new(3);
    let mut storm = tokio::task::JoinSet::new();
    for number in 0..20_u32 {
        let (client, ways, _) = nodes.client();
        for (way, node) in ways.iter().zip(0..) {
            way.faults().slow(2 * MS + MS * ((number + node) % 4));
        }
        storm.spawn(async move {
            loop {
                if let Some(lease) = client.mutex("stock").try_acquire().await.unwrap() {
                    tokio::time::sleep(MS).await;
                    lease.release().await.unwrap();
                }
            }
        });
    }
    let (client, ways, _) = nodes.client();
    for way in &ways {
        way.faults().slow(3 * MS);
    }
    let mut most = MS;
    for _ in 0..100 {
        let begun = nodes.clock.now();
        let mutex = client.mutex("stock");
        let lease = mutex.acquire_within(10 * SECOND).await.unwrap();
        most = most.max(nodes.clock.now().since(begun));
        lease.release().await.unwrap();
    }
    storm.shutdown().await;
    assert!(most < SECOND, "{most:?}");
}

/// It hangs while a client asks it first, since that has heard of waiters.
#[tokio::test(start_paused = true)]
async fn a_lead_that_is_asked_alone_and_hangs_is_late_once() {
    for at in 0..3 {
        let nodes = Nodes::new(3);
        let [(holder, ..), (waiter, ..), (client, ways, _)] = [0; 3].map(|_| nodes.client());
        let held = holder.mutex("stock").acquire().await.unwrap();
        let waits = tokio::spawn(waiter.mutex("stock").acquire_owned());
        settle().await;
        let mutex = client.mutex("stock");
        assert!(mutex.try_acquire().await.unwrap().is_none());
        ways[at].faults().hang();
        let mut took = Vec::new();
        for _ in 0..4 {
            let begun = nodes.clock.now();
            assert!(mutex.try_acquire().await.unwrap().is_none());
            took.push(nodes.clock.now().since(begun));
        }
        assert!(
            took[1..].iter().all(|took| *took < 5 * MS),
            "{at}: {took:?}"
        );
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
}
