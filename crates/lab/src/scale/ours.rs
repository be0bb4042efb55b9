//! Leasehold's clients, over [`World`] itself. Must never decide who holds the lock: each step is one of core's.
//!
//! They do what `crates/leasehold/src/lease` does: one `acquire` to join the line; the wake that follows a grant is the
//! lease, as long as it is good for more than half of the claim window; else it is claimed with `extend`; a poll when
//! nothing was heard for `poll_after`, longer by up to a tenth unless first in line; renewals at a third of the lease.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::{
    Block, CLAIM_WINDOW, ClientId, Label, LockName, Mode, Now, Owner, Presence, Reply, Step, Ttl,
    WAITER_GRACE, Wait, Waiter, World, poll_after,
};

use super::agenda::{Answer, Client, Command, Timer};
use super::bench::{Bench, Clients, EPOCH};
use super::settings::{Crash, DEEP, Settings, nanos};

/// What a client is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Waiting,
    Holding,
    Releasing,
    Nothing,
    Ended(Crash),
}

#[derive(Debug)]
struct Member {
    /// Of its present acquisition.
    owner: Owner,
    about: About,
    /// When it sent its last request for the lock, and whether that is yet to be answered.
    sent: u64,
    is_asking: bool,
    /// When it sent the last one that was answered, and when that was at the store, in microseconds.
    asked: (u64, u64),
    /// When it polls; a timer for another time is an old one.
    poll_at: u64,
    deadline: u64,
    /// The number of those who joined before it; `NONE` before it has joined.
    ticket: u64,
}

const NONE: u64 = u64::MAX;

/// Clients that wait in core's line.
pub(super) struct Ours {
    world: World,
    name: LockName,
    ttl: Ttl,
    label: Label,
    members: Vec<Member>,
    joined: u64,
    deep_polls: u64,
    polled: u64,
}

/// The server knows whose connection is closed: it counts nobody who listens there.
struct Connections<'a> {
    members: &'a [Member],
    /// To how many nobody listened.
    unheard: Cell<u64>,
}

impl Presence for Connections<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let gone = index(&waiter.owner)
            .and_then(|client| self.members.get(client as usize))
            .is_some_and(|member| member.about == About::Ended(Crash::Dead));
        self.unheard.set(self.unheard.get() + u64::from(gone));
        gone
    }
}

impl Ours {
    pub(super) fn new(settings: &Settings, name: LockName, ttl: Ttl, label: Label) -> Self {
        Self {
            world: World::default(),
            name,
            ttl,
            label,
            members: Vec::with_capacity(settings.clients as usize),
            joined: 0,
            deep_polls: settings.deep_polls.max(1),
            polled: 0,
        }
    }

    fn owner(&self, bench: &mut Bench, client: Client) -> Owner {
        let id = ClientId::new(u64::from(client));
        Owner::labelled(bench.rng.wide(), id, &self.label, client, &self.label)
    }

    /// Whether this is a poll from so deep in the line that core is not asked (see [`Settings::deep_polls`]). It would only
    /// be told to ask again, and be heard of.
    fn is_skipped(&mut self, client: Client, command: Command) -> bool {
        let member = &self.members[client as usize];
        let waits = command == Command::Ask && member.about == About::Waiting;
        if self.deep_polls == 1 || !waits || member.ticket == NONE {
            return false;
        }
        let queue = self
            .world
            .get(&self.name)
            .map_or(0, |lock| lock.queue.len());
        let left = self.joined.saturating_sub(queue as u64);
        if member.ticket < left + DEEP {
            return false;
        }
        self.polled += 1;
        !self.polled.is_multiple_of(self.deep_polls)
    }

    fn holds(&mut self, bench: &mut Bench, client: Client, until: u64, lease: u64) {
        let member = &mut self.members[client as usize];
        (member.about, member.deadline) = (About::Holding, until);
        bench.knows(client, until);
        self.renew_in_time(bench, client, lease);
    }

    /// A lease is renewed when a third of it has passed, if the critical section is not over before.
    fn renew_in_time(&self, bench: &mut Bench, client: Client, lease: u64) {
        let at = self.members[client as usize]
            .deadline
            .saturating_sub(lease / 3 * 2);
        let pause = at.saturating_sub(bench.now());
        if pause < bench.costs.section {
            bench.plan(pause, client, Timer::Renew);
        }
    }

    fn ask(&mut self, bench: &mut Bench, client: Client, command: Command) {
        let member = &mut self.members[client as usize];
        (member.sent, member.is_asking) = (bench.now(), true);
        bench.send(client, command);
    }

    fn claim_window(&self) -> u64 {
        nanos(CLAIM_WINDOW.min(self.ttl.get()))
    }

    /// The lease of a holder as those who ask find it: that of a grant, unless it holds for so long that it renews.
    fn usual_lease(&self, bench: &Bench) -> Duration {
        if bench.costs.section < self.claim_window() / 3 {
            CLAIM_WINDOW.min(self.ttl.get())
        } else {
            self.ttl.get()
        }
    }

    /// A wake arrived. The grant is good from a moment before which it cannot have been made (W4 of the library).
    fn granted(&mut self, bench: &mut Bench, client: Client, at_us: u64) {
        let (sent, busy_us) = self.members[client as usize].asked;
        let passed = at_us.saturating_sub(busy_us) * 1_000;
        let window = self.claim_window();
        let until = Bench::deadline((sent + passed / 100 * 99).min(bench.now()), window);
        if until.saturating_sub(bench.now()) > window / 2 {
            self.holds(bench, client, until, window);
        } else if !self.members[client as usize].is_asking {
            self.ask(bench, client, Command::Extend);
        }
    }

    /// An acquire or extend was answered: the client holds the lock.
    fn held(&mut self, bench: &mut Bench, client: Client) {
        let lease = bench.costs.ttl;
        let member = &mut self.members[client as usize];
        let until = Bench::deadline(member.sent, lease);
        match member.about {
            About::Waiting if bench.now() < until => self.holds(bench, client, until, lease),
            About::Waiting => self.ask(bench, client, Command::Extend),
            About::Holding => {
                member.deadline = until;
                bench.meter.extends(client, until);
                self.renew_in_time(bench, client, lease);
            }
            _ => {}
        }
    }

    /// A command of a client, as a step of core.
    fn step(&self, client: Client, command: Command) -> Step {
        let (owner, ttl) = (self.members[client as usize].owner.clone(), self.ttl);
        match command {
            Command::Ask => Step::Acquire {
                owner,
                mode: Mode::Exclusive,
                ttl,
                block: Block::ONE,
                wait: Some(Wait { listening: true }),
            },
            Command::Extend => Step::Extend {
                owner,
                ttl,
                fence: None,
            },
            Command::Release => Step::Release {
                owner,
                keep: None,
                fence: None,
            },
        }
    }

    /// What core answers, as it travels.
    fn told(&mut self, bench: &mut Bench, client: Client, reply: &Reply) -> Answer {
        match reply {
            Reply::Held(_) => Answer::Held,
            Reply::Busy(busy) => {
                let member = &mut self.members[client as usize];
                if member.ticket == NONE {
                    member.ticket = self.joined;
                    self.joined += 1;
                }
                let after = nanos(busy.poll_after);
                let jitter = if busy.ahead == 0 { 0 } else { after / 10 };
                Answer::Busy {
                    pause: after + bench.rng.below(jitter),
                    at_us: busy.at_us,
                }
            }
            Reply::Released => Answer::Released,
            Reply::NotHeld(_) | Reply::Seen(_) => Answer::NotHeld,
        }
    }
}

impl Clients for Ours {
    /// The line as it is after everybody has joined and polled for long: a million requests at once would be another
    /// experiment. The lock has just become free; the first client is about to ask and find that it holds it.
    fn begin(&mut self, bench: &mut Bench) {
        let turn = bench.costs.section + 2 * bench.costs.latency;
        let last = bench.clients - 1;
        let lease = self.usual_lease(bench);
        let pause = nanos(poll_after(last, Some(lease), false, true));
        for client in 0..bench.clients {
            let owner = self.owner(bench, client);
            // It joined when those behind it had not yet; since then it polled, at some time within the last pause.
            let waits_for = u64::from(bench.clients - client) * turn;
            let silent_for = if waits_for < pause {
                waits_for
            } else {
                bench.rng.below(pause)
            };
            let heard = EPOCH - silent_for;
            let poll_at = heard + pause + bench.rng.below(pause / 10);
            bench.meter.wants(client, EPOCH - waits_for);
            bench.agenda.plan(poll_at, client, Timer::Poll);
            self.members.push(Member {
                owner: owner.clone(),
                about: About::Waiting,
                sent: heard,
                is_asking: false,
                asked: (heard, heard / 1_000),
                poll_at,
                deadline: 0,
                ticket: u64::from(client),
            });
            self.world.entry(&self.name).queue.push_back(Waiter {
                owner,
                mode: Mode::Exclusive,
                ttl: self.ttl,
                block: Block::ONE,
                listening: true,
                seen_until_ms: (heard + pause + nanos(WAITER_GRACE)) / 1_000_000,
            });
        }
        self.joined = u64::from(bench.clients);
        self.ask(bench, 0, Command::Ask);
    }

    fn arrives(&mut self, bench: &mut Bench, client: Client, command: Command) {
        let now = bench.now();
        let at_us = bench.server.begins(now) / 1_000;
        if self.is_skipped(client, command) {
            let done = bench.server.serve(now, bench.costs.script);
            let after = nanos(poll_after(u32::MAX, None, false, true));
            let pause = after + bench.rng.below(after / 10);
            return bench.answer(done, client, Answer::Busy { pause, at_us });
        }
        let step = self.step(client, command);
        let connections = Connections {
            members: &self.members,
            unheard: Cell::new(0),
        };
        let outcome = self
            .world
            .apply(Now::at_micros(at_us), &self.name, &step, &connections);
        let told = outcome.wakes.len() as u64 + u64::from(outcome.wanted.is_some());
        let published = told + connections.unheard.get();
        let cost = bench.costs.script + bench.costs.publish * published;
        let done = bench.server.serve(now, cost);
        for wake in &outcome.wakes {
            if let Some(next) = index(&wake.owner) {
                bench.answer(done, next, Answer::Granted { at_us: wake.at_us });
            }
        }
        if outcome.reply == Reply::Released {
            bench.meter.released(now);
        }
        let answer = self.told(bench, client, &outcome.reply);
        bench.answer(done, client, answer);
    }

    fn answered(&mut self, bench: &mut Bench, client: Client, answer: Answer) {
        let member = &mut self.members[client as usize];
        if !matches!(answer, Answer::Granted { .. } | Answer::Released) {
            member.is_asking = false;
        }
        match (member.about, answer) {
            (About::Ended(_), Answer::Granted { .. }) => bench.meter.lapsed += 1,
            (About::Waiting, Answer::Busy { pause, at_us }) => {
                member.asked = (member.sent, at_us);
                member.poll_at = bench.now() + pause;
                bench.plan(pause, client, Timer::Poll);
            }
            (About::Waiting, Answer::Granted { at_us }) => self.granted(bench, client, at_us),
            (_, Answer::Held) => self.held(bench, client),
            // The claim came too late: back to the end of the line.
            (About::Waiting, Answer::NotHeld) => {
                member.ticket = NONE;
                self.ask(bench, client, Command::Ask);
            }
            (About::Holding, Answer::NotHeld) => {
                member.about = About::Nothing;
                bench.meter.lets_go(client, bench.now());
                bench.again(client);
            }
            (About::Releasing, Answer::Released | Answer::NotHeld) => {
                member.about = About::Nothing;
                bench.again(client);
            }
            _ => {}
        }
    }

    fn due(&mut self, bench: &mut Bench, client: Client, timer: Timer) {
        let now = bench.now();
        let member = &mut self.members[client as usize];
        match (member.about, timer) {
            (About::Nothing, Timer::Begin) => {
                (member.about, member.ticket) = (About::Waiting, NONE);
                self.members[client as usize].owner = self.owner(bench, client);
                bench.meter.wants(client, now);
                self.ask(bench, client, Command::Ask);
            }
            (About::Waiting, Timer::Poll) if member.poll_at == now && !member.is_asking => {
                self.ask(bench, client, Command::Ask);
            }
            (About::Holding, Timer::Renew) if !member.is_asking => {
                self.ask(bench, client, Command::Extend);
            }
            (About::Holding, Timer::Finish) => {
                member.about = About::Releasing;
                bench.meter.lets_go(client, now);
                bench.send(client, Command::Release);
            }
            _ => {}
        }
    }

    fn crash(&mut self, client: Client, crash: Crash) -> bool {
        let member = &mut self.members[client as usize];
        let waits = member.about == About::Waiting;
        if waits {
            member.about = About::Ended(crash);
        }
        waits
    }
}

/// The number of the client that an owner belongs to.
fn index(owner: &Owner) -> Option<Client> {
    Client::try_from(owner.client().get()).ok()
}
