//! The model of a rung: every interleaving within its bounds. All behaviour of real clients, networks and servers is possible,
//! unless a bound excludes it.

use stateright::Model;

use super::program::{AT_REST, Intent, Memory};
use super::property::LadderProperty;
use super::rungs::{Rung, RungBounds};
use super::state::{LadderClient, LadderState};

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
        vec![LadderState::new(self.bounds.clients, self.rung.servers)]
    }

    fn actions(&self, state: &LadderState, actions: &mut Vec<LadderAction>) {
        let bounds = &self.bounds;
        // Clients first: of two traces of equal length, the search finds the one in which clients act before time passes.
        let mut others_are_new = false;
        for client in 0..bounds.clients {
            let it = &state.clients[client as usize];
            let is_new = *it == LadderClient::new(client);
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
            if state.spent.restarts < bounds.restarts {
                actions.push(LadderAction::Restart(server));
            }
            if state.spent.jumps < bounds.jumps {
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
    let condition: fn(&Ladder, &LadderState) -> bool = match property {
        LadderProperty::Exclusion => |_, state| state.wrong & LadderProperty::Exclusion.bit() == 0,
        LadderProperty::Recovery => |_, state| state.wrong & LadderProperty::Recovery.bit() == 0,
        LadderProperty::Ownership => |_, state| state.wrong & LadderProperty::Ownership.bit() == 0,
        LadderProperty::StaleWrite => {
            |_, state| state.wrong & LadderProperty::StaleWrite.bit() == 0
        }
        LadderProperty::FenceOrder => {
            |_, state| state.wrong & LadderProperty::FenceOrder.bit() == 0
        }
        LadderProperty::LostUpdate => {
            |_, state| state.wrong & LadderProperty::LostUpdate.bit() == 0
        }
        LadderProperty::Child => |_, state| state.wrong & LadderProperty::Child.bit() == 0,
    };
    stateright::Property::always(property.name(), condition)
}

impl LadderClient {
    fn new(client: u8) -> Self {
        Self {
            memory: Memory::new(client, 0),
            ..Self::default()
        }
    }
}

impl Ladder {
    fn actions_of(&self, state: &LadderState, client: u8, actions: &mut Vec<LadderAction>) {
        let bounds = &self.bounds;
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
            if bounds.may_give_up && (flight.reply.is_some() || it.late.is_none()) {
                actions.push(LadderAction::GiveUp(client));
            }
        } else {
            match self
                .rung
                .program
                .intent(&it.memory, state.clock(self.rung, client))
            {
                Intent::Ask(..) => {
                    actions.push(LadderAction::Ask(client));
                    if state.spent.losses < bounds.losses {
                        actions.push(LadderAction::AskInVain(client));
                    }
                    if state.spent.delays < bounds.delays {
                        actions.push(LadderAction::Send(client));
                    }
                }
                Intent::Do(_) => actions.push(LadderAction::Do(client)),
                Intent::Rest => {}
            }
        }
        let has_something_to_lose = it.memory.at != 0 && it.memory.at != AT_REST;
        if state.spent.crashes < bounds.crashes && (has_something_to_lose || it.flight.is_some()) {
            actions.push(LadderAction::Crash(client));
        }
    }
}
