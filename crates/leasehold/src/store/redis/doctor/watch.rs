//! Measures clocks and delays, with one request at a time.

use std::time::Duration;

use redis::cmd;

use super::talk::Talk;
use crate::clock::Clock;
use crate::error::StoreError;

/// How long the clocks are compared.
const STEP: Duration = Duration::from_secs(5);

/// How long this host is watched.
const STALL: Duration = Duration::from_secs(1);

/// No more answers than these, in no more time than this.
const PINGS: usize = 200;
const PING_TIME: Duration = Duration::from_secs(1);

/// How long 99 of 100 answers took at most.
pub(super) async fn ping(talk: &Talk, quick: bool) -> Result<Option<Duration>, StoreError> {
    let begun = talk.clock.now();
    let most = if quick { PINGS / 10 } else { PINGS };
    let mut took = Vec::new();
    while took.len() < most && talk.clock.now().since(begun) < PING_TIME {
        let sent = talk.clock.now();
        if talk.told::<String>(&cmd("PING")).await?.is_none() {
            return Ok(None);
        }
        took.push(talk.clock.now().since(sent));
    }
    took.sort_unstable();
    Ok(took
        .get((took.len() * 99).div_ceil(100).saturating_sub(1))
        .copied())
}

/// A look at the server's clock.
struct Look {
    /// The server's time and this host's, half-way through the request, in us; and its steady clock then.
    there: u64,
    here: u64,
    steady: u64,
    /// How long the request took.
    took: Duration,
}

/// The quickest of some looks, which is the most exact.
async fn look(talk: &Talk) -> Result<Option<Look>, StoreError> {
    let mut best: Option<Look> = None;
    for _ in 0..10 {
        let sent = talk.clock.store_now();
        let Some((seconds, micros)) = talk.told::<(u64, u64)>(&cmd("TIME")).await? else {
            return Ok(None);
        };
        let took = talk
            .clock
            .store_now()
            .clock_us
            .saturating_sub(sent.clock_us);
        let seen = Look {
            there: seconds * 1_000_000 + micros,
            here: sent.wall_us + took / 2,
            steady: sent.clock_us + took / 2,
            took: Duration::from_micros(took),
        };
        if best.as_ref().is_none_or(|best| seen.took < best.took) {
            best = Some(seen);
        }
    }
    Ok(best)
}

/// How far the server's clock is from this host's, and how exact that is.
pub(super) async fn offset(talk: &Talk) -> Result<Option<(Duration, Duration)>, StoreError> {
    let look = look(talk).await?;
    Ok(look.map(|look| {
        (
            Duration::from_micros(look.there.abs_diff(look.here)),
            look.took / 2,
        )
    }))
}

/// The difference between the time that passed there and here in a few seconds, beyond the error of both readings.
pub(super) async fn step(talk: &Talk) -> Result<Option<Duration>, StoreError> {
    let Some(first) = look(talk).await? else {
        return Ok(None);
    };
    talk.clock.sleep(STEP).await;
    Ok(look(talk).await?.map(|second| {
        let there = i128::from(second.there) - i128::from(first.there);
        let here = i128::from(second.steady) - i128::from(first.steady);
        let apart = u64::try_from((there - here).unsigned_abs()).unwrap_or(u64::MAX);
        Duration::from_micros(apart).saturating_sub((first.took + second.took) / 2)
    }))
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
