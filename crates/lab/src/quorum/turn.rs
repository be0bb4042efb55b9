//! The possible actions of the quorum model, and their effects on messages, time, and by faults. Slow clients, requests and nodes are
//! covered: anything may take any time. `node` has each step of a node, and `client` the client's decisions.

use leasehold_core::quorum::NoVote;
use leasehold_core::{CLAIM_WINDOW, Fence, Reply, Step};

use super::model::{ClientRules, Fault, QuorumModel, QuorumTurn, Recalls, Situation};
use super::numbers::{clock, pass, settle, tick};
use super::state::{
    Client, Extended, LateProposal, NODES, NUMBERS, NodeState, Phase, Remembers, Renewing, State,
    TakenBy, Vote,
};
use crate::frame::{CallId, those_possible, worded};

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A client takes a step of its own.
    Client(u8, ClientStep),
    /// A message of a client comes to a node, or is lost on its way.
    Exchange {
        client: u8,
        node: usize,
        what: Exchange,
    },
    /// Something happens to a node.
    Node(usize, NodeEvent),
    /// Time passes.
    Tick,
}

worded! {
    /// A step of a client.
    ClientStep {
        /// It asks for the lock, as a new owner.
        Begin => "begins",
        /// It asks for the lock as a reader.
        BeginReading => "begins to read",
        /// It asks again: after a pause with the vote of the lead, or as a waiter.
        Retry => "asks again",
        /// It gives up its lease, its place, or its acquisition.
        Release => "gives up",
        /// It renews its lease.
        Renew => "renews",
        /// It crashes, and restarts.
        Crash => "crashes",
        /// A holder hears that others wait.
        Hear => "hears that others wait",
    }
}

/// What happens between a client and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// A waiter was woken, and claims the lock.
    Claim,
    /// The node carries out the oldest proposal of the client.
    Arrive { is_heard: bool },
    /// A proposal fails. It is lost, or comes late.
    Fail { is_late: bool },
    /// The node carries out a late proposal.
    ArriveLate { again: bool },
    /// A late proposal is lost.
    DropLate,
    /// The node frees a vote that the client gives back.
    GiveBack,
    /// The node carries out a release.
    Settle,
    /// The node carries out a renewal.
    Extend,
}

/// What may happen to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeEvent {
    /// It loses its memory.
    LoseMemory,
    /// An operator breaks its vote.
    Break,
    /// Its clock jumps ahead.
    Jump,
    /// It counts the lock as taken for ever.
    Stick,
}

impl QuorumModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &State, into: &mut Vec<Action>) {
        for client in [0, 1] {
            self.of_client(state, client, into);
        }
        let most = if self.setup.at_lead { 1 } else { NODES };
        for node in 0..most {
            self.of_node(state, node, into);
        }
        if state.under_way() <= self.setup.lag {
            into.push(Action::Tick);
        }
    }

    fn of_node(&self, state: &State, node: usize, into: &mut Vec<Action>) {
        let it = &state.nodes[node];
        let may = |fault| self.has_left(state, fault);
        let may_stick = may(Fault::EndlessVote) || may(Fault::ForeignVote);
        let has_current = it.votes[0].is_some_and(|vote| state.is_current(vote.by));
        let events = [
            (
                NodeEvent::Jump,
                may(Fault::ClockJump) && it.votes[0].is_some(),
            ),
            (NodeEvent::Stick, may_stick && it.votes[0].is_none()),
            (
                NodeEvent::LoseMemory,
                may(Fault::LostMemory) && it.counter.is_some(),
            ),
            (NodeEvent::Break, may(Fault::Break) && has_current),
        ];
        into.extend(those_possible(events).map(|event| Action::Node(node, event)));
    }

    fn of_client(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        let it = state.client(client);
        let (acquires, waits) = (it.phase == Phase::Acquiring, it.phase == Phase::Waiting);
        let pauses = it.attempt.is_some_and(|attempt| attempt.is_pausing);
        let gives_up = acquires && self.setup.may(Fault::GivesUp);
        let by = state.owner(client);
        let is_waited_for = state
            .nodes
            .iter()
            .any(|node| node.vote_for(by).is_some() && node.queue[0].is_some());
        let hears = self.setup.recalls != Recalls::Nothing && is_waited_for && !it.knows_waiters;
        let is_idle = it.phase == Phase::Idle;
        let renews = self.setup.may(Fault::Renewal) && it.renewal.is_none();
        let steps = [
            (ClientStep::Begin, is_idle),
            (
                ClientStep::BeginReading,
                is_idle && self.setup.may(Fault::Readers),
            ),
            (ClientStep::Retry, waits || acquires && pauses),
            (ClientStep::Release, waits || it.holds() || gives_up),
            (ClientStep::Hear, it.holds() && hears),
            (
                ClientStep::Crash,
                self.has_left(state, Fault::Crash) && !is_idle,
            ),
            (ClientStep::Renew, it.holds() && renews),
        ];
        into.extend(those_possible(steps).map(|step| Action::Client(client, step)));
        for node in 0..NODES {
            self.between(state, client, node, into);
        }
    }

    fn between(&self, state: &State, client: u8, node: usize, into: &mut Vec<Action>) {
        let it = state.client(client);
        let at = &it.at[node];
        let has_left = |fault| self.has_left(state, fault);
        let mut push = |what| into.push(Action::Exchange { client, node, what });
        let is_open = at.open[0] > 0;
        if is_open {
            push(if self.is_cut(client, node) {
                Exchange::Fail { is_late: false }
            } else {
                Exchange::Arrive { is_heard: true }
            });
            if has_left(Fault::LostMessage) {
                push(Exchange::Arrive { is_heard: false });
                push(Exchange::Fail { is_late: false });
            }
            if has_left(Fault::LateRequest) {
                push(Exchange::Fail { is_late: true });
            }
        }
        if let Some(late) = state.late[usize::from(client)][node] {
            push(Exchange::ArriveLate { again: false });
            push(Exchange::DropLate);
            if self.setup.may(Fault::Repeated) && !late.is_repeat {
                push(Exchange::ArriveLate { again: true });
            }
        }
        if at.back[0] > 0 {
            push(Exchange::GiveBack);
        }
        let at_once = self.subject.rules.client == ClientRules::ReleasesAtOnce;
        if at.owed && (!is_open || at_once) {
            push(Exchange::Settle);
        }
        let is_under_way = |renewal: Renewing| renewal.at[node] == Extended::UnderWay;
        if it.renewal.is_some_and(is_under_way) {
            push(Exchange::Extend);
        }
        let vote = state.nodes[node].vote_for(state.owner(client));
        let is_granted =
            vote.is_some_and(|vote| u128::from(vote.left_ms) <= CLAIM_WINDOW.as_millis());
        if it.phase == Phase::Waiting && is_granted {
            push(Exchange::Claim);
        }
    }

    /// Whether this client cannot reach this node.
    pub(super) fn is_cut(&self, client: u8, node: usize) -> bool {
        self.setup.may(Fault::Unreachable) && (client, node) == (1, 0)
    }

    /// A client that has just started.
    pub(super) fn new_client(&self, client: u8) -> Client {
        Client {
            aim: clock(self.setup.clients[usize::from(client)]),
            ..Client::default()
        }
    }

    /// A client whose owner is over.
    fn rested(&self, client: u8, it: &Client) -> Client {
        let new = self.new_client(client);
        let learns = self.setup.recalls == Recalls::Clocks;
        let remembers = self.setup.recalls != Recalls::Nothing;
        Client {
            silent: if remembers { it.silent } else { new.silent },
            stuck: it.stuck.filter(|_| remembers),
            knows_waiters: remembers && it.knows_waiters,
            aim: if learns { it.aim } else { new.aim },
            next: if learns { it.next } else { new.next },
            ..new
        }
    }

    /// Whether a fault that is counted may still happen.
    fn has_left(&self, state: &State, fault: Fault) -> bool {
        self.setup.may(fault) && state.spent < self.setup.times
    }
}

impl QuorumTurn<'_> {
    /// Carries out an action, and settles the numbers. `None` if it is out of bounds.
    pub(super) fn carry_out(&mut self, action: Action) -> Option<()> {
        let (setup, terms) = (&self.model.setup, self.model.subject.terms);
        self.act(action)?;
        self.end_owners();
        self.settled();
        settle(&mut self.state, terms, setup);
        Some(())
    }

    /// Whether the clients follow this weaker rule.
    pub(super) fn is_weak(&self, rules: ClientRules) -> bool {
        self.model.subject.rules.client == rules
    }

    pub(super) fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Client(client, step) => self.take_step(client, step),
            Action::Exchange { client, node, what } => self.exchange(client, node, what),
            Action::Node(node, event) => self.happen_to(node, event),
            Action::Tick => self.tick(),
        }
    }

    fn take_step(&mut self, client: u8, step: ClientStep) -> Option<()> {
        match step {
            ClientStep::Begin | ClientStep::BeginReading => {
                self.name_owner(client)?;
                let reads = client == 1 && self.model.setup.may(Fault::OneReads);
                let is_shared = reads || step == ClientStep::BeginReading;
                self.state.client_mut(client).is_shared = is_shared;
                self.acquire(client, false)?;
            }
            ClientStep::Retry if self.state.client(client).attempt.is_some() => {
                self.reached(Situation::AskedAgain);
                let fence = self.choose(client, None);
                self.begin_round(client, fence)?;
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
                let by = self.state.owner(client);
                let fence = self.state.nodes[node].vote_for(by)?.fence;
                self.reached(Situation::Granted);
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
        let proposal = LateProposal {
            nth: it.nth,
            is_shared: it.is_shared,
            fence: asked,
            waits: self.waits_at(client, node),
            is_repeat: false,
        };
        let reply = self.take(client, node, proposal);
        if is_heard {
            self.voted(client, node, asked, Some(&reply))
        } else {
            self.state.spent += 1;
            self.reached(Situation::AnswerLost);
            self.voted(client, node, asked, None)
        }
    }

    /// Whether a proposal under way queues its owner at a node. That of an abandoned acquisition still does.
    fn waits_at(&self, client: u8, node: usize) -> bool {
        let it = self.state.client(client);
        match it.attempt {
            Some(attempt) => attempt.waits && attempt.lead == node,
            None => self.model.setup.waits && it.lead() == node,
        }
    }

    /// A node votes on a proposal.
    fn take(&mut self, client: u8, node: usize, proposal: LateProposal) -> Reply {
        let (nth, asked) = (proposal.nth, proposal.fence);
        let by = CallId { client, nth };
        let it = self.state.nodes[node];
        let had_counter = it.counter.is_some();
        let had_vote = it.vote_for(by).is_some();
        let step = self.model.proposal(by, &proposal);
        let reply = self.execute(node, &step);
        let votes = matches!(reply, Reply::Held(_));
        let quarantined = matches!(reply, Reply::NoVote(NoVote::Quarantined(_)));
        self.reached_if(quarantined, Situation::Quarantined);
        if let (Remembers::Since(_), false) = (it.remembers, had_counter) {
            match reply {
                Reply::Held(_) => self.reached(Situation::TrustedAgain),
                Reply::NoVote(NoVote::Behind(bounds)) if asked < bounds.least.get() => {
                    self.reached(Situation::BelowFloor);
                }
                _ => {}
            }
        }
        let certified = self.state.client(by.client).certified;
        if votes && !had_vote && certified > 0 && self.state.is_current(by) {
            self.reached(Situation::Repaired);
            self.reached_if(asked > certified, Situation::RepairedAbove);
        }
        reply
    }

    fn tick(&mut self) -> Option<()> {
        let before = self.state.nodes;
        tick(&mut self.state, self.model.setup.ttl);
        let mut pairs = before.iter().zip(&self.state.nodes);
        let number = |node: &NodeState| node.votes.iter().flatten().count();
        let expires = pairs.any(|(before, after)| number(after) < number(before));
        self.reached_if(expires, Situation::Expired);
        for client in [0, 1] {
            // A sign of waiters counts for less than a tick.
            self.state.client_mut(client).knows_waiters = false;
            let attempt = self.state.client(client).attempt;
            if attempt.is_some_and(|attempt| attempt.age >= self.model.setup.ttl) {
                // It has not waited for so long, and a lease would be over.
                self.reached(Situation::TooLate);
                for at in &mut self.state.client_mut(client).at {
                    at.open = [0; 2];
                }
                self.fail(client)?;
            }
            if let Phase::Holding(left) = self.state.client(client).phase {
                if left > 1 {
                    self.state.client_mut(client).phase = Phase::Holding(left - 1);
                } else {
                    self.reached(Situation::DeadlinePassed);
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
            if it.phase == Phase::Leaving && it.has_settled() {
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
            let vote = it.vote_for(by);
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

    /// A request fails. It may be carried out later.
    fn fail_request(&mut self, client: u8, node: usize, is_late: bool) -> Option<()> {
        if !self.model.is_cut(client, node) {
            self.state.spent += 1;
        }
        let it = self.state.client(client);
        let (nth, is_shared, asked) = (it.nth, it.is_shared, it.at[node].open[0]);
        let waits = self.waits_at(client, node);
        if is_late {
            let late = &mut self.state.late[usize::from(client)][node];
            if late.is_some() {
                return None;
            }
            *late = Some(LateProposal {
                nth,
                is_shared,
                fence: asked,
                waits,
                is_repeat: false,
            });
        }
        self.voted(client, node, asked, None)
    }

    /// A node carries out a proposal whose client no longer waits for the answer.
    fn arrive_late(&mut self, client: u8, node: usize, again: bool) -> Option<()> {
        let late = &mut self.state.late[usize::from(client)][node];
        let proposal = (*late)?;
        let LateProposal { nth, fence, .. } = proposal;
        match late.as_mut().filter(|_| again) {
            Some(late) => late.is_repeat = true,
            None => *late = None,
        }
        let by = CallId { client, nth };
        let it = self.state.nodes[node];
        let is_new = it.owners().all(|(known, _)| known != by);
        let reply = self.take(client, node, proposal);
        let it = self.state.client(client);
        // It has released at this node, or has given the vote back.
        let at = &it.at[node];
        let has_settled = it.phase == Phase::Leaving && !at.owed && !at.back.contains(&fence);
        let is_over = !self.state.is_current(by) || has_settled;
        self.reached_if(is_over, Situation::AppliedLate);
        if is_over && is_new {
            orphan(&mut self.state.nodes[node], by);
        }
        self.count_ghost(by, node, &reply);
        Some(())
    }

    /// The client crashes. Its requests under way are lost, and its votes end with their time.
    pub(super) fn crash(&mut self, client: u8) {
        let it = *self.state.client(client);
        match it.phase {
            Phase::Holding(_) => self.reached(Situation::CrashedHolding),
            Phase::Acquiring => self.reached(Situation::CrashedAcquiring),
            _ => {}
        }
        self.state.spent += 1;
        let by = self.state.owner(client);
        for node in &mut self.state.nodes {
            orphan(node, by);
        }
        self.lease_ended(client);
        *self.state.client_mut(client) = self.model.new_client(client);
    }

    /// Something happens to a node.
    fn happen_to(&mut self, node: usize, event: NodeEvent) -> Option<()> {
        self.state.spent += 1;
        let setup = &self.model.setup;
        let vote = self.state.nodes[node].votes[0];
        let certified = vote.map_or(0, |vote| self.state.client(vote.by.client).certified);
        match event {
            NodeEvent::LoseMemory => {
                self.reached_if(certified > 0, Situation::MemoryLost);
                self.model.lose_memory(&mut self.state.nodes[node]);
            }
            NodeEvent::Break => {
                // An operator has seen the fence of the vote.
                let Vote { by, fence, .. } = vote?;
                let has_all = self.has_all(by);
                let fence = Fence::new(fence);
                self.execute(node, &Step::Break { fence });
                self.rob(by, has_all, Situation::BrokenOfAll);
                self.reached_if(certified > 0, Situation::Broken);
            }
            NodeEvent::Jump => {
                // By a TTL. Who does not have the votes of all nodes is robbed.
                if let Some(Vote { by, .. }) = vote {
                    self.rob(by, self.has_all(by), Situation::JumpedOverAll);
                }
                let it = &mut self.state.nodes[node];
                it.ahead += i8::try_from(setup.ttl).unwrap_or_default();
                pass(it, setup.ttl.into());
            }
            NodeEvent::Stick => {
                let is_foreign = setup.may(Fault::ForeignVote);
                self.state.nodes[node].taken = Some(if is_foreign {
                    TakenBy::Program
                } else {
                    TakenBy::Stranger
                });
            }
        }
        Some(())
    }

    /// Whether all nodes hold for this owner.
    fn has_all(&self, by: CallId) -> bool {
        let mut nodes = self.state.nodes.iter();
        nodes.all(|it| it.vote_for(by).is_some())
    }

    /// A vote is taken from an owner. One that had all keeps a majority.
    fn rob(&mut self, by: CallId, has_all: bool, with_all: Situation) {
        if !self.state.is_current(by) {
            return;
        }
        let it = self.state.client_mut(by.client);
        if !has_all {
            it.is_robbed = true;
        } else if it.certified > 0 {
            self.reached(with_all);
        }
    }
}

/// Only time ends the vote and the place of this owner at a node.
fn orphan(node: &mut NodeState, by: CallId) {
    for vote in node.votes.iter_mut().flatten() {
        vote.is_orphan |= vote.by == by;
    }
    for place in node.queue.iter_mut().flatten() {
        place.is_orphan |= place.by == by;
    }
}
