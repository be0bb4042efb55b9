//! The steps of the timestamp protocol on a server. The scripts under `lua/timestamp` implement the rules, or
//! `leasehold_core::timestamp` for a server without scripts.

mod plain;
mod reply;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::timestamp::{Reply, Step, Unit};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult};

use self::reply::{decode, no_known_form};
use super::connection::current::Connected;
use super::node::Node;
use super::scripts::{Scripts, TIMESTAMP_ACQUIRE, TIMESTAMP_EXTEND, TIMESTAMP_RELEASE};
use crate::error::StoreError;
use crate::store::timestamps::{TimestampRequest, Timestamps};

impl Node {
    fn limit_of_timestamp(&self, ask: &TimestampRequest) -> Duration {
        match &ask.step {
            Step::Acquire { ttl } | Step::Extend { ttl, .. } if !ask.is_last => {
                self.limit_within(*ttl)
            }
            _ => self.limit,
        }
    }
}

impl Timestamps for Node {
    fn take<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        let take = async move |connected: &Connected| {
            let mut connection = connected.connection.clone();
            if ask.by_script {
                by_script(&self.scripts, &mut connection, name, ask.unit, &ask.step).await
            } else {
                plain::take(&mut connection, name, ask.unit, &ask.step).await
            }
        };
        self.connection
            .call(self.limit_of_timestamp(ask), take)
            .boxed()
    }
}

/// Executes a step as one script.
pub(super) async fn by_script(
    scripts: &Scripts,
    connection: &mut MultiplexedConnection,
    name: &LockName,
    unit: Unit,
    step: &Step,
) -> RedisResult<Reply> {
    let script = match step {
        Step::Acquire { .. } => TIMESTAMP_ACQUIRE,
        Step::Extend { .. } => TIMESTAMP_EXTEND,
        Step::Release { .. } => TIMESTAMP_RELEASE,
    };
    let write = |command: &mut Cmd| {
        command.arg(1).arg(name.key()).arg(unit.micros());
        match step {
            Step::Acquire { ttl } => command.arg(unit.whole(ttl.get())),
            Step::Extend { to, ttl, mine } => command.arg(unit.whole(ttl.get())).arg(to).arg(mine),
            Step::Release { mine } => command.arg(mine),
        };
    };
    let value = scripts.run(script, connection, write).await?;
    decode(&value).ok_or_else(|| no_known_form(&value))
}
