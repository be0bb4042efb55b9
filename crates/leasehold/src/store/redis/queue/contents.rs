//! The queued steps, and the steps in flight. No step is in both places.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold_core::{LockName, Step};

use crate::clock::Moment;
use crate::error::StoreError;
use crate::store::contract::Done;
use crate::store::redis::codec::form::{Contended, Kind};

/// The state of the connection.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) enum ConnectionState {
    #[default]
    Connecting,
    /// It works. `listening` says whether it is subscribed to wakes.
    Up {
        listening: bool,
    },
    Down(StoreError),
}

/// A step and its caller.
pub(super) struct QueuedStep {
    /// The order of arrival, over all kinds.
    pub(super) sequence: u64,
    pub(super) name: LockName,
    pub(super) step: Step,
    pub(super) waiting: PendingReply,
}

/// The caller that waits for the answer to a step.
pub(super) struct PendingReply {
    /// Taken when the step is answered (SQ1).
    pub(super) done: Option<Done>,
    pub(super) until: Moment,
    pub(super) limit: Duration,
}

/// The queued steps, the steps in flight and the state of the connection.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) state: ConnectionState,
    /// Steps to be sent: one queue for each kind, since a batch has steps of one kind only.
    pub(super) queues: [VecDeque<QueuedStep>; Kind::ALL.len()],
    pub(super) next_sequence: u64,
    pub(super) contended: Contended,
    pub(super) under_way: HashMap<u64, (Kind, Vec<PendingReply>)>,
    pub(super) next_batch_id: u64,
    /// A request was not answered in time.
    pub(super) silent: bool,
    /// The server answered an out-of-band request as a replica does.
    pub(super) demoted: bool,
    /// When the sweeper runs next. No time limit passes before then.
    pub(super) sweep_at: Option<Moment>,
}
