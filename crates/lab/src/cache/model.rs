//! A guarded entry, and the rules that are explored.

use leasehold_core::cache::{Body, EntryState, Outcome, Step};
use leasehold_core::{Invalid, Now, Ttl};

use super::setup::{BACK_OFF, CacheSetup, FRESH, LEASE, STALE, TICK};
use super::time::TICK_MS;
use crate::frame::{Framed, Turn};

/// The rules of an entry: [`EntryState::apply`], or a broken version in a test.
pub type ApplyEntry = fn(&mut EntryState, Now, &Step) -> Outcome;

/// One entry, and its rules.
#[derive(Debug, Clone)]
pub(super) struct GuardedEntry {
    pub(super) apply: ApplyEntry,
    pub(super) lease: Ttl,
    pub(super) back_off: Ttl,
    pub(super) fresh_ms: u64,
    pub(super) stale_ms: u64,
    pub(super) body: Body,
}

pub(super) type CacheModel = Framed<GuardedEntry>;
pub(super) type CacheTurn<'a> = Turn<'a, GuardedEntry>;

impl CacheModel {
    pub(super) fn new(setup: CacheSetup, apply: ApplyEntry) -> Result<Self, Invalid> {
        let entry = GuardedEntry {
            apply,
            lease: Ttl::new(TICK * u32::from(LEASE))?,
            back_off: Ttl::new(TICK * u32::from(BACK_OFF))?,
            fresh_ms: u64::from(FRESH) * TICK_MS,
            stale_ms: u64::from(STALE) * TICK_MS,
            body: Body::from([]),
        };
        Ok(Self::of(setup, setup.reaches, entry))
    }
}
