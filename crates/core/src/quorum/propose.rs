//! A node's vote on a proposal.

use super::mark::{AHEAD, Mark};
use crate::fence::Counter;
use crate::proposal::{NoVote, Proposal};
use crate::state::{LockState, Mode};
use crate::step::{Outcome, Reply};
use crate::time::Now;
use crate::turn::{Presence, Request, Turn};

/// [`AHEAD`] in microseconds.
const AHEAD_US: u64 = 1_000_000 * AHEAD.as_secs();

impl LockState {
    /// Votes on a proposal at `now`. `mark` is the mark of the node, `counter` counts the fences of the name.
    pub(crate) fn vote(
        &mut self,
        counter: &mut Counter,
        mark: &mut Option<Mark>,
        now: Now,
        proposal: &Proposal,
        presence: &dyn Presence,
    ) -> Outcome {
        let mut turn = Turn::new(self, counter, now, presence);
        let reply = turn.propose(proposal, mark).unwrap_or_else(Reply::NoVote);
        turn.end(reply)
    }
}

impl Turn<'_> {
    /// Grants the lock with exactly the proposed fences, raises the fences of the owner's hold to them, or changes neither.
    ///
    /// The order of the checks is that of the scripts.
    fn propose(&mut self, proposal: &Proposal, mark: &mut Option<Mark>) -> Result<Reply, NoVote> {
        let Proposal {
            owner,
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
        if self.counter.is_lost() {
            let mark = mark.get_or_insert(Mark {
                terms: *terms,
                made_at_ms: self.now.millis(),
            });
            if let Some(left) = mark.quarantined_for(self.now) {
                return Err(NoVote::Quarantined(left));
            }
            floor_us = mark.floor_us();
        }
        self.advance(Some(owner));
        let wall_us = self.now.wall_us;
        let most_us = wall_us.saturating_add(AHEAD_US);
        if let Some(at) = self.holder(owner) {
            // A repeat, a claim, or a raise by the holder; never a way to take the lock (QR7). A hold that is not raised is not
            // extended: its owner may have given it back, and would keep it by asking. A late proposal shortens no renewed hold (QR6).
            let holder = &mut self.lock.holders[at];
            let before_ms = holder.expires_at_ms;
            if fences.first > holder.fences.first {
                (self.counter.accept(*fences, wall_us, most_us)).map_err(NoVote::NotRaised)?;
                holder.fences = *fences;
            }
            let held = self.hold_until(at, *ttl);
            let expires = &mut self.lock.holders[at].expires_at_ms;
            *expires = before_ms.max(*expires);
            return Ok(Reply::Held(held));
        }
        if !self.admits(Mode::Exclusive) {
            let request = Request {
                mode: Mode::Exclusive,
                ttl: *ttl,
                block: fences.block,
            };
            return Ok(Reply::Busy(self.refuse(owner, request, *wait)));
        }
        (self.counter.accept(*fences, floor_us, most_us)).map_err(NoVote::Behind)?;
        self.grant_with(owner, Mode::Exclusive, *ttl, *fences);
        Ok(Reply::Held(self.held(*fences)))
    }
}
