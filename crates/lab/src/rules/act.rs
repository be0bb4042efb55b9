//! What may happen next. Must never leave out what a client that is slow, or does nothing, could do.

use leasehold_core::Counter;

use super::given::LockModel;
use super::setup::Fault;
use super::state::{Message, Phase, RequestKind, State};
use super::time::NOW;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A request that is carried out and answered at once, unless the answer is lost.
    Ask {
        client: u8,
        verb: RequestKind,
        lost: bool,
    },
    /// A request that is under way for a while.
    Send { client: u8, verb: RequestKind },
    /// It is carried out; or once, and will be again.
    Arrive { at: usize, again: bool },
    /// An answer or a wake reaches its client.
    Hear { at: usize },
    /// It never does.
    Lose { at: usize },
    /// The connection of a client is cut.
    Cut { client: u8 },
    /// It has another one.
    Connect { client: u8 },
    /// A client stops waiting.
    GiveUp { client: u8 },
    /// A client ends without a word.
    Crash { client: u8 },
    /// Another one begins in its place.
    Restart { client: u8 },
    /// The operator looks, and notes the fence of the holder.
    Look,
    /// And breaks the lock by it.
    Break,
    /// A program of another kind takes the free lock.
    ForeignTakes { forever: bool },
    /// And gives it back.
    ForeignEnds,
    /// A client hands the lock on inside its process, with its next fence.
    HandOn { client: u8 },
    /// The store loses the counter of fences.
    LoseCounter,
    /// The store loses everything.
    Flush,
    /// The replica stops following.
    Part,
    /// It takes the place of the store.
    FailOver,
    /// Time passes.
    Tick,
}

impl LockModel {
    /// Everything that may happen in this state.
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
            // One that may have been given the lock asks by extending, which works on a full server too.
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
            into.push(Action::Ask {
                client,
                verb,
                lost: false,
            });
            if may(Fault::LostReply) {
                into.push(Action::Ask {
                    client,
                    verb,
                    lost: true,
                });
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
                // One that the store knows to be gone is another client than the next.
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
        let held = lock.is_some_and(|lock| !lock.holders.is_empty());
        let foreign = lock.is_some_and(|lock| lock.foreign.is_some());
        if may(Fault::Break) {
            if lock.is_some() {
                into.push(Action::Look);
            }
            if state.seen.is_some() {
                into.push(Action::Break);
            }
        }
        if may(Fault::Foreign) {
            if foreign {
                into.push(Action::ForeignEnds);
            } else if !held {
                into.push(Action::ForeignTakes { forever: false });
                into.push(Action::ForeignTakes { forever: true });
            }
        }
        // C2 excepts a loss before the clock has passed the last fence.
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
