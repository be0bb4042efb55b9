//! A quorum of nodes as a store.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::quorum::QuorumTerms;
use leasehold_core::{Block, Fence, Fences, LockName, Step, Wake};

use super::attempt::Request;
use super::gather::{Gather, Judge};
use super::judge::{majority, seen, without_majority};
use super::settle::RenewalRequest;
use super::state::{Quorum, State};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Capabilities, Done, Listener, Notice, Store};

/// A lock on the majority of several nodes.
pub(crate) struct QuorumStore(Arc<Quorum>);

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
        Self(Arc::new_cyclic(|quorum: &Weak<Quorum>| {
            let of_node = |node| open(node, relayed(quorum.clone(), listener.clone()));
            let nodes: Vec<_> = nodes.into_iter().map(of_node).collect();
            let labels: Vec<&str> = nodes.iter().map(|node| node.label()).collect();
            let state = State::new(&labels);
            Quorum {
                nodes,
                terms,
                label,
                clock,
                tasks,
                state: Mutex::new(state),
            }
        }))
    }

    #[cfg(test)]
    pub(super) fn quorum(&self) -> &Quorum {
        &self.0
    }
}

impl Quorum {
    /// Sends a step to all nodes.
    fn all(self: &Arc<Self>, name: &LockName, step: &Step, judge: Judge, done: Done) {
        let gather = Gather::new(self.nodes.len(), judge, done);
        for node in 0..self.nodes.len() {
            let (quorum, gather) = (self.clone(), gather.clone());
            self.ask(node, name, step.clone(), move |answer| {
                quorum.lock().leads.heard(node, answer.is_ok());
                gather.heard(node, answer);
            });
        }
    }

    /// The lead has granted its vote to a waiter, which now claims the others.
    fn granted(&self, key: &str, wake: &Wake) {
        let now = self.clock.now();
        let name = LockName::from_key(key);
        let mut state = self.lock();
        let record = state
            .owners
            .entry(&wake.owner, &name, leasehold_core::CLAIM_WINDOW, now);
        record.granted = Some(Fences {
            first: wake.fence.unwrap_or(Fence::new(0)),
            block: wake.block,
        });
    }
}

/// Passes the notices of a node on. A wake has no fence of the quorum.
fn relayed(quorum: Weak<Quorum>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let notice = match notice {
            Notice::Granted { key, wake } => {
                if let Some(quorum) = quorum.upgrade() {
                    quorum.granted(&key, &wake);
                }
                let (fence, block) = (None, Block::ONE);
                let wake = Wake {
                    fence,
                    block,
                    ..wake
                };
                Notice::Granted { key, wake }
            }
            // The other nodes remember the leases, and this one keeps out until it can be trusted (QR8).
            Notice::Replaced(_) => return,
            other => other,
        };
        listener(notice);
    })
}

impl Store for QuorumStore {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        let quorum = &self.0;
        match step {
            Step::Acquire {
                owner,
                ttl,
                block,
                wait,
                ..
            } => {
                let request = Request {
                    ttl,
                    block,
                    wait,
                    is_claim: false,
                };
                quorum.acquire(name, &owner, request, done);
            }
            Step::Extend { owner, ttl, fence } => {
                quorum.extend(name, RenewalRequest { owner, ttl, fence }, done);
            }
            Step::Release { owner, keep, fence } => {
                quorum.release(name, &owner, (keep, fence), done);
            }
            Step::Inspect => {
                let (lead, label) = (quorum.lock().leads.of(name), quorum.label.clone());
                let judge = move |answers: &[_]| seen(answers, lead, &label);
                quorum.all(name, &step, Box::new(judge), done);
            }
            Step::Break { .. } => quorum.all(name, &step, quorum.confirmed(), done),
            // A quorum is no node of another one.
            Step::Propose(_) | Step::GiveBack { .. } => {
                let why = "a quorum takes no proposals";
                let error = StoreError::new(&quorum.label, StoreErrorKind::Misconfigured, why);
                done.answer(Err(error));
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        let tells = |node: &&Arc<dyn Store>| node.capabilities().tells_wanted;
        let nodes = &self.0.nodes;
        Capabilities {
            tells_wanted: nodes.iter().filter(tells).count() >= majority(nodes.len()),
        }
    }

    fn longest_ttl(&self) -> Duration {
        self.0.terms.longest_ttl.get()
    }

    fn label(&self) -> &str {
        &self.0.label
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let nodes = &self.0.nodes;
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
                if failed.len() > nodes.len() - needed {
                    break;
                }
            }
            let mut error = without_majority(failed.iter(), nodes.len(), &self.0.label);
            error.may_have_taken_effect = false;
            Err(error)
        }
        .boxed()
    }

    fn index(&self, remember: Option<LockName>) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            let asked = self.0.nodes.iter().map(|node| node.index(remember.clone()));
            let (mut names, mut failed) = (Vec::new(), Vec::new());
            for outcome in join_all(asked).await {
                match outcome {
                    Ok(some) => names.extend(some),
                    Err(error) => failed.push(error),
                }
            }
            if failed.len() == self.0.nodes.len() {
                let nodes = self.0.nodes.len();
                return Err(without_majority(failed.iter(), nodes, &self.0.label));
            }
            names.sort_unstable();
            names.dedup();
            Ok(names)
        }
        .boxed()
    }
}
