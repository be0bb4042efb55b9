//! The memory of a node beside its locks: a fence counter for each bucket of names, and the mark.

use std::collections::BTreeMap;

use super::mark::Mark;
use crate::fence::Counter;
use crate::name::LockName;

/// How many fence counters a node has. Names of other buckets do not raise the counter of a name.
pub const BUCKETS: u16 = 1_024;

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

/// A node's counters and its mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMemory {
    counters: BTreeMap<u16, Counter>,
    /// The mark; `None` on a node that is new or has lost its memory.
    pub mark: Option<Mark>,
}

impl NodeMemory {
    /// The memory of a node with this mark.
    pub(crate) fn marked(mark: Option<Mark>) -> Self {
        Self {
            mark,
            ..Self::default()
        }
    }

    /// The fence counter of a name.
    pub fn counter(&mut self, name: &LockName) -> &mut Counter {
        self.counters.entry(bucket(name)).or_default()
    }

    pub(crate) fn of(&mut self, name: &LockName) -> (&mut Counter, &mut Option<Mark>) {
        let counter = self.counters.entry(bucket(name)).or_default();
        (counter, &mut self.mark)
    }
}
