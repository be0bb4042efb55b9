//! A quorum of nodes as a store.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::quorum::QuorumTerms;
use leasehold_core::{LockName, Step};

use super::driver::{Quorum, relayed};
use super::effects::QuorumEvent;
use super::judge::{is_undecided, majority, without_majority};
use super::machine::QuorumMachine;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;
use crate::store::contract::{Capabilities, Done, Listener, Store};
use crate::store::inspected::InspectedNodes;

/// A lock on the majority of several nodes.
pub(crate) struct QuorumStore {
    quorum: Arc<Quorum>,
    terms: QuorumTerms,
    label: String,
}

impl QuorumStore {
    /// Opens a quorum of these nodes. `open` opens each of them, with the listener for its notices.
    pub(crate) fn open<N>(
        terms: QuorumTerms,
        label: String,
        clock: Clock,
        tasks: &Tasks,
        listener: &Listener,
        nodes: Vec<N>,
        open: impl Fn(N, Listener) -> Arc<dyn Store>,
    ) -> Self {
        let tasks = tasks.clone();
        let quorum = Arc::new_cyclic(|quorum: &Weak<Quorum>| {
            let of_node = |node| open(node, relayed(quorum.clone(), listener.clone()));
            let nodes: Vec<_> = nodes.into_iter().map(of_node).collect();
            let labels = nodes.iter().map(|node| node.label().to_owned()).collect();
            let machine = QuorumMachine::new(terms, label.clone(), labels);
            Quorum {
                nodes,
                clock,
                tasks,
                machine: Mutex::new(machine),
            }
        });
        Self {
            quorum,
            terms,
            label,
        }
    }

    #[cfg(test)]
    pub(super) fn quorum(&self) -> &Quorum {
        &self.quorum
    }
}

impl Store for QuorumStore {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        self.quorum
            .handle(QuorumEvent::Asked(name.clone(), step, done));
    }

    fn inspect_nodes<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, InspectedNodes> {
        self.quorum.look(name, &self.label).boxed()
    }

    fn capabilities(&self) -> Capabilities {
        let tells = |node: &&Arc<dyn Store>| node.capabilities().tells_wanted;
        let nodes = &self.quorum.nodes;
        Capabilities {
            tells_wanted: nodes.iter().filter(tells).count() >= majority(nodes.len()),
        }
    }

    fn longest_ttl(&self) -> Duration {
        self.terms.longest_ttl.get()
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let nodes = &self.quorum.nodes;
            let needed = majority(nodes.len());
            let mut waiting: FuturesUnordered<_> = nodes.iter().map(|node| node.ready()).collect();
            let (mut ready, mut failed) = (0, Vec::new());
            while let Some(outcome) = waiting.next().await {
                match outcome {
                    Ok(()) => ready += 1,
                    Err(error) => failed.push(error),
                }
                if ready >= needed {
                    return Ok(());
                }
                let kinds: Vec<_> = failed.iter().map(|error: &StoreError| error.kind).collect();
                let missing = nodes.len() - ready - failed.len();
                let may_be_told = !is_undecided(&kinds, missing, nodes.len());
                if failed.len() > nodes.len() - needed && may_be_told {
                    break;
                }
            }
            let mut error = without_majority(failed.iter(), nodes.len(), &self.label);
            error.may_have_taken_effect = false;
            Err(error)
        }
        .boxed()
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            let asked = self
                .quorum
                .nodes
                .iter()
                .map(|node| node.index(remember.clone()));
            let (mut names, mut failed) = (Vec::new(), Vec::new());
            for outcome in join_all(asked).await {
                match outcome {
                    Ok(some) => names.extend(some),
                    Err(error) => failed.push(error),
                }
            }
            if failed.len() == self.quorum.nodes.len() {
                let nodes = self.quorum.nodes.len();
                return Err(without_majority(failed.iter(), nodes, &self.label));
            }
            names.sort_unstable();
            names.dedup();
            Ok(names)
        }
        .boxed()
    }
}
