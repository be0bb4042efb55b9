//! A lock as each node of its store sees it.

use leasehold_core::{Reply, Snapshot};

use crate::error::{StoreError, StoreErrorKind};

/// A lock as each node of its store sees it: [`Client::inspect_nodes`](crate::Client::inspect_nodes).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedNodes {
    /// The verdict of the majority, from the views in `nodes`; an error if too few nodes answered.
    pub lock: Result<Snapshot, StoreError>,
    /// The views of the nodes, in the order of the URL. A store that is no quorum is its own only node.
    pub nodes: Vec<NodeView>,
}

/// A lock as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The address of the node, without user and password.
    pub node: String,
    /// The holder and the waiters at this node. In a quorum only one node has the waiters.
    pub seen: Result<Snapshot, StoreError>,
}

impl InspectedNodes {
    /// Makes the views of a lock, for tests and tools.
    pub const fn new(lock: Result<Snapshot, StoreError>, nodes: Vec<NodeView>) -> Self {
        Self { lock, nodes }
    }

    /// How many nodes hold the lock for the holder of the verdict. 0 if the lock is free.
    ///
    /// A lease needs a majority. It may have fewer votes than nodes: a node was down, or has lost its data, since the lease was granted.
    /// Later renewals ask such a node again, and it may then hold the lock under a higher fence.
    pub fn votes(&self) -> usize {
        let Ok(Snapshot {
            holder: Some(holder),
            ..
        }) = &self.lock
        else {
            return 0;
        };
        let votes = |view: &&NodeView| {
            let seen = view.seen.as_ref().ok();
            let other = seen.and_then(|seen| seen.holder.as_ref());
            other.is_some_and(|other| other.who == holder.who)
        };
        self.nodes.iter().filter(votes).count()
    }

    /// The view of a store that is its own only node.
    pub(super) fn of_one(label: &str, answer: Result<Reply, StoreError>) -> Self {
        let lock = snapshot(label, answer);
        let view = NodeView::new(label, lock.clone());
        Self::new(lock, vec![view])
    }
}

impl NodeView {
    /// Makes the view of a node, for tests and tools.
    pub fn new(node: impl Into<String>, seen: Result<Snapshot, StoreError>) -> Self {
        let node = node.into();
        Self { node, seen }
    }
}

/// The snapshot in the answer to a look.
pub(crate) fn snapshot(
    label: &str,
    answer: Result<Reply, StoreError>,
) -> Result<Snapshot, StoreError> {
    match answer? {
        Reply::Seen(snapshot) => Ok(snapshot),
        other => {
            let other = format!("{other:?}");
            Err(StoreError::new(label, StoreErrorKind::Protocol, other))
        }
    }
}
