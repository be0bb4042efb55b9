//! Asks the examined server over one connection, and measures its delays and its clock. A server that refuses a request has answered it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};

use super::super::address::Address;
use super::super::connection::link::Wire;
use super::super::fault::classify;
use super::super::scripts::Scripts;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};

/// How long the clocks are compared.
const STEP: Duration = Duration::from_secs(5);

/// How long this host is watched.
const STALL: Duration = Duration::from_secs(1);

/// No more pings than these, in no more time than this.
const PINGS: usize = 200;
const PING_TIME: Duration = Duration::from_secs(1);

/// The reply to a request, which may be a refusal. The error: there is no reply, and the connection is of no use any more.
pub(super) type Answered<T> = Result<RedisResult<T>, StoreError>;

/// The facts of a request, unless the server refuses it. The error: as for [`Answered`].
pub(super) type Told<T> = Result<Option<T>, StoreError>;

/// A connection to ask over.
pub(super) struct Talk<'a> {
    pub(super) wire: Wire,
    /// The scripts that are tried.
    pub(super) scripts: Arc<Scripts>,
    pub(super) address: &'a Address,
    pub(super) clock: &'a Clock,
    /// How long an answer may take.
    pub(super) limit: Duration,
}

/// A look at the server's clock, half-way through the request, in us.
struct Look {
    there_us: u64,
    /// This host's time then.
    here_us: u64,
    /// This host's steady clock then.
    steady_us: u64,
    /// How long the request took.
    took: Duration,
}

impl Talk<'_> {
    /// Asks, and waits for the answer.
    pub(super) async fn ask<T: FromRedisValue>(&self, request: &Cmd) -> Answered<T> {
        let mut wire = self.wire.clone();
        let answer = request.query_async::<Value>(&mut wire);
        let value = self.answered(answer).await?;
        // An answer of another form is none.
        Ok(value.and_then(|value| T::from_redis_value(value).map_err(RedisError::from)))
    }

    /// Asks, and takes a refusal for no fact.
    pub(super) async fn told<T: FromRedisValue>(&self, request: &Cmd) -> Told<T> {
        Ok(self.ask(request).await?.ok())
    }

    /// Waits for the answer to a request that was made elsewhere.
    pub(super) async fn answered<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Answered<T> {
        let store = || self.address.to_string();
        match self.clock.within(self.limit, answer).await {
            None => {
                let detail = format!("waited {:.1?}", self.limit);
                Err(StoreError::new(store(), StoreErrorKind::TimedOut, detail))
            }
            Some(Err(error)) => match classify(&store(), &error) {
                (_, true) => Ok(Err(error)),
                (mut lost, false) => {
                    lost.may_have_taken_effect = false;
                    Err(lost)
                }
            },
            Some(answer) => Ok(answer),
        }
    }

    /// How long 99 of 100 answers took at most.
    pub(super) async fn ping(&self, quick: bool) -> Told<Duration> {
        let begun = self.clock.now();
        let most = if quick { PINGS / 10 } else { PINGS };
        let mut took = Vec::new();
        while took.len() < most && self.clock.now().since(begun) < PING_TIME {
            let sent = self.clock.now();
            if self.told::<String>(&cmd("PING")).await?.is_none() {
                return Ok(None);
            }
            took.push(self.clock.now().since(sent));
        }
        took.sort_unstable();
        let last = (took.len() * 99).div_ceil(100).saturating_sub(1);
        Ok(took.get(last).copied())
    }

    /// How far the server's clock is from this host's, and how exact that is.
    pub(super) async fn offset(&self) -> Told<(Duration, Duration)> {
        let offset = |look: Look| {
            let apart = look.there_us.abs_diff(look.here_us);
            (Duration::from_micros(apart), look.took / 2)
        };
        Ok(self.look().await?.map(offset))
    }

    /// The difference between the time that passed there and here in a few seconds, beyond the error of both readings.
    pub(super) async fn step(&self) -> Told<Duration> {
        let Some(first) = self.look().await? else {
            return Ok(None);
        };
        self.clock.sleep(STEP).await;
        Ok(self.look().await?.map(|second| {
            let there = i128::from(second.there_us) - i128::from(first.there_us);
            let here = i128::from(second.steady_us) - i128::from(first.steady_us);
            let apart = u64::try_from((there - here).unsigned_abs()).unwrap_or(u64::MAX);
            Duration::from_micros(apart).saturating_sub((first.took + second.took) / 2)
        }))
    }

    /// The quickest of some looks at the server's clock, which is the most exact.
    async fn look(&self) -> Told<Look> {
        let mut best: Option<Look> = None;
        for _ in 0..10 {
            let sent = self.clock.store_now();
            let Some((seconds, micros)) = self.told::<(u64, u64)>(&cmd("TIME")).await? else {
                return Ok(None);
            };
            let now_us = self.clock.store_now().clock_us;
            let took_us = now_us.saturating_sub(sent.clock_us);
            let took = Duration::from_micros(took_us);
            if best.as_ref().is_none_or(|best| took < best.took) {
                best = Some(Look {
                    there_us: seconds * 1_000_000 + micros,
                    here_us: sent.wall_us + took_us / 2,
                    steady_us: sent.clock_us + took_us / 2,
                    took,
                });
            }
        }
        Ok(best)
    }
}

/// How long this host let a timer wait beyond its time.
pub(super) async fn stall(clock: &Clock) -> Duration {
    let pause = Duration::from_millis(2);
    let begun = clock.now();
    let mut longest = Duration::ZERO;
    while clock.now().since(begun) < STALL {
        let slept = clock.now();
        clock.sleep(pause).await;
        longest = longest.max(clock.now().since(slept).saturating_sub(pause));
    }
    longest
}
