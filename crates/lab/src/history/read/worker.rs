//! Reads the lines of a worker: joins a completion to its operation, and an operation to its lease, within one process.

use std::collections::HashMap;

use super::lines::{Unreadable, each_line};
use crate::history::format::{
    Completion, LossReport, Operation, OperationKind, Outcome, Source, WorkerLine,
};
use crate::history::joined::{History, last_begun};
use crate::history::lease::{Claim, Lease};

/// How long a signal takes to reach all threads of a process, with a margin.
const SIGNAL_NS: u64 = 5_000_000;

/// Reads the file of a process. `owners` has the process of each owner.
pub(super) fn read(
    history: &mut History,
    owners: &mut HashMap<String, u64>,
    proc: u64,
    name: &str,
    text: &str,
) -> Result<(), Unreadable> {
    let file = history.file(name);
    let process = history.processes.entry(proc).or_default();
    let killed = process.killed_ns.is_some();
    let mut worker = WorkerReader {
        history,
        owners,
        proc,
        begun: HashMap::new(),
        current: HashMap::new(),
    };
    each_line(name, file, text, killed, |source, line| {
        worker.take(source, line)
    })
}

/// The state while the lines of one worker are read.
struct WorkerReader<'a> {
    history: &'a mut History,
    /// The process of each owner.
    owners: &'a mut HashMap<String, u64>,
    proc: u64,
    /// The operations by their number.
    begun: HashMap<u64, usize>,
    /// The lease of each lock and owner.
    current: HashMap<(String, String), usize>,
}

impl WorkerReader<'_> {
    fn take(&mut self, source: Source, line: WorkerLine) -> Result<(), &'static str> {
        let (proc, at_ns) = match &line {
            WorkerLine::Invoke(operation) => (operation.proc, operation.invoked_ns),
            WorkerLine::Complete(done) => (done.proc, done.at_ns),
            WorkerLine::ToldLost(told) => (told.proc, told.at_ns),
        };
        if proc != self.proc {
            return Err("the line of another process");
        }
        self.at(at_ns)?;
        match line {
            WorkerLine::Invoke(operation) => self.invoke(Operation {
                invoked: source,
                ..operation
            }),
            WorkerLine::Complete(done) => self.complete(Completion { source, ..done }),
            WorkerLine::ToldLost(told) => {
                self.told(LossReport { source, ..told });
                Ok(())
            }
        }
    }

    /// Records that the process wrote a line at this time.
    fn at(&mut self, at_ns: u64) -> Result<(), &'static str> {
        let Some(process) = self.history.processes.get_mut(&self.proc) else {
            return Ok(());
        };
        if at_ns < process.last_ns {
            return Err("the clock goes back");
        }
        process.last_ns = at_ns;
        let stop = last_begun(&process.stops, at_ns.saturating_sub(SIGNAL_NS));
        let stopped = stop.is_some_and(|(_, cont)| at_ns.saturating_add(SIGNAL_NS) < cont);
        if stopped || process.killed_ns.is_some_and(|killed| killed < at_ns) {
            process.unhurt_ns = Some(at_ns);
        }
        Ok(())
    }

    fn invoke(&mut self, mut operation: Operation) -> Result<(), &'static str> {
        let index = self.history.operations.len();
        if self.begun.insert(operation.op, index).is_some() {
            return Err("the number of this operation is taken");
        }
        if operation.what == OperationKind::Acquire {
            let owner = operation.owner.clone();
            if *self.owners.entry(owner).or_insert(self.proc) != self.proc {
                return Err("the owner of another process's acquisition");
            }
        } else {
            operation.lease = self.lease_of(&operation.lock, &operation.owner);
            self.used(index, &operation);
        }
        self.history.operations.push(operation);
        Ok(())
    }

    /// The index of the lease that this owner acquired last.
    fn lease_of(&self, lock: &str, owner: &str) -> Option<usize> {
        let who = (lock.to_owned(), owner.to_owned());
        self.current.get(&who).copied()
    }

    /// Records the use of a lease by the operation with this index, with its deadline if one is named, or its release.
    fn used(&mut self, index: usize, operation: &Operation) {
        let (at_ns, until_ns) = (operation.invoked_ns, operation.valid_until_ns);
        let lease = self.history.lease(operation.lease);
        let before = lease.and_then(|lease| lease.claims.last());
        let asked_ns = before.map_or(at_ns, |claim| claim.from_ns);
        let era = self.history.era_of(asked_ns, at_ns, until_ns);
        let Some(lease) = self.lease_mut(operation.lease) else {
            return;
        };
        if operation.what == OperationKind::Release {
            lease.release = Some(index);
            lease.end(at_ns, operation.invoked);
            return;
        }
        lease.used_ns = lease.used_ns.max(at_ns);
        if until_ns > lease.deadline_ns {
            lease.claim(Claim {
                from_ns: at_ns,
                until_ns,
                era,
            });
        }
    }

    fn lease_mut(&mut self, at: Option<usize>) -> Option<&mut Lease> {
        self.history.leases.get_mut(at?)
    }

    fn told(&mut self, mut told: LossReport) {
        told.lease = self.lease_of(&told.lock, &told.owner);
        if let Some(lease) = self.lease_mut(told.lease) {
            lease.is_told = true;
            if told.valid_until_ns.is_some() {
                // Without a time and an era: it counts for I9, not as valid.
                lease.claim(Claim {
                    from_ns: told.at_ns,
                    until_ns: told.valid_until_ns,
                    era: None,
                });
            }
            lease.known_over(told.at_ns);
            lease.end(told.at_ns, told.source);
        }
        self.history.told.push(told);
    }

    fn complete(&mut self, done: Completion) -> Result<(), &'static str> {
        let begun = self.begun.get(&done.op).copied();
        let index = begun.ok_or("the end of what never began")?;
        let operation = self.history.operations.get_mut(index);
        let operation = operation.ok_or("the end of what never began")?;
        if operation.done.replace(done).is_some() {
            return Err("ended twice");
        }
        let (what, invoked_ns, lease) = (operation.what, operation.invoked_ns, operation.lease);
        let claim = Claim {
            from_ns: done.at_ns,
            until_ns: done.valid_until_ns,
            era: self
                .history
                .era_of(invoked_ns, done.at_ns, done.valid_until_ns),
        };
        match (what, done.outcome) {
            (OperationKind::Acquire, Outcome::Ok) => {
                self.acquired(index, done, claim);
                return Ok(());
            }
            (OperationKind::Acquire, Outcome::Lost) => {
                return Err("an acquire has nothing to lose");
            }
            _ => {}
        }
        let Some(lease) = self.lease_mut(lease) else {
            return Ok(());
        };
        match (what, done.outcome) {
            (OperationKind::Extend, Outcome::Ok) => lease.claim(claim),
            (OperationKind::Extend, Outcome::Lost | Outcome::Refused) => {
                lease.known_over(done.at_ns);
                lease.end(done.at_ns, done.source);
            }
            (OperationKind::Release, Outcome::Ok | Outcome::Lost) => lease.known_over(done.at_ns),
            _ => {}
        }
        if what != OperationKind::Release {
            lease.used_ns = lease.used_ns.max(done.at_ns);
        }
        Ok(())
    }

    /// Records a new lease; or a deadline of the known one, if a repeated acquire answers its fence.
    fn acquired(&mut self, index: usize, done: Completion, claim: Claim) {
        let History {
            operations, leases, ..
        } = &mut *self.history;
        let Some(operation) = operations.get_mut(index) else {
            return;
        };
        let who = (operation.lock.clone(), operation.owner.clone());
        let known = self.current.get(&who).copied();
        let repeated = known.filter(|at| {
            let lease = leases.get(*at).filter(|_| done.fence.is_some());
            lease.is_some_and(|lease| lease.fence == done.fence && lease.over.is_none())
        });
        let at = repeated.unwrap_or(leases.len());
        operation.lease = Some(at);
        if let Some(lease) = leases.get_mut(at) {
            lease.claim(claim);
            return;
        }
        leases.push(Lease {
            proc: self.proc,
            lock: who.0.clone(),
            owner: who.1.clone(),
            fence: done.fence,
            invoked_ns: operation.invoked_ns,
            acquired_ns: done.at_ns,
            acquired: done.source,
            claims: vec![claim],
            over: None,
            is_told: false,
            known_over_ns: None,
            deadline_ns: done.valid_until_ns,
            release: None,
            used_ns: done.at_ns,
        });
        self.current.insert(who, at);
    }
}
