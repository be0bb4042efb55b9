//! All locks of a store. A name whose lock is free and without waiters takes no memory.

use std::collections::BTreeMap;

use crate::fence::Counter;
use crate::lock::{LockState, Presence};
use crate::name::LockName;
use crate::once::{self, Firing, Record};
use crate::quorum::{Mark, NoVote, NodeMemory, QuorumTerms, raised, vote};
use crate::step::{Outcome, Reply, Step};
use crate::time::Now;

/// Every lock of a store, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    locks: BTreeMap<LockName, LockState>,
    firings: BTreeMap<(LockName, Firing), Record>,
    /// The counter from which all fences are drawn, unless the store is a node of a quorum.
    pub counter: Counter,
    /// The memory of a node. Only a node votes on proposals.
    pub node: Option<NodeMemory>,
}

impl World {
    /// Takes one step on the lock `name`, atomically, at `now`.
    pub fn apply(
        &mut self,
        now: Now,
        name: &LockName,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let (counter, mark) = match &mut self.node {
            Some(node) => {
                let (counter, mark) = node.of(name);
                (counter, Some(mark))
            }
            None => (&mut self.counter, None),
        };
        let mut state = self.locks.remove(name).unwrap_or_default();
        let meant = mark.as_ref().and_then(|_| raised(&state, step));
        let step = meant.as_ref().unwrap_or(step);
        let outcome = match (step, mark) {
            (Step::Propose(proposal), Some(mark)) => {
                vote(&mut state, counter, mark, now, proposal, presence)
            }
            _ => state.apply(counter, now, step, presence),
        };
        if !state.is_empty() {
            self.locks.insert(name.clone(), state);
        }
        outcome
    }

    /// Takes a step of a client that counts a quorum by these terms. A node whose mark has others refuses each step: the two share no
    /// majority, and would count fences apart.
    pub fn apply_by(
        &mut self,
        terms: QuorumTerms,
        now: Now,
        name: &LockName,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let mark = self.node.as_ref().and_then(|node| node.mark);
        match mark.filter(|mark| mark.terms != terms) {
            Some(other) => Outcome {
                reply: Reply::NoVote(NoVote::OtherTerms(other.terms)),
                wakes: Vec::new(),
                wanted: Vec::new(),
                first: None,
            },
            None => self.apply(now, name, step, presence),
        }
    }

    /// Takes one step on a firing of the lock `name`, atomically, at `now`.
    pub fn apply_once(
        &mut self,
        now: Now,
        name: &LockName,
        firing: &Firing,
        step: &once::Step,
    ) -> once::Answer {
        let key = (name.clone(), firing.clone());
        let mut kept = self.firings.remove(&key);
        let free = LockState::default();
        let lock = self.locks.get(name).unwrap_or(&free);
        let answer = once::apply(&mut kept, lock, now, step);
        self.firings.extend(kept.map(|record| (key, record)));
        answer
    }

    /// The record that the store keeps of a firing, for tests that play a loss of data.
    pub fn firing(&mut self, name: &LockName, firing: &Firing) -> Option<&mut Record> {
        self.firings.get_mut(&(name.clone(), firing.clone()))
    }

    /// A node of a quorum; without a mark, it is new or has lost its memory.
    pub fn node(mark: Option<Mark>) -> Self {
        Self {
            node: Some(NodeMemory::marked(mark)),
            ..Self::default()
        }
    }

    /// The state kept for `name`, if any.
    pub fn get(&self, name: &LockName) -> Option<&LockState> {
        self.locks.get(name)
    }

    /// The state of `name`, for tests that play a foreign client or a loss of data.
    pub fn entry(&mut self, name: &LockName) -> &mut LockState {
        self.locks.entry(name.clone()).or_default()
    }

    /// The names that have a state.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.locks.keys()
    }

    /// Forgets the names and firings whose state has expired, so that names that are used once cost no memory.
    pub fn sweep(&mut self, now: Now) {
        self.firings.retain(|_, record| !record.has_expired(now));
        self.locks.retain(|_, state| {
            state.expire(now);
            state.forget_silent(now);
            !state.is_empty()
        });
    }
}
