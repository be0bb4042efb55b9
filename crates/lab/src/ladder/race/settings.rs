//! The settings of a race.

use std::time::Duration;

use crate::ladder::place::Place;

/// The settings of a race.
#[derive(Debug, Clone)]
pub struct RaceSettings {
    /// The servers.
    pub place: Place,
    /// How many clients, at most 200.
    pub clients: u8,
    /// How long a tick is; the TTLs of the rungs are two or so.
    pub tick: Duration,
    /// The number of acquisitions after which it ends.
    pub acquisitions: u64,
    /// The time after which it ends.
    pub at_most: Duration,
    /// How long a client works once it has the lock, at most.
    pub work: Duration,
    /// How many of 1000 steps begin late, by up to three TTLs; as many commands arrive late if the rung allows that.
    pub pauses: u64,
    /// The seed of the random numbers.
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
