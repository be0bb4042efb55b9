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

/// The refusals of the nodes that gave no vote, each with its node.
fn reasons<C>(quorum: &QuorumInfo, attempt: &Attempt<C>) -> Vec<(StoreErrorKind, String)> {
    let said = attempt.said.iter().zip(&quorum.nodes);
    let reasons = said.filter_map(|(said, node)| match said {
        Some(NodeReply::NoVote(reason)) => {
            told(*reason, quorum.terms).map(|(kind, why)| (kind, format!("{node}: {why}")))
        }
        _ => None,
    });
    reasons.collect()
}

/// The errors of the nodes that failed.
fn failed<C>(attempt: &Attempt<C>) -> impl Iterator<Item = &StoreError> + Clone {
    attempt.said.iter().flatten().filter_map(|said| match said {
        NodeReply::Failed(error) => Some(error),
        _ => None,
    })
}

/// The kinds of both, in this order.
fn kinds<C>(reasons: &[(StoreErrorKind, String)], attempt: &Attempt<C>) -> Vec<StoreErrorKind> {
    let kinds = reasons.iter().map(|(kind, _)| *kind);
    kinds
        .chain(failed(attempt).map(|error| error.kind))
        .collect()
}

/// Whether another node decides which error [`refusal_error`] is: a wrong setting, or a failure that may pass.
pub(super) fn is_open<C>(quorum: &QuorumInfo, attempt: &Attempt<C>) -> bool {
    let missing = attempt.said.iter().filter(|said| said.is_none()).count();
    let kinds = kinds(&reasons(quorum, attempt), attempt);
    is_undecided(&kinds, missing, quorum.nodes.len())
}

/// Why there is no majority.
pub(super) fn refusal_error<C>(
    quorum: &QuorumInfo,
    attempt: &Attempt<C>,
    refusal: Refusal,
) -> StoreError {
    let failed = failed(attempt);
    let reasons = reasons(quorum, attempt);
    let told = telling(&kinds(&reasons, attempt), quorum.nodes.len());
    let is_unknown = failed.clone().any(|error| error.may_have_taken_effect);
    let mut error = if refusal == Refusal::ClocksApart {
        let why = "the clocks of the nodes are over 10 s apart; the doctor shows them";
        StoreError::new(&quorum.label, StoreErrorKind::Unavailable, why)
    } else if let Some((kind, why)) = told.and_then(|at| reasons.get(at)) {
        StoreError::new(&quorum.label, *kind, why)
    } else {
        without_majority(failed, quorum.nodes.len(), &quorum.label)
    };
    error.may_have_taken_effect = is_unknown || attempt.may_be_queued();
    error
}

/// The answer of a node to a step that is no proposal: its refusal of a client that counts another quorum is an error.
pub(super) fn answer_of(node: &str, answer: Answer, own: QuorumTerms) -> Answer {
    match answer {
        Ok(Reply::NoVote(reason)) => match told(reason, own) {
            Some((kind, why)) => Err(StoreError::new(node, kind, why)),
            None => Ok(Reply::NoVote(reason)),
        },
        answer => answer,
    }
}

/// The reason for which a node gave no vote, for an error.
fn told(reason: NoVote, own: QuorumTerms) -> Option<(StoreErrorKind, String)> {
    match reason {
        NoVote::Behind(_) | NoVote::NotRaised(_) => None,
        NoVote::Quarantined(left) => {
            let why = format!(
                "this node is new or has lost its data, and gives no vote for another {left:.1?}, until all locks from before have ended"
            );
            Some((StoreErrorKind::Unavailable, why))
        }
        NoVote::OtherTerms(other) => {
            let shown = |terms: QuorumTerms| {
                let ttl = terms.longest_ttl.get();
                format!("{} nodes with leases of at most {ttl:?}", terms.nodes)
            };
            let why = format!(
                "this node belongs to a quorum of {}, and this client counts {}; all clients of a quorum must agree",
                shown(other),
                shown(own)
            );
            Some((StoreErrorKind::Misconfigured, why))
        }
        NoVote::NotANode => Some((
            StoreErrorKind::Misconfigured,
            "this store is no node of a quorum".into(),
        )),
    }
}
