//! The effects of one action. `node` has each step of a node; the client's decisions are in `acquire` and `settle`.

use leasehold_core::Reply;
use leasehold_core::quorum::NoVote;

use super::actions::{ClientStep, Exchange, QuorumAction};
use super::judge;
use super::model::{ClientRules, NUMBERS, QuorumModel, QuorumTurn};
use super::numbers::{clock, settle, tick};
use super::setup::{QuorumFault, QuorumSituation, Recalls};
use super::state::{NODES, QuorumClient, QuorumPhase, QuorumState, Remembers};
use crate::frame::CallId;

impl QuorumTurn<'_> {
    /// Carries out an action, and settles the numbers. `None` if it is out of bounds.
    pub(super) fn carry_out(&mut self, action: QuorumAction) -> Option<()> {
        let (setup, terms) = (&self.model.setup, self.model.subject.terms);
        self.act(action)?;
        self.end_owners();
        judge::settled(&mut self.state, setup);
        settle(&mut self.state, terms, setup);
        Some(())
    }

    /// Whether the clients follow this weaker rule.
    pub(super) fn is_weak(&self, rules: ClientRules) -> bool {
        self.model.subject.rules.client == rules
    }

    pub(super) fn act(&mut self, action: QuorumAction) -> Option<()> {
        match action {
            QuorumAction::Client(client, step) => self.take_step(client, step),
            QuorumAction::Exchange { client, node, what } => self.exchange(client, node, what),
            QuorumAction::Node(node, event) => self.happen_to(node, event),
            QuorumAction::Tick => self.tick(),
        }
    }

    fn take_step(&mut self, client: u8, step: ClientStep) -> Option<()> {
        match step {
            ClientStep::Begin => {
                self.name_owner(client)?;
                self.acquire(client, false)?;
            }
            ClientStep::Retry if self.state.client(client).attempt.is_some() => {
                self.reached(QuorumSituation::AskedAgain);
                self.resume(client)?;
            }
            ClientStep::Retry => self.acquire(client, false)?,
            ClientStep::Release => self.leave(client),
            ClientStep::Renew => self.renew(client),
            ClientStep::Crash => self.crash(client),
            ClientStep::Hear => self.state.client_mut(client).knows_waiters = true,
        }
        Some(())
    }

    fn exchange(&mut self, client: u8, node: usize, what: Exchange) -> Option<()> {
        match what {
            Exchange::Claim => {
                let fence = self.state.nodes[node].vote?.fence;
                self.reached(QuorumSituation::Granted);
                self.state.client_mut(client).granted = fence;
                self.acquire(client, true)?;
            }
            Exchange::Arrive { is_heard } => self.arrive(client, node, is_heard)?,
            Exchange::Fail { is_late } => self.fail_request(client, node, is_late)?,
            Exchange::ArriveLate { again } => self.arrive_late(client, node, again)?,
            Exchange::DropLate => self.state.late[usize::from(client)][node] = None,
            Exchange::GiveBack => self.give_one_back(client, node),
            Exchange::Settle => self.release_at(client, node),
            Exchange::Extend => self.extend(client, node)?,
        }
        Some(())
    }

    /// A fresh number for the owner that a client begins with.
    fn name_owner(&mut self, client: u8) -> Option<()> {
        let mut known = [false; NUMBERS as usize];
        let mut state = self.state;
        state.each_owner(|owner| {
            if owner.client == client {
                known[usize::from(owner.nth)] = true;
            }
        });
        let nth = known.iter().position(|is_known| !is_known)?;
        let it = self.state.client_mut(client);
        it.nth = u8::try_from(nth).ok()?;
        it.is_robbed = false;
        Some(())
    }

    /// A node carries out the oldest proposal of a client. If the answer is not heard, the request has failed.
    fn arrive(&mut self, client: u8, node: usize, is_heard: bool) -> Option<()> {
        let it = self.state.client(client);
        let asked = it.at[node].open[0];
        let waits = self.waits_at(client, node);
        let by = self.state.owner(client);
        let reply = self.take(by, node, asked, waits);
        if is_heard {
            self.voted(client, node, asked, Some(&reply))
        } else {
            self.state.spent += 1;
            self.reached(QuorumSituation::AnswerLost);
            self.voted(client, node, asked, None)
        }
    }

    /// Whether a proposal under way queues its owner at a node. That of an abandoned acquisition still does.
    pub(super) fn waits_at(&self, client: u8, node: usize) -> bool {
        let it = self.state.client(client);
        match it.attempt {
            Some(attempt) => attempt.waits && attempt.lead == node,
            None => self.model.setup.waits && it.lead() == node,
        }
    }

    /// A node votes on a proposal.
    pub(super) fn take(&mut self, by: CallId, node: usize, asked: u64, waits: bool) -> Reply {
        let had_counter = self.state.nodes[node].counter.is_some();
        let had_vote = self.state.nodes[node]
            .vote
            .is_some_and(|vote| vote.by == by);
        let step = self.model.proposal(by, asked, waits);
        let it = self.state.nodes[node];
        let reply = self.execute(node, &step);
        let votes = matches!(reply, Reply::Held(_));
        if let Reply::NoVote(NoVote::Quarantined(_)) = reply {
            self.reached(QuorumSituation::Quarantined);
        }
        if let (Remembers::Since(_), false) = (it.remembers, had_counter) {
            match reply {
                Reply::Held(_) => self.reached(QuorumSituation::TrustedAgain),
                Reply::NoVote(NoVote::Behind(bounds)) if asked < bounds.least.get() => {
                    self.reached(QuorumSituation::BelowFloor);
                }
                _ => {}
            }
        }
        let certified = self.state.client(by.client).certified;
        if votes && !had_vote && certified > 0 && self.state.is_current(by) {
            self.reached(QuorumSituation::Repaired);
            if asked > certified {
                self.reached(QuorumSituation::RepairedAbove);
            }
        }
        reply
    }

    fn tick(&mut self) -> Option<()> {
        let before = self.state.nodes;
        tick(&mut self.state, self.model.setup.ttl);
        let mut pairs = before.iter().zip(&self.state.nodes);
        if pairs.any(|(before, after)| before.vote.is_some() && after.vote.is_none()) {
            self.reached(QuorumSituation::Expired);
        }
        for client in [0, 1] {
            // A sign of waiters counts for less than a tick.
            self.state.client_mut(client).knows_waiters = false;
            let attempt = self.state.client(client).attempt;
            if attempt.is_some_and(|attempt| attempt.age >= self.model.setup.ttl) {
                // It has not waited for so long, and a lease would be over.
                self.reached(QuorumSituation::TooLate);
                for at in &mut self.state.client_mut(client).at {
                    at.open = [0; 2];
                }
                self.fail(client)?;
            }
            if let QuorumPhase::Holding(left) = self.state.client(client).phase {
                if left > 1 {
                    self.state.client_mut(client).phase = QuorumPhase::Holding(left - 1);
                } else {
                    self.reached(QuorumSituation::DeadlinePassed);
                    self.leave(client);
                }
            }
        }
        Some(())
    }

    /// A client whose owner has settled everywhere is idle.
    pub(super) fn end_owners(&mut self) {
        for client in [0, 1] {
            self.skip_idle_steps(client);
            let it = self.state.client(client);
            if it.phase == QuorumPhase::Leaving && it.has_settled() {
                let rested = self.model.rested(client, it);
                *self.state.client_mut(client) = rested;
            }
        }
    }

    /// Leaves out releases, and votes to give back, that would find nothing.
    fn skip_idle_steps(&mut self, client: u8) {
        let by = self.state.owner(client);
        for node in 0..NODES {
            let it = &self.state.nodes[node];
            let late = self.state.late[usize::from(client)][node];
            let is_late = late.is_some_and(|late| late.nth == by.nth);
            let vote = it.vote.filter(|vote| vote.by == by);
            let is_queued = it.queue.iter().flatten().any(|place| place.by == by);
            let at = &mut self.state.client_mut(client).at[node];
            let is_open = at.open[0] > 0;
            if vote.is_none() && !is_queued && !is_open && !is_late {
                at.owed = false;
            }
            let may_come = is_open || is_late;
            let [first, second] = at.back;
            let is_idle = |back| !may_come && vote.is_none_or(|vote| vote.fence != back);
            at.back = match (is_idle(first), is_idle(second)) {
                (false, false) => [first, second],
                (false, true) => [first, 0],
                (true, false) => [second, 0],
                (true, true) => [0; 2],
            };
        }
    }
}

impl QuorumModel {
    /// Whether this client cannot reach this node.
    pub(super) fn is_cut(&self, client: u8, node: usize) -> bool {
        self.setup.may(QuorumFault::Unreachable) && (client, node) == (1, 0)
    }

    /// A client that has just started.
    pub(super) fn new_client(&self, client: u8) -> QuorumClient {
        QuorumClient {
            aim: clock(self.setup.clients[usize::from(client)]),
            ..QuorumClient::default()
        }
    }

    /// A client whose owner is over.
    fn rested(&self, client: u8, it: &QuorumClient) -> QuorumClient {
        let new = self.new_client(client);
        let learns = self.setup.recalls == Recalls::Clocks;
        let remembers = self.setup.recalls != Recalls::Nothing;
        QuorumClient {
            silent: if remembers { it.silent } else { new.silent },
            stuck: it.stuck.filter(|_| remembers),
            knows_waiters: remembers && it.knows_waiters,
            aim: if learns { it.aim } else { new.aim },
            next: if learns { it.next } else { new.next },
            ..new
        }
    }

    /// Whether a fault that is counted may still happen.
    pub(super) fn has_left(&self, state: &QuorumState, fault: QuorumFault) -> bool {
        self.setup.may(fault) && state.spent < self.setup.times
    }
}
