//! What came of a race. Must never say why.

use serde::Serialize;

/// What came of a race.
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
    /// The same for each 100,000 acquisitions.
    pub overlaps_per_100k: f64,
    /// When that was first, in seconds since the race began; `None` if never.
    pub first_overlap_s: Option<f64>,
    /// How often nobody got the lock any more, although nobody alive held it, until the race deleted it. Here and
    /// below `None` where the rung does not ask for it.
    pub stuck: Option<u64>,
    /// How many acquisitions there were before that, on average.
    pub acquisitions_per_stuck: Option<f64>,
    /// Writes of an earlier holder that were accepted after one of a later holder.
    pub stale_writes: Option<u64>,
    /// Accepted writes that the data does not contain in the end.
    pub lost_updates: Option<u64>,
    /// Writes of a client that had lost the lock, while another held it.
    pub orphan_writes: Option<u64>,
    /// What went wrong on purpose.
    pub faults: Faults,
    /// Whether it is what the model says: what it calls broken broke, and what it calls safe did not.
    pub as_the_model_says: bool,
}

/// How often something went wrong on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Faults {
    /// Steps that began late.
    pub pauses: u64,
    /// Commands that arrived late.
    pub delays: u64,
    /// Commands that arrived after their client had given up.
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
    /// Whether it broke what its model exhausted. That a race did not show what its model breaks says only that it was too
    /// short or too calm.
    pub fn contradicts_the_model(&self) -> bool {
        self.breaks.is_none() && !self.as_the_model_says
    }
}

impl Faults {
    /// Counts those of another as well.
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
