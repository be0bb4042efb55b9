//! The input of a quorum model: its bounds, and the rules that it explores.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Mark, QuorumTerms};
use leasehold_core::{ClientId, Invalid, LockName, Owner, Ttl, World};

use super::hopeful::Hopeful;
use super::setup::{QuorumSetup, TICK_MS};
use super::state::{NODES, OwnerId};
use crate::explore::Reached;
use crate::rules::Apply;

/// How many owners of a client the nodes and the network may know at once.
pub(super) const NUMBERS: u8 = 4;

/// The votes that make a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// A majority for the current proposal, as [`Round`](leasehold_core::quorum::Round) counts.
    Certificate,
    /// A majority of votes of any round. The highest one is the fence.
    HighestVote,
    /// A majority for the current proposal, or for an earlier one of this acquisition.
    EarlierRounds,
    /// As a certificate, also in a round that was refused, and whose votes were given back.
    RefusedRounds,
    /// One vote.
    Minority,
}

/// The rules of a client, or a weaker variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRules {
    /// Those of Leasehold.
    Sound,
    /// It relies on a lease from the last reply on, and not from the first request.
    ValidFromReply,
    /// It counts a renewal from the last reply on.
    RenewsFromReply,
    /// One node suffices for a renewal.
    RenewsByMinority,
    /// It may propose a fence for which a vote of its owner is still being given back.
    ForgetsVotes,
    /// It gives back no vote of a round that was refused.
    KeepsVotes,
    /// It keeps its votes while it waits without the vote of the lead.
    WaitsWithoutLead,
    /// It releases at a node that has not answered its proposal.
    ReleasesAtOnce,
    /// It never gets a lease that its lead refuses, however long it does so.
    ObeysLead,
    /// It gets a lease before the lead has answered, though it knows that others wait.
    PassesWaiters,
}

/// The rules that a model explores: the sound ones, or weaker ones in a test.
#[derive(Debug, Clone, Copy)]
pub struct QuorumRules {
    /// The rules of a node.
    pub node: Apply,
    /// The mark of a node that has just lost its memory, at these milliseconds on its clock.
    pub lost: fn(QuorumTerms, u64) -> Option<Mark>,
    /// The votes that make a lease.
    pub counting: Counting,
    /// The rules of a client besides.
    pub client: ClientRules,
}

impl QuorumRules {
    /// The rules of Leasehold.
    pub const SOUND: Self = Self {
        node: World::apply,
        lost: |_, _| None,
        counting: Counting::Certificate,
        client: ClientRules::Sound,
    };
}

/// A model: its bounds, and the rules it explores.
#[derive(Debug, Clone)]
pub(super) struct QuorumModel {
    pub(super) setup: QuorumSetup,
    pub(super) rules: QuorumRules,
    pub(super) name: LockName,
    pub(super) ttl: Ttl,
    pub(super) terms: QuorumTerms,
    owners: Arc<[Owner]>,
    /// An owner of another client, whose vote never ends.
    pub(super) stranger: Owner,
    pub(super) reached: Reached,
    pub(super) hopeful: Hopeful,
}

impl QuorumModel {
    pub(super) fn new(setup: QuorumSetup, rules: QuorumRules) -> Result<Self, Invalid> {
        // A node's hold has ended when as many ticks have passed.
        let ttl = Duration::from_millis(u64::from(setup.ttl) * TICK_MS - 1);
        let ttl = Ttl::new(ttl)?;
        let ids = (0..2_u8).flat_map(|client| (0..NUMBERS).map(move |nth| (client, nth)));
        let owners: Result<Vec<_>, _> = ids
            .map(|(client, nth)| {
                let bits = u128::from(client) << 8 | u128::from(nth);
                Owner::new(bits, ClientId::new(client.into()), "lab", 1, "")
            })
            .collect();
        Ok(Self {
            setup,
            rules,
            name: LockName::new("lab")?,
            ttl,
            terms: QuorumTerms {
                nodes: u8::try_from(NODES).unwrap_or(u8::MAX),
                longest_ttl: ttl,
            },
            owners: owners?.into(),
            stranger: Owner::new(u128::MAX, ClientId::new(u64::MAX), "lab", 2, "")?,
            reached: Reached::default(),
            hopeful: Hopeful::default(),
        })
    }

    /// The owner of core that stands for this one.
    pub(super) fn owner(&self, id: OwnerId) -> &Owner {
        let at = usize::from(id.client) * usize::from(NUMBERS) + usize::from(id.nth % NUMBERS);
        &self.owners[at]
    }

    /// The owner that this one of core stands for, unless it is the stranger.
    pub(super) fn owner_id(&self, owner: &Owner) -> Option<OwnerId> {
        let at = self.owners.iter().position(|known| known == owner)?;
        let at = u8::try_from(at).ok()?;
        Some(OwnerId {
            client: at / NUMBERS,
            nth: at % NUMBERS,
        })
    }
}
