//! Acquires a timestamp lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold_core::timestamp::{Reply, Step};
use leasehold_core::{HolderView, Ttl, poll_after};
use tokio::sync::oneshot;

use super::hold::TimestampHold;
use super::keeper::Keeper;
use super::keeping::Grant;
use super::key::{Key, after, is_transient};
use crate::backoff::{Backoff, jittered};
use crate::error::{Error, StoreError, Timeout};
use crate::lease::{OnWait, WaitLimit, WaitStatus};

/// Asks on the client's thread, so the caller may drop the future at any time: an undelivered hold is dropped, and dropping releases.
pub(super) async fn request(
    key: Key,
    ttl: Ttl,
    auto_renew: bool,
    limit: WaitLimit,
    on_wait: Option<OnWait>,
) -> Result<Option<TimestampHold>, Error> {
    if key.engine.is_closed() {
        return Err(StoreError::closed().into());
    }
    let (reply, answer) = oneshot::channel();
    let tasks = key.engine.tasks.clone();
    let asking = AcquireTask {
        key,
        ttl,
        auto_renew,
        limit,
        on_wait,
        reply,
    };
    tasks.spawn(asking.run());
    answer.await.map_err(|_| StoreError::closed())?
}

type AcquireResult = Result<Option<TimestampHold>, Error>;

struct AcquireTask {
    key: Key,
    ttl: Ttl,
    auto_renew: bool,
    limit: WaitLimit,
    on_wait: Option<OnWait>,
    reply: oneshot::Sender<AcquireResult>,
}

impl AcquireTask {
    async fn run(mut self) {
        let answer = self.ask().await;
        // Fails if the caller has gone.
        drop(self.reply.send(answer));
    }

    async fn ask(&mut self) -> AcquireResult {
        let engine = self.key.engine.clone();
        let clock = &engine.clock;
        let begun = clock.now();
        let (mut heard, mut holder, mut failure) = (begun, None, None);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            let sent = clock.now();
            let asking = self
                .key
                .clone()
                .asking(Step::Acquire { ttl: self.ttl }, false);
            let pause = match asking.await {
                Ok(Reply::Held { deadline, at_us }) => {
                    let grant = Grant {
                        deadline,
                        at_us,
                        sent,
                        ttl: self.ttl,
                    };
                    return Ok(Some(Keeper::begin(
                        self.key.clone(),
                        &grant,
                        self.auto_renew,
                    )));
                }
                Ok(Reply::Busy { .. }) if matches!(self.limit, WaitLimit::Once) => {
                    return Ok(None);
                }
                Ok(Reply::Busy { deadline, at_us }) => {
                    let seen = self.key.holder(deadline, at_us);
                    let left = seen.expires_in;
                    self.tell(&seen, clock.now().since(begun));
                    (heard, holder, failure) = (clock.now(), Some(seen), None);
                    backoff.reset();
                    jittered(poll_after(0, left, true, false))
                }
                Ok(other) => return Err(self.key.refused(&other)),
                // A request that may have been executed keeps this client out until its deadline. It does no other harm (T7).
                Err(error)
                    if is_transient(&error)
                        && !matches!(self.limit, WaitLimit::Once)
                        && clock.now().since(heard) < engine.outage_timeout =>
                {
                    failure = Some(after(failure, error));
                    backoff.pause()
                }
                Err(error) => return Err(after(failure, error)),
            };
            let waited = clock.now().since(begun);
            let pause = match self.limit {
                WaitLimit::Within(limit) if waited >= limit => {
                    // Only an answer of the store says that the lock is busy.
                    return Err(failure.unwrap_or_else(|| self.timeout(waited, holder)));
                }
                WaitLimit::Within(limit) => pause.min(limit.saturating_sub(waited)),
                WaitLimit::Once | WaitLimit::Forever => pause,
            };
            tokio::select! {
                biased;
                () = self.reply.closed() => return Ok(None),
                closed = engine.closing() => return Err(closed.into()),
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Calls `on_wait`. If it panics, it is not called again.
    fn tell(&mut self, holder: &HolderView, waited: Duration) {
        let Some(on_wait) = &self.on_wait else { return };
        let waiting = WaitStatus {
            name: self.key.name.as_str().to_owned(),
            holder: holder.clone(),
            ahead: 0,
            waited,
        };
        if catch_unwind(AssertUnwindSafe(|| on_wait(&waiting))).is_err() {
            self.on_wait = None;
        }
    }

    fn timeout(&self, waited: Duration, holder: Option<HolderView>) -> Error {
        let timeout = Timeout {
            name: self.key.name.as_str().to_owned(),
            waited,
            holder: holder.map(Box::new),
            by_this_client: false,
            ahead: 0,
        };
        timeout.into()
    }
}
