//! The guard of a cache: reads entries by the rules of a policy, with at most one load of an entry at a time.
//!
//! # Invariants
//!
//! - **G1** A cache, with all its clones, has at most one shared load of an entry, apart from loads that have lost their lease. It answers
//!   all callers of this process that ask meanwhile.
//! - **G2** A shared load is a task of the client, and its loader a task of the caller's runtime. Neither ends with the caller.
//! - **G3** A caller takes the result of a shared load as fresh only if the store said so after the caller asked, or if the load
//!   began after that.
//! - **G4** A shared load ends: by a value, a failure, the end of a back-off, or when no caller waits for another client's load any more. A
//!   shared load whose loader hangs answers no new caller once its lease is not renewed any more.
//! - **G5** A granted load is committed or abandoned, however the loader ends. If that request cannot be sent, the lease ends the load.
//! - **G6** A caller that gets a value loaded here finds it stored, if the store accepted it. The caller waits for that for at most 100 ms
//!   or its own limit.
//!
//! The single flight of `moka` cannot be the shared load. It gives a result to all who wait, whenever they asked (G3). It drops the loader
//! with the caller that polls it (G2). It has no stages, for a stale value meanwhile or a value on its way to the store (G6).

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Moment;
use leasehold::entries::{Entries, EntryListener};
use leasehold_core::cache::{Reply, Step, Version};
use leasehold_core::{ClientId, LockName};

use crate::load::{Call, Demand, Loader, Loads, Offer};
use crate::local_cache::{Limits, LocalCache, Lookup, ReadTicket};
use crate::telemetry::{Observation, Reading};
use crate::value::{Cached, Codec, Error, Origin, Refusal, decode};

/// How long the receiver of a loaded value waits until the store has it.
const STORING: Duration = Duration::from_millis(100);

/// The guard that a cache and its clones share. When the last of them goes, shared loads that only wait end; loads go on.
pub(crate) struct Guard {
    pub(crate) loads: Arc<Loads>,
    local: Option<LocalCache>,
}

/// A call with its loader.
pub(crate) struct Read {
    pub(crate) call: Call,
    pub(crate) loader: Box<dyn Loader>,
}

impl Guard {
    pub(crate) fn new(entries: &Entries, client: ClientId, local: Option<Limits>) -> Arc<Self> {
        let guard = Arc::new(Self {
            loads: Arc::new(Loads::new(entries.clone(), client)),
            local: local.map(LocalCache::new),
        });
        let listener: Weak<Self> = Arc::downgrade(&guard);
        entries.listen(listener);
        guard
    }

    /// A value by the rules of the policy: fresh, stale, loaded, or loaded by another caller.
    pub(crate) async fn get<V, C: Codec<V>>(&self, read: Read) -> Result<Cached<V>, Refusal> {
        let asked = self.now();
        let reading = self.loads.telemetry.read(&read.call.key, asked);
        let lookup = self.lookup(&read.call.key).await;
        self.get_after::<V, C>(read, asked, lookup, reading).await
    }

    /// The values of several entries, after one read of all of them.
    pub(crate) async fn get_many<V, C: Codec<V>>(
        &self,
        reads: Vec<Read>,
    ) -> Result<Vec<Result<Cached<V>, Refusal>>, Refusal> {
        let asked = self.now();
        let keys: Vec<_> = reads.iter().map(|read| read.call.key.clone()).collect();
        let reading = |key| self.loads.telemetry.read(key, asked);
        let mut readings: Vec<_> = keys.iter().map(reading).collect();
        let lookups = self.lookups(&keys).await.inspect_err(|refusal| {
            for reading in readings.drain(..) {
                reading.ended(Err(refusal));
            }
        })?;
        let answers = reads.into_iter().zip(lookups).zip(readings);
        let answers = answers.map(|((read, lookup), reading)| {
            self.get_after::<V, C>(read, asked, Ok(lookup), reading)
        });
        Ok(join_all(answers).await)
    }

    /// The stored value of `key`. Loads nothing.
    pub(crate) async fn find(&self, key: &LockName) -> Result<Lookup, Refusal> {
        let reading = self.loads.telemetry.read(key, self.now());
        let found = self.look(std::slice::from_ref(key), false).await;
        let found = found.map(|mut found| found.pop().unwrap_or_default());
        reading.ended(found.as_ref().and_then(|found| {
            let value = found.value.as_ref().ok_or(&Refusal::Nothing)?;
            Ok(value.header.standing(found.now_ms).into())
        }));
        found
    }

    /// Makes the stored value stale, or removes it, and also the values of loads under way.
    pub(crate) async fn invalidate(&self, key: &LockName, remove: bool) -> Result<(), Error> {
        let entries = &self.loads.entries;
        let taken = entries.take(key, &Step::Invalidate { remove }).await;
        let refusal = match taken.map(|taken| taken.reply) {
            Ok(Reply::Invalidated) => None,
            Ok(Reply::Foreign(kind)) => Some(Refusal::Foreign(kind)),
            Ok(other) => Some(entries.unexpected(&other).into()),
            Err(error) => Some(error.into()),
        };
        let error = refusal.map(|refusal| refusal.into_error(key, self.now()));
        let invalidated = Observation::Invalidated(error.as_ref());
        self.loads.telemetry.observe(key, invalidated);
        error.map_or(Ok(()), Err)
    }

    /// The value of one key, as [`Guard::lookups`] finds it.
    async fn lookup(&self, key: &LockName) -> Result<Lookup, Refusal> {
        let found = self.lookups(std::slice::from_ref(key)).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// The values of `keys`, in their order: from the local cache, or else from the store by one read.
    async fn lookups(&self, keys: &[LockName]) -> Result<Vec<Lookup>, Refusal> {
        let asked = self.now();
        let Some(local) = &self.local else {
            return self.look(keys, false).await;
        };
        let kept: Vec<_> = keys.iter().map(|key| local.get(key, asked)).collect();
        let missing = keys.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let missing: Vec<LockName> = missing.map(|(key, _)| key.clone()).collect();
        if missing.is_empty() {
            return Ok(kept.into_iter().flatten().collect());
        }
        let tickets: Vec<ReadTicket> = missing.iter().map(|key| local.ticket(key)).collect();
        let looked = self.look(&missing, true).await?.into_iter();
        let mut found = looked.zip(missing.iter().zip(tickets)).map(|(lookup, to)| {
            local.put(to.0, &lookup, asked, to.1);
            lookup
        });
        let all = kept.into_iter().map(|kept| kept.or_else(|| found.next()));
        Ok(all.flatten().collect())
    }

    /// The stored values of `keys`, in their order.
    async fn look(&self, keys: &[LockName], watch: bool) -> Result<Vec<Lookup>, Refusal> {
        let looked = self.loads.entries.look(keys, watch).await?;
        let now_ms = looked.now_ms;
        let lookup = |value| Lookup { value, now_ms };
        Ok(looked.values.into_iter().map(lookup).collect())
    }

    /// The answer for a call, given the result of the read that began at `asked`.
    async fn get_after<V, C: Codec<V>>(
        &self,
        read: Read,
        asked: Moment,
        lookup: Result<Lookup, Refusal>,
        mut reading: Reading<'_>,
    ) -> Result<Cached<V>, Refusal> {
        let answer = match lookup {
            Ok(lookup) => self.answer::<V, C>(read, asked, lookup, &mut reading).await,
            Err(refusal) => Err(refusal),
        };
        reading.ended(answer.as_ref().map(|cached| cached.origin));
        answer
    }

    async fn answer<V, C: Codec<V>>(
        &self,
        read: Read,
        asked: Moment,
        mut lookup: Lookup,
        reading: &mut Reading<'_>,
    ) -> Result<Cached<V>, Refusal> {
        let Read { call, loader } = read;
        let (loads, policy) = (&self.loads, &call.policy);
        let clock = loads.entries.clock();
        let limit = asked.after(policy.wait_at_most);
        let (mut loader, mut unread) = (Some(loader), Version::default());
        if call.scope.contains(loads.client, &call.key) {
            return Err(Refusal::Nested);
        }
        loop {
            let Lookup { value, now_ms } = &lookup;
            let stored = value.as_ref();
            let seen = stored.map_or(Version::default(), |value| value.header.version);
            let known = stored.and_then(|value| Cached::<V>::read::<C>(value, *now_ms).ok());
            let known = match (known, stored) {
                (Some(known), Some(stored))
                    if known.origin == Origin::Fresh || !policy.must_be_fresh =>
                {
                    let is_fresh = known.origin == Origin::Fresh;
                    // A fresh value is refreshed early if this reader draws the lot.
                    if !is_fresh || policy.draws(&stored.header, *now_ms) {
                        let joined = loads.join(&call, &mut loader, seen, is_fresh);
                        // A client that is closed refreshes nothing.
                        if is_fresh && matches!(joined, Ok((_, true))) {
                            let telemetry = &loads.telemetry;
                            telemetry.observe(&call.key, Observation::RefreshesEarly);
                        }
                    }
                    return Ok(known);
                }
                (known, _) => known,
            };
            // A value that the caller cannot decode must be replaced.
            let over = stored.is_some() && known.is_none();
            let (shared, is_leader) = loads.join(&call, &mut loader, seen, over)?;
            if let Some(loader) = &mut loader {
                loader.passed_over();
            }
            let want = Demand {
                asked,
                leads: is_leader,
                must_be_fresh: policy.must_be_fresh,
                unread,
            };
            reading.waits();
            let left = limit.since(clock.now());
            let refusal = match clock.within(left, shared.wait(&want)).await {
                None => Refusal::Busy(clock.now().since(asked)),
                Some(Err(refusal)) => refusal,
                Some(Ok(Offer { value, age, origin })) => {
                    unread = value.header.version;
                    if let Ok(value) = decode::<V, C>(&value) {
                        if origin != Origin::Stale {
                            let left = limit.since(clock.now()).min(STORING);
                            // A store that hangs does not keep the caller (G6).
                            let _ended: Option<()> = clock.within(left, shared.ended()).await;
                        }
                        let value = Arc::new(value);
                        return Ok(Cached { value, age, origin });
                    }
                    Refusal::Unreadable
                }
            };
            // A second attempt may succeed, or load by itself. Without a loader, it was this caller's own load that ended.
            let again =
                matches!(refusal, Refusal::Unreadable | Refusal::GaveUp) && loader.is_some();
            if !again || limit.since(clock.now()).is_zero() {
                let refusal = if again {
                    Refusal::Busy(clock.now().since(asked))
                } else {
                    refusal
                };
                if !policy.stale_if_error || matches!(refusal, Refusal::Nothing) {
                    return Err(refusal);
                }
                // A stale value that was found after the read is good enough too.
                let known = known.or_else(|| {
                    let found = shared.stale(asked)?;
                    Cached::read::<C>(&found.value, found.now_ms).ok()
                });
                let origin = Origin::Stale;
                return known.map(|known| Cached { origin, ..known }).ok_or(refusal);
            }
            // It still asks as of its first look: what begins to load after that will do, or it might never catch up with a source that
            // is invalidated all the time.
            lookup = self.lookup(&call.key).await?;
        }
    }

    fn now(&self) -> Moment {
        self.loads.entries.clock().now()
    }
}

impl EntryListener for Guard {
    fn changed(&self, keys: Option<&[LockName]>) {
        match (&self.local, keys) {
            (None, _) => {}
            (Some(local), None) => local.forget_all(),
            (Some(local), Some(keys)) => keys.iter().for_each(|key| local.forget(key)),
        }
    }

    fn load_ended(&self, key: Option<&LockName>) {
        self.loads.wake(key);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.loads.leave();
    }
}
