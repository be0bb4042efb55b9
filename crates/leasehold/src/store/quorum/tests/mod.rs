//! A quorum of stores in memory, on virtual time.

#![allow(clippy::disallowed_methods, reason = "a test starts its own users")]

mod clocks;
mod faults;
mod foreign;
mod given_back;
mod histories;
mod readers;
mod repair;
mod steps;
mod verbs;
mod votes;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Mark, QuorumTerms};
use leasehold_core::{Fence, LockName, Owner, Ttl, World};

use super::QuorumStore;
use super::machine::QuorumMachine;
use crate::Client;
use crate::clock::Clock;
use crate::store::contract::{Attach, Store};
use crate::store::memory::Memory;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The nodes of a quorum.
struct Nodes {
    clock: Clock,
    memories: Vec<Memory>,
}

fn longest(nodes: usize, seconds: u64) -> QuorumTerms {
    QuorumTerms {
        nodes: u8::try_from(nodes).unwrap(),
        longest_ttl: Ttl::new(Duration::from_secs(seconds)).unwrap(),
    }
}

fn terms(nodes: usize) -> QuorumTerms {
    longest(nodes, 30)
}

/// The machine of a client of three nodes.
fn machine() -> QuorumMachine<()> {
    let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
    QuorumMachine::new(terms(3), "quorum".to_owned(), labels)
}

impl Nodes {
    /// A new quorum of so many nodes.
    fn new(nodes: usize) -> Self {
        let clock = Clock::virtual_time();
        let memories = (0..nodes).map(|_| {
            let memory = Memory::new(clock.clone());
            let mark = Mark {
                terms: terms(nodes),
                made_at_ms: 0,
            };
            memory.meddle(|world| *world = World::node(Some(mark)));
            memory
        });
        Self {
            memories: memories.collect(),
            clock,
        }
    }

    /// A client, with its own faults at each node, and its store.
    fn client(&self) -> (Client, Vec<Memory>, Arc<QuorumStore>) {
        self.client_counting(terms(self.memories.len()))
    }

    fn client_counting(&self, terms: QuorumTerms) -> (Client, Vec<Memory>, Arc<QuorumStore>) {
        let ways: Vec<Memory> = self.memories.iter().map(Memory::by_another_way).collect();
        let mut kept = None;
        let clock = self.clock.clone();
        let client = Client::builder().clock(clock.clone()).build(|attach| {
            let open = |node: usize, listener| {
                let attach = Attach {
                    listener,
                    ..attach.clone()
                };
                let store: Arc<dyn Store> = Arc::new(ways[node].attach(attach));
                store
            };
            let label = "quorum of memories".to_owned();
            let (listener, tasks, all) =
                (&attach.listener, &attach.tasks, (0..ways.len()).collect());
            let store = QuorumStore::open(terms, label, clock, tasks, listener, all, open);
            let store = Arc::new(store);
            kept = Some(store.clone());
            Ok(store)
        });
        (client.unwrap(), ways, kept.unwrap())
    }

    /// The holder at each node, with its fence.
    fn holders(&self, name: &str) -> Vec<Option<(Owner, Fence)>> {
        let name = LockName::new(name).unwrap();
        let now = self.clock.store_now();
        let of = |memory: &Memory| {
            memory.meddle(|world| {
                let state = world.get(&name)?;
                let holder = state.holders.first()?;
                (holder.expires_at_ms >= now.millis())
                    .then(|| (holder.owner.clone(), holder.fences.first))
            })
        };
        self.memories.iter().map(of).collect()
    }

    /// How many nodes hold the lock for anybody.
    fn held_at(&self, name: &str) -> usize {
        self.holders(name).iter().flatten().count()
    }
}

/// Lets everything happen that happens within a moment.
async fn settle() {
    tokio::time::sleep(20 * MS).await;
}
