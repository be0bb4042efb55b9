//! The rung P4, `SET key owner NX PX ttl`, work, `DEL key`: deliberately unsafe, so that the soak test must find violations.

use std::fs::File;
use std::time::Duration;

use fastrand::Rng;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::time::sleep;

use super::log::{self, Known, LeaseName};
use super::work::{HoldPlan, Visit};
use super::{Worker, WorkerConfig};
use crate::host_time;

const POLL: Duration = Duration::from_millis(5);

/// A user of plain keys.
#[derive(Debug)]
pub(super) struct Plain {
    client: redis::Client,
    connection: Option<MultiplexedConnection>,
}

impl Plain {
    pub(super) fn new(url: &str) -> Result<Self, String> {
        Ok(Self {
            client: redis::Client::open(url).map_err(|error| error.to_string())?,
            connection: None,
        })
    }

    /// Acquires the lock, works under it, and deletes the key.
    pub(super) async fn round(
        &mut self,
        worker: &Worker,
        name: &LeaseName,
        visit: &mut Visit,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let (log, ttl) = (&worker.log, worker.config.ttl());
        let op = log.invoke("acquire", name, Known::default())?;
        match self.acquire(name, ttl).await {
            Ok(true) => log.complete(op, "ok", Known::default())?,
            Ok(false) => return log.complete(op, "refused", Known::default()),
            Err(error) => return log.unknown(op, &error.to_string()),
        }
        let stay = HoldPlan::draw(rng, worker.config.outlived, worker.config.punctual);
        if let Some(version) = visit.access(log, name, Known::default(), None).await? {
            stay.wait(rng, ttl).await;
            visit
                .access(log, name, Known::default(), Some(version))
                .await?;
        }
        let op = log.invoke("release", name, Known::default())?;
        match self.release(name).await {
            Ok(whose) => {
                removed(&worker.config, name, whose.as_deref())?;
                log.complete(op, "ok", Known::default())
            }
            Err(error) => log.unknown(op, &error.to_string()),
        }
    }

    async fn acquire(&mut self, name: &LeaseName, ttl: Duration) -> redis::RedisResult<bool> {
        let until = host_time::up() + ttl * 8;
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        while host_time::up() < until {
            let mut set = redis::cmd("SET");
            set.arg(&name.lock)
                .arg(&name.owner)
                .arg("NX")
                .arg("PX")
                .arg(ttl_ms);
            let set: Option<String> = set.query_async(self.connection().await?).await?;
            if set.is_some() {
                return Ok(true);
            }
            sleep(POLL).await;
        }
        Ok(false)
    }

    /// `DEL`, which also returns the robbed owner.
    async fn release(&mut self, name: &LeaseName) -> redis::RedisResult<Option<String>> {
        let mut both = redis::pipe();
        both.atomic().get(&name.lock).del(&name.lock).ignore();
        let (whose,): (Option<String>,) = both.query_async(self.connection().await?).await?;
        Ok(whose)
    }

    async fn connection(&mut self) -> redis::RedisResult<&mut MultiplexedConnection> {
        let connected = match self.connection.take() {
            Some(connection) => connection,
            None => self.client.get_multiplexed_async_connection().await?,
        };
        Ok(self.connection.insert(connected))
    }
}

/// Appends to a file of all workers.
fn removed(config: &WorkerConfig, name: &LeaseName, whose: Option<&str>) -> Result<(), String> {
    let path = config.directory.join("store.jsonl");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    log::append(
        &file,
        json!({
            "ev": "removed", "lock": name.lock, "by": name.owner, "whose": whose.unwrap_or("none"),
            "at_ns": host_time::up_ns(),
        }),
    )
}
