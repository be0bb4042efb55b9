//! The checks on each lease that is handed out, and on each vote; and liveness. The checks use a record of their own, and never call the
//! rules.

use super::model::{Fault, QuorumModel, QuorumTurn, Situation};
use super::state::{Attempting, Books, Client, NODES, Phase, Said, State};
use super::turn::{Action, ClientStep, Exchange};

/// More ticks than the end of a lease, a quarantine and a stuck lead take together.
const TICKS: usize = 20;

/// More deliveries than a tick can have.
const DELIVERIES: usize = 200;

/// The properties that a step can violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// VQ2.
    Order = 1,
    /// VQ3.
    RealTime = 1 << 1,
    /// VQ4.
    LeftOver = 1 << 2,
    /// VQ6.
    Passed = 1 << 3,
}

impl QuorumTurn<'_> {
    /// A client has got a lease. Its first request was sent when `above` was the highest fence of a lease.
    pub(super) fn handed_out(&mut self, client: u8, above: u64) {
        let robs = self.model.setup.robs();
        let it = *self.state.client(client);
        let books = &mut self.state.books;
        let fence = it.certified;
        if fence <= above {
            books.broken |= Rule::RealTime as u8;
        }
        // Exclusion covers it and the leases that have ended, so they are in order.
        if !it.is_robbed && fence <= Books::below(books.ended, it.is_shared)
            || robs && books.given.contains(&fence)
        {
            books.broken |= Rule::Order as u8;
        }
        Books::raise(&mut books.highest, it.is_shared, fence);
        if robs {
            // The smallest is the least likely to be proposed again.
            books.given.sort_unstable();
            books.given[0] = fence;
        }
        let all_hold = self.state.clients.iter().all(Client::holds);
        let only_read = self.state.clients.iter().all(|client| client.is_shared);
        self.reached_if(all_hold && !only_read, Situation::RobbedBelieves);
        self.reached_if(all_hold && only_read, Situation::ReadersBoth);
    }

    /// A client gets a lease by this acquisition. The lead may have others that are first in line, and has not said so yet.
    pub(super) fn passed(&mut self, client: u8, attempt: &Attempting) {
        let knows = self.state.client(client).knows_waiters && self.model.setup.waits;
        let own = self.state.owner(client);
        let mut owners = self.state.nodes[attempt.lead].owners();
        let has_other = owners.any(|(by, _)| by != own);
        if knows && !attempt.is_claim && attempt.by_lead() == Said::Open && has_other {
            self.state.books.broken |= Rule::Passed as u8;
        }
    }

    /// VQ4: a node holds or queues nothing for an owner that has settled. Nor does a node beside the lead hold for one that waits without the
    /// lead's vote, and has nothing under way.
    pub(super) fn settled(&mut self) {
        let state = &self.state;
        let is_left = state.nodes.iter().any(|node| {
            let mut all = node.owners();
            all.any(|(by, is_orphan)| !is_orphan && !state.is_current(by))
        });
        let has_vote = |node: usize, by| state.nodes[node].vote_for(by).is_some();
        let is_kept = [0, 1].into_iter().any(|client| {
            let it = state.client(client);
            let by = state.owner(client);
            let lead = it.lead();
            it.phase == Phase::Waiting
                && it.has_settled()
                && !has_vote(lead, by)
                && (0..NODES).any(|node| has_vote(node, by))
        });
        if is_left || is_kept && !self.model.setup.may(Fault::LateRequest) {
            self.state.books.broken |= Rule::LeftOver as u8;
        }
    }

    /// The lease of a client is over, if it had one.
    pub(super) fn lease_ended(&mut self, client: u8) {
        let it = *self.state.client(client);
        let books = &mut self.state.books;
        if it.holds() && !it.is_robbed {
            Books::raise(&mut books.ended, it.is_shared, it.certified);
        }
    }
}

/// VQ1: at most one client relies on a lease, unless all are readers, or a fault of the model's robbed one of them.
pub(super) fn is_exclusive(state: &State) -> bool {
    let clients = state.clients.iter();
    let mut believe = clients.filter(|client| client.holds() && !client.is_robbed);
    believe.clone().count() <= 1 || believe.all(|client| client.is_shared)
}

/// Liveness: no fault happens any more, all messages arrive, and time passes. Then some client gets a lease.
///
/// The course is fixed: it delivers what is under way; then a tick passes, and every client that wants the lock asks again. States from
/// which it leads to a lease are remembered, so that each state costs about one step.
impl QuorumModel {
    /// VQ5.
    pub(super) fn reaches_a_lease(&self, state: &State) -> bool {
        let mut state = *state;
        let mut seen = Vec::new();
        for tick in 0..TICKS {
            for _ in 0..DELIVERIES {
                let hash = state.fingerprint();
                seen.push(hash);
                let holds = state.clients.iter().any(Client::holds);
                if holds || self.subject.hopeful().contains(&hash) {
                    self.subject.hopeful().extend(seen);
                    return true;
                }
                let delivery = self.delivery(&state, tick);
                match delivery.and_then(|action| self.step(&state, action)) {
                    Some(next) => state = next.state,
                    None => break,
                }
            }
            let Some(next) = self.next_tick(&state) else {
                return false;
            };
            state = next;
        }
        false
    }

    /// A tick passes, and every client asks.
    fn next_tick(&self, state: &State) -> Option<State> {
        let mut state = self.step(state, Action::Tick)?.state;
        for client in [0, 1] {
            let step = match state.client(client).phase {
                Phase::Idle => ClientStep::Begin,
                Phase::Waiting => ClientStep::Retry,
                _ => continue,
            };
            if let Some(next) = self.step(&state, Action::Client(client, step)) {
                state = next.state;
            }
        }
        Some(state)
    }

    /// The next message that arrives.
    fn delivery(&self, state: &State, tick: usize) -> Option<Action> {
        let mut all = Vec::new();
        self.possible(state, &mut all);
        let due = |action| Some((self.is_due(state, tick, action)?, action));
        let first = all.into_iter().filter_map(due).min_by_key(|(at, _)| *at);
        first.map(|(_, action)| action)
    }

    /// When an action is due in the course, if ever: the least is first. Votes are given back and releases arrive, then proposals and
    /// renewals; after a pause, a client asks again.
    fn is_due(
        &self,
        state: &State,
        tick: usize,
        action: Action,
    ) -> Option<(u8, bool, (usize, usize), u8)> {
        let (client, node, what) = match action {
            Action::Exchange { client, node, what } => (client, node, what),
            Action::Client(client, ClientStep::Retry) => {
                let pauses = state.client(client).attempt.is_some();
                return pauses.then_some((2, false, (client.into(), 0), 0));
            }
            _ => return None,
        };
        let [open, next] = state.client(client).at[node].open;
        let (is_open, at) = (open > 0, usize::from(client));
        // In every other tick, the clients' requests come to the nodes in different orders.
        let place = if tick.is_multiple_of(2) {
            ((at + node) % 2, node)
        } else {
            (at, node)
        };
        // A node with two requests is first: there may be no more.
        let proposed = Some((1, next == 0, place, 0));
        match what {
            Exchange::ArriveLate { again: false } => Some((0, false, place, 0)),
            Exchange::GiveBack => Some((0, false, place, 1)),
            Exchange::Settle if !is_open => Some((0, false, place, 2)),
            Exchange::Arrive { is_heard: true } => proposed,
            Exchange::Fail { is_late: false } if self.is_cut(client, node) => proposed,
            Exchange::Extend if !is_open => proposed,
            _ => None,
        }
    }
}
