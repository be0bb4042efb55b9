//! The outcome of marking the nodes of a quorum.

use std::time::Duration;

/// The outcome of an initialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuorumInit {
    /// The servers were marked as those of a new quorum, and vote at once.
    New,
    /// They were marked before, for these terms. Nothing was changed.
    Already {
        /// How long a server still gives no vote, if it was marked after a loss of its data.
        votes_in: Duration,
    },
    /// They were marked anew, and vote after this time.
    Again {
        /// How long no lock is granted.
        votes_in: Duration,
    },
}
