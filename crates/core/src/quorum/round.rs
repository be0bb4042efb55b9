//! The client's part of a quorum: the choice of fences to propose, and the count of the votes for one proposal.

use crate::fence::{Acceptable, Block, Fence, Fences};
use crate::step::{NoVote, Reply};

/// Chooses numbers near the clocks of the nodes. It learns how far the client's clock is from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proposer {
    /// Added to the client's clock, in microseconds.
    lead_us: i64,
    /// The number above the last proposal.
    next: u64,
}

impl Proposer {
    /// Chooses fences at `wall_us` on the client's clock. They are above the last ones, unless the bounds of another round demand a
    /// lower number.
    pub fn propose(&mut self, block: Block, wall_us: u64, bounds: Option<Acceptable>) -> Fences {
        let mut first = wall_us.saturating_add_signed(self.lead_us).max(self.next);
        if let Some(Acceptable { least, most }) = bounds {
            first = first.max(least.get()).min(most.get());
        }
        // Above it, a number counts as lost.
        first = first.min(Fence::MAX.get() - 2 * Block::MOST.get());
        let fences = Fences {
            first: Fence::new(first),
            block,
        };
        self.next = fences.last().get() + 1;
        fences
    }

    /// Learns the bounds of the nodes at `wall_us`, so that the next proposal is within them.
    pub fn learn(&mut self, wall_us: u64, bounds: Acceptable) {
        let from_clock = |fence: Fence| {
            let distance = i64::try_from(fence.get().abs_diff(wall_us)).unwrap_or(i64::MAX);
            if fence.get() < wall_us {
                -distance
            } else {
                distance
            }
        };
        self.lead_us = self
            .lead_us
            .max(from_clock(bounds.least))
            .min(from_clock(bounds.most));
    }
}

/// One round of an acquisition: a proposal that was sent to all nodes, and their votes so far.
///
/// A further round of the same acquisition replaces it. Replies to another number do not count (QR5). The client counts the validity of
/// its lease from the first round's first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    proposed: Fences,
    votes: Vec<Count>,
    /// The client gives back its votes, or has done so (QR9).
    refused: Option<Refusal>,
}

/// One node's vote, as far as it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// No reply yet.
    Open,
    /// It holds exactly the proposed fences for the owner.
    For,
    /// It would vote for a number within these bounds.
    Behind(Acceptable),
    /// It holds other fences for the owner, and would raise them to a number within these bounds. The client comes back to it only if
    /// the other nodes are too few.
    Higher(Acceptable),
    /// Another owner holds the lock there.
    Busy,
    /// It gives no vote, or has not replied in time.
    None,
}

/// The decision of a round so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// More votes are needed.
    Open,
    /// A majority stores exactly the proposed fences: the owner holds the lock (QR6).
    Certified,
    /// A majority would vote for another number: begin another round with one within these bounds, at all nodes.
    Again(Acceptable),
    /// No majority can be had now. The client gives back its votes, and later ones do not count (QR9).
    Refused(Refusal),
}

/// The reason for a missing majority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// Other owners hold the lock on so many nodes.
    Busy,
    /// Too many nodes gave no vote.
    Unavailable,
    /// No number is acceptable to a majority: the clocks of its nodes are too far apart.
    ClocksApart,
}

impl Round {
    /// Begins a round in which the client proposes these fences to so many nodes.
    pub fn new(nodes: u8, proposed: Fences) -> Self {
        Self {
            proposed,
            votes: vec![Count::Open; usize::from(nodes)],
            refused: None,
        }
    }

    /// The number of nodes that a certificate needs.
    pub fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    /// Counts the reply of a node to the proposal `asked`. A reply to another proposal, or of an unknown node, counts as none (QR5).
    pub fn heard(&mut self, node: usize, asked: Fence, reply: &Reply) -> Verdict {
        if asked == self.proposed.first {
            let count = match reply {
                Reply::Held(held) if held.fence == Some(asked) => Count::For,
                Reply::Held(held) => held.fence.map_or(Count::None, |first| {
                    let block = held.block;
                    Count::Higher(above(Fences { first, block }))
                }),
                Reply::NoVote(NoVote::Behind(bounds) | NoVote::NotRaised(bounds)) => {
                    Count::Behind(*bounds)
                }
                Reply::Busy(_) => Count::Busy,
                _ => Count::None,
            };
            self.count(node, count);
        }
        self.verdict()
    }

    /// Records that a node did not reply in time, or failed.
    pub fn silent(&mut self, node: usize) -> Verdict {
        if self.votes.get(node) == Some(&Count::Open) {
            self.count(node, Count::None);
        }
        self.verdict()
    }

    /// The highest number that is not too far ahead of the clocks of a majority, if a majority has told its bounds. A client that
    /// proposes higher ones raises the counters of the fast nodes again and again, and the slow ones never follow.
    pub fn most(&self) -> Option<Fence> {
        let most = self.votes.iter().filter_map(|vote| match vote {
            Count::Behind(bounds) | Count::Higher(bounds) => Some(bounds.most),
            Count::For => Some(Fence::MAX),
            Count::Open | Count::Busy | Count::None => None,
        });
        let mut most: Vec<Fence> = most.collect();
        most.sort_unstable_by(|one, other| other.cmp(one));
        most.get(self.majority() - 1).copied()
    }

    fn count(&mut self, node: usize, count: Count) {
        if let Some(vote) = self.votes.get_mut(node) {
            *vote = count;
        }
    }

    fn verdict(&mut self) -> Verdict {
        let verdict = self.refused.map_or_else(|| self.judge(), Verdict::Refused);
        if let Verdict::Refused(refusal) = verdict {
            self.refused = Some(refusal);
        }
        verdict
    }

    fn judge(&self) -> Verdict {
        let number =
            |count: fn(&Count) -> bool| self.votes.iter().filter(|vote| count(vote)).count();
        let certain = number(|vote| matches!(vote, Count::For));
        let open = number(|vote| matches!(vote, Count::Open));
        let behind = number(|vote| matches!(vote, Count::Behind(_)));
        if certain >= self.majority() {
            return Verdict::Certified;
        }
        if let Some(bounds) = self.next_bounds(false) {
            return Verdict::Again(bounds);
        }
        let higher = number(|vote| matches!(vote, Count::Higher(_)));
        let behind = behind + higher;
        if open > 0 && certain + behind + open >= self.majority() {
            return Verdict::Open;
        }
        if let Some(bounds) = self.next_bounds(true) {
            return Verdict::Again(bounds);
        }
        let busy = number(|vote| matches!(vote, Count::Busy));
        if certain + behind >= self.majority() {
            // If the nodes that agree on a number lack those of another owner only, the lock is busy.
            let alike = self.accepted_by_most(true).map_or(0, |(alike, _)| alike);
            let is_busy = alike + busy >= self.majority();
            return Verdict::Refused(if is_busy {
                Refusal::Busy
            } else {
                Refusal::ClocksApart
            });
        }
        if certain + behind + busy >= self.majority() {
            return Verdict::Refused(Refusal::Busy);
        }
        // The next replies tell a busy lock from a quorum without a majority.
        if certain + behind + busy + open >= self.majority() {
            return Verdict::Open;
        }
        Verdict::Refused(Refusal::Unavailable)
    }

    /// Looks for numbers that a majority accepts. With `all`, also at nodes with higher fences.
    fn next_bounds(&self, all: bool) -> Option<Acceptable> {
        let (number, bounds) = self.accepted_by_most(all)?;
        (number >= self.majority()).then_some(bounds)
    }

    /// The numbers that most nodes accept, and how many these are.
    fn accepted_by_most(&self, all: bool) -> Option<(usize, Acceptable)> {
        let accepts = |vote: &Count| match vote {
            Count::Behind(bounds) => Some(*bounds),
            // It holds this round's fences, and accepts higher ones only.
            Count::For => Some(above(self.proposed)),
            Count::Higher(bounds) => Some(*bounds).filter(|_| all),
            Count::Open | Count::Busy | Count::None => None,
        };
        let nodes: Vec<Acceptable> = self.votes.iter().filter_map(accepts).collect();
        let mut best = None;
        for least in nodes.iter().map(|bounds| bounds.least) {
            let takes = |bounds: &&Acceptable| bounds.least <= least && least <= bounds.most;
            let number = nodes.iter().filter(takes).count();
            let most = nodes.iter().filter(takes).map(|bounds| bounds.most).min();
            if let Some(most) = most
                && best.is_none_or(|(others, _)| number > others)
            {
                best = Some((number, Acceptable { least, most }));
            }
        }
        best
    }
}

/// The numbers above these fences.
fn above(fences: Fences) -> Acceptable {
    Acceptable {
        least: Fence::new(fences.last().get() + 1),
        most: Fence::MAX,
    }
}
