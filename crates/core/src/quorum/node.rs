//! One node of a quorum: the locks of a store, a fence counter for each bucket of names, and the mark.

use std::collections::BTreeMap;

use super::mark::Mark;
use super::propose::{Proposal, Vote};
use crate::fence::Counter;
use crate::name::LockName;
use crate::presence::Presence;
use crate::state::LockState;
use crate::step::{Outcome, Step};
use crate::time::Now;
use crate::turn::Turn;

/// How many fence counters a node has. Names of other buckets do not raise the counter of a name.
const BUCKETS: u16 = 1_024;

/// The bucket of a name: CRC-16/XMODEM of its key, as the slots of Redis Cluster use it, modulo 1,024.
pub fn bucket(name: &LockName) -> u16 {
    let mut crc = 0_u16;
    for &byte in name.key().as_bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    crc % BUCKETS
}

/// All that a node remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuorumNode {
    locks: BTreeMap<LockName, LockState>,
    counters: BTreeMap<u16, Counter>,
    /// The mark; `None` on a node that is new or has lost its memory.
    pub mark: Option<Mark>,
}

impl QuorumNode {
    /// A node of a new quorum, with nothing to forget and therefore without a quarantine.
    pub fn marked(mark: Mark) -> Self {
        Self {
            mark: Some(mark),
            ..Self::default()
        }
    }

    /// Votes on a proposal for the lock `name`.
    pub fn propose(
        &mut self,
        now: Now,
        name: &LockName,
        proposal: &Proposal,
        presence: &dyn Presence,
    ) -> Vote {
        let mut mark = self.mark;
        let vote = self.turn(now, name, presence, |turn| {
            turn.propose(proposal, &mut mark)
        });
        self.mark = mark;
        vote
    }

    /// Takes any step but an acquire, by the rules of one store. A node grants only what a client has proposed, or a place in its queue.
    pub fn apply(
        &mut self,
        now: Now,
        name: &LockName,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let mut state = self.locks.remove(name).unwrap_or_default();
        let counter = self.counters.entry(bucket(name)).or_default();
        let outcome = state.apply(counter, now, step, presence);
        self.keep(name, state);
        outcome
    }

    /// The fence counter of a name.
    pub fn counter(&mut self, name: &LockName) -> &mut Counter {
        self.counters.entry(bucket(name)).or_default()
    }

    fn turn<R>(
        &mut self,
        now: Now,
        name: &LockName,
        presence: &dyn Presence,
        step: impl FnOnce(&mut Turn<'_>) -> R,
    ) -> R {
        let mut state = self.locks.remove(name).unwrap_or_default();
        let counter = self.counters.entry(bucket(name)).or_default();
        let result = step(&mut Turn::new((&mut state, counter), now, presence));
        self.keep(name, state);
        result
    }

    fn keep(&mut self, name: &LockName, state: LockState) {
        if !state.is_empty() {
            self.locks.insert(name.clone(), state);
        }
    }
}
