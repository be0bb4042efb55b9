//! One acquisition: the votes of its current round, what the nodes said besides, and the error if no majority can be had.

use std::cmp::Reverse;
use std::time::Duration;

use leasehold_core::quorum::{NoVote, QuorumTerms, Refusal, Round, Verdict};
use leasehold_core::{Block, Busy, Fence, Fences, HolderIdentity, Reply, Ttl, Wait};

use super::judge::{is_undecided, majority, most_frequent, without_majority};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Answer;

/// The most rounds in which a client looks for a number that a majority accepts.
pub(super) const ROUNDS: u32 = 4;

/// How often a client with the vote of the lead asks the other nodes again before it reports that the lock is busy.
pub(super) const TRIES: u32 = 10;

/// The quorum, for the machine and its errors.
pub(super) struct QuorumInfo {
    pub(super) terms: QuorumTerms,
    pub(super) label: String,
    /// The labels of the nodes.
    pub(super) nodes: Vec<String>,
}

/// A request for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// It is a reader's.
    pub(super) is_shared: bool,
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
    Busy(Box<Busy>),
    Failed(StoreError),
}

impl NodeReply {
    const fn busy(&self) -> Option<&Busy> {
        match self {
            Self::Busy(busy) => Some(busy),
            _ => None,
        }
    }
}

/// The answers that an attempt waits for: of which round, and whether only of the lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    attempt: u64,
    first: Fence,
    of_lead_alone: bool,
}

/// An acquisition in progress.
pub(super) struct Attempt<C> {
    /// Tells this acquisition from others of its owner.
    pub(super) number: u64,
    pub(super) request: Request,
    /// Taken when the acquisition is answered.
    pub(super) caller: Option<C>,
    pub(super) lead: usize,
    /// Only the lead is asked, until it has answered or is late (V8).
    pub(super) asks_lead_alone: bool,
    pub(super) began: Moment,
    pub(super) fences: Fences,
    pub(super) round: Round,
    pub(super) rounds: u32,
    pub(super) tries: u32,
    /// The next round begins after a pause.
    pub(super) is_pausing: bool,
    /// A timer limits to this time how long the answers are awaited that are missing.
    pub(super) awaits_rest: Option<Duration>,
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
            asks_lead_alone: false,
            began,
            fences,
            round: Round::new(u8::try_from(nodes).unwrap_or(u8::MAX), fences),
            rounds: 1,
            tries: 0,
            is_pausing: false,
            awaits_rest: None,
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
        (self.is_pausing, self.awaits_rest) = (false, None);
        self.said.fill(None);
    }

    /// Whether enough of its TTL would be left after another round.
    pub(super) fn has_time(&self, now: Moment) -> bool {
        now.since(self.began) < self.request.ttl.get() / 3
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

    /// Whether a majority has answered, and says that the lock is not free everywhere.
    pub(super) fn is_mostly_said(&self) -> bool {
        let said = |is: fn(&NodeReply) -> bool| {
            let said = self.said.iter().flatten();
            said.filter(|said| is(said)).count()
        };
        let answered = said(|said| !matches!(said, NodeReply::Failed(_)));
        answered >= majority(self.said.len()) && said(|said| said.busy().is_some()) > 0
    }

    /// The answers that it waits for now.
    pub(super) const fn awaits(&self) -> Awaited {
        Awaited {
            attempt: self.number,
            first: self.fences.first,
            of_lead_alone: self.asks_lead_alone,
        }
    }

    /// Whether this node is asked.
    pub(super) const fn is_asked(&self, node: usize) -> bool {
        !self.asks_lead_alone || node == self.lead
    }

    /// The nodes that are asked and have not answered in this round.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        let said = self.said.iter().enumerate();
        said.filter_map(|(node, said)| (said.is_none() && self.is_asked(node)).then_some(node))
    }

    /// The holder that a majority names. Then no other client is about to take the lock.
    pub(super) fn holder(&self) -> Option<&HolderIdentity> {
        let all = self.said.iter().flatten().filter_map(NodeReply::busy);
        let named = most_frequent(all.map(|busy| &busy.holder), Reverse)?;
        (named.count >= majority(self.said.len())).then_some(&named.holder.who)
    }

    /// The refusal to report: that of the lead, or of another node. The fence of its holder is the one that most nodes name, or
    /// else the lower one: a lead may hold the lock for its holder under a higher fence than that of the certificate.
    pub(super) fn busy(&self) -> Option<Busy> {
        let all = || self.said.iter().flatten().filter_map(NodeReply::busy);
        let by_lead = self.lead_said().and_then(NodeReply::busy);
        let mut busy = by_lead.or_else(|| all().next())?.clone();
        let of_holder = all().map(|other| &other.holder);
        let of_holder = of_holder.filter(|holder| holder.who == busy.holder.who);
        busy.holder.fence = most_frequent(of_holder, Reverse)?.holder.fence;
        Some(busy)
    }
}

/// The error of a request whose owner has sent another one, before the answer was known.
pub(super) fn superseded(label: &str) -> StoreError {
    let why = "a later request of this owner took its place";
    StoreError::new(label, StoreErrorKind::Unavailable, why).unknown()
}

/// The errors of the nodes that failed, and of those that gave no vote for a reason that an error may tell.
fn failed<C>(quorum: &QuorumInfo, attempt: &Attempt<C>) -> Vec<StoreError> {
    let said = attempt.said.iter().zip(&quorum.nodes);
    let failed = said.filter_map(|(said, node)| match said.as_ref()? {
        NodeReply::Failed(error) => Some(error.clone()),
        NodeReply::NoVote(reason) => {
            answer_of(node, Ok(Reply::NoVote(*reason)), quorum.terms).err()
        }
        NodeReply::Vote | NodeReply::Busy(_) => None,
    });
    failed.collect()
}

/// Whether another node decides which error [`refusal_error`] is: a wrong setting, or a failure that may pass.
pub(super) fn is_open<C>(quorum: &QuorumInfo, attempt: &Attempt<C>) -> bool {
    let missing = attempt.said.iter().filter(|said| said.is_none()).count();
    let failed = failed(quorum, attempt);
    let kinds: Vec<_> = failed.iter().map(|error| error.kind).collect();
    is_undecided(&kinds, missing, quorum.nodes.len())
}

/// Why there is no majority.
pub(super) fn refusal_error<C>(
    quorum: &QuorumInfo,
    attempt: &Attempt<C>,
    refusal: Refusal,
) -> StoreError {
    let failed = failed(quorum, attempt);
    let mut error = if refusal == Refusal::ClocksApart {
        let why = "the clocks of the nodes are over 10 s apart; the doctor shows them";
        StoreError::new(&quorum.label, StoreErrorKind::Unavailable, why)
    } else {
        without_majority(failed.iter(), quorum.nodes.len(), &quorum.label)
    };
    let is_unknown = failed.iter().any(|error| error.may_have_taken_effect);
    error.may_have_taken_effect = is_unknown || attempt.may_be_queued();
    error
}

/// The answer of a node to a step that is no proposal: its refusal of a client that counts another quorum is an error.
pub(super) fn answer_of(node: &str, answer: Answer, own: QuorumTerms) -> Answer {
    match answer {
        Ok(Reply::NoVote(reason)) => match kind(reason) {
            Some(kind) => Err(StoreError::new(node, kind, why(reason, own))),
            None => Ok(Reply::NoVote(reason)),
        },
        answer => answer,
    }
}

/// The kind of the error for a node that gave no vote. `None` for fences out of its bounds: another round may have others.
fn kind(reason: NoVote) -> Option<StoreErrorKind> {
    match reason {
        NoVote::Behind(_) | NoVote::NotRaised(_) => None,
        NoVote::Quarantined(_) => Some(StoreErrorKind::Unavailable),
        NoVote::OtherTerms(_) | NoVote::NotANode => Some(StoreErrorKind::Misconfigured),
    }
}

/// The reason for which a node gave no vote, in a sentence.
fn why(reason: NoVote, own: QuorumTerms) -> String {
    match reason {
        NoVote::Behind(_) | NoVote::NotRaised(_) => "this node accepts other fences only".into(),
        NoVote::Quarantined(left) => format!(
            "this node is new or has lost its data, and gives no vote for another {left:.1?}, until all locks from before have ended"
        ),
        NoVote::OtherTerms(other) => {
            let shown = |terms: QuorumTerms| {
                let ttl = terms.longest_ttl.get();
                format!("{} nodes with leases of at most {ttl:?}", terms.nodes)
            };
            format!(
                "this node belongs to a quorum of {}, and this client counts {}; all clients of a quorum must agree",
                shown(other),
                shown(own)
            )
        }
        NoVote::NotANode => "this store is no node of a quorum".into(),
    }
}
