//! What waits to be sent, and what was sent and waits for its answer. Must never have a step in both places.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold_core::{LockName, Step};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::store::contract::Done;
use crate::store::redis::codec::form::{Contended, Kind};

/// What is known of the connection.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) enum ConnectionState {
    #[default]
    Connecting,
    /// It works, and wakes are heard on it, or not.
    Up {
        listening: bool,
    },
    Down(StoreError),
}

/// A step and who waits for its answer.
pub(super) struct QueuedStep {
    /// When it came, among all.
    pub(super) sequence: u64,
    pub(super) name: LockName,
    pub(super) step: Step,
    pub(super) waiting: PendingReply,
}

/// Whoever waits for the answer to a step.
pub(super) struct PendingReply {
    /// Taken when it is answered (I1).
    pub(super) done: Option<Done>,
    pub(super) until: Moment,
    pub(super) limit: Duration,
}

/// The steps that wait and those that are under way, and what is known of the connection that carries them.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) state: ConnectionState,
    /// Waiting to be sent, one line for each kind, so that each fills batches of its own.
    pub(super) queues: [VecDeque<QueuedStep>; Kind::ALL.len()],
    pub(super) next_sequence: u64,
    pub(super) contended: Contended,
    pub(super) under_way: HashMap<u64, (Kind, Vec<PendingReply>)>,
    pub(super) next_batch_id: u64,
    /// A request was not answered in time.
    pub(super) silent: bool,
    /// It answered a request that is no step as a replica does.
    pub(super) demoted: bool,
    /// When the sweeper looks next: before then no time limit passes.
    pub(super) sweep_at: Option<Moment>,
}
