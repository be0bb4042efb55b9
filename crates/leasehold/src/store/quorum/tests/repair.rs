//! Nodes that lack the vote of a lease.

use leasehold_core::{Block, Fence, Fences, Foreign, LockName, LockState, World};

use super::{Nodes, SECOND, settle};
use crate::error::StoreErrorKind;
use crate::store::memory::Memory;

/// How the node lost the vote.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// It was unreachable for longer than the TTL, and remembers its fences.
    Expired,
    /// An operator has deleted the key.
    Deleted,
    /// It has lost all its data.
    Forgotten,
}

#[tokio::test(start_paused = true)]
async fn a_renewal_gets_back_a_vote_whatever_became_of_it() {
    for loss in [Loss::Expired, Loss::Deleted, Loss::Forgotten] {
        let nodes = Nodes::new(3);
        let (client, ways, _) = nodes.client();
        let name = LockName::new("stock").unwrap();
        tokio::time::sleep(100 * SECOND).await;
        let lease = client.mutex("stock").ttl(6 * SECOND).acquire().await;
        let lease = lease.unwrap();
        settle().await;
        match loss {
            Loss::Expired => {
                ways[1].faults().fail(StoreErrorKind::Unreachable);
                tokio::time::sleep(10 * SECOND).await;
                assert_eq!(nodes.held_at("stock"), 2);
                ways[1].faults().heal();
            }
            Loss::Deleted => {
                nodes.memories[1].meddle(|world| world.entry(&name).holders.clear());
            }
            Loss::Forgotten => {
                nodes.memories[1].meddle(|world| *world = World::node(None));
                // Its quarantine.
                tokio::time::sleep(40 * SECOND).await;
            }
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(nodes.held_at("stock"), 3, "{loss:?}");
        let inspected = client.inspect_nodes("stock").await.unwrap();
        assert_eq!(inspected.votes(), 3, "{loss:?}");
        // Without another node, the lease has a majority by this vote.
        ways[0].faults().hang();
        tokio::time::sleep(20 * SECOND).await;
        assert!(!lease.is_lost(), "{loss:?}");
        ways[0].faults().heal();
        tokio::time::sleep(5 * SECOND).await;
        lease.release().await.unwrap();
        settle().await;
        assert_eq!(nodes.held_at("stock"), 0, "{loss:?}");
    }
}

/// A node was away when the lease was granted, and another one is away before the first renewal, which gets no majority.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_majority_asks_for_a_vote_too() {
    let nodes = Nodes::new(3);
    let (client, ways, _) = nodes.client();
    ways[1].faults().fail(StoreErrorKind::Unreachable);
    let lease = client.mutex("stock").ttl(6 * SECOND).acquire().await;
    let lease = lease.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 2);
    ways[1].faults().heal();
    ways[0].faults().fail(StoreErrorKind::Unreachable);
    tokio::time::sleep(60 * SECOND).await;
    assert!(!lease.is_lost());
    let held = nodes.holders("stock");
    assert!(held[1].is_some() && held[2].is_some());
    lease.release().await.unwrap();
}

/// A node held for another owner when the lease was granted, and has counted on: to a fence in the block of the lease, or above. Its vote
/// comes before the first renewal. (In history 5542970, a fence in the block kept the vote away.)
#[tokio::test(start_paused = true)]
async fn a_vote_that_another_owner_had_comes_soon_after_the_grant() {
    for counted_on in [0, 1, 5_000] {
        comes_soon_after_the_grant(counted_on).await;
    }
}

async fn comes_soon_after_the_grant(counted_on: u64) {
    let nodes = Nodes::new(3);
    let (client, ways, store) = nodes.client();
    let name = LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    let (node, third) = ((lead + 1) % 3, (lead + 2) % 3);
    let memory = &nodes.memories[node];
    memory.meddle(|world| {
        world.entry(&name).foreign = Some(Foreign {
            kind: "string".into(),
            value: Vec::new(),
            expires_at_ms: None,
        });
    });
    // A lock that lingers has a block of several fences.
    let mutex = client.mutex("stock").ttl(30 * SECOND).linger(SECOND);
    let lease = mutex.acquire().await.unwrap();
    memory.meddle(|world| {
        *world.entry(&name) = LockState::default();
        let counter = world.node.as_mut().unwrap().counter(&name);
        let later = Fence::new(lease.fence().get() + counted_on);
        let fences = Fences {
            first: later,
            block: Block::ONE,
        };
        let acceptable = counter.acceptable(0, u64::MAX);
        counter.accept(fences, acceptable).unwrap();
    });
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(nodes.held_at("stock"), 3, "{counted_on}");
    ways[third].faults().fail(StoreErrorKind::Unreachable);
    tokio::time::sleep(60 * SECOND).await;
    assert!(!lease.is_lost());
    lease.release().await.unwrap();
}

/// The lease was broken at a majority, and another owner has had the lock since. The first holder must not get a majority again, with the
/// node that missed the break: its fence is lower.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_broken_gets_back_no_vote() {
    let nodes = Nodes::new(3);
    let ((client, ways, _), (other, other_ways, _)) = (nodes.client(), nodes.client());
    let lease = client.mutex("stock").ttl(30 * SECOND).acquire().await;
    let lease = lease.unwrap();
    settle().await;
    other_ways[2].faults().fail(StoreErrorKind::Unreachable);
    assert!(other.break_lock("stock", lease.fence()).await.unwrap());
    let next = other.mutex("stock").acquire().await.unwrap();
    assert!(next.fence() > lease.fence());
    next.release().await.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 1, "it missed all that");
    ways[1].faults().fail(StoreErrorKind::Unreachable);
    for _ in 0..300 {
        tokio::time::sleep(SECOND / 10).await;
        assert!(nodes.holders("stock")[0].is_none());
    }
    assert!(lease.is_lost());
}

/// The lead has forgotten the holder, and votes for a waiter. A waiter that kept this vote would end the lease with the next node that fails.
#[tokio::test(start_paused = true)]
async fn a_waiter_leaves_a_lead_that_forgot_to_the_holder() {
    for count in [1, 4] {
        leaves_a_lead_that_forgot(count).await;
    }
}

async fn leaves_a_lead_that_forgot(count: usize) {
    let nodes = Nodes::new(3);
    let ((client, ..), (other, _, store)) = (nodes.client(), nodes.client());
    let others: Vec<_> = (1..count).map(|_| nodes.client()).collect();
    let name = LockName::new("stock").unwrap();
    let lead = store.quorum().lock().leads.of(&name);
    let lease = client.mutex("stock").ttl(30 * SECOND).acquire().await;
    let lease = lease.unwrap();
    settle().await;
    nodes.memories[lead].meddle(|world| *world.entry(&name) = LockState::default());
    let mutex = other.mutex("stock");
    let waiting = tokio::spawn(async move { mutex.acquire().await.unwrap().fence() });
    for (another, ..) in &others {
        let mutex = another.mutex("stock");
        tokio::spawn(async move { drop(mutex.acquire().await) });
    }
    tokio::time::sleep(SECOND).await;
    // It polls as the other nodes tell it, until the holder's next renewal. Without a holder that they name, it would ask 20 times a second.
    let asked = || store.quorum().lock().next_attempt;
    let before = asked();
    tokio::time::sleep(8 * SECOND).await;
    let polls = asked() - before;
    assert!((1..40).contains(&polls), "{polls}");
    assert_eq!(
        nodes.held_at("stock"),
        2,
        "it has given back the vote of the lead"
    );
    tokio::time::sleep(5 * SECOND).await;
    // The lead has counted on, so it holds under a higher fence.
    let owner = |node: usize| nodes.holders("stock")[node].clone().unwrap().0;
    assert!((1..3).all(|node| owner(node) == owner(0)));
    let fence = lease.fence();
    lease.release().await.unwrap();
    let next = tokio::time::timeout(30 * SECOND, waiting).await;
    assert!(next.unwrap().unwrap() > fence);
}

/// A late proposal of an earlier round has raised the hold at a node, and two other nodes have lost it.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_raised_is_a_vote_for_the_lease() {
    let nodes = Nodes::new(5);
    let (client, ..) = nodes.client();
    let name = LockName::new("stock").unwrap();
    let lease = client.mutex("stock").acquire().await.unwrap();
    settle().await;
    raise(&nodes.memories[2], &name);
    for memory in &nodes.memories[3..] {
        memory.meddle(|world| world.entry(&name).holders.clear());
    }
    tokio::time::sleep(25 * SECOND).await;
    assert!(!lease.is_lost());
    assert_eq!(nodes.held_at("stock"), 5);
    lease.release().await.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0);
}

/// The holder stays, with a higher fence.
fn raise(memory: &Memory, name: &LockName) {
    memory.meddle(|world| {
        let fences = &mut world.entry(name).holders[0].fences;
        fences.first = Fence::new(fences.first.get() + 5_000);
    });
}

/// The client that renews by a token knows no votes.
#[tokio::test(start_paused = true)]
async fn a_renewal_by_a_token_gets_back_votes_too() {
    let nodes = Nodes::new(5);
    let ((client, ..), (other, ..)) = (nodes.client(), nodes.client());
    let name = LockName::new("stock").unwrap();
    let lease = client.mutex("stock").acquire().await.unwrap();
    let (detached, _) = lease.detach(20 * SECOND).await.unwrap();
    for memory in &nodes.memories[..2] {
        memory.meddle(|world| world.entry(&name).holders.clear());
    }
    raise(&nodes.memories[2], &name);
    let detached = other.detached("stock", detached.token()).unwrap();
    detached.renew(20 * SECOND).await.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 5);
    assert!(detached.renew(20 * SECOND).await.is_ok());
    detached.release().await.unwrap();
    settle().await;
    assert_eq!(nodes.held_at("stock"), 0);
}

/// Each node has lost the vote once, and has voted again under a higher fence. The token and the operator name the lease by its own.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_repaired_everywhere_is_checked_released_and_broken() {
    for (breaks, by_the_same) in [(false, false), (false, true), (true, false)] {
        let nodes = Nodes::new(3);
        let ((client, ..), (other, ..)) = (nodes.client(), nodes.client());
        let name = LockName::new("stock").unwrap();
        let lease = client.mutex("stock").acquire().await.unwrap();
        let granted = lease.fence();
        let (detached, _) = lease.detach(20 * SECOND).await.unwrap();
        let user = if by_the_same { &client } else { &other };
        let detached = user.detached("stock", detached.token()).unwrap();
        for memory in &nodes.memories {
            memory.meddle(|world| world.entry(&name).holders.clear());
            detached.renew(20 * SECOND).await.unwrap();
            settle().await;
        }
        let fences = nodes.holders("stock").into_iter().flatten();
        assert!(fences.into_iter().all(|(_, fence)| fence > granted));
        detached.check().await.unwrap();
        if breaks {
            // The last node has the highest fence.
            let holder = client.inspect("stock").await.unwrap().holder.unwrap();
            let fences = nodes.holders("stock").into_iter().flatten();
            let fences: Vec<_> = fences.map(|(_, fence)| fence).collect();
            assert_eq!(holder.fence, Some(fences[2]));
            assert!(!client.break_lock("stock", granted).await.unwrap());
            assert!(client.break_lock("stock", fences[0]).await.unwrap());
            settle().await;
            detached.check().await.unwrap_err();
        } else {
            detached.release().await.unwrap();
            settle().await;
        }
        assert_eq!(nodes.held_at("stock"), 0);
    }
}
