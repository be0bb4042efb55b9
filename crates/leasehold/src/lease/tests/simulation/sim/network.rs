//! The network between the clients and the server. It delays, loses and repeats messages, and messages of a later connection overtake
//! them.

use std::time::Duration;

use leasehold_core::{LockName, Outcome, Step};

use super::{Flight, MS, SECOND, Sent, Simulation, What, latency};
use crate::error::{Replaced, StoreError, StoreErrorKind};
use crate::lease::effects::To;
use crate::store::{Notice, Scope};

/// A message of an earlier connection arrives at most this late. A request with a TTL also arrives before the TTL ends.
const LATE: u64 = 1_900 * MS;

impl Simulation {
    /// When a message of this kind arrives that departs at `departs`.
    fn in_order(&mut self, client: usize, kind: usize, departs: u64) -> u64 {
        let at = departs + latency(&mut self.rng);
        let last = &mut self.links[client].last[kind];
        *last = at.max(*last);
        *last
    }

    pub(super) fn send(&mut self, client: usize, name: LockName, step: Step, to: To) {
        self.tell(|| format!("{client} sends {step:?}"));
        self.numbers += 1;
        let id = self.numbers;
        let (departs, counts_from) = self.departure(client, &to);
        let (limit, at) = match &step {
            Step::Acquire { ttl, .. } => (ttl.get() / 3, self.in_order(client, 0, departs)),
            Step::Extend { ttl, .. } => (ttl.get() / 3, self.in_order(client, 1, departs)),
            Step::Release { fence: Some(_), .. } => {
                (Duration::MAX, self.in_order(client, 1, departs))
            }
            _ => (Duration::MAX, departs + latency(&mut self.rng)),
        };
        let flight = Flight {
            client,
            name,
            step,
            to,
            arrived: false,
        };
        self.flights.insert(id, flight);
        if !self.links[client].connected {
            let error = StoreError::new("simulated:", StoreErrorKind::Unavailable, "cut");
            let after = self.rng.u64(MS..20 * MS);
            return self.plan(after, What::Answer(id, Err(error)));
        }
        self.plan_at(at, What::Arrive(id));
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.plan_at(counts_from + limit.min(500 * MS), What::Silence(id));
        if self.at < self.calm_at && self.rng.u32(0..40) == 0 {
            let (after, epoch) = (self.rng.u64(0..3 * MS), self.links[client].epoch);
            self.plan(after, What::Cut(client, epoch));
        }
    }

    pub(super) fn arrives(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else {
            return;
        };
        if self.at < self.calm_at
            && let Some(after) = self.rare.detour()
        {
            return self.plan(after, What::Arrive(id));
        }
        flight.arrived = true;
        if self.at < self.calm_at
            && matches!(flight.step, Step::Acquire { .. })
            && self.rng.u32(0..60) == 0
        {
            let client = flight.client;
            let (at, kind) = (self.in_order(client, 2, self.at), StoreErrorKind::Full);
            let error = StoreError::new("simulated:", kind, "full");
            return self.plan_at(at, What::Answer(id, Err(error)));
        }
        let (client, name, step) = (flight.client, flight.name.clone(), flight.step.clone());
        let outcome = self.server.step(self.at, &name, &step);
        self.tell(|| format!("the server does it for {client}: {:?}", outcome.reply));
        let answer = Ok(outcome.reply.clone());
        self.notify(&name, outcome);
        let departs = self.at + self.rare.slow_answer();
        let at = self.in_order(client, 2, departs);
        self.plan_at(at, What::Answer(id, answer));
        if self.at < self.calm_at
            && let Some(has_all) = self.rare.takes_over()
        {
            if has_all {
                self.server.replicate();
            }
            self.fail_over();
        }
    }

    /// When a client sends a step, and from when its time limit counts. The client may stand still between a renewal and its departure.
    fn departure(&mut self, client: usize, to: &To) -> (u64, u64) {
        if let To::Renewal(owner, _) = to
            && self.at < self.calm_at
            && let Some((stall, more)) = self.rare.stall(self.clients[client].left(owner, self.at))
        {
            let until = self.at + stall;
            self.stands_still(client, until);
            self.clients[client].timers_paused_until = until + more;
        }
        let departs = self.at.max(self.clients[client].paused_until);
        let is_forgiven = departs > self.at && self.rare.forgives_stall();
        (departs, if is_forgiven { departs } else { self.at })
    }

    /// Sends the notices of a step to the connected clients.
    pub(super) fn notify(&mut self, name: &LockName, outcome: Outcome) {
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
            let to = self.clients.iter().position(|client| client.id == to);
            let hears = |client: &usize| {
                let wanted = matches!(notice, Notice::Wanted { .. });
                self.links[*client].connected
                    && (self.clients[*client].tells_wanted || !wanted)
                    && self.rare.hears(*client, self.at, &notice)
            };
            if let Some(client) = to.filter(hears) {
                let departs = self.at + self.rare.late_notice();
                let at = self.in_order(client, 3, departs);
                self.plan_at(at, What::Notice(client, self.sent(client), notice));
            }
        }
    }

    /// Ends the connection of a client. Its messages on their way may be lost, or arrive late and more than once.
    pub(super) fn cut(&mut self, client: usize) {
        self.tell(|| format!("the connection of {client} is cut"));
        self.links[client].connected = false;
        self.links[client].epoch += 1;
        self.server.connected.remove(&self.clients[client].id);
        let of_client = |(_, flight): &(&u64, &Flight)| flight.client == client;
        let ids: Vec<_> = self
            .flights
            .iter()
            .filter(of_client)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let (arrived, name, step) = {
                let flight = &self.flights[&id];
                (flight.arrived, flight.name.clone(), flight.step.clone())
            };
            if arrived && self.rng.bool() {
                // The client still gets this answer.
                if let Some(late) = self.rare.late_answer() {
                    self.delay_answer(id, late);
                }
                continue;
            }
            let copies = if arrived {
                self.rng.u32(0..8) / 7
            } else {
                self.rng.u32(0..3)
            };
            for _ in 0..copies {
                let most = match &step {
                    Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => {
                        u64::try_from(ttl.get().as_micros() * 9 / 10).unwrap()
                    }
                    _ => LATE,
                };
                let (after, lineage) = (self.rng.u64(0..most.min(LATE)), self.server.lineage);
                self.plan(
                    after,
                    What::Late(client, name.clone(), step.clone(), lineage),
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
        let cut = Notice::Cut {
            node: 0,
            why: "simulated",
        };
        self.plan(0, What::Notice(client, self.sent(client), cut));
        let after = match self.rng.u32(0..8) {
            0 if self.at < self.calm_at => self.rng.u64(SECOND..6 * SECOND),
            _ => self.rng.u64(MS..50 * MS),
        };
        self.plan(after, What::Connect(client));
    }

    /// The answer to this request, which is on its way, arrives after `late`.
    fn delay_answer(&mut self, id: u64, late: u64) {
        let is_meant = |what: &What| matches!(what, What::Answer(of, _) if *of == id);
        let mut planned = self.planned.iter();
        let number = planned.find_map(|(number, what)| is_meant(what).then_some(*number));
        if let Some(answer) = number.and_then(|number| self.planned.remove(&number)) {
            self.plan(late, answer);
        }
    }

    pub(super) fn connect(&mut self, client: usize) {
        if self.clients[client].is_dead {
            return;
        }
        self.tell(|| format!("{client} connects"));
        self.server.connected.insert(self.clients[client].id);
        let link = &mut self.links[client];
        (link.connected, link.last, link.connected_at) = (true, [0; 4], self.at);
        let (lineage, sent) = (link.lineage, self.sent(client));
        if lineage != self.server.lineage {
            let replaced = Notice::Replaced(Replaced::Successor, Scope::All);
            self.plan(0, What::Notice(client, sent, replaced));
        }
        let reconnected = Notice::Reconnected { node: 0 };
        self.plan(0, What::Notice(client, sent, reconnected));
    }

    /// A notice that is sent to this client now.
    pub(super) fn sent(&self, client: usize) -> Sent {
        Sent {
            epoch: self.links[client].epoch,
            lineage: self.server.lineage,
        }
    }
}
