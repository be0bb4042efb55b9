//! The possible next actions of the quorum model. Slow clients, requests and nodes are covered: anything may take any time.

use leasehold_core::CLAIM_WINDOW;

use super::model::{ClientRules, QuorumModel};
use super::setup::{QuorumFault, Recalls};
use super::state::{Extended, NODES, QuorumPhase, QuorumState};

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuorumAction {
    /// A client asks for the lock, as a new owner.
    Begin { client: u8 },
    /// A client asks again: after a pause with the vote of the lead, or as a waiter.
    Retry { client: u8 },
    /// A waiter was woken, and claims the lock.
    Claim { client: u8, node: u8 },
    /// A node carries out the oldest proposal of a client.
    Arrive {
        client: u8,
        node: u8,
        is_heard: bool,
    },
    /// A proposal fails. It is lost, or comes late.
    Fail { client: u8, node: u8, is_late: bool },
    /// A node carries out a late proposal.
    ArriveLate { client: u8, node: u8, again: bool },
    /// A late proposal is lost.
    DropLate { client: u8, node: u8 },
    /// A node frees a vote that its client gives back.
    GiveBack { client: u8, node: u8 },
    /// A node carries out a release.
    Settle { client: u8, node: u8 },
    /// A client gives up its lease, its place, or its acquisition.
    Release { client: u8 },
    /// A client renews its lease.
    Renew { client: u8 },
    /// A node carries out a renewal.
    Extend { client: u8, node: u8 },
    /// A client crashes, and restarts.
    Crash { client: u8 },
    /// A node loses its memory.
    LoseMemory { node: u8 },
    /// An operator breaks a vote.
    Break { node: u8 },
    /// The clock of a node jumps ahead.
    Jump { node: u8 },
    /// A node counts the lock as taken for ever.
    Stick { node: u8 },
    /// A holder hears that others wait.
    Hear { client: u8 },
    /// Time passes.
    Tick,
}

const ALL: [u8; NODES] = [0, 1, 2];

impl QuorumModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &QuorumState, into: &mut Vec<QuorumAction>) {
        for client in [0, 1] {
            self.of_client(state, client, into);
        }
        let most = if self.setup.at_lead { 1 } else { NODES };
        for node in ALL.into_iter().take(most) {
            let vote = state.nodes[usize::from(node)].vote;
            if self.has_left(state, QuorumFault::ClockJump) && vote.is_some() {
                into.push(QuorumAction::Jump { node });
            }
            let may_stick = [QuorumFault::EndlessVote, QuorumFault::ForeignVote]
                .into_iter()
                .any(|fault| self.has_left(state, fault));
            if may_stick && vote.is_none() {
                into.push(QuorumAction::Stick { node });
            }
            if self.has_left(state, QuorumFault::LostMemory)
                && state.nodes[usize::from(node)].counter.is_some()
            {
                into.push(QuorumAction::LoseMemory { node });
            }
            let is_current = |by| state.is_current(by);
            if self.has_left(state, QuorumFault::Break)
                && vote.is_some_and(|vote| is_current(vote.by))
            {
                into.push(QuorumAction::Break { node });
            }
        }
        if state.under_way() <= self.setup.lag {
            into.push(QuorumAction::Tick);
        }
    }

    fn of_client(&self, state: &QuorumState, client: u8, into: &mut Vec<QuorumAction>) {
        let it = state.client(client);
        let may = |fault| self.setup.may(fault);
        match it.phase {
            QuorumPhase::Idle => into.push(QuorumAction::Begin { client }),
            QuorumPhase::Waiting => {
                into.push(QuorumAction::Retry { client });
                into.push(QuorumAction::Release { client });
            }
            QuorumPhase::Holding(_) => into.push(QuorumAction::Release { client }),
            QuorumPhase::Acquiring if it.attempt.is_some_and(|attempt| attempt.is_pausing) => {
                into.push(QuorumAction::Retry { client });
            }
            QuorumPhase::Acquiring | QuorumPhase::Leaving => {}
        }
        if it.phase == QuorumPhase::Acquiring && may(QuorumFault::GivesUp) {
            into.push(QuorumAction::Release { client });
        }
        let by = state.owner(client);
        let is_waited_for = state
            .nodes
            .iter()
            .any(|node| node.vote.is_some_and(|vote| vote.by == by) && node.queue[0].is_some());
        let remembers = self.setup.recalls != Recalls::Nothing;
        if it.holds() && remembers && is_waited_for && !it.knows_waiters {
            into.push(QuorumAction::Hear { client });
        }
        if self.has_left(state, QuorumFault::Crash) && it.phase != QuorumPhase::Idle {
            into.push(QuorumAction::Crash { client });
        }
        let renews = may(QuorumFault::Renewal) && it.renewal.is_none();
        if renews && it.holds() {
            into.push(QuorumAction::Renew { client });
        }
        for node in ALL {
            self.at_node(state, (client, node), into);
        }
    }

    fn at_node(&self, state: &QuorumState, (client, node): (u8, u8), into: &mut Vec<QuorumAction>) {
        let it = state.client(client);
        let at = usize::from(node);
        let may = |fault| self.setup.may(fault);
        let arrive = |is_heard| QuorumAction::Arrive {
            client,
            node,
            is_heard,
        };
        let fail = |is_late| QuorumAction::Fail {
            client,
            node,
            is_late,
        };
        let arrive_late = |again| QuorumAction::ArriveLate {
            client,
            node,
            again,
        };
        if it.open[at][0] > 0 {
            into.push(if self.is_cut(client, at) {
                fail(false)
            } else {
                arrive(true)
            });
            if self.has_left(state, QuorumFault::LostMessage) {
                into.extend([arrive(false), fail(false)]);
            }
            if self.has_left(state, QuorumFault::LateRequest) {
                into.push(fail(true));
            }
        }
        if let Some(late) = state.late[usize::from(client)][at] {
            into.extend([arrive_late(false), QuorumAction::DropLate { client, node }]);
            if may(QuorumFault::Repeated) && !late.is_repeat {
                into.push(arrive_late(true));
            }
        }
        if it.back[at][0] > 0 {
            into.push(QuorumAction::GiveBack { client, node });
        }
        let is_answered =
            it.open[at][0] == 0 || self.subject.rules.client == ClientRules::ReleasesAtOnce;
        if it.owed[at] && is_answered {
            into.push(QuorumAction::Settle { client, node });
        }
        if let Some(renewal) = it.renewal
            && renewal.at[at] == Extended::UnderWay
        {
            into.push(QuorumAction::Extend { client, node });
        }
        let is_granted = state.nodes[at].vote.is_some_and(|vote| {
            vote.by == state.owner(client) && u128::from(vote.left_ms) <= CLAIM_WINDOW.as_millis()
        });
        if it.phase == QuorumPhase::Waiting && is_granted {
            into.push(QuorumAction::Claim { client, node });
        }
    }
}
