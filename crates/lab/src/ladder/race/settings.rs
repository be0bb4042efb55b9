//! How a race is run. Must never name a rung.

use std::time::Duration;

use crate::ladder::place::Place;

/// How a race is run.
#[derive(Debug, Clone)]
pub struct RaceSettings {
    /// Where.
    pub place: Place,
    /// How many clients, at most 200.
    pub clients: u8,
    /// How long a tick is; the TTLs of the rungs are two or so.
    pub tick: Duration,
    /// It ends after so many acquisitions,
    pub acquisitions: u64,
    /// or after so long.
    pub at_most: Duration,
    /// How long a client works once it has the lock, at most.
    pub work: Duration,
    /// How many of a thousand steps begin late, by up to three TTLs; so many commands arrive late where the rung has that.
    pub pauses: u64,
    /// What the random numbers begin with.
    pub seed: u64,
}

impl Default for RaceSettings {
    fn default() -> Self {
        Self {
            place: Place::Own,
            clients: 8,
            tick: Duration::from_millis(3),
            acquisitions: 100_000,
            at_most: Duration::from_secs(90),
            work: Duration::ZERO,
            pauses: 20,
            seed: 1,
        }
    }
}
