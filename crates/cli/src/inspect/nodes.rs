//! The views of the nodes of a quorum: as text where they differ from the verdict, and as JSON. Pure.

use leasehold::{Fence, HolderIdentity, HolderView, InspectedNodes, NodeView, Snapshot};
use serde::Serialize;

use crate::messages::who;
use crate::view::{HolderJson, foreign, is_cache_entry, millis};

/// A lock as one node sees it, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct NodeJson<'a> {
    node: &'a str,
    state: &'static str,
    holder: Option<HolderJson>,
    fence: Option<u64>,
    lease_ms: Option<u64>,
    /// The number of waiters; `None` if the node did not tell.
    queue: Option<usize>,
    error: Option<String>,
}

impl<'a> NodeJson<'a> {
    pub(crate) fn of(view: &'a NodeView) -> Self {
        let seen = view.seen.as_ref();
        let holder = seen.ok().and_then(|seen| seen.holder.as_ref());
        Self {
            node: &view.node,
            state: match (seen, holder) {
                (Err(_), _) => "unknown",
                (Ok(_), Some(_)) => "held",
                (Ok(_), None) => "free",
            },
            holder: holder.map(|holder| HolderJson::of(&holder.who)),
            fence: holder.and_then(|holder| holder.fence).map(Fence::get),
            lease_ms: holder.and_then(|holder| holder.expires_in).map(millis),
            queue: seen.ok().map(|seen| seen.queue.len()),
            error: seen.err().map(ToString::to_string),
        }
    }
}

/// The votes for the holder, for people: `2 of 3`; `None` if the lock is free.
pub(crate) fn votes(inspected: &InspectedNodes) -> Option<String> {
    let holder = inspected.lock.as_ref().ok()?.holder.as_ref();
    holder.map(|_| format!("{} of {}", inspected.votes(), inspected.nodes.len()))
}

/// One line for each node that sees another holder or another fence than the verdict, or that did not answer.
pub(crate) fn differing(inspected: &InspectedNodes) -> Vec<String> {
    let verdict = inspected.lock.as_ref().ok().and_then(named);
    let line = |view: &NodeView| match &view.seen {
        Ok(seen) if named(seen) == verdict => None,
        Ok(seen) => {
            let said = seen.holder.as_ref().map_or_else(|| "free".into(), holder);
            Some(format!("{}: {said}", view.node))
        }
        // Errors begin with the address.
        Err(error) => Some(error.to_string()),
    };
    inspected.nodes.iter().filter_map(line).collect()
}

/// The part of a holder in which all nodes of a certificate agree.
fn named(seen: &Snapshot) -> Option<(&HolderIdentity, Option<Fence>)> {
    let holder = seen.holder.as_ref()?;
    Some((&holder.who, holder.fence))
}

fn holder(holder: &HolderView) -> String {
    let said = match &holder.who {
        HolderIdentity::Foreign { kind, value } if !is_cache_entry(kind, value) => {
            format!("a foreign lock: {}", foreign(kind, value))
        }
        _ => who(holder),
    };
    match holder.fence {
        Some(fence) => format!("{said}, fence {fence}"),
        None => said,
    }
}
