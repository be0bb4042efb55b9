//! Reads files into a [`History`]. A line that is not understood makes the whole history unreadable.

mod lines;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::history::campaign::{Campaign, FaultKind};
use crate::history::format::{
    Decision, Fault, NemesisLine, OperationKind, Removal, ResourceLine, StoreLine,
};
use crate::history::joined::{History, Process, joined};

pub use self::lines::Unreadable;
use self::lines::{each_line, whole};

const NEMESIS: &str = "nemesis.jsonl";

/// Reads the history in a directory.
pub fn read(dir: &Path) -> Result<History, Unreadable> {
    let unreadable = |file: &Path, error: std::io::Error| Unreadable {
        file: file.display().to_string(),
        line: 0,
        why: error.to_string(),
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(|error| unreadable(dir, error))? {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if name == "campaign.json" || path.extension().is_some_and(|end| end == "jsonl") {
            let text = std::fs::read(&path).map_err(|error| unreadable(&path, error))?;
            // A torn line may end within a character; JSON parsing refuses it where that matters.
            files.insert(name.to_owned(), String::from_utf8_lossy(&text).into_owned());
        }
    }
    parse(&files)
}

/// Reads a history from the texts of its files, by name.
pub fn parse(files: &BTreeMap<String, String>) -> Result<History, Unreadable> {
    let mut history = History::of(campaign(files)?);
    // The process of each owner.
    let mut owners = HashMap::new();
    // The nemesis first: a worker that it killed may have left a torn line.
    if let Some(text) = files.get(NEMESIS) {
        nemesis(&mut history, text)?;
    }
    for (name, text) in files {
        let stem = name.strip_suffix(".jsonl");
        let proc = stem.and_then(|stem| stem.strip_prefix("worker-"));
        match (stem, proc) {
            (None | Some("nemesis"), _) => {}
            (Some("resource"), _) => resource(&mut history, name, text)?,
            (Some("store"), _) => store(&mut history, name, text)?,
            (_, Some(proc)) => {
                let proc = number_of(proc).ok_or_else(|| whole(name, "no number of a process"))?;
                worker::read(&mut history, &mut owners, proc, name, text)?;
            }
            (Some(_), None) => return Err(whole(name, "no such file in a history")),
        }
    }
    Ok(history)
}

fn campaign(files: &BTreeMap<String, String>) -> Result<Campaign, Unreadable> {
    const FILE: &str = "campaign.json";
    let text = files.get(FILE).ok_or_else(|| whole(FILE, "missing"))?;
    let campaign: Campaign =
        serde_json::from_str(text).map_err(|error| whole(FILE, &error.to_string()))?;
    if campaign.format != 1 {
        return Err(whole(
            FILE,
            &format!("format {} is unknown", campaign.format),
        ));
    }
    Ok(campaign)
}

fn nemesis(history: &mut History, text: &str) -> Result<(), Unreadable> {
    let file = history.file(NEMESIS);
    each_line(NEMESIS, file, text, false, |source, line: NemesisLine| {
        match line {
            NemesisLine::Fault(fault) => {
                let worker = worker_of(&fault.target).is_some();
                if worker != fault.kind.is_of_a_worker() || !worker && !is_a_server(&fault.target) {
                    return Err("nothing that this can happen to");
                }
                if fault.until_ns.is_some_and(|until| until < fault.at_ns) {
                    return Err("ends before it begins");
                }
                if fault.kind.is_a_step() != fault.by_ns.is_some() {
                    return Err("a clock jumps by some time, nothing else does");
                }
                history.faults.push(Fault { source, ..fault });
            }
            NemesisLine::Calm { at_ns } => history.calm = Some(at_ns),
            NemesisLine::ServerStart { epoch, at_ns } => {
                let last = history.starts.last();
                if last.is_some_and(|(then, before)| at_ns < *then || epoch < *before) {
                    return Err("the server's starts are out of order");
                }
                history.starts.push((at_ns, epoch));
            }
        }
        Ok(())
    })?;
    history.faults.sort_by_key(|fault| fault.at_ns);
    fates(history);
    Ok(())
}

/// The faults of the server and of each worker.
fn fates(history: &mut History) {
    let History {
        faults,
        processes,
        outages,
        forgotten,
        set_forward,
        set_back,
        ..
    } = history;
    let times = |of: &dyn Fn(FaultKind) -> bool| {
        let chosen = faults.iter().filter(|fault| of(fault.kind));
        joined(chosen.map(|fault| (fault.at_ns, fault.until_ns.unwrap_or(fault.at_ns))))
    };
    *outages = times(&FaultKind::delays_requests);
    *forgotten = times(&|kind| kind == FaultKind::Failover);
    *set_forward = times(&|kind| kind == FaultKind::ClockForward);
    let back = faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::ClockBack);
    set_back.extend(back.filter_map(|fault| {
        let to_ns = fault.until_ns.unwrap_or(fault.at_ns);
        Some((fault.at_ns, to_ns, fault.by_ns?))
    }));
    for fault in faults {
        let Some(proc) = worker_of(&fault.target) else {
            continue;
        };
        let process: &mut Process = processes.entry(proc).or_default();
        match fault.kind {
            FaultKind::StopWorker => {
                let until = fault.until_ns.unwrap_or(u64::MAX);
                process.stops.push((fault.at_ns, until));
            }
            FaultKind::KillWorker => process.killed_ns = Some(fault.at_ns),
            _ => {}
        }
    }
    for process in processes.values_mut() {
        process.stops = joined(process.stops.drain(..));
    }
}

fn resource(history: &mut History, name: &str, text: &str) -> Result<(), Unreadable> {
    let file = history.file(name);
    each_line(name, file, text, false, |source, line| {
        let ResourceLine::Decision(decision): ResourceLine = line;
        if !matches!(decision.what, OperationKind::Read | OperationKind::Write) {
            return Err("a resource reads and writes");
        }
        let before = history.decisions.last();
        if before.is_some_and(|last| decision.seq <= last.seq || decision.at_ns < last.at_ns) {
            return Err("decisions are out of order");
        }
        history.decisions.push(Decision { source, ..decision });
        Ok(())
    })
}

fn store(history: &mut History, name: &str, text: &str) -> Result<(), Unreadable> {
    let file = history.file(name);
    each_line(name, file, text, false, |source, line| {
        let StoreLine::Removed(removal): StoreLine = line;
        history.removals.push(Removal { source, ..removal });
        Ok(())
    })
}

/// Whether a fault names the server, or a node of a quorum.
fn is_a_server(target: &str) -> bool {
    target == "server" || target.strip_prefix("node-").and_then(number_of).is_some()
}

/// The worker that a fault names; `None` for the server or an unknown target.
fn worker_of(target: &str) -> Option<u64> {
    number_of(target.strip_prefix("worker-")?)
}

/// Parses a number in its only notation: otherwise two files could belong to one process.
fn number_of(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
