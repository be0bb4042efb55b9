//! A client of a store under test, with one lock of interest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold_core::{
    Block, Busy, ClientId, Fence, Held, HolderIdentity, HolderView, LockName, Mode, Owner, Reply,
    Snapshot, Step, Ttl, Wait, Wake,
};

use super::TTL;
use super::worlds::World;
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Notice, Store};

/// How often to look for a notice that is on its way, each time for a millisecond.
const LOOKS: u32 = 20_000;

/// The lock of most tests: a name with everything that a name may contain.
pub(super) fn name() -> LockName {
    LockName::new("report of {user}:42, ночь").unwrap()
}

/// A client of a store with one lock of interest.
pub(super) struct Peer {
    pub(super) store: Arc<dyn Store>,
    pub(super) owner: Owner,
    pub(super) name: LockName,
    ttl: Ttl,
    /// How many fences it draws with a grant.
    pub(super) block: Block,
    heard: Receiver<Notice>,
}

/// The store as this client sees it, and the notices for that client.
pub(super) async fn opened(
    world: &impl World,
    client: ClientId,
) -> (Arc<dyn Store>, Receiver<Notice>) {
    let (tell, heard) = channel();
    let store = world.open(Attach {
        client,
        listener: Arc::new(move |notice| drop(tell.send(notice))),
        clock: world.clock(),
        tasks: Tasks::here().unwrap(),
        limit: Duration::from_secs(20),
    });
    store.ready().await.unwrap();
    (store, heard)
}

impl Peer {
    /// The client with this number, which asks for leases of 30 s.
    pub(super) async fn of(world: &impl World, number: u64) -> Self {
        let client = ClientId::new(number);
        let (store, heard) = opened(world, client).await;
        let owner = Owner::new(number.into(), client, "host", 1, "a test").unwrap();
        let ttl = Ttl::new(TTL).unwrap();
        let name = name();
        Self {
            store,
            owner,
            name,
            ttl,
            block: Block::ONE,
            heard,
        }
    }

    /// Draws this many fences with a grant.
    pub(super) fn drawing(mut self, fences: u64) -> Self {
        self.block = Block::nearest(fences);
        self
    }

    /// This client with another lock.
    pub(super) fn about(mut self, name: &str) -> Self {
        self.name = LockName::new(name).unwrap();
        self
    }

    async fn step(&self, step: Step) -> Reply {
        self.store.apply(&self.name, step).await.unwrap()
    }

    async fn ask(&self, wait: Option<Wait>) -> Reply {
        let (owner, mode) = (self.owner.clone(), Mode::Exclusive);
        let (ttl, block) = (self.ttl, self.block);
        self.step(Step::Acquire {
            owner,
            mode,
            ttl,
            block,
            wait,
        })
        .await
    }

    /// Asks once.
    pub(super) async fn tries(&self) -> Reply {
        self.ask(None).await
    }

    /// Asks, gets the lock, and returns its fence.
    pub(super) async fn takes(&self) -> Fence {
        fence(self.ask(Some(Wait { listening: true })).await)
    }

    /// Asks, and joins the queue or keeps its place in it.
    pub(super) async fn queues(&self) -> Busy {
        busy(self.ask(Some(Wait { listening: true })).await)
    }

    /// Asks, and joins the queue as a client that receives no wakes.
    pub(super) async fn queues_deaf(&self) -> Busy {
        busy(self.ask(Some(Wait { listening: false })).await)
    }

    /// Asks for a new deadline, which also claims a grant.
    pub(super) async fn extends(&self) -> Reply {
        self.renews(None).await
    }

    /// Asks for a new deadline, if it holds under this fence.
    pub(super) async fn renews(&self, fence: Option<Fence>) -> Reply {
        let (owner, ttl) = (self.owner.clone(), self.ttl);
        self.step(Step::Extend { owner, ttl, fence }).await
    }

    async fn ends(&self, keep: Option<Duration>) -> Reply {
        let (owner, keep) = (self.owner.clone(), keep.map(|keep| Ttl::new(keep).unwrap()));
        let fence = None;
        self.step(Step::Release { owner, keep, fence }).await
    }

    pub(super) async fn gives_back(&self) -> Reply {
        self.ends(None).await
    }

    /// Releases its lock, or its place in the queue.
    pub(super) async fn releases(&self) {
        assert_eq!(self.gives_back().await, Reply::Released);
    }

    /// Releases the lock, which becomes free only after `keep`.
    pub(super) async fn releases_after(&self, keep: Duration) {
        assert_eq!(self.ends(Some(keep)).await, Reply::Released);
    }

    pub(super) async fn breaks(&self, fence: Fence) -> Reply {
        self.step(Step::Break { fence }).await
    }

    pub(super) async fn sees(&self) -> Snapshot {
        match self.step(Step::Inspect).await {
            Reply::Seen(snapshot) => snapshot,
            other => panic!("{other:?}"),
        }
    }

    /// The number of the holder, and the rest of its lease.
    pub(super) async fn sees_holder(&self) -> Option<(u64, Duration)> {
        let holder = self.sees().await.holder?;
        Some((number(&holder), holder.expires_in.unwrap()))
    }

    /// The fence that identifies the holder.
    pub(super) async fn sees_fence(&self) -> Option<Fence> {
        self.sees().await.holder?.fence
    }

    /// The numbers of the waiters.
    pub(super) async fn sees_queue(&self) -> Vec<u64> {
        let queue = self.sees().await.queue;
        queue
            .iter()
            .map(|waiter| waiter.owner.client().get())
            .collect()
    }

    /// Waits for the wake of its grant.
    pub(super) async fn is_told(&self) -> Wake {
        for _ in 0..LOOKS {
            match self.hears().await {
                Some(Notice::Granted { key, wake }) => {
                    assert_eq!((key.as_str(), &wake.owner), (self.name.key(), &self.owner));
                    return wake;
                }
                Some(Notice::Reconnected) => panic!("only once"),
                #[cfg(feature = "entries")]
                Some(Notice::LoadEnded { .. } | Notice::Changed { .. }) => {}
                Some(
                    Notice::Wanted { .. }
                    | Notice::First { .. }
                    | Notice::Cut(_)
                    | Notice::Replaced(_),
                )
                | None => {}
            }
        }
        panic!("{} was told nothing", self.owner);
    }

    /// Checks that no grant is on its way.
    pub(super) async fn is_told_nothing(&self) {
        while let Some(notice) = self.hears().await {
            let of_others = matches!(notice, Notice::Wanted { .. });
            assert!(of_others, "{}: {notice:?}", self.owner);
        }
    }

    /// True if it is told that another client waits for its lock. Drops its other notices.
    pub(super) async fn is_wanted(&self) -> bool {
        let mut wanted = false;
        while let Some(notice) = self.hears().await {
            if let Notice::Wanted { key, owner } = notice {
                assert_eq!((key.as_str(), &owner), (self.name.key(), &self.owner));
                wanted = true;
            }
        }
        wanted
    }

    async fn hears(&self) -> Option<Notice> {
        // On one connection, earlier messages have arrived before this reply.
        self.sees().await;
        let greeting = |notice: &Notice| matches!(notice, Notice::Reconnected);
        loop {
            let notice = self.heard.recv_timeout(Duration::from_millis(1)).ok()?;
            if !greeting(&notice) {
                return Some(notice);
            }
        }
    }
}

/// The fence of an answer that must be *held*.
#[track_caller]
pub(super) fn fence(reply: Reply) -> Fence {
    held(reply).fence.unwrap()
}

/// The contents of an answer that must be *held*.
#[track_caller]
pub(super) fn held(reply: Reply) -> Held {
    match reply {
        Reply::Held(held) => held,
        other => panic!("not held: {other:?}"),
    }
}

/// The contents of an answer that must be *busy*.
#[track_caller]
pub(super) fn busy(reply: Reply) -> Busy {
    match reply {
        Reply::Busy(busy) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// The number of the holder, from an answer that must be *not held*.
#[track_caller]
pub(super) fn not_held(reply: Reply) -> Option<u64> {
    match reply {
        Reply::NotHeld(holder) => holder.as_ref().map(number),
        other => panic!("neither held nor asked for: {other:?}"),
    }
}

pub(super) fn number(holder: &HolderView) -> u64 {
    match &holder.who {
        HolderIdentity::Owner(owner) => owner.client().get(),
        HolderIdentity::Foreign { .. } => panic!("{holder:?}"),
    }
}
