//! Clients of a plain key: `SET NX`, and compare-and-delete in a script. They are as good as a careful programmer would make
//! them, since Leasehold is compared with them.
//!
//! The poller tries again after a pause. Each broadcast client keeps a subscription, so it misses no release. A notification
//! before the reply to an attempt is older than that reply, since both use one connection.
//! Neither renews: the critical section is shorter than the lease.

use super::bench::{Bench, Clients, EPOCH};
use super::event_queue::ClientNumber;
use super::settings::{Crash, ScaleSettings};

/// A command to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RivalCommand {
    /// Take the lock.
    Ask,
    /// Free the lock.
    Release,
}

/// A message of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RivalAnswer {
    /// It holds the lock.
    Held,
    /// Another client does.
    Busy,
    /// The lock was freed.
    Released,
    /// It does not hold the lock.
    NotHeld,
    /// The lock was released: try now. So many others are notified after this one.
    Free { left: u32 },
}

/// A timer of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RivalTimer {
    /// It wants the lock (again).
    Begin,
    /// It asks again.
    Poll,
    /// It has finished its critical section.
    Finish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Waiting,
    Holding,
    Releasing,
    Nothing,
    Ended,
}

#[derive(Debug, Clone)]
struct Rival {
    about: About,
    /// When it sent its last attempt, and whether the reply is outstanding.
    sent: u64,
    is_asking: bool,
    /// When it last learned that the lock is busy.
    heard: u64,
    /// Whether it has a timer for asking without a notification.
    has_timer: bool,
}

/// Clients that share nothing but a key.
pub(super) struct Rivals {
    /// Whether releases are broadcast.
    broadcast: bool,
    members: Vec<Rival>,
    /// The owner of the key, and its expiry.
    key: Option<(ClientNumber, u64)>,
}

impl Rivals {
    pub(super) fn new(settings: &ScaleSettings, broadcast: bool) -> Self {
        let rival = Rival {
            about: About::Waiting,
            sent: 0,
            is_asking: false,
            heard: EPOCH,
            has_timer: false,
        };
        Self {
            broadcast,
            members: vec![rival; settings.clients as usize],
            key: None,
        }
    }

    fn ask(&mut self, bench: &mut Bench<Self>, client: ClientNumber) {
        let rival = &mut self.members[client as usize];
        (rival.sent, rival.is_asking) = (bench.now(), true);
        bench.send(client, RivalCommand::Ask);
    }

    fn release(&mut self, bench: &mut Bench<Self>, client: ClientNumber) {
        let now = bench.now();
        let costs = &bench.costs;
        let mut cost = costs.script;
        let freed = self.key.take_if(|key| key.0 == client).is_some();
        if freed && self.broadcast {
            let first = bench.server.begins(now) + cost + costs.publish + costs.push;
            cost += costs.publish + costs.push * u64::from(bench.clients);
            // A random order, so that early subscribers do not always win.
            let next = bench.rng.below(u64::from(bench.clients));
            let left = bench.clients - 1;
            let next = ClientNumber::try_from(next).unwrap_or_default();
            let at = first + bench.costs.latency;
            bench.event_queue.tell(at, next, RivalAnswer::Free { left });
        }
        if freed {
            bench.meter.released(now);
        }
        let done = bench.server.serve(now, cost);
        let answer = if freed {
            RivalAnswer::Released
        } else {
            RivalAnswer::NotHeld
        };
        bench.answer(done, client, answer);
    }

    fn take(&mut self, bench: &mut Bench<Self>, client: ClientNumber) {
        let done = bench.server.serve(bench.now(), bench.costs.set);
        self.key.take_if(|key| key.1 < done);
        let answer = if self.key.is_none() {
            self.key = Some((client, done + bench.costs.ttl));
            RivalAnswer::Held
        } else {
            RivalAnswer::Busy
        };
        bench.answer(done, client, answer);
    }

    /// The lock is busy: plans the next attempt.
    fn wait(&mut self, bench: &mut Bench<Self>, client: ClientNumber) {
        let rival = &mut self.members[client as usize];
        rival.heard = bench.now();
        if !self.broadcast {
            let pause = bench.rng.about(bench.costs.pause);
            bench.plan(pause, client, RivalTimer::Poll);
        } else if !std::mem::replace(&mut rival.has_timer, true) {
            bench.plan(bench.costs.safety, client, RivalTimer::Poll);
        }
    }
}

impl Clients for Rivals {
    type Command = RivalCommand;
    type Answer = RivalAnswer;
    type Timer = RivalTimer;

    /// All of them wait already, the pollers at random points of their pause.
    fn begin(&mut self, bench: &mut Bench<Self>) {
        let everybody = u64::from(bench.clients);
        for client in 0..bench.clients {
            // One nanosecond apart, so that the order is known.
            let first = EPOCH - everybody + u64::from(client);
            bench.meter.wants(client, first);
            let limit = if self.broadcast {
                self.members[client as usize].has_timer = true;
                bench.costs.safety
            } else {
                bench.costs.pause
            };
            let pause = bench.rng.below(limit);
            self.members[client as usize].heard = EPOCH + pause - limit;
            bench.plan(pause, client, RivalTimer::Poll);
        }
        if self.broadcast {
            self.ask(bench, 0);
        }
    }

    fn arrives(&mut self, bench: &mut Bench<Self>, client: ClientNumber, command: RivalCommand) {
        if command == RivalCommand::Ask {
            self.take(bench, client);
        } else {
            self.release(bench, client);
        }
    }

    fn answered(&mut self, bench: &mut Bench<Self>, client: ClientNumber, answer: RivalAnswer) {
        let rival = &mut self.members[client as usize];
        if matches!(answer, RivalAnswer::Held | RivalAnswer::Busy) {
            rival.is_asking = false;
        }
        if let RivalAnswer::Free { left } = answer {
            if rival.about == About::Waiting && !rival.is_asking {
                self.ask(bench, client);
            }
            if let Some(left) = left.checked_sub(1) {
                let next = (client + 1) % bench.clients;
                let at = bench.now() + bench.costs.push;
                bench.event_queue.tell(at, next, RivalAnswer::Free { left });
            }
            return;
        }
        match (rival.about, answer) {
            (About::Waiting, RivalAnswer::Held) => {
                let until = deadline(rival.sent, bench.costs.ttl);
                if bench.now() < until {
                    rival.about = About::Holding;
                    bench.knows(client, until, RivalTimer::Finish);
                } else {
                    self.wait(bench, client);
                }
            }
            (About::Waiting, RivalAnswer::Busy) => self.wait(bench, client),
            (About::Releasing, RivalAnswer::Released | RivalAnswer::NotHeld) => {
                rival.about = About::Nothing;
                bench.again(client, RivalTimer::Begin);
            }
            _ => {}
        }
    }

    fn due(&mut self, bench: &mut Bench<Self>, client: ClientNumber, timer: RivalTimer) {
        let now = bench.now();
        let rival = &mut self.members[client as usize];
        match (rival.about, timer) {
            (About::Nothing, RivalTimer::Begin) => {
                rival.about = About::Waiting;
                bench.meter.wants(client, now);
                self.ask(bench, client);
            }
            (About::Waiting, RivalTimer::Poll) if self.broadcast => {
                let quiet_until = rival.heard + bench.costs.safety;
                if rival.is_asking {
                    // A refusal begins a new quiet period.
                    bench.plan(bench.costs.safety, client, RivalTimer::Poll);
                } else if now < quiet_until {
                    bench.plan(quiet_until - now, client, RivalTimer::Poll);
                } else {
                    rival.has_timer = false;
                    self.ask(bench, client);
                }
            }
            (About::Waiting, RivalTimer::Poll) if !rival.is_asking => self.ask(bench, client),
            (_, RivalTimer::Poll) => rival.has_timer = false,
            (About::Holding, RivalTimer::Finish) => {
                rival.about = About::Releasing;
                bench.meter.lets_go(client, now);
                bench.send(client, RivalCommand::Release);
            }
            _ => {}
        }
    }

    fn crash(&mut self, client: ClientNumber, _crash: Crash) -> bool {
        let rival = &mut self.members[client as usize];
        let waits = rival.about == About::Waiting && !rival.is_asking;
        if waits {
            rival.about = About::Ended;
        }
        waits
    }
}

/// The deadline of a lease of `ttl` that was requested at `sent`: less 1 % and 2 ms, as in the library.
const fn deadline(sent: u64, ttl: u64) -> u64 {
    sent + (ttl - ttl / 100).saturating_sub(2_000_000)
}
