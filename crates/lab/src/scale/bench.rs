//! The environment of the clients: time, the network, the server.

use super::event_queue::{ClientNumber, EventQueue, ScheduledEvent};
use super::figures::{Figures, Meter};
use super::server::SimulatedServer;
use super::settings::{Crash, ScaleSettings, WaitMethod, nanos};
use crate::rng::Rng;

/// The clients and their store.
pub(super) trait Clients: Sized {
    /// A command of a client to the store.
    type Command;
    /// A message of the store to a client.
    type Answer;
    /// A timer of a client.
    type Timer: Ord;

    /// All clients begin to want the lock.
    fn begin(&mut self, bench: &mut Bench<Self>);
    /// A command arrives at the store.
    fn arrives(&mut self, bench: &mut Bench<Self>, client: ClientNumber, command: Self::Command);
    /// An answer arrives at a client.
    fn answered(&mut self, bench: &mut Bench<Self>, client: ClientNumber, answer: Self::Answer);
    /// A client's timer went off.
    fn due(&mut self, bench: &mut Bench<Self>, client: ClientNumber, timer: Self::Timer);
    /// Ends the client if it waits. Returns whether it did.
    fn crash(&mut self, client: ClientNumber, crash: Crash) -> bool;
}

/// Durations of the settings in nanoseconds.
#[derive(Debug)]
pub(super) struct Costs {
    pub(super) section: u64,
    pub(super) think: u64,
    pub(super) latency: u64,
    pub(super) ttl: u64,
    pub(super) script: u64,
    pub(super) set: u64,
    pub(super) publish: u64,
    pub(super) push: u64,
    pub(super) pause: u64,
    pub(super) safety: u64,
}

/// An experiment in progress.
pub(super) struct Bench<C: Clients> {
    pub(super) costs: Costs,
    pub(super) event_queue: EventQueue<C::Command, C::Answer, C::Timer>,
    pub(super) server: SimulatedServer,
    pub(super) rng: Rng,
    pub(super) meter: Meter,
    pub(super) clients: u32,
    /// Whether a client got the lock, and the measurement begins.
    begins: bool,
}

/// The start of virtual time, in nanoseconds: so late that clients can have waited for long.
pub(super) const EPOCH: u64 = 1_000_000_000_000_000;

/// The limit of virtual time: only an experiment that stalls takes so long.
const LIMIT: u64 = 4 * 3_600 * 1_000_000_000;

impl<C: Clients> Bench<C> {
    fn new(settings: &ScaleSettings, warm_up: u64) -> Self {
        Self {
            costs: Costs {
                section: nanos(settings.section),
                think: nanos(settings.think),
                latency: nanos(settings.latency),
                ttl: nanos(settings.ttl),
                script: nanos(settings.script),
                set: nanos(settings.set),
                publish: nanos(settings.publish),
                push: nanos(settings.push),
                pause: nanos(settings.pause),
                safety: nanos(settings.safety),
            },
            event_queue: EventQueue::starting_at(EPOCH),
            server: SimulatedServer::default(),
            rng: Rng::new(settings.seed),
            meter: Meter::new(settings.clients, warm_up),
            clients: settings.clients,
            begins: false,
        }
    }

    pub(super) const fn now(&self) -> u64 {
        self.event_queue.now()
    }

    /// A client sends a command.
    pub(super) fn send(&mut self, client: ClientNumber, command: C::Command) {
        let at = self.now() + self.costs.latency;
        self.event_queue.send(at, client, command);
    }

    /// The store replies, or notifies, at `done`.
    pub(super) fn answer(&mut self, done: u64, client: ClientNumber, answer: C::Answer) {
        self.event_queue
            .answer(done + self.costs.latency, client, answer);
    }

    /// Sets a timer of a client, after `pause`.
    pub(super) fn plan(&mut self, pause: u64, client: ClientNumber, timer: C::Timer) {
        self.event_queue.plan(self.now() + pause, client, timer);
    }

    /// A client learns that it holds the lock until `until`. At `finish` it is done with its critical section.
    pub(super) fn knows(&mut self, client: ClientNumber, until: u64, finish: C::Timer) {
        self.begins |= self.meter.knows(client, self.now(), until);
        self.plan(self.costs.section, client, finish);
    }

    /// A client has released the lock; at `begin` it wants it again.
    pub(super) fn again(&mut self, client: ClientNumber, begin: C::Timer) {
        let pause = self.rng.about(self.costs.think);
        self.plan(pause, client, begin);
    }
}

/// Runs the experiment until enough hand-overs were measured.
pub(super) fn run<C: Clients>(
    clients: &mut C,
    settings: &ScaleSettings,
    way: WaitMethod,
) -> Figures {
    let turns = settings.turns(way);
    let mut bench = Bench::new(settings, (turns / 10).clamp(2, 200));
    clients.begin(&mut bench);
    while bench.meter.hand_overs() < turns && bench.now() < EPOCH + LIMIT {
        let Some((client, event)) = bench.event_queue.next() else {
            break;
        };
        match event {
            ScheduledEvent::Arrives(command) => clients.arrives(&mut bench, client, command),
            ScheduledEvent::Answered(answer) => clients.answered(&mut bench, client, answer),
            ScheduledEvent::Due(timer) => clients.due(&mut bench, client, timer),
        }
        if std::mem::take(&mut bench.begins) {
            bench.server.measure_from(bench.now());
            crash(clients, &mut bench, settings);
        }
    }
    let now = bench.now();
    let measured = bench.server.measured(now);
    bench.meter.figures(way.name(), now, measured)
}

/// Ends one waiting client in a hundred.
fn crash<C: Clients>(clients: &mut C, bench: &mut Bench<C>, settings: &ScaleSettings) {
    let Some(how) = settings.crash else { return };
    let mut left = settings.clients.div_ceil(100);
    // Some are not waiting, or ended before: there are enough others.
    for _ in 0..settings.clients.saturating_mul(10) {
        if left == 0 {
            return;
        }
        let chosen = bench.rng.below(u64::from(settings.clients));
        let client = ClientNumber::try_from(chosen).unwrap_or_default();
        if clients.crash(client, how) {
            bench.meter.ends(client);
            left -= 1;
        }
    }
}
