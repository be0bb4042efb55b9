//! A node of a quorum: its mark, its fence counters, and its vote on a proposal.
//!
//! The mark tells a node that lost its memory, and clients that count another quorum.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fence::{Acceptable, Block, Counter, Fences};
use crate::lock::{LockState, Presence, Request, Turn};
use crate::name::{LockName, crc16};
use crate::state::Mode;
use crate::step::{NoVote, Outcome, Proposal, QuorumTerms, Reply, Step};
use crate::time::{Now, Ttl, millis};

/// How far ahead of a node's clock a proposed fence may be. Clocks that differ by more cannot use one quorum.
pub const AHEAD: Duration = Duration::from_secs(10);

/// [`AHEAD`] in microseconds.
const AHEAD_US: u64 = 1_000_000 * AHEAD.as_secs();

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

/// How many fence counters a node has. Names of other buckets do not raise the counter of a name.
pub const BUCKETS: u16 = 1_024;

/// The bucket of a name: CRC-16/XMODEM of its key, as the slots of Redis Cluster use it, modulo 1,024.
pub fn bucket(name: &LockName) -> u16 {
    crc16(name.key()) % BUCKETS
}

/// A node's counters and its mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMemory {
    counters: BTreeMap<u16, Counter>,
    /// The mark; `None` on a node that is new or has lost its memory.
    pub mark: Option<Mark>,
}

impl NodeMemory {
    /// The memory of a node with this mark.
    pub(crate) fn marked(mark: Option<Mark>) -> Self {
        Self {
            mark,
            ..Self::default()
        }
    }

    /// The fence counter of a name.
    pub fn counter(&mut self, name: &LockName) -> &mut Counter {
        self.counters.entry(bucket(name)).or_default()
    }

    pub(crate) fn of(&mut self, name: &LockName) -> (&mut Counter, &mut Option<Mark>) {
        let counter = self.counters.entry(bucket(name)).or_default();
        (counter, &mut self.mark)
    }
}

/// The release that is meant where a node has raised the hold of an owner by a repair: by the fence of its grant, the owner releases that
/// hold, too. Owners are used once. `None` if the step stays as it is.
pub(crate) fn raised(lock: &LockState, step: &Step) -> Option<Step> {
    let Step::Release {
        owner,
        keep,
        fence: Some(fence),
    } = step
    else {
        return None;
    };
    let hold = lock.holders.iter().find(|hold| hold.owner == *owner)?;
    (hold.number() > *fence).then(|| Step::Release {
        owner: owner.clone(),
        keep: *keep,
        fence: Some(hold.number()),
    })
}

/// Votes on a proposal at `now`. `mark` is the mark of the node, `counter` counts the fences of the name.
pub(crate) fn vote(
    lock: &mut LockState,
    counter: &mut Counter,
    mark: &mut Option<Mark>,
    now: Now,
    proposal: &Proposal,
    presence: &dyn Presence,
) -> Outcome {
    let mut turn = Turn::new(lock, counter, now, presence);
    let reply = propose(&mut turn, proposal, mark).unwrap_or_else(Reply::NoVote);
    turn.end(reply)
}

/// Grants the lock with exactly the proposed fences, raises the fences of the owner's hold to them, or changes neither.
///
/// The order of the checks is that of the scripts.
fn propose(
    turn: &mut Turn<'_>,
    proposal: &Proposal,
    mark: &mut Option<Mark>,
) -> Result<Reply, NoVote> {
    let Proposal {
        owner,
        is_shared,
        ttl,
        fences,
        terms,
        wait,
    } = proposal;
    // Clients that count differently share no majority.
    if let Some(other) = mark.filter(|mark| mark.terms != *terms) {
        return Err(NoVote::OtherTerms(other.terms));
    }
    // A counter that exists proves that the node remembers (QR8). Without it, also a hold may have come with other data.
    let mut floor_us = 0;
    if turn.counter.is_lost() {
        let mark = mark.get_or_insert(Mark {
            terms: *terms,
            made_at_ms: turn.now.millis(),
        });
        if let Some(left) = mark.quarantined_for(turn.now) {
            return Err(NoVote::Quarantined(left));
        }
        floor_us = mark.floor_us();
    }
    let place = turn.advance(Some(owner));
    let wall_us = turn.now.wall_us;
    if let Some(at) = turn.holder(owner) {
        // A repeat, a claim, or a raise by the holder; never a way to take the lock (QR7). A hold that is not raised is not
        // extended: its owner may have given it back, and would keep it by asking. A late proposal shortens no renewed hold (QR6).
        let before_ms = turn.lock.holders[at].expires_at_ms;
        if fences.first > turn.lock.holders[at].number() {
            let acceptable = acceptable(turn, wall_us);
            (turn.counter.accept(*fences, acceptable)).map_err(NoVote::NotRaised)?;
            let holder = &mut turn.lock.holders[at];
            if holder.mode == Mode::Shared {
                holder.vote = Some(fences.first);
            } else {
                holder.fences = *fences;
            }
        }
        let held = turn.hold_until(at, *ttl);
        let expires = &mut turn.lock.holders[at].expires_at_ms;
        *expires = before_ms.max(*expires);
        return Ok(Reply::Held(held));
    }
    let mode = proposal.mode();
    if !turn.admits(mode) || place < turn.lock.queue.len() {
        let (ttl, block) = (*ttl, fences.block);
        let request = Request { mode, ttl, block };
        return Ok(Reply::Busy(Box::new(turn.refuse(owner, request, *wait))));
    }
    let acceptable = acceptable(turn, floor_us);
    let of_phase = turn.lock.holders.first().map(|reader| reader.fences);
    (turn.counter.accept(*fences, acceptable)).map_err(NoVote::Behind)?;
    if !is_shared {
        let at = turn.grant_with(owner, mode, *ttl, *fences);
        return Ok(Reply::Held(turn.held(at)));
    }
    let of_phase = of_phase.unwrap_or(Fences {
        first: acceptable.least,
        block: Block::ONE,
    });
    let at = turn.grant_with(owner, mode, *ttl, of_phase);
    turn.lock.holders[at].vote = Some(fences.first);
    Ok(Reply::Held(turn.held(at)))
}

/// The numbers that the node accepts. Readers that hold may be joined by any number above the exclusive fences before them (QR10):
/// with numbers above each other's, readers that ask at once would shut each other out.
fn acceptable(turn: &Turn<'_>, floor_us: u64) -> Acceptable {
    let most_us = turn.now.wall_us.saturating_add(AHEAD_US);
    let counted = turn.counter.acceptable(floor_us, most_us);
    let mut readers = turn.lock.holders.iter();
    let of_phase = readers.find(|holder| holder.mode == Mode::Shared);
    let least = match of_phase.map(|reader| reader.fences.first) {
        None => counted.least,
        Some(least) if turn.counter.is_lost() => least.max(counted.least),
        Some(least) => least,
    };
    Acceptable { least, ..counted }
}
