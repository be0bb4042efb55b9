//! Shared loads: each asks the store, waits for another client's load, or loads, and answers all callers who wait for it. [`crate::guard`] has
//! the invariants.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use leasehold::Moment;
use leasehold::entries::{Entries, JobEnd, LoaderRuntime, SharedSpan, jittered};
use leasehold_core::cache::{
    Begin, Body, Commit, CommitOutcome, Format, Header, Reply, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName, Ttl};
use tokio::sync::{Notify, watch};

use crate::policy::{LONGEST, MOST_BYTES, Policy, millis};
use crate::telemetry::{LeaseLost, LoadEnd, Loading, Observation, Telemetry};
use crate::value::{Failure, Origin, Refusal};

/// The longest text of a failure that is stored for other clients.
const MOST_TEXT: usize = 256;

/// A read of an entry, as its caller wants it.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) key: LockName,
    pub(crate) policy: Policy,
    /// The caller's runtime, where its loader runs.
    pub(crate) runtime: LoaderRuntime,
    /// The loads that the caller runs inside of.
    pub(crate) scope: LoadScope,
    /// The caller's span; the load follows from it.
    pub(crate) span: Option<SharedSpan>,
}

/// Loads a value, once.
pub(crate) trait Loader: Send {
    /// Another caller loads. This loader may run later or never.
    fn passed_over(&mut self);

    /// Loads the value, in a new task on the caller's runtime. If there is none, nothing is stored.
    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult>;
}

/// The result of a loader.
pub(crate) type LoadResult = Result<Option<Loaded>, Failure>;

/// An encoded value and its lifetime.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) body: Body,
    pub(crate) format: Format,
    pub(crate) fresh_for: Duration,
    pub(crate) stale_for: Duration,
}

tokio::task_local! {
    /// The loads that the current task runs inside of.
    static SCOPE: LoadScope;
}

/// The loads that a caller runs inside of: their clients and entries. A loader that asks for its own entry would wait for itself, so that is
/// refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadScope(Vec<(ClientId, Arc<HashSet<LockName>>)>);

impl LoadScope {
    /// The loads of the current task.
    pub(crate) fn here() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// Whether the caller runs inside the load of this entry.
    pub(crate) fn contains(&self, client: ClientId, key: &LockName) -> bool {
        let mut around = self.0.iter();
        around.any(|(of, keys)| *of == client && keys.contains(key))
    }

    /// Runs `load` inside the scope of these entries.
    pub(crate) fn around<F: Future>(
        &self,
        client: ClientId,
        keys: &[LockName],
        load: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let mut scope = self.clone();
        let keys = Arc::new(keys.iter().cloned().collect());
        scope.0.push((client, keys));
        SCOPE.scope(scope, load)
    }
}

/// A value of the store.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) value: Value,
    /// The time of the store.
    pub(crate) now_ms: u64,
    /// When the request for it was sent. It is for callers that had asked by then: later ones have read the entry themselves, and a value
    /// that is gone since must not be served again.
    pub(crate) sent: Moment,
}

/// How far a shared load is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The last stale value that was found.
    pub(crate) stale: Option<Found>,
    pub(crate) stage: Stage,
}

/// A stage of a shared load.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// It asks the store, or waits for another client's load.
    #[default]
    Asking,
    /// The loader has returned, and the value is on its way to the store. The load began at this moment.
    Loaded { value: Value, began: Moment },
    /// The shared load is over.
    Ended(LoadOutcome),
}

/// The outcome of a shared load.
#[derive(Debug, Clone)]
pub(crate) enum LoadOutcome {
    /// Another client's value, fresh.
    Found(Found),
    /// A value that was loaded here.
    Loaded {
        value: Value,
        /// When the load began.
        began: Moment,
        /// When the value was sent to the store.
        sent: Moment,
        /// The store's answer, if there was one.
        kept: Option<CommitOutcome>,
    },
    /// There is no value.
    Refused(Refusal),
}

/// The values that a caller accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) asked: Moment,
    /// The caller began this shared load.
    pub(crate) leads: bool,
    pub(crate) must_be_fresh: bool,
    /// A version that the caller could not decode. It does not take that stale value again.
    pub(crate) unread: Version,
}

/// A value for a caller.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) value: Value,
    pub(crate) age: Duration,
    pub(crate) origin: Origin,
}

impl Demand {
    /// What the progress of a shared load is to the caller; `None` while it has to wait, [`Refusal::GaveUp`] if it has to ask again. It never
    /// gets a value as fresh that may have been invalidated before it asked (G3).
    pub(crate) fn evaluate(&self, progress: &Progress) -> Option<Result<Offer, Refusal>> {
        let offer = |value: &Value, age, origin| Offer {
            value: value.clone(),
            age,
            origin,
        };
        let found_at = |found: &Found, origin| {
            let age = found.value.header.age(found.now_ms);
            offer(&found.value, age, origin)
        };
        let loaded = if self.leads {
            Origin::Loaded
        } else {
            Origin::Waited
        };
        let outcome = match &progress.stage {
            Stage::Asking => {
                let stale = progress.stale.as_ref().filter(|found| {
                    let is_new = found.value.header.version > self.unread;
                    !self.must_be_fresh && found.sent >= self.asked && is_new
                });
                return stale.map(|found| Ok(found_at(found, Origin::Stale)));
            }
            // A load that began after the question is as new as any answer can be (G3).
            Stage::Loaded { value, began } => {
                return (*began >= self.asked).then(|| Ok(offer(value, Duration::ZERO, loaded)));
            }
            Stage::Ended(outcome) => outcome,
        };
        Some(match outcome {
            // A value read before the question may have been invalidated since (G3).
            LoadOutcome::Found(found) if found.sent < self.asked => Err(Refusal::GaveUp),
            LoadOutcome::Found(found) => Ok(found_at(found, Origin::Waited)),
            LoadOutcome::Loaded {
                value,
                began,
                sent,
                kept,
            } => {
                let is_kept = matches!(kept, Some(CommitOutcome::Fresh(_)));
                if *began >= self.asked || (is_kept && *sent >= self.asked) {
                    Ok(offer(value, Duration::ZERO, loaded))
                } else if self.must_be_fresh {
                    Err(Refusal::GaveUp)
                } else {
                    Ok(offer(value, Duration::ZERO, Origin::Stale))
                }
            }
            LoadOutcome::Refused(refusal) => Err(refusal.clone()),
        })
    }
}

/// A shared load, seen from its callers.
#[derive(Debug, Default)]
pub(crate) struct SharedLoad {
    progress: watch::Sender<Progress>,
    /// Ask again.
    wake: Notify,
}

impl SharedLoad {
    /// Waits for progress that answers the caller.
    pub(crate) async fn wait(&self, want: &Demand) -> Result<Offer, Refusal> {
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|progress| want.evaluate(progress).is_some());
        // An error would mean that the sender, and so `self`, is gone.
        let settled = settled.await.ok();
        let result = settled.and_then(|progress| want.evaluate(&progress));
        result.unwrap_or(Err(Refusal::GaveUp))
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) {
        let mut progress = self.progress.subscribe();
        let is_over = |progress: &Progress| matches!(progress.stage, Stage::Ended(_));
        drop(progress.wait_for(is_over).await);
    }

    /// A stale value that was found after `asked`.
    pub(crate) fn stale(&self, asked: Moment) -> Option<Found> {
        let progress = self.progress.borrow();
        let stale = progress.stale.as_ref();
        stale.filter(|found| found.sent >= asked).cloned()
    }

    fn tell(&self, stage: Stage) {
        self.progress.send_modify(|progress| progress.stage = stage);
    }
}

/// The shared loads of a cache that are under way.
pub(crate) struct Loads {
    pub(crate) entries: Entries,
    pub(crate) telemetry: Arc<Telemetry>,
    /// The store wakes this client when another client's load ends.
    pub(crate) client: ClientId,
    shared: Mutex<HashMap<LockName, Arc<SharedLoad>>>,
    /// The cache is gone, so no caller waits any more.
    leaving: watch::Sender<bool>,
}

impl Loads {
    pub(crate) fn new(entries: Entries, client: ClientId) -> Self {
        Self {
            telemetry: Arc::new(Telemetry::new(entries.clone())),
            entries,
            client,
            shared: Mutex::default(),
            leaving: watch::Sender::new(false),
        }
    }

    /// The shared load of this entry, and whether it begins with this call, whose loader it then has (G1).
    ///
    /// The call has seen the version `seen`, and with `over` it wants a newer one even if that is fresh.
    pub(crate) fn join(
        self: &Arc<Self>,
        call: &Call,
        loader: &mut Option<Box<dyn Loader>>,
        seen: Version,
        over: bool,
    ) -> Result<(Arc<SharedLoad>, bool), Refusal> {
        let mut all = self.shared();
        if let Some(shared) = all.get(&call.key) {
            return Ok((shared.clone(), false));
        }
        if let Some(closed) = self.entries.closed() {
            return Err(closed.into());
        }
        let loader = loader.take().ok_or(Refusal::GaveUp)?;
        let shared = Arc::new(SharedLoad::default());
        all.insert(call.key.clone(), shared.clone());
        drop(all);
        let task = LoadTask {
            loads: self.clone(),
            shared: shared.clone(),
            call: call.clone(),
            token: self.entries.token(),
            seen,
            over,
            outcome: LoadOutcome::Refused(Refusal::GaveUp),
        };
        self.entries.spawn(task.run(loader));
        Ok((shared, true))
    }

    /// Lets the shared load of this entry ask again; `None` stands for all of them.
    pub(crate) fn wake(&self, key: Option<&LockName>) {
        let all = self.shared();
        let woken: Vec<_> = match key {
            Some(key) => all.get(key).into_iter().cloned().collect(),
            None => all.values().cloned().collect(),
        };
        drop(all);
        for shared in woken {
            shared.wake.notify_one();
        }
    }

    /// Ends the shared loads that only wait. Loads go on, and their values are stored.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Waits for [`Loads::leave`].
    async fn left(&self) {
        let mut leaving = self.leaving.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(leaving.wait_for(|leaving| *leaving).await);
    }

    /// Removes a shared load that is over. The next caller begins another one.
    fn finish(&self, key: &LockName, shared: &Arc<SharedLoad>) {
        let mut all = self.shared();
        if all.get(key).is_some_and(|other| Arc::ptr_eq(other, shared)) {
            all.remove(key);
        }
    }

    pub(crate) fn shared(&self) -> MutexGuard<'_, HashMap<LockName, Arc<SharedLoad>>> {
        // A map is changed as a whole or not at all, whatever panics.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task behind a shared load (G2).
struct LoadTask {
    loads: Arc<Loads>,
    shared: Arc<SharedLoad>,
    /// The call that began it. Its span is dropped when the load begins, or it would stay open.
    call: Call,
    token: Token,
    /// The highest version that was seen.
    seen: Version,
    /// The caller wants a newer value, even if that one is fresh.
    over: bool,
    outcome: LoadOutcome,
}

impl Drop for LoadTask {
    /// Ends the shared load in any case, also if a value of the caller panics while it is dropped (G4).
    fn drop(&mut self) {
        self.loads.finish(&self.call.key, &self.shared);
        self.shared.progress.send_if_modified(|progress| {
            let is_open = !matches!(progress.stage, Stage::Ended(_));
            if is_open {
                progress.stage = Stage::Ended(self.outcome.clone());
            }
            is_open
        });
    }
}

impl LoadTask {
    async fn run(mut self, loader: Box<dyn Loader>) {
        self.outcome = self.ask(loader).await;
    }

    /// Asks the store until there is a value, a leave to load, or no hope.
    async fn ask(&mut self, mut loader: Box<dyn Loader>) -> LoadOutcome {
        let loads = self.loads.clone();
        let entries = &loads.entries;
        loop {
            let sent = entries.clock().now();
            let step = Step::Begin(Begin {
                token: self.token,
                seen: self.seen,
                over: self.over,
                lease: self.call.policy.lease_ttl(),
                listener: Some(loads.client),
            });
            let taken = match entries.take(&self.call.key, &step).await {
                Ok(taken) => taken,
                Err(error) => {
                    // The load may have been granted (G5).
                    entries.spawn(self.abandon(None));
                    return LoadOutcome::Refused(error.into());
                }
            };
            let now_ms = taken.now_ms;
            let found = |value| Found {
                value,
                now_ms,
                sent,
            };
            let (pause, failed, stale) = match taken.reply {
                Reply::Busy { poll_after, stale } => (poll_after, None, stale),
                Reply::BackOff { left, error, stale } => (left, Some(error), stale),
                Reply::Load {
                    version, failures, ..
                } => {
                    let certain = sent.after(self.call.policy.lease);
                    return self.load(loader, version, failures, certain).await;
                }
                Reply::Fresh(value) => return LoadOutcome::Found(found(value)),
                Reply::Foreign(kind) => return LoadOutcome::Refused(Refusal::Foreign(kind)),
                other => return LoadOutcome::Refused(entries.unexpected(&other).into()),
            };
            loader.passed_over();
            if let Some(value) = stale {
                self.seen = value.header.version;
                let show = |progress: &mut Progress| progress.stale = Some(found(value));
                self.shared.progress.send_modify(show);
            }
            if let Some(text) = failed {
                self.call.span = None;
                return self.back_off(Failure { text, cause: None }, pause).await;
            }
            // Clients that wait for one load do not ask at the same time.
            self.rest(jittered(pause)).await;
            if let Some(closed) = entries.closed() {
                return LoadOutcome::Refused(closed.into());
            }
            // No caller waits any more.
            if self.shared.progress.receiver_count() == 0 {
                return LoadOutcome::Refused(Refusal::GaveUp);
            }
        }
    }

    /// Waits for a notice to ask again, for at most `limit`.
    async fn rest(&self, limit: Duration) {
        let entries = &self.loads.entries;
        // It asks again in each case.
        tokio::select! {
            biased;
            () = self.shared.wake.notified() => {}
            () = self.loads.left() => {}
            _ = entries.closing() => {}
            () = entries.clock().sleep(limit) => {}
        }
    }

    /// A load has failed. During the back-off this shared load answers all callers, without a request to the store.
    async fn back_off(&self, failure: Failure, left: Duration) -> LoadOutcome {
        let loads = &self.loads;
        let backs_off = Observation::BacksOff(left);
        loads.telemetry.observe(&self.call.key, backs_off);
        let until = loads.entries.clock().now().after(left);
        let outcome = LoadOutcome::Refused(Refusal::Failed(failure, until));
        self.shared.tell(Stage::Ended(outcome.clone()));
        self.rest(left).await;
        outcome
    }

    /// Loads, and hands the value in (G5). The lease is `certain` until that moment. `failures` loads have failed in a row.
    async fn load(
        &mut self,
        loader: Box<dyn Loader>,
        version: Version,
        failures: u32,
        mut certain: Moment,
    ) -> LoadOutcome {
        let loads = self.loads.clone();
        let (entries, key) = (&loads.entries, self.call.key.clone());
        let clock = entries.clock();
        let began = clock.now();
        let mut loading = loads.telemetry.load(&key, version, self.call.span.as_ref());
        self.call.span = None;
        let work = async move { loader.load().await };
        let scope = &self.call.scope;
        let work = loading.within(scope.around(loads.client, std::slice::from_ref(&key), work));
        let ended = tokio::select! {
            ended = entries.run_on(&self.call.runtime, work) => ended,
            never = self.keep_lease(&mut certain, &mut loading) => match never {},
            _ = entries.closing() => JobEnd::Gone,
        };
        let took = clock.now().since(began);
        if clock.now() > certain {
            loading.lease_lost(LeaseLost::Deadline);
        }
        let fetched = match ended {
            JobEnd::With(Ok(Some(fetched))) => fetched,
            JobEnd::With(Ok(None)) => {
                loading.ended(LoadEnd::Nothing, took, None);
                self.abandon(None).await;
                self.clear().await;
                return LoadOutcome::Refused(Refusal::Nothing);
            }
            JobEnd::With(Err(failure)) => {
                loading.ended(LoadEnd::Failed, took, Some(&failure.text));
                return self.fail(failure, failures).await;
            }
            JobEnd::Panicked(said) => {
                let text = format!("the loader panicked: {said}");
                loading.ended(LoadEnd::Panicked, took, Some(&text));
                return self.fail(Failure { text, cause: None }, failures).await;
            }
            JobEnd::Gone => {
                loading.ended(LoadEnd::Gone, took, None);
                self.abandon(None).await;
                let closed = entries.closed().map(Refusal::from);
                return LoadOutcome::Refused(closed.unwrap_or(Refusal::GaveUp));
            }
        };
        let header = Header {
            invalidated: false,
            version,
            stored_ms: 0,
            soft_ms: 0,
            load_ms: millis(took),
            format: fetched.format,
        };
        let body = fetched.body.clone();
        let value = Value { header, body };
        // For callers that have waited since before the load began: they wait for the store only for a limited time (G6).
        self.shared.tell(Stage::Loaded {
            value: value.clone(),
            began,
        });
        let sent = clock.now();
        let kept = self.commit(&fetched, &header).await;
        if fetched.fresh_for.is_zero() && fetched.stale_for.is_zero() {
            self.clear().await;
        }
        loading.ended(kept.into(), took, None);
        LoadOutcome::Loaded {
            value,
            began,
            sent,
            kept,
        }
    }

    /// Renews the lease as long as that is useful, and never returns. Moves the moment until which the lease is certain.
    async fn keep_lease(&self, certain: &mut Moment, loading: &mut Loading) -> Infallible {
        let entries = &self.loads.entries;
        let (clock, policy) = (entries.clock(), &self.call.policy);
        let lease = policy.lease_ttl();
        let until = clock.now().after(policy.load_at_most);
        let step = Step::Renew {
            token: self.token,
            lease,
        };
        let how = loop {
            clock.sleep(lease.get() / 3).await;
            let sent = clock.now();
            if until.since(sent).is_zero() {
                clock.sleep_until(*certain).await;
                break LeaseLost::Deadline;
            }
            match entries.take(&self.call.key, &step).await {
                Ok(taken) if taken.reply == Reply::Renewed => *certain = sent.after(lease.get()),
                // The lease ended, or the entry was invalidated. The value may still be useful.
                Ok(_) if clock.now() > *certain => break LeaseLost::Deadline,
                Ok(_) => break LeaseLost::NotHeld,
                // Not renewed yet.
                Err(_) => {}
            }
        };
        // From now on, new callers do not wait for this load (G4).
        self.loads.finish(&self.call.key, &self.shared);
        loading.lease_lost(how);
        pending().await
    }

    /// Stores a loaded value. `None` if the store did not confirm that.
    async fn commit(&self, loaded: &Loaded, header: &Header) -> Option<CommitOutcome> {
        if loaded.body.len() > MOST_BYTES {
            self.abandon(None).await;
            return None;
        }
        let step = Step::Commit(Commit {
            token: self.token,
            version: header.version,
            fresh_ms: self.call.policy.fresh_ms(loaded.fresh_for),
            stale_ms: millis(loaded.stale_for.min(LONGEST)),
            load_ms: header.load_ms,
            format: loaded.format,
            body: loaded.body.clone(),
        });
        let taken = self.loads.entries.take(&self.call.key, &step).await;
        match taken.map(|taken| taken.reply) {
            Ok(Reply::Committed(kept)) => Some(kept),
            Ok(_) => None,
            Err(_) => {
                self.loads.entries.spawn(self.abandon(None));
                None
            }
        }
    }

    /// The source has no value to store, so the old value must not be served as stale.
    async fn clear(&self) {
        if self.seen > Version::default() {
            let step = Step::Invalidate { remove: true };
            // If that fails, the value ends with its stale time.
            drop(self.loads.entries.take(&self.call.key, &step).await);
        }
    }

    async fn fail(&self, failure: Failure, failures: u32) -> LoadOutcome {
        let back_off = self.call.policy.back_off_after(failures);
        let text = shortened(&failure.text);
        // Concurrently, since a store that hangs must not delay the waiters.
        let told = self.abandon(Some((back_off, text)));
        let (outcome, ()) = join(self.back_off(failure, back_off.get()), told).await;
        outcome
    }

    /// Abandons a load that was granted, or may have been. If that fails, the lease ends by itself.
    fn abandon(&self, back_off: Option<(Ttl, String)>) -> impl Future<Output = ()> + use<> {
        let (entries, key) = (self.loads.entries.clone(), self.call.key.clone());
        let step = Step::Abandon {
            token: self.token,
            back_off,
        };
        async move { drop(entries.take(&key, &step).await) }
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
