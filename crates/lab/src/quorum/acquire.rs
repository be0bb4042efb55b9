//! The client's part of an acquisition, in the order in which the store of a quorum takes its decisions: proposals, core's
//! round, and its verdicts.

use leasehold_core::quorum::{NoVote, Refusal, Verdict};
use leasehold_core::{Fence, HolderIdentity, Reply};

use super::model::{ClientRules, Counting, QuorumTurn};
use super::round::{behind, verdict};
use super::setup::{QuorumFault, QuorumSituation, Recalls};
use super::state::{Attempting, NODES, QuorumPhase, Said, put};
use crate::frame::CallId;

impl QuorumTurn<'_> {
    /// The client asks for the lock.
    pub(super) fn acquire(&mut self, client: u8, is_claim: bool) -> Option<()> {
        let fence = self.choose(client, None);
        let above = self.state.books.highest;
        let waits = self.model.setup.waits && !is_claim;
        let it = self.state.client_mut(client);
        it.keeps_votes = false;
        it.phase = QuorumPhase::Acquiring;
        it.ghost = None;
        it.attempt = Some(Attempting {
            fence,
            age: 0,
            above,
            rounds: 1,
            tries: 0,
            is_pausing: false,
            lead: it.lead(),
            waits,
            is_claim,
            said: [Said::Open; NODES],
            refused: None,
        });
        self.propose(client)
    }

    /// Sends the current proposal to all nodes. One that has an earlier one gets it afterwards.
    fn propose(&mut self, client: u8) -> Option<()> {
        let fence = self.state.client(client).attempt?.fence;
        self.is_in_bounds(fence)?;
        let mut nodes = self.state.client_mut(client).at.iter_mut();
        nodes.try_for_each(|at| put(&mut at.open, fence).then_some(()))
    }

    /// Begins the next round after a pause.
    pub(super) fn resume(&mut self, client: u8) -> Option<()> {
        let fence = self.choose(client, None);
        self.begin_round(client, fence)
    }

    fn begin_round(&mut self, client: u8, fence: u64) -> Option<()> {
        let attempt = self.state.client_mut(client).attempt.as_mut()?;
        attempt.fence = fence;
        attempt.is_pausing = false;
        attempt.said = [Said::Open; NODES];
        attempt.refused = None;
        self.propose(client)
    }

    /// A node has answered the proposal of `asked`; without a reply, the request has failed.
    pub(super) fn voted(
        &mut self,
        client: u8,
        node: usize,
        asked: u64,
        reply: Option<&Reply>,
    ) -> Option<()> {
        let it = self.state.client_mut(client);
        it.silent[node] = reply.is_none();
        let open = &mut it.at[node].open;
        *open = [open[1], 0];
        match reply {
            Some(Reply::Held(held)) => it.has_vote(node, held.fence.map_or(asked, Fence::get)),
            None if !it.may_have_vote(node, asked) => return None,
            _ => {}
        }
        self.heard(client, node, asked, reply)
    }

    fn heard(&mut self, client: u8, node: usize, asked: u64, reply: Option<&Reply>) -> Option<()> {
        let it = *self.state.client(client);
        if it.at[node].owed {
            return Some(());
        }
        let knows_waiters = match reply {
            Some(Reply::Held(held)) => held.queued > 0,
            Some(Reply::Busy(busy)) => busy.ahead > 0,
            _ => false,
        };
        let remembers = self.model.setup.recalls != Recalls::Nothing;
        self.state.client_mut(client).knows_waiters |= knows_waiters && remembers;
        let is_current = it.attempt.is_some_and(|attempt| {
            let counts_all = self.model.subject.rules.counting == Counting::EarlierRounds;
            attempt.fence == asked || counts_all && matches!(reply, Some(Reply::Held(_)))
        });
        if is_current {
            self.count(client, node, asked, reply)
        } else if it.attempt.is_some() {
            self.reached(QuorumSituation::OldAnswer);
            Some(())
        } else if it.certified > 0 {
            if let Some(Reply::NoVote(NoVote::Behind(bounds))) = reply
                && bounds.least.get() > it.certified
                && self.model.setup.may(QuorumFault::OtherFences)
            {
                let bounds = (bounds.least.get(), bounds.most.get());
                self.state.client_mut(client).at[node].beyond = Some(bounds);
            }
            Some(())
        } else if it.keeps_votes {
            Some(())
        } else {
            if matches!(reply, Some(Reply::Held(_))) {
                self.reached(QuorumSituation::LateVote);
            }
            self.give_back(client)
        }
    }

    /// Counts the answer to the current proposal.
    fn count(&mut self, client: u8, node: usize, asked: u64, reply: Option<&Reply>) -> Option<()> {
        let lead = self.state.client(client).attempt?.lead;
        let said = match reply {
            None => Said::Failed,
            Some(Reply::Held(held)) => match held.fence.map(Fence::get) {
                Some(fence) if fence != asked => Said::Higher(fence),
                _ => Said::For,
            },
            Some(Reply::NoVote(NoVote::Behind(bounds) | NoVote::NotRaised(bounds))) => {
                behind(*bounds)
            }
            Some(Reply::Busy(_)) if node != lead => Said::Busy(None),
            Some(Reply::Busy(busy)) => match &busy.holder.who {
                HolderIdentity::Owner(owner) => Said::Busy(self.model.subject.owner_id(owner)),
                HolderIdentity::Foreign { .. } => Said::Foreign {
                    others_wait: busy.ahead > 0,
                },
            },
            Some(_) => Said::NoVote,
        };
        let attempt = self.state.client_mut(client).attempt.as_mut()?;
        attempt.said[node] = said;
        let verdict = match attempt.refused {
            // A refused round is over (QR9).
            Some(refused) => Verdict::Refused(refused),
            None => verdict(attempt),
        };
        if let Verdict::Refused(refusal) = verdict {
            attempt.refused = Some(refusal);
        }
        match self.weakly(client) {
            Some(fence) => self.certified(client, fence),
            None => self.proceed(client, verdict),
        }
    }

    /// The fence of a lease by weaker rules.
    fn weakly(&self, client: u8) -> Option<u64> {
        let it = self.state.client(client);
        let attempt = it.attempt?;
        let votes = it.at.iter().map(|at| at.votes[0]).filter(|vote| *vote > 0);
        match self.model.subject.rules.counting {
            Counting::HighestVote if votes.clone().count() > NODES / 2 => votes.max(),
            Counting::Minority => {
                let is_for = attempt.said.contains(&Said::For);
                is_for.then_some(attempt.fence)
            }
            _ => None,
        }
    }

    fn proceed(&mut self, client: u8, verdict: Verdict) -> Option<()> {
        let attempt = self.state.client_mut(client).attempt.as_mut()?;
        match verdict {
            Verdict::Open => Some(()),
            Verdict::Certified => {
                let fence = attempt.fence;
                self.certified(client, fence)
            }
            Verdict::Again(bounds) if attempt.rounds < self.model.setup.rounds => {
                attempt.rounds += 1;
                let fence = self.choose(client, Some(bounds));
                self.begin_round(client, fence)
            }
            Verdict::Again(_) => self.refused(client, Refusal::ClocksApart),
            Verdict::Refused(refusal) => self.refused(client, refusal),
        }
    }

    /// A majority has voted for the owner. If the lead alone holds it for another, that one is first in line.
    fn certified(&mut self, client: u8, fence: u64) -> Option<()> {
        let (obeys, passes) = (
            self.is_weak(ClientRules::ObeysLead),
            self.is_weak(ClientRules::PassesWaiters),
        );
        let it = self.state.client_mut(client);
        let attempt = it.attempt?;
        let by_lead = attempt.by_lead();
        if by_lead == Said::Open && !attempt.is_claim && it.knows_waiters && !passes {
            // The lead knows whether others are first in line (V5).
            self.reached(QuorumSituation::AwaitedLead);
            return Some(());
        }
        let holder = match by_lead {
            Said::Busy(holder) => Some(holder),
            Said::Foreign { .. } => Some(None),
            _ => None,
        };
        // Another program is in no queue, so it is not first in line: it passes if no waiter is.
        let is_alone = by_lead == Said::Foreign { others_wait: false };
        if let Some(holder) = holder {
            let is_stuck = is_alone || it.stuck == Some((holder, true));
            if !is_stuck || obeys {
                if it.stuck.is_none_or(|(known, _)| known != holder) && !is_alone {
                    it.stuck = Some((holder, false));
                }
                return self.busy(client);
            }
            self.reached(if is_alone {
                QuorumSituation::PassedProgram
            } else {
                QuorumSituation::PassedStuckLead
            });
        } else {
            it.stuck = None;
        }
        self.hand_out(client, attempt, fence);
        Some(())
    }

    /// The client gets the lease, unless it would be over.
    fn hand_out(&mut self, client: u8, attempt: Attempting, fence: u64) {
        let ttl = self.model.setup.ttl;
        let it = self.state.client_mut(client);
        it.attempt = None;
        (it.certified, it.granted) = (fence, 0);
        let left = ttl - attempt.age;
        if left == 0 {
            self.reached(QuorumSituation::TooLate);
            self.leave(client);
            return;
        }
        let from_reply = self.is_weak(ClientRules::ValidFromReply);
        let it = self.state.client_mut(client);
        it.phase = QuorumPhase::Holding(if from_reply { ttl } else { left });
        let is_raised = attempt.rounds > 1;
        let has_lead = attempt.by_lead() == Said::For;
        self.reached(if is_raised {
            QuorumSituation::Raised
        } else {
            QuorumSituation::FirstRound
        });
        if !has_lead {
            self.reached(QuorumSituation::WithoutLead);
        }
        self.passed(client, &attempt);
        self.handed_out(client, attempt.above);
    }

    /// No majority can be had now.
    fn refused(&mut self, client: u8, refusal: Refusal) -> Option<()> {
        let it = self.state.client_mut(client);
        let attempt = it.attempt.as_mut()?;
        match (refusal, attempt.by_lead()) {
            // Its next answer decides whether this client may keep its votes.
            (Refusal::Busy, Said::Open) => Some(()),
            (Refusal::Busy, Said::For | Said::Higher(_)) => {
                // The time for further tries is shorter than a tick.
                if attempt.is_pausing {
                } else if attempt.tries < self.model.setup.tries && attempt.age == 0 {
                    attempt.tries += 1;
                    attempt.is_pausing = true;
                    self.reached(QuorumSituation::Split);
                } else {
                    return self.busy(client);
                }
                Some(())
            }
            (Refusal::Busy, _) => self.busy(client),
            (Refusal::Unavailable | Refusal::ClocksApart, _) => self.fail(client),
        }
    }

    /// The lock is busy. The client gives back its votes, unless it waits with the vote of the lead (V3).
    fn busy(&mut self, client: u8) -> Option<()> {
        self.reached(QuorumSituation::Busy);
        let keeps = self.is_weak(ClientRules::WaitsWithoutLead);
        let it = self.state.client_mut(client);
        let attempt = it.attempt.take()?;
        let has_lead = matches!(attempt.by_lead(), Said::For | Said::Higher(_));
        it.keeps_votes = attempt.waits && (has_lead || keeps);
        if it.keeps_votes {
            self.reached(QuorumSituation::KeptVotes);
        } else {
            self.forget_round(client, &attempt);
            self.give_back(client)?;
        }
        let it = self.state.client_mut(client);
        it.phase = if self.model.setup.waits {
            QuorumPhase::Waiting
        } else {
            QuorumPhase::Leaving
        };
        Some(())
    }

    /// The quorum gives no verdict. The outcome is unknown, so that a client that does not wait releases its owner.
    pub(super) fn fail(&mut self, client: u8) -> Option<()> {
        let attempt = self.state.client_mut(client).attempt.take()?;
        self.forget_round(client, &attempt);
        self.give_back(client)?;
        if self.model.setup.waits {
            self.state.client_mut(client).phase = QuorumPhase::Waiting;
        } else {
            self.leave(client);
        }
        Some(())
    }

    /// Gives back all votes that are known. Those of nodes that have not answered follow with their answers.
    fn give_back(&mut self, client: u8) -> Option<()> {
        if self.is_weak(ClientRules::KeepsVotes) {
            return Some(());
        }
        let mut nodes = self.state.client_mut(client).at.iter_mut();
        nodes.try_for_each(|at| {
            let given = std::mem::take(&mut at.votes).into_iter();
            let mut given = given.filter(|fence| *fence > 0);
            given.all(|fence| put(&mut at.back, fence)).then_some(())
        })
    }

    /// Remembers the votes of a refused round, for rules that count them.
    fn forget_round(&mut self, client: u8, attempt: &Attempting) {
        if self.model.subject.rules.counting == Counting::RefusedRounds {
            let votes = attempt.said.map(|said| said == Said::For);
            self.state.client_mut(client).ghost = Some((attempt.fence, votes));
        }
    }

    /// A vote for a refused round has come, and the rules count it.
    pub(super) fn count_ghost(&mut self, by: CallId, node: usize, reply: &Reply) {
        let it = self.state.client_mut(by.client);
        let Some((fence, votes)) = &mut it.ghost else {
            return;
        };
        let is_for = matches!(reply, Reply::Held(held) if held.fence == Some(Fence::new(*fence)));
        if it.nth != by.nth || !is_for {
            return;
        }
        votes[node] = true;
        let enough = votes.iter().filter(|vote| **vote).count() > NODES / 2;
        if enough && it.attempt.is_none() && it.certified == 0 && it.phase != QuorumPhase::Idle {
            it.certified = *fence;
            for at in &mut it.at {
                at.owed = false;
            }
            it.phase = QuorumPhase::Holding(1);
            self.handed_out(by.client, 0);
        }
    }
}
