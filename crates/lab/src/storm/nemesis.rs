//! The nemesis: plans faults and causes them. It records each fault that had an effect, and no other.

mod clock;
mod network;

use std::time::Duration;

use testkit::RedisServer;

use super::servers::Servers;
use super::stage::{PlannedFault, Stage, draw};
use crate::history::FaultKind;
use crate::host_time;
use crate::rng::Rng;
use crate::server::ask;

/// The faults, in each round of seventeen.
const ALL: [FaultKind; 17] = [
    FaultKind::StopWorker,
    FaultKind::StopWorker,
    FaultKind::StopWorker,
    FaultKind::KillWorker,
    FaultKind::KillWorker,
    FaultKind::StopServer,
    FaultKind::KillServer,
    FaultKind::ScriptFlush,
    FaultKind::ClientKill,
    FaultKind::Memory,
    FaultKind::Failover,
    FaultKind::BlackHole,
    FaultKind::BlackHoleRequests,
    FaultKind::BlackHoleReplies,
    FaultKind::Evict,
    FaultKind::ClockForward,
    FaultKind::ClockBack,
];

/// The possible faults on a foreign server.
const WORKERS_ONLY: [FaultKind; 3] = [
    FaultKind::StopWorker,
    FaultKind::StopWorker,
    FaultKind::KillWorker,
];

/// The pause between two faults: at least this, plus a random part of at most that.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(300));

/// The set of faults to draw from until it is empty: all that are possible on workers, and on these servers if any.
pub(super) fn deck(servers: Option<&Servers>) -> Vec<FaultKind> {
    let Some(servers) = servers else {
        return WORKERS_ONLY.to_vec();
    };
    let mut deck = ALL.to_vec();
    if servers.why_no_clock().is_some() {
        deck.retain(|kind| !matches!(kind, FaultKind::ClockForward | FaultKind::ClockBack));
    }
    deck
}

/// The faults of a campaign that lasts for `time`: the same for the same seed and deck. Whole decks are dealt, so each kind
/// occurs as often as in the deck.
pub(super) fn schedule(
    seed: u64,
    time: Duration,
    ttl: Duration,
    deck: &[FaultKind],
) -> Vec<PlannedFault> {
    let mut rng = Rng::new(seed);
    let mut left: Vec<FaultKind> = Vec::new();
    let mut faults = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += draw(&mut rng, PAUSE.0, PAUSE.1);
        if at >= time {
            return faults;
        }
        if left.is_empty() {
            left = deck.to_vec();
        }
        let drawn = rng.below(left.len() as u64);
        let kind = left.swap_remove(usize::try_from(drawn).unwrap_or_default());
        let more = match kind {
            FaultKind::StopWorker => ttl * 5 / 2,
            FaultKind::StopServer | FaultKind::Memory | FaultKind::Failover => ttl,
            // Long enough for a loss report, or not.
            FaultKind::BlackHole | FaultKind::BlackHoleRequests | FaultKind::BlackHoleReplies => {
                ttl * 3 / 2
            }
            _ => Duration::ZERO,
        };
        let lasts = if more.is_zero() {
            more
        } else {
            draw(&mut rng, ttl / 2, more)
        };
        faults.push(PlannedFault {
            at,
            kind,
            lasts,
            whom: rng.next(),
            nodes: 0,
        });
        // The next fault waits for its end, unless it concerns a worker.
        at += if kind == FaultKind::StopWorker {
            Duration::ZERO
        } else {
            lasts
        };
    }
}

/// Causes the faults.
#[derive(Debug)]
pub(super) struct Nemesis<'a> {
    pub(super) servers: Option<&'a mut Servers>,
    pub(super) stage: &'a mut Stage,
    /// How many locks there are.
    pub(super) locks: u64,
    /// The fence counter is lost until a fence above this one is drawn; only the clock keeps the next one from being too low.
    pub(super) lost: Option<i64>,
    /// How often the servers lost data.
    pub(super) epoch: u32,
}

impl Nemesis<'_> {
    /// Causes all faults at their times, or as soon after them as the machine allows.
    pub(super) fn act(&mut self, faults: &[PlannedFault]) -> Result<(), String> {
        let from = host_time::up();
        for fault in faults {
            self.stage.rest(from + fault.at)?;
            self.inflict(fault)?;
        }
        Ok(())
    }

    /// Ends the faults: all stopped processes are resumed, and the servers are in order from here on.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.stage.resume_workers()?;
        // Writes made before a clock was set back last longer by that much.
        while self.clock_is_behind() {
            self.stage.tick()?;
        }
        self.stage.calm()
    }

    /// Records the start of the server.
    pub(super) fn server_starts(&mut self, at_ns: u64) -> Result<(), String> {
        self.stage.server_starts(self.epoch, at_ns)
    }

    fn inflict(&mut self, fault: &PlannedFault) -> Result<(), String> {
        let from = host_time::up_ns();
        match fault.kind {
            FaultKind::StopWorker => return self.stage.stop_worker(fault.whom, fault.lasts),
            FaultKind::KillWorker => return self.stage.kill_worker(fault.whom),
            FaultKind::StopServer => {
                self.own()?.try_pause()?;
                self.stage.rest(host_time::up() + fault.lasts)?;
                self.own()?.try_resume()?;
            }
            FaultKind::KillServer => {
                self.own()?.kill();
                self.server_starts(host_time::up_ns())?;
                self.own()?.try_restart()?;
            }
            FaultKind::ScriptFlush => self.command::<()>(&["SCRIPT", "FLUSH"])?,
            FaultKind::ClientKill => self.cut()?,
            FaultKind::Memory => {
                // Less memory than an empty server uses.
                self.command::<()>(&["CONFIG", "SET", "maxmemory", "100kb"])?;
                let written = self.command::<()>(&["SET", "nemesis", "writes"]);
                if !written.is_err_and(|why| why.contains("maxmemory")) {
                    return Err("a server without memory does not refuse to write".into());
                }
                self.stage.rest(host_time::up() + fault.lasts)?;
                self.command::<()>(&["CONFIG", "SET", "maxmemory", "0"])?;
            }
            FaultKind::Failover => return self.fail_over(fault.lasts),
            FaultKind::BlackHole | FaultKind::BlackHoleRequests | FaultKind::BlackHoleReplies => {
                return self.hold_up(fault.kind, fault.whom, fault.lasts);
            }
            FaultKind::Evict => return self.evict(fault.whom),
            FaultKind::ClockForward | FaultKind::ClockBack => {
                return self.jump(fault.kind, fault.whom);
            }
            FaultKind::Flush | FaultKind::Copy | FaultKind::HalfOpen | FaultKind::Slow => {
                return Err(format!("{} is a fault of a quorum", fault.kind));
            }
        }
        let until = host_time::up_ns();
        self.stage.fault(fault.kind, "server", from, Some(until))
    }

    /// Cuts all connections to the server, including subscriptions.
    fn cut(&mut self) -> Result<(), String> {
        // Right after a restart there may be none, on a busy machine for a long time.
        self.until("a client", |nemesis| {
            let mut cut = 0;
            for kind in ["normal", "pubsub"] {
                let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
                cut += nemesis.command::<u64>(&kill)?;
            }
            Ok(cut > 0)
        })
    }

    fn servers(&mut self) -> Result<&mut Servers, String> {
        self.servers
            .as_deref_mut()
            .ok_or_else(|| "the server is not the storm's own".into())
    }

    fn own(&mut self) -> Result<&RedisServer, String> {
        Ok(self.servers()?.primary())
    }

    fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> Result<T, String> {
        ask(self.own()?, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::stage::planned;

    const TTL: Duration = Duration::from_millis(200);

    #[test]
    fn a_schedule_follows_from_its_seed_and_leaves_nothing_out() {
        let time = Duration::from_secs(10);
        let faults = schedule(7, time, TTL, &ALL);
        assert_eq!(faults, schedule(7, time, TTL, &ALL));
        assert_ne!(faults, schedule(8, time, TTL, &ALL));
        assert!(faults.is_sorted_by_key(|fault| fault.at));
        assert!(faults.iter().all(|fault| fault.at < time));
        for all in faults.chunks_exact(ALL.len()) {
            assert_eq!(planned(all).len(), 14);
        }
    }

    #[test]
    fn a_minute_has_more_than_a_hundred_faults() {
        for seed in 0..20 {
            assert!(schedule(seed, Duration::from_secs(35), TTL, &ALL).len() > 100);
        }
    }

    #[test]
    fn somebody_elses_server_is_left_alone() {
        let planned = planned(&schedule(7, Duration::from_secs(10), TTL, &deck(None)));
        let kinds: Vec<FaultKind> = planned.into_keys().collect();
        assert_eq!(kinds, [FaultKind::StopWorker, FaultKind::KillWorker]);
    }
}
