//! The quorum models, by name: clients, clocks, faults, and the rules that are explored.
//!
//! Times are whole ticks of [`TICK_MS`]. Two of them are the distance by which a fence may be ahead of a node's clock, and the longest TTL
//! in most models. A quarantine ends within the third tick.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::quorum::{AHEAD, Mark, QuorumTerms};
use leasehold_core::{ClientId, Invalid, LockName, Owner, Ttl, World};

use super::state::{CLIENTS, NODES};
use crate::frame::{CallId, Framed, Owners, SetupOf, Turn, models, worded};
use crate::rules::Apply;

/// One tick.
pub(super) const TICK_MS: u64 = 5_000;
pub(super) const TICK_US: u64 = 1_000 * TICK_MS;

// A fence may be two ticks ahead.
const _: () = assert!(AHEAD.as_secs() * 1_000 == 2 * TICK_MS);

worded! {
    /// The additional events of a model. Besides, a client that has no message under way may take as long as it likes. Messages come in any
    /// order; only a model with a `lag` lets time pass meanwhile.
    Fault {
        /// A request or its answer may be lost.
        LostMessage => "a request or an answer is lost",
        /// A request may be carried out after its client gave up waiting for it, or never.
        LateRequest => "a request comes after its client gave up",
        /// A late request may be carried out twice.
        Repeated => "it is carried out twice",
        /// A client may crash and restart.
        Crash => "a client crashes",
        /// A node may lose its memory.
        LostMemory => "a node loses its memory",
        /// An operator may break the vote of a node.
        Break => "an operator breaks a node's vote",
        /// The clock of one node may jump ahead by a TTL, once.
        ClockJump => "a node's clock jumps ahead by a TTL",
        /// A node may count the lock as taken by a stranger for ever, once.
        EndlessVote => "a node counts the lock as taken by an owner for ever",
        /// A node may count the lock as taken by another program for ever, once.
        ForeignVote => "a node counts the lock as taken by another program for ever",
        /// The second client cannot reach the lead.
        Unreachable => "one client cannot reach the lead",
        /// Not a fault: a holder may renew its lease, and then repairs it.
        Renewal => "holders renew and repair their leases",
        /// Not a fault: a repair uses a higher number at a node that does not accept that of the lease.
        OtherFences => "a repair uses a higher number where it has to",
        /// Not a fault: a client may give up while it acquires the lock.
        GivesUp => "clients give up while they acquire the lock",
        /// Not a fault: a client may ask for the lock as a reader.
        Readers => "clients read or write",
        /// Not a fault: the second client asks for the lock as a reader.
        OneReads => "one client reads",
    }
}

impl Fault {
    /// Whether a model bounds how often it happens.
    pub(super) const fn is_counted(self) -> bool {
        !matches!(
            self,
            Self::Repeated
                | Self::Unreachable
                | Self::Renewal
                | Self::OtherFences
                | Self::GivesUp
                | Self::Readers
                | Self::OneReads
        )
    }
}

/// The facts from an acquisition that a client uses in the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recalls {
    /// A new process makes each acquisition.
    Nothing,
    /// Which nodes did not answer, which lead alone refused the lock, and that others wait.
    Nodes,
    /// Besides, how far the clocks of nodes are ahead.
    Clocks,
}

/// The bounds of a model that are numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many ticks a lease lasts.
    pub(super) ttl: u8,
    /// Whether the clients wait in the queue of the lead.
    pub(super) waits: bool,
    /// The facts from an acquisition that a client uses in the next one.
    pub(super) recalls: Recalls,
    /// The most rounds in which a client looks for a number that a majority accepts. The store's limit is 4.
    pub(super) rounds: u8,
    /// How often a client with the vote of the lead asks the other nodes again. The store does so 8 times.
    pub(super) tries: u8,
    /// How many requests may be under way when a tick passes.
    pub(super) lag: usize,
    /// How far proposals may be above the clocks of all clients.
    pub(super) above: u64,
    /// The longest distance of two numbers without a clock between them.
    pub(super) apart: u64,
    /// How many ticks the clock of each client is ahead, and that of each node.
    pub(super) clients: [i8; CLIENTS],
    pub(super) nodes: [i8; NODES],
    /// Whether faults happen at the lead only, if they happen at a node.
    pub(super) at_lead: bool,
    /// How often they may happen.
    pub(super) times: u8,
}

/// A model without faults other than pauses.
const PLAIN: Limits = Limits {
    ttl: 2,
    waits: false,
    recalls: Recalls::Nothing,
    rounds: 2,
    tries: 1,
    lag: 1,
    above: 2,
    apart: 2,
    clients: [0, 0],
    nodes: [0; 3],
    at_lead: false,
    times: 1,
};

pub(super) const MODELS: &[SetupOf<Quorum>] = models! {
    Limits, Fault, Situation, PLAIN;

    "quorum" {}
        may []
        reaches [FirstRound, Raised, Busy, Split, AskedAgain, OldAnswer, LateVote, TooLate, DeadlinePassed,
            Expired, WithoutLead];

    "quorum queue" { lag: 0, above: 1, waits: true, rounds: 1, tries: 0 }
        may []
        reaches [FirstRound, Busy, Granted, KeptVotes, Expired];

    "quorum newcomer" { lag: 0, above: 0, waits: true, recalls: Recalls::Nodes, rounds: 1, tries: 0 }
        may [GivesUp]
        reaches [AwaitedLead, KeptVotes, Busy, Expired];

    "quorum giving up" { lag: 0, above: 1 }
        may [GivesUp]
        reaches [Raised, Busy, AskedAgain, LateVote, Expired];

    "quorum clocks apart" { lag: 0, above: 0, clients: [0, 1], nodes: [0, 1, -1], recalls: Recalls::Clocks }
        may []
        reaches [FirstRound, Raised, Busy];

    "quorum renewal" { above: 1 }
        may [Renewal]
        reaches [Renewed, Repaired, Expired, DeadlinePassed];

    "quorum repair" { lag: 0, above: 1, ttl: 1, tries: 0, rounds: 1 }
        may [LostMemory, Renewal, OtherFences]
        reaches [MemoryLost, Quarantined, Repaired, RepairedAbove];

    "quorum readers" { lag: 0, above: 1, ttl: 1, tries: 0 }
        may [Readers]
        reaches [FirstRound, Raised, Busy, ReadersBoth, LateVote, Expired];

    "quorum reader queue" { lag: 0, above: 1, ttl: 1, waits: true, rounds: 1, tries: 0 }
        may [OneReads]
        reaches [FirstRound, Busy, Granted, KeptVotes, Expired];

    "quorum lost message" { lag: 0, above: 1, tries: 0 }
        may [LostMessage]
        reaches [AnswerLost, FirstRound, Busy, Expired, WithoutLead];

    "quorum late request" { lag: 0, above: 0, rounds: 1, tries: 0 }
        may [LateRequest, Repeated]
        reaches [AppliedLate, FirstRound, Busy, Expired];

    "quorum crash" { lag: 0, above: 1 }
        may [Crash]
        reaches [CrashedHolding, CrashedAcquiring, Raised, Expired];

    "quorum lost memory" { lag: 0, above: 0, ttl: 1, clients: [2, -1], tries: 0, at_lead: true }
        may [LostMemory]
        reaches [MemoryLost, Quarantined, TrustedAgain, BelowFloor, Raised];

    "quorum break" { lag: 0, above: 1 }
        may [Break]
        reaches [Broken, BrokenOfAll, RobbedBelieves, Raised];

    "quorum clock jump" { lag: 0, above: 1 }
        may [ClockJump]
        reaches [JumpedOverAll, RobbedBelieves, Expired];

    "quorum lead unreachable" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [Unreachable]
        reaches [WithoutLead, FirstRound, Busy, Raised];

    "quorum endless vote" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [EndlessVote]
        reaches [PassedStuckLead, WithoutLead, Busy, Raised];

    "quorum foreign vote" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [ForeignVote]
        reaches [PassedProgram, Busy, Raised];
};

/// A situation that a model must reach. The exploration counts it, so a model that explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A client got a lease in its first round.
    FirstRound,
    /// A client raised its votes to a higher number, and got a lease.
    Raised,
    /// A client was told that the lock is busy.
    Busy,
    /// Each of the clients had a vote, and neither a majority.
    Split,
    /// A client with the vote of the lead asked the others again.
    AskedAgain,
    /// The answer to an earlier proposal came during a later one.
    OldAnswer,
    /// A vote came after its owner had given up, and was given back.
    LateVote,
    /// A reply came when its lease would have been over.
    TooLate,
    /// A lease ended by its deadline.
    DeadlinePassed,
    /// A vote expired in a node.
    Expired,
    /// A lease was renewed.
    Renewed,
    /// A node that lacked the vote of a lease gave it.
    Repaired,
    /// A node that lacked the vote of a lease gave one for a higher number.
    RepairedAbove,
    /// A waiter was granted the vote of the lead from the queue.
    Granted,
    /// A waiter kept the vote of the lead while it waited.
    KeptVotes,
    /// A client got a lease without the vote of its lead.
    WithoutLead,
    /// An answer was lost after its request was carried out.
    AnswerLost,
    /// A request was carried out for an owner that had given up.
    AppliedLate,
    /// A client crashed while it held the lock.
    CrashedHolding,
    /// A client crashed while it acquired the lock.
    CrashedAcquiring,
    /// A node lost its memory while a lease counted on its vote.
    MemoryLost,
    /// A node gave no vote because it may have forgotten some.
    Quarantined,
    /// A node that had lost its memory voted again.
    TrustedAgain,
    /// A node refused a number because it may have accepted higher ones before it lost its memory.
    BelowFloor,
    /// An operator broke a vote of a lease.
    Broken,
    /// An operator broke a vote of a lease that had the votes of all nodes.
    BrokenOfAll,
    /// Two clients relied on a lease, one of them robbed.
    RobbedBelieves,
    /// A clock jumped while a lease had the votes of all nodes.
    JumpedOverAll,
    /// A client got a lease although the lead counts the lock as taken.
    PassedStuckLead,
    /// A client got a lease although another program has the lock at the lead.
    PassedProgram,
    /// Two readers relied on a lease each.
    ReadersBoth,
    /// A client with a majority awaited the answer of the lead, since others wait.
    AwaitedLead,
}

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
    /// The states from which a lease is reached; shared by all copies of a model.
    pub(super) hopeful: Arc<Mutex<HashSet<u64>>>,
}

pub(super) type Setup = SetupOf<Quorum>;
pub(super) type QuorumModel = Framed<Quorum>;
pub(super) type QuorumTurn<'a> = Turn<'a, Quorum>;

impl Setup {
    /// Whether this or that may happen.
    pub(super) fn may_any(&self, faults: &[Fault]) -> bool {
        faults.iter().any(|fault| self.may(*fault))
    }

    /// Whether the votes of a lease may be taken from it, so that exclusion does not cover it.
    pub(super) fn robs(&self) -> bool {
        self.may_any(&[Fault::Break, Fault::ClockJump])
    }
}

impl Quorum {
    pub(super) fn new(setup: &Setup, rules: QuorumRules) -> Result<Self, Invalid> {
        // A node's hold has ended when as many ticks have passed.
        let ttl = Duration::from_millis(u64::from(setup.ttl) * TICK_MS - 1);
        let ttl = Ttl::new(ttl)?;
        Ok(Self {
            rules,
            name: LockName::new("lab")?,
            ttl,
            terms: QuorumTerms {
                nodes: u8::try_from(NODES).unwrap_or(u8::MAX),
                longest_ttl: ttl,
            },
            owners: Owners::new(u8::try_from(CLIENTS).unwrap_or(u8::MAX))?,
            stranger: Owner::new(u128::MAX, ClientId::new(u64::MAX), "lab", 2, "")?,
            hopeful: Arc::default(),
        })
    }

    /// The owner that this one of core stands for, unless it is the stranger.
    pub(super) fn owner_id(&self, owner: &Owner) -> Option<CallId> {
        (*owner != self.stranger).then(|| CallId::of(owner))
    }

    pub(super) fn hopeful(&self) -> MutexGuard<'_, HashSet<u64>> {
        // A set is whole after each call, also after a panic.
        let hopeful = self.hopeful.lock();
        hopeful.unwrap_or_else(PoisonError::into_inner)
    }
}
