//! What a client makes of what it hears: the essence of how the library asks, claims, renews, gives up and settles. Must never
//! look into the store: a client knows what it was told, and its own clock.

use super::setup::Situation;
use super::state::{AcquisitionId, BusyReply, Phase, ReplyKind, RequestKind, Span};
use super::turn::StepContext;

impl StepContext<'_> {
    /// A client is answered. Its request had taken `lag` when it was carried out, `age` ago.
    pub(super) fn answered(
        &mut self,
        to: AcquisitionId,
        verb: RequestKind,
        got: ReplyKind,
        (lag, age): (u8, u8),
    ) -> Option<()> {
        if !self.state.is_current(to) {
            return self.unwanted(to, got);
        }
        // The deadline counts from before the request was sent.
        let left = self.rules.setup.ttl.saturating_sub(lag + age);
        let phase = self.state.client(to.client).phase;
        self.state.client_mut(to.client).phase = match (phase, got) {
            (Phase::Asking(_), ReplyKind::Held(_)) if left == 0 => {
                self.rules.reached(Situation::ReplyTooLate);
                phase
            }
            (Phase::Asking(_), ReplyKind::Held(fences)) => Phase::Holding { left, fences },
            (Phase::Asking(_), ReplyKind::Busy)
                if matches!(verb, RequestKind::Wait | RequestKind::WaitMany) =>
            {
                let limit = self.rules.window;
                Phase::Asking(Some(BusyReply {
                    lag: lag.min(limit),
                    age: age.min(limit),
                }))
            }
            // A request of it that is still under way has to be undone.
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
            (Phase::Leaving, ReplyKind::Released | ReplyKind::NotHeld)
                if matches!(verb, RequestKind::Release | RequestKind::Keep) =>
            {
                Phase::Idle
            }
            _ => phase,
        };
        self.rest(to);
        Some(())
    }

    /// A client hears that the store gave it the lock, `age` ago. It takes it without asking if it can tell a moment before
    /// which that cannot have been: the last answer told the store's time, and the wake tells it again.
    pub(super) fn woken(&mut self, to: AcquisitionId, fences: Span, age: u8) -> Option<()> {
        if age > 0 {
            self.rules.reached(Situation::WakeLate);
        }
        if !self.state.is_current(to) || self.state.client(to.client).phase == Phase::Leaving {
            self.rules.reached(Situation::WakeUnwanted);
            return self.unwanted(to, ReplyKind::Held(fences));
        }
        if let Phase::Asking(Some(told)) = self.state.client(to.client).phase {
            let window = self.rules.window;
            let left = window.saturating_sub(told.lag + age);
            if age <= told.age && left * 2 > window {
                self.rules.reached(Situation::HeldByWake);
                self.state.client_mut(to.client).phase = Phase::Holding { left, fences };
                self.both_believe();
            }
        }
        Some(())
    }

    /// What nobody wants any more is given back, unless its process is gone. Not if a rule was broken, which may be that it
    /// is given again.
    fn unwanted(&mut self, to: AcquisitionId, got: ReplyKind) -> Option<()> {
        let is_there = self.state.client(to.client).phase != Phase::Crashed;
        if matches!(got, ReplyKind::Held(_)) && is_there && self.state.broken == 0 {
            self.apply(to, RequestKind::Release, 0)?;
        }
        Some(())
    }

    /// Forgets what has no meaning any more, so that equal situations are equal states.
    fn rest(&mut self, to: AcquisitionId) {
        let client = self.state.client_mut(to.client);
        if client.phase == Phase::Idle {
            (client.nth, client.robbed) = (0, false);
        }
        self.both_believe();
    }

    pub(super) fn both_believe(&mut self) {
        let believes = |phase: Phase| matches!(phase, Phase::Holding { .. });
        if self
            .state
            .clients
            .iter()
            .filter(|client| believes(client.phase))
            .count()
            > 1
        {
            self.rules.reached(Situation::RobbedBelieves);
        }
    }
}
