//! Single steps: fences that are named, blocks, places in the queue, and repeats. Nodes follow core's rules; the quorum has to pass
//! each step on as it is, and to judge the answers.

use std::sync::Arc;

use leasehold_core::{
    Block, ClientId, Fence, Held, HolderIdentity, LockName, Mode, Owner, Reply, Snapshot, Step,
    Wait,
};

use super::{Nodes, SECOND, settle, terms};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Listener, Store};
use crate::store::memory::Memory;
use crate::store::quorum::QuorumStore;

/// A client that takes steps for one lock, with leases of 30 s.
struct Peer {
    store: QuorumStore,
    name: LockName,
    owner: Owner,
    block: Block,
}

impl Peer {
    fn of(nodes: &Nodes, number: u64) -> Self {
        let client = ClientId::new(number);
        let ignored: Listener = Arc::new(|_| {});
        let (tasks, label) = (Tasks::here().unwrap(), "quorum of memories".to_owned());
        let (clock, memories) = (nodes.clock.clone(), nodes.memories.clone());
        let attach = Attach {
            client,
            listener: ignored.clone(),
            clock: clock.clone(),
            tasks: tasks.clone(),
            limit: SECOND,
        };
        let open = |memory: Memory, listener| {
            let attach = Attach {
                listener,
                ..attach.clone()
            };
            let store: Arc<dyn Store> = Arc::new(memory.attach(attach));
            store
        };
        let terms = terms(memories.len());
        Self {
            store: QuorumStore::open(terms, label, clock, &tasks, &ignored, memories, open),
            name: LockName::new("stock").unwrap(),
            owner: Owner::new(number.into(), client, "host", 1, "").unwrap(),
            block: Block::ONE,
        }
    }

    /// Draws this many fences with a grant.
    fn drawing(mut self, fences: u64) -> Self {
        self.block = Block::nearest(fences);
        self
    }

    /// Takes a step, and lets all nodes answer.
    async fn step(&self, step: Step) -> Reply {
        let reply = self.store.apply(&self.name, step).await.unwrap();
        settle().await;
        reply
    }

    async fn asks(&self, wait: Option<Wait>) -> Reply {
        self.step(Step::Acquire {
            owner: self.owner.clone(),
            mode: Mode::Exclusive,
            ttl: terms(3).longest_ttl,
            block: self.block,
            wait,
        })
        .await
    }

    async fn takes(&self) -> Held {
        held(self.asks(Some(Wait { listening: true })).await)
    }

    async fn queues(&self) {
        let reply = self.asks(Some(Wait { listening: true })).await;
        assert!(matches!(reply, Reply::Busy(_)), "{reply:?}");
    }

    async fn extends(&self, fence: Option<Fence>) -> Reply {
        let (owner, ttl) = (self.owner.clone(), terms(3).longest_ttl);
        self.step(Step::Extend { owner, ttl, fence }).await
    }

    async fn releases(&self, fence: Option<Fence>) -> Reply {
        let (owner, keep) = (self.owner.clone(), None);
        self.step(Step::Release { owner, keep, fence }).await
    }

    async fn breaks(&self, fence: Fence) -> Reply {
        self.step(Step::Break { fence }).await
    }

    async fn sees(&self) -> Snapshot {
        match self.step(Step::Inspect).await {
            Reply::Seen(snapshot) => *snapshot,
            other => panic!("{other:?}"),
        }
    }

    /// The owners in the queue.
    async fn sees_queue(&self) -> Vec<Owner> {
        let queue = self.sees().await.queue;
        queue.iter().map(|waiter| waiter.owner.clone()).collect()
    }

    /// Checks that the step was refused because this peer holds.
    #[track_caller]
    fn refuses(&self, reply: &Reply) {
        let holder = match reply {
            Reply::NotHeld(Some(holder)) => &holder.who,
            other => panic!("{other:?}"),
        };
        assert_eq!(*holder, HolderIdentity::Owner(self.owner.clone()));
    }
}

#[track_caller]
fn held(reply: Reply) -> Held {
    match reply {
        Reply::Held(held) => held,
        other => panic!("not held: {other:?}"),
    }
}

/// The fence that is higher by this number.
fn above(fence: Fence, by: u64) -> Fence {
    Fence::new(fence.get() + by)
}

#[tokio::test(start_paused = true)]
async fn a_hold_goes_on_by_each_fence_of_its_block_and_no_other() {
    let nodes = Nodes::new(3);
    let (holder, other) = (Peer::of(&nodes, 1).drawing(64), Peer::of(&nodes, 2));
    let taken = holder.takes().await;
    let first = taken.fence.unwrap();
    assert_eq!(taken.block.get(), 64);
    for own in [0, 31, 63] {
        let extended = holder.extends(Some(above(first, own))).await;
        assert_eq!(held(extended), taken, "{own}");
    }
    for wrong in [Fence::new(first.get() - 1), above(first, 64)] {
        holder.refuses(&holder.extends(Some(wrong)).await);
        holder.refuses(&other.breaks(wrong).await);
    }
    assert_eq!(other.breaks(above(first, 40)).await, Reply::Released);
    let broken = holder.extends(Some(first)).await;
    assert_eq!(broken, Reply::NotHeld(None));

    // Who releases another grant than its own has lost its lease, and lets go.
    let second = holder.takes().await.fence.unwrap();
    let released = holder.releases(Some(above(second, 64))).await;
    assert!(matches!(released, Reply::NotHeld(_)), "{released:?}");
    assert!(other.takes().await.fence > Some(above(first, 63)));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_believes_to_hold_is_told_and_leaves() {
    let nodes = Nodes::new(3);
    let peers = [1, 2, 3, 4].map(|number| Peer::of(&nodes, number));
    let [holder, believer, leaver, stranger] = &peers;
    let first = holder.takes().await.fence.unwrap();
    let tried = stranger.asks(None).await;
    assert!(matches!(tried, Reply::Busy(_)), "{tried:?}");
    believer.queues().await;
    let alone = [believer.owner.clone()];
    assert_eq!(holder.sees_queue().await, alone, "who tries does not wait");
    let wrong = Some(above(first, 1_000_000));
    holder.refuses(&believer.extends(wrong).await);
    assert_eq!(holder.sees_queue().await, alone);
    holder.refuses(&believer.releases(wrong).await);
    assert!(holder.sees_queue().await.is_empty());

    leaver.queues().await;
    assert_eq!(leaver.releases(None).await, Reply::Released);
    assert!(holder.sees_queue().await.is_empty());
    // Its lead may answer last, and is not waited for.
    let nothing = stranger.releases(None).await;
    assert!(matches!(nothing, Reply::NotHeld(_) | Reply::Released));
    assert_eq!(holder.sees().await.holder.unwrap().fence, Some(first));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_the_block_it_asked_for_last() {
    let nodes = Nodes::new(3);
    let (holder, mut waiter) = (Peer::of(&nodes, 1), Peer::of(&nodes, 2));
    let first = holder.takes().await.fence;
    for fences in [64, 17] {
        waiter = waiter.drawing(fences);
        waiter.queues().await;
    }
    assert_eq!(holder.releases(None).await, Reply::Released);
    let granted = held(waiter.extends(None).await);
    assert!(granted.fence > first);
    assert_eq!(granted.block.get(), 17);
    let last = above(granted.fence.unwrap(), 16);
    assert_eq!(held(waiter.extends(Some(last)).await).fence, granted.fence);
}

#[tokio::test(start_paused = true)]
async fn each_step_may_be_repeated_until_the_lease_has_ended() {
    let nodes = Nodes::new(3);
    let (holder, other) = (Peer::of(&nodes, 1), Peer::of(&nodes, 2));
    let first = holder.takes().await.fence;
    let extended = holder.extends(None).await;
    assert_eq!(holder.extends(None).await, extended);
    assert_eq!(held(extended).fence, first);
    assert!(holder.takes().await.fence >= first);
    for _ in 0..2 {
        assert_eq!(holder.releases(None).await, Reply::Released);
        let again = holder.releases(None).await;
        assert!(matches!(again, Reply::NotHeld(None) | Reply::Released));
        // A delayed request.
        holder.takes().await;
    }
    let last = holder.takes().await.fence;
    tokio::time::sleep(31 * SECOND).await;
    assert_eq!(holder.extends(last).await, Reply::NotHeld(None));
    assert_eq!(holder.releases(last).await, Reply::NotHeld(None));
    assert!(other.takes().await.fence > last);
}

/// A node may hold the lock under a higher fence, for instance the lead, if it granted the lock while the proposal was on its way.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_the_fence_of_the_certificate() {
    for node in 0..3 {
        let nodes = Nodes::new(3);
        let (holder, waiter) = (Peer::of(&nodes, 1), Peer::of(&nodes, 2));
        let fence = holder.takes().await.fence.unwrap();
        nodes.memories[node].meddle(|world| {
            let held = &mut world.entry(&holder.name).holders[0];
            held.fences.first = above(fence, 7);
        });
        match waiter.asks(Some(Wait { listening: true })).await {
            Reply::Busy(busy) => assert_eq!(busy.holder.fence, Some(fence), "node {node}"),
            other => panic!("{other:?}"),
        }
    }
}
