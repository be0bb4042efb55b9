//! A granted load: runs the loader, renews the lease, and commits the value.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::cache::{Commit, CommitOutcome, Header, Reply, Step, Value, Version};

use super::answer::{Failure, Refusal};
use super::load_task::LoadTask;
use super::loader::{LoadResult, LoadedValue, Loader};
use super::policy::{LONGEST, MOST_BYTES, millis};
use super::stage::{CommitReport, LoadOutcome, LoadStage};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::runtime::JobEnd;
use crate::telemetry::{Held, LeaseLost, Load, Loading};

/// The longest text of a failure that is stored for other clients.
const MOST_TEXT: usize = 256;

/// The store's leave to load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) version: Version,
    /// How many loads have failed in a row.
    pub(super) failures: u32,
    /// Until when the lease is certain.
    pub(super) until: Moment,
}

impl LoadTask {
    /// Loads and hands in (G5).
    pub(super) async fn load(
        mut self,
        loader: Box<dyn Loader>,
        mut granted: Granted,
    ) -> LoadOutcome {
        let engine = self.guard.engine().clone();
        let began = engine.clock.now();
        let mut loading =
            (engine.telemetry).load(&self.key, granted.version, &self.caller, &engine.clock);
        self.caller = Held::default();
        let work = loading.within(self.scope.within(&self.guard, &self.key, loader));
        let mut job = engine.tasks.spawn_on(&self.home, work);
        let ended = tokio::select! {
            ended = job.ended() => ended,
            never = self.keep_lease(&mut granted.until, &mut loading) => match never {},
            _ = engine.closing() => JobEnd::Gone,
        };
        let took = engine.clock.now().since(began);
        if engine.clock.now() > granted.until {
            loading.lease_lost(LeaseLost::Deadline);
        }
        match ended {
            JobEnd::With(LoadResult::Value(output)) => {
                let header = Header {
                    invalidated: false,
                    version: granted.version,
                    stored_ms: 0,
                    soft_ms: 0,
                    load_ms: millis(took),
                    format: output.format,
                };
                let value = Value {
                    header,
                    body: output.body.clone(),
                };
                // For callers that have waited since before the load began: they wait for the store only for a limited time (G6).
                self.shared_load
                    .tell(LoadStage::Loaded(value.clone(), began));
                let sent = engine.clock.now();
                let kept = self.commit(&output, granted.version, took).await;
                if output.fresh_for.is_zero() && output.stale_for.is_zero() {
                    self.clear().await;
                }
                loading.ended(kept.map_or(Load::Unconfirmed, Load::from), took, None);
                LoadOutcome::Loaded(value, CommitReport { began, sent, kept })
            }
            JobEnd::With(LoadResult::Nothing) => {
                loading.ended(Load::Nothing, took, None);
                self.abandon(None).await;
                self.clear().await;
                LoadOutcome::Nothing
            }
            JobEnd::With(LoadResult::Failed(failure)) => {
                loading.ended(Load::Failed, took, Some(&failure.text));
                self.fail(failure, granted).await
            }
            JobEnd::Panicked(said) => {
                let text = format!("the loader panicked: {said}");
                loading.ended(Load::Panicked, took, Some(&text));
                self.fail(Failure { text, source: None }, granted).await
            }
            JobEnd::Gone => {
                loading.ended(Load::Gone, took, None);
                self.abandon(None).await;
                LoadOutcome::Refused(if engine.is_closed() {
                    Refusal::Store(StoreError::closed())
                } else {
                    Refusal::GaveUp
                })
            }
        }
    }

    /// Renews the lease as long as that is useful, and never returns. After that, new callers do not wait for this load (G4).
    async fn keep_lease(&self, until: &mut Moment, loading: &mut Loading) -> Infallible {
        let how = self.renew(until).await;
        self.guard.finish(&self.key, &self.shared_load);
        if let Some(how) = how {
            loading.lease_lost(how);
        }
        pending().await
    }

    /// Renews it until it is lost, and says how; moves the moment until which it is certain.
    async fn renew(&self, certain: &mut Moment) -> Option<LeaseLost> {
        let engine = self.guard.engine();
        let lease = self.policy.lease_ttl().ok()?;
        let until = engine.clock.now().after(self.policy.load_at_most);
        let step = Step::Renew {
            token: self.token,
            lease,
        };
        loop {
            engine.clock.sleep(lease.get() / 3).await;
            let sent = engine.clock.now();
            if until.since(sent).is_zero() {
                engine.clock.sleep_until(*certain).await;
                return Some(LeaseLost::Deadline);
            }
            match self.guard.entries()?.take(&self.key, &step).await {
                Ok(taken) if taken.reply == Reply::Renewed => *certain = sent.after(lease.get()),
                // The lease ended, or the entry was invalidated. The value may still be useful.
                Ok(_) if engine.clock.now() > *certain => return Some(LeaseLost::Deadline),
                Ok(_) => return Some(LeaseLost::NotHeld),
                // Not renewed yet.
                Err(_) => {}
            }
        }
    }

    async fn commit(
        &self,
        loaded: &LoadedValue,
        version: Version,
        took: Duration,
    ) -> Option<CommitOutcome> {
        if loaded.body.len() > MOST_BYTES {
            self.abandon(None).await;
            return None;
        }
        let step = Step::Commit(Commit {
            token: self.token,
            version,
            fresh_ms: self.policy.fresh_ms(loaded.fresh_for.min(LONGEST)),
            stale_ms: millis(loaded.stale_for.min(LONGEST)),
            load_ms: millis(took),
            format: loaded.format,
            body: loaded.body.clone(),
        });
        match self
            .guard
            .take(&self.key, &step)
            .await
            .map(|taken| taken.reply)
        {
            Ok(Reply::Committed(kept)) => Some(kept),
            Ok(_) => None,
            Err(_) => {
                self.give_up();
                None
            }
        }
    }

    /// The source has no value to store, so the old value must not be served as stale.
    async fn clear(&self) {
        if self.seen > Version::default() {
            let step = Step::Invalidate { remove: true };
            // If that fails, the value ends with its stale time.
            drop(self.guard.take(&self.key, &step).await);
        }
    }

    async fn fail(self, failure: Failure, granted: Granted) -> LoadOutcome {
        let Ok(back_off) = self.policy.back_off_after(granted.failures) else {
            return LoadOutcome::Refused(Refusal::GaveUp);
        };
        let text = shortened(&failure.text);
        // Concurrently, since a store that hangs must not delay the waiters.
        let told = self.abandon(Some((back_off, text)));
        let (end, ()) = futures_util::join!(self.rest(failure, back_off.get()), told);
        end
    }

    async fn abandon(&self, back_off: Option<(Ttl, String)>) {
        let step = Step::Abandon {
            token: self.token,
            back_off,
        };
        // If that fails, the lease ends by itself.
        drop(self.guard.take(&self.key, &step).await);
    }
}

impl From<CommitOutcome> for Load {
    fn from(kept: CommitOutcome) -> Self {
        match kept {
            CommitOutcome::Fresh(_) => Self::Fresh,
            CommitOutcome::Stale => Self::Stale,
            CommitOutcome::Overtaken => Self::Overtaken,
        }
    }
}

/// The beginning of a text, whole characters only.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
