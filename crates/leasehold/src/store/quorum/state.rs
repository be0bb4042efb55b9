//! The nodes of a quorum, and what a client knows of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::quorum::{Proposer, QuorumTerms};

use super::lead::Leads;
use super::owners::Owners;
use super::stuck::Stuck;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::Store;

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
