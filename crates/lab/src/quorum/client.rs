//! A client, in the order in which the store of a quorum takes its decisions: its acquisition by core's round and its verdicts; its renewals,
//! repairs and releases, and the votes that it gives back; and the numbers that it proposes. Core's [`Round`] and [`Proposer`] are made of
//! the model's state for each use.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposer, Refusal, Round, Verdict};
use leasehold_core::{
    Acceptable, Block, Busy, Fence, Held, HolderIdentity, HolderView, Owner, Reply, Step,
};

use super::model::{ClientRules, Counting, Fault, QuorumTurn, Recalls, Situation};
use super::node::one;
use super::numbers::clock;
use super::state::{AtNode, Attempting, Books, Extended, NODES, Phase, Renewing, Said, put};
use crate::frame::CallId;

impl QuorumTurn<'_> {
    /// The client asks for the lock.
    pub(super) fn acquire(&mut self, client: u8, is_claim: bool) -> Option<()> {
        let fence = self.choose(client, None);
        let waits = self.model.setup.waits && !is_claim;
        let highest = self.state.books.highest;
        let it = self.state.client_mut(client);
        let above = Books::below(highest, it.is_shared);
        it.keeps_votes = false;
        it.phase = Phase::Acquiring;
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
        self.begin_round(client, fence)
    }

    /// Begins a round: the proposal goes to all nodes. One that has an earlier one gets it afterwards.
    pub(super) fn begin_round(&mut self, client: u8, fence: u64) -> Option<()> {
        self.is_in_bounds(fence)?;
        let it = self.state.client_mut(client);
        let attempt = it.attempt.as_mut()?;
        attempt.fence = fence;
        attempt.is_pausing = false;
        attempt.said = [Said::Open; NODES];
        attempt.refused = None;
        let mut nodes = it.at.iter_mut();
        nodes.try_for_each(|at| put(&mut at.open, fence).then_some(()))
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
            self.reached(Situation::OldAnswer);
            Some(())
        } else if it.certified > 0 {
            if let Some(Reply::NoVote(NoVote::Behind(bounds))) = reply
                && bounds.least.get() > it.certified
                && self.model.setup.may(Fault::OtherFences)
            {
                let bounds = (bounds.least.get(), bounds.most.get());
                self.state.client_mut(client).at[node].beyond = Some(bounds);
            }
            Some(())
        } else if it.keeps_votes {
            Some(())
        } else {
            self.reached_if(matches!(reply, Some(Reply::Held(_))), Situation::LateVote);
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
        let obeys = self.is_weak(ClientRules::ObeysLead);
        let passes = self.is_weak(ClientRules::PassesWaiters);
        let it = self.state.client_mut(client);
        let attempt = it.attempt?;
        let by_lead = attempt.by_lead();
        if by_lead == Said::Open && !attempt.is_claim && it.knows_waiters && !passes {
            // The lead knows whether others are first in line (V5).
            self.reached(Situation::AwaitedLead);
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
            self.reached_if(is_alone, Situation::PassedProgram);
            self.reached_if(!is_alone, Situation::PassedStuckLead);
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
            self.reached(Situation::TooLate);
            self.leave(client);
            return;
        }
        let from_reply = self.is_weak(ClientRules::ValidFromReply);
        let it = self.state.client_mut(client);
        it.phase = Phase::Holding(if from_reply { ttl } else { left });
        let is_raised = attempt.rounds > 1;
        let has_lead = attempt.by_lead() == Said::For;
        self.reached_if(is_raised, Situation::Raised);
        self.reached_if(!is_raised, Situation::FirstRound);
        self.reached_if(!has_lead, Situation::WithoutLead);
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
                    self.reached(Situation::Split);
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
        self.reached(Situation::Busy);
        let keeps = self.is_weak(ClientRules::WaitsWithoutLead);
        let it = self.state.client_mut(client);
        let attempt = it.attempt.take()?;
        let has_lead = matches!(attempt.by_lead(), Said::For | Said::Higher(_));
        it.keeps_votes = attempt.waits && (has_lead || keeps);
        if it.keeps_votes {
            self.reached(Situation::KeptVotes);
        } else {
            self.forget_round(client, &attempt);
            self.give_back(client)?;
        }
        let it = self.state.client_mut(client);
        it.phase = if self.model.setup.waits {
            Phase::Waiting
        } else {
            Phase::Leaving
        };
        Some(())
    }

    /// The quorum gives no verdict. The outcome is unknown, so that a client that does not wait releases its owner.
    pub(super) fn fail(&mut self, client: u8) -> Option<()> {
        let attempt = self.state.client_mut(client).attempt.take()?;
        self.forget_round(client, &attempt);
        self.give_back(client)?;
        if self.model.setup.waits {
            self.state.client_mut(client).phase = Phase::Waiting;
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
        if enough && it.attempt.is_none() && it.certified == 0 && it.phase != Phase::Idle {
            it.certified = *fence;
            for at in &mut it.at {
                at.owed = false;
            }
            it.phase = Phase::Holding(1);
            self.handed_out(by.client, 0);
        }
    }

    /// The owner is over: it releases at each node, after the answers to its proposals (V2).
    pub(super) fn leave(&mut self, client: u8) {
        self.lease_ended(client);
        let it = self.state.client_mut(client);
        it.attempt = None;
        (it.certified, it.granted) = (0, 0);
        it.keeps_votes = false;
        it.renewal = None;
        it.phase = Phase::Leaving;
        for at in &mut it.at {
            *at = AtNode {
                open: at.open,
                back: at.back,
                owed: true,
                ..AtNode::default()
            };
        }
    }

    /// A node carries out the release of an owner.
    pub(super) fn release_at(&mut self, client: u8, node: usize) {
        self.state.client_mut(client).at[node].owed = false;
        let owner = self.own(client).clone();
        let (keep, fence) = (None, None);
        self.deliver(client, node, &Step::Release { owner, keep, fence });
    }

    /// A node frees a vote that its client gives back.
    pub(super) fn give_one_back(&mut self, client: u8, node: usize) {
        let back = &mut self.state.client_mut(client).at[node].back;
        let [fence, next] = *back;
        *back = [next, 0];
        let (owner, fence) = (self.own(client).clone(), Fence::new(fence));
        self.deliver(client, node, &Step::GiveBack { owner, fence });
    }

    /// A step comes to a node, unless its client cannot reach it.
    fn deliver(&mut self, client: u8, node: usize, step: &Step) {
        if !self.model.is_cut(client, node) {
            self.execute(node, step);
        }
    }

    /// A holder renews its lease at all nodes.
    pub(super) fn renew(&mut self, client: u8) {
        self.state.client_mut(client).renewal = Some(Renewing {
            age: 0,
            at: [Extended::UnderWay; NODES],
        });
    }

    /// A node carries out a renewal, and answers.
    pub(super) fn extend(&mut self, client: u8, node: usize) -> Option<()> {
        let it = self.state.client(client);
        // A node knows the hold by the fence that it stores.
        let fence = it.higher_at(node).unwrap_or(it.certified);
        let step = Step::Extend {
            owner: self.own(client).clone(),
            ttl: self.model.subject.ttl,
            fence: Some(Fence::new(fence)),
        };
        let reply = self.execute(node, &step);
        let is_held = matches!(reply, Reply::Held(_));
        let own = self.own_above(client, &reply);
        let it = self.state.client_mut(client);
        if !is_held {
            // Its vote may be newer than this renewal.
            it.at[node].votes = [own, 0];
            it.at[node].lacking |= own == 0;
        }
        let renewal = it.renewal.as_mut()?;
        renewal.at[node] = if is_held {
            Extended::Held
        } else {
            Extended::NotHeld
        };
        let renewal = *renewal;
        let number = |is: Extended| renewal.at.iter().filter(|at| **at == is).count();
        let is_enough = self.is_weak(ClientRules::RenewsByMinority);
        if number(Extended::Held) > NODES / 2 || is_enough && is_held {
            return self.renewed(client, renewal.age);
        } else if number(Extended::NotHeld) > NODES / 2 {
            self.leave(client);
        }
        Some(())
    }

    /// A majority has confirmed a renewal. The client asks the nodes that lack its vote for it.
    fn renewed(&mut self, client: u8, age: u8) -> Option<()> {
        self.reached(Situation::Renewed);
        let ttl = self.model.setup.ttl;
        let from_reply = self.is_weak(ClientRules::RenewsFromReply);
        let it = self.state.client_mut(client);
        it.renewal = None;
        if let Phase::Holding(left) = &mut it.phase {
            *left = (*left).max(if from_reply { ttl } else { ttl - age });
        }
        let certified = it.certified;
        for node in 0..NODES {
            let at = &mut self.state.client_mut(client).at[node];
            if !std::mem::take(&mut at.lacking) {
                continue;
            }
            let fence = match at.beyond.take() {
                None => certified,
                Some((least, most)) => self.within(client, acceptable(least, most)),
            };
            self.is_in_bounds(fence)?;
            put(&mut self.state.client_mut(client).at[node].open, fence).then_some(())?;
        }
        Some(())
    }

    /// The owner of core that stands for the current one of a client.
    fn own(&self, client: u8) -> &Owner {
        self.model.subject.owners.of(self.state.owner(client))
    }

    /// The fence above the certificate with which a node holds for this owner, as its refusal says; otherwise 0.
    fn own_above(&self, client: u8, reply: &Reply) -> u64 {
        let Reply::NotHeld(Some(holder)) = reply else {
            return 0;
        };
        let own = self.own(client);
        let is_own = matches!(&holder.who, HolderIdentity::Owner(by) if by == own);
        let fence = holder.fence.filter(|_| is_own).map_or(0, Fence::get);
        if fence > self.state.client(client).certified {
            fence
        } else {
            0
        }
    }

    /// Chooses a number above all that the owner may hold, and within the bounds of the nodes.
    pub(super) fn choose(&mut self, client: u8, bounds: Option<Acceptable>) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let forgets = self.is_weak(ClientRules::ForgetsVotes);
        let it = self.state.client_mut(client);
        // A vote that is given back must not be asked for again: it would be freed afterwards (QR9).
        let back = it.at.iter().flat_map(|at| at.back).max();
        let back = back.filter(|_| !forgets).unwrap_or_default();
        let highest = it.highest().max(back);
        if let Some(bounds) = bounds {
            let mut proposer = proposer(wall, it.aim, it.next);
            proposer.learn(wall, bounds);
            it.aim = wall.saturating_add_signed(lead_of(&proposer));
        }
        let above = |fence: u64| if fence > 0 { fence + 1 } else { 0 };
        let bounds = match bounds {
            Some(Acceptable { least, most }) => {
                acceptable(least.get().max(above(back)), most.get())
            }
            None => acceptable(above(highest), Fence::MAX.get()),
        };
        self.within(client, bounds)
    }

    /// Chooses a number within these bounds.
    pub(super) fn within(&mut self, client: u8, bounds: Acceptable) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let it = self.state.client_mut(client);
        let mut proposer = proposer(wall, it.aim, it.next);
        let fences = proposer.propose(Block::ONE, wall, Some(bounds));
        it.next = fences.last().get() + 1;
        fences.first.get()
    }

    /// Whether a proposal of this number is within the bounds of the model.
    fn is_in_bounds(&self, fence: u64) -> Option<()> {
        let learns = self.model.setup.recalls == Recalls::Clocks;
        let aims = self.state.clients.iter().filter(|_| learns);
        let aims = aims.map(|client| client.aim);
        let clocks = self.model.setup.clients.iter();
        let most = clocks.map(|ahead| clock(*ahead)).chain(aims).max()?;
        (fence <= most + self.model.setup.above).then_some(())
    }
}

/// The verdict of core's round on what the nodes said. Their order does not matter, unless the round was refused.
fn verdict(attempt: &Attempting) -> Verdict {
    let nodes = u8::try_from(NODES).unwrap_or(u8::MAX);
    let asked = Fence::new(attempt.fence);
    let mut round = Round::new(nodes, one(attempt.fence));
    let mut verdict = Verdict::Open;
    for (node, said) in attempt.said.iter().enumerate() {
        let held = |fence| {
            Reply::Held(Held {
                slot: None,
                fence: Some(Fence::new(fence)),
                block: Block::ONE,
                queued: 0,
            })
        };
        let reply = match *said {
            Said::Open => continue,
            Said::For => held(attempt.fence),
            Said::Higher(fence) => held(fence),
            Said::Behind(least, most) => Reply::NoVote(NoVote::Behind(acceptable(least, most))),
            Said::Busy(_) | Said::Foreign { .. } => Reply::Busy(Box::new(Busy {
                others: 0,
                holder: HolderView::new(
                    HolderIdentity::Foreign {
                        kind: String::new(),
                        value: Vec::new(),
                    },
                    None,
                    None,
                    None,
                ),
                ahead: 0,
                poll_after: Duration::ZERO,
                at_us: 0,
            })),
            Said::NoVote => Reply::NoVote(NoVote::NotANode),
            Said::Failed => {
                verdict = round.silent(node);
                continue;
            }
        };
        verdict = round.heard(node, asked, &reply);
    }
    verdict
}

/// The bounds of core for these numbers.
const fn acceptable(least: u64, most: u64) -> Acceptable {
    Acceptable {
        least: Fence::new(least),
        most: Fence::new(most),
    }
}

fn behind(bounds: Acceptable) -> Said {
    Said::Behind(bounds.least.get(), bounds.most.get())
}

/// Core's proposer, in the state of a client that aims at this number and has proposed all below `next`.
fn proposer(wall: u64, aim: u64, next: u64) -> Proposer {
    let mut proposer = Proposer::default();
    let around = if aim < wall {
        acceptable(0, aim)
    } else {
        acceptable(aim, Fence::MAX.get())
    };
    proposer.learn(wall, around);
    if next > 0 {
        let last = acceptable(next - 1, next - 1);
        proposer.propose(Block::ONE, 0, Some(last));
    }
    proposer
}

/// The microseconds that a proposer adds to the client's clock.
fn lead_of(proposer: &Proposer) -> i64 {
    /// Later than all that the model proposes.
    const LATE: u64 = 1 << 50;
    let fences = proposer.clone().propose(Block::ONE, LATE, None);
    let first = i64::try_from(fences.first.get()).unwrap_or(i64::MAX);
    first - i64::try_from(LATE).unwrap_or_default()
}
