//! The possible next actions of the quorum model. Slow clients, requests and nodes are covered: anything may take any time.

use leasehold_core::CLAIM_WINDOW;

use super::model::{ClientRules, QuorumModel};
use super::setup::{QuorumFault, Recalls};
use super::state::{Extended, NODES, QuorumPhase, QuorumState, Renewing};

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuorumAction {
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

/// A step of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientStep {
    /// It asks for the lock, as a new owner.
    Begin,
    /// It asks again: after a pause with the vote of the lead, or as a waiter.
    Retry,
    /// It gives up its lease, its place, or its acquisition.
    Release,
    /// It renews its lease.
    Renew,
    /// It crashes, and restarts.
    Crash,
    /// A holder hears that others wait.
    Hear,
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
    pub(super) fn possible(&self, state: &QuorumState, into: &mut Vec<QuorumAction>) {
        for client in [0, 1] {
            self.of_client(state, client, into);
        }
        let most = if self.setup.at_lead { 1 } else { NODES };
        for node in 0..most {
            self.of_node(state, node, into);
        }
        if state.under_way() <= self.setup.lag {
            into.push(QuorumAction::Tick);
        }
    }

    fn of_node(&self, state: &QuorumState, node: usize, into: &mut Vec<QuorumAction>) {
        let it = &state.nodes[node];
        let may = |fault| self.has_left(state, fault);
        let may_stick = may(QuorumFault::EndlessVote) || may(QuorumFault::ForeignVote);
        let has_current = it.vote.is_some_and(|vote| state.is_current(vote.by));
        let events = [
            (
                NodeEvent::Jump,
                may(QuorumFault::ClockJump) && it.vote.is_some(),
            ),
            (NodeEvent::Stick, may_stick && it.vote.is_none()),
            (
                NodeEvent::LoseMemory,
                may(QuorumFault::LostMemory) && it.counter.is_some(),
            ),
            (NodeEvent::Break, may(QuorumFault::Break) && has_current),
        ];
        let possible = events.into_iter().filter(|(_, is_possible)| *is_possible);
        into.extend(possible.map(|(event, _)| QuorumAction::Node(node, event)));
    }

    fn of_client(&self, state: &QuorumState, client: u8, into: &mut Vec<QuorumAction>) {
        let it = state.client(client);
        let may = |fault| self.setup.may(fault);
        let mut push = |step| into.push(QuorumAction::Client(client, step));
        match it.phase {
            QuorumPhase::Idle => push(ClientStep::Begin),
            QuorumPhase::Waiting => {
                push(ClientStep::Retry);
                push(ClientStep::Release);
            }
            QuorumPhase::Holding(_) => push(ClientStep::Release),
            QuorumPhase::Acquiring if it.attempt.is_some_and(|attempt| attempt.is_pausing) => {
                push(ClientStep::Retry);
            }
            QuorumPhase::Acquiring | QuorumPhase::Leaving => {}
        }
        if it.phase == QuorumPhase::Acquiring && may(QuorumFault::GivesUp) {
            push(ClientStep::Release);
        }
        let by = state.owner(client);
        let is_waited_for = state
            .nodes
            .iter()
            .any(|node| node.vote.is_some_and(|vote| vote.by == by) && node.queue[0].is_some());
        let remembers = self.setup.recalls != Recalls::Nothing;
        if it.holds() && remembers && is_waited_for && !it.knows_waiters {
            push(ClientStep::Hear);
        }
        if self.has_left(state, QuorumFault::Crash) && it.phase != QuorumPhase::Idle {
            push(ClientStep::Crash);
        }
        let renews = may(QuorumFault::Renewal) && it.renewal.is_none();
        if renews && it.holds() {
            push(ClientStep::Renew);
        }
        for node in 0..NODES {
            self.between(state, client, node, into);
        }
    }

    fn between(&self, state: &QuorumState, client: u8, node: usize, into: &mut Vec<QuorumAction>) {
        let it = state.client(client);
        let at = &it.at[node];
        let has_left = |fault| self.has_left(state, fault);
        let mut push = |what| into.push(QuorumAction::Exchange { client, node, what });
        let is_open = at.open[0] > 0;
        if is_open {
            push(if self.is_cut(client, node) {
                Exchange::Fail { is_late: false }
            } else {
                Exchange::Arrive { is_heard: true }
            });
            if has_left(QuorumFault::LostMessage) {
                push(Exchange::Arrive { is_heard: false });
                push(Exchange::Fail { is_late: false });
            }
            if has_left(QuorumFault::LateRequest) {
                push(Exchange::Fail { is_late: true });
            }
        }
        if let Some(late) = state.late[usize::from(client)][node] {
            push(Exchange::ArriveLate { again: false });
            push(Exchange::DropLate);
            if self.setup.may(QuorumFault::Repeated) && !late.is_repeat {
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
        let is_granted = state.nodes[node].vote.is_some_and(|vote| {
            vote.by == state.owner(client) && u128::from(vote.left_ms) <= CLAIM_WINDOW.as_millis()
        });
        if it.phase == QuorumPhase::Waiting && is_granted {
            push(Exchange::Claim);
        }
    }
}
