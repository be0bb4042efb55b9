//! Nodes, clients and the network between them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use leasehold_core::quorum::{Mark, Proposal, Proposer, QuorumNode, QuorumTerms, Vote, quarantine};
use leasehold_core::{
    Block, Fence, Fences, HolderIdentity, LockName, Now, Owner, Reply, Step, Ttl, UnknownPresence,
};

use crate::client::{Client, Doing};
use crate::clock::Clock;
use crate::judge::Record;
use crate::rng::Rng;

/// The rules of a history: the sound ones, or a weaker variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    Sound,
    /// A node that lost its memory votes at once.
    NoQuarantine,
    /// It votes after the longest TTL, before its clock has passed all fences that it had accepted.
    QuarantineOfOneTtl,
    /// After its quarantine it accepts numbers below its clock.
    NoFloorAfterLoss,
    /// A node accepts any number that is not too far ahead, and remembers none.
    NoCounter,
    /// The fence is the highest number among a majority of votes, of any round (QR5, QR6).
    HighestVote,
    /// Votes on earlier proposals count (QR5).
    LateVotesCount,
    /// A lease is relied on from the last reply, not from the first request.
    ValidFromTheReply,
    /// One vote less than a majority is a certificate.
    MinorityIsEnough,
}

pub(crate) const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
/// The length of a history.
const END: u64 = 22 * SECOND;
const LONGEST_TTL: Duration = Duration::from_secs(2);
pub(crate) const BLOCK: u64 = 4;

/// A request on its way to a node.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Propose(Proposal),
    Extend(Owner, u64),
    Release(Owner),
}

pub(crate) enum Event {
    Begin(usize),
    Arrive(usize, usize, Request),
    Voted(usize, usize, Proposal, Vote),
    Extended(usize, usize, u64, bool),
    GiveUp(usize, Owner),
    Renew(usize, Owner),
    Release(usize, Owner),
    LoseMemory(usize),
    Break(usize),
    OtherName(usize),
}

pub(crate) struct Simulation {
    pub(crate) rng: Rng,
    pub(crate) rules: Rules,
    pub(crate) at: u64,
    pub(crate) nodes: Vec<(QuorumNode, Clock)>,
    pub(crate) clients: Vec<Client>,
    events: Vec<Option<Event>>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    name: LockName,
    pub(crate) terms: QuorumTerms,
    pub(crate) ttl: Ttl,
    /// The TTL in microseconds.
    pub(crate) ttl_us: u64,
    pub(crate) owners: u64,
    pub(crate) renewals: u64,
    pub(crate) leases: Vec<Record>,
    /// Owners whose hold an operator broke on some node.
    pub(crate) broken: Vec<Owner>,
    told: bool,
    pub(crate) story: Vec<String>,
}

impl Simulation {
    pub(crate) fn new(seed: u64, rules: Rules, told: bool) -> Self {
        let mut rng = Rng::new(seed);
        let count = rng.pick(&[3_u8, 3, 5]);
        let terms = QuorumTerms {
            nodes: count,
            longest_ttl: Ttl::new(LONGEST_TTL).unwrap(),
        };
        let marked = Mark {
            terms,
            made_at_ms: 0,
        };
        let nodes = (0..count)
            .map(|_| (QuorumNode::marked(marked), Clock::random(&mut rng)))
            .collect();
        let clients = (0..3)
            .map(|_| Client {
                clock: Clock::random(&mut rng),
                proposer: Proposer::default(),
                now: Doing::Nothing,
            })
            .collect();
        let ttl = Ttl::new(Duration::from_millis(rng.pick(&[500, 1_000, 2_000]))).unwrap();
        let mut simulation = Self {
            rng,
            rules,
            at: 0,
            nodes,
            clients,
            events: Vec::new(),
            queue: BinaryHeap::new(),
            name: LockName::new("stock").unwrap(),
            terms,
            ttl,
            ttl_us: ttl.millis() * MS,
            owners: 0,
            renewals: 0,
            leases: Vec::new(),
            broken: Vec::new(),
            told,
            story: Vec::new(),
        };
        for client in 0..3 {
            // Some clients come late, and have learned nothing yet.
            let at = simulation.rng.pick(&[0, 0, 3, 15]) * SECOND + simulation.rng.below(SECOND);
            simulation.later(at, Event::Begin(client));
        }
        for _ in 0..simulation.rng.below(3) {
            let at = SECOND + simulation.rng.below(5 * SECOND);
            let node = simulation.node();
            simulation.later(at, Event::LoseMemory(node));
        }
        for _ in 0..simulation.rng.pick(&[0, 0, 3]) {
            let (at, node) = (simulation.rng.below(END), simulation.node());
            simulation.later(at, Event::Break(node));
        }
        for _ in 0..simulation.rng.pick(&[0, 10]) {
            let (at, node) = (simulation.rng.below(END), simulation.node());
            simulation.later(at, Event::OtherName(node));
        }
        simulation
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.rng.below(u64::from(self.terms.nodes))).unwrap()
    }

    pub(crate) fn later(&mut self, after: u64, event: Event) {
        self.queue
            .push(Reverse((self.at + after, self.events.len())));
        self.events.push(Some(event));
    }

    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        if self.told {
            let at = self.at;
            self.story.push(format!("{at:>9} {}", text()));
        }
    }

    pub(crate) fn run(&mut self) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > END {
                break;
            }
            self.at = at;
            if let Some(event) = self.events[number].take() {
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin(client) => self.begin(client),
            Event::Arrive(client, node, request) => self.arrive(client, node, request),
            Event::Voted(client, node, proposal, vote) => {
                self.voted(client, node, &proposal, &vote);
            }
            Event::Extended(client, node, renewal, is_held) => {
                self.extended(client, node, renewal, is_held);
            }
            Event::GiveUp(client, owner) => {
                let acquires = matches!(self.clients[client].now, Doing::Acquiring(_));
                if acquires && self.clients[client].owner() == Some(&owner) {
                    self.leave(client);
                }
            }
            Event::Renew(client, owner) => self.renew(client, &owner),
            Event::Release(client, owner) => {
                if self.clients[client].owner() == Some(&owner) {
                    self.leave(client);
                }
            }
            Event::LoseMemory(node) => self.lose_memory(node),
            Event::Break(node) => self.break_hold(node),
            Event::OtherName(node) => {
                // Another name of this bucket was locked by a client with a clock of its own.
                let wall_us = self.nodes[node].1.wall(self.at);
                let first = Fence::new(wall_us + self.rng.below(10 * SECOND));
                let fences = Fences {
                    first,
                    block: Block::ONE,
                };
                let counter = self.nodes[node].0.counter(&self.name);
                if !counter.is_lost() {
                    // A refused number changes nothing.
                    counter.accept(fences, wall_us, wall_us + 10 * SECOND).ok();
                }
            }
        }
    }

    /// A message of a client to a node: late, lost or repeated.
    fn send(&mut self, client: usize, node: usize, request: &Request) {
        if self.rng.one_in(12) {
            return;
        }
        for _ in 0..=u64::from(self.rng.one_in(15)) {
            let delay = self.delay();
            self.later(delay, Event::Arrive(client, node, request.clone()));
        }
    }

    fn delay(&mut self) -> u64 {
        let most = self.rng.pick(&[MS, MS, 20 * MS, 200 * MS, 1_500 * MS]);
        self.rng.below(most)
    }

    pub(crate) fn send_all(&mut self, client: usize, request: &Request) {
        for node in 0..self.nodes.len() {
            self.send(client, node, request);
        }
    }

    fn arrive(&mut self, client: usize, node: usize, request: Request) {
        let now = Now::at_micros(self.nodes[node].1.wall(self.at));
        let name = self.name.clone();
        let state = &mut self.nodes[node].0;
        let answer = match request {
            Request::Propose(proposal) => {
                let is_trusted =
                    |mark: &Mark| mark.made_at_ms > 0 && mark.quarantined_for(now).is_none();
                let has_no_floor = match self.rules {
                    Rules::NoCounter => true,
                    Rules::NoFloorAfterLoss => {
                        state.mark.as_ref().is_some_and(is_trusted)
                            && state.counter(&name).is_lost()
                    }
                    _ => false,
                };
                if has_no_floor {
                    state.counter(&name).0 = Some(Fence::new(0));
                }
                let vote = state.propose(now, &name, &proposal, &UnknownPresence);
                self.say(|| {
                    let first = proposal.fences.first;
                    format!("node {node} votes on {first} of client {client}: {vote:?}")
                });
                Event::Voted(client, node, proposal, vote)
            }
            Request::Extend(owner, renewal) => {
                let step = Step::Extend {
                    owner,
                    ttl: self.ttl,
                    fence: None,
                };
                let reply = state.apply(now, &name, &step, &UnknownPresence).reply;
                Event::Extended(client, node, renewal, matches!(reply, Reply::Held(_)))
            }
            Request::Release(owner) => {
                let step = Step::Release {
                    owner,
                    keep: None,
                    fence: None,
                };
                state.apply(now, &name, &step, &UnknownPresence);
                self.say(|| format!("node {node} is released by client {client}"));
                return;
            }
        };
        if !self.rng.one_in(12) {
            let delay = self.delay();
            self.later(delay, answer);
        }
    }

    fn lose_memory(&mut self, node: usize) {
        let now_ms = self.nodes[node].1.wall(self.at) / MS;
        let full = u64::try_from(quarantine(self.terms.longest_ttl).as_millis()).unwrap();
        let made_at_ms = match self.rules {
            Rules::NoQuarantine => Some(0),
            Rules::QuarantineOfOneTtl => Some(now_ms - full + self.terms.longest_ttl.millis()),
            _ => None,
        };
        let terms = self.terms;
        let state = &mut self.nodes[node].0;
        *state = QuorumNode::default();
        state.mark = made_at_ms.map(|made_at_ms| Mark { terms, made_at_ms });
        self.say(|| format!("node {node} loses its memory"));
    }

    fn break_hold(&mut self, node: usize) {
        let now = Now::at_micros(self.nodes[node].1.wall(self.at));
        let name = self.name.clone();
        let state = &mut self.nodes[node].0;
        let seen = state
            .apply(now, &name, &Step::Inspect, &UnknownPresence)
            .reply;
        let Reply::Seen(seen) = seen else { return };
        let Some(holder) = seen.holder else { return };
        let fence = holder.fence.unwrap();
        state.apply(now, &name, &Step::Break { fence }, &UnknownPresence);
        let HolderIdentity::Owner(owner) = holder.who else {
            return;
        };
        for lease in &mut self.leases {
            lease.is_broken |= lease.owner == owner;
        }
        self.broken.push(owner);
        self.say(|| format!("an operator breaks {fence} on node {node}"));
    }
}
