//! The refusals of nodes, and the error of an acquisition for which no majority can be had.

use leasehold_core::Reply;
use leasehold_core::quorum::{NoVote, QuorumTerms, Refusal};

use super::attempt::{Attempt, NodeReply};
use super::judge::{is_undecided, telling, without_majority};
use super::machine::QuorumInfo;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Answer;

/// The error of a request whose owner has sent another one, before the answer was known.
pub(super) fn superseded(label: &str) -> StoreError {
    let why = "a later request of this owner took its place";
    StoreError::new(label, StoreErrorKind::Unavailable, why).unknown()
}

/// A node that gave no vote for a reason that an error may tell.
struct Refused {
    node: usize,
    reason: NoVote,
    kind: StoreErrorKind,
}

/// The nodes that gave no vote.
fn refused<C>(attempt: &Attempt<C>) -> impl Iterator<Item = Refused> {
    let said = attempt.said.iter().enumerate();
    said.filter_map(|(node, said)| match said {
        Some(NodeReply::NoVote(reason)) => Some(Refused {
            node,
            reason: *reason,
            kind: kind(*reason)?,
        }),
        _ => None,
    })
}

/// The errors of the nodes that failed.
fn failed<C>(attempt: &Attempt<C>) -> impl Iterator<Item = &StoreError> + Clone {
    attempt.said.iter().flatten().filter_map(|said| match said {
        NodeReply::Failed(error) => Some(error),
        _ => None,
    })
}

/// The kinds of both, in this order.
fn kinds<C>(attempt: &Attempt<C>) -> Vec<StoreErrorKind> {
    let kinds = refused(attempt).map(|refused| refused.kind);
    kinds
        .chain(failed(attempt).map(|error| error.kind))
        .collect()
}

/// Whether another node decides which error [`refusal_error`] is: a wrong setting, or a failure that may pass.
pub(super) fn is_open<C>(quorum: &QuorumInfo, attempt: &Attempt<C>) -> bool {
    let missing = attempt.said.iter().filter(|said| said.is_none()).count();
    is_undecided(&kinds(attempt), missing, quorum.nodes.len())
}

/// Why there is no majority.
pub(super) fn refusal_error<C>(
    quorum: &QuorumInfo,
    attempt: &Attempt<C>,
    refusal: Refusal,
) -> StoreError {
    let failed = failed(attempt);
    let told = telling(&kinds(attempt), quorum.nodes.len());
    let is_unknown = failed.clone().any(|error| error.may_have_taken_effect);
    let mut error = if refusal == Refusal::ClocksApart {
        let why = "the clocks of the nodes are over 10 s apart; the doctor shows them";
        StoreError::new(&quorum.label, StoreErrorKind::Unavailable, why)
    } else if let Some(refused) = told.and_then(|at| refused(attempt).nth(at)) {
        let node = &quorum.nodes[refused.node];
        let why = why(refused.reason, quorum.terms);
        StoreError::new(&quorum.label, refused.kind, format!("{node}: {why}"))
    } else {
        without_majority(failed, quorum.nodes.len(), &quorum.label)
    };
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
