//! Leasehold's clients, over [`World`] itself: each client is the state machine that ships, and each step of the store is one
//! of core's.

use std::cell::Cell;
use std::time::Duration;

use leasehold::simulated::{News, Outgoing, Phase, ReplyTo, Simulated, SimulatedTime};
use leasehold_core::{
    Block, Busy, CLAIM_WINDOW, HolderIdentity, HolderView, LockName, Mode, Now, Owner, Presence,
    Reply, Step, Ttl, WAITER_GRACE, Waiter, World, poll_after,
};

use super::bench::{Bench, Clients, EPOCH};
use super::event_queue::ClientNumber;
use super::settings::{Crash, DEEP, ScaleSettings, nanos};

/// A message of the store.
pub(super) enum LeaseholdAnswer {
    /// The reply to a step.
    Reply(ReplyTo, Reply),
    /// A notice that the client did not ask for.
    News(News),
}

/// A timer of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeaseholdTimer {
    /// It wants the lock (again).
    Begin,
    /// Its machine has a timer due.
    Pass,
    /// It has finished its critical section.
    Finish,
}

struct SimulatedClient {
    machine: Simulated,
    /// Its stage at the last check.
    stage: Phase,
    ended: Option<Crash>,
    /// The time of the last timer; a timer for another time is outdated.
    pass_at: Option<u64>,
    /// The number of clients that joined before it; `None` if it does not wait.
    ticket: Option<u64>,
}

/// Clients that wait in core's queue.
pub(super) struct LeaseholdClients {
    world: World,
    name: LockName,
    ttl: Ttl,
    time: SimulatedTime,
    members: Vec<SimulatedClient>,
    joined: u64,
    deep_polls: u64,
    polled: u64,
}

/// A presence in which the server knows which connections are closed: they have no subscription.
struct SimulatedPresence<'a> {
    members: &'a [SimulatedClient],
    /// How many grants were announced without a subscriber.
    unheard: Cell<u64>,
}

impl Presence for SimulatedPresence<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let gone = self.members[index(&waiter.owner)].ended == Some(Crash::Dead);
        self.unheard.set(self.unheard.get() + u64::from(gone));
        gone
    }
}

impl LeaseholdClients {
    pub(super) fn new(settings: &ScaleSettings, name: LockName, ttl: Ttl) -> Self {
        Self {
            world: World::default(),
            name,
            ttl,
            time: SimulatedTime::new(settings.seed),
            members: Vec::with_capacity(settings.clients as usize),
            joined: 0,
            deep_polls: settings.deep_polls.max(1),
            polled: 0,
        }
    }

    /// Whether this is a poll from so deep in the queue that core is not asked (see [`ScaleSettings::deep_polls`]). Core would only
    /// reply *busy* and refresh the waiter.
    fn is_skipped(&mut self, client: ClientNumber, step: &Step) -> bool {
        let Some(ticket) = self.members[client as usize].ticket else {
            return false;
        };
        if self.deep_polls == 1 || !matches!(step, Step::Acquire { .. }) {
            return false;
        }
        let queue = self
            .world
            .get(&self.name)
            .map_or(0, |lock| lock.queue.len());
        if ticket < self.joined.saturating_sub(queue as u64) + DEEP {
            return false;
        }
        self.polled += 1;
        !self.polled.is_multiple_of(self.deep_polls)
    }

    /// The lease of a holder as other clients see it: that of a grant, unless it holds for so long that it renews.
    fn usual_lease(&self, bench: &Bench<Self>) -> Duration {
        let granted = CLAIM_WINDOW.min(self.ttl.get());
        if bench.costs.section < nanos(granted) / 3 {
            granted
        } else {
            self.ttl.get()
        }
    }

    /// Lets the machine of a client run, and follows its effects.
    fn drive(
        &mut self,
        bench: &mut Bench<Self>,
        client: ClientNumber,
        act: impl FnOnce(&mut Simulated),
    ) {
        let now = bench.now();
        self.time.set(Duration::from_nanos(now));
        let member = &mut self.members[client as usize];
        act(&mut member.machine);
        for step in member.machine.take_sent() {
            bench.send(client, step);
        }
        let before = std::mem::replace(&mut member.stage, member.machine.stage());
        match (before, member.stage) {
            (Phase::Waits, Phase::Holds(until)) => {
                member.ticket = None;
                bench.knows(client, nanos(until), LeaseholdTimer::Finish);
            }
            (Phase::Holds(before), Phase::Holds(until)) if before != until => {
                bench.meter.extends(client, nanos(until));
            }
            // It got no lease, or has released it.
            (Phase::Waits, Phase::Idle) => {
                member.ticket = None;
                bench.meter.gives_up(client);
                bench.again(client, LeaseholdTimer::Begin);
            }
            (Phase::Releases, Phase::Idle) => bench.again(client, LeaseholdTimer::Begin),
            _ => {}
        }
        let next = member.machine.next().map(nanos);
        if let Some(at) = next.filter(|_| next != member.pass_at) {
            bench.plan(at.saturating_sub(now), client, LeaseholdTimer::Pass);
        }
        member.pass_at = next;
    }

    /// Each client joined before those behind it, and polled since at some time within the last pause. The queue is in the order
    /// in which they joined.
    fn join(&mut self, bench: &mut Bench<Self>, pause: u64) -> Vec<(u64, ClientNumber)> {
        let turn = bench.costs.section + 2 * bench.costs.latency;
        let mut heard = Vec::with_capacity(bench.clients as usize);
        for client in 0..bench.clients {
            let waits_for = u64::from(bench.clients - client) * turn;
            let silent_for = if waits_for < pause {
                waits_for
            } else {
                bench.rng.below(pause)
            };
            bench.meter.wants(client, EPOCH - waits_for);
            heard.push((EPOCH - silent_for, client));
            let number = u64::from(client);
            self.members.push(SimulatedClient {
                machine: Simulated::new(&self.time, &self.name, number, bench.rng.next()),
                stage: Phase::Idle,
                ended: None,
                pass_at: None,
                ticket: Some(number),
            });
        }
        heard
    }
}

impl Clients for LeaseholdClients {
    type Command = Outgoing;
    type Answer = LeaseholdAnswer;
    type Timer = LeaseholdTimer;

    /// The queue as it is after all clients have joined and polled for long: a million requests at once would be another
    /// experiment. The lock has just become free; the first client is about to ask and find that it holds it.
    fn begin(&mut self, bench: &mut Bench<Self>) {
        let last = bench.clients - 1;
        let lease = self.usual_lease(bench);
        let poll_after = poll_after(last, Some(lease), false, true);
        let pause = nanos(poll_after);
        let heard = self.join(bench, pause);
        let queue = &mut self.world.entry(&self.name).queue;
        let mut by_time = heard.clone();
        by_time.sort_unstable();
        let mut owners = vec![None; heard.len()];
        for (at, client) in by_time {
            // Its last poll, and the reply.
            self.time.set(Duration::from_nanos(at));
            let member = &mut self.members[client as usize];
            member.machine.acquire(self.ttl);
            member.stage = Phase::Waits;
            for Outgoing { step, ticket } in member.machine.take_sent() {
                let Step::Acquire { owner, .. } = step else {
                    continue;
                };
                let busy = busy(&owner, client, poll_after, at / 1_000);
                member.machine.answered(ticket, Ok(Reply::Busy(busy)));
                owners[client as usize] = Some(owner);
            }
        }
        for ((at, client), owner) in heard.into_iter().zip(owners) {
            let Some(owner) = owner else { continue };
            queue.push_back(Waiter {
                owner: owner.clone(),
                mode: Mode::Exclusive,
                ttl: self.ttl,
                block: Block::ONE,
                listening: true,
                seen_until_ms: (at + pause + nanos(WAITER_GRACE)) / 1_000_000,
            });
            if client == 0 {
                let first = News::First(owner);
                bench
                    .event_queue
                    .answer(EPOCH, client, LeaseholdAnswer::News(first));
            }
        }
        self.joined = u64::from(bench.clients);
        for client in 0..bench.clients {
            self.drive(bench, client, |_| ());
        }
    }

    fn arrives(&mut self, bench: &mut Bench<Self>, client: ClientNumber, sent: Outgoing) {
        let Outgoing { step, ticket } = sent;
        let now = bench.now();
        let at_us = bench.server.begins(now) / 1_000;
        if self.is_skipped(client, &step) {
            let Step::Acquire { owner, .. } = &step else {
                return;
            };
            let done = bench.server.serve(now, bench.costs.script);
            let after = poll_after(u32::MAX, None, false, true);
            let busy = busy(owner, u32::MAX, after, at_us);
            return bench.answer(
                done,
                client,
                LeaseholdAnswer::Reply(ticket, Reply::Busy(busy)),
            );
        }
        let connections = SimulatedPresence {
            members: &self.members,
            unheard: Cell::new(0),
        };
        let outcome = self
            .world
            .apply(Now::at_micros(at_us), &self.name, &step, &connections);
        let news = outcome.wakes.len()
            + usize::from(outcome.wanted.is_some())
            + usize::from(outcome.first.is_some());
        let published = news as u64 + connections.unheard.get();
        let cost = bench.costs.script + bench.costs.publish * published;
        let done = bench.server.serve(now, cost);
        let mut tell = |owner: &Owner, told| {
            let client = ClientNumber::try_from(index(owner)).unwrap_or_default();
            bench.answer(done, client, LeaseholdAnswer::News(told));
        };
        for wake in outcome.wakes {
            tell(&wake.owner.clone(), News::Granted(wake));
        }
        if let Some(owner) = outcome.wanted {
            tell(&owner.clone(), News::Wanted(owner));
        }
        if let Some(owner) = outcome.first {
            tell(&owner.clone(), News::First(owner));
        }
        let member = &mut self.members[client as usize];
        match &outcome.reply {
            Reply::Released => bench.meter.released(now),
            Reply::Busy(_) if member.ticket.is_none() => {
                member.ticket = Some(self.joined);
                self.joined += 1;
            }
            // It claimed too late: it joins the end of the queue.
            Reply::NotHeld(_) => member.ticket = None,
            _ => {}
        }
        bench.answer(done, client, LeaseholdAnswer::Reply(ticket, outcome.reply));
    }

    fn answered(&mut self, bench: &mut Bench<Self>, client: ClientNumber, answer: LeaseholdAnswer) {
        match (answer, self.members[client as usize].ended) {
            (LeaseholdAnswer::News(News::Granted(_)), Some(_)) => bench.meter.lapsed += 1,
            (_, Some(_)) => {}
            (LeaseholdAnswer::News(told), None) => {
                self.drive(bench, client, |machine| machine.told(told));
            }
            (LeaseholdAnswer::Reply(ticket, reply), None) => {
                self.drive(bench, client, |machine| machine.answered(ticket, Ok(reply)));
            }
        }
    }

    fn due(&mut self, bench: &mut Bench<Self>, client: ClientNumber, timer: LeaseholdTimer) {
        let now = bench.now();
        let ttl = self.ttl;
        let member = &self.members[client as usize];
        match timer {
            _ if member.ended.is_some() => {}
            LeaseholdTimer::Begin => {
                bench.meter.wants(client, now);
                self.drive(bench, client, |machine| machine.acquire(ttl));
            }
            // A timer that was due while a message was handled is late.
            LeaseholdTimer::Pass if member.pass_at.is_some_and(|at| at <= now) => {
                self.drive(bench, client, Simulated::pass);
            }
            LeaseholdTimer::Pass => {}
            LeaseholdTimer::Finish => {
                bench.meter.lets_go(client, now);
                self.drive(bench, client, Simulated::release);
            }
        }
    }

    fn crash(&mut self, client: ClientNumber, crash: Crash) -> bool {
        let member = &mut self.members[client as usize];
        let waits = member.stage == Phase::Waits && member.ended.is_none();
        if waits {
            member.ended = Some(crash);
        }
        waits
    }
}

/// The reply to a client with so many waiters before it. It has no details of the holder, since the client uses none.
fn busy(owner: &Owner, ahead: u32, poll_after: Duration, at_us: u64) -> Busy {
    Busy {
        holder: HolderView::new(HolderIdentity::Owner(owner.clone()), None, None, None),
        ahead,
        poll_after,
        at_us,
    }
}

/// The client number of an owner.
fn index(owner: &Owner) -> usize {
    usize::try_from(Simulated::number(owner)).unwrap_or(usize::MAX)
}
