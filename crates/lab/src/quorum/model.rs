//! A quorum as a subject of the frame: the rules that are explored, and the properties.

use std::time::Duration;

use leasehold_core::quorum::{Mark, QuorumTerms};
use leasehold_core::{ClientId, Invalid, LockName, Owner, Reply, Ttl, World};
use stateright::Property;

use super::actions::QuorumAction;
use super::judge::{QuorumRule, is_exclusive};
use super::liveness::Hopeful;
use super::setup::{QuorumFault, QuorumSetup, QuorumSituation, TICK_MS};
use super::state::{Alike, CLIENTS, NODES, QuorumBooks, QuorumState};
use super::trace;
use crate::frame::{CallId, Framed, Owners, Subject, Turn, kept};
use crate::rules::Apply;

/// How many owners of a client the nodes and the network may know at once: fewer than the frame allows.
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

impl Subject for Quorum {
    type Setup = QuorumSetup;
    type State = QuorumState;
    type Action = QuorumAction;
    type Reply = Reply;
    type Situation = QuorumSituation;

    const TICK: (QuorumAction, Duration) = (QuorumAction::Tick, Duration::from_millis(TICK_MS));

    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 38),
        ("reply", 14),
        ("n1", 12),
        ("n2", 12),
        ("n3", 12),
        ("clients", 0),
    ];

    fn init(model: &QuorumModel) -> QuorumState {
        let [first, second] = model.setup.clients;
        let [_, beside, other] = model.setup.nodes;
        let clients = std::array::from_fn(|client| {
            model.new_client(u8::try_from(client).unwrap_or_default())
        });
        QuorumState {
            nodes: std::array::from_fn(|node| model.new_node(node)),
            clients,
            late: [[None; NODES]; CLIENTS],
            books: QuorumBooks::default(),
            spent: 0,
            alike: Alike {
                clients: first == second && !model.setup.may(QuorumFault::Unreachable),
                nodes: beside == other && !model.setup.can_fail(),
            },
        }
    }

    fn broken(state: &QuorumState) -> u16 {
        state.books.broken.into()
    }

    fn possible(model: &QuorumModel, state: &QuorumState, into: &mut Vec<QuorumAction>) {
        model.possible(state, into);
    }

    fn act(turn: &mut QuorumTurn<'_>, action: QuorumAction) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<QuorumModel>> {
        vec![
            Property::always(
                "VQ1 at most one client that was not robbed relies on a lease (QR1)",
                |_, state| is_exclusive(state),
            ),
            kept!(
                "VQ2 no two leases share a fence, and the later one has the higher fence (QR2)",
                QuorumRule::Order
            ),
            kept!(
                "VQ3 a lease that was asked for after another was handed out has the higher fence (QR3)",
                QuorumRule::RealTime
            ),
            kept!(
                "VQ4 no node keeps a vote or a place for an owner that has settled, or waits without the lead (V1, V3)",
                QuorumRule::LeftOver
            ),
            Property::always(
                "VQ5 some client gets a lease once faults stop",
                QuorumModel::reaches_a_lease,
            ),
            kept!(
                "VQ6 who knows of waiters gets no lease before the lead has answered (V5)",
                QuorumRule::Passed
            ),
        ]
    }

    fn cells(before: &QuorumState, action: QuorumAction, after: &QuorumTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}
