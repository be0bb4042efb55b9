//! The worker processes of a campaign: a pool of constant size.

use std::thread;
use std::time::Duration;

use testkit::Process;

use super::part::Part;
use super::worker::WorkerConfig;
use crate::host_time;

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

/// A fixed number of workers; one that is killed is replaced.
#[derive(Debug)]
pub(super) struct WorkerPool {
    members: Vec<PoolWorker>,
    /// The configuration of the next one, apart from its number.
    config: WorkerConfig,
}

impl WorkerPool {
    /// Starts `count` workers, numbered from 1.
    pub(super) fn start(config: WorkerConfig, count: u64) -> Result<Self, String> {
        let mut pool = Self {
            members: Vec::new(),
            config,
        };
        for _ in 0..count {
            pool.replace()?;
        }
        Ok(pool)
    }

    /// Starts one more, with the next number.
    pub(super) fn replace(&mut self) -> Result<(), String> {
        self.config.proc += 1;
        let config = self.config.clone();
        self.members.push(PoolWorker {
            proc: config.proc,
            process: Part::Worker(config).start()?,
            stopped: None,
        });
        Ok(())
    }

    /// Stops a worker until then; false if all are stopped.
    pub(super) fn stop(&mut self, whom: u64, until: Duration) -> Result<bool, String> {
        let Some(index) = self.choose(whom) else {
            return Ok(false);
        };
        let member = &mut self.members[index];
        let stopped = member.process.pause();
        stopped.map_err(|why| format!("worker-{}: {why}", member.proc))?;
        // Both times are read while it is stopped: a line between them shows that it is not.
        let from_ns = host_time::up_ns();
        member.stopped = Some(Stop { from_ns, until });
        Ok(true)
    }

    /// Resumes the workers that are due. Returns each with the beginning and end of its stop.
    pub(super) fn resume(&mut self, now: Duration) -> Result<Vec<(u64, u64, u64)>, String> {
        let mut resumed = Vec::new();
        for member in &mut self.members {
            if let Some(stop) = member.stopped.take_if(|stop| stop.until <= now) {
                let to_ns = host_time::up_ns();
                member.process.resume()?;
                resumed.push((member.proc, stop.from_ns, to_ns));
            }
        }
        Ok(resumed)
    }

    pub(super) fn any_stopped(&self) -> bool {
        self.members.iter().any(|member| member.stopped.is_some())
    }

    /// Kills a worker and returns its number; `None` if all are stopped. A stopped one is not killed: its stop would have no end.
    pub(super) fn kill(&mut self, whom: u64) -> Result<Option<u64>, String> {
        let Some(index) = self.choose(whom) else {
            return Ok(None);
        };
        let mut member = self.members.swap_remove(index);
        member.process.kill()?;
        Ok(Some(member.proc))
    }

    /// A worker that is not stopped.
    fn choose(&self, whom: u64) -> Option<usize> {
        let at_work: Vec<usize> = (0..self.members.len())
            .filter(|&index| self.members[index].stopped.is_none())
            .collect();
        let chosen = whom.checked_rem(at_work.len() as u64)?;
        at_work
            .get(usize::try_from(chosen).unwrap_or_default())
            .copied()
    }

    /// Checks that no worker has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for member in &mut self.members {
            if let Some(status) = member.process.ended().map_err(|error| error.to_string())? {
                return Err(format!(
                    "worker-{} has ended by itself: {status}",
                    member.proc
                ));
            }
        }
        Ok(())
    }

    /// Waits until all workers have ended, after they were told to.
    pub(super) fn end(mut self) -> Result<(), String> {
        let until = host_time::up() + END;
        for member in &mut self.members {
            let status = loop {
                if let Some(status) = member.process.ended().map_err(|error| error.to_string())? {
                    break status;
                }
                if host_time::up() > until {
                    return Err(format!(
                        "worker-{} does not come to an end within {END:?}",
                        member.proc
                    ));
                }
                thread::sleep(Duration::from_millis(2));
            };
            if !status.success() {
                return Err(format!("worker-{} has failed: {status}", member.proc));
            }
        }
        Ok(())
    }
}
