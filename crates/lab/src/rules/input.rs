//! The input of a model: its bounds, and the rules that it explores.

use std::sync::Arc;

use leasehold_core::{
    CLAIM_WINDOW, ClientId, Invalid, LockName, Now, Outcome, Owner, Presence, Step, Ttl, World,
};

use super::setup::{NUMBERS, Setup, Situation, TICK};
use super::state::AcquisitionId;
use crate::explore::Reached;

/// The rules of a lock: [`World::apply`], or a broken version in a test.
pub type Apply = fn(&mut World, Now, &LockName, &Step, &dyn Presence) -> Outcome;

/// A model: its bounds, and the rules it explores.
#[derive(Debug, Clone)]
pub(super) struct LockModel {
    pub(super) setup: Setup,
    pub(super) apply: Apply,
    pub(super) name: LockName,
    pub(super) ttl: Ttl,
    /// How many ticks a claim window lasts.
    pub(super) window: u8,
    owners: Arc<[Owner]>,
    pub(super) reached: Reached,
}

impl LockModel {
    pub(super) fn new(setup: Setup, apply: Apply) -> Result<Self, Invalid> {
        let ttl = Ttl::new(TICK * u32::from(setup.ttl))?;
        let ids = (0..setup.clients)
            .flat_map(|client| (0..NUMBERS).map(move |nth| AcquisitionId { client, nth }));
        let owners: Result<Vec<_>, _> = ids
            .map(|id| Owner::new(id.bits(), ClientId::new(id.client.into()), "lab", 1, ""))
            .collect();
        let window = CLAIM_WINDOW.min(ttl.get()).as_secs() / TICK.as_secs();
        Ok(Self {
            setup,
            apply,
            name: LockName::new("lab")?,
            ttl,
            window: u8::try_from(window).unwrap_or(u8::MAX),
            owners: owners?.into(),
            reached: Reached::default(),
        })
    }

    pub(super) fn owner(&self, id: AcquisitionId) -> Option<&Owner> {
        self.owners
            .get(usize::from(id.client) * usize::from(NUMBERS) + usize::from(id.nth))
    }

    /// Records that a situation was reached.
    pub(super) fn reached(&self, situation: Situation) {
        self.reached.note(situation as u64);
    }
}
