//! The faults of a storm on a quorum, drawn from a seed.
//!
//! A round has a part in which at most two nodes are unwell at a time, and a part in which three are at once. Two series of
//! faults make up the first part. A loss of memory lasts until the quarantine of its node is over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::FaultKind::{
    self, BlackHole, BlackHoleReplies, BlackHoleRequests, ClockBack, ClockForward, Copy, Flush,
    HalfOpen, KillServer, KillWorker, Slow, StopServer, StopWorker,
};
use crate::rng::Rng;

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

/// A planned fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeFault {
    /// The time after the beginning of the storm.
    pub(super) at: Duration,
    pub(super) kind: FaultKind,
    pub(super) lasts: Duration,
    /// Selects the nodes or the worker, and the size of the fault.
    pub(super) whom: u64,
    /// How many nodes it concerns; 0 for a worker.
    pub(super) nodes: usize,
}

impl NodeFault {
    /// Whether its nodes have forgotten afterwards.
    pub(super) fn is_a_loss(&self) -> bool {
        LOSSES.contains(&self.kind)
    }
}

/// The faults of a storm that lasts for `time`, by their beginning: the same for the same seed.
pub(super) fn storm(
    seed: u64,
    time: Duration,
    ttl: Duration,
    no_clock: Option<&str>,
) -> Vec<NodeFault> {
    let mut draw = Draw {
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
        let calm = draw.minority(at, &passing);
        at = draw.majority(calm, at > Duration::ZERO);
    }
    let mut at = draw.part(WORKERS);
    while at < time {
        let kind = if draw.rng.below(5) < 3 {
            StopWorker
        } else {
            KillWorker
        };
        let lasts = draw.about(ttl / 2, ttl * 5 / 2);
        draw.add(at, kind, lasts, 0);
        at += draw.part(WORKERS);
    }
    let mut faults = draw.faults;
    faults.retain(|fault| fault.nodes == 0 || fault.at + fault.lasts <= time);
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// The planned number of each kind.
pub(super) fn planned(faults: &[NodeFault]) -> BTreeMap<FaultKind, u64> {
    let mut planned = BTreeMap::new();
    for fault in faults {
        *planned.entry(fault.kind).or_default() += fault.nodes.max(1) as u64;
    }
    planned
}

/// Draws faults.
struct Draw {
    rng: Rng,
    ttl: Duration,
    faults: Vec<NodeFault>,
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
        let mut other = from + self.part(PAUSE);
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
        let lasts = self.about(self.ttl / 2, self.ttl * 3 / 2);
        self.add(at, kind, lasts, nodes)
    }

    /// Adds a fault. Returns the time of the next one.
    fn add(&mut self, at: Duration, kind: FaultKind, lasts: Duration, nodes: usize) -> Duration {
        let whom = self.rng.next();
        self.faults.push(NodeFault {
            at,
            kind,
            lasts,
            whom,
            nodes,
        });
        at + lasts + self.part(PAUSE)
    }

    fn about(&mut self, least: Duration, more: Duration) -> Duration {
        self.part((least, more))
    }

    /// At least the first, and at most the second besides.
    fn part(&mut self, (least, more): (Duration, Duration)) -> Duration {
        let more = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(self.rng.below(more))
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

    const TTL: Duration = Duration::from_millis(500);

    fn of(seed: u64, seconds: u64) -> Vec<NodeFault> {
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
            let forgets = |fault: &&NodeFault| fault.nodes == MOST && fault.is_a_loss();
            assert!(plan.iter().any(|fault| forgets(&fault)), "seed {seed}");
        }
    }
}
