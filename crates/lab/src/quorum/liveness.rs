//! Liveness: no fault happens any more, all messages arrive, and time passes. Then some client gets a lease.
//!
//! The course is fixed: it delivers what is under way; then a tick passes, and every client that wants the lock asks again. States from
//! which it leads to a lease are remembered, so that each state costs about one step.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::actions::QuorumAction;
use super::model::QuorumModel;
use super::state::{Extended, QuorumClient, QuorumPhase, QuorumState, Renewing};

/// More ticks than the end of a lease, a quarantine and a stuck lead take together.
const TICKS: usize = 20;

/// More deliveries than a tick can have.
const DELIVERIES: usize = 200;

impl QuorumModel {
    /// VQ5.
    pub(super) fn reaches_a_lease(&self, state: &QuorumState) -> bool {
        let mut state = *state;
        let mut seen = Vec::new();
        for tick in 0..TICKS {
            for _ in 0..DELIVERIES {
                let mut hasher = DefaultHasher::new();
                state.hash(&mut hasher);
                let hash = hasher.finish();
                let holds = state.clients.iter().any(QuorumClient::holds);
                seen.push(hash);
                if holds || self.subject.hopeful.has(hash) {
                    for hash in seen {
                        self.subject.hopeful.add(hash);
                    }
                    return true;
                }
                match self
                    .delivery(&state, tick)
                    .and_then(|action| self.step(&state, action))
                {
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
    fn next_tick(&self, state: &QuorumState) -> Option<QuorumState> {
        let mut state = self.step(state, QuorumAction::Tick)?.state;
        for client in [0, 1] {
            let action = match state.client(client).phase {
                QuorumPhase::Idle => QuorumAction::Begin { client },
                QuorumPhase::Waiting => QuorumAction::Retry { client },
                _ => continue,
            };
            if let Some(next) = self.step(&state, action) {
                state = next.state;
            }
        }
        Some(state)
    }

    /// The next message that arrives. In every other tick, the clients' requests come to the nodes in different orders.
    fn delivery(&self, state: &QuorumState, tick: usize) -> Option<QuorumAction> {
        let pairs = if tick.is_multiple_of(2) {
            [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2)]
        } else {
            [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
        };
        let at = |node: u8| usize::from(node);
        let settles = pairs.into_iter().find_map(|(client, node)| {
            let it = state.client(client);
            if state.late[usize::from(client)][at(node)].is_some() {
                let again = false;
                Some(QuorumAction::ArriveLate {
                    client,
                    node,
                    again,
                })
            } else if it.back[at(node)][0] > 0 {
                Some(QuorumAction::GiveBack { client, node })
            } else if it.owed[at(node)] && it.open[at(node)][0] == 0 {
                Some(QuorumAction::Settle { client, node })
            } else {
                None
            }
        });
        // A node with two requests first: there may be no more.
        let many = |pair: &&(u8, u8)| state.client(pair.0).open[at(pair.1)][1] > 0;
        let asks = || {
            let first = pairs.iter().filter(many).chain(&pairs);
            first.copied().find_map(|(client, node)| {
                let it = state.client(client);
                let is_under_way = |renewal: Renewing| renewal.at[at(node)] == Extended::UnderWay;
                if it.open[at(node)][0] > 0 && self.is_cut(client, at(node)) {
                    let is_late = false;
                    Some(QuorumAction::Fail {
                        client,
                        node,
                        is_late,
                    })
                } else if it.open[at(node)][0] > 0 {
                    let is_heard = true;
                    Some(QuorumAction::Arrive {
                        client,
                        node,
                        is_heard,
                    })
                } else if it.renewal.is_some_and(is_under_way) {
                    Some(QuorumAction::Extend { client, node })
                } else {
                    None
                }
            })
        };
        let retries = || {
            [0, 1].into_iter().find_map(|client| {
                let attempt = state.client(client).attempt?;
                attempt.is_pausing.then_some(QuorumAction::Retry { client })
            })
        };
        settles.or_else(asks).or_else(retries)
    }
}
