//! The parts of a history: planned events, requests on their way, connections and clients.

use leasehold_core::{LockName, Step};

use crate::lease::effects::To;
use crate::lease::tests::simulation::client::Client;
use crate::store::quorum::{Purpose, QuorumMachine, QuorumTimer};
use crate::store::{Answer, Notice};

/// A planned event. A client and a node stand for the connection between them.
pub(super) enum What {
    /// A user makes its next move, if it is still at that turn.
    Move {
        client: usize,
        user: usize,
        turn: u32,
    },
    /// A client that stood still hands a step to its quorum.
    Asks(usize, LockName, Step, To),
    /// The first timer of a client.
    Timer(usize),
    /// A timer of the machine of votes.
    QuorumTimer(usize, QuorumTimer),
    /// A request reaches its node.
    Arrive(u64),
    /// A request of an earlier connection reaches its node, if that has not been started again since.
    Late((usize, usize), LockName, Step, u32),
    /// An answer reaches its client.
    Answer(u64, Answer),
    /// No answer to this request came in time.
    Silence(u64),
    /// A notice reaches its client, in this epoch of the connection.
    Notice((usize, usize), u32, Notice),
    /// A connection ends, if this epoch of it lasts.
    Cut((usize, usize), u32),
    /// A client connects to a node anew.
    Connect((usize, usize)),
    /// A random fault.
    Trouble,
}

/// A request on its way.
pub(super) struct Flight {
    pub(super) link: (usize, usize),
    pub(super) name: LockName,
    pub(super) step: Step,
    pub(super) purpose: Purpose,
    pub(super) arrived: bool,
    /// When its client gives it up.
    pub(super) until: u64,
}

/// The connection between a client and a node.
#[derive(Default)]
pub(super) struct Link {
    pub(super) connected: bool,
    pub(super) epoch: u32,
    /// When the last message of each kind arrives: proposals, requests that name a fence, answers, notices.
    pub(super) last: [u64; 4],
}

/// A client of the quorum.
pub(super) struct Member {
    pub(super) client: Client,
    pub(super) quorum: QuorumMachine<To>,
    /// Its wall clock at the begin of the history, in microseconds.
    pub(super) wall_us: u64,
    pub(super) links: Vec<Link>,
    pub(super) timer: Option<u64>,
}
