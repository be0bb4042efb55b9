//! The result of a race.

use serde::Serialize;

/// The result of a race.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Raced {
    /// The name of the rung.
    pub rung: &'static str,
    /// The property that the rung breaks in its model, or `None` if it breaks none.
    pub breaks: Option<&'static str>,
    /// How many clients ran.
    pub clients: u8,
    /// How long a tick was, in milliseconds.
    pub tick_ms: f64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// How often a client got the lock.
    pub acquisitions: u64,
    /// How often a client got the lock while another held it, each by its own clock.
    pub overlaps: u64,
    /// The number of overlaps per 100,000 acquisitions.
    pub overlaps_per_100k: f64,
    /// The first overlap, in seconds since the race began; `None` if never.
    pub first_overlap_s: Option<f64>,
    /// How often the lock was stuck, without a living holder, until the race deleted it. Here and below `None` if the rung does not
    /// require it.
    pub stuck: Option<u64>,
    /// How many acquisitions there were before that, on average.
    pub acquisitions_per_stuck: Option<f64>,
    /// Writes of an earlier holder that were accepted after one of a later holder.
    pub stale_writes: Option<u64>,
    /// Holds whose fence is not above that of a hold before them.
    pub low_fences: Option<u64>,
    /// Accepted writes that the data does not contain in the end.
    pub lost_updates: Option<u64>,
    /// Writes of a client that had lost the lock, while another held it.
    pub orphan_writes: Option<u64>,
    /// The faults.
    pub faults: Faults,
    /// Whether it agrees with the model: rungs with a violation showed it, and others did not.
    pub as_the_model_says: bool,
}

/// The number of faults of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Faults {
    /// Steps that began late.
    pub pauses: u64,
    /// Commands that arrived late.
    pub delays: u64,
    /// Commands that arrived after their client had abandoned them.
    pub given_up: u64,
    /// Replies that were lost.
    pub losses: u64,
    /// Clients that died.
    pub crashes: u64,
    /// Servers that lost their data.
    pub restarts: u64,
    /// Clocks that jumped ahead.
    pub jumps: u64,
}

impl Raced {
    /// Whether it violated a property that its model exhausted. If a race does not show a violation of its model, it was too short
    /// or too calm.
    pub fn contradicts_the_model(&self) -> bool {
        self.breaks.is_none() && !self.as_the_model_says
    }
}

impl Faults {
    /// Adds the counts of another round.
    pub(super) fn add(&mut self, more: &Self) {
        self.pauses += more.pauses;
        self.delays += more.delays;
        self.given_up += more.given_up;
        self.losses += more.losses;
        self.crashes += more.crashes;
        self.restarts += more.restarts;
        self.jumps += more.jumps;
    }
}
