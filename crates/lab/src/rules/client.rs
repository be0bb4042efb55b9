//! The client of the lock model: the essence of how the library acquires, claims, renews, gives up and settles. It knows only
//! the messages that it received, and its own clock.

use super::model::LockTurn;
use super::setup::Situation;
use super::state::{BusyReply, Phase, ReplyKind, RequestKind, Span};
use crate::frame::CallId;

impl LockTurn<'_> {
    /// A client receives a reply. Its request was `lag` old when it was executed, `age` ago.
    pub(super) fn answered(
        &mut self,
        to: CallId,
        verb: RequestKind,
        got: ReplyKind,
        (lag, age): (u8, u8),
    ) -> Option<()> {
        if !self.state.is_current(to) {
            return self.unwanted(to, got);
        }
        // The deadline counts from before the request was sent.
        let left = self.model.setup.ttl.saturating_sub(lag + age);
        let phase = self.state.client(to.client).phase;
        self.state.client_mut(to.client).phase = match (phase, got) {
            (Phase::Asking(_), ReplyKind::Held(_)) if left == 0 => {
                self.reached(Situation::ReplyTooLate);
                phase
            }
            (Phase::Asking(_), ReplyKind::Held(fences)) => Phase::Holding { left, fences },
            (Phase::Asking(_), ReplyKind::Busy)
                if matches!(verb, RequestKind::Wait | RequestKind::WaitMany) =>
            {
                let limit = self.model.subject.window;
                Phase::Asking(Some(BusyReply {
                    lag: lag.min(limit),
                    age: age.min(limit),
                }))
            }
            // A request that is still in flight must be undone.
            (Phase::Asking(_), ReplyKind::Busy)
                if self.state.flight.iter().any(|message| message.id() == to) =>
            {
                Phase::Leaving
            }
            (Phase::Asking(_), ReplyKind::Busy) => Phase::Idle,
            (
                Phase::Holding {
                    left: before,
                    fences,
                },
                ReplyKind::Held(_),
            ) => Phase::Holding {
                left: before.max(left),
                fences,
            },
            (Phase::Holding { .. }, ReplyKind::NotHeld) => Phase::Leaving,
            (Phase::Leaving, ReplyKind::Held(_)) => return self.unwanted(to, got),
            (Phase::Leaving, ReplyKind::Released | ReplyKind::NotHeld) if verb.is_release() => {
                Phase::Idle
            }
            _ => phase,
        };
        self.rest(to);
        Some(())
    }

    /// A client receives a wake: the store granted it the lock `age` ago. It uses the lock without asking if it knows a time
    /// before which the grant cannot have been made: the last reply has the store's time, and the wake has it again.
    pub(super) fn woken(&mut self, to: CallId, fences: Span, age: u8) -> Option<()> {
        if age > 0 {
            self.reached(Situation::WakeLate);
        }
        if !self.state.is_current(to) || self.state.client(to.client).phase == Phase::Leaving {
            self.reached(Situation::WakeUnwanted);
            return self.unwanted(to, ReplyKind::Held(fences));
        }
        if let Phase::Asking(Some(told)) = self.state.client(to.client).phase {
            let window = self.model.subject.window;
            let left = window.saturating_sub(told.lag + age);
            if age <= told.age && left * 2 > window {
                self.reached(Situation::HeldByWake);
                self.state.client_mut(to.client).phase = Phase::Holding { left, fences };
                self.both_believe();
            }
        }
        Some(())
    }

    /// Releases a lock that no client uses, unless its process is gone. Not after a violated rule, since a release could be
    /// repeated without end.
    fn unwanted(&mut self, to: CallId, got: ReplyKind) -> Option<()> {
        let is_there = self.state.client(to.client).phase != Phase::Crashed;
        if matches!(got, ReplyKind::Held(_)) && is_there && self.state.broken == 0 {
            self.apply(to, RequestKind::Release, 0)?;
        }
        Some(())
    }

    /// Clears data without a meaning, so that equal situations are equal states.
    fn rest(&mut self, to: CallId) {
        let client = self.state.client_mut(to.client);
        if client.phase == Phase::Idle {
            (client.nth, client.robbed) = (0, false);
        }
        self.both_believe();
    }

    pub(super) fn both_believe(&mut self) {
        if self.state.believers().count() > 1 {
            self.reached(Situation::RobbedBelieves);
        }
    }
}
