//! States that differ only by the names of clients or nodes are equal: they have the same hash, and the checker compares hashes only.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::model::NUMBERS;
use super::state::{CLIENTS, QuorumPhase, QuorumState};
use crate::frame::CallId;

impl QuorumState {
    /// One number for all states that differ by names only.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// The least of all states that differ from this one by names only.
    fn canonical(&self) -> Self {
        let mut least = self.renamed(false, false);
        for (clients, nodes) in [(true, false), (false, true), (true, true)] {
            let is_allowed = (self.alike.clients || !clients) && (self.alike.nodes || !nodes);
            if is_allowed {
                least = least.min(self.renamed(clients, nodes));
            }
        }
        least
    }

    /// This state with other names: clients or nodes are exchanged, and the numbers of owners are counted.
    fn renamed(&self, clients: bool, nodes: bool) -> Self {
        let mut state = *self;
        if nodes {
            state.nodes.swap(1, 2);
            for client in &mut state.clients {
                client.at.swap(1, 2);
                client.silent.swap(1, 2);
                if let Some(attempt) = &mut client.attempt {
                    attempt.said.swap(1, 2);
                }
                if let Some(renewal) = &mut client.renewal {
                    renewal.at.swap(1, 2);
                }
                if let Some((_, votes)) = &mut client.ghost {
                    votes.swap(1, 2);
                }
            }
            for late in &mut state.late {
                late.swap(1, 2);
            }
        }
        if clients {
            state.clients.swap(0, 1);
        }
        // An owner of an idle client is one of its earlier ones.
        let current =
            (self.clients).map(|client| (client.phase != QuorumPhase::Idle).then_some(client.nth));
        let mut known = [[None; NUMBERS as usize]; CLIENTS];
        let mut numbered = |owner: &mut CallId| {
            let client = usize::from(owner.client);
            let nth = if Some(owner.nth) == current[client] {
                0
            } else {
                let known = &mut known[client];
                let place = known
                    .iter()
                    .position(|it| *it == Some(owner.nth) || it.is_none());
                let place = place.unwrap_or(known.len() - 1);
                known[place] = Some(owner.nth);
                u8::try_from(1 + place).unwrap_or(u8::MAX)
            };
            *owner = CallId {
                client: if clients {
                    1 - owner.client
                } else {
                    owner.client
                },
                nth,
            };
        };
        state.each_owner(&mut numbered);
        if clients {
            // The place of a late proposal names its client, so they are exchanged after their owners.
            state.late.swap(0, 1);
        }
        for client in &mut state.clients {
            client.nth = 0;
        }
        state
    }
}

impl Hash for QuorumState {
    fn hash<H: Hasher>(&self, into: &mut H) {
        // The pattern names every field, so a new one does not compile until it is handled.
        let Self {
            nodes,
            clients,
            late,
            books,
            spent,
            alike,
        } = self.canonical();
        (nodes, clients, late, books, spent, alike).hash(into);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use std::collections::{BTreeSet, HashMap, VecDeque};

    use stateright::Model;

    use crate::frame::Bounds;
    use crate::quorum::configs::all;
    use crate::quorum::model::{QuorumModel, QuorumRules};
    use crate::quorum::state::QuorumState;

    /// How many states of each model are expanded.
    const MOST: usize = 12_000;

    fn successors(model: &QuorumModel, state: &QuorumState) -> Vec<QuorumState> {
        let mut actions = Vec::new();
        model.actions(state, &mut actions);
        let next = actions.into_iter();
        next.filter_map(|action| model.next_state(state, action))
            .collect()
    }

    /// The checker expands one state only of those that count as equal, so their successors must be equal, too.
    #[test]
    fn equal_states_lead_to_equal_states() {
        let mut compared = 0;
        for setup in all(Bounds::Ci) {
            let model = QuorumModel::new(setup, QuorumRules::SOUND).unwrap();
            let hashes = |state: &QuorumState| -> BTreeSet<u64> {
                let all = successors(&model, state);
                all.iter().map(QuorumState::fingerprint).collect()
            };
            let mut known = HashMap::new();
            let mut queue = VecDeque::from(model.init_states());
            for _ in 0..MOST {
                let state = queue.pop_front().unwrap();
                for next in successors(&model, &state) {
                    let same = known.entry(next.fingerprint()).or_insert_with(|| {
                        queue.push_back(next);
                        next
                    });
                    if *same != next {
                        compared += 1;
                        assert_eq!(
                            hashes(same),
                            hashes(&next),
                            "{}: {same:#?}, {next:#?}",
                            setup.name
                        );
                    }
                }
            }
        }
        assert!(compared > 10_000, "{compared}");
    }
}
