//! The faults of a fleet. Each is over when the next one begins.
//!
//! A replica that takes over was cut off for a while. Its primary is dead by then, or stopped, or alive. One that is alive, or runs again, grants
//! locks beside the new one until it has heard of it.

use std::time::Duration;

use super::Nemesis;
use crate::history::FaultKind;
use crate::host_time;
use crate::storm::fleet::{Fleet, tell};
use crate::storm::schedule::PlannedFault;

/// The state of a primary whose replica takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Former {
    Killed,
    Stopped,
    Alive,
}

impl Nemesis<'_> {
    /// Causes a fault of a fleet, from its beginning to its end.
    pub(super) fn strike(&mut self, fault: &PlannedFault) -> Result<(), String> {
        self.look_at_primaries()?;
        let from = host_time::up_ns();
        let count = self.fleet()?.nodes().len() as u64;
        let node = usize::try_from(fault.whom % count).unwrap_or_default();
        let lock = usize::try_from(fault.whom / 64 % self.locks).unwrap_or_default();
        let primary = self.known.1[lock];
        let node = match fault.kind {
            FaultKind::StopServer => {
                self.fleet()?.nodes()[node].try_pause()?;
                self.stage.rest(host_time::up() + fault.lasts)?;
                self.fleet()?.nodes()[node].try_resume()?;
                node
            }
            FaultKind::KillServer => {
                self.fleet()?.nodes()[node].kill();
                self.stage.server_starts(self.epoch, host_time::up_ns())?;
                self.fleet()?.nodes()[node].try_restart()?;
                self.fleet()?.mend()?;
                node
            }
            FaultKind::ScriptFlush => {
                let flush = ["SCRIPT", "FLUSH"];
                tell(&self.fleet()?.nodes()[primary], &flush)?;
                primary
            }
            FaultKind::ClientKill => {
                for kind in ["normal", "pubsub"] {
                    let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
                    tell(&self.fleet()?.nodes()[primary], &kill)?;
                }
                primary
            }
            FaultKind::MoveSlot => {
                let mut others = self.fleet()?.all_primaries()?;
                others.retain(|other| *other != primary);
                let at = usize::try_from(fault.whom % 2).unwrap_or_default();
                let to = *others.get(at).ok_or("a slot has nowhere to go")?;
                let fleet = self.servers.fleet.as_ref().ok_or(NO_FLEET)?;
                let stage = &mut *self.stage;
                fleet.move_slot(lock, to, || stage.rest(host_time::up() + fault.lasts))?;
                self.known.1[lock] = to;
                primary
            }
            FaultKind::Failover => return self.replica_takes_over(fault, primary),
            FaultKind::BreakLock => return self.break_lock(fault),
            kind => return Err(format!("{kind} is no fault of a fleet")),
        };
        self.record(fault.kind, node, from, host_time::up_ns())?;
        self.look_at_primaries()
    }

    /// The replicas of a primary are cut off for a while. Then one takes over.
    fn replica_takes_over(&mut self, fault: &PlannedFault, primary: usize) -> Result<(), String> {
        let ways = [Former::Killed, Former::Stopped, Former::Alive];
        let former = ways[usize::try_from(fault.whom / 4096 % 3).unwrap_or_default()];
        let from = host_time::up_ns();
        let replicas = self.fleet()?.cut(primary)?;
        self.stage.rest(Duration::from_nanos(from) + fault.lasts)?;
        match former {
            Former::Killed => self.fleet()?.nodes()[primary].kill(),
            Former::Stopped => self.fleet()?.nodes()[primary].try_pause()?,
            Former::Alive => {}
        }
        let begun = host_time::up_ns();
        if former != Former::Alive {
            self.lose(primary, None, begun)?;
        }
        self.until("a replica that takes over", |nemesis| {
            nemesis.fleet()?.take_over(primary, &replicas)
        })?;
        self.fleet()?.mend()?;
        let returns = host_time::up_ns();
        match former {
            Former::Killed => self.fleet()?.nodes()[primary].try_restart()?,
            Former::Stopped => self.fleet()?.nodes()[primary].try_resume()?,
            Former::Alive => {}
        }
        self.fleet()?.mend()?;
        let patient = Duration::from_nanos(returns) + fault.lasts;
        self.until("a former primary that follows", |nemesis| {
            if host_time::up() > patient {
                nemesis.fleet()?.demote(primary)?;
            }
            nemesis.fleet()?.follows(primary)
        })?;
        let until = host_time::up_ns();
        match former {
            // Nobody asks it before it follows: sentinels name another one, and a restarted node of a cluster waits at first.
            Former::Killed => {}
            Former::Stopped => self.lose(primary, Some(returns), until)?,
            Former::Alive => self.lose(primary, Some(begun), until)?,
        }
        self.record(fault.kind, primary, from, until)?;
        self.let_fleet_settle()?;
        self.known = (host_time::up_ns(), self.fleet()?.primaries()?);
        Ok(())
    }

    /// Records that the locks of a primary are where writes of it may be missing.
    fn lose(&mut self, primary: usize, since: Option<u64>, at_ns: u64) -> Result<(), String> {
        let locks = self.fleet()?.locks.iter().zip(&self.known.1);
        let locks = locks.filter(|(_, of)| **of == primary);
        let locks: Vec<String> = locks.map(|(lock, _)| lock.clone()).collect();
        self.lost(&locks, since, at_ns)
    }

    fn lost(&mut self, locks: &[String], since: Option<u64>, at_ns: u64) -> Result<(), String> {
        if self.fleet()?.confirms || locks.is_empty() {
            return Ok(());
        }
        self.epoch += 1;
        self.stage.locks_move(self.epoch, since, at_ns, locks)
    }

    /// Waits until all is in order. Records failovers that nobody planned, as on a busy machine.
    pub(super) fn look_at_primaries(&mut self) -> Result<(), String> {
        if self.servers.fleet.is_none() {
            return Ok(());
        }
        self.let_fleet_settle()?;
        let now = self.fleet()?.primaries()?;
        let (since, before) = std::mem::take(&mut self.known);
        let locks = self.fleet()?.locks.iter().zip(now.iter().zip(&before));
        let moved = locks.filter(|(_, (now, before))| now != before);
        let moved: Vec<String> = moved.map(|(lock, _)| lock.clone()).collect();
        self.known = (host_time::up_ns(), now);
        self.lost(&moved, Some(since), self.known.0)
    }

    fn let_fleet_settle(&mut self) -> Result<(), String> {
        self.until("servers that agree", |nemesis| {
            nemesis.fleet()?.is_settled()
        })
    }

    fn fleet(&self) -> Result<&Fleet, String> {
        self.servers.fleet.as_ref().ok_or_else(|| NO_FLEET.into())
    }
}

const NO_FLEET: &str = "no replicas that take over";
