//! The parameters of a quorum model: clients, clocks, faults.
//!
//! Times are whole ticks of [`TICK_MS`]. Two of them are the distance by which a fence may be ahead of a node's clock, and the longest TTL
//! in most models. A quarantine ends within the third tick.

use leasehold_core::quorum::AHEAD;

use super::state::{CLIENTS, NODES};
use crate::frame::faults;

/// One tick.
pub(super) const TICK_MS: u64 = 5_000;
pub(super) const TICK_US: u64 = 1_000 * TICK_MS;

// A fence may be two ticks ahead.
const _: () = assert!(AHEAD.as_secs() * 1_000 == 2 * TICK_MS);

faults! {
    /// The additional events of a model. Besides, a client that has no message under way may take as long as it likes. Messages come in any
    /// order; only a model with a `lag` lets time pass meanwhile.
    QuorumFault {
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
    }
}

impl QuorumFault {
    /// Whether a model bounds how often it happens.
    const fn is_counted(self) -> bool {
        !matches!(
            self,
            Self::Repeated | Self::Unreachable | Self::Renewal | Self::OtherFences | Self::GivesUp
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

/// One model: a name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuorumSetup {
    pub(super) name: &'static str,
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
    pub(super) faults: &'static [QuorumFault],
    /// Whether they happen at the lead only, if they happen at a node.
    pub(super) at_lead: bool,
    /// How often they may happen.
    pub(super) times: u8,
    /// The situations that must be reached; otherwise the model does not show what its name says.
    pub(super) reaches: &'static [QuorumSituation],
}

impl QuorumSetup {
    pub(super) fn may(&self, fault: QuorumFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether a node's answers can fail, so that another node leads.
    pub(super) fn can_fail(&self) -> bool {
        use QuorumFault::{LateRequest, LostMessage, Unreachable};
        [LateRequest, LostMessage, Unreachable]
            .into_iter()
            .any(|fault| self.may(fault))
    }

    /// Whether the votes of a lease may be taken from it, so that exclusion does not cover it.
    pub(super) fn robs(&self) -> bool {
        self.may(QuorumFault::Break) || self.may(QuorumFault::ClockJump)
    }

    /// The bounds, for people.
    pub(super) fn bounds(&self) -> String {
        let faults = self.faults.iter();
        let (counted, free): (Vec<_>, Vec<_>) = faults.copied().partition(|it| it.is_counted());
        let words = |faults: &[QuorumFault]| {
            let words: Vec<_> = faults.iter().map(|fault| fault.words()).collect();
            words.join(", ")
        };
        let mut events = vec![match self.lag {
            0 => "time passes while no message is under way".to_owned(),
            lag => format!("time passes while at most {lag} messages are under way"),
        }];
        if !counted.is_empty() {
            let times = match self.times {
                1 => "once".to_owned(),
                times => format!("at most {times} times"),
            };
            let place = if self.at_lead { " at the lead" } else { "" };
            events.push(format!("{times}{place}: {}", words(&counted)));
        }
        if !free.is_empty() {
            events.push(format!("any number of times: {}", words(&free)));
        }
        let seconds = TICK_MS / 1_000;
        let clocks = |ahead: &[i8]| {
            let seconds = ahead.iter().map(|ahead| i64::from(*ahead) * 5);
            let texts = seconds.map(|by| {
                if by > 0 {
                    format!("+{by}")
                } else {
                    by.to_string()
                }
            });
            texts.collect::<Vec<_>>().join("/")
        };
        format!(
            "{NODES} nodes, {CLIENTS} clients that {}{}; acquisitions without an end, of at most {} rounds and {} repeats each; TTL {} s \
             in ticks of {seconds} s; blocks of one fence, at most {} above the clocks; clocks of clients {} s, of nodes {} s; under way \
             at most one request of a client to a node, and the next one; {}",
            if self.waits { "wait" } else { "try" },
            match self.recalls {
                Recalls::Nothing => "",
                Recalls::Nodes => " and remember which nodes answered",
                Recalls::Clocks => " and remember the nodes and their clocks",
            },
            self.rounds,
            self.tries,
            u64::from(self.ttl) * seconds,
            self.above,
            clocks(&self.clients),
            clocks(&self.nodes),
            events.join("; "),
        )
    }
}

/// A situation that a model must reach. The exploration counts it, so a model that explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuorumSituation {
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
    /// A client with a majority awaited the answer of the lead, since others wait.
    AwaitedLead,
}
