//! The state machine of a client of a quorum: which steps go to which nodes, and the answer of the quorum to each step of
//! the client. It does no I/O, reads no clock and starts no task. Its driver is in `store.rs`; a simulation drives it over nodes
//! in memory.

#[cfg(test)]
use leasehold_core::Owner;
use leasehold_core::quorum::{Proposer, QuorumTerms};
use leasehold_core::{Block, CLAIM_WINDOW, ClientId, Fence, Fences, LockName, Mode, Step, Wake};

use super::attempt::{QuorumInfo, Request};
use super::effects::{EventTime, Purpose, QuorumEffect, QuorumEvent, QuorumTimer};
use super::judge::{Gatherings, Question};
use super::lead::{Leads, Stuck, WaitersHeard};
use super::owners::{Owners, Party};
use crate::error::{StoreError, StoreErrorKind};

/// The acquisitions and leases of a client of a quorum. `C` is the caller of a step.
pub(crate) struct QuorumMachine<C> {
    pub(super) info: QuorumInfo,
    /// That of the owners that acquire here, once one has asked.
    pub(super) client: Option<ClientId>,
    pub(super) proposer: Proposer,
    pub(super) leads: Leads,
    pub(super) owners: Owners<C>,
    pub(super) stuck: Stuck,
    pub(super) wanted: WaitersHeard,
    pub(super) gatherings: Gatherings<C>,
    pub(super) next_attempt: u64,
}

impl<C> QuorumMachine<C> {
    /// A client that knows nothing yet of the nodes with these labels.
    pub(crate) fn new(terms: QuorumTerms, label: String, nodes: Vec<String>) -> Self {
        Self {
            client: None,
            proposer: Proposer::default(),
            leads: Leads::new(&nodes),
            owners: Owners::new(nodes.len()),
            stuck: Stuck::default(),
            wanted: WaitersHeard::default(),
            gatherings: Gatherings::new(),
            next_attempt: 0,
            info: QuorumInfo {
                terms,
                label,
                nodes,
            },
        }
    }

    /// Handles an event. The driver carries out the effects in their order, and then hands over the next event.
    pub(crate) fn handle(
        &mut self,
        at: EventTime,
        event: QuorumEvent<C>,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        match event {
            QuorumEvent::Asked(name, step, caller) => self.asked(at, &name, step, caller, effects),
            QuorumEvent::Breaks(name, fences, caller) => {
                let nodes = fences.len();
                let gathering = self.gatherings.begin(nodes, Question::Confirm, caller);
                let breaks = fences.into_iter().enumerate();
                effects.extend(breaks.map(|(node, fence)| QuorumEffect::Send {
                    node,
                    name: name.clone(),
                    step: Step::Break { fence },
                    purpose: Purpose::Part { gathering },
                }));
            }
            QuorumEvent::Answered {
                node,
                purpose,
                answer,
            } => {
                self.leads.heard(node, answer.is_ok());
                match purpose {
                    Purpose::Vote(ballot) => self.voted(at, node, &ballot, answer, effects),
                    Purpose::Part { gathering } => {
                        self.gathered(gathering, node, answer, effects);
                    }
                    Purpose::Renewal(renewal) => {
                        self.renewed(at, node, renewal, answer, effects);
                    }
                    Purpose::Release { gathering, undo } => {
                        self.released(at, node, (gathering, undo), answer, effects);
                    }
                    Purpose::Undo(undo) => {
                        self.undone(at, node, answer.is_ok(), undo, effects);
                    }
                }
            }
            QuorumEvent::Wanted(key) => self.wanted.note(&key, true, at.now, at.now),
            QuorumEvent::Granted(key, wake) => self.granted(at, &key, &wake),
            QuorumEvent::Passed(QuorumTimer::Retry(owner, number)) => {
                self.retry(at, &owner, number, effects);
            }
            QuorumEvent::Passed(QuorumTimer::Rest(owner, awaited)) => {
                self.rest_is_late(at, &owner, awaited, effects);
            }
            QuorumEvent::Passed(QuorumTimer::Fill(owner, first)) => {
                self.fill(at, &owner, first, effects);
            }
            QuorumEvent::Passed(QuorumTimer::Guard(node, renewal)) => {
                self.guard(at, node, renewal, effects);
            }
            QuorumEvent::Passed(QuorumTimer::Undo(node, undo)) => {
                effects.push(undo.send(node, None, at.now));
            }
            QuorumEvent::Closing => self.closing(at, effects),
        }
    }

    fn asked(
        &mut self,
        at: EventTime,
        name: &LockName,
        step: Step,
        caller: C,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        match step {
            Step::Acquire {
                owner,
                mode: mode @ (Mode::Exclusive | Mode::Shared),
                ttl,
                block,
                wait,
            } => {
                let is_shared = mode == Mode::Shared;
                let request = Request {
                    is_shared,
                    ttl,
                    // A reader has a number, and no fences to hand on.
                    block: if is_shared { Block::ONE } else { block },
                    wait,
                    is_claim: false,
                };
                let owner = &owner;
                self.acquire(at, Party { owner, name }, request, caller, effects);
            }
            Step::Extend { owner, ttl, fence } => {
                let owner = &owner;
                self.extend(at, Party { owner, name }, ttl, fence, caller, effects);
            }
            Step::Release { owner, keep, fence } => {
                let owner = &owner;
                self.release(at, Party { owner, name }, keep, fence, caller, effects);
            }
            Step::Break { fence } => {
                let fences = vec![fence; self.info.nodes.len()];
                let breaks = QuorumEvent::Breaks(name.clone(), fences, caller);
                self.handle(at, breaks, effects);
            }
            Step::Acquire { .. } => {
                let why = "a quorum has no semaphores: each majority of its nodes would count other holders, and together they would \
                           admit too many; use a mutex or a read/write lock, or one server";
                self.refuse(caller, why, effects);
            }
            // A quorum is no node of another one. A look changes nothing, and its driver asks all nodes for it.
            Step::Propose(_) | Step::GiveBack { .. } | Step::Inspect => {
                self.refuse(caller, "a quorum takes no steps of a node", effects);
            }
        }
    }

    fn refuse(&self, caller: C, why: &str, effects: &mut Vec<QuorumEffect<C>>) {
        let error = StoreError::new(&self.info.label, StoreErrorKind::Misconfigured, why);
        effects.push(QuorumEffect::Answer(caller, Err(error)));
    }

    /// The lead has granted its vote to a waiter, which now claims the others.
    fn granted(&mut self, at: EventTime, key: &str, wake: &Wake) {
        let name = LockName::from_key(key);
        let record = self.owners.entry(&wake.owner, &name, CLAIM_WINDOW, at.now);
        record.granted = Some(Fences {
            first: wake.fence.unwrap_or(Fence::new(0)),
            block: wake.block,
        });
    }

    /// Whether this owner has votes, or requests under way.
    #[cfg(test)]
    pub(crate) fn knows(&mut self, owner: &Owner) -> bool {
        self.owners.get(owner).is_some()
    }

    /// How many owners and steps are not settled.
    #[cfg(test)]
    pub(crate) fn unsettled(&self) -> usize {
        self.owners.unsettled() + self.gatherings.len()
    }
}
