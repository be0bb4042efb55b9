//! The lock, and the rules that are explored.

use leasehold_core::{CLAIM_WINDOW, Invalid, LockName, Now, Outcome, Presence, Step, Ttl, World};

use super::setup::{Setup, TICK};
use crate::frame::{Framed, Owners, Turn};

/// The rules of a lock: [`World::apply`], or a broken version in a test.
pub type Apply = fn(&mut World, Now, &LockName, &Step, &dyn Presence) -> Outcome;

/// One lock, and its rules.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) apply: Apply,
    pub(super) name: LockName,
    pub(super) ttl: Ttl,
    /// How many ticks a claim window lasts.
    pub(super) window: u8,
    pub(super) owners: Owners,
}

pub(super) type LockModel = Framed<Lock>;
pub(super) type LockTurn<'a> = Turn<'a, Lock>;

impl LockModel {
    pub(super) fn new(setup: Setup, apply: Apply) -> Result<Self, Invalid> {
        let ttl = Ttl::new(TICK * u32::from(setup.ttl))?;
        let window = CLAIM_WINDOW.min(ttl.get()).as_secs() / TICK.as_secs();
        let lock = Lock {
            apply,
            name: LockName::new("lab")?,
            ttl,
            window: u8::try_from(window).unwrap_or(u8::MAX),
            owners: Owners::new(setup.clients)?,
        };
        Ok(Self::of(setup, setup.reaches, lock))
    }
}
