//! The history of a worker. The beginning of every operation that may have an effect is recorded.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

use crate::host_time;

/// The history of one process: `worker-PROC.jsonl`.
#[derive(Debug)]
pub(super) struct HistoryLog {
    proc: u64,
    file: File,
    operations: AtomicU64,
}

/// An acquisition of a lock, by its name in histories.
#[derive(Debug)]
pub(super) struct LeaseName {
    pub(super) lock: String,
    pub(super) owner: String,
}

/// The known state of its lease.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) fence: Option<u64>,
    pub(super) valid_until_ns: Option<u64>,
}

impl HistoryLog {
    pub(super) fn create(directory: &Path, proc: u64) -> Result<Self, String> {
        let path = directory.join(format!("worker-{proc}.jsonl"));
        let file = File::options().create_new(true).append(true).open(&path);
        Ok(Self {
            proc,
            file: file.map_err(|error| format!("{}: {error}", path.display()))?,
            operations: AtomicU64::new(0),
        })
    }

    /// A new acquisition of `lock`.
    pub(super) fn name(&self, lock: String) -> LeaseName {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}.{number}", self.proc);
        LeaseName { lock, owner }
    }

    /// Records the beginning of an operation. Returns its number.
    pub(super) fn invoke(&self, what: &str, name: &LeaseName, known: Known) -> Result<u64, String> {
        let op = self.operations.fetch_add(1, Ordering::Relaxed);
        self.write(
            json!({
                "ev": "invoke", "proc": self.proc, "pid": std::process::id(), "op": op, "what": what,
                "lock": name.lock, "owner": name.owner, "at_ns": host_time::up_ns(),
            }),
            known,
        )?;
        Ok(op)
    }

    /// Records its outcome: `ok`, `refused`, or `lost`.
    pub(super) fn complete(&self, op: u64, outcome: &str, known: Known) -> Result<(), String> {
        self.ended(op, outcome, known, None)
    }

    /// Records that its outcome is unknown, for this reason.
    pub(super) fn unknown(&self, op: u64, why: &str) -> Result<(), String> {
        self.ended(op, "unknown", Known::default(), Some(why))
    }

    fn ended(&self, op: u64, outcome: &str, known: Known, why: Option<&str>) -> Result<(), String> {
        let at_ns = host_time::up_ns();
        let mut line = json!({"ev": "complete", "proc": self.proc, "op": op, "at_ns": at_ns, "outcome": outcome});
        // For people: the judge reads no reasons.
        if let (Some(line), Some(why)) = (line.as_object_mut(), why) {
            line.insert("why".to_owned(), why.into());
        }
        self.write(line, known)
    }

    /// Records that the lease reported its loss, with the reason.
    pub(super) fn told_lost(
        &self,
        name: &LeaseName,
        known: Known,
        why: &str,
    ) -> Result<(), String> {
        let at_ns = host_time::up_ns();
        self.write(
            json!({
                "ev": "told-lost", "proc": self.proc, "lock": name.lock, "owner": name.owner, "at_ns": at_ns, "why": why,
            }),
            known,
        )
    }

    fn write(&self, mut line: Value, known: Known) -> Result<(), String> {
        let mut put = |key: &str, value: Option<u64>| {
            if let (Some(line), Some(value)) = (line.as_object_mut(), value) {
                let line: &mut Map<String, Value> = line;
                line.insert(key.to_owned(), value.into());
            }
        };
        put("fence", known.fence);
        put("valid_until_ns", known.valid_until_ns);
        append(&self.file, &line)
    }
}

/// Writes a whole line with one call, so that lines of processes do not mix.
pub(in crate::storm) fn append(mut file: &File, line: &Value) -> Result<(), String> {
    let mut line = line.to_string();
    line.push('\n');
    file.write_all(line.as_bytes())
        .map_err(|error| format!("cannot write the history: {error}"))
}
