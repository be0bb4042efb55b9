//! The model of a rung: every interleaving within its bounds. All behaviour of real clients, networks and servers is possible,
//! unless a bound excludes it. The program decides a client's next action, and the model server its reply.

use stateright::Model;

use super::judge::JudgedStep;
use super::program::{AT_REST, Answer, Intent, Memory};
use super::property::LadderProperty;
use super::redis::{Key, RedisCommand, Reply};
use super::rungs::{Comeback, Fault, Rung, RungBounds, TTL};
use super::state::{Flight, LadderClient, LadderState};
use super::trace::{LadderEvent, LadderMessage};

/// A rung, its bounds, and the properties to check.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// The rung.
    pub rung: &'static Rung,
    /// The bounds.
    pub bounds: RungBounds,
    /// The properties.
    pub properties: Vec<LadderProperty>,
}

/// The possible next actions; the numbers are clients, in the last two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LadderAction {
    /// Time passes.
    Tick,
    /// A client sends its next command, which is executed and answered at once.
    Ask(u8),
    /// A client sends its next command, which is executed at once, but the reply is lost.
    AskInVain(u8),
    /// A client sends its next command, which is delayed.
    Send(u8),
    /// A delayed command is executed and answered.
    Arrive(u8),
    /// A delayed command is executed, and the reply is delayed.
    ArriveUnheard(u8),
    /// A delayed reply reaches its client.
    Hear(u8),
    /// A client stops waiting for its reply.
    GiveUp(u8),
    /// An abandoned command is executed.
    ArriveLate(u8),
    /// A client takes a local step.
    Do(u8),
    /// A client crashes.
    Crash(u8),
    /// A server loses its data.
    Restart(u8),
    /// A server ends its quarantine.
    Rejoin(u8),
    /// A server's clock jumps ahead.
    Jump(u8),
}

impl Model for Ladder {
    type State = LadderState;
    type Action = LadderAction;

    fn init_states(&self) -> Vec<LadderState> {
        vec![LadderState::new()]
    }

    fn actions(&self, state: &LadderState, actions: &mut Vec<LadderAction>) {
        let bounds = &self.bounds;
        // Clients first: of two traces of equal length, the search finds the one in which clients act before time passes.
        let mut others_are_new = false;
        for client in 0..bounds.clients {
            let it = &state.clients[client as usize];
            let new = LadderClient {
                memory: Memory::new(client, 0),
                ..LadderClient::default()
            };
            let is_new = *it == new;
            // For equal clients, it does not matter which one begins.
            if !(is_new && others_are_new && self.rung.are_alike) {
                self.actions_of(state, client, actions);
            }
            others_are_new |= is_new;
        }
        for server in 0..self.rung.lock_servers() {
            if state.away_until[server as usize].is_some_and(|until| until <= state.time) {
                actions.push(LadderAction::Rejoin(server));
            }
            if self.may(state, Fault::Restart) {
                actions.push(LadderAction::Restart(server));
            }
            if self.may(state, Fault::Jump) {
                actions.push(LadderAction::Jump(server));
            }
        }
        if state.time < bounds.horizon {
            actions.push(LadderAction::Tick);
        }
    }

    fn next_state(&self, state: &LadderState, action: LadderAction) -> Option<LadderState> {
        self.step(state, action).map(|step| step.state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        let asked = self.properties.iter();
        let mut properties: Vec<_> = asked.map(|&property| always(property)).collect();
        if properties.len() > 1 {
            // The search ends once all properties are violated; a property that always holds makes it go to the end of the bounds.
            properties.push(stateright::Property::always("the end", |_, _| true));
        }
        properties
    }
}

/// A condition is a plain function to stateright, so each property has its own.
fn always(property: LadderProperty) -> stateright::Property<Ladder> {
    fn holds<const PROPERTY: u8>(_: &Ladder, state: &LadderState) -> bool {
        state.wrong & (1 << PROPERTY) == 0
    }
    const CONDITIONS: [fn(&Ladder, &LadderState) -> bool; 7] = [
        holds::<0>, holds::<1>, holds::<2>, holds::<3>, holds::<4>, holds::<5>, holds::<6>,
    ];
    stateright::Property::always(property.name(), CONDITIONS[property as usize])
}

/// The result of an action.
#[derive(Debug, Clone)]
pub struct LadderStep {
    /// The state after it.
    pub state: LadderState,
    /// The event.
    pub event: LadderEvent,
    /// The client's conclusion.
    pub note: &'static str,
}

impl Ladder {
    fn actions_of(&self, state: &LadderState, client: u8, actions: &mut Vec<LadderAction>) {
        let it = &state.clients[client as usize];
        if it.late.is_some() {
            actions.push(LadderAction::ArriveLate(client));
        }
        if it.crashed.is_some() {
            return;
        }
        if let Some(flight) = it.flight {
            if flight.reply.is_some() {
                actions.push(LadderAction::Hear(client));
            } else {
                actions.push(LadderAction::Arrive(client));
                actions.push(LadderAction::ArriveUnheard(client));
            }
            if self.bounds.may_give_up && (flight.reply.is_some() || it.late.is_none()) {
                actions.push(LadderAction::GiveUp(client));
            }
        } else {
            let clock = state.clock(self.rung, client);
            match self.rung.program.intent(&it.memory, clock) {
                Intent::Ask(..) => {
                    actions.push(LadderAction::Ask(client));
                    if self.may(state, Fault::Loss) {
                        actions.push(LadderAction::AskInVain(client));
                    }
                    if self.may(state, Fault::Delay) {
                        actions.push(LadderAction::Send(client));
                    }
                }
                Intent::Do(_) => actions.push(LadderAction::Do(client)),
                Intent::Rest => {}
            }
        }
        let has_something_to_lose = it.memory.at != 0 && it.memory.at != AT_REST;
        if self.may(state, Fault::Crash) && (has_something_to_lose || it.flight.is_some()) {
            actions.push(LadderAction::Crash(client));
        }
    }

    /// The result of an action; `None` if it is not possible.
    pub fn step(&self, before: &LadderState, action: LadderAction) -> Option<LadderStep> {
        let mut state = *before;
        let (event, note) = self.carry_out(&mut state, action)?;
        if self.asks(LadderProperty::Recovery) {
            remember_owner(&mut state, &event);
        }
        let mut step = LadderStep { state, event, note };
        let judged = self.judged(before, &step);
        let broken = self
            .properties
            .iter()
            .filter(|it| judged.offence(**it).is_some());
        step.state.wrong = broken.fold(0, |wrong, property| wrong | property.bit());
        Some(step)
    }

    /// A step, to be judged.
    pub(super) fn judged<'a>(
        &'a self,
        before: &'a LadderState,
        step: &'a LadderStep,
    ) -> JudgedStep<'a> {
        JudgedStep {
            rung: self.rung,
            before,
            event: &step.event,
            after: &step.state,
        }
    }

    fn may(&self, state: &LadderState, fault: Fault) -> bool {
        state.spent[fault as usize] < self.bounds.faults[fault as usize]
    }

    fn spend(&self, state: &mut LadderState, fault: Fault) {
        let is_limited = self.bounds.faults[fault as usize] < RungBounds::ANY;
        state.spent[fault as usize] += u8::from(is_limited);
    }

    fn carry_out(
        &self,
        state: &mut LadderState,
        action: LadderAction,
    ) -> Option<(LadderEvent, &'static str)> {
        let event = match action {
            LadderAction::Tick => {
                state.time += 1;
                self.expire(state);
                LadderEvent::Tick
            }
            LadderAction::Crash(client) => {
                let it = &mut state.clients[client as usize];
                it.crashed = Some(state.time);
                it.memory = Memory::new(client, it.memory.nth);
                // Of two commands in flight, the older one is lost with it.
                it.late = it.flight.take().and_then(may_arrive).or(it.late);
                self.spend(state, Fault::Crash);
                LadderEvent::Crashes { client }
            }
            LadderAction::Restart(server) => self.restart(state, server),
            LadderAction::Rejoin(server) => {
                let last = self
                    .rung
                    .comes_back
                    .at_last(self.highest_counter(state, server));
                state.away_until[server as usize] = None;
                execute(state, server, &last);
                LadderEvent::Rejoins { server, last }
            }
            LadderAction::Jump(server) => {
                state.jumped[server as usize] += TTL;
                self.expire(state);
                self.spend(state, Fault::Jump);
                LadderEvent::ClockJumps { server, by: TTL }
            }
            LadderAction::Ask(client)
            | LadderAction::AskInVain(client)
            | LadderAction::Send(client)
            | LadderAction::Do(client) => return self.client_acts(state, client, action),
            LadderAction::Arrive(client)
            | LadderAction::ArriveUnheard(client)
            | LadderAction::ArriveLate(client)
            | LadderAction::Hear(client)
            | LadderAction::GiveUp(client) => return self.network_acts(state, client, action),
        };
        Some((event, ""))
    }

    /// A client takes the next step of its program.
    fn client_acts(
        &self,
        state: &mut LadderState,
        client: u8,
        action: LadderAction,
    ) -> Option<(LadderEvent, &'static str)> {
        let clock = state.clock(self.rung, client);
        let it = &mut state.clients[client as usize];
        if it.memory.at == 0 {
            if self.counts_acquisitions() {
                it.older = state.turns;
            }
            // It stays 0 if the property is not checked.
            it.older_fence = state.highest_fence;
        }
        let (server, command) = match self.rung.program.intent(&it.memory, clock) {
            Intent::Ask(server, command) => (server, command),
            Intent::Do(what) => {
                let note = self.rung.program.done(&mut it.memory, clock);
                self.begin_again(it);
                return Some((LadderEvent::Does { client, what }, note));
            }
            Intent::Rest => return None,
        };
        let flight = Flight {
            server,
            command,
            sent: clock,
            turn: it.turn,
            older: it.older,
            reply: None,
        };
        if matches!(action, LadderAction::Send(_)) {
            it.flight = Some(flight);
            self.spend(state, Fault::Delay);
            return Some((message(client, flight, None, [false, false]), ""));
        }
        let is_lost = matches!(action, LadderAction::AskInVain(_));
        if is_lost {
            self.spend(state, Fault::Loss);
        }
        let reply = self.execute(state, client, flight);
        let note = self.conclude(state, client, flight, Some(reply).filter(|_| !is_lost));
        Some((message(client, flight, Some(reply), [false, is_lost]), note))
    }

    /// A delayed command or reply arrives, or its client gives it up.
    fn network_acts(
        &self,
        state: &mut LadderState,
        client: u8,
        action: LadderAction,
    ) -> Option<(LadderEvent, &'static str)> {
        let it = &mut state.clients[client as usize];
        let flight = match action {
            LadderAction::ArriveLate(_) => it.late.take()?,
            _ => it.flight.take()?,
        };
        Some(match action {
            LadderAction::Hear(_) => {
                let note = self.conclude(state, client, flight, Some(flight.reply?));
                let what = "hears its answer";
                (LadderEvent::Does { client, what }, note)
            }
            LadderAction::GiveUp(_) => {
                it.late = may_arrive(flight).or(it.late);
                self.conclude(state, client, flight, None);
                let what = "gives up waiting";
                (LadderEvent::Does { client, what }, "")
            }
            _ => {
                let reply = Some(self.execute(state, client, flight));
                let mut note = "";
                if matches!(action, LadderAction::Arrive(_)) {
                    note = self.conclude(state, client, flight, reply);
                } else if matches!(action, LadderAction::ArriveUnheard(_)) {
                    state.clients[client as usize].flight = Some(Flight { reply, ..flight });
                }
                let is_lost = !matches!(action, LadderAction::Arrive(_));
                (message(client, flight, reply, [true, is_lost]), note)
            }
        })
    }

    fn expire(&self, state: &mut LadderState) {
        for server in 0..self.rung.servers {
            let now = state.server_clock(server);
            state.servers[server as usize].expire(now);
        }
    }

    fn restart(&self, state: &mut LadderState, server: u8) -> LadderEvent {
        let comes_back = self.rung.comes_back;
        let first = comes_back.at_first(self.highest_counter(state, server));
        state.servers[server as usize].restart_empty();
        if comes_back == Comeback::LearnsLast {
            state.away_until[server as usize] = Some(state.time + TTL);
        }
        self.spend(state, Fault::Restart);
        execute(state, server, &first);
        LadderEvent::Restarts { server, first }
    }

    /// The highest counter of the other servers.
    fn highest_counter(&self, state: &LadderState, server: u8) -> i16 {
        let others = (0..self.rung.lock_servers()).filter(|&other| other != server);
        let counters = others.map(|other| state.servers[other as usize].number(Key::Fence));
        counters.max().unwrap_or_default()
    }

    /// A server executes the command of a client.
    fn execute(&self, state: &mut LadderState, client: u8, flight: Flight) -> Reply {
        let now = state.server_clock(flight.server);
        let reply = state.servers[flight.server as usize].apply(now, flight.command);
        if self.asks(LadderProperty::StaleWrite) {
            if flight.command.takes(reply) && !self.counts_acquisitions() {
                let it = &mut state.clients[client as usize];
                it.older = state.turns;
                state.turns += 1;
                it.turn = state.turns;
            }
            if flight.command.written(reply).is_some() {
                state.written = flight.turn;
                state.older = state.older.max(flight.older);
            }
        }
        reply
    }

    /// On several servers a hold begins when its client has counted the votes, and not with the command of one server.
    fn counts_acquisitions(&self) -> bool {
        self.rung.lock_servers() > 1 && self.asks(LadderProperty::StaleWrite)
    }

    fn asks(&self, property: LadderProperty) -> bool {
        self.properties.contains(&property)
    }

    /// A client has ended a request: its program draws a conclusion, with the client's clock. A hold that begins gets its number.
    fn conclude(
        &self,
        state: &mut LadderState,
        client: u8,
        flight: Flight,
        reply: Option<Reply>,
    ) -> &'static str {
        let answer = Answer {
            sent: flight.sent,
            clock: state.clock(self.rung, client),
            reply,
        };
        let it = &mut state.clients[client as usize];
        let held = it.memory.holds_until.is_some();
        let program = self.rung.program;
        let note = program.answered(&mut it.memory, answer);
        if !held && it.memory.holds_until.is_some() {
            if self.counts_acquisitions() {
                state.turns += 1;
                it.turn = state.turns;
            }
            if self.asks(LadderProperty::FenceOrder) {
                let fence = program.fence(&it.memory).unwrap_or_default();
                state.highest_fence = state.highest_fence.max(fence);
            }
        }
        self.begin_again(it);
        reply.map_or("", |_| note)
    }

    /// A client at rest begins its next acquisition.
    fn begin_again(&self, it: &mut LadderClient) {
        let nth = it.memory.nth + 1;
        if it.memory.at == AT_REST && nth < self.bounds.rounds {
            it.memory = Memory::new(it.memory.client, nth);
        }
    }
}

/// The owner of the lock, while it exists.
fn remember_owner(state: &mut LadderState, event: &LadderEvent) {
    if let Some((client, _, command, reply)) = event.carried_out()
        && command.takes(reply)
    {
        state.taken = Some((client, state.time));
    }
    if state.servers[0].get(Key::Lock).is_none() {
        state.taken = None;
    }
}

/// A server executes commands of its own.
fn execute(state: &mut LadderState, server: u8, commands: &[RedisCommand]) {
    let now = state.server_clock(server);
    for &command in commands {
        state.servers[server as usize].apply(now, command);
    }
}

/// Abandons a command, unless it is executed already.
fn may_arrive(flight: Flight) -> Option<Flight> {
    flight.reply.is_none().then_some(flight)
}

fn message(
    client: u8,
    flight: Flight,
    reply: Option<Reply>,
    [is_late, is_lost]: [bool; 2],
) -> LadderEvent {
    LadderEvent::Message(LadderMessage {
        client,
        server: flight.server,
        command: flight.command,
        reply,
        is_late,
        is_lost,
    })
}
