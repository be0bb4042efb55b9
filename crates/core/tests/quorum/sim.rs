//! Nodes, clients and the network between them, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use leasehold_core::quorum::{Mark, NodeMemory, Proposal, Proposer, QuorumTerms, quarantine};
use leasehold_core::{
    Block, Fence, Fences, HolderIdentity, LockName, Mode, Now, Owner, Reply, Step, Ttl,
    UnknownPresence, Wake, World,
};
use testkit::Rng;

use crate::client::{Client, Doing};
use crate::clock::Clock;
use crate::judge::Record;

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
    /// Votes count although the round was refused, and given back (QR9).
    RefusedRoundCounts,
    /// A lease is relied on from the last reply, not from the first request.
    ValidFromTheReply,
    /// One vote less than a majority is a certificate.
    MinorityIsEnough,
    /// For a reader, one vote less than a majority is enough.
    MinorityReads,
    /// The fence is the lowest number among a majority of votes, of any round (QR5, QR6).
    LowestVote,
    /// A client relies on a further round before the nodes have answered it (QR6).
    RoundNotAwaited,
    /// A proposal of an owner that once had the vote of a node takes the lock there (QR7).
    RaiseTakes,
    /// An extension takes a free lock, and the client relies on it after its deadline.
    ExtensionTakes,
    /// A node that was started with older data takes them for its own (QR8).
    OldDataIsTrusted,
    /// A node that got the data of another one takes them for its own (QR8).
    OtherDataIsTrusted,
    /// A client counts the votes of one server as those of two nodes.
    ServerCountsTwice,
    /// A node votes for clients that count another quorum.
    OtherTermsCount,
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
    GiveBack(Owner, Fence),
}

pub(crate) enum Event {
    Begin(usize),
    Arrive(usize, usize, Request),
    Voted(usize, usize, Proposal, Reply),
    /// A waiter asks again.
    Retry(usize, Owner),
    Extended(usize, usize, u64, bool),
    GiveUp(usize, Owner),
    Renew(usize, Owner),
    Release(usize, Owner),
    LoseMemory(usize),
    /// A node writes its data to disk.
    Save(usize),
    /// A node starts with the data on its disk, or with those of another node.
    Load(usize, Option<usize>),
    Break(usize),
    OtherName(usize),
}

/// One node.
pub(crate) struct Node {
    world: World,
    clock: Clock,
    /// Older data.
    disk: World,
    /// Its mark was made by another server, or by an earlier start. Until it votes again, it extends nothing (QR8).
    is_strange: bool,
}

pub(crate) struct Simulation {
    pub(crate) rng: Rng,
    pub(crate) rules: Rules,
    pub(crate) at: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    events: Vec<Option<Event>>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    name: LockName,
    pub(crate) terms: QuorumTerms,
    pub(crate) ttl: Ttl,
    /// The TTL in microseconds.
    pub(crate) ttl_us: u64,
    pub(crate) owners: u64,
    /// Some owners are readers.
    pub(crate) has_readers: bool,
    pub(crate) renewals: u64,
    pub(crate) leases: Vec<Record>,
    /// The owners that had the vote of a node.
    voted: BTreeSet<(usize, Owner)>,
    /// Owners whose hold an operator broke on some node.
    pub(crate) broken: Vec<Owner>,
    told: bool,
    pub(crate) story: Vec<String>,
}

impl Node {
    fn is_strange(&mut self, now: Now) -> bool {
        if let Some(mark) = self.world.node.as_ref().and_then(|memory| memory.mark) {
            self.is_strange &= mark.quarantined_for(now).is_some();
        }
        self.is_strange
    }
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
            .map(|_| Node {
                world: World::node(Some(marked)),
                clock: Clock::random(&mut rng),
                disk: World::node(Some(marked)),
                is_strange: false,
            })
            .collect();
        let clients = (0..3)
            .map(|_| Client {
                clock: Clock::random(&mut rng),
                proposer: Proposer::default(),
                terms,
                now: Doing::Nothing,
            })
            .collect();
        let has_readers = match rules {
            Rules::Sound => seed % 2 == 1,
            rules => rules == Rules::MinorityReads,
        };
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
            has_readers,
            renewals: 0,
            leases: Vec::new(),
            voted: BTreeSet::new(),
            broken: Vec::new(),
            told,
            story: Vec::new(),
        };
        for client in 0..3 {
            // Some clients come late, and have learned nothing yet.
            let at = simulation.rng.pick(&[0, 0, 3, 15]) * SECOND + simulation.rng.below(SECOND);
            simulation.later(at, Event::Begin(client));
        }
        let losses = simulation.rng.below(3);
        for _ in 0..losses {
            simulation.lose_data_later();
        }
        // A node that lost its mark would take the terms of any client.
        let is_other = losses == 0 && count == 5 && simulation.rng.one_in(3);
        if is_other || rules == Rules::OtherTermsCount {
            simulation.clients[0].terms.nodes = 3;
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

    /// A node will lose its data, or come back with others. A quarantine is over before the end of the history.
    fn lose_data_later(&mut self) {
        let at = SECOND + self.rng.below(5 * SECOND);
        let (node, other) = (self.node(), self.node());
        let loss = match self.rng.below(4) {
            0 | 1 => Event::LoseMemory(node),
            2 => {
                let saved = self.rng.below(at);
                self.later(saved, Event::Save(node));
                Event::Load(node, None)
            }
            _ => Event::Load(node, Some(other)),
        };
        self.later(at, loss);
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
            Event::Voted(client, node, proposal, reply) => {
                self.voted(client, node, &proposal, &reply);
            }
            Event::Retry(client, owner) => self.retry(client, &owner),
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
            Event::Save(node) => self.nodes[node].disk = self.nodes[node].world.clone(),
            Event::Load(node, from) => self.load(node, from),
            Event::Break(node) => self.break_hold(node),
            Event::OtherName(node) => {
                // Another name of this bucket was locked by a client with a clock of its own.
                let wall_us = self.nodes[node].clock.wall(self.at);
                let first = Fence::new(wall_us + self.rng.below(10 * SECOND));
                let fences = Fences {
                    first,
                    block: Block::ONE,
                };
                let name = self.name.clone();
                let counter = self.memory(node).counter(&name);
                if !counter.is_lost() {
                    // A refused number changes nothing.
                    let acceptable = counter.acceptable(wall_us, wall_us + 10 * SECOND);
                    counter.accept(fences, acceptable).ok();
                }
            }
        }
    }

    /// A message of a client to a node: late, lost or repeated.
    pub(crate) fn send(&mut self, client: usize, node: usize, request: &Request) {
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
        for node in 0..usize::from(self.clients[client].terms.nodes) {
            self.send(client, node, request);
        }
    }

    /// The node that a client reaches by the address of this one.
    fn server(&self, client: usize, node: usize) -> usize {
        let is_twice = self.rules == Rules::ServerCountsTwice && client == 0 && node == 1;
        if is_twice { 0 } else { node }
    }

    /// The terms of a client, as a node compares them.
    fn terms_of(&self, client: usize) -> QuorumTerms {
        if self.rules == Rules::OtherTermsCount {
            return self.terms;
        }
        self.clients[client].terms
    }

    fn arrive(&mut self, client: usize, node: usize, request: Request) {
        let server = self.server(client, node);
        let now = Now::at_micros(self.nodes[server].clock.wall(self.at));
        let (name, terms) = (self.name.clone(), self.terms_of(client));
        let step = match &request {
            Request::Propose(proposal) => {
                self.forget_floor(server, now);
                let had_vote = self.voted.contains(&(server, proposal.owner.clone()));
                if self.rules == Rules::RaiseTakes && had_vote {
                    self.nodes[server].world.entry(&name).holders.clear();
                }
                Step::Propose(Proposal {
                    terms,
                    ..proposal.clone()
                })
            }
            Request::Extend(owner, _) => Step::Extend {
                owner: owner.clone(),
                ttl: self.ttl,
                fence: None,
            },
            Request::Release(owner) => Step::Release {
                owner: owner.clone(),
                keep: None,
                fence: None,
            },
            Request::GiveBack(owner, fence) => Step::GiveBack {
                owner: owner.clone(),
                fence: *fence,
            },
        };
        let is_refused = self.nodes[server].is_strange(now);
        let world = &mut self.nodes[server].world;
        let mut outcome = world.apply_by(terms, now, &name, &step, &UnknownPresence);
        if is_refused && matches!(request, Request::Extend(..)) {
            outcome.reply = Reply::NotHeld(None);
        }
        if let (Rules::ExtensionTakes, Request::Extend(owner, _)) = (self.rules, &request)
            && matches!(outcome.reply, Reply::NotHeld(None))
        {
            let step = Step::Acquire {
                owner: owner.clone(),
                mode: Mode::Exclusive,
                ttl: self.ttl,
                block: Block::ONE,
                wait: None,
            };
            outcome = world.apply(now, &name, &step, &UnknownPresence);
        }
        let reply = outcome.reply;
        if let (Request::Propose(proposal), Reply::Held(_)) = (&request, &reply) {
            self.voted.insert((server, proposal.owner.clone()));
        }
        self.say(|| format!("node {server} replies to client {client}, {request:?}: {reply:?}"));
        for wake in outcome.wakes {
            self.wake(&wake);
        }
        let answer = match request {
            Request::Propose(proposal) => Event::Voted(client, node, proposal, reply),
            Request::Extend(_, renewal) => {
                Event::Extended(client, node, renewal, matches!(reply, Reply::Held(_)))
            }
            Request::Release(_) | Request::GiveBack(..) => return,
        };
        if !self.rng.one_in(12) {
            let delay = self.delay();
            self.later(delay, answer);
        }
    }

    /// Takes the floor of a counter away, for the rules that have none.
    fn forget_floor(&mut self, node: usize, now: Now) {
        let is_trusted = |mark: &Mark| mark.made_at_ms > 0 && mark.quarantined_for(now).is_none();
        let (rules, name) = (self.rules, self.name.clone());
        let memory = self.memory(node);
        let has_no_floor = match rules {
            Rules::NoCounter => true,
            Rules::NoFloorAfterLoss => {
                memory.mark.as_ref().is_some_and(is_trusted) && memory.counter(&name).is_lost()
            }
            _ => false,
        };
        if has_no_floor {
            memory.counter(&name).0 = Some(Fence::new(0));
        }
    }

    /// A node tells a waiter that it was granted the node's vote. The message may get lost.
    fn wake(&mut self, wake: &Wake) {
        if !self.rng.one_in(12) {
            let client = usize::try_from(wake.owner.client().get()).unwrap();
            let delay = self.delay();
            self.later(delay, Event::Retry(client, wake.owner.clone()));
        }
    }

    fn memory(&mut self, node: usize) -> &mut NodeMemory {
        self.nodes[node].world.node.as_mut().unwrap()
    }

    fn lose_memory(&mut self, node: usize) {
        let now_ms = self.nodes[node].clock.wall(self.at) / MS;
        let full = u64::try_from(quarantine(self.terms.longest_ttl).as_millis()).unwrap();
        let made_at_ms = match self.rules {
            Rules::NoQuarantine => Some(0),
            Rules::QuarantineOfOneTtl => Some(now_ms - full + self.terms.longest_ttl.millis()),
            _ => None,
        };
        let terms = self.terms;
        let mark = made_at_ms.map(|made_at_ms| Mark { terms, made_at_ms });
        self.nodes[node].world = World::node(mark);
        self.say(|| format!("node {node} loses its memory"));
    }

    /// A node starts with other data. Their mark names another server or start, so it counts them as lost: it drops the counters, and no
    /// waiter that came with them is granted the lock.
    fn load(&mut self, node: usize, from: Option<usize>) {
        let data = match from {
            None => &self.nodes[node].disk,
            Some(other) => &self.nodes[other].world,
        };
        let mut world = data.clone();
        let is_trusted = match from {
            None => self.rules == Rules::OldDataIsTrusted,
            Some(_) => self.rules == Rules::OtherDataIsTrusted,
        };
        if !is_trusted {
            world.entry(&self.name).queue.clear();
            world.node = Some(NodeMemory::default());
        }
        self.nodes[node].world = world;
        self.nodes[node].is_strange = !is_trusted;
        self.say(|| match from {
            None => format!("node {node} starts with older data"),
            Some(other) => format!("node {node} gets the data of node {other}"),
        });
    }

    fn break_hold(&mut self, node: usize) {
        let now = Now::at_micros(self.nodes[node].clock.wall(self.at));
        let name = self.name.clone();
        let state = &mut self.nodes[node].world;
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
