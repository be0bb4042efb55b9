//! The lines of a worker: an end is joined to its beginning, an operation to its lease. Must never join across processes.

use std::collections::HashMap;

use super::{Reading, Unreadable, at, line_of, lines};
use crate::History;
use crate::format::{Outcome, What, WorkerLine};
use crate::history::{Done, Operation, Source, Told};
use crate::lease::{Claim, Lease};

pub(super) fn read(
    reading: &mut Reading,
    proc: u64,
    name: &str,
    text: &str,
) -> Result<(), Unreadable> {
    let file = reading.file(name);
    let history = &mut reading.history;
    let killed = history
        .processes
        .entry(proc)
        .or_default()
        .killed_ns
        .is_some();
    let last = text.lines().count();
    let mut worker = Worker {
        history,
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

/// What is known while the lines of one worker are read.
struct Worker<'a> {
    history: &'a mut History,
    proc: u64,
    /// The operations by their number.
    begun: HashMap<u64, usize>,
    /// The lease that an owner has of a lock.
    current: HashMap<(u32, u32), usize>,
}

impl Worker<'_> {
    fn take(&mut self, source: Source, line: WorkerLine) -> Result<(), &'static str> {
        let (proc, at_ns) = match &line {
            WorkerLine::Invoke { proc, at_ns, .. }
            | WorkerLine::Complete { proc, at_ns, .. }
            | WorkerLine::ToldLost { proc, at_ns, .. } => (*proc, *at_ns),
        };
        if proc != self.proc {
            return Err("the line of another process");
        }
        if let Some(process) = self.history.processes.get_mut(&proc) {
            process.last_ns = process.last_ns.max(at_ns);
        }
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
                let lock = self.history.names.number(lock);
                let owner = self.history.names.number(owner);
                if self
                    .begun
                    .insert(op, self.history.operations.len())
                    .is_some()
                {
                    return Err("the number of this operation is taken");
                }
                let lease = self.current.get(&(lock, owner)).copied();
                let lease = lease.filter(|_| what != What::Acquire);
                self.history.operations.push(Operation {
                    proc,
                    what,
                    lock,
                    owner,
                    invoked_ns: at_ns,
                    invoked: source,
                    fence,
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
                let done = Done {
                    at_ns,
                    outcome,
                    valid_until_ns,
                    source,
                };
                self.complete(op, done, fence)
            }
            WorkerLine::ToldLost {
                lock,
                owner,
                at_ns,
                valid_until_ns,
                ..
            } => {
                let lock = self.history.names.number(lock);
                let owner = self.history.names.number(owner);
                let lease = self.current.get(&(lock, owner)).copied();
                self.told(lease, at_ns, source, valid_until_ns);
                self.history.told.push(Told {
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

    /// A line of a lease: it is relied on, with this deadline if one is named; or it is given back.
    fn used(
        &mut self,
        lease: Option<usize>,
        what: What,
        at_ns: u64,
        source: Source,
        until: Option<u64>,
    ) {
        let index = self.history.operations.len() - 1;
        let known = lease.and_then(|at| self.history.leases.get(at));
        let before = known
            .and_then(|lease| lease.claims.last())
            .map(|claim| claim.from_ns);
        let epoch = self.history.epoch_of(before.unwrap_or(at_ns), at_ns);
        let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
            return;
        };
        if what == What::Release {
            lease.release = Some(index);
            end(lease, at_ns, source);
            return;
        }
        lease.used_ns = lease.used_ns.max(at_ns);
        if until.is_some() && until > lease.deadline_ns() {
            lease.claims.push(Claim {
                from_ns: at_ns,
                until_ns: until,
                epoch,
            });
        }
    }

    fn told(&mut self, lease: Option<usize>, at_ns: u64, source: Source, until: Option<u64>) {
        let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
            return;
        };
        lease.told_ns = Some(lease.told_ns.map_or(at_ns, |told| told.min(at_ns)));
        if until.is_some() {
            // Of no time and no epoch: good to judge the telling by, not to be valid in.
            lease.claims.push(Claim {
                from_ns: at_ns,
                until_ns: until,
                epoch: None,
            });
        }
        end(lease, at_ns, source);
    }

    fn complete(&mut self, op: u64, done: Done, fence: Option<u64>) -> Result<(), &'static str> {
        let index = *self.begun.get(&op).ok_or("the end of what never began")?;
        let Some(operation) = self.history.operations.get_mut(index) else {
            return Err("the end of what never began");
        };
        if operation.done.is_some() {
            return Err("ended twice");
        }
        if done.at_ns < operation.invoked_ns {
            return Err("ended before it began");
        }
        operation.done = Some(done);
        let (what, lock, owner) = (operation.what, operation.lock, operation.owner);
        let (invoked_ns, lease) = (operation.invoked_ns, operation.lease);
        let claim = Claim {
            from_ns: done.at_ns,
            until_ns: done.valid_until_ns,
            epoch: self.history.epoch_of(invoked_ns, done.at_ns),
        };
        match (what, done.outcome) {
            (What::Acquire, Outcome::Ok) => {
                self.acquired(index, (lock, owner), fence, claim, done.source);
            }
            (What::Acquire, Outcome::Lost) => return Err("an acquire has nothing to lose"),
            _ => {
                let Some(lease) = lease.and_then(|at| self.history.leases.get_mut(at)) else {
                    return Ok(());
                };
                match (what, done.outcome) {
                    (What::Extend, Outcome::Ok) => lease.claims.push(claim),
                    (What::Extend, Outcome::Lost | Outcome::Refused) => {
                        end(lease, done.at_ns, done.source);
                    }
                    _ => {}
                }
                if what != What::Release {
                    lease.used_ns = lease.used_ns.max(done.at_ns);
                }
            }
        }
        Ok(())
    }

    fn acquired(
        &mut self,
        operation: usize,
        who: (u32, u32),
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
            lease.claims.push(claim);
        } else {
            self.history.leases.push(Lease {
                proc: self.proc,
                lock: who.0,
                owner: who.1,
                fence,
                invoked_ns,
                acquired_ns: claim.from_ns,
                acquired: source,
                claims: vec![claim],
                over: None,
                told_ns: None,
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

fn end(lease: &mut Lease, at_ns: u64, source: Source) {
    if lease.over.is_none_or(|(over, _)| at_ns < over) {
        lease.over = Some((at_ns, source));
    }
}
