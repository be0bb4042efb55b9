//! The events of a simulation, in their order, and the invariants that it checks.

mod checks;
mod network;
mod trouble;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use fastrand::Rng;
use leasehold_core::{LockName, Owner, Step};

use super::client::{Client, Fate};
use super::rare::Rare;
use super::server::Server;
use super::user::{Stage, while_};
use crate::backoff;
use crate::lease::effects::To;
use crate::lease::hold::Hold;
use crate::lease::machine::Event;
use crate::store::{Answer, Notice};

pub(super) const MS: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// Every user must be served within this time after the last trouble.
pub(super) const SETTLE_LIMIT: u64 = 600 * SECOND;

/// The time that a message needs.
pub(super) fn latency(rng: &mut Rng) -> u64 {
    match rng.u32(0..100) {
        0..=89 => rng.u64(50..900),
        90..=98 => rng.u64(MS..60 * MS),
        _ => rng.u64(60 * MS..400 * MS),
    }
}

/// A planned event.
enum What {
    /// A user makes its next move, if it is still at that turn.
    Move {
        client: usize,
        user: usize,
        turn: u32,
    },
    /// The first timer of a client.
    Timer(usize),
    /// A request reaches the server.
    Arrive(u64),
    /// A request of an earlier connection reaches the server, if no replica has taken over since.
    Late(usize, LockName, Step, u32),
    /// An answer reaches its client.
    Answer(u64, Answer),
    /// No answer to this request came in time.
    Silence(u64),
    /// A notice reaches its client.
    Notice(usize, Sent, Notice),
    /// This connection ends.
    Cut(usize, u32),
    /// A client connects anew.
    Connect(usize),
    /// A random fault.
    Trouble,
}

/// When the server has sent a notice: over this connection, in this lineage.
#[derive(Clone, Copy)]
struct Sent {
    epoch: u32,
    lineage: u32,
}

/// A request on its way.
struct Flight {
    client: usize,
    name: LockName,
    step: Step,
    to: To,
    arrived: bool,
}

/// The connection between a client and the server.
#[derive(Default)]
struct Link {
    connected: bool,
    epoch: u32,
    /// The last server that this client was told of.
    lineage: u32,
    /// When it was told.
    told_at: u64,
    connected_at: u64,
    /// When the last message of each kind arrives: acquisitions, requests that name a fence, answers, notices.
    last: [u64; 4],
}

pub(super) struct Simulation {
    rng: Rng,
    rare: Rare,
    at: u64,
    /// Until when faults may occur.
    calm_at: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    planned: HashMap<u64, What>,
    numbers: u64,
    server: Server,
    names: Vec<LockName>,
    clients: Vec<Client>,
    links: Vec<Link>,
    timers: Vec<Option<u64>>,
    flights: BTreeMap<u64, Flight>,
    failed_over_at: Option<u64>,
    /// Owners that a replica still had when it took over.
    stale: HashSet<Owner>,
    /// For each name: the leases on which users have relied since the last failover.
    seen: HashMap<LockName, Vec<Arc<Hold>>>,
    /// For each name: since when nobody uses the lock, if somebody waits for it.
    unserved_since: Vec<Option<u64>>,
    told: bool,
    story: Vec<String>,
}

impl Simulation {
    pub(super) fn new(seed: u64, mut rare: Rare, told: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        backoff::seed(rng.u64(..));
        let names: Vec<_> = ["a", "b"][..rng.usize(1..3)]
            .iter()
            .map(|name| LockName::new(name).unwrap())
            .collect();
        let mut clients: Vec<_> = (0..rng.usize(1..4))
            .map(|_| Client::new(&mut rng, &names, 991..1_010))
            .collect();
        if let Some(kinds) = &mut rare.kinds {
            for client in &mut clients {
                client.add(kinds.more_users(&names));
            }
        }
        let mut simulation = Self {
            at: 0,
            calm_at: rng.u64(0..12) * SECOND,
            queue: BinaryHeap::new(),
            planned: HashMap::new(),
            numbers: 0,
            server: Server::new(rng.u64(0..SECOND)),
            links: clients.iter().map(|_| Link::default()).collect(),
            timers: vec![None; clients.len()],
            unserved_since: vec![None; names.len()],
            names,
            clients,
            flights: BTreeMap::new(),
            failed_over_at: None,
            stale: HashSet::new(),
            seen: HashMap::new(),
            told,
            story: Vec::new(),
            rng,
            rare,
        };
        for client in 0..simulation.clients.len() {
            simulation.links[client].connected = true;
            simulation
                .server
                .connected
                .insert(simulation.clients[client].id);
            for user in 0..simulation.clients[client].users.len() {
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
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let Some(what) = self.planned.remove(&number) else {
                continue;
            };
            self.at = at;
            if at > self.calm_at + SETTLE_LIMIT {
                return Err("Q2: somebody waits for ever".into());
            }
            self.happens(what);
            self.check()?;
            self.close_when_done();
        }
        self.check_end()
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told {
            self.story.push(format!("{:>12} {}", self.at, line()));
        }
    }

    fn plan(&mut self, after: u64, what: What) {
        self.plan_at(self.at + after, what);
    }

    fn plan_at(&mut self, at: u64, what: What) {
        self.numbers += 1;
        self.queue.push(Reverse((at, self.numbers)));
        self.planned.insert(self.numbers, what);
    }

    fn plan_move(&mut self, client: usize, user: usize) {
        let turn = self.clients[client].users[user].turn;
        let after = u64::try_from(while_(&mut self.rng).as_micros()).unwrap();
        let works = matches!(self.clients[client].users[user].stage, Stage::Works(_));
        let met = if works { self.rare.meets_timer() } else { None };
        let it = &self.clients[client];
        let at = match (met, it.machine.effects.next()) {
            (Some(after), Some(first)) => it.pace.at(first.at).max(self.at) + after,
            _ => self.at + after,
        };
        self.plan_at(at, What::Move { client, user, turn });
    }

    /// The client that must not be paused or dead when this event occurs.
    fn concerns(&self, what: &What) -> Option<usize> {
        match what {
            What::Move { client, .. } | What::Timer(client) | What::Notice(client, ..) => {
                Some(*client)
            }
            What::Answer(id, _) | What::Silence(id) => {
                self.flights.get(id).map(|flight| flight.client)
            }
            _ => None,
        }
    }

    fn happens(&mut self, what: What) {
        if let Some(client) = self.concerns(&what) {
            let is_timer = matches!(what, What::Timer(_));
            let until = self.clients[client].stands_still_until(is_timer);
            if self.clients[client].is_dead {
                return;
            }
            if until > self.at {
                return self.plan_at(until, what);
            }
        }
        match what {
            What::Move { client, user, turn } => self.moves(client, user, turn),
            What::Timer(client) => {
                if self.timers[client].is_some_and(|at| at <= self.at) {
                    self.timers[client] = None;
                    self.handle(client, Event::Passed);
                }
            }
            What::Arrive(id) => self.arrives(id),
            What::Late(client, name, step, lineage) => {
                if lineage == self.server.lineage {
                    self.tell(|| format!("late, of {client}: {step:?}"));
                    let outcome = self.server.step(self.at, &name, &step);
                    self.notify(&name, outcome);
                }
            }
            What::Answer(id, answer) => {
                if let Some(flight) = self.flights.remove(&id) {
                    self.tell(|| format!("{} hears {answer:?}", flight.client));
                    self.handle(flight.client, Event::Answered(flight.to, answer));
                }
            }
            What::Silence(id) => {
                if let Some(flight) = self.flights.get(&id) {
                    let client = flight.client;
                    self.cut(client);
                }
            }
            What::Notice(client, sent, mut notice) => {
                if self.links[client].epoch == sent.epoch {
                    self.tell(|| format!("{client} is told {notice:?}"));
                    if matches!(notice, Notice::Replaced(..)) {
                        self.links[client].lineage = self.server.lineage;
                        self.links[client].told_at = self.at;
                    }
                    if sent.lineage < self.links[client].lineage
                        && let Notice::Granted { wake, .. } = &mut notice
                    {
                        // Another node has the slot now.
                        *wake = wake.clone().without_fence();
                    }
                    let granted = match &notice {
                        Notice::Granted { wake, .. } => Some(wake.clone()),
                        _ => None,
                    };
                    self.handle(client, Event::Noticed(notice));
                    if let Some(wake) = granted
                        && self.links[client].lineage == self.server.lineage
                    {
                        self.check_grant(client, &wake);
                    }
                }
            }
            What::Cut(client, epoch) => {
                if self.links[client].epoch == epoch {
                    self.cut(client);
                }
            }
            What::Connect(client) => self.connect(client),
            What::Trouble => self.trouble(),
        }
    }

    fn moves(&mut self, client: usize, user: usize, turn: u32) {
        if self.clients[client].users[user].turn != turn {
            return;
        }
        let now = self.at;
        self.clients[client].tick(now);
        let kinds = self.rare.kinds.as_mut();
        let said = self.clients[client].moves(user, &mut self.rng, kinds);
        self.tell(|| format!("{client}.{user} {said}"));
        self.plan_after(client, user);
        self.afterwards(client);
    }

    /// Plans the next move of a user. A user that waits for a reply moves only if it leaves.
    fn plan_after(&mut self, client: usize, user: usize) {
        let leaves = self.rng.u32(0..6) == 0;
        let makes = match &self.clients[client].users[user].stage {
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
        self.clients[client].tick(self.at);
        self.clients[client].handle(event);
        self.afterwards(client);
    }

    /// Takes the replies to a client's users, sends its requests, and plans its next timer.
    fn afterwards(&mut self, client: usize) {
        let pace = self.clients[client].pace;
        let about = |hold: &Hold| {
            let asked_at = pace.at(hold.asked_at);
            Fate {
                was_freed: self.server.released.contains(&hold.owner),
                is_excused: self.server.broken.contains(&hold.owner)
                    || self.failed_over_at.is_some_and(|at| asked_at <= at),
                was_set: self.server.was_set,
            }
        };
        for (user, said) in self.clients[client].hear(&about) {
            self.tell(|| format!("{client}.{user} {said}"));
            self.plan_after(client, user);
        }
        for (name, step, to) in std::mem::take(&mut self.clients[client].outbox) {
            self.send(client, name, step, to);
        }
        if let Some(first) = self.clients[client].machine.effects.next() {
            let mut at = self.clients[client].pace.at(first.at).max(self.at);
            if self.at < self.calm_at && self.rng.u32(0..10) == 0 {
                // The client's thread is busy, so the timer fires late.
                at += self.rng.u64(0..100 * MS);
            }
            if self.timers[client].is_none_or(|planned| planned > at) {
                self.timers[client] = Some(at);
                self.plan_at(at, What::Timer(client));
            }
        }
    }

    fn close(&mut self, client: usize) {
        let it = &mut self.clients[client];
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
        for client in 0..self.clients.len() {
            let it = &self.clients[client];
            let done = it.users.iter().all(super::user::User::is_over);
            if done && it.paused_until <= self.at {
                self.close(client);
            }
        }
    }
}
