//! What may happen next. Must never leave out what a client that is slow, or does nothing, could do.

use super::given::Rules;
use super::setup::Fault;
use super::state::{Phase, Request, State};
use super::time::{AHEAD_US, NOW};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request that is carried out and answered at once, unless the answer is lost.
    Ask {
        client: u8,
        request: Request,
        lost: bool,
    },
    /// A request that is under way for a while.
    Send { client: u8, request: Request },
    /// It is carried out; or once, and will be again.
    Arrive { at: usize, again: bool },
    /// It never is.
    Drop { at: usize },
    /// A client ends its call without a word.
    Crash { client: u8 },
    /// Someone invalidates the entry.
    Invalidate { remove: bool },
    /// The store loses the control.
    LoseControl,
    /// The store loses the value.
    LoseValue,
    /// The wall clock is set back.
    SetBack,
    /// Time passes.
    Tick,
}

impl Rules {
    /// Everything that may happen in this state.
    pub(super) fn possible(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        into.push(Action::Tick);
        for client in 0..self.setup.clients {
            self.of_client(state, client, into);
        }
        for (at, message) in state.flight.iter().enumerate() {
            into.push(Action::Arrive { at, again: false });
            into.push(Action::Drop { at });
            if !message.twice && may(Fault::Twice) {
                into.push(Action::Arrive { at, again: true });
            }
        }
        if may(Fault::Invalidate) {
            into.push(Action::Invalidate { remove: false });
            into.push(Action::Invalidate { remove: true });
        }
        let issued = state.books.issued;
        if may(Fault::ClockBack) && (1..AHEAD_US).contains(&issued) {
            into.push(Action::SetBack);
        }
        // K2 excepts a loss before the clock has passed the last number, but by a step back of the clock.
        let passed = !(NOW.wall_us..AHEAD_US).contains(&issued);
        if may(Fault::LostControl) && passed && state.entry.control.is_some() {
            into.push(Action::LoseControl);
        }
        if may(Fault::LostValue) && state.entry.value.is_some() {
            into.push(Action::LoseValue);
        }
    }

    fn of_client(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        let phase = state.client(client).phase;
        let stored = state.entry.value.as_ref();
        let seen = stored.map(|(value, _)| value.header.version.get());
        let mut requests = match phase {
            Phase::Idle => vec![Request::Begin(None)],
            Phase::Asking(seen) => vec![Request::Begin(seen)],
            Phase::Loading(load) => vec![Request::Renew, Request::Commit(load)],
        };
        if phase == Phase::Idle && may(Fault::Refresh) && seen.is_some() {
            requests.push(Request::Begin(seen));
        }
        if matches!(phase, Phase::Loading(_)) && may(Fault::Fail) {
            requests.extend([Request::Fail, Request::GiveUp]);
        }
        for request in requests {
            into.push(Action::Ask {
                client,
                request,
                lost: false,
            });
            if may(Fault::LostReply) {
                into.push(Action::Ask {
                    client,
                    request,
                    lost: true,
                });
            }
            if may(Fault::LateRequest) {
                into.push(Action::Send { client, request });
            }
        }
        if may(Fault::Crash) && phase != Phase::Idle {
            into.push(Action::Crash { client });
        }
    }
}
