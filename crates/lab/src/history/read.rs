//! Reads files into a [`History`]: joins a completion to its operation, and an operation to its lease, within one process. A line
//! that is not understood makes the whole history unreadable.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use crate::history::campaign::{Campaign, FaultKind};
use crate::history::format::{
    Completion, Decision, Fault, LeaseMode, Line, LossReport, Operation, OperationKind, Outcome,
    Source, number_of,
};
use crate::history::joined::{History, last_begun};
use crate::history::lease::{Claim, Lease};

const CAMPAIGN: &str = "campaign.json";
const NEMESIS: &str = "nemesis.jsonl";

/// How long a signal takes to reach all threads of a process, with a margin.
const SIGNAL_NS: u64 = 5_000_000;

/// The reason why a history cannot be judged: the file, the line (0 for the whole file) and the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1; 0 for the whole file.
    pub line: u32,
    /// The error.
    pub why: String,
}

impl Unreadable {
    fn new(file: &str, line: u32, why: &str) -> Self {
        Self {
            file: file.to_owned(),
            line,
            why: why.to_owned(),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.why),
            line => write!(f, "{}:{line}: {}", self.file, self.why),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Reads the history in a directory.
pub fn read(dir: &Path) -> Result<History, Unreadable> {
    let unreadable = |file: &Path, error: std::io::Error| {
        Unreadable::new(&file.display().to_string(), 0, &error.to_string())
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(|error| unreadable(dir, error))? {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if name == CAMPAIGN || path.extension().is_some_and(|end| end == "jsonl") {
            let text = std::fs::read(&path).map_err(|error| unreadable(&path, error))?;
            // A torn line may end within a character; JSON parsing refuses it where that matters.
            files.insert(name.to_owned(), String::from_utf8_lossy(&text).into_owned());
        }
    }
    parse(&files)
}

/// Reads a history from the texts of its files, by name.
pub fn parse(files: &BTreeMap<String, String>) -> Result<History, Unreadable> {
    let whole = |why: &str| Unreadable::new(CAMPAIGN, 0, why);
    let text = files.get(CAMPAIGN).ok_or_else(|| whole("missing"))?;
    let campaign: Campaign =
        serde_json::from_str(text).map_err(|error| whole(&error.to_string()))?;
    if !(1..=2).contains(&campaign.format) {
        return Err(whole(&format!("format {} is unknown", campaign.format)));
    }
    let mut reader = Reader {
        history: History {
            campaign,
            ..History::default()
        },
        owners: HashMap::new(),
        begun: HashMap::new(),
        current: HashMap::new(),
        broken: HashMap::new(),
        asked: HashMap::new(),
    };
    // The nemesis first: a worker that it killed may have left a torn line.
    if let Some(text) = files.get(NEMESIS) {
        reader.file(NEMESIS, Author::Nemesis, text)?;
        reader.history.join_faults();
        reader.join_breaks();
    }
    for (name, text) in files {
        let Some(stem) = name.strip_suffix(".jsonl").filter(|_| name != NEMESIS) else {
            continue;
        };
        let author = match (stem, stem.strip_prefix("worker-")) {
            ("resource", _) => Author::Resource,
            ("store", _) => Author::Store,
            (_, Some(proc)) => Author::Worker(
                number_of(proc)
                    .ok_or_else(|| Unreadable::new(name, 0, "no number of a process"))?,
            ),
            _ => return Err(Unreadable::new(name, 0, "no such file in a history")),
        };
        reader.file(name, author, text)?;
    }
    Ok(reader.history)
}

/// Who has written a file.
#[derive(Clone, Copy)]
enum Author {
    Nemesis,
    Resource,
    Store,
    Worker(u64),
}

/// The history read so far.
struct Reader {
    history: History,
    /// The process of each owner.
    owners: HashMap<String, u64>,
    /// The operations, by their process and number.
    begun: HashMap<(u64, u64), usize>,
    /// The lease that each process acquired last, of each lock and owner.
    current: HashMap<(u64, String, String), usize>,
    /// The first and the last moment in which the grants of each lock were broken.
    broken: HashMap<(String, GrantId), (u64, u64)>,
    /// When each process asked for what it holds in a session, by its lock.
    asked: HashMap<(u64, String, u64), u64>,
}

/// What a break and the leases of its grant have in common: a process may hand a lock on under further fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum GrantId {
    Fence(u64),
    Session(u64),
}

fn grants(fence: Option<u64>, session: Option<u64>) -> impl Iterator<Item = GrantId> {
    let fence = fence.map(GrantId::Fence);
    fence.into_iter().chain(session.map(GrantId::Session))
}

impl Reader {
    /// Reads a file line by line. The last line may be torn if its process was killed.
    fn file(&mut self, name: &str, author: Author, text: &str) -> Result<(), Unreadable> {
        let file = u32::try_from(self.history.files.len()).unwrap_or(u32::MAX);
        self.history.files.push(name.to_owned());
        let may_be_torn = match author {
            Author::Worker(proc) => {
                let process = self.history.processes.entry(proc).or_default();
                process.killed_ns.is_some() && !text.ends_with('\n')
            }
            _ => false,
        };
        let mut lines = text.lines().zip(1..).peekable();
        while let Some((content, line)) = lines.next() {
            let taken = match serde_json::from_str(content) {
                Ok(read) => self
                    .take(author, Source { file, line }, read)
                    .map_err(str::to_owned),
                Err(_) if may_be_torn && lines.peek().is_none() => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            taken.map_err(|why| Unreadable::new(name, line, &why))?;
        }
        Ok(())
    }

    /// Takes a line, or refuses it with the reason.
    fn take(&mut self, author: Author, source: Source, line: Line) -> Result<(), &'static str> {
        match (author, line) {
            (Author::Worker(proc), Line::Invoke(mut operation)) => {
                self.wrote(proc, operation.proc, operation.invoked_ns)?;
                operation.invoked = source;
                self.invoke(operation)
            }
            (Author::Worker(proc), Line::Complete(mut done)) => {
                self.wrote(proc, done.proc, done.at_ns)?;
                done.source = source;
                self.complete(done)
            }
            (Author::Worker(proc), Line::ToldLost(mut told)) => {
                self.wrote(proc, told.proc, told.at_ns)?;
                told.source = source;
                self.told(told);
                Ok(())
            }
            (Author::Resource, Line::Decision(mut decision)) => {
                decision.source = source;
                self.decision(decision)
            }
            (Author::Store, Line::Removed(mut removal)) => {
                removal.source = source;
                self.history.removals.push(removal);
                Ok(())
            }
            (Author::Nemesis, Line::Fault(mut fault)) => {
                fault.source = source;
                self.fault(fault)
            }
            (Author::Nemesis, Line::Unwell(unwell)) if unwell.until_ns < unwell.at_ns => {
                Err("ends before it begins")
            }
            (Author::Nemesis, Line::Unwell(unwell)) => {
                self.history.unwell.push(unwell);
                Ok(())
            }
            (Author::Nemesis, Line::Calm { at_ns }) => {
                self.history.calm = Some(at_ns);
                Ok(())
            }
            (Author::Nemesis, Line::ServerStart(start)) => {
                let last = self.history.starts.last();
                if last.is_some_and(|it| start.at_ns < it.at_ns || start.epoch < it.epoch) {
                    return Err("the server's starts are out of order");
                }
                self.history.starts.push(start);
                Ok(())
            }
            _ => Err("a line of another kind of file"),
        }
    }

    fn fault(&mut self, fault: Fault) -> Result<(), &'static str> {
        let is_possible = if fault.kind.is_of_a_worker() {
            fault.worker().is_some()
        } else {
            fault.is_at_a_server()
        };
        if !is_possible {
            return Err("nothing that this can happen to");
        }
        if fault.until_ns.is_some_and(|until| until < fault.at_ns) {
            return Err("ends before it begins");
        }
        if fault.kind.is_a_step() != fault.by_ns.is_some() {
            return Err("a clock jumps by some time, nothing else does");
        }
        let is_named = fault.lock.is_some() && fault.fence.is_some();
        if fault.kind == FaultKind::BreakLock && !is_named {
            return Err("a lock is broken by its name and a fence");
        }
        self.history.faults.push(fault);
        Ok(())
    }

    fn decision(&mut self, decision: Decision) -> Result<(), &'static str> {
        if !matches!(decision.what, OperationKind::Read | OperationKind::Write) {
            return Err("a resource reads and writes");
        }
        let before = self.history.decisions.last();
        if before.is_some_and(|last| decision.seq <= last.seq || decision.at_ns < last.at_ns) {
            return Err("decisions are out of order");
        }
        self.history.decisions.push(decision);
        Ok(())
    }

    /// Records that the process wrote a line at this time.
    fn wrote(&mut self, proc: u64, named: u64, at_ns: u64) -> Result<(), &'static str> {
        if named != proc {
            return Err("the line of another process");
        }
        let process = self.history.processes.entry(proc).or_default();
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

    /// Notes the breaks, which are in order of time.
    fn join_breaks(&mut self) {
        for fault in &self.history.faults {
            for grant in grants(fault.fence, fault.session) {
                let of = (fault.lock.clone().unwrap_or_default(), grant);
                let (at_ns, until_ns) = fault.span();
                let broken = self.broken.entry(of).or_insert((at_ns, until_ns));
                broken.1 = until_ns.max(broken.1);
            }
        }
    }

    /// The index of the lease that this owner acquired last in this process.
    fn lease_of(&self, proc: u64, lock: &str, owner: &str) -> Option<usize> {
        let who = (proc, lock.to_owned(), owner.to_owned());
        self.current.get(&who).copied()
    }

    fn lease_mut(&mut self, at: Option<usize>) -> Option<&mut Lease> {
        self.history.leases.get_mut(at?)
    }

    fn invoke(&mut self, mut operation: Operation) -> Result<(), &'static str> {
        let index = self.history.operations.len();
        let Operation { proc, op, .. } = operation;
        if self.begun.insert((proc, op), index).is_some() {
            return Err("the number of this operation is taken");
        }
        if operation.what == OperationKind::Acquire {
            let owner = operation.owner.clone();
            if *self.owners.entry(owner).or_insert(proc) != proc {
                return Err("the owner of another process's acquisition");
            }
        } else {
            operation.lease = self.lease_of(proc, &operation.lock, &operation.owner);
            self.used(index, &operation);
        }
        self.history.operations.push(operation);
        Ok(())
    }

    /// Records the use of a lease by the operation with this index, with its deadline if one is named, or its release.
    fn used(&mut self, index: usize, operation: &Operation) {
        let (at_ns, until_ns) = (operation.invoked_ns, operation.valid_until_ns);
        let lease = self.history.lease(operation.lease);
        let before = lease.and_then(|lease| lease.claims.last());
        let asked_ns = before.map_or(at_ns, |claim| claim.from_ns);
        let era = self
            .history
            .era_of(&operation.lock, asked_ns, at_ns, until_ns);
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

    fn told(&mut self, mut told: LossReport) {
        told.lease = self.lease_of(told.proc, &told.lock, &told.owner);
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
        let begun = self.begun.get(&(done.proc, done.op));
        let index = *begun.ok_or("the end of what never began")?;
        let operation = &mut self.history.operations[index];
        if operation.done.replace(done).is_some() {
            return Err("ended twice");
        }
        let (what, invoked_ns, lease) = (operation.what, operation.invoked_ns, operation.lease);
        let claim = Claim {
            from_ns: done.at_ns,
            until_ns: done.valid_until_ns,
            era: self.history.era_of(
                &self.history.operations[index].lock,
                invoked_ns,
                done.at_ns,
                done.valid_until_ns,
            ),
        };
        if what == OperationKind::Acquire {
            match done.outcome {
                Outcome::Ok => return self.acquired(index, done, claim),
                Outcome::Lost => return Err("an acquire has nothing to lose"),
                Outcome::Refused | Outcome::Unknown => {}
            }
            return Ok(());
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
    fn acquired(
        &mut self,
        index: usize,
        done: Completion,
        claim: Claim,
    ) -> Result<(), &'static str> {
        let History {
            operations, leases, ..
        } = &mut self.history;
        let operation = &mut operations[index];
        if matches!(operation.mode, LeaseMode::Slot(_)) != done.slot.is_some() {
            return Err("a slot has a number, and nothing else has");
        }
        let who = (
            operation.proc,
            operation.lock.clone(),
            operation.owner.clone(),
        );
        let known = self.current.get(&who).copied().filter(|at| {
            let lease = &leases[*at];
            done.fence.is_some() && lease.fence == done.fence && lease.over.is_none()
        });
        let at = known.unwrap_or(leases.len());
        operation.lease = Some(at);
        if known.is_some() {
            leases[at].claim(claim);
            return Ok(());
        }
        let mut asked_ns = operation.invoked_ns;
        if let Some(session) = done.session {
            let of = (who.0, who.1.clone(), session);
            asked_ns = *self.asked.entry(of).or_insert(asked_ns);
        }
        let broken = grants(done.fence, done.session).filter_map(|grant| {
            let (at_ns, until_ns) = *self.broken.get(&(who.1.clone(), grant))?;
            // A store that lets a reader into a phase after the break of it did not break it. A process that was in it may not know.
            let is_later = matches!(grant, GrantId::Fence(_)) && asked_ns > until_ns;
            (!is_later || self.history.is_handed_on(index, until_ns)).then_some(at_ns)
        });
        let broken_ns = broken.min();
        let History {
            operations, leases, ..
        } = &mut self.history;
        let operation = &operations[index];
        leases.push(Lease {
            proc: who.0,
            lock: who.1.clone(),
            owner: who.2.clone(),
            mode: operation.mode,
            slot: done.slot,
            fence: done.fence,
            broken_ns,
            invoked_ns: operation.invoked_ns,
            acquired_ns: done.at_ns,
            acquired: done.source,
            claims: vec![claim],
            deadline_ns: done.valid_until_ns,
            renews: done.renews,
            used_ns: done.at_ns,
            ..Lease::default()
        });
        self.current.insert(who, at);
        Ok(())
    }
}
