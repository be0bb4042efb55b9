//! The network between each client and each node of a quorum. It delays, loses and repeats messages.

use std::time::Duration;

use leasehold_core::quorum::NoVote;
use leasehold_core::{LockName, Outcome, Reply, Step};

use super::Rules;
use super::parts::{Flight, What};
use super::sim::QuorumSimulation;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::tests::simulation::sim::{MS, SECOND, latency};
use crate::store::Notice;
use crate::store::quorum::Purpose;

/// A message of an earlier connection arrives at most this late. A request with a TTL also arrives before the TTL ends.
const LATE: u64 = 1_900 * MS;

fn ttl_of(step: &Step) -> Option<Duration> {
    match step {
        Step::Propose(proposal) => Some(proposal.ttl.get()),
        Step::Extend { ttl, .. } => Some(ttl.get()),
        _ => None,
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl QuorumSimulation {
    fn in_order(&mut self, (client, node): (usize, usize), kind: usize) -> u64 {
        let at = self.at + latency(&mut self.rng);
        let last = &mut self.members[client].links[node].last[kind];
        *last = at.max(*last);
        *last
    }

    pub(super) fn send(
        &mut self,
        (client, node): (usize, usize),
        (name, step): (LockName, Step),
        purpose: Purpose,
    ) {
        self.tell(|| format!("{client} sends to node {node}: {step:?}"));
        self.numbers += 1;
        let id = self.numbers;
        let link = (client, node);
        let at = match &step {
            Step::Propose(_) => self.in_order(link, 0),
            Step::Extend { .. } | Step::Release { fence: Some(_), .. } => self.in_order(link, 1),
            _ => self.at + latency(&mut self.rng),
        };
        let limit = ttl_of(&step).map_or(u64::MAX, |ttl| micros(ttl / 3));
        let flight = Flight {
            link,
            name,
            step,
            purpose,
            arrived: false,
            until: self.at.saturating_add(limit.min(500 * MS)),
        };
        self.flights.insert(id, flight);
        if !self.members[client].links[node].connected {
            let error = StoreError::new("simulated:", StoreErrorKind::Unavailable, "cut");
            let after = self.rng.u64(MS..20 * MS);
            return self.plan(after, What::Answer(id, Err(error)));
        }
        self.plan_at(at, What::Arrive(id));
        self.silent_until(id, at);
        if self.at < self.calm_at && self.rng.u32(0..60) == 0 {
            let (after, epoch) = (
                self.rng.u64(0..3 * MS),
                self.members[client].links[node].epoch,
            );
            self.plan(after, What::Cut(link, epoch));
        }
    }

    pub(super) fn arrives(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else {
            return;
        };
        let (link, name, step) = (flight.link, flight.name.clone(), flight.step.clone());
        if self.nodes[link.1].down_until > self.at {
            // The connection stays open, and the request is carried out when the node goes on.
            let until = self.nodes[link.1].down_until;
            self.silent_until(id, until);
            return self.plan_at(until, What::Arrive(id));
        }
        flight.arrived = true;
        let reply = self.carry_out(link.1, &name, &step);
        self.tell(|| format!("node {} answers {}: {reply:?}", link.1, link.0));
        let at = self.in_order(link, 2);
        self.silent_until(id, at);
        self.plan_at(at, What::Answer(id, Ok(reply)));
    }

    /// The client hears nothing of this request before `at`.
    fn silent_until(&mut self, id: u64, at: u64) {
        if let Some(until) = self.flights.get(&id).map(|flight| flight.until)
            && until <= at
        {
            self.plan_at(until, What::Silence(id));
        }
    }

    /// A node carries out a step.
    pub(super) fn carry_out(&mut self, node: usize, name: &LockName, step: &Step) -> Reply {
        let at = self.at;
        if let (Rules::VotesDoNotComeBack, Step::Propose(proposal)) = (self.rules, step)
            && self.reach.contains_key(&proposal.owner)
        {
            return Reply::NoVote(NoVote::NotANode);
        }
        if let (Rules::ReleasesAreLost, Step::Release { keep: None, .. }, true) =
            (self.rules, step, node.is_multiple_of(2))
        {
            return Reply::Released;
        }
        let outcome = self.nodes[node].step(at, name, step);
        let reply = outcome.reply.clone();
        if self.rules == Rules::VotesDoNotLast
            && node.is_multiple_of(2)
            && matches!(reply, Reply::Held(_))
        {
            self.nodes[node].world.entry(name).holders.clear();
        }
        self.notify(node, name, outcome);
        reply
    }

    /// Sends the notices of a step to the connected clients.
    pub(super) fn notify(&mut self, node: usize, name: &LockName, outcome: Outcome) {
        let key = || name.key().to_owned();
        let mut notices = Vec::new();
        for wake in outcome.wakes {
            notices.push((wake.owner.client(), Notice::Granted { key: key(), wake }));
        }
        for owner in outcome.wanted {
            notices.push((owner.client(), Notice::Wanted { key: key(), owner }));
        }
        if let Some(owner) = outcome.first {
            notices.push((owner.client(), Notice::First { owner }));
        }
        for (to, notice) in notices {
            let to = self
                .members
                .iter()
                .position(|member| member.client.id == to);
            let hears = |client: &usize| {
                let wanted = matches!(notice, Notice::Wanted { .. });
                let member = &self.members[*client];
                member.links[node].connected
                    && (member.client.tells_wanted || !wanted)
                    && self.rare.hears(*client, self.at, &notice)
            };
            if let Some(client) = to.filter(hears) {
                let (at, epoch) = (
                    self.in_order((client, node), 3),
                    self.members[client].links[node].epoch,
                );
                self.plan_at(at, What::Notice((client, node), epoch, notice));
            }
        }
    }

    /// Ends a connection. Messages on their way may be lost, or arrive late and more than once.
    pub(super) fn cut(&mut self, (client, node): (usize, usize)) {
        self.tell(|| format!("the connection of {client} to node {node} is cut"));
        let link = &mut self.members[client].links[node];
        link.connected = false;
        link.epoch += 1;
        let epoch = link.epoch;
        let id = self.members[client].client.id;
        self.nodes[node].connected.remove(&id);
        let of_link =
            |(id, flight): (&u64, &Flight)| (flight.link == (client, node)).then_some(*id);
        let ids: Vec<u64> = self.flights.iter().filter_map(of_link).collect();
        for id in ids {
            let Some(flight) = self.flights.get(&id) else {
                continue;
            };
            let (arrived, name, step) = (flight.arrived, flight.name.clone(), flight.step.clone());
            if arrived && self.rng.bool() {
                // The client still gets this answer.
                continue;
            }
            let copies = if arrived {
                self.rng.u32(0..8) / 7
            } else {
                self.rng.u32(0..3)
            };
            let most = ttl_of(&step)
                .map_or(LATE, |ttl| micros(ttl * 9 / 10))
                .min(LATE);
            for _ in 0..copies {
                let (after, starts) = (self.rng.u64(0..most), self.nodes[node].starts);
                self.plan(
                    after,
                    What::Late((client, node), name.clone(), step.clone(), starts),
                );
            }
            // The request gets a new number, so a planned arrival under the old number has no effect.
            let error = StoreError::new("simulated:", StoreErrorKind::TimedOut, "cut").unknown();
            if let Some(flight) = self.flights.remove(&id) {
                self.numbers += 1;
                let lost = self.numbers;
                self.flights.insert(lost, flight);
                self.plan(0, What::Answer(lost, Err(error)));
            }
        }
        self.plan(
            0,
            What::Notice(
                (client, node),
                epoch,
                Notice::Cut {
                    node: 0,
                    why: "simulated",
                },
            ),
        );
        let after = match self.rng.u32(0..8) {
            0 if self.at < self.calm_at => self.rng.u64(SECOND..6 * SECOND),
            _ => self.rng.u64(MS..50 * MS),
        };
        self.plan(after, What::Connect((client, node)));
    }

    pub(super) fn connect(&mut self, (client, node): (usize, usize)) {
        if self.members[client].client.is_dead {
            return;
        }
        let down_until = self.nodes[node].down_until;
        if down_until > self.at {
            return self.plan_at(down_until + MS, What::Connect((client, node)));
        }
        self.tell(|| format!("{client} connects to node {node}"));
        let id = self.members[client].client.id;
        self.nodes[node].connected.insert(id);
        let link = &mut self.members[client].links[node];
        (link.connected, link.last) = (true, [0; 4]);
        let epoch = link.epoch;
        self.plan(
            0,
            What::Notice((client, node), epoch, Notice::Reconnected { node: 0 }),
        );
    }
}
