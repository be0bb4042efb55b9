//! The mark of a node: it tells a node that lost its memory, and clients that count another quorum.

use std::time::Duration;

use crate::proposal::QuorumTerms;
use crate::time::{Now, Ttl, millis};

/// How far ahead of a node's clock a proposed fence may be. Clocks that differ by more cannot use one quorum.
pub const AHEAD: Duration = Duration::from_secs(10);

/// The record of a node that it belongs to a quorum, and since when. It has no TTL, so only a loss of the node's memory removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The terms of the quorum.
    pub terms: QuorumTerms,
    /// When the mark was made, in milliseconds on the node's clock; 0 for a new quorum, whose nodes have nothing to forget.
    pub made_at_ms: u64,
}

/// How long a node that lost its memory gives no vote. Its old holds end within the longest TTL, and its clock passes all fences that it
/// had accepted within [`AHEAD`] (QR4).
pub fn quarantine(longest_ttl: Ttl) -> Duration {
    const MARGIN: Duration = Duration::from_secs(1);
    const LEAST: Duration = Duration::from_secs(13);
    (longest_ttl.get().max(AHEAD) + MARGIN).max(LEAST)
}

impl Mark {
    /// The lowest fence that a counter without a number accepts, in microseconds. It is above all that the node accepted before it
    /// lost its memory (QR4). A new quorum has no such fences.
    pub fn floor_us(self) -> u64 {
        1_000 * self.quarantine_ends_at_ms()
    }

    fn quarantine_ends_at_ms(self) -> u64 {
        match self.made_at_ms {
            0 => 0,
            made_at_ms => {
                let quarantine_ms = millis(quarantine(self.terms.longest_ttl));
                made_at_ms
                    .saturating_add(quarantine_ms)
                    .min(u64::MAX / 1_000)
            }
        }
    }

    /// How long the quarantine of this node still lasts, if it does.
    pub fn quarantined_for(self, now: Now) -> Option<Duration> {
        let left = self.quarantine_ends_at_ms().saturating_sub(now.millis());
        (left > 0).then(|| Duration::from_millis(left))
    }
}
