//! The possible next actions of the lock model. Slow and idle clients are covered: any client may do nothing.

use leasehold_core::Counter;

use super::model::LockModel;
use super::setup::Fault;
use super::state::{Message, Phase, RequestKind, State};
use crate::frame::NOW;

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request that is executed and answered at once, unless the reply is lost.
    Ask {
        client: u8,
        verb: RequestKind,
        lost: bool,
    },
    /// A request that stays in the network for a while.
    Send { client: u8, verb: RequestKind },
    /// A request in flight is executed; with `again`, it will be executed once more.
    Arrive { at: usize, again: bool },
    /// A reply or a wake reaches its client.
    Hear { at: usize },
    /// A message in flight is lost.
    Lose { at: usize },
    /// The connection of a client is cut.
    Cut { client: u8 },
    /// A client with a cut connection reconnects.
    Connect { client: u8 },
    /// A client stops waiting.
    GiveUp { client: u8 },
    /// A client crashes.
    Crash { client: u8 },
    /// A new client begins in place of a crashed one.
    Restart { client: u8 },
    /// The operator inspects the lock, and notes the fence of the holder.
    Look,
    /// The operator breaks the lock by the noted fence.
    Break,
    /// A foreign program takes the free lock.
    ForeignTakes { forever: bool },
    /// The foreign program releases it.
    ForeignEnds,
    /// A client hands the lock on inside its process, with its next fence.
    HandOn { client: u8 },
    /// The store loses the counter of fences.
    LoseCounter,
    /// The store loses everything.
    Flush,
    /// The replica stops following.
    Part,
    /// The replica is promoted.
    FailOver,
    /// Time passes.
    Tick,
}

impl LockModel {
    /// All actions that are possible in this state.
    pub(super) fn possible(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        into.push(Action::Tick);
        for client in 0..self.setup.clients {
            self.of_client(state, client, into);
        }
        for (at, message) in state.flight.iter().enumerate() {
            match message {
                Message::Request { twice, .. } => {
                    into.push(Action::Arrive { at, again: false });
                    if !twice && may(Fault::Twice) {
                        into.push(Action::Arrive { at, again: true });
                    }
                }
                Message::Reply { .. } => {
                    into.push(Action::Hear { at });
                    into.push(Action::Lose { at });
                }
                Message::Wake { .. } => {
                    into.push(Action::Hear { at });
                    if may(Fault::LostWake) {
                        into.push(Action::Lose { at });
                    }
                }
            }
        }
        self.of_others(state, into);
    }

    fn of_client(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        let ask = if self.setup.waits {
            RequestKind::Wait
        } else {
            RequestKind::Try
        };
        let phase = state.client(client).phase;
        if state.client(client).away {
            return into.push(Action::Connect { client });
        }
        if may(Fault::Away) && matches!(phase, Phase::Asking(Some(_))) {
            into.push(Action::Cut { client });
        }
        let verbs: &[RequestKind] = match phase {
            // A waiter that may have been granted the lock claims it by extending, which works on a full server too.
            Phase::Asking(_) if may(Fault::Blocks) => &[
                RequestKind::Wait,
                RequestKind::WaitMany,
                RequestKind::Extend,
            ],
            Phase::Asking(_) if self.setup.waits => &[RequestKind::Wait, RequestKind::Extend],
            Phase::Idle if may(Fault::Blocks) => &[RequestKind::Wait, RequestKind::WaitMany],
            Phase::Idle | Phase::Asking(_) => &[ask],
            Phase::Holding { .. } if may(Fault::Keep) => {
                &[RequestKind::Extend, RequestKind::Release, RequestKind::Keep]
            }
            Phase::Holding { .. } => &[RequestKind::Extend, RequestKind::Release],
            Phase::Leaving => &[RequestKind::Release],
            Phase::Crashed => &[],
        };
        for &verb in verbs {
            let ask = |lost| Action::Ask { client, verb, lost };
            into.push(ask(false));
            if may(Fault::LostReply) {
                into.push(ask(true));
            }
            if may(Fault::LateRequest) {
                into.push(Action::Send { client, verb });
            }
        }
        if matches!(phase, Phase::Holding { fences, .. } if fences.first < fences.last) {
            into.push(Action::HandOn { client });
        }
        if may(Fault::Cancel) && matches!(phase, Phase::Asking(_)) {
            into.push(Action::GiveUp { client });
        }
        if may(Fault::Crash) {
            match phase {
                // A client that the store knows to be gone is not the same as its successor.
                Phase::Crashed
                    if !(may(Fault::SeenCrash)
                        && state.known().iter().any(|id| id.client == client)) =>
                {
                    into.push(Action::Restart { client });
                }
                Phase::Crashed | Phase::Idle => {}
                _ => into.push(Action::Crash { client }),
            }
        }
    }

    fn of_others(&self, state: &State, into: &mut Vec<Action>) {
        let may = |fault| self.setup.may(fault);
        let lock = state.lock();
        if may(Fault::Break) {
            if lock.is_some() {
                into.push(Action::Look);
            }
            if state.seen.is_some() {
                into.push(Action::Break);
            }
        }
        if may(Fault::Foreign) {
            if state.is_foreign() {
                into.push(Action::ForeignEnds);
            } else if !state.is_held() {
                into.push(Action::ForeignTakes { forever: false });
                into.push(Action::ForeignTakes { forever: true });
            }
        }
        // C2 excludes a loss before the clock has passed the last fence.
        let passed = state.issued < NOW.wall_us;
        if passed && may(Fault::LostCounter) && state.world.counter != Counter(None) {
            into.push(Action::LoseCounter);
        }
        if passed && may(Fault::Flush) && lock.is_some() {
            into.push(Action::Flush);
        }
        match &state.replica {
            None if may(Fault::Failover) => into.push(Action::Part),
            Some(replica) if passed || replica.counter == state.world.counter => {
                into.push(Action::FailOver);
            }
            _ => {}
        }
    }
}
