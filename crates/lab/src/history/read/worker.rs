//! Reads the lines of a worker: joins a completion to its operation, and an operation to its lease, within one process.

use std::collections::HashMap;

use super::HistoryBuilder;
use super::lines::{Unreadable, at, line_of, lines};
use crate::history::format::{OperationKind, Outcome, WorkerLine};
use crate::history::joined::{History, last_begun};
use crate::history::lease::{Claim, Lease};
use crate::history::records::{Completion, LossReport, Operation, Source};

/// How long a signal takes to reach all threads of a process, with a margin.
const SIGNAL_NS: u64 = 5_000_000;

pub(super) fn read(
    builder: &mut HistoryBuilder,
    proc: u64,
    name: &str,
    text: &str,
) -> Result<(), Unreadable> {
    let file = builder.history.file(name);
    let HistoryBuilder { history, owners } = builder;
    let killed = history
        .processes
        .entry(proc)
        .or_default()
        .killed_ns
        .is_some();
    let last = text.lines().count();
    let mut worker = WorkerReader {
        history,
        owners,
        proc,
        begun: HashMap::new(),
        current: HashMap::new(),
    };
    for (source, text_of_line) in lines(file, text) {
        let line = match line_of(name, source, text_of_line) {
            Ok(line) => line,
            // Torn by a kill.
            Err(_) if killed && source.line as usize == last && !text.ends_with('\n') => break,
            Err(error) => return Err(error),
        };
        worker
            .take(source, line)
            .map_err(|why| at(name, source, why))?;
    }
    Ok(())
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
            WorkerLine::Invoke { proc, at_ns, .. }
            | WorkerLine::Complete { proc, at_ns, .. }
            | WorkerLine::ToldLost { proc, at_ns, .. } => (*proc, *at_ns),
        };
        if proc != self.proc {
            return Err("the line of another process");
        }
        self.at(at_ns)?;
        match line {
            WorkerLine::Invoke {
                op,
                what,
                lock,
                owner,
                at_ns,
                fence,
                valid_until_ns,
                ..
            } => {
                if self
                    .begun
                    .insert(op, self.history.operations.len())
                    .is_some()
                {
                    return Err("the number of this operation is taken");
                }
                let lease = self.current.get(&(lock.clone(), owner.clone())).copied();
                let lease = lease.filter(|_| what != OperationKind::Acquire);
                if what == OperationKind::Acquire
                    && *self.owners.entry(owner.clone()).or_insert(self.proc) != self.proc
                {
                    return Err("the owner of another process's acquisition");
                }
                self.history.operations.push(Operation {
                    proc,
                    what,
                    lock,
                    owner,
                    invoked_ns: at_ns,
                    invoked: source,
                    fence,
                    valid_until_ns,
                    done: None,
                    lease,
                });
                self.used(lease, what, at_ns, source, valid_until_ns);
                Ok(())
            }
            WorkerLine::Complete {
                op,
                at_ns,
                outcome,
                fence,
                valid_until_ns,
                ..
            } => {
                let done = Completion {
                    at_ns,
                    outcome,
                    fence,
                    valid_until_ns,
                    source,
                };
                self.complete(op, done)
            }
            WorkerLine::ToldLost {
                lock,
                owner,
                at_ns,
                valid_until_ns,
                ..
            } => {
                let lease = self.current.get(&(lock.clone(), owner.clone())).copied();
                self.told(lease, at_ns, source, valid_until_ns);
                self.history.told.push(LossReport {
                    proc,
                    lock,
                    at_ns,
                    source,
                    lease,
                });
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

    /// Records the use of a lease, with its deadline if one is named, or its release.
    fn used(
        &mut self,
        lease: Option<usize>,
        what: OperationKind,
        at_ns: u64,
        source: Source,
        until: Option<u64>,
    ) {
        let index = self.history.operations.len() - 1;
        let known = lease.and_then(|at| self.history.leases.get(at));
        let before = known
            .and_then(|lease| lease.claims.last())
            .map(|claim| claim.from_ns);
        let era = self.history.era_of(before.unwrap_or(at_ns), at_ns, until);
        let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
            return;
        };
        if what == OperationKind::Release {
            lease.release = Some(index);
            lease.end(at_ns, source);
            return;
        }
        lease.used_ns = lease.used_ns.max(at_ns);
        if until > lease.deadline_ns {
            lease.claim(Claim {
                from_ns: at_ns,
                until_ns: until,
                era,
            });
        }
    }

    fn told(&mut self, lease: Option<usize>, at_ns: u64, source: Source, until: Option<u64>) {
        let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
            return;
        };
        lease.is_told = true;
        if until.is_some() {
            // Without a time and an era: it counts for I9, not as valid.
            lease.claim(Claim {
                from_ns: at_ns,
                until_ns: until,
                era: None,
            });
        }
        lease.known_over(at_ns);
        lease.end(at_ns, source);
    }

    fn complete(&mut self, op: u64, done: Completion) -> Result<(), &'static str> {
        let index = *self.begun.get(&op).ok_or("the end of what never began")?;
        let Some(operation) = self.history.operations.get_mut(index) else {
            return Err("the end of what never began");
        };
        if operation.done.is_some() {
            return Err("ended twice");
        }
        operation.done = Some(done);
        let what = operation.what;
        let who = (operation.lock.clone(), operation.owner.clone());
        let (invoked_ns, lease) = (operation.invoked_ns, operation.lease);
        let claim = Claim {
            from_ns: done.at_ns,
            until_ns: done.valid_until_ns,
            era: self
                .history
                .era_of(invoked_ns, done.at_ns, done.valid_until_ns),
        };
        match (what, done.outcome) {
            (OperationKind::Acquire, Outcome::Ok) => {
                self.acquired(index, who, done.fence, claim, done.source);
            }
            (OperationKind::Acquire, Outcome::Lost) => {
                return Err("an acquire has nothing to lose");
            }
            _ => {
                let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
                    return Ok(());
                };
                match (what, done.outcome) {
                    (OperationKind::Extend, Outcome::Ok) => lease.claim(claim),
                    (OperationKind::Extend, Outcome::Lost | Outcome::Refused) => {
                        lease.known_over(done.at_ns);
                        lease.end(done.at_ns, done.source);
                    }
                    (OperationKind::Release, Outcome::Ok | Outcome::Lost) => {
                        lease.known_over(done.at_ns);
                    }
                    _ => {}
                }
                if what != OperationKind::Release {
                    lease.used_ns = lease.used_ns.max(done.at_ns);
                }
            }
        }
        Ok(())
    }

    fn acquired(
        &mut self,
        operation: usize,
        who: (String, String),
        fence: Option<u64>,
        claim: Claim,
        source: Source,
    ) {
        let invoked_ns = match self.history.operations.get(operation) {
            Some(operation) => operation.invoked_ns,
            None => claim.from_ns,
        };
        let known = self.current.get(&who).copied();
        let repeated = known.filter(|at| {
            let lease = self.history.leases.get(*at);
            fence.is_some()
                && lease.is_some_and(|lease| lease.fence == fence && lease.over.is_none())
        });
        let at = repeated.unwrap_or(self.history.leases.len());
        if let Some(lease) = self.history.leases.get_mut(at) {
            lease.claim(claim);
        } else {
            self.history.leases.push(Lease {
                proc: self.proc,
                lock: who.0.clone(),
                owner: who.1.clone(),
                fence,
                invoked_ns,
                acquired_ns: claim.from_ns,
                acquired: source,
                claims: vec![claim],
                over: None,
                is_told: false,
                known_over_ns: None,
                deadline_ns: claim.until_ns,
                release: None,
                used_ns: claim.from_ns,
            });
            self.current.insert(who, at);
        }
        if let Some(operation) = self.history.operations.get_mut(operation) {
            operation.lease = Some(at);
        }
    }
}
