//! One acquisition: the votes of its current round, and what the nodes said besides.

use leasehold_core::quorum::{NoVote, Round, Verdict};
use leasehold_core::{Block, Busy, Fence, Fences, Reply, Ttl, Wait};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::store::contract::Answer;

/// The most rounds in which a client looks for a number that a majority accepts.
pub(super) const ROUNDS: u32 = 4;

/// How often a client with the vote of the lead asks the other nodes again before it reports that the lock is busy.
pub(super) const TRIES: u32 = 8;

/// A request for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) ttl: Ttl,
    pub(super) block: Block,
    pub(super) wait: Option<Wait>,
    /// A claim of a vote that the lead has granted. It is answered *not held* where another request is answered *busy*.
    pub(super) is_claim: bool,
}

/// What a node said in the current round.
#[derive(Debug, Clone)]
pub(super) enum NodeReply {
    Vote,
    NoVote(NoVote),
    Busy(Busy),
    Failed(StoreError),
}

/// An acquisition in progress.
pub(super) struct Attempt<C> {
    /// Tells this acquisition from others of its owner.
    pub(super) number: u64,
    pub(super) request: Request,
    /// Taken when the acquisition is answered.
    pub(super) caller: Option<C>,
    pub(super) lead: usize,
    pub(super) began: Moment,
    pub(super) fences: Fences,
    pub(super) round: Round,
    pub(super) rounds: u32,
    pub(super) tries: u32,
    /// The next round begins after a pause.
    pub(super) is_pausing: bool,
    pub(super) said: Vec<Option<NodeReply>>,
    /// The most waiters that a node reported with its vote.
    pub(super) queued: u32,
    /// An earlier round may have put the owner into the queue of the lead.
    was_queued: bool,
}

impl<C> Attempt<C> {
    /// The first round of an acquisition.
    pub(super) fn new(
        number: u64,
        nodes: usize,
        lead: usize,
        request: Request,
        caller: C,
        began: Moment,
        fences: Fences,
    ) -> Self {
        Self {
            number,
            request,
            caller: Some(caller),
            lead,
            began,
            fences,
            round: Round::new(u8::try_from(nodes).unwrap_or(u8::MAX), fences),
            rounds: 1,
            tries: 0,
            is_pausing: false,
            said: vec![None; nodes],
            queued: 0,
            was_queued: false,
        }
    }

    /// Begins another round with these fences.
    pub(super) fn propose(&mut self, fences: Fences) {
        let nodes = u8::try_from(self.said.len()).unwrap_or(u8::MAX);
        self.was_queued = self.may_be_queued();
        self.fences = fences;
        self.round = Round::new(nodes, fences);
        self.is_pausing = false;
        self.said.fill(None);
    }

    /// Whether this is the current round.
    pub(super) fn asks(&self, first: Fence) -> bool {
        self.fences.first == first
    }

    /// Counts the answer of a node to the current proposal.
    pub(super) fn heard(&mut self, node: usize, answer: Answer) -> Verdict {
        let (first, verdict);
        first = self.fences.first;
        self.said[node] = match answer {
            Ok(reply) => {
                verdict = self.round.heard(node, first, &reply);
                match reply {
                    Reply::Held(held) => {
                        self.queued = self.queued.max(held.queued);
                        Some(NodeReply::Vote)
                    }
                    Reply::NoVote(reason) => Some(NodeReply::NoVote(reason)),
                    Reply::Busy(busy) => Some(NodeReply::Busy(busy)),
                    // A store that knows no proposals.
                    _ => Some(NodeReply::NoVote(NoVote::NotANode)),
                }
            }
            Err(error) => {
                verdict = self.round.silent(node);
                Some(NodeReply::Failed(error))
            }
        };
        verdict
    }

    /// What the lead said in this round, if anything.
    pub(super) fn lead_said(&self) -> Option<&NodeReply> {
        self.said[self.lead].as_ref()
    }

    /// Whether the owner stands in the queue of the lead, or will when the lead answers.
    pub(super) fn may_be_queued(&self) -> bool {
        let may_be = matches!(self.lead_said(), None | Some(NodeReply::Busy(_)));
        self.request.wait.is_some() && (may_be || self.was_queued)
    }

    /// The refusal to report: that of the lead, or of another node.
    pub(super) fn busy(&self) -> Option<&Busy> {
        let by_lead = match self.lead_said() {
            Some(NodeReply::Busy(busy)) => Some(busy),
            _ => None,
        };
        by_lead.or_else(|| {
            self.said.iter().flatten().find_map(|said| match said {
                NodeReply::Busy(busy) => Some(busy),
                _ => None,
            })
        })
    }
}
