//! The replies to the users of a client, and checks that they are right.

use std::sync::Arc;

use leasehold_core::Mode;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError::{Closed, Empty};

use super::{Client, Fate, Stays};
use crate::error::{Error, LossCause};
use crate::lease::hold::Hold;
use crate::lease::tests::simulation::user::Stage;
use crate::lease::waiter::AcquireOutcome;

/// Receives the result of a release or an extension.
type Verdict = Receiver<Result<(), Error>>;

/// The next stage of a user and a line for the story, or the unchanged stage if no reply has come.
type Heard = Result<(Stage, String), Stage>;

impl Client {
    /// Takes the replies to the users. Returns each user that got one, with a line for the story.
    pub(crate) fn hear(&mut self, about: &impl Fn(&Hold) -> Fate) -> Vec<(usize, String)> {
        let mut heard = Vec::new();
        for at in 0..self.users.len() {
            let stage = std::mem::replace(&mut self.users[at].stage, Stage::Idle);
            let next = match stage {
                Stage::Asks {
                    id,
                    answer,
                    waits,
                    leaves,
                    mode,
                } => self.answered(at, (id, waits, leaves, mode), answer),
                Stage::Extends(hold, verdict) => self.extended(hold, verdict),
                Stage::Ends(hold, verdict) => self.ended(at, hold, verdict, about),
                Stage::Detaches(hold, keep, Some(mut verdict)) => match verdict.try_recv() {
                    Err(Empty) => Err(Stage::Detaches(hold, keep, Some(verdict))),
                    Ok(Ok(())) => {
                        self.detached.insert(hold.owner.clone());
                        Ok((Stage::Idle, "has detached".into()))
                    }
                    // The detach failed, so the user has given out no token. Its next move undoes the detach.
                    result => {
                        let said = format!("could not detach: {result:?}");
                        Ok((Stage::Detaches(hold, keep, None), said))
                    }
                },
                stage => Err(stage),
            };
            match next {
                Ok((stage, said)) => {
                    self.users[at].becomes(stage);
                    heard.push((at, said));
                }
                Err(stage) => self.users[at].stage = stage,
            }
        }
        heard
    }

    fn answered(
        &mut self,
        at: usize,
        (id, waits, leaves, mode): (u64, bool, bool, Mode),
        mut answer: Receiver<AcquireOutcome>,
    ) -> Heard {
        match answer.try_recv() {
            Ok(Ok(Some(hold))) => {
                let said = format!("has {} fence {}", hold.owner.id(), hold.fence);
                let is_later = |stay: &Arc<Hold>| hold.since > stay.since;
                let is_handed_on =
                    hold.fence != hold.grant || hold.stay.as_ref().is_some_and(is_later);
                if is_handed_on && hold.doubted().is_some() {
                    self.fault = Some(format!("L4: {said}, in doubt"));
                }
                if hold.mode != mode || hold.slot.is_some() != matches!(mode, Mode::Slot(_)) {
                    self.fault = Some(format!("C1: {said}, in another mode"));
                }
                self.check_order(at, id);
                Ok((Stage::Works(hold), said))
            }
            Ok(Ok(None)) => Ok((Stage::Idle, "finds it busy".into())),
            Ok(Err(error)) => Ok((Stage::Idle, format!("is refused: {error}"))),
            Err(Closed) => {
                self.fault = Some(format!("Q4: {id} is never answered"));
                Ok((Stage::Idle, "is never answered".into()))
            }
            Err(Empty) => Err(Stage::Asks {
                id,
                answer,
                waits,
                leaves,
                mode,
            }),
        }
    }

    fn extended(&mut self, hold: Arc<Hold>, mut verdict: Verdict) -> Heard {
        match verdict.try_recv() {
            Err(Empty) => Err(Stage::Extends(hold, verdict)),
            result => {
                if result.is_err() && hold.loss().is_none() {
                    let who = hold.owner.id();
                    self.fault = Some(format!("K: {who} renews without an answer"));
                }
                if let Ok(Ok(())) = &result
                    && let Err(fault) = self.leases.check_renewed(&hold)
                {
                    self.fault = Some(fault);
                }
                Ok((Stage::Works(hold), format!("was renewed: {result:?}")))
            }
        }
    }

    fn ended(
        &mut self,
        at: usize,
        hold: Arc<Hold>,
        mut verdict: Verdict,
        about: &impl Fn(&Hold) -> Fate,
    ) -> Heard {
        let who = hold.owner.id();
        let result = match verdict.try_recv() {
            Ok(result) => result,
            Err(Empty) => return Err(Stage::Ends(hold, verdict)),
            Err(Closed) => {
                self.fault = Some(format!("U1: {who} never has a verdict"));
                return Ok((Stage::Idle, "has no verdict".into()));
            }
        };
        let about = about(&hold);
        let is_early = hold.valid_until() > self.clock.now();
        match &result {
            Ok(()) => {
                let freed = about.was_freed || about.is_excused;
                if !freed && !self.machine.knows(&hold.owner) {
                    self.fault = Some(format!("U2: {who} was lost"));
                }
                if let Some(until) = self.users[at].keep.take() {
                    let (name, owner) = (hold.name.clone(), hold.owner.clone());
                    let stay = hold.stay.clone();
                    self.stays.push(Stays {
                        name,
                        owner,
                        until,
                        stay,
                    });
                }
            }
            Err(Error::Lost(lost))
                if matches!(lost.cause, LossCause::NotHeld(_))
                    && is_early
                    && !about.is_excused
                    && !about.was_set =>
            {
                self.fault = Some(format!("U2: {who} was not lost: {lost}"));
            }
            Err(_) => {}
        }
        Ok((Stage::Idle, format!("has released: {result:?}")))
    }

    /// Checks that no other user of this client has waited for this lock longer than the user that got it.
    fn check_order(&mut self, served: usize, id: u64) {
        let name = self.users[served].name.clone();
        for user in &self.users {
            if let Stage::Asks {
                id: other,
                answer,
                waits: true,
                ..
            } = &user.stage
                && user.name == name
                && *other < id
                && answer.is_empty()
            {
                self.fault = Some(format!("Q3: {id} is served before {other}"));
            }
        }
    }
}
