//! One server: its connection, its scripts, and the time limits of requests.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Step, Ttl};

use super::address::Address;
use super::connection::handle::ConnectionHandle;
use super::scripts::Scripts;
use super::seats::Seat;
use crate::clock::Clock;
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
}
