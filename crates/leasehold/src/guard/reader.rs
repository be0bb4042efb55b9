//! Reads of entries by the rules of the policy.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::LockName;
use leasehold_core::cache::{Header, Standing, Value, Version};

use super::answer::{Decoded, Origin, ReadAnswer, Refusal};
use super::guard_core::GuardCore;
use super::local_cache::ReadTicket;
use super::policy::Policy;
use super::reporting;
use super::request::ReadRequest;
use super::stage::{Demand, StaleValue, WaitResult};
use crate::clock::Moment;
use crate::telemetry::{Read, Reading};

/// How long the receiver of a loaded value waits until the store has it.
const STORING: Duration = Duration::from_millis(100);

/// The stored value of an entry, at this time of the store.
struct Lookup {
    value: Option<Value>,
    now_ms: u64,
}

/// A stored value that could be decoded.
struct Known {
    header: Header,
    value: Decoded,
    now_ms: u64,
}

impl Known {
    /// Decodes a value as the caller does, if that works.
    fn read(request: &ReadRequest, value: &Value, now_ms: u64) -> Option<Self> {
        Some(Self {
            header: value.header,
            value: (request.decode)(value)?,
            now_ms,
        })
    }

    fn serve(&self, origin: Origin) -> ReadAnswer {
        ReadAnswer {
            value: self.value.clone(),
            age: self.header.age(self.now_ms),
            origin,
        }
    }
}

impl GuardCore {
    /// A value by the rules of the policy: fresh, stale, loaded, or loaded by another caller.
    pub(crate) async fn get(self: Arc<Self>, request: ReadRequest) -> Result<ReadAnswer, Refusal> {
        let asked = self.engine.clock.now();
        let reading = self.reading(&request.key, asked);
        match self.lookup(&request.key).await {
            Ok(lookup) => self.get_after(request, asked, lookup, reading).await,
            Err(refusal) => {
                reading.ended(reporting::of(&refusal));
                Err(refusal)
            }
        }
    }

    /// The values of several entries, after one read of all of them.
    pub(crate) async fn get_many(
        self: Arc<Self>,
        requests: Vec<ReadRequest>,
    ) -> Result<Vec<Result<ReadAnswer, Refusal>>, Refusal> {
        let asked = self.engine.clock.now();
        let keys: Vec<_> = requests.iter().map(|request| request.key.clone()).collect();
        let mut readings: Vec<_> = keys.iter().map(|key| self.reading(key, asked)).collect();
        let lookups = self.lookups(&keys).await.inspect_err(|refusal| {
            for reading in readings.drain(..) {
                reading.ended(reporting::of(refusal));
            }
        })?;
        let answers = requests.into_iter().zip(lookups).zip(readings);
        let answers = answers
            .map(|((request, lookup), reading)| self.get_after(request, asked, lookup, reading));
        Ok(join_all(answers).await)
    }

    /// The stored value of `key` and the store's time. Loads nothing.
    pub(crate) async fn find(&self, key: &LockName) -> Result<Option<(Value, u64)>, Refusal> {
        let reading = self.reading(key, self.engine.clock.now());
        let looked = self.look(std::slice::from_ref(key)).await;
        let found = looked.map(|looked| {
            let value = looked.values.into_iter().next().flatten();
            value.map(|value| (value, looked.now_ms))
        });
        reading.ended(match &found {
            Ok(Some((value, now_ms))) => Origin::from(value.header.standing(*now_ms)).into(),
            Ok(None) => Read::Nothing,
            Err(refusal) => reporting::of(refusal),
        });
        found
    }

    fn reading(&self, key: &LockName, begun: Moment) -> Reading<'_> {
        self.engine.telemetry.read(key, &self.engine.clock, begun)
    }

    async fn lookup(&self, key: &LockName) -> Result<Lookup, Refusal> {
        let lookups = self.lookups(std::slice::from_ref(key)).await?;
        let nothing = Lookup {
            value: None,
            now_ms: 0,
        };
        Ok(lookups.into_iter().next().unwrap_or(nothing))
    }

    /// The values of `keys`: from the local cache, or else from the store by one read.
    async fn lookups(&self, keys: &[LockName]) -> Result<Vec<Lookup>, Refusal> {
        let asked = self.engine.clock.now();
        let Some(layer) = &self.layer else {
            let looked = self.look(keys).await?;
            let now_ms = looked.now_ms;
            let values = looked.values.into_iter();
            return Ok(values.map(|value| Lookup { value, now_ms }).collect());
        };
        let mut lookups: Vec<Option<Lookup>> = keys
            .iter()
            .map(|key| layer.get(key, asked))
            .map(|kept| {
                kept.map(|(value, now_ms)| Lookup {
                    value: Some(value),
                    now_ms,
                })
            })
            .collect();
        let missing = keys
            .iter()
            .zip(&lookups)
            .filter(|(_, lookup)| lookup.is_none());
        let missing: Vec<LockName> = missing.map(|(key, _)| key.clone()).collect();
        if !missing.is_empty() {
            let tickets: Vec<ReadTicket> = missing.iter().map(|key| layer.ticket(key)).collect();
            let looked = self.look(&missing).await?;
            let now_ms = looked.now_ms;
            let mut found = looked.values.into_iter().zip(missing.iter().zip(tickets));
            for lookup in lookups.iter_mut().filter(|lookup| lookup.is_none()) {
                let Some((value, (key, ticket))) = found.next() else {
                    break;
                };
                if let Some(value) = &value {
                    layer.put(key, value, now_ms, asked, ticket);
                }
                *lookup = Some(Lookup { value, now_ms });
            }
        }
        Ok(lookups.into_iter().flatten().collect())
    }

    /// The answer for a request, given the result of the read that began at `asked`.
    async fn get_after(
        self: &Arc<Self>,
        request: ReadRequest,
        asked: Moment,
        lookup: Lookup,
        mut reading: Reading<'_>,
    ) -> Result<ReadAnswer, Refusal> {
        let answer = self.answer(request, asked, lookup, &mut reading).await;
        reading.ended(match &answer {
            Ok(answer) => answer.origin.into(),
            Err(refusal) => reporting::of(refusal),
        });
        answer
    }

    async fn answer(
        self: &Arc<Self>,
        mut request: ReadRequest,
        asked: Moment,
        mut lookup: Lookup,
        reading: &mut Reading<'_>,
    ) -> Result<ReadAnswer, Refusal> {
        let clock = &self.engine.clock;
        let limit = asked.after(request.policy.wait_at_most);
        let mut unread = Version::default();
        if request.scope.contains(self, &request.key) {
            return Err(Refusal::Nested);
        }
        loop {
            let Lookup { value, now_ms } = &lookup;
            let known = value
                .as_ref()
                .and_then(|value| Known::read(&request, value, *now_ms));
            // A value that the caller cannot decode must be replaced.
            let over = value.is_some() && known.is_none();
            if let Some(known) = &known {
                let standing = known.header.standing(*now_ms);
                let is_fresh = standing == Standing::Fresh;
                if is_fresh || !request.policy.must_be_fresh {
                    // A fresh value is refreshed early if this reader draws the lot.
                    if !is_fresh || request.policy.draws(&known.header, *now_ms) {
                        self.refresh(&mut request, known.header.version, is_fresh);
                    }
                    return Ok(known.serve(standing.into()));
                }
            }
            let seen = value
                .as_ref()
                .map_or(Version::default(), |value| value.header.version);
            let (shared_load, leads) = self.join(&mut request, seen, over)?;
            if let Some(loader) = request.loader.as_mut() {
                loader.passed_over();
            }
            let want = Demand {
                asked,
                leads,
                must_be_fresh: request.policy.must_be_fresh,
                unread,
            };
            reading.waits();
            let left = limit.since(clock.now());
            let refusal = match clock.within(left, shared_load.wait(&want)).await {
                None => Refusal::Busy(clock.now().since(asked)),
                Some(WaitResult::Refuse(end)) => end.refusal(clock.now()),
                Some(WaitResult::Take { value, age, origin }) => {
                    unread = value.header.version;
                    if let Some(value) = (request.decode)(&value) {
                        if origin != Origin::Stale {
                            let left = limit.since(clock.now()).min(STORING);
                            // A store that hangs does not keep the caller (G6).
                            let _ended: Option<()> = clock.within(left, shared_load.ended()).await;
                        }
                        return Ok(ReadAnswer { value, age, origin });
                    }
                    Refusal::Unreadable
                }
                Some(WaitResult::Again) => Refusal::Unreadable,
            };
            // A second attempt may succeed, or load by itself.
            let again = matches!(refusal, Refusal::Unreadable | Refusal::GaveUp)
                && request.loader.is_some();
            let left = limit.since(clock.now());
            if !again || left.is_zero() {
                let refusal = if again {
                    Refusal::Busy(clock.now().since(asked))
                } else {
                    refusal
                };
                // A stale value that was found after the read is good enough too.
                let known = known.or_else(|| {
                    let StaleValue { value, now_ms, .. } = shared_load.stale(asked)?;
                    Known::read(&request, &value, now_ms)
                });
                return instead(&request.policy, known.as_ref(), refusal);
            }
            // It still asks as of its first look: what begins to load after that will do, or it might never catch up with a source that
            // is invalidated all the time.
            lookup = self.lookup(&request.key).await?;
        }
    }
}

/// The stale value instead of a refusal, if there is one and the policy allows it.
fn instead(
    policy: &Policy,
    known: Option<&Known>,
    refusal: Refusal,
) -> Result<ReadAnswer, Refusal> {
    let takes = policy.stale_if_error && !matches!(refusal, Refusal::Nothing);
    match known.filter(|_| takes) {
        Some(known) => Ok(known.serve(Origin::Stale)),
        None => Err(refusal),
    }
}
