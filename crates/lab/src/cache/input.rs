//! The input of a model: its bounds, and the rules that it explores.

use leasehold_core::cache::{Body, EntryState, Outcome, Step};
use leasehold_core::{Invalid, Now, Ttl};

use super::setup::{BACK_OFF, CacheSetup, CacheSituation, FRESH, LEASE, STALE, TICK};
use super::time::TICK_MS;
use crate::explore::Reached;

/// The rules of an entry: [`EntryState::apply`], or a broken version in a test.
pub type ApplyEntry = fn(&mut EntryState, Now, &Step) -> Outcome;

/// A model: its bounds, and the rules it explores.
#[derive(Debug, Clone)]
pub(super) struct CacheModel {
    pub(super) setup: CacheSetup,
    pub(super) apply: ApplyEntry,
    pub(super) lease: Ttl,
    pub(super) back_off: Ttl,
    pub(super) fresh_ms: u64,
    pub(super) stale_ms: u64,
    pub(super) body: Body,
    pub(super) reached: Reached,
}

impl CacheModel {
    pub(super) fn new(setup: CacheSetup, apply: ApplyEntry) -> Result<Self, Invalid> {
        Ok(Self {
            setup,
            apply,
            lease: Ttl::new(TICK * u32::from(LEASE))?,
            back_off: Ttl::new(TICK * u32::from(BACK_OFF))?,
            fresh_ms: u64::from(FRESH) * TICK_MS,
            stale_ms: u64::from(STALE) * TICK_MS,
            body: Body::from([]),
            reached: Reached::default(),
        })
    }

    /// Records that a situation was reached.
    pub(super) fn reached(&self, situation: CacheSituation) {
        self.reached.note(situation as u64);
    }
}
