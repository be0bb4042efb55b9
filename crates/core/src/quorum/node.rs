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
use crate::world::with_state;

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
        let (mark, counter) = (
            &mut self.mark,
            self.counters.entry(bucket(name)).or_default(),
        );
        with_state(&mut self.locks, name, |state| {
            Turn::new((state, counter), now, presence).propose(proposal, mark)
        })
    }

    /// Takes any step but an acquire, by the rules of one store. A node grants only what a client has proposed, or a place in its queue.
    pub fn apply(
        &mut self,
        now: Now,
        name: &LockName,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let counter = self.counters.entry(bucket(name)).or_default();
        with_state(&mut self.locks, name, |state| {
            state.apply(counter, now, step, presence)
        })
    }

    /// The fence counter of a name.
    pub fn counter(&mut self, name: &LockName) -> &mut Counter {
        self.counters.entry(bucket(name)).or_default()
    }
}
