//! The nodes of a quorum, and what a client knows of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::quorum::{Proposer, QuorumTerms};
use leasehold_core::{LockName, Step};

use super::lead::Leads;
use super::owners::Owners;
use super::stuck::Stuck;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::{Answer, Done, Store};

/// The nodes, and the acquisitions and leases of this client.
pub(super) struct Quorum {
    pub(super) nodes: Vec<Arc<dyn Store>>,
    pub(super) terms: QuorumTerms,
    pub(super) label: String,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(super) state: Mutex<State>,
}

/// What changes.
pub(super) struct State {
    pub(super) proposer: Proposer,
    pub(super) leads: Leads,
    pub(super) owners: Owners,
    pub(super) stuck: Stuck,
    pub(super) next_attempt: u64,
}

impl Quorum {
    /// Sends a step to a node. A client that is closed waits for the answers of all nodes, not only of a majority: a process that
    /// ends sooner would leave votes behind.
    pub(super) fn ask(
        &self,
        node: usize,
        name: &LockName,
        step: Step,
        heard: impl FnOnce(Answer) + Send + 'static,
    ) {
        let under_way = self.tasks.token();
        let heard = move |answer| {
            heard(answer);
            drop(under_way);
        };
        self.nodes[node].send(name, step, Done::new(heard));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Code under the lock only counts and collects effects; a panic is a bug, and the votes expire.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing is known of the nodes with these labels.
    pub(super) fn new(labels: &[&str]) -> Self {
        Self {
            proposer: Proposer::default(),
            leads: Leads::new(labels),
            owners: Owners::new(labels.len()),
            stuck: Stuck::default(),
            next_attempt: 0,
        }
    }
}
