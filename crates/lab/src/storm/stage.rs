//! The stage of a nemesis: the worker processes, a fixed number of them, and the history of all faults.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use leasehold::{Fence, Mode, Owner};
use serde_json::{Value, json};
use testkit::Process;

use super::kinds::LockKind;
use super::part::{Part, succeeds};
use super::schedule::take;
use super::worker::{self, WorkerConfig, session};
use crate::history::FaultKind;
use crate::host_time;

/// How often due actions are looked for.
const TICK: Duration = Duration::from_millis(5);

/// How long workers may take to end.
const END: Duration = Duration::from_secs(30);

/// One worker process.
#[derive(Debug)]
struct PoolWorker {
    proc: u64,
    process: Process,
    stopped: Option<Stop>,
}

#[derive(Debug)]
struct Stop {
    from_ns: u64,
    until: Duration,
}

/// A grant of a lock.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) lock: String,
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) mode: Mode,
}

/// The workers, one of which is replaced when it is killed, and the history of their faults and of those of the servers.
#[derive(Debug)]
pub(super) struct Stage {
    workers: Vec<PoolWorker>,
    /// The configuration of the next one, apart from its number.
    config: WorkerConfig,
    history: File,
    /// The stops of workers: process, beginning, end.
    stops: Vec<(u64, u64, u64)>,
}

impl Stage {
    /// Starts `count` workers, numbered from 1. The history is in this directory.
    pub(super) fn new(config: WorkerConfig, count: u64, directory: &Path) -> Result<Self, String> {
        let path = directory.join("nemesis.jsonl");
        let history = File::create(&path);
        let mut stage = Self {
            workers: Vec::new(),
            config,
            history: history.map_err(|error| format!("{}: {error}", path.display()))?,
            stops: Vec::new(),
        };
        for _ in 0..count {
            stage.start_worker()?;
        }
        Ok(stage)
    }

    /// Starts one more, with the next number.
    fn start_worker(&mut self) -> Result<(), String> {
        self.config.proc += 1;
        let config = self.config.clone();
        self.workers.push(PoolWorker {
            proc: config.proc,
            process: Part::Worker(config).start()?,
            stopped: None,
        });
        Ok(())
    }

    /// Waits until then, resumes stopped workers when due, and checks that no worker has ended by itself.
    pub(super) fn rest(&mut self, until: Duration) -> Result<(), String> {
        loop {
            let now = host_time::up();
            let mut resumed = Vec::new();
            for PoolWorker {
                proc,
                process,
                stopped,
            } in &mut self.workers
            {
                if let Some(stop) = stopped.take_if(|stop| stop.until <= now) {
                    // Both times are read while it is stopped: a line between them shows that it is not.
                    resumed.push((*proc, stop.from_ns, host_time::up_ns()));
                    process.resume()?;
                }
                if let Some(status) = process.ended().map_err(|error| error.to_string())? {
                    return Err(format!("worker-{proc} has ended by itself: {status}"));
                }
            }
            for &(proc, from, to) in &resumed {
                self.fault(
                    FaultKind::StopWorker,
                    &WorkerConfig::worker(proc),
                    from,
                    Some(to),
                    None,
                )?;
            }
            self.stops.extend(resumed);
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

    /// Stops a worker for so long. The stop is recorded when the worker is resumed. Returns its number.
    pub(super) fn stop_worker(&mut self, whom: u64, lasts: Duration) -> Result<u64, String> {
        let at = self.choose(whom)?;
        self.stop(at, lasts)?;
        Ok(self.workers[at].proc)
    }

    /// Stops the worker with this number until the next tick, unless there is none that runs. Returns whether it did.
    pub(super) fn stop_worker_of(&mut self, proc: u64) -> Result<bool, String> {
        let mut workers = self.workers.iter();
        let at = workers.position(|worker| worker.proc == proc && worker.stopped.is_none());
        at.map(|at| self.stop(at, Duration::ZERO)).transpose()?;
        Ok(at.is_some())
    }

    fn stop(&mut self, at: usize, lasts: Duration) -> Result<(), String> {
        let until = host_time::up() + lasts;
        let worker = &mut self.workers[at];
        let stopped = worker.process.pause();
        stopped.map_err(|why| format!("worker-{}: {why}", worker.proc))?;
        let from_ns = host_time::up_ns();
        worker.stopped = Some(Stop { from_ns, until });
        Ok(())
    }

    /// Kills the worker with this number, which holds a lock in this mode. Another one takes its place.
    pub(super) fn kill_worker(&mut self, proc: u64, mode: Option<Mode>) -> Result<(), String> {
        let at = self.workers.iter().position(|worker| worker.proc == proc);
        let mut worker = self.workers.swap_remove(at.ok_or("no such worker")?);
        worker.process.kill()?;
        self.write(json!({
            "ev": "fault", "kind": FaultKind::KillWorker, "target": WorkerConfig::worker(proc), "at_ns": host_time::up_ns(),
            "mode": mode.map(|mode| mode.to_string()),
        }))?;
        self.start_worker()
    }

    /// Waits until some worker is not stopped, and chooses one of those: a stop has an end.
    fn choose(&mut self, whom: u64) -> Result<usize, String> {
        loop {
            let all = self.workers.iter().enumerate();
            let at_work = all.filter(|(_, worker)| worker.stopped.is_none());
            let mut at_work: Vec<usize> = at_work.map(|(at, _)| at).collect();
            if let Some(at) = take(&mut at_work, whom) {
                return Ok(at);
            }
            self.tick()?;
        }
    }

    /// Waits until all stopped workers are resumed.
    pub(super) fn resume_workers(&mut self) -> Result<(), String> {
        while self.workers.iter().any(|worker| worker.stopped.is_some()) {
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

    /// Records that other servers have these locks from then on. Since an earlier time, both may have granted them.
    pub(super) fn locks_move(
        &self,
        epoch: u32,
        since_ns: Option<u64>,
        at_ns: u64,
        locks: &[String],
    ) -> Result<(), String> {
        self.write(json!({
            "ev": "server-start", "epoch": epoch, "since_ns": since_ns, "at_ns": at_ns, "locks": locks,
        }))
    }

    /// Whether some locks are no mutexes.
    pub(super) fn mixes_kinds(&self) -> bool {
        let mut kinds = self.config.kinds.iter();
        kinds.any(|kind| *kind != LockKind::Mutex)
    }

    /// The URL of the store of the first worker, and the names of all locks.
    pub(super) fn store(&self) -> (&str, Vec<String>) {
        let url = self.config.urls.first().map_or("", String::as_str);
        let numbers = 0..self.config.kinds.len();
        (
            url,
            numbers.map(|number| self.config.lock(number)).collect(),
        )
    }

    /// Records that a lock was broken between these times, or may have been.
    pub(super) fn lock_broken(
        &self,
        grant: &Grant,
        (from, until): (u64, u64),
    ) -> Result<(), String> {
        self.write(json!({
            "ev": "fault", "kind": FaultKind::BreakLock, "target": "server", "at_ns": from, "until_ns": until, "lock": grant.lock,
            "fence": grant.fence.get(), "session": session(&grant.owner), "mode": grant.mode.to_string(),
        }))
    }

    /// Records that keys were deleted between these times, beside this lock if it was not the counter alone.
    pub(super) fn evicted(
        &self,
        lock: Option<&str>,
        (from, until): (u64, u64),
    ) -> Result<(), String> {
        self.write(json!({
            "ev": "fault", "kind": FaultKind::Evict, "target": "server", "at_ns": from, "until_ns": until, "lock": lock,
        }))
    }

    /// Records how long a node of a quorum was not well.
    pub(super) fn unwell(&self, target: &str, from: u64, until: u64) -> Result<(), String> {
        self.write(json!({"ev": "unwell", "target": target, "at_ns": from, "until_ns": until}))
    }

    /// Records a fault: its beginning, its end, and how far a clock jumped.
    pub(super) fn fault(
        &self,
        kind: FaultKind,
        target: &str,
        from: u64,
        until: Option<u64>,
        by: Option<u64>,
    ) -> Result<(), String> {
        self.write(json!({
            "ev": "fault", "kind": kind, "target": target, "at_ns": from, "until_ns": until, "by_ns": by,
        }))
    }

    fn write(&self, line: Value) -> Result<(), String> {
        worker::append(&self.history, line)
    }

    /// Waits until all workers have ended, after they were told to. Returns their stops.
    pub(super) fn end(mut self) -> Result<Vec<(u64, u64, u64)>, String> {
        let until = host_time::up() + END;
        for worker in &mut self.workers {
            let left = until.saturating_sub(host_time::up());
            succeeds(
                &mut worker.process,
                &WorkerConfig::worker(worker.proc),
                left,
            )?;
        }
        Ok(self.stops)
    }
}
