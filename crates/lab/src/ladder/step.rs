//! The effects of each action in a rung's model. The program decides the client's next action, and the model server its reply.

use super::model::{Ladder, LadderAction};
use super::offence::JudgedStep;
use super::program::{AT_REST, Intent, Memory, Program};
use super::property::LadderProperty;
use super::redis::{Key, RedisCommand, Reply, Tick};
use super::rungs::{Comeback, RungBounds};
use super::state::{Flight, LadderClient, LadderState};
use super::trace::{LadderEvent, LadderMessage, carried_out};

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
    /// The result of an action; `None` if it is not possible.
    pub fn step(&self, before: &LadderState, action: LadderAction) -> Option<LadderStep> {
        let mut state = *before;
        let (event, note) = match action {
            LadderAction::Tick => {
                state.time += 1;
                self.expire(&mut state);
                (LadderEvent::Tick, "")
            }
            LadderAction::Ask(client) => self.ask(&mut state, client, false)?,
            LadderAction::AskInVain(client) => self.ask(&mut state, client, true)?,
            LadderAction::Send(client) => (self.send(&mut state, client)?, ""),
            LadderAction::Arrive(client) => self.arrive(&mut state, client)?,
            LadderAction::ArriveUnheard(client) => (self.arrive_unheard(&mut state, client)?, ""),
            LadderAction::Hear(client) => self.hear(&mut state, client)?,
            LadderAction::GiveUp(client) => (self.give_up(&mut state, client)?, ""),
            LadderAction::ArriveLate(client) => (self.arrive_late(&mut state, client)?, ""),
            LadderAction::Do(client) => self.act(&mut state, client)?,
            LadderAction::Crash(client) => (crash(&mut state, client), ""),
            LadderAction::Restart(server) => (self.restart(&mut state, server), ""),
            LadderAction::Rejoin(server) => (self.rejoin(&mut state, server), ""),
            LadderAction::Jump(server) => {
                let by = self.rung.ttl;
                state.jumped[server as usize] += by;
                self.expire(&mut state);
                state.spent.jumps += 1;
                (LadderEvent::ClockJumps { server, by }, "")
            }
        };
        self.remember(&event, &mut state);
        let step = JudgedStep {
            rung: self.rung,
            before,
            event: &event,
            after: &state,
        };
        let broken = self
            .properties
            .iter()
            .filter(|it| step.offence(**it).is_some());
        state.wrong = broken.fold(0, |wrong, property| wrong | property.bit());
        Some(LadderStep { state, event, note })
    }

    fn expire(&self, state: &mut LadderState) {
        for server in 0..self.rung.servers {
            let now = state.server_clock(server);
            state.servers[server as usize].expire(now);
        }
    }

    fn restart(&self, state: &mut LadderState, server: u8) -> LadderEvent {
        let (comes_back, ttl) = (self.rung.comes_back, self.rung.ttl);
        let first = comes_back.at_first(ttl, self.highest_counter(state, server));
        state.servers[server as usize].restart_empty();
        if comes_back == Comeback::LearnsLast {
            state.away_until[server as usize] = Some(state.time + ttl);
        }
        state.spent.restarts += 1;
        execute(state, server, &first);
        LadderEvent::Restarts { server, first }
    }

    fn rejoin(&self, state: &mut LadderState, server: u8) -> LadderEvent {
        let highest = self.highest_counter(state, server);
        let last = self.rung.comes_back.at_last(highest);
        state.away_until[server as usize] = None;
        execute(state, server, &last);
        LadderEvent::Rejoins { server, last }
    }

    /// The highest counter of the other servers.
    fn highest_counter(&self, state: &LadderState, server: u8) -> i16 {
        let others = (0..self.rung.lock_servers()).filter(|&other| other != server);
        let counters = others.map(|other| state.servers[other as usize].number(Key::Fence));
        counters.max().unwrap_or_default()
    }

    fn ask(
        &self,
        state: &mut LadderState,
        client: u8,
        lost: bool,
    ) -> Option<(LadderEvent, &'static str)> {
        let flight = self.next_command(state, client)?;
        let reply = self.carry_out(state, client, flight);
        let note = if lost {
            state.spent.losses += 1;
            self.unanswered(state, client, flight)
        } else {
            self.answered(state, client, flight, reply)
        };
        let event = LadderEvent::Message(LadderMessage {
            is_lost: lost,
            ..message(client, flight, Some(reply))
        });
        Some((event, note))
    }

    fn send(&self, state: &mut LadderState, client: u8) -> Option<LadderEvent> {
        let flight = self.next_command(state, client)?;
        state.clients[client as usize].flight = Some(flight);
        state.spent.delays += u8::from(self.bounds.delays < RungBounds::ANY);
        Some(LadderEvent::Message(message(client, flight, None)))
    }

    fn arrive(&self, state: &mut LadderState, client: u8) -> Option<(LadderEvent, &'static str)> {
        let flight = state.clients[client as usize].flight.take()?;
        let reply = self.carry_out(state, client, flight);
        let note = self.answered(state, client, flight, reply);
        Some((arrives(client, flight, reply, false), note))
    }

    fn arrive_unheard(&self, state: &mut LadderState, client: u8) -> Option<LadderEvent> {
        let mut flight = state.clients[client as usize].flight?;
        let reply = self.carry_out(state, client, flight);
        flight.reply = Some(reply);
        state.clients[client as usize].flight = Some(flight);
        Some(arrives(client, flight, reply, true))
    }

    fn hear(&self, state: &mut LadderState, client: u8) -> Option<(LadderEvent, &'static str)> {
        let flight = state.clients[client as usize].flight.take()?;
        let note = self.answered(state, client, flight, flight.reply?);
        let what = "hears its answer";
        Some((LadderEvent::Does { client, what }, note))
    }

    fn arrive_late(&self, state: &mut LadderState, client: u8) -> Option<LadderEvent> {
        let flight = state.clients[client as usize].late.take()?;
        let reply = self.carry_out(state, client, flight);
        Some(arrives(client, flight, reply, true))
    }

    fn give_up(&self, state: &mut LadderState, client: u8) -> Option<LadderEvent> {
        let it = &mut state.clients[client as usize];
        let flight = it.flight.take()?;
        it.late = may_arrive(flight).or(it.late);
        self.unanswered(state, client, flight);
        let what = "gives up waiting";
        Some(LadderEvent::Does { client, what })
    }

    fn act(&self, state: &mut LadderState, client: u8) -> Option<(LadderEvent, &'static str)> {
        let clock = state.clock(self.rung, client);
        let it = &mut state.clients[client as usize];
        let Intent::Do(what) = self.rung.program.intent(&it.memory, clock) else {
            return None;
        };
        let note = self.rung.program.done(&mut it.memory, clock);
        self.begin_again(it);
        Some((LadderEvent::Does { client, what }, note))
    }

    /// The command that a client sends now.
    fn next_command(&self, state: &mut LadderState, client: u8) -> Option<Flight> {
        let it = &mut state.clients[client as usize];
        if it.memory.at == 0 {
            if self.counts_acquisitions() {
                it.older = state.turns;
            }
            // It stays 0 if the property is not checked.
            it.older_fence = state.highest_fence;
        }
        let it = *it;
        let sent = state.clock(self.rung, client);
        let Intent::Ask(server, command) = self.rung.program.intent(&it.memory, sent) else {
            return None;
        };
        Some(Flight {
            server,
            command,
            sent,
            turn: it.turn,
            older: it.older,
            reply: None,
        })
    }

    fn carry_out(&self, state: &mut LadderState, client: u8, flight: Flight) -> Reply {
        let now = state.server_clock(flight.server);
        let reply = state.servers[flight.server as usize].apply(now, flight.command);
        if self.asks(LadderProperty::StaleWrite) {
            if takes(flight.command, reply) && !self.counts_acquisitions() {
                let it = &mut state.clients[client as usize];
                it.older = state.turns;
                state.turns += 1;
                it.turn = state.turns;
            }
            if writes(flight.command, reply) {
                state.written = flight.turn;
                state.older = state.older.max(flight.older);
            }
        }
        reply
    }

    /// The owner of the lock, while it exists.
    fn remember(&self, event: &LadderEvent, state: &mut LadderState) {
        if !self.asks(LadderProperty::Recovery) {
            return;
        }
        if let Some((client, _, command, reply)) = carried_out(event)
            && takes(command, reply)
        {
            state.taken = Some((client, state.time));
        }
        if state.servers[0].get(Key::Lock).is_none() {
            state.taken = None;
        }
    }

    /// On several servers a hold begins when its client has counted the votes, and not with the command of one server.
    fn counts_acquisitions(&self) -> bool {
        self.rung.lock_servers() > 1 && self.asks(LadderProperty::StaleWrite)
    }

    fn asks(&self, property: LadderProperty) -> bool {
        self.properties.contains(&property)
    }

    fn answered(
        &self,
        state: &mut LadderState,
        client: u8,
        flight: Flight,
        reply: Reply,
    ) -> &'static str {
        self.conclude(state, client, |program, memory, clock| {
            program.answered(memory, flight.sent, clock, reply)
        })
    }

    fn unanswered(&self, state: &mut LadderState, client: u8, flight: Flight) -> &'static str {
        self.conclude(state, client, |program, memory, clock| {
            program.unanswered(memory, flight.sent, clock);
            ""
        })
    }

    /// A client has ended a request: its program draws a conclusion, with the client's clock.
    fn conclude(
        &self,
        state: &mut LadderState,
        client: u8,
        by: impl FnOnce(&dyn Program, &mut Memory, Tick) -> &'static str,
    ) -> &'static str {
        let clock = state.clock(self.rung, client);
        let memory = &mut state.clients[client as usize].memory;
        let held = memory.holds_until.is_some();
        let note = by(self.rung.program, memory, clock);
        self.count_acquisition(state, client, held);
        self.begin_again(&mut state.clients[client as usize]);
        note
    }

    /// Numbers a hold that has just begun, if the client did not hold the lock before.
    fn count_acquisition(&self, state: &mut LadderState, client: u8, held: bool) {
        let it = &mut state.clients[client as usize];
        if held || it.memory.holds_until.is_none() {
            return;
        }
        if self.counts_acquisitions() {
            state.turns += 1;
            it.turn = state.turns;
        }
        if self.asks(LadderProperty::FenceOrder) {
            let fence = self.rung.program.fence(&it.memory).unwrap_or_default();
            state.highest_fence = state.highest_fence.max(fence);
        }
    }

    /// A client at rest begins its next acquisition.
    fn begin_again(&self, it: &mut LadderClient) {
        let nth = it.memory.nth + 1;
        if it.memory.at == AT_REST && nth < self.bounds.rounds {
            it.memory = Memory::new(it.memory.client, nth);
        }
    }
}

fn execute(state: &mut LadderState, server: u8, commands: &[RedisCommand]) {
    let now = state.server_clock(server);
    for &command in commands {
        state.servers[server as usize].apply(now, command);
    }
}

fn crash(state: &mut LadderState, client: u8) -> LadderEvent {
    let it = &mut state.clients[client as usize];
    it.crashed = Some(state.time);
    it.memory = Memory::new(client, it.memory.nth);
    // Of two commands in flight, the older one is lost with it.
    it.late = it.flight.take().and_then(may_arrive).or(it.late);
    state.spent.crashes += 1;
    LadderEvent::Crashes { client }
}

/// Abandons a command, unless it is executed already.
fn may_arrive(flight: Flight) -> Option<Flight> {
    flight.reply.is_none().then_some(flight)
}

/// A command that is not delayed.
fn message(client: u8, flight: Flight, reply: Option<Reply>) -> LadderMessage {
    LadderMessage {
        client,
        server: flight.server,
        command: flight.command,
        reply,
        is_late: false,
        is_lost: false,
    }
}

fn arrives(client: u8, flight: Flight, reply: Reply, is_lost: bool) -> LadderEvent {
    LadderEvent::Message(LadderMessage {
        is_late: true,
        is_lost,
        ..message(client, flight, Some(reply))
    })
}

/// Whether the lock was taken, or its deadline rewritten.
fn takes(command: RedisCommand, reply: Reply) -> bool {
    matches!(
        (command, reply),
        (RedisCommand::SetNx(Key::Lock, _), Reply::Int(1))
            | (RedisCommand::SetNxPx(..), Reply::Ok)
            | (RedisCommand::SetNxAndExpire(..), Reply::Both(1, _))
            | (RedisCommand::TakeWithFence(..), Reply::Int(_))
            | (RedisCommand::GetSet(Key::Lock, _), _)
    )
}

/// Whether the data was written.
fn writes(command: RedisCommand, reply: Reply) -> bool {
    matches!(
        (command, reply),
        (
            RedisCommand::Set(Key::Data, _) | RedisCommand::WriteWithFence(..),
            Reply::Ok
        )
    )
}
