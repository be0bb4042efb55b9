//! The events of a history of a quorum, in their order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use leasehold_core::quorum::QuorumTerms;
use leasehold_core::{Fence, LockName, Owner, Step, Ttl};

use super::Rules;
use super::checks::Changed;
use super::node::{Node, are_free};
use super::parts::{Flight, Link, Member, What};
use super::reach::Reach;
use crate::backoff;
use crate::lease::effects::To;
use crate::lease::hold::Hold;
use crate::lease::machine::Event;
use crate::lease::tests::simulation::client::{Client, Fate};
use crate::lease::tests::simulation::rare::Rare;
use crate::lease::tests::simulation::sim::{MS, SECOND, SETTLE_LIMIT};
use crate::lease::tests::simulation::user::{Stage, User, while_};
use crate::store::quorum::{EventTime, QuorumEffect, QuorumEvent, QuorumMachine, relay};

/// The longest TTL of a lease: that of the users of a simulation.
pub(super) const LONGEST_TTL: std::time::Duration = std::time::Duration::from_secs(10);

/// Where the clocks of nodes and clients begin, without their offsets, in microseconds.
const EPOCH: u64 = 1_790_000_000_000_000;

/// The rates of all clocks differ by at most 1 %, as core assumes. In thousandths of the time of the simulation.
const RATES: Range<u64> = 996..1_005;

pub(super) struct QuorumSimulation {
    pub(super) rng: Rng,
    pub(super) rare: Rare,
    pub(super) rules: Rules,
    pub(super) at: u64,
    /// Until when faults may occur.
    pub(super) calm_at: u64,
    /// By time; of one time, in the order in which they were planned.
    pub(super) planned: BTreeMap<(u64, u64), Box<What>>,
    pub(super) numbers: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) names: Vec<LockName>,
    pub(super) members: Vec<Member>,
    pub(super) flights: BTreeMap<u64, Flight>,
    /// Owners whose hold was broken at some node.
    pub(super) broken: HashSet<Owner>,
    /// Owners that came with old data, or with those of another node. Their clients may have settled them long before.
    pub(super) stale: HashSet<Owner>,
    /// Owners that were released and whose locks stay taken.
    pub(super) kept: HashSet<Owner>,
    /// A node has lost data.
    pub(super) has_lost: bool,
    pub(super) last_lease: HashMap<LockName, Arc<Hold>>,
    pub(super) fences: HashMap<(LockName, Fence), Arc<Hold>>,
    /// When the clients were last asked what they know.
    pub(super) known_at: u64,
    /// For each owner whose lease is in use: the nodes in reach.
    pub(super) reach: HashMap<Owner, Reach>,
    told: bool,
    story: Vec<String>,
}

/// An offset of a clock, in microseconds: right, far ahead, far behind, or anything between.
fn offset(rng: &mut Rng) -> u64 {
    let apart = [0, 0, 0, 1, 5, 10][rng.usize(0..6)] * SECOND;
    match rng.u32(0..3) {
        0 => 10 * SECOND - apart,
        1 => 10 * SECOND + apart,
        _ => 10 * SECOND + rng.u64(0..=apart),
    }
}

impl QuorumSimulation {
    pub(super) fn new(seed: u64, rules: Rules, mut rare: Rare, told: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        backoff::seed(rng.u64(..));
        let names: Vec<_> = ["a", "b"][..rng.usize(1..3)]
            .iter()
            .map(|name| LockName::new(name).unwrap())
            .collect();
        let count: u8 = if rng.u32(0..3) == 0 { 5 } else { 3 };
        let terms = QuorumTerms {
            nodes: count,
            longest_ttl: Ttl::new(LONGEST_TTL).unwrap(),
        };
        let nodes: Vec<_> = (0..count)
            .map(|_| Node::new(terms, EPOCH + offset(&mut rng), rng.u64(RATES)))
            .collect();
        let labels: Vec<_> = (0..count).map(|node| format!("node {node}")).collect();
        let mut members: Vec<_> = (0..rng.usize(2..4))
            .map(|_| Member {
                client: Client::new(&mut rng, &names, RATES),
                quorum: QuorumMachine::new(terms, "simulated:".into(), labels.clone()),
                wall_us: EPOCH + offset(&mut rng),
                links: labels.iter().map(|_| Link::default()).collect(),
                timer: None,
            })
            .collect();
        if let Some(kinds) = &mut rare.kinds {
            for member in &mut members {
                member.client.add(kinds.more_users(&names));
            }
        }
        let mut simulation = Self {
            at: 0,
            calm_at: rng.u64(0..12) * SECOND,
            planned: BTreeMap::new(),
            numbers: 0,
            rare,
            rules,
            nodes,
            names,
            members,
            flights: BTreeMap::new(),
            broken: HashSet::new(),
            stale: HashSet::new(),
            kept: HashSet::new(),
            has_lost: false,
            last_lease: HashMap::new(),
            fences: HashMap::new(),
            known_at: 0,
            reach: HashMap::new(),
            told,
            story: Vec::new(),
            rng,
        };
        for client in 0..simulation.members.len() {
            for node in 0..simulation.nodes.len() {
                let id = simulation.members[client].client.id;
                simulation.members[client].links[node].connected = true;
                simulation.nodes[node].connected.insert(id);
            }
            for user in 0..simulation.members[client].client.users.len() {
                simulation.plan_move(client, user);
            }
        }
        if simulation.calm_at > 0 {
            simulation.plan(0, What::Trouble);
        }
        simulation
    }

    pub(super) fn story(&self) -> Vec<String> {
        self.story.clone()
    }

    /// Runs all events. Returns the first broken invariant as an error.
    pub(super) fn run(&mut self) -> Result<(), String> {
        self.run_until(u64::MAX)?;
        self.check_end()
    }

    /// Runs the events until `until`.
    pub(super) fn run_until(&mut self, until: u64) -> Result<(), String> {
        while let Some(next) = self.planned.first_entry()
            && next.key().0 <= until
        {
            let ((at, _), what) = next.remove_entry();
            if let What::Arrive(id) | What::Answer(id, _) | What::Silence(id) = &*what
                && !self.flights.contains_key(id)
            {
                continue;
            }
            self.at = at;
            if at > self.calm_at + SETTLE_LIMIT {
                return Err("Q2: somebody waits for ever".into());
            }
            let changed = self.changes(&what);
            self.happens(*what);
            self.check(changed)?;
            self.close_when_done();
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told {
            self.story.push(format!("{:>12} {}", self.at, line()));
        }
    }

    pub(super) fn plan(&mut self, after: u64, what: What) {
        self.plan_at(self.at.saturating_add(after), what);
    }

    pub(super) fn plan_at(&mut self, at: u64, what: What) {
        self.numbers += 1;
        self.planned.insert((at, self.numbers), Box::new(what));
    }

    fn plan_move(&mut self, client: usize, user: usize) {
        let turn = self.members[client].client.users[user].turn;
        let after = u64::try_from(while_(&mut self.rng).as_micros()).unwrap();
        self.plan(after, What::Move { client, user, turn });
    }

    /// What this event changes.
    fn changes(&self, what: &What) -> Changed {
        match what {
            What::Arrive(_) | What::Late(..) => Changed::Nodes,
            _ => self.concerns(what).map_or(Changed::All, Changed::Client),
        }
    }

    /// The client that must not be paused or dead when this event occurs.
    fn concerns(&self, what: &What) -> Option<usize> {
        match what {
            What::Move { client, .. }
            | What::Asks(client, ..)
            | What::Timer(client)
            | What::QuorumTimer(client, _)
            | What::Notice((client, _), ..) => Some(*client),
            What::Answer(id, _) | What::Silence(id) => {
                self.flights.get(id).map(|flight| flight.link.0)
            }
            _ => None,
        }
    }

    fn happens(&mut self, what: What) {
        if let Some(client) = self.concerns(&what) {
            let client = &self.members[client].client;
            if client.is_dead {
                return;
            }
            let until = client.stands_still_until(matches!(what, What::Timer(_)));
            if until > self.at {
                return self.plan_at(until, what);
            }
        }
        match what {
            What::Move { client, user, turn } => self.moves(client, user, turn),
            What::Asks(client, name, step, to) => {
                self.votes(client, QuorumEvent::Asked(name, step, to));
            }
            What::Timer(client) => {
                let timer = &mut self.members[client].timer;
                if timer.is_some_and(|at| at <= self.at) {
                    *timer = None;
                    self.handle(client, Event::Passed);
                }
            }
            What::QuorumTimer(client, timer) => {
                self.votes(client, QuorumEvent::Passed(timer));
            }
            What::Arrive(id) => self.arrives(id),
            What::Late((client, node), name, step, starts) => {
                if starts == self.nodes[node].starts {
                    self.tell(|| format!("late at node {node}, of {client}: {step:?}"));
                    self.carry_out(node, &name, &step);
                }
            }
            What::Answer(id, answer) => {
                if let Some(flight) = self.flights.remove(&id) {
                    let ((client, node), purpose) = (flight.link, flight.purpose);
                    self.tell(|| format!("{client} hears from node {node}: {answer:?}"));
                    let event = QuorumEvent::Answered {
                        node,
                        purpose,
                        answer,
                    };
                    self.votes(client, event);
                }
            }
            What::Silence(id) => {
                if let Some(flight) = self.flights.get(&id) {
                    let link = flight.link;
                    self.cut(link);
                }
            }
            What::Notice((client, node), epoch, notice) => {
                if self.members[client].links[node].epoch == epoch {
                    self.tell(|| format!("node {node} tells {client}: {notice:?}"));
                    let (event, notice) = relay(node, notice);
                    if let Some(event) = event {
                        self.votes(client, event);
                    }
                    if let Some(notice) = notice {
                        self.handle(client, Event::Noticed(notice));
                    }
                }
            }
            What::Cut((client, node), epoch) => {
                if self.members[client].links[node].epoch == epoch {
                    self.cut((client, node));
                }
            }
            What::Connect(link) => self.connect(link),
            What::Trouble => self.trouble(),
        }
    }

    fn moves(&mut self, client: usize, user: usize, turn: u32) {
        let now = self.at;
        let it = &mut self.members[client].client;
        if it.users[user].turn != turn {
            return;
        }
        it.tick(now);
        let said = it.moves(user, &mut self.rng, self.rare.kinds.as_mut());
        self.tell(|| format!("{client}.{user} {said}"));
        self.plan_after(client, user);
        self.afterwards(client);
    }

    /// Plans the next move of a user. A user that waits for a reply moves only if it leaves.
    fn plan_after(&mut self, client: usize, user: usize) {
        let leaves = self.rng.u32(0..6) == 0;
        let makes = match &self.members[client].client.users[user].stage {
            Stage::Idle | Stage::Works(_) | Stage::Detaches(..) => true,
            Stage::Asks { leaves, .. } => *leaves,
            Stage::Extends(..) | Stage::Ends(..) => leaves,
            Stage::Over => false,
        };
        if makes {
            self.plan_move(client, user);
        }
    }

    fn handle(&mut self, client: usize, event: Event) {
        self.members[client].client.tick(self.at);
        self.members[client].client.handle(event);
        self.afterwards(client);
    }

    /// Gives an event to the machine of votes, and carries out its effects.
    fn votes(&mut self, client: usize, event: QuorumEvent<To>) {
        let member = &mut self.members[client];
        member.client.tick(self.at);
        let at = EventTime {
            now: member.client.clock.now(),
            wall_us: member.wall_us + self.at,
        };
        let mut effects = Vec::new();
        member.quorum.handle(at, event, &mut effects);
        for effect in effects {
            match effect {
                QuorumEffect::Send {
                    node,
                    name,
                    step,
                    purpose,
                } => self.send((client, node), (name, step), purpose),
                QuorumEffect::Answer(to, answer) => {
                    self.tell(|| format!("the quorum answers {client}: {answer:?}"));
                    self.handle(client, Event::Answered(to, answer));
                }
                QuorumEffect::Wake(after, timer) => {
                    let after = u64::try_from(after.as_micros()).unwrap();
                    self.plan(after, What::QuorumTimer(client, timer));
                }
            }
        }
    }

    /// Takes the replies to a client's users, hands its requests to the quorum, and plans its next timer.
    fn afterwards(&mut self, client: usize) {
        let (nodes, at) = (&self.nodes, self.at);
        let (broken, has_lost) = (&self.broken, self.has_lost);
        let fate = |hold: &Hold| Fate {
            was_freed: are_free(nodes, at, &hold.name, &hold.owner),
            is_excused: has_lost || broken.contains(&hold.owner),
            was_set: false,
        };
        let heard = self.members[client].client.hear(&fate);
        for (user, said) in heard {
            self.tell(|| format!("{client}.{user} {said}"));
            self.plan_after(client, user);
        }
        for (name, step, to) in std::mem::take(&mut self.members[client].client.outbox) {
            self.tell(|| format!("{client} asks the quorum: {step:?}"));
            if let Step::Release {
                owner,
                keep: Some(_),
                ..
            } = &step
            {
                self.kept.insert(owner.clone());
            }
            let until = self.departure(client, &to);
            if until > self.at {
                self.plan_at(until, What::Asks(client, name, step, to));
            } else {
                self.votes(client, QuorumEvent::Asked(name, step, to));
            }
        }
        let is_calm = self.at >= self.calm_at;
        let member = &mut self.members[client];
        if let Some(first) = member.client.machine.effects.next() {
            let mut at = member.client.pace.at(first.at).max(self.at);
            if !is_calm && self.rng.u32(0..10) == 0 {
                // The client's thread is busy, so the timer fires late.
                at += self.rng.u64(0..100 * MS);
            }
            if member.timer.is_none_or(|planned| planned > at) {
                member.timer = Some(at);
                self.plan_at(at, What::Timer(client));
            }
        }
    }

    /// When a client sends a step. It may stand still between a renewal and its departure.
    fn departure(&mut self, client: usize, to: &To) -> u64 {
        if let To::Renewal(owner, _) = to
            && self.at < self.calm_at
            && let Some((stall, more)) = self
                .rare
                .stall(self.members[client].client.left(owner, self.at))
        {
            let until = self.at + stall;
            self.stands_still(client, until);
            self.members[client].client.timers_paused_until = until + more;
        }
        self.members[client].client.paused_until
    }

    pub(super) fn close(&mut self, client: usize) {
        let it = &mut self.members[client].client;
        if !it.is_closed && !it.is_dead {
            it.is_closed = true;
            self.tell(|| format!("{client} is closed"));
            self.handle(client, Event::Closed);
        }
    }

    /// Closes each client whose users are all done.
    fn close_when_done(&mut self) {
        if self.at < self.calm_at {
            return;
        }
        for client in 0..self.members.len() {
            let it = &self.members[client].client;
            if it.users.iter().all(User::is_over) && it.paused_until <= self.at {
                self.close(client);
            }
        }
    }
}
