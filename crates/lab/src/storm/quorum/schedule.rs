//! The faults of a storm on a quorum, drawn from a seed.
//!
//! A round has a part in which at most two nodes are unwell at a time, and a part in which three are at once. Two series of
//! faults make up the first part. A loss of memory lasts until the quarantine of its node is over.

use std::time::Duration;

use crate::history::FaultKind::{
    self, BlackHole, BlackHoleReplies, BlackHoleRequests, ClockBack, ClockForward, Copy, Flush,
    HalfOpen, KillServer, KillWorker, Slow, StopServer, StopWorker,
};
use crate::rng::Rng;
use crate::storm::stage::{PlannedFault, draw};

/// The faults after which a node has forgotten.
const LOSSES: [FaultKind; 3] = [KillServer, Flush, Copy];

/// The faults that a node survives with its memory.
const PASSING: [FaultKind; 8] = [
    StopServer,
    BlackHole,
    BlackHoleRequests,
    BlackHoleReplies,
    HalfOpen,
    Slow,
    ClockForward,
    ClockBack,
];

/// The faults of a majority.
const OF_MOST: [FaultKind; 3] = [StopServer, BlackHole, HalfOpen];

/// How many nodes are a majority.
const MOST: usize = 3;

/// How long a loss of memory keeps a node away: its quarantine, and the time until a client asks it.
const LOSS: Duration = Duration::from_millis(14_500);

/// The pause after a fault.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(400));

/// The pause between two faults of workers.
const WORKERS: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(700));

/// Whether nodes have forgotten after this fault.
pub(super) fn is_a_loss(kind: FaultKind) -> bool {
    LOSSES.contains(&kind)
}

/// The faults of a storm that lasts for `time`, by their beginning: the same for the same seed.
pub(super) fn storm(
    seed: u64,
    time: Duration,
    ttl: Duration,
    no_clock: Option<&str>,
) -> Vec<PlannedFault> {
    let mut faults = Draw {
        rng: Rng::new(seed),
        ttl,
        faults: Vec::new(),
    };
    let passing: Vec<FaultKind> = PASSING
        .into_iter()
        .filter(|kind| no_clock.is_none() || !matches!(kind, ClockForward | ClockBack))
        .collect();
    let mut at = Duration::ZERO;
    while at < time {
        let calm = faults.minority(at, &passing);
        at = faults.majority(calm, at > Duration::ZERO);
    }
    let mut at = faults.pause(WORKERS);
    while at < time {
        let kind = if faults.rng.below(5) < 3 {
            StopWorker
        } else {
            KillWorker
        };
        let lasts = draw(&mut faults.rng, ttl / 2, ttl * 5 / 2);
        faults.add(at, kind, lasts, 0);
        at += faults.pause(WORKERS);
    }
    let mut faults = faults.faults;
    faults.retain(|fault| fault.nodes == 0 || fault.at + fault.lasts <= time);
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Draws faults.
struct Draw {
    rng: Rng,
    ttl: Duration,
    faults: Vec<PlannedFault>,
}

impl Draw {
    /// The faults of single nodes, from then on. Returns the end of the last one.
    fn minority(&mut self, from: Duration, passing: &[FaultKind]) -> Duration {
        let [first, second, third] = self.shuffled(&LOSSES)[..] else {
            return from;
        };
        let mut one = from;
        for kind in [first, second] {
            one = self.add(one, kind, LOSS, 1);
        }
        let mut other = from + self.pause(PAUSE);
        for kind in self.shuffled(passing) {
            other = self.passing(other, kind, 1);
        }
        other = self.add(other, third, LOSS, 1);
        while other < one {
            for kind in self.shuffled(passing) {
                other = self.passing(other, kind, 1);
            }
        }
        one.max(other)
    }

    /// The faults of a majority, from then on, perhaps with a loss of its memory. Returns the end of the last one.
    fn majority(&mut self, from: Duration, forgets: bool) -> Duration {
        let mut at = from;
        for kind in self.shuffled(&OF_MOST) {
            at = self.passing(at + self.ttl, kind, MOST);
        }
        if forgets {
            let kind = if self.rng.below(2) == 0 {
                Flush
            } else {
                KillServer
            };
            at = self.add(at + self.ttl, kind, LOSS, MOST);
        }
        at + self.ttl
    }

    fn passing(&mut self, at: Duration, kind: FaultKind, nodes: usize) -> Duration {
        let lasts = draw(&mut self.rng, self.ttl / 2, self.ttl * 3 / 2);
        self.add(at, kind, lasts, nodes)
    }

    /// Adds a fault. Returns the time of the next one.
    fn add(&mut self, at: Duration, kind: FaultKind, lasts: Duration, nodes: usize) -> Duration {
        let whom = self.rng.next();
        self.faults.push(PlannedFault {
            at,
            kind,
            lasts,
            whom,
            nodes,
        });
        at + lasts + self.pause(PAUSE)
    }

    fn pause(&mut self, (least, more): (Duration, Duration)) -> Duration {
        draw(&mut self.rng, least, more)
    }

    fn shuffled(&mut self, kinds: &[FaultKind]) -> Vec<FaultKind> {
        let mut left = kinds.to_vec();
        let mut drawn = Vec::new();
        while !left.is_empty() {
            let at = self.rng.below(left.len() as u64);
            drawn.push(left.swap_remove(usize::try_from(at).unwrap_or_default()));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::stage::planned;

    const TTL: Duration = Duration::from_millis(500);

    fn of(seed: u64, seconds: u64) -> Vec<PlannedFault> {
        storm(seed, Duration::from_secs(seconds), TTL, None)
    }

    #[test]
    fn plan_follows_from_its_seed_and_has_every_fault() {
        for seed in 0..50 {
            let plan = of(seed, 45);
            assert_eq!(plan, of(seed, 45));
            assert_ne!(plan, of(seed + 1, 45));
            let planned = planned(&plan);
            for kind in LOSSES.iter().chain(&PASSING).chain(&OF_MOST) {
                assert!(planned.contains_key(kind), "seed {seed}: no {kind:?}");
            }
            assert!(plan.iter().any(|fault| fault.nodes == MOST), "seed {seed}");
        }
    }

    #[test]
    fn plan_keeps_a_majority_well_between_faults_of_a_majority() {
        for seed in 0..50 {
            let plan = of(seed, 300);
            let unwell = |at: Duration| -> usize {
                let now = plan
                    .iter()
                    .filter(|fault| fault.at <= at && at < fault.at + fault.lasts);
                now.map(|fault| fault.nodes).sum()
            };
            let most = plan.iter().filter(|fault| fault.nodes > 0);
            for fault in most {
                let allowed = if fault.nodes == MOST { MOST } else { 2 };
                assert!(unwell(fault.at) <= allowed, "seed {seed}: {fault:?}");
            }
            let forgets = |fault: &&PlannedFault| fault.nodes == MOST && is_a_loss(fault.kind);
            assert!(plan.iter().any(|fault| forgets(&fault)), "seed {seed}");
        }
    }
}
