//! The server: it takes one step at a time, in the order of their arrival.

/// When the server is free, and how busy it was.
#[derive(Debug, Default)]
pub(super) struct SimulatedServer {
    free_at: u64,
    /// The total time of all steps that have arrived, done or not.
    work: u64,
    steps: u64,
    /// Busy time and step count when the measurement began, and its time.
    since: (u64, u64, u64),
}

impl SimulatedServer {
    /// When a step that arrives at `now` is started.
    pub(super) fn begins(&self, now: u64) -> u64 {
        self.free_at.max(now)
    }

    /// The step that has just arrived takes `cost`. Returns when it is done.
    pub(super) fn serve(&mut self, now: u64, cost: u64) -> u64 {
        self.free_at = self.begins(now) + cost;
        self.work += cost;
        self.steps += 1;
        self.free_at
    }

    /// Starts the measurement.
    pub(super) fn measure_from(&mut self, now: u64) {
        self.since = (self.done(now), self.steps, now);
    }

    /// How many steps arrived, and how many of how many nanoseconds it was busy.
    pub(super) fn measured(&self, now: u64) -> (u64, u64, u64) {
        let (work, steps, at) = self.since;
        (self.steps - steps, self.done(now) - work, now - at)
    }

    /// The backlog is processed without a break, so all other work is done.
    fn done(&self, now: u64) -> u64 {
        self.work - self.free_at.saturating_sub(now)
    }
}
