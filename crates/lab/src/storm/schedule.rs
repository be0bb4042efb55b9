//! The faults of a storm, drawn from a seed: the same for the same seed.
//!
//! One server has one fault after the other. A round on a quorum has a part in which at most two nodes are unwell at a time, and
//! a part in which three are at once. Two series of faults make up the first part. A loss of memory lasts until the quarantine of
//! its node is over; two nodes lose it once more in that time. A clock is set forward last: its node draws fences that others refuse
//! for as long as it was ahead. The part of three nodes falls into that time, and the next round waits for its end.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use crate::history::FaultKind::{
    self, BlackHole, BlackHoleReplies, BlackHoleRequests, BreakLock, ClientKill, ClockBack,
    ClockForward, Copy, Evict, Failover, Flush, HalfOpen, KillServer, KillWorker, Memory, MoveSlot,
    RestartServer, Rollback, ScriptFlush, Slow, StopServer, StopWorker,
};

/// The faults on one server, in each round of nineteen.
const ON_A_SERVER: [FaultKind; 19] = [
    StopWorker,
    StopWorker,
    StopWorker,
    KillWorker,
    KillWorker,
    StopServer,
    KillServer,
    ScriptFlush,
    ClientKill,
    Memory,
    Failover,
    BlackHole,
    BlackHoleRequests,
    BlackHoleReplies,
    Evict,
    BreakLock,
    BreakLock,
    ClockForward,
    ClockBack,
];

/// The faults on a cluster. Under sentinels, no slot moves.
pub(super) const ON_A_FLEET: [FaultKind; 16] = [
    Failover,
    Failover,
    Failover,
    MoveSlot,
    MoveSlot,
    StopServer,
    KillServer,
    ScriptFlush,
    ClientKill,
    BreakLock,
    BreakLock,
    StopWorker,
    StopWorker,
    StopWorker,
    KillWorker,
    KillWorker,
];

/// The faults where the server is left alone.
const WORKERS_ONLY: [FaultKind; 3] = [StopWorker, StopWorker, KillWorker];

/// The faults after which a node of a quorum may have forgotten.
const LOSSES: [FaultKind; 5] = [KillServer, RestartServer, Rollback, Flush, Copy];

/// Those that can happen to a majority: no other nodes are needed.
const LOSSES_OF_MOST: [FaultKind; 4] = [KillServer, RestartServer, Rollback, Flush];

/// The faults that a node survives with its memory, but for a clock that is set forward.
const PASSING: [FaultKind; 8] = [
    StopServer,
    BlackHole,
    BlackHoleRequests,
    BlackHoleReplies,
    HalfOpen,
    Slow,
    Memory,
    ClockBack,
];

/// The faults of a majority of nodes.
const OF_MOST: [FaultKind; 3] = [StopServer, BlackHole, HalfOpen];

/// How many nodes are a majority.
const MOST: usize = 3;

/// The size of a jump of a single server's clock in milliseconds, plus up to two fifths.
const FAR: [u64; 5] = [100, 250, 600, 1_500, 3_500];

/// How long a server of a fleet stops at most, and how long a fault takes that is no failover.
const SHORT: Duration = Duration::from_millis(200);

/// How long a loss of memory keeps a node away: its quarantine, and the time until a client asks it.
const LOSS: Duration = Duration::from_millis(14_500);

/// How long after a loss of memory the same node has another one: all clients have met it.
pub(super) const AGAIN: Duration = Duration::from_millis(700);

/// A time to draw: at least the first, plus a random part of at most the second.
type Pause = (Duration, Duration);

/// The pause after a fault on one server.
const AFTER_ANY: Pause = (Duration::from_millis(50), Duration::from_millis(300));
/// The pause after a fault of a node.
const AFTER_NODE: Pause = (Duration::from_millis(100), Duration::from_millis(400));
/// The pause between two faults of workers on a quorum.
const AFTER_WORKER: Pause = (Duration::from_millis(150), Duration::from_millis(700));

/// A planned fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedFault {
    /// The time after the beginning of the storm.
    pub(super) at: Duration,
    pub(super) kind: FaultKind,
    pub(super) lasts: Duration,
    /// Selects the worker or the servers, and the size of the fault.
    pub(super) whom: u64,
    /// How many servers it concerns; 0 for a worker.
    pub(super) servers: usize,
    /// The loss of memory that follows it at the same node.
    pub(super) again: Option<FaultKind>,
    /// How many of its kind were drawn before.
    pub(super) turn: usize,
}

impl PlannedFault {
    /// How far a clock jumps: that of a single server some tenths of a second to five seconds. That of a node is set back by one to
    /// ten minutes, or forward by 15 s to 44 s, since its fences are of no use for as long.
    pub(super) fn distance(&self) -> Duration {
        let drawn = self.whom;
        match (self.kind, self.jumps_again()) {
            (ClockForward, Some(_)) => Duration::from_secs(15 + drawn / 64 % 30),
            (_, Some(_)) => Duration::from_secs(60 + drawn / 64 % 540),
            (_, None) => {
                let count = FAR.len() as u64;
                let least = FAR[usize::try_from(drawn % count).unwrap_or_default()];
                Duration::from_micros(least * 1_000 + drawn / count % (least * 400))
            }
        }
    }

    /// The jump at the end of the fault: the clock of a node is set for a while, that of a single server for good.
    fn jumps_again(&self) -> Option<FaultKind> {
        match self.kind {
            _ if self.lasts.is_zero() => None,
            ClockForward => Some(ClockBack),
            ClockBack => Some(ClockForward),
            _ => None,
        }
    }

    /// How long after its end others refuse the fences that a node has drawn: until their clocks come near.
    pub(super) fn refused(&self) -> Duration {
        match self.jumps_again() {
            Some(ClockBack) => self.distance(),
            _ => Duration::ZERO,
        }
    }

    /// When the servers are well again.
    fn over(&self) -> Duration {
        self.at + self.lasts + self.refused()
    }
}

/// The least number of each kind: that of all jumps, so I11 misses each one that does not happen.
pub(super) fn planned(faults: &[PlannedFault]) -> BTreeMap<FaultKind, u64> {
    let mut planned = BTreeMap::new();
    for fault in faults {
        for kind in std::iter::once(fault.kind)
            .chain(fault.again)
            .chain(fault.jumps_again())
        {
            *planned.entry(kind).or_default() += fault.servers.max(1) as u64;
        }
    }
    planned
}

/// Takes the element that this number selects, if there is any.
pub(super) fn take<T>(from: &mut Vec<T>, drawn: u64) -> Option<T> {
    let at = drawn.checked_rem(from.len() as u64)?;
    Some(from.swap_remove(usize::try_from(at).ok()?))
}

/// Whether the nodes of a quorum may have forgotten after this fault.
pub(super) fn is_a_loss(kind: FaultKind) -> bool {
    LOSSES.contains(&kind)
}

pub(super) fn is_of_a_clock(kind: FaultKind) -> bool {
    matches!(kind, ClockForward | ClockBack)
}

fn is_of_a_worker(kind: FaultKind) -> bool {
    matches!(kind, StopWorker | KillWorker)
}

/// Which faults are possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Possible {
    /// Those of servers.
    pub(super) on_servers: bool,
    /// Those of their clocks.
    pub(super) on_clocks: bool,
}

impl Possible {
    fn of(self, kinds: &[FaultKind]) -> Vec<FaultKind> {
        let possible = |kind: &&FaultKind| self.on_clocks || !is_of_a_clock(**kind);
        kinds.iter().filter(possible).copied().collect()
    }
}

/// Draws faults.
#[derive(Debug)]
pub(super) struct Schedule {
    rng: Rng,
    ttl: Duration,
    faults: Vec<PlannedFault>,
}

impl Schedule {
    pub(super) const fn new(seed: u64, ttl: Duration) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            ttl,
            faults: Vec::new(),
        }
    }

    /// The faults of a storm on one server that lasts for `time`. Whole rounds are dealt, so each kind occurs as often as in a round.
    pub(super) fn of_a_server(mut self, time: Duration, possible: Possible) -> Vec<PlannedFault> {
        let round = if possible.on_servers {
            possible.of(&ON_A_SERVER)
        } else {
            WORKERS_ONLY.to_vec()
        };
        let ttl = self.ttl;
        let mut at = Duration::ZERO;
        loop {
            for kind in self.shuffled(&round) {
                at += self.pause(AFTER_ANY);
                if at >= time {
                    return self.faults;
                }
                let lasts = match kind {
                    StopWorker => self.pause((ttl / 2, ttl * 5 / 2)),
                    StopServer | Memory | Failover => self.pause((ttl / 2, ttl)),
                    // Long enough for a loss report, or not.
                    BlackHole | BlackHoleRequests | BlackHoleReplies => {
                        self.pause((ttl / 2, ttl * 3 / 2))
                    }
                    _ => Duration::ZERO,
                };
                let servers = usize::from(!is_of_a_worker(kind));
                self.add(at, kind, lasts, servers, None);
                // The next fault waits for its end, unless it concerns a worker.
                at += lasts * u32::from(servers > 0);
            }
        }
    }

    /// Faults of these kinds on a cluster, or under sentinels, where a failover is over after `pace`.
    pub(super) fn of_a_fleet(
        mut self,
        time: Duration,
        kinds: &[FaultKind],
        pace: Duration,
    ) -> Vec<PlannedFault> {
        let ttl = self.ttl;
        let mut at = Duration::ZERO;
        loop {
            for kind in self.shuffled(kinds) {
                at += self.pause(AFTER_ANY);
                let lasts = match kind {
                    StopWorker => self.pause((ttl / 2, ttl * 5 / 2)),
                    // So long, no other server thinks that it is dead.
                    StopServer => self.pause((Duration::from_millis(100), SHORT)),
                    Failover => self.pause((ttl / 3, ttl * 2 / 3)),
                    MoveSlot => self.pause((Duration::ZERO, ttl / 2)),
                    _ => Duration::ZERO,
                };
                let over = at
                    + lasts
                    + if matches!(kind, Failover | KillServer) {
                        pace
                    } else {
                        SHORT
                    };
                if over >= time {
                    return self.faults;
                }
                let is_of_a_worker = is_of_a_worker(kind);
                self.add(at, kind, lasts, usize::from(!is_of_a_worker), None);
                if !is_of_a_worker {
                    at = over;
                }
            }
        }
    }

    /// The faults of a storm on a quorum that lasts for `time`, by their beginning.
    pub(super) fn of_a_quorum(mut self, time: Duration, possible: Possible) -> Vec<PlannedFault> {
        let passing = possible.of(&PASSING);
        let mut at = Duration::ZERO;
        while at < time {
            let calm = self.minority(at, &passing, possible.on_clocks);
            at = self.majority(calm);
        }
        let mut at = self.pause(AFTER_WORKER);
        while at < time {
            let kind = if self.rng.u64(..5) < 3 {
                StopWorker
            } else {
                KillWorker
            };
            let lasts = self.pause((self.ttl / 2, self.ttl * 5 / 2));
            self.add(at, kind, lasts, 0, None);
            at += self.pause(AFTER_WORKER);
        }
        let mut faults = self.faults;
        faults.retain(|fault| fault.servers == 0 || fault.at + fault.lasts <= time);
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    /// The faults of single nodes, from then on. Returns the end of the last one.
    fn minority(&mut self, from: Duration, passing: &[FaultKind], on_clocks: bool) -> Duration {
        let [first, second, third, fourth, fifth] = self.shuffled(&LOSSES)[..] else {
            return from;
        };
        let one = self.loss(from, first, Some(fourth), 1);
        let one = self.loss(one, second, None, 1);
        let mut other = from + self.pause(AFTER_NODE);
        for kind in self.shuffled(passing) {
            other = self.passing(other, kind, 1);
        }
        other = self.loss(other, third, Some(fifth), 1);
        for kind in self.shuffled(passing) {
            if other + 2 * self.ttl < one {
                other = self.passing(other, kind, 1);
            }
        }
        if on_clocks {
            other = self.passing(other, ClockForward, 1);
        }
        one.max(other)
    }

    /// The faults of a majority, from then on. Returns when all nodes have been well for a while.
    fn majority(&mut self, from: Duration) -> Duration {
        let mut at = from;
        for kind in self.shuffled(&OF_MOST) {
            at = self.passing(at + self.ttl, kind, MOST);
        }
        let kinds = self.shuffled(&LOSSES_OF_MOST);
        at = self.loss(at + self.ttl, kinds[0], None, MOST);
        let ends = self.faults.iter().map(PlannedFault::over);
        ends.fold(at, Duration::max) + self.ttl
    }

    fn passing(&mut self, at: Duration, kind: FaultKind, nodes: usize) -> Duration {
        let lasts = self.pause((self.ttl / 2, self.ttl * 3 / 2));
        self.add(at, kind, lasts, nodes, None);
        at + lasts + self.pause(AFTER_NODE)
    }

    /// Adds a loss of memory, and perhaps another one. Returns the time of the next fault.
    fn loss(
        &mut self,
        at: Duration,
        kind: FaultKind,
        again: Option<FaultKind>,
        nodes: usize,
    ) -> Duration {
        let lasts = again.map_or(LOSS, |_| AGAIN + LOSS);
        self.add(at, kind, lasts, nodes, again);
        at + lasts + self.pause(AFTER_NODE)
    }

    fn add(
        &mut self,
        at: Duration,
        kind: FaultKind,
        lasts: Duration,
        servers: usize,
        again: Option<FaultKind>,
    ) {
        let whom = self.rng.u64(..);
        let before = self.faults.iter().filter(|fault| fault.kind == kind);
        let turn = before.count();
        self.faults.push(PlannedFault {
            at,
            kind,
            lasts,
            whom,
            servers,
            again,
            turn,
        });
    }

    fn pause(&mut self, (least, more): Pause) -> Duration {
        let more = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(self.rng.u64(..more))
    }

    fn shuffled(&mut self, kinds: &[FaultKind]) -> Vec<FaultKind> {
        let mut left = kinds.to_vec();
        let drawn = std::iter::from_fn(|| take(&mut left, self.rng.u64(..)));
        drawn.collect()
    }
}

#[cfg(test)]
#[path = "../../tests/storm/floors.rs"]
mod floors;

#[cfg(test)]
mod tests {
    use super::floors::FLOORS;
    use super::*;

    const ALL: Possible = Possible {
        on_servers: true,
        on_clocks: true,
    };

    fn on_a_server(seed: u64, seconds: u64, possible: Possible) -> Vec<PlannedFault> {
        let schedule = Schedule::new(seed, Duration::from_millis(200));
        schedule.of_a_server(Duration::from_secs(seconds), possible)
    }

    fn on_a_quorum(seed: u64, seconds: u64) -> Vec<PlannedFault> {
        let schedule = Schedule::new(seed, Duration::from_millis(500));
        schedule.of_a_quorum(Duration::from_secs(seconds), ALL)
    }

    #[test]
    fn a_schedule_follows_from_its_seed_and_leaves_nothing_out() {
        let faults = on_a_server(7, 10, ALL);
        assert_eq!(faults, on_a_server(7, 10, ALL));
        assert_ne!(faults, on_a_server(8, 10, ALL));
        assert!(faults.is_sorted_by_key(|fault| fault.at));
        assert!(faults.iter().all(|fault| fault.at.as_secs() < 10));
        for all in faults.chunks_exact(ON_A_SERVER.len()) {
            assert_eq!(planned(all).len(), 15);
        }
        for seed in 0..20 {
            assert!(on_a_server(seed, 35, ALL).len() > 100, "seed {seed}");
        }
    }

    #[test]
    fn a_fleet_has_every_fault_and_time_for_each_failover() {
        let (pace, time) = (Duration::from_secs(2), Duration::from_secs(60));
        let plan = |seed| {
            let schedule = Schedule::new(seed, Duration::from_millis(500));
            schedule.of_a_fleet(time, &ON_A_FLEET, pace)
        };
        for seed in 0..50 {
            let faults = plan(seed);
            assert_eq!(faults, plan(seed));
            assert_ne!(faults, plan(seed + 1));
            let kinds = planned(&faults);
            assert_eq!(kinds.len(), 9, "seed {seed}: {kinds:?}");
            assert!(kinds[&Failover] >= 6, "seed {seed}: {kinds:?}");
            let of_servers: Vec<_> = faults.iter().filter(|fault| fault.servers > 0).collect();
            for pair in of_servers.windows(2) {
                let pace = if pair[0].kind == Failover {
                    pace
                } else {
                    SHORT
                };
                let over = pair[0].at + pair[0].lasts + pace;
                assert!(over <= pair[1].at && over < time, "seed {seed}: {pair:?}");
            }
        }
    }

    #[test]
    fn somebody_elses_server_is_left_alone() {
        let possible = Possible {
            on_servers: false,
            on_clocks: false,
        };
        let kinds: Vec<FaultKind> = planned(&on_a_server(7, 10, possible)).into_keys().collect();
        assert_eq!(kinds, [StopWorker, KillWorker]);
    }

    #[test]
    fn plan_follows_from_its_seed_and_has_every_fault() {
        for seed in 0..50 {
            let plan = on_a_quorum(seed, 45);
            assert_eq!(plan, on_a_quorum(seed, 45));
            assert_ne!(plan, on_a_quorum(seed + 1, 45));
            let kinds = LOSSES.iter().chain(&PASSING).chain(&OF_MOST);
            for kind in kinds.chain([&ClockForward]) {
                let mut faults = plan.iter();
                let has_it = faults.any(|fault| fault.kind == *kind || fault.again == Some(*kind));
                assert!(has_it, "seed {seed}: no {kind:?}");
            }
            assert!(
                plan.iter().any(|fault| fault.servers == MOST),
                "seed {seed}"
            );
        }
    }

    /// `tests/storm.rs` runs this plan. A second less than there is enough.
    #[test]
    fn plan_of_the_tested_storm_has_its_floors() {
        let plan = planned(&on_a_quorum(10, 36));
        for (kind, least) in FLOORS {
            let count = plan
                .iter()
                .find(|(planned, _)| planned.to_string() == *kind);
            assert!(
                count.is_some_and(|(_, count)| count >= least),
                "{kind}: {plan:?}"
            );
        }
    }

    #[test]
    fn plan_keeps_a_majority_well_between_faults_of_a_majority() {
        for seed in 0..50 {
            let plan = on_a_quorum(seed, 300);
            for fault in plan.iter().filter(|fault| fault.servers > 0) {
                // A node whose clock was set forward may be unwell beside a majority.
                let allowed = if fault.servers == MOST { MOST + 1 } else { 2 };
                let nodes = unwell(&plan, fault.at, Duration::ZERO);
                assert!(nodes <= allowed, "seed {seed}: {fault:?}");
            }
            let forgets = |fault: &PlannedFault| fault.servers == MOST && is_a_loss(fault.kind);
            assert!(plan.iter().any(forgets), "seed {seed}");
        }
    }

    /// The judge asks nothing of a quorum in that time.
    #[test]
    fn plan_leaves_a_majority_in_reach_for_most_of_the_time() {
        // That of `storm/campaign.rs`.
        let recovery = Duration::from_millis(500);
        for seed in 0..50 {
            let plan = on_a_quorum(seed, 300);
            let moments = (0..3_000).map(|tenth| Duration::from_millis(tenth * 100));
            let without = moments.filter(|at| unwell(&plan, *at, recovery) >= MOST);
            let tenths = without.count();
            assert!(
                (300..1_200).contains(&tenths),
                "seed {seed}: {tenths} tenths of a second of 300 s"
            );
        }
    }

    /// How many nodes are unwell, or were until a while ago.
    fn unwell(plan: &[PlannedFault], at: Duration, while_after: Duration) -> usize {
        let faults = plan.iter();
        let now = faults.filter(|fault| fault.at <= at && at < fault.over() + while_after);
        now.map(|fault| fault.servers).sum()
    }

    #[test]
    fn a_clock_jumps_by_a_tenth_of_a_second_to_five() {
        let mut rng = Rng::with_seed(7);
        let fault = |whom| PlannedFault {
            at: Duration::ZERO,
            kind: ClockBack,
            lasts: Duration::ZERO,
            whom,
            servers: 1,
            again: None,
            turn: 0,
        };
        let all: Vec<Duration> = (0..1_000).map(|_| fault(rng.u64(..)).distance()).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!((100..120).contains(&least.as_millis()), "{least:?}");
        assert!((4_000..5_000).contains(&most.as_millis()), "{most:?}");
    }
}
