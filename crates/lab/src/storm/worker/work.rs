//! The work under a lock, independent of the lock's implementation: accesses of the resource, and its duration.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::sleep;

use super::log::{HistoryLog, Known, LeaseName};
use crate::storm::resource::{Access, Answer};

/// How long a holder takes between reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldPlan {
    Short,
    /// More than half of the TTL.
    Long,
    /// Longer than the TTL.
    Outlive,
}

impl HoldPlan {
    pub(super) fn draw(rng: &mut Rng, outlived_percent: u64, punctual: bool) -> Self {
        match rng.u64(..100) {
            drawn if punctual && drawn < 50 => Self::Long,
            _ if punctual => Self::Short,
            drawn if drawn < outlived_percent => Self::Outlive,
            drawn if drawn < outlived_percent + 3 => Self::Long,
            _ => Self::Short,
        }
    }

    /// Waits, in place of work.
    pub(super) async fn wait(self, rng: &mut Rng, ttl: Duration) {
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let stay = Duration::from_micros(match self {
            Self::Short => rng.u64(..3_000),
            Self::Long => ttl_us / 2 + rng.u64(..ttl_us / 3),
            Self::Outlive => ttl_us * 6 / 5 + rng.u64(..ttl_us),
        });
        sleep(stay).await;
    }
}

/// A connection to the resource. Each request belongs to an acquisition, and is recorded.
#[derive(Debug)]
pub(super) struct Visit {
    proc: u64,
    stream: BufReader<UnixStream>,
}

impl Visit {
    pub(super) async fn begin(socket: &Path, proc: u64) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.map_err(|error| format!("the resource does not answer: {error}"))?;
        Ok(Self {
            proc,
            stream: BufReader::new(stream),
        })
    }

    /// Reads, or writes on this version. Returns the version after it, unless the fence is refused.
    pub(super) async fn access(
        &mut self,
        log: &HistoryLog,
        name: &LeaseName,
        known: Known,
        base: Option<u64>,
    ) -> Result<Option<u64>, String> {
        let what = if base.is_some() { "write" } else { "read" };
        let op = log.invoke(what, name, known)?;
        let access = Access {
            lock: name.lock.clone(),
            slot: known.slot,
            proc: self.proc,
            fence: known.fence,
            base,
        };
        let answer = self.ask(&access).await;
        let Answer { accepted, version } =
            answer.map_err(|error| format!("the resource: {error}"))?;
        let read = (accepted && base.is_none()).then_some(version);
        log.decided(op, accepted, read)?;
        Ok(accepted.then_some(version))
    }

    async fn ask(&mut self, access: &Access) -> std::io::Result<Answer> {
        let line = format!("{}\n", json!(access));
        self.stream.get_mut().write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}
