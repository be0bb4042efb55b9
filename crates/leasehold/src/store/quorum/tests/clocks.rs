//! Clients and nodes whose clocks differ: how many rounds an acquisition takes.

use leasehold_core::quorum::{Mark, Proposal};
use leasehold_core::{
    Block, ClientId, LockName, Mode, Now, Owner, Reply, Step, Ttl, UnknownPresence, World,
};

use super::{SECOND, machine, terms};
use crate::clock::Moment;
use crate::store::quorum::effects::{EventTime, QuorumEffect, QuorumEvent};
use crate::store::quorum::machine::QuorumMachine;

/// Three nodes without a network, and the clock that all others are compared with.
struct Scene {
    worlds: Vec<World>,
    /// Microseconds by which the clock of each node is ahead.
    ahead_us: Vec<u64>,
    now_us: u64,
    /// Proposals that nodes got.
    proposals: u32,
    /// Whether the last acquisition got the lock.
    is_held: bool,
}

/// A client whose clock is ahead by so many microseconds.
struct Participant {
    machine: QuorumMachine<()>,
    ahead_us: u64,
    id: u64,
}

impl Scene {
    fn new(ahead_us: Vec<u64>) -> Self {
        let mark = Mark {
            terms: terms(3),
            made_at_ms: 0,
        };
        Self {
            worlds: vec![World::node(Some(mark)); 3],
            ahead_us,
            now_us: 1_700_000_000_000_000,
            proposals: 0,
            is_held: false,
        }
    }

    fn handle(&mut self, client: &mut Participant, event: QuorumEvent<()>) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let at = EventTime {
                now: Moment::from_micros(self.now_us),
                wall_us: self.now_us + client.ahead_us,
            };
            let mut effects = Vec::new();
            client.machine.handle(at, event, &mut effects);
            for effect in effects {
                if let QuorumEffect::Answer((), Ok(Reply::Held(_))) = effect {
                    self.is_held = true;
                }
                let QuorumEffect::Send {
                    node,
                    name,
                    step,
                    purpose,
                } = effect
                else {
                    continue;
                };
                self.proposals += u32::from(matches!(step, Step::Propose(Proposal { .. })));
                let now = Now::at_micros(self.now_us + self.ahead_us[node]);
                let answer = Ok(self.worlds[node]
                    .apply(now, &name, &step, &UnknownPresence)
                    .reply);
                events.insert(
                    0,
                    QuorumEvent::Answered {
                        node,
                        purpose,
                        answer,
                    },
                );
            }
        }
    }

    /// Acquires a free lock and releases it. Returns in how many rounds it was acquired.
    fn cycle(&mut self, client: &mut Participant, name: &LockName, number: u64) -> u32 {
        let id = ClientId::new(client.id);
        let owner = Owner::new(number.into(), id, "test", 1, "").unwrap();
        let acquire = Step::Acquire {
            owner: owner.clone(),
            mode: Mode::Exclusive,
            ttl: Ttl::new(10 * SECOND).unwrap(),
            block: Block::ONE,
            wait: None,
        };
        (self.proposals, self.is_held) = (0, false);
        self.handle(client, QuorumEvent::Asked(name.clone(), acquire, ()));
        let rounds = self.proposals.div_ceil(3);
        let release = Step::Release {
            owner,
            keep: None,
            fence: None,
        };
        self.handle(client, QuorumEvent::Asked(name.clone(), release, ()));
        rounds
    }
}

/// The share of acquisitions in one round, of clients and nodes whose clocks are up to so far apart. The locks are free, and share a
/// counter.
fn in_one_round(apart_us: u64, clients: u64, seed: u64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut scene = Scene::new((0..3).map(|_| rng.u64(0..=apart_us)).collect());
    let mut clients: Vec<_> = (0..clients)
        .map(|id| Participant {
            machine: machine(),
            // The first and the last are the farthest apart.
            ahead_us: id * apart_us / (clients - 1),
            id: id + 1,
        })
        .collect();
    let name = LockName::new("stock").unwrap();
    let cycles: u32 = 20_000;
    let mut at_once = 0;
    for number in 0..cycles {
        scene.now_us += rng.u64(100..2_000);
        let client = rng.usize(..clients.len());
        let rounds = scene.cycle(&mut clients[client], &name, u64::from(number) + 1);
        at_once += u32::from(rounds == 1);
    }
    f64::from(at_once) / f64::from(cycles)
}

#[test]
fn clocks_5_ms_apart_cost_few_second_rounds() {
    for (clients, seed) in [(2, 1), (2, 2), (5, 3), (20, 4)] {
        let share = in_one_round(5_000, clients, seed);
        println!("{clients} clients: {share:.4}");
        assert!(share >= 0.97, "{clients} clients: {share:.4}");
    }
}

/// The last node is too slow for the counters of the others, so both must vote. The client must not raise the counter of the fastest for
/// ever: the first would never accept what that one does.
#[test]
fn a_client_that_is_ahead_of_a_slow_node_waits_for_that_node() {
    let seconds = 1_000_000;
    let mut scene = Scene::new(vec![12 * seconds, 24 * seconds, 0]);
    let mut clients = [21, 23].map(|ahead| Participant {
        machine: machine(),
        ahead_us: ahead * seconds,
        id: ahead,
    });
    let name = LockName::new("stock").unwrap();
    scene.cycle(&mut clients[0], &name, 1);
    assert!(scene.is_held);
    for number in 2..27 {
        scene.cycle(&mut clients[1], &name, number);
        // It has asked for a number that is 11 s ahead of the first node, which accepts 10 s.
        assert_eq!(scene.is_held, number > 12, "try {number}");
        scene.now_us += seconds / 10;
    }
}
