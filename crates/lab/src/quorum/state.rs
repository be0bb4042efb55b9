//! The state of the quorum model: the nodes, the clients, the requests under way, and the judge's record. A node's part is what core's
//! [`World`](leasehold_core::World) keeps of one lock; `node` gives it to core and takes it back.
//!
//! States that differ only by the names of clients or nodes are equal: they have the same hash, and the checker compares hashes only.
//!
//! A number is a fence, in microseconds around the constant time of the model; 0 stands for none.

use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_core::quorum::Refusal;

use crate::frame::{CallId, MOST_CALLS};

/// How many nodes there are.
pub(super) const NODES: usize = 3;
/// How many owners of a client the nodes and the network may know at once: fewer than the frame allows.
pub(super) const NUMBERS: u8 = 4;
const _: () = assert!(NUMBERS <= MOST_CALLS);

/// How many clients there are.
pub(super) const CLIENTS: usize = 2;

/// A node's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Vote {
    pub(super) by: CallId,
    pub(super) fence: u64,
    /// The fence of the readers that it belongs to; 0 for a writer.
    pub(super) phase: u64,
    pub(super) left_ms: u64,
    /// Its owner crashed, or its request came after the owner had settled: only time ends it.
    pub(super) is_orphan: bool,
}

/// A place in the queue of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Queued {
    pub(super) by: CallId,
    pub(super) is_shared: bool,
    pub(super) left_ms: u64,
    pub(super) is_orphan: bool,
}

/// The knowledge of a node about its own past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Remembers {
    /// It has forgotten nothing that could still matter.
    All,
    /// It has lost its memory and has not noticed yet.
    Nothing,
    /// It marked itself so many milliseconds ago.
    Since(u64),
}

/// The holder that a node counts for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TakenBy {
    /// An owner of another client, whose vote is never given back.
    Stranger,
    /// Another program.
    Program,
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeState {
    /// One for each holder, in core's order. Beside each other there are only readers'.
    pub(super) votes: [Option<Vote>; CLIENTS],
    pub(super) queue: [Option<Queued>; CLIENTS],
    /// It counts the lock as taken for ever.
    pub(super) taken: Option<TakenBy>,
    /// The last number of its counter.
    pub(super) counter: Option<u64>,
    pub(super) remembers: Remembers,
    /// How many ticks its clock is ahead of the model's.
    pub(super) ahead: i8,
}

/// What a node said in the current round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Said {
    /// It has not answered.
    Open,
    /// It holds the proposed fence for the owner.
    For,
    /// It holds a higher fence for the owner.
    Higher(u64),
    /// The proposal is outside of these bounds.
    Behind(u64, u64),
    /// Another owner holds it. Only the lead's is noted; none stands for the stranger.
    Busy(Option<CallId>),
    /// The lead says that another program holds it, and whether others wait.
    Foreign { others_wait: bool },
    /// It gives no vote.
    NoVote,
    /// The request failed.
    Failed,
}

/// An acquisition in progress: the counterpart of the store's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Attempting {
    pub(super) fence: u64,
    /// How many ticks ago its first request was sent.
    pub(super) age: u8,
    /// The highest fence of a lease that was handed out before.
    pub(super) above: u64,
    pub(super) rounds: u8,
    pub(super) tries: u8,
    pub(super) is_pausing: bool,
    pub(super) lead: usize,
    pub(super) waits: bool,
    pub(super) is_claim: bool,
    pub(super) said: [Said; NODES],
    pub(super) refused: Option<Refusal>,
}

/// A renewal at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Extended {
    UnderWay,
    Held,
    NotHeld,
}

/// A renewal in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Renewing {
    /// How many ticks ago it was sent.
    pub(super) age: u8,
    pub(super) at: [Extended; NODES],
}

/// What a client does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// An attempt is in progress.
    Acquiring,
    /// It was told that the lock is busy, and asks again later.
    Waiting,
    /// It relies on its lease for so many ticks more.
    Holding(u8),
    /// Its owner is over; its votes are given back.
    Leaving,
}

/// A client, and the record of its owner.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Client {
    pub(super) nth: u8,
    /// It asks for the lock as a reader.
    pub(super) is_shared: bool,
    pub(super) phase: Phase,
    pub(super) attempt: Option<Attempting>,
    /// The fence of its certificate.
    pub(super) certified: u64,
    /// It waits with the vote of the lead, and keeps its votes.
    pub(super) keeps_votes: bool,
    /// The fence by which the lead granted it the lock from the queue.
    pub(super) granted: u64,
    /// The record of each node.
    pub(super) at: [AtNode; NODES],
    pub(super) renewal: Option<Renewing>,
    /// The nodes whose last request failed.
    pub(super) silent: [bool; NODES],
    /// The holder for whom the lead alone refused the lock, and whether that was in an earlier tick.
    pub(super) stuck: Option<(Option<CallId>, bool)>,
    /// It had a sign of waiters in this tick.
    pub(super) knows_waiters: bool,
    /// Its clock, and what it learned to add to it.
    pub(super) aim: u64,
    /// The number above its last proposal.
    pub(super) next: u64,
    /// A fault of the model's took a vote of it: exclusion no longer covers it.
    pub(super) is_robbed: bool,
    /// A refused round, and who voted for it: only for rules that count it.
    pub(super) ghost: Option<(u64, [bool; NODES])>,
}

/// What a client knows of its owner at one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct AtNode {
    /// The fences of the votes that the node may have given.
    pub(super) votes: [u64; 2],
    /// The proposal under way, and the next one.
    pub(super) open: [u64; 2],
    /// The votes that are being given back.
    pub(super) back: [u64; 2],
    /// The owner has to be released there.
    pub(super) owed: bool,
    /// The node lacks the vote of the certificate.
    pub(super) lacking: bool,
    /// The bounds of the fences that the node accepts, if that of the certificate is too low for it.
    pub(super) beyond: Option<(u64, u64)>,
}

/// A proposal that its client no longer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LateProposal {
    pub(super) nth: u8,
    pub(super) is_shared: bool,
    pub(super) fence: u64,
    pub(super) waits: bool,
    pub(super) is_repeat: bool,
}

/// The judge's record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Books {
    /// The highest fence of a writer's lease that was handed out, and the highest number of a reader's.
    pub(super) highest: [u64; 2],
    /// Those of leases that have ended, and were not robbed.
    pub(super) ended: [u64; 2],
    /// The fences of leases that a later lease could still have; only where votes are robbed.
    pub(super) given: [u64; 4],
    /// The properties that the last step violated: a bit each.
    pub(super) broken: u8,
}

impl Books {
    /// The highest number that the next lease of this mode is above. Readers hold beside each other, in any order.
    pub(super) fn below(of_modes: [u64; 2], is_shared: bool) -> u64 {
        let [writers, readers] = of_modes;
        if is_shared {
            writers
        } else {
            writers.max(readers)
        }
    }

    /// A lease of this mode has this number.
    pub(super) fn raise(of_modes: &mut [u64; 2], is_shared: bool, number: u64) {
        let highest = &mut of_modes[usize::from(is_shared)];
        *highest = number.max(*highest);
    }
}

/// Which names may be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Alike {
    /// The clients have equal clocks and equal faults.
    pub(super) clients: bool,
    /// The nodes beside the lead have equal clocks, and none of them ever leads.
    pub(super) nodes: bool,
}

/// The whole state of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub(super) nodes: [NodeState; NODES],
    pub(super) clients: [Client; CLIENTS],
    pub(super) late: [[Option<LateProposal>; NODES]; CLIENTS],
    pub(super) books: Books,
    /// How often the fault that is counted has happened.
    pub(super) spent: u8,
    pub(super) alike: Alike,
}

impl NodeState {
    /// The vote for this owner.
    pub(super) fn vote_for(&self, owner: CallId) -> Option<Vote> {
        let mut votes = self.votes.iter().flatten();
        votes.find(|vote| vote.by == owner).copied()
    }

    /// The owners of its votes and of the places in its queue, and whether only time ends these.
    pub(super) fn owners(&self) -> impl Iterator<Item = (CallId, bool)> {
        let votes = self.votes.iter().flatten();
        let votes = votes.map(|vote| (vote.by, vote.is_orphan));
        let places = self.queue.iter().flatten();
        votes.chain(places.map(|place| (place.by, place.is_orphan)))
    }
}

impl Attempting {
    /// What the lead said.
    pub(super) const fn by_lead(&self) -> Said {
        self.said[self.lead]
    }
}

impl Client {
    /// The node that it asks as the lead: the first one that answers.
    pub(super) fn lead(&self) -> usize {
        let answers = self.silent.iter().position(|is_silent| !is_silent);
        answers.unwrap_or_default()
    }

    /// Whether it relies on a lease.
    pub(super) const fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// The highest fence that its owner may hold.
    pub(super) fn highest(&self) -> u64 {
        let votes = self.at.iter().flat_map(|at| at.votes);
        votes.chain([self.granted]).max().unwrap_or_default()
    }

    /// A node holds for its owner, with this fence or with a higher one of a later round.
    pub(super) fn has_vote(&mut self, node: usize, fence: u64) {
        let votes = &mut self.at[node].votes;
        let [first, second] = *votes;
        *votes = [fence.max(first).max(second), 0];
    }

    /// A node may hold for its owner. Returns whether there was room to note it.
    pub(super) fn may_have_vote(&mut self, node: usize, fence: u64) -> bool {
        put(&mut self.at[node].votes, fence)
    }

    /// The fence of the vote at a node that is above the certificate.
    pub(super) fn higher_at(&self, node: usize) -> Option<u64> {
        match self.at[node].votes {
            [vote, 0] if self.certified > 0 && vote > self.certified => Some(vote),
            _ => None,
        }
    }

    /// Whether nothing of its owner is under way or to be done.
    pub(super) fn has_settled(&self) -> bool {
        let mut nodes = self.at.iter();
        nodes.all(|at| at.open == [0; 2] && at.back == [0; 2] && !at.owed)
    }
}

/// Puts a number into the first free place. Returns whether there was one.
pub(super) fn put(places: &mut [u64], number: u64) -> bool {
    if places.contains(&number) {
        return true;
    }
    match places.iter_mut().find(|place| **place == 0) {
        Some(place) => *place = number,
        None => return false,
    }
    true
}

impl State {
    pub(super) fn client(&self, client: u8) -> &Client {
        &self.clients[usize::from(client)]
    }

    pub(super) fn client_mut(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    /// How many requests are on their way to nodes.
    pub(super) fn under_way(&self) -> usize {
        let clients = self.clients.iter().map(|it| {
            let at_nodes = it.at.iter().map(|at| {
                let numbers = at.open.iter().chain(&at.back);
                numbers.filter(|number| **number > 0).count() + usize::from(at.owed)
            });
            let renewals = it.renewal.map_or(0, |renewal| {
                let at = renewal.at.iter();
                at.filter(|at| **at == Extended::UnderWay).count()
            });
            at_nodes.sum::<usize>() + renewals
        });
        clients.sum()
    }

    /// The current owner of a client.
    pub(super) fn owner(&self, client: u8) -> CallId {
        let nth = self.client(client).nth;
        CallId { client, nth }
    }

    /// Whether a client still acts for this owner.
    pub(super) fn is_current(&self, owner: CallId) -> bool {
        let client = self.client(owner.client);
        client.nth == owner.nth && client.phase != Phase::Idle
    }

    /// Every place that names an owner.
    pub(super) fn each_owner(&mut self, mut with: impl FnMut(&mut CallId)) {
        for node in &mut self.nodes {
            for vote in node.votes.iter_mut().flatten() {
                with(&mut vote.by);
            }
            for place in node.queue.iter_mut().flatten() {
                with(&mut place.by);
            }
        }
        for client in &mut self.clients {
            if let Some((Some(by), _)) = &mut client.stuck {
                with(by);
            }
            let attempt = client.attempt.iter_mut();
            for said in attempt.flat_map(|attempt| &mut attempt.said) {
                if let Said::Busy(Some(by)) = said {
                    with(by);
                }
            }
        }
        for (client, late) in (0u8..).zip(&mut self.late) {
            for message in late.iter_mut().flatten() {
                let nth = message.nth;
                let mut by = CallId { client, nth };
                with(&mut by);
                message.nth = by.nth;
            }
        }
    }
}

impl State {
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
            (self.clients).map(|client| (client.phase != Phase::Idle).then_some(client.nth));
        let mut known = [[None; NUMBERS as usize]; CLIENTS];
        let mut numbered = |owner: &mut CallId| {
            let client = usize::from(owner.client);
            let nth = if Some(owner.nth) == current[client] {
                0
            } else {
                let known = &mut known[client];
                let is_its = |it: &Option<u8>| it.is_none_or(|nth| nth == owner.nth);
                let place = known.iter().position(is_its);
                let place = place.unwrap_or(known.len() - 1);
                known[place] = Some(owner.nth);
                u8::try_from(1 + place).unwrap_or(u8::MAX)
            };
            owner.nth = nth;
            if clients {
                owner.client = 1 - owner.client;
            }
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

impl Hash for State {
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

    use super::State;
    use crate::frame::{Bounds, setups};
    use crate::quorum::{Quorum, QuorumModel, QuorumRules};

    /// How many states of each model are expanded.
    const MOST: usize = 12_000;

    fn successors(model: &QuorumModel, state: &State) -> Vec<State> {
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
        for setup in setups::<Quorum>(Bounds::Ci) {
            let quorum = Quorum::new(&setup, QuorumRules::SOUND).unwrap();
            let model = QuorumModel::of(setup, quorum);
            let hashes = |state: &State| -> BTreeSet<u64> {
                let all = successors(&model, state);
                all.iter().map(State::fingerprint).collect()
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
