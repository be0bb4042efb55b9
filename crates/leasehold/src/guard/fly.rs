//! One attempt to have a fresh value: asking the store, waiting for another's load, or loading. Must never end without telling
//! those who wait how.

use std::sync::Arc;

use leasehold_core::LockName;
use leasehold_core::cache::{Begin, Reply, Step, Version};

use super::answer::{Failure, Refusal};
use super::flight::Flight;
use super::inner::Inner;
use super::load::Granted;
use super::loader::Loader;
use super::pilot::Pilot;
use super::request::Request;
use super::stage::{End, Stage};
use crate::backoff::jittered;
use crate::error::StoreError;
use crate::store::entries::Taken;
use crate::telemetry::Held;

impl Inner {
    /// Sees to a newer value in the background, unless that is being done.
    pub(super) fn refresh(self: &Arc<Self>, request: &mut Request, seen: Version, over: bool) {
        // A client that is closed refreshes nothing.
        if let Ok((_, true)) = self.join(request, seen, over)
            && over
        {
            self.engine.telemetry.refreshes_early(&request.key);
        }
    }

    /// The flight of this entry, and whether it begins with this request, whose loader it then has (G1).
    pub(super) fn join(
        self: &Arc<Self>,
        request: &mut Request,
        seen: Version,
        over: bool,
    ) -> Result<(Arc<Flight>, bool), Refusal> {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&request.key) {
            return Ok((flight.clone(), false));
        }
        if *self.leaving.borrow() || self.engine.is_closed() {
            return Err(Refusal::Store(StoreError::closed()));
        }
        let Some(loader) = request.loader.take() else {
            return Err(Refusal::GaveUp);
        };
        let flight = Arc::new(Flight::default());
        flights.insert(request.key.clone(), flight.clone());
        drop(flights);
        let pilot = Pilot::new(self.clone(), flight.clone(), request, (seen, over));
        self.engine.tasks.spawn(pilot.fly(loader));
        Ok((flight, true))
    }
}

/// Ends a flight whatever becomes of it: also if something of the caller's panics while it is dropped.
struct Landing {
    guard: Arc<Inner>,
    flight: Arc<Flight>,
    key: LockName,
    end: End,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.guard.land(&self.key, &self.flight);
        if !self.flight.has_ended() {
            self.flight.tell(Stage::Ended(self.end.clone()));
        }
    }
}

impl Pilot {
    /// Carries it out. Whoever asks after its end is told begins another (G1).
    async fn fly(self, loader: Box<dyn Loader>) {
        let (guard, flight, key) = (self.guard.clone(), self.flight.clone(), self.key.clone());
        let mut landing = Landing {
            guard,
            flight,
            key,
            end: End::Refused(Refusal::GaveUp),
        };
        landing.end = self.ask(loader).await;
    }

    async fn ask(mut self, mut loader: Box<dyn Loader>) -> End {
        loop {
            let sent = self.guard.engine.clock.now();
            let taken = match self.begin().await {
                Ok(taken) => taken,
                Err(refusal) => {
                    // It may have been granted all the same (G5).
                    self.give_up();
                    return End::Refused(refusal);
                }
            };
            match taken.reply {
                Reply::Fresh(value) => return End::Found(value, taken.now_ms, sent),
                Reply::Load {
                    version, failures, ..
                } => {
                    let granted = Granted {
                        version,
                        failures,
                        until: sent.after(self.policy.lease),
                    };
                    return self.load(loader, granted).await;
                }
                Reply::Busy { poll_after, stale } => {
                    loader.passed_over();
                    self.show(stale, taken.now_ms, sent);
                    self.hear(jittered(poll_after)).await;
                    if *self.guard.leaving.borrow() {
                        return End::Refused(Refusal::Store(StoreError::closed()));
                    }
                    if !self.flight.is_wanted() {
                        return End::Unwanted;
                    }
                }
                Reply::BackOff { left, error, stale } => {
                    self.caller = Held::default();
                    loader.passed_over();
                    self.show(stale, taken.now_ms, sent);
                    let failure = Failure {
                        text: error,
                        source: None,
                    };
                    return self.rest(failure, left).await;
                }
                Reply::Foreign(kind) => return End::Refused(Refusal::Foreign(kind)),
                other => return End::Refused(self.guard.unexpected(&other)),
            }
        }
    }

    async fn begin(&mut self) -> Result<Taken, Refusal> {
        let engine = &self.guard.engine;
        let lease = self.policy.lease_ttl().map_err(|_| Refusal::GaveUp)?;
        let step = Step::Begin(Begin {
            token: self.token,
            seen: self.seen,
            over: self.over,
            lease,
            listener: engine
                .store
                .capabilities()
                .tells_wanted
                .then_some(engine.identity.client),
        });
        self.guard.take(&self.key, &step).await
    }
}
