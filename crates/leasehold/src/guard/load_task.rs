//! The task behind a shared load.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::cache::{Step, Token, Value, Version};

use super::answer::Failure;
use super::guard_core::GuardCore;
use super::load_scope::LoadScope;
use super::policy::Policy;
use super::request::ReadRequest;
use super::shared_load::SharedLoad;
use super::stage::{LoadOutcome, LoadStage, StaleValue};
use crate::clock::Moment;
use crate::runtime::Home;
use crate::telemetry::Held;

/// The task that runs a shared load.
pub(super) struct LoadTask {
    pub(super) guard: Arc<GuardCore>,
    pub(super) shared_load: Arc<SharedLoad>,
    pub(super) key: LockName,
    pub(super) policy: Policy,
    pub(super) home: Home,
    pub(super) scope: LoadScope,
    /// The caller's span. Dropped when the load begins, or the span would stay open.
    pub(super) caller: Held,
    pub(super) token: Token,
    pub(super) seen: Version,
    pub(super) over: bool,
}

impl LoadTask {
    pub(super) fn new(
        guard: Arc<GuardCore>,
        shared_load: Arc<SharedLoad>,
        request: &ReadRequest,
        (seen, over): (Version, bool),
    ) -> Self {
        let token = Token(guard.engine.identity.bits());
        Self {
            guard,
            shared_load,
            key: request.key.clone(),
            policy: request.policy.clone(),
            home: request.home.clone(),
            scope: request.scope.clone(),
            caller: request.caller.clone(),
            token,
            seen,
            over,
        }
    }

    /// Offers a stale value to the callers that accept one.
    pub(super) fn show(&mut self, stale: Option<Value>, now_ms: u64, sent: Moment) {
        if let Some(value) = stale {
            self.seen = value.header.version;
            self.shared_load.show(StaleValue {
                value,
                now_ms,
                sent,
            });
        }
    }

    /// Waits for a notice to ask again, for at most `limit`.
    pub(super) async fn hear(&self, limit: Duration) {
        // It asks again in each case.
        tokio::select! {
            biased;
            () = self.shared_load.wake.notified() => {}
            () = self.guard.leaving() => {}
            () = self.guard.engine.clock.sleep(limit) => {}
        }
    }

    /// A load has failed. During the back-off this shared load answers all callers, without a request to the store.
    pub(super) async fn rest(&self, failure: Failure, back_off: Duration) -> LoadOutcome {
        self.guard.engine.telemetry.backs_off(&self.key, back_off);
        let until = self.guard.engine.clock.now().after(back_off);
        let end = LoadOutcome::Failed(failure, until);
        self.shared_load.tell(LoadStage::Ended(end.clone()));
        self.hear(back_off).await;
        end
    }

    /// Abandons a load that may have been granted, in the background.
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
