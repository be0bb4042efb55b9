//! The part of a campaign that each nemesis has: a plan of faults, the workers that it stops and kills, and the history of
//! the faults.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::pool::WorkerPool;
use super::worker;
use crate::history::FaultKind;
use crate::host_time;
use crate::rng::Rng;

/// How often due actions are looked for.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// A planned fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedFault {
    /// The time after the beginning of the storm.
    pub(super) at: Duration,
    pub(super) kind: FaultKind,
    pub(super) lasts: Duration,
    /// Selects the worker or the nodes, and the size of the fault.
    pub(super) whom: u64,
    /// How many nodes of a quorum it concerns; 0 for a worker or the only server.
    pub(super) nodes: usize,
}

/// The planned number of each kind.
pub(super) fn planned(faults: &[PlannedFault]) -> BTreeMap<FaultKind, u64> {
    let mut planned = BTreeMap::new();
    for fault in faults {
        *planned.entry(fault.kind).or_default() += fault.nodes.max(1) as u64;
    }
    planned
}

/// Draws a time: at least the first, and at most the second besides.
pub(super) fn draw(rng: &mut Rng, least: Duration, more: Duration) -> Duration {
    let more = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
    least + Duration::from_micros(rng.below(more))
}

/// The workers, and the history of their faults and of those of the servers.
#[derive(Debug)]
pub(super) struct Stage {
    pool: WorkerPool,
    history: File,
    /// The stops of workers: process, beginning, end.
    stops: Vec<(u64, u64, u64)>,
}

impl Stage {
    /// With the history in this directory.
    pub(super) fn new(pool: WorkerPool, directory: &Path) -> Result<Self, String> {
        let path = directory.join("nemesis.jsonl");
        let history =
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            pool,
            history,
            stops: Vec::new(),
        })
    }

    /// Waits until then, and resumes stopped workers when due.
    pub(super) fn rest(&mut self, until: Duration) -> Result<(), String> {
        loop {
            let now = host_time::up();
            for (proc, from, to) in self.pool.resume(now)? {
                self.stops.push((proc, from, to));
                self.fault(FaultKind::StopWorker, &worker_name(proc), from, Some(to))?;
            }
            self.pool.check()?;
            if now >= until {
                return Ok(());
            }
            thread::sleep(until.saturating_sub(now).min(TICK));
        }
    }

    /// Waits for a tick.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        self.rest(host_time::up() + TICK)
    }

    /// Stops a worker for so long. The stop is recorded when the worker is resumed.
    pub(super) fn stop_worker(&mut self, whom: u64, lasts: Duration) -> Result<(), String> {
        while !self.pool.stop(whom, host_time::up() + lasts)? {
            self.tick()?;
        }
        Ok(())
    }

    /// Kills a worker. Another one takes its place.
    pub(super) fn kill_worker(&mut self, whom: u64) -> Result<(), String> {
        let proc = loop {
            match self.pool.kill(whom)? {
                Some(proc) => break proc,
                None => self.tick()?,
            }
        };
        let at_ns = host_time::up_ns();
        self.fault(FaultKind::KillWorker, &worker_name(proc), at_ns, None)?;
        self.pool.replace()
    }

    /// Waits until all stopped workers are resumed.
    pub(super) fn resume_workers(&mut self) -> Result<(), String> {
        while self.pool.any_stopped() {
            self.tick()?;
        }
        Ok(())
    }

    /// Records that all is in order from here on.
    pub(super) fn calm(&self) -> Result<(), String> {
        self.write(json!({"ev": "calm", "at_ns": host_time::up_ns()}))
    }

    /// Records a start of the server, with the number of its losses of data.
    pub(super) fn server_starts(&self, epoch: u32, at_ns: u64) -> Result<(), String> {
        self.write(json!({"ev": "server-start", "epoch": epoch, "at_ns": at_ns}))
    }

    /// Records a fault.
    pub(super) fn fault(
        &self,
        kind: FaultKind,
        target: &str,
        from: u64,
        to: Option<u64>,
    ) -> Result<(), String> {
        self.write(
            json!({"ev": "fault", "kind": kind, "target": target, "at_ns": from, "until_ns": to}),
        )
    }

    /// Records a jump of a clock.
    pub(super) fn jump(
        &self,
        kind: FaultKind,
        target: &str,
        [from, until]: [u64; 2],
        by_ns: u64,
    ) -> Result<(), String> {
        self.write(json!({
            "ev": "fault", "kind": kind, "target": target, "at_ns": from, "until_ns": until, "by_ns": by_ns,
        }))
    }

    fn write(&self, line: serde_json::Value) -> Result<(), String> {
        worker::append(&self.history, line)
    }

    /// Waits until all workers have ended. Returns their stops.
    pub(super) fn end(self) -> Result<Vec<(u64, u64, u64)>, String> {
        self.pool.end()?;
        Ok(self.stops)
    }
}

fn worker_name(proc: u64) -> String {
    format!("worker-{proc}")
}
