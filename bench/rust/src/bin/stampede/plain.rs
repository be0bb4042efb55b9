//! Guards without a library: none, single-flight within a process, or a lock (`SET NX PX`) with polling waiters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use leasehold_bench::text;
use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use crate::source::Source;
use crate::{How, Keep};

#[derive(Clone, Copy)]
pub(crate) enum Way {
    None,
    Process,
    /// Waiters poll this often.
    Lock(Duration),
}

type Flight = Shared<BoxFuture<'static, Result<String, String>>>;

pub(crate) struct Plain {
    connection: MultiplexedConnection,
    way: Way,
    flights: Arc<Mutex<HashMap<String, Flight>>>,
    release: Arc<Script>,
}

impl Plain {
    pub(crate) async fn connect(url: &str, way: Way) -> Self {
        let client = redis::Client::open(url).expect("an address");
        let connection = client.get_multiplexed_async_connection().await;
        Self {
            connection: connection.expect("redis-server answers"),
            way,
            flights: Arc::default(),
            release: Arc::new(Script::new(leasehold_bench::RELEASE)),
        }
    }

    pub(crate) async fn get(
        &self,
        key: &str,
        keep: Keep,
        source: Source,
    ) -> Result<(String, How), String> {
        if let Some(value) = self.stored(key).await? {
            return Ok((value, How::Fresh));
        }
        match self.way {
            Way::None => {
                let value = load(self.connection.clone(), key.to_owned(), keep, source).await?;
                Ok((value, How::Loaded))
            }
            Way::Process => self.join(key, keep, source).await,
            Way::Lock(poll) => self.lock(key, keep, source, poll).await,
        }
    }

    pub(crate) async fn invalidate(&self, key: &str) -> Result<(), String> {
        cmd("DEL")
            .arg(key)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(text)
    }

    async fn stored(&self, key: &str) -> Result<Option<String>, String> {
        cmd("GET")
            .arg(key)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(text)
    }

    /// One load in this process, shared by all concurrent callers.
    async fn join(&self, key: &str, keep: Keep, source: Source) -> Result<(String, How), String> {
        let (flight, leads) = {
            let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            let under_way = flights.get(key).cloned();
            let leads = under_way.is_none();
            let flight = under_way.unwrap_or_else(|| {
                let (all, key, connection) = (
                    self.flights.clone(),
                    key.to_owned(),
                    self.connection.clone(),
                );
                let load = async move {
                    let value = load(connection, key.clone(), keep, source).await;
                    all.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&key);
                    value
                };
                load.boxed().shared()
            });
            flights.insert(key.to_owned(), flight.clone());
            (flight, leads)
        };
        let how = if leads { How::Loaded } else { How::Waited };
        flight.await.map(|value| (value, how))
    }

    /// The client that sets the lock loads; the others look for the value and try the lock after each `poll`.
    async fn lock(
        &self,
        key: &str,
        keep: Keep,
        source: Source,
        poll: Duration,
    ) -> Result<(String, How), String> {
        let (lock, token) = (
            format!("{key}:lock"),
            format!("{:x}", leasehold_bench::now_ns()),
        );
        let lease = u64::try_from(keep.lease.as_millis()).unwrap_or(u64::MAX);
        let mut connection = self.connection.clone();
        loop {
            let mut set = cmd("SET");
            set.arg(&lock).arg(&token).arg("NX").arg("PX").arg(lease);
            let taken: Option<String> = set.query_async(&mut connection).await.map_err(text)?;
            if taken.is_some() {
                break;
            }
            tokio::time::sleep(poll).await;
            if let Some(value) = self.stored(key).await? {
                return Ok((value, How::Waited));
            }
        }
        let answer = match self.stored(key).await? {
            Some(value) => Ok((value, How::Waited)),
            None => load(connection.clone(), key.to_owned(), keep, source)
                .await
                .map(|value| (value, How::Loaded)),
        };
        let released = self
            .release
            .key(&lock)
            .arg(&token)
            .invoke_async::<()>(&mut connection)
            .await;
        released.map_err(text)?;
        answer
    }
}

async fn load(
    mut connection: MultiplexedConnection,
    key: String,
    keep: Keep,
    source: Source,
) -> Result<String, String> {
    let value = source.read().await?;
    let fresh = u64::try_from(keep.fresh.as_millis()).unwrap_or(u64::MAX);
    let mut set = cmd("SET");
    set.arg(&key).arg(&value).arg("PX").arg(fresh);
    set.query_async::<()>(&mut connection).await.map_err(text)?;
    Ok(value)
}
