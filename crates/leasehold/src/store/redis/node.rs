//! One server: its connection, its scripts, the time limits of requests, and the index of names for operators.
//!
//! The index is only a hint: a name may be missing, or remain for too long.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Step, Ttl};
use redis::{Cmd, RedisResult, Value, cmd, pipe};

use super::address::Address;
use super::codec::reply;
use super::codec::words::{INDEX, QUEUE};
use super::connection::current::Connected;
use super::connection::handle::ConnectionHandle;
use super::fault::is_denied;
use super::scripts::{self, Scripts};
use super::seats::Seat;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Done};

/// A connection to one server, and the scripts it runs there.
pub(super) struct Node {
    pub(super) connection: ConnectionHandle,
    pub(super) scripts: Arc<Scripts>,
    /// The longest time limit of a request.
    pub(super) limit: Duration,
}

impl Node {
    /// Begins to connect.
    pub(super) fn open(
        address: Address,
        attach: Attach,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
        scripts: Scripts,
        seat: Option<Seat>,
    ) -> Self {
        let scripts = Arc::new(scripts);
        let connection =
            ConnectionHandle::open(address, attach, scripts.clone(), clock, tasks, limit, seat);
        Self {
            connection,
            scripts,
            limit,
        }
    }

    /// Sends a step. The answer comes within its time limit.
    pub(super) fn send(&self, name: &LockName, step: Step, done: Done) {
        let limit = self.limit_of(&step);
        self.connection.send(name, step, done, limit);
    }

    /// A third of the TTL, so that a lease survives two requests without an answer.
    pub(super) fn limit_within(&self, ttl: Ttl) -> Duration {
        (ttl.get() / 3).min(self.limit)
    }

    fn limit_of(&self, step: &Step) -> Duration {
        match step {
            Step::Acquire { ttl, .. } | Step::Extend { ttl, .. } => self.limit_within(*ttl),
            Step::Propose(proposal) => self.limit_within(proposal.ttl),
            Step::Release { .. } | Step::GiveBack { .. } | Step::Break { .. } | Step::Inspect => {
                self.limit
            }
        }
    }

    /// Adds a name to the index.
    pub(super) async fn remember(&self, name: &LockName) -> Result<(), StoreError> {
        let add = async |connected: &Connected| {
            let mut connection = connected.connection.clone();
            let write = |command: &mut Cmd| {
                command.arg(1).arg(INDEX).arg(name.key());
            };
            self.scripts
                .run(scripts::INDEX, &mut connection, write)
                .await
        };
        self.connection.call(self.limit, add).await.map(drop)
    }

    /// Reads the index. Removes the names that have neither a lock nor a queue. A name that this user may not look at stays.
    pub(super) async fn names(&self) -> Result<Vec<String>, StoreError> {
        let list = async |connected: &Connected| {
            cmd("ZRANGE")
                .arg(INDEX)
                .arg(0)
                .arg(-1)
                .query_async(&mut connected.connection.clone())
                .await
        };
        let names = reply::texts(&self.connection.call(self.limit, list).await?);
        if names.is_empty() {
            return Ok(names);
        }
        let mut exist = pipe();
        for name in &names {
            exist
                .cmd("EXISTS")
                .arg(name)
                .arg(LockName::from_key(name).beside(QUEUE));
        }
        exist.ignore_errors();
        let look = async |connected: &Connected| {
            let mut connection = connected.connection.clone();
            let said: Vec<RedisResult<Value>> = exist.query_async(&mut connection).await?;
            let is_gone = |said: RedisResult<Value>| match said {
                Err(error) if is_denied(&error) => Ok(false),
                said => Ok(redis::from_redis_value::<u64>(said?)? == 0),
            };
            said.into_iter().map(is_gone).collect::<RedisResult<_>>()
        };
        let is_gone: Vec<bool> = self.connection.call(self.limit, look).await?;
        let (kept, gone): (Vec<_>, Vec<_>) =
            names.into_iter().zip(is_gone).partition(|(_, gone)| !gone);
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().map(|(name, _)| name).collect();
            let forget = async |connected: &Connected| {
                cmd("ZREM")
                    .arg(INDEX)
                    .arg(&gone)
                    .query_async::<Value>(&mut connected.connection.clone())
                    .await
            };
            // Ignored: reading also has to work on a read-only server, and without permission to write.
            let _forgotten: Result<Value, StoreError> =
                self.connection.call(self.limit, forget).await;
        }
        Ok(kept.into_iter().map(|(name, _)| name).collect())
    }
}
