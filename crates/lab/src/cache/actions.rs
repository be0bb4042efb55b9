//! The possible next actions of the cache model. Slow and idle clients are covered: any client may do nothing.

use super::model::CacheModel;
use super::setup::CacheFault;
use super::state::{CachePhase, CacheState, Request};
use super::time::AHEAD_US;
use crate::frame::NOW;

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheAction {
    /// A request that is executed and answered at once, unless the reply is lost.
    Ask {
        client: u8,
        request: Request,
        lost: bool,
    },
    /// A request that stays in the network for a while.
    Send { client: u8, request: Request },
    /// A request in flight is executed; with `again`, it will be executed once more.
    Arrive { at: usize, again: bool },
    /// A request in flight is lost.
    Drop { at: usize },
    /// A client crashes or stops waiting.
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

impl CacheModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &CacheState, into: &mut Vec<CacheAction>) {
        let may = |fault| self.setup.may(fault);
        into.push(CacheAction::Tick);
        for client in 0..self.setup.clients {
            self.of_client(state, client, into);
        }
        for (at, message) in state.flight.iter().enumerate() {
            into.push(CacheAction::Arrive { at, again: false });
            into.push(CacheAction::Drop { at });
            if !message.twice && may(CacheFault::Twice) {
                into.push(CacheAction::Arrive { at, again: true });
            }
        }
        if may(CacheFault::Invalidate) {
            into.push(CacheAction::Invalidate { remove: false });
            into.push(CacheAction::Invalidate { remove: true });
        }
        let issued = state.books.issued;
        if may(CacheFault::ClockBack) && (1..AHEAD_US).contains(&issued) {
            into.push(CacheAction::SetBack);
        }
        // K2 excludes a loss before the clock has passed the last number, except by a step back of the clock.
        let passed = !(NOW.wall_us..AHEAD_US).contains(&issued);
        if may(CacheFault::LostControl) && passed && state.entry.control.is_some() {
            into.push(CacheAction::LoseControl);
        }
        if may(CacheFault::LostValue) && state.entry.value.is_some() {
            into.push(CacheAction::LoseValue);
        }
    }

    fn of_client(&self, state: &CacheState, client: u8, into: &mut Vec<CacheAction>) {
        let may = |fault| self.setup.may(fault);
        let phase = state.client(client).phase;
        let stored = state.entry.value.as_ref();
        let seen = stored.map(|(value, _)| value.header.version.get());
        let mut requests = match phase {
            CachePhase::Idle => vec![Request::Begin(None)],
            CachePhase::Asking(seen) => vec![Request::Begin(seen)],
            CachePhase::Loading(load) => vec![Request::Renew, Request::Commit(load)],
        };
        if phase == CachePhase::Idle && may(CacheFault::Refresh) && seen.is_some() {
            requests.push(Request::Begin(seen));
        }
        if matches!(phase, CachePhase::Loading(_)) && may(CacheFault::Fail) {
            requests.extend([Request::Fail, Request::GiveUp]);
        }
        for request in requests {
            let ask = |lost| CacheAction::Ask {
                client,
                request,
                lost,
            };
            into.push(ask(false));
            if may(CacheFault::LostReply) {
                into.push(ask(true));
            }
            if may(CacheFault::LateRequest) {
                into.push(CacheAction::Send { client, request });
            }
        }
        if may(CacheFault::Crash) && phase != CachePhase::Idle {
            into.push(CacheAction::Crash { client });
        }
    }
}
