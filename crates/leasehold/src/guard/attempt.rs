//! One attempt to get a fresh value: asks the store, waits for another client's load, or loads. Its waiters always learn how it ended.

use std::sync::Arc;

use leasehold_core::LockName;
use leasehold_core::cache::{Begin, Reply, Step, Version};

use super::answer::{Failure, Refusal};
use super::granted::Granted;
use super::guard_core::GuardCore;
use super::load_task::LoadTask;
use super::loader::Loader;
use super::request::ReadRequest;
use super::shared_load::SharedLoad;
use super::stage::{LoadOutcome, LoadStage};
use crate::backoff::jittered;
use crate::error::StoreError;
use crate::store::entries::Taken;
use crate::telemetry::Held;

impl GuardCore {
    /// Refreshes the value in the background, unless a shared load does already.
    pub(super) fn refresh(self: &Arc<Self>, request: &mut ReadRequest, seen: Version, over: bool) {
        // A client that is closed refreshes nothing.
        if let Ok((_, true)) = self.join(request, seen, over)
            && over
        {
            self.engine.telemetry.refreshes_early(&request.key);
        }
    }

    /// The shared load of this entry, and whether it begins with this request, whose loader it then has (G1).
    pub(super) fn join(
        self: &Arc<Self>,
        request: &mut ReadRequest,
        seen: Version,
        over: bool,
    ) -> Result<(Arc<SharedLoad>, bool), Refusal> {
        let mut shared_loads = self.shared_loads();
        if let Some(shared_load) = shared_loads.get(&request.key) {
            return Ok((shared_load.clone(), false));
        }
        if *self.leaving.borrow() || self.engine.is_closed() {
            return Err(Refusal::Store(StoreError::closed()));
        }
        let Some(loader) = request.loader.take() else {
            return Err(Refusal::GaveUp);
        };
        let shared_load = Arc::new(SharedLoad::default());
        shared_loads.insert(request.key.clone(), shared_load.clone());
        drop(shared_loads);
        let task = LoadTask::new(self.clone(), shared_load.clone(), request, (seen, over));
        self.engine.tasks.spawn(task.run(loader));
        Ok((shared_load, true))
    }
}

/// Ends a shared load in any case, also if a value of the caller panics while it is dropped.
struct FinishOnDrop {
    guard: Arc<GuardCore>,
    shared_load: Arc<SharedLoad>,
    key: LockName,
    end: LoadOutcome,
}

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.guard.finish(&self.key, &self.shared_load);
        if !self.shared_load.has_ended() {
            self.shared_load.tell(LoadStage::Ended(self.end.clone()));
        }
    }
}

impl LoadTask {
    /// Runs the shared load. A caller that asks after its end begins another one (G1).
    async fn run(self, loader: Box<dyn Loader>) {
        let (guard, shared_load, key) = (
            self.guard.clone(),
            self.shared_load.clone(),
            self.key.clone(),
        );
        let mut on_drop = FinishOnDrop {
            guard,
            shared_load,
            key,
            end: LoadOutcome::Refused(Refusal::GaveUp),
        };
        on_drop.end = self.ask(loader).await;
    }

    async fn ask(mut self, mut loader: Box<dyn Loader>) -> LoadOutcome {
        loop {
            let sent = self.guard.engine.clock.now();
            let taken = match self.begin().await {
                Ok(taken) => taken,
                Err(refusal) => {
                    // The load may have been granted (G5).
                    self.give_up();
                    return LoadOutcome::Refused(refusal);
                }
            };
            match taken.reply {
                Reply::Fresh(value) => return LoadOutcome::Found(value, taken.now_ms, sent),
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
                        return LoadOutcome::Refused(Refusal::Store(StoreError::closed()));
                    }
                    if !self.shared_load.is_wanted() {
                        return LoadOutcome::Unwanted;
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
                Reply::Foreign(kind) => return LoadOutcome::Refused(Refusal::Foreign(kind)),
                other => return LoadOutcome::Refused(self.guard.unexpected(&other)),
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
