//! Liveness: no fault happens any more, all messages arrive, and time passes. Then some client gets a lease.
//!
//! The course is fixed: it delivers what is under way; then a tick passes, and every client that wants the lock asks again. States from
//! which it leads to a lease are remembered, so that each state costs about one step.

use super::actions::{ClientStep, Exchange, QuorumAction};
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
                let hash = state.fingerprint();
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
            let step = match state.client(client).phase {
                QuorumPhase::Idle => ClientStep::Begin,
                QuorumPhase::Waiting => ClientStep::Retry,
                _ => continue,
            };
            if let Some(next) = self.step(&state, QuorumAction::Client(client, step)) {
                state = next.state;
            }
        }
        Some(state)
    }

    /// The next message that arrives. In every other tick, the clients' requests come to the nodes in different orders.
    fn delivery(&self, state: &QuorumState, tick: usize) -> Option<QuorumAction> {
        let pairs: [(u8, usize); 6] = if tick.is_multiple_of(2) {
            [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2)]
        } else {
            [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
        };
        let settles = pairs.into_iter().find_map(|(client, node)| {
            let at = &state.client(client).at[node];
            let what = if state.late[usize::from(client)][node].is_some() {
                Exchange::ArriveLate { again: false }
            } else if at.back[0] > 0 {
                Exchange::GiveBack
            } else if at.owed && at.open[0] == 0 {
                Exchange::Settle
            } else {
                return None;
            };
            Some(QuorumAction::Exchange { client, node, what })
        });
        // A node with two requests first: there may be no more.
        let many = |pair: &&(u8, usize)| state.client(pair.0).at[pair.1].open[1] > 0;
        let asks = || {
            let first = pairs.iter().filter(many).chain(&pairs);
            first.copied().find_map(|(client, node)| {
                let it = state.client(client);
                let is_under_way = |renewal: Renewing| renewal.at[node] == Extended::UnderWay;
                let is_open = it.at[node].open[0] > 0;
                let what = if is_open && self.is_cut(client, node) {
                    Exchange::Fail { is_late: false }
                } else if is_open {
                    Exchange::Arrive { is_heard: true }
                } else if it.renewal.is_some_and(is_under_way) {
                    Exchange::Extend
                } else {
                    return None;
                };
                Some(QuorumAction::Exchange { client, node, what })
            })
        };
        let retries = || {
            let pauses = |client: &u8| {
                let attempt = state.client(*client).attempt;
                attempt.is_some_and(|attempt| attempt.is_pausing)
            };
            let client = [0, 1].into_iter().find(pauses)?;
            Some(QuorumAction::Client(client, ClientStep::Retry))
        };
        settles.or_else(asks).or_else(retries)
    }
}
