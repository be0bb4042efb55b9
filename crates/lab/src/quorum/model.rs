//! A quorum, and the rules that are explored.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::quorum::{Mark, QuorumTerms};
use leasehold_core::{ClientId, Invalid, LockName, Owner, Ttl, World};

use super::setup::{QuorumSetup, TICK_MS};
use super::state::{CLIENTS, NODES};
use crate::frame::{CallId, Framed, MOST_CALLS, Owners, Turn};
use crate::rules::Apply;

/// How many owners of a client the nodes and the network may know at once: fewer than the frame allows.
pub(super) const NUMBERS: u8 = 4;
const _: () = assert!(NUMBERS <= MOST_CALLS);

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

/// The nodes of a lock, and the rules of nodes and clients.
#[derive(Debug, Clone)]
pub(super) struct Quorum {
    pub(super) rules: QuorumRules,
    pub(super) name: LockName,
    pub(super) ttl: Ttl,
    pub(super) terms: QuorumTerms,
    pub(super) owners: Owners,
    /// An owner of another client, whose vote never ends.
    pub(super) stranger: Owner,
    pub(super) hopeful: Hopeful,
}

pub(super) type QuorumModel = Framed<Quorum>;
pub(super) type QuorumTurn<'a> = Turn<'a, Quorum>;

impl QuorumModel {
    pub(super) fn new(setup: QuorumSetup, rules: QuorumRules) -> Result<Self, Invalid> {
        // A node's hold has ended when as many ticks have passed.
        let ttl = Duration::from_millis(u64::from(setup.ttl) * TICK_MS - 1);
        let ttl = Ttl::new(ttl)?;
        let quorum = Quorum {
            rules,
            name: LockName::new("lab")?,
            ttl,
            terms: QuorumTerms {
                nodes: u8::try_from(NODES).unwrap_or(u8::MAX),
                longest_ttl: ttl,
            },
            owners: Owners::new(u8::try_from(CLIENTS).unwrap_or(u8::MAX))?,
            stranger: Owner::new(u128::MAX, ClientId::new(u64::MAX), "lab", 2, "")?,
            hopeful: Hopeful::default(),
        };
        Ok(Self::of(setup, setup.reaches, quorum))
    }
}

impl Quorum {
    /// The owner that this one of core stands for, unless it is the stranger.
    pub(super) fn owner_id(&self, owner: &Owner) -> Option<CallId> {
        (*owner != self.stranger).then(|| CallId::of(owner))
    }
}

/// In how many parts the memory is locked.
const PARTS: u64 = 16;

/// The states from which a lease is reached; shared by all copies of a model.
#[derive(Debug, Clone)]
pub(super) struct Hopeful(Arc<[Mutex<HashSet<u64>>]>);

impl Default for Hopeful {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Mutex::default()).collect())
    }
}

impl Hopeful {
    fn part(&self, hash: u64) -> &Mutex<HashSet<u64>> {
        &self.0[usize::try_from(hash % PARTS).unwrap_or_default()]
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        // A set is whole after each call, also after a panic.
        let part = self.part(hash).lock();
        part.unwrap_or_else(PoisonError::into_inner).contains(&hash)
    }

    pub(super) fn add(&self, hash: u64) {
        let part = self.part(hash).lock();
        part.unwrap_or_else(PoisonError::into_inner).insert(hash);
    }
}
