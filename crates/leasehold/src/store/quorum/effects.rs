//! The input and the output of the machine: events, and the effects that its driver carries out.

use std::time::Duration;

use leasehold_core::{Block, Fence, LockName, Owner, Step, Ttl, Wake};

use super::attempt::Awaited;
use crate::clock::Moment;
use crate::store::contract::{Answer, Notice};

/// The time of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventTime {
    /// By the clock that measures time limits.
    pub(crate) now: Moment,
    /// By the client's wall clock, in microseconds. From it the client chooses fences to propose.
    pub(crate) wall_us: u64,
}

/// An event. `C` is the caller of a step.
#[derive(Debug)]
pub(crate) enum QuorumEvent<C> {
    /// The client sends a step to the quorum.
    Asked(LockName, Step, C),
    /// The client breaks a hold, which each node knows by this fence.
    Breaks(LockName, Vec<Fence>, C),
    /// A node has answered a step, or has not answered in time.
    Answered {
        node: usize,
        purpose: Purpose,
        answer: Answer,
    },
    /// A node has granted its vote for the lock with this key to a waiter, which now claims the others.
    Granted(String, Wake),
    /// Another client waits for the lock with this key, which this client holds.
    Wanted(String),
    /// A timer of the machine is due.
    Passed(QuorumTimer),
    /// The client is being closed.
    Closing,
}

/// An action for the driver.
#[derive(Debug)]
pub(crate) enum QuorumEffect<C> {
    /// Send a step to a node. Its answer comes back with the purpose.
    Send {
        node: usize,
        name: LockName,
        step: Step,
        purpose: Purpose,
    },
    /// Answer a caller.
    Answer(C, Answer),
    /// Report the timer after this time.
    Wake(Duration, QuorumTimer),
}

/// What the machine needs to know with the answer to a step.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A proposal.
    Vote(Ballot),
    /// A step to all nodes, whose answers are judged together.
    Part { gathering: u64 },
    /// A renewal at one of the nodes.
    Renewal(NodeRenewal),
    /// A release at one of the nodes. It is repeated if the node does not answer.
    Release { gathering: u64, undo: VoteUndo },
    /// A vote that is given back without a caller.
    Undo(VoteUndo),
}

impl Purpose {
    /// Whether this is another try of a step that a node has not answered.
    pub(super) fn is_repeated(&self) -> bool {
        matches!(self, Self::Undo(undo) if undo.is_repeated)
    }
}

/// A proposal of this owner to a node, of fences that begin with `asked`.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(super) owner: Owner,
    pub(super) asked: Fence,
    pub(super) sent: Moment,
}

/// A renewal at one of the nodes, as one part of the renewal at all.
#[derive(Debug, Clone)]
pub(crate) struct NodeRenewal {
    pub(super) gathering: u64,
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    /// When the renewal began.
    pub(super) sent: Moment,
    /// When the lease ends that it asks for.
    pub(super) until: Moment,
    /// Its votes were known when the renewal began. A token comes from another process.
    pub(super) is_known: bool,
    /// It is a reader's: the client knows no number of it.
    pub(super) is_shared: bool,
    /// The fence by which the owner believes to hold.
    pub(super) lease: Option<Fence>,
    /// The fence by which the node is asked: that of the lease, or a higher one which it stores.
    pub(super) asked: Option<Fence>,
}

/// A step that takes back what a node may keep for an owner. It is repeated until the node
/// answers and no earlier proposal can arrive any more (V1).
#[derive(Debug, Clone)]
pub(crate) struct VoteUndo {
    pub(super) name: LockName,
    pub(super) step: Step,
    /// When the last try was sent.
    pub(super) sent: Moment,
    /// When all that the node may keep has expired. `None` while the node answers.
    pub(super) until: Option<Moment>,
    /// This is not the first try.
    pub(super) is_repeated: bool,
}

impl VoteUndo {
    /// The first try.
    pub(super) fn new(name: &LockName, step: Step, now: Moment) -> Self {
        Self {
            name: name.clone(),
            step,
            sent: now,
            until: None,
            is_repeated: false,
        }
    }

    /// Sends it to a node at `now`; a release with the number under which its answers are gathered.
    pub(super) fn send<C>(
        self,
        node: usize,
        gathering: Option<u64>,
        now: Moment,
    ) -> QuorumEffect<C> {
        let undo = Self { sent: now, ..self };
        let (name, step) = (undo.name.clone(), undo.step.clone());
        let purpose = match gathering {
            Some(gathering) => Purpose::Release { gathering, undo },
            None => Purpose::Undo(undo),
        };
        QuorumEffect::Send {
            node,
            name,
            step,
            purpose,
        }
    }

    /// Whether it may be sent again. A lock that is to stay taken may be another process' by then, which has its token (V1).
    pub(super) const fn may_be_repeated(&self) -> bool {
        !matches!(self.step, Step::Release { keep: Some(_), .. })
    }
}

/// A timer.
#[derive(Debug)]
pub(crate) enum QuorumTimer {
    /// The next round of the attempt with this number.
    Retry(Owner, u64),
    /// An attempt waits no longer for these answers.
    Rest(Owner, Awaited),
    /// The nodes without a vote for the lease with this first fence are asked once more.
    Fill(Owner, Fence),
    /// A renewal at this node may have been cut short by an earlier one that came late: once more.
    Guard(usize, NodeRenewal),
    /// The next try to take something back at this node.
    Undo(usize, VoteUndo),
}

#[cfg(test)]
impl QuorumTimer {
    /// Whether it concerns this owner.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        match self {
            Self::Retry(of, _) | Self::Rest(of, ..) | Self::Fill(of, _) => of == owner,
            Self::Guard(_, renewal) => renewal.owner == *owner,
            Self::Undo(_, undo) => match &undo.step {
                Step::Release { owner: of, .. } | Step::GiveBack { owner: of, .. } => of == owner,
                _ => false,
            },
        }
    }
}

/// Translates a notice of this node: the event for the machine, which comes first, and the notice for the client.
pub(crate) fn relay<C>(node: usize, notice: Notice) -> (Option<QuorumEvent<C>>, Option<Notice>) {
    match notice {
        // The fence is that of one node, and not of the quorum.
        Notice::Granted { key, wake } => {
            let event = QuorumEvent::Granted(key.clone(), wake.clone());
            let (fence, block) = (None, Block::ONE);
            let wake = Wake {
                fence,
                block,
                ..wake
            };
            (Some(event), Some(Notice::Granted { key, wake }))
        }
        // The other nodes remember the leases, and this one keeps out until it can be trusted (QR8).
        Notice::Replaced(..) => (None, None),
        Notice::Wanted { ref key, .. } => (Some(QuorumEvent::Wanted(key.clone())), Some(notice)),
        Notice::Cut { why, .. } => (None, Some(Notice::Cut { node, why })),
        Notice::Reconnected { .. } => (None, Some(Notice::Reconnected { node })),
        other => (None, Some(other)),
    }
}
