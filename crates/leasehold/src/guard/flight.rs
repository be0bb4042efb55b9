//! One attempt to have a fresh value: asking the store, waiting for another's load, or loading. Must never end without telling
//! those who wait how.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::cache::{Begin, Reply, Step, Token, Value, Version};
use tokio::sync::{Notify, watch};

use super::load::{Granted, Loader, Nest};
use super::stage::{End, Failure, Judged, Shown, Stage, Want};
use super::{Inner, Policy, Refusal, Request};
use crate::backoff::jittered;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::runtime::Home;
use crate::sync::Mutex;
use crate::telemetry::Held;

/// A flight, as those see it who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    stage: watch::Sender<Stage>,
    /// The last stale value that came to light.
    shown: Mutex<Option<Shown>>,
    /// Ask again.
    pub(super) wake: Notify,
}

impl Flight {
    /// Waits for a stage that means something to the caller.
    pub(super) async fn wait(&self, want: &Want) -> Judged {
        let mut stage = self.stage.subscribe();
        let settled = stage.wait_for(|stage| want.judge(stage).is_some()).await;
        // An error would mean that the sender, and so `self`, is gone.
        settled
            .ok()
            .and_then(|stage| want.judge(&stage))
            .unwrap_or(Judged::Again)
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        let mut stage = self.stage.subscribe();
        drop(
            stage
                .wait_for(|stage| matches!(stage, Stage::Ended(_)))
                .await,
        );
    }

    pub(super) fn tell(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// A stale value that came to light after the question.
    pub(super) fn shown(&self, asked: Moment) -> Option<Shown> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone().filter(|shown| shown.sent >= asked)
    }

    fn show(&self, shown: Shown) {
        let mut last = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(shown.clone());
        drop(last);
        self.tell(Stage::Stale(shown));
    }

    fn is_wanted(&self) -> bool {
        self.stage.receiver_count() > 0
    }

    fn has_ended(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Ended(_))
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

/// Who carries a flight out.
pub(super) struct Pilot {
    pub(super) guard: Arc<Inner>,
    pub(super) flight: Arc<Flight>,
    pub(super) key: LockName,
    pub(super) policy: Policy,
    pub(super) home: Home,
    pub(super) nest: Nest,
    /// Not for longer than until it loads: it would keep the span open.
    pub(super) caller: Held,
    pub(super) token: Token,
    pub(super) seen: Version,
    over: bool,
}

impl Pilot {
    pub(super) fn new(
        guard: Arc<Inner>,
        flight: Arc<Flight>,
        request: &Request,
        (seen, over): (Version, bool),
    ) -> Self {
        let token = Token(guard.engine.identity.bits());
        Self {
            guard,
            flight,
            key: request.key.clone(),
            policy: request.policy.clone(),
            home: request.home.clone(),
            nest: request.nest.clone(),
            caller: request.caller.clone(),
            token,
            seen,
            over,
        }
    }

    /// Carries it out. Whoever asks after its end is told begins another (G1).
    pub(super) async fn fly(self, loader: Box<dyn Loader>) {
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

    async fn begin(&mut self) -> Result<crate::store::entries::Taken, Refusal> {
        let engine = &self.guard.engine;
        let lease = self.policy.lease_ttl().map_err(|_| Refusal::GaveUp)?;
        let step = Step::Begin(Begin {
            token: self.token,
            seen: self.seen,
            over: self.over,
            lease,
            listener: engine
                .store
                .tells_wanted()
                .then_some(engine.identity.client),
        });
        self.guard.take(&self.key, &step).await
    }

    /// A stale value that came to light serves those who take one.
    fn show(&mut self, stale: Option<Value>, now_ms: u64, sent: Moment) {
        if let Some(value) = stale {
            self.seen = value.header.version;
            self.flight.show(Shown {
                value,
                now_ms,
                sent,
            });
        }
    }

    /// Waits to be told to ask again, for so long at most.
    async fn hear(&self, limit: Duration) {
        let told = async {
            tokio::select! {
                () = self.flight.wake.notified() => {}
                () = self.guard.leaving() => {}
            }
        };
        // Told or not, it asks again.
        let _told: Option<()> = self.guard.engine.clock.within(limit, told).await;
    }

    /// A load has failed: whoever asks within the back-off is told so by this flight, and not by the store.
    pub(super) async fn rest(&self, failure: Failure, back_off: Duration) -> End {
        self.guard.engine.telemetry.backs_off(&self.key, back_off);
        let until = self.guard.engine.clock.now().after(back_off);
        let end = End::Failed(failure, until);
        self.flight.tell(Stage::Ended(end.clone()));
        self.hear(back_off).await;
        end
    }

    /// Lets go of a load that may have been granted, in the background.
    pub(super) fn give_up(&self) {
        let (guard, key, token) = (self.guard.clone(), self.key.clone(), self.token);
        let tasks = guard.engine.tasks.clone();
        tasks.spawn(async move {
            let step = Step::Abandon {
                token,
                back_off: None,
            };
            // If that fails as well, the lease ends by itself.
            drop(guard.take(&key, &step).await);
        });
    }
}
