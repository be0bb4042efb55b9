//! The history of a worker. The beginning of every operation that may have an effect is recorded.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Mode, Owner};
use serde_json::{Value, json};

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
    pub(super) mode: Mode,
}

/// The known state of its lease.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) fence: Option<u64>,
    pub(super) slot: Option<u16>,
    pub(super) valid_until_ns: Option<u64>,
    /// It renews itself.
    pub(super) renews: bool,
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
    pub(super) fn name(&self, lock: String, mode: Mode) -> LeaseName {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}.{number}", self.proc);
        LeaseName { lock, owner, mode }
    }

    /// Records the beginning of an operation. Returns its number.
    pub(super) fn invoke(&self, what: &str, name: &LeaseName, known: Known) -> Result<u64, String> {
        let op = self.operations.fetch_add(1, Ordering::Relaxed);
        let mode = (what == "acquire").then(|| name.mode.to_string());
        let line = json!({
            "ev": "invoke", "pid": std::process::id(), "op": op, "what": what, "mode": mode, "lock": name.lock, "owner": name.owner,
        });
        self.write(line, known, None)?;
        Ok(op)
    }

    /// Records its outcome: `ok`, `refused`, or `lost`.
    pub(super) fn complete(&self, op: u64, outcome: &str, known: Known) -> Result<(), String> {
        let line = json!({"ev": "complete", "op": op, "outcome": outcome});
        self.write(line, known, None)
    }

    /// Records that it acquired a lease, in this session of the store.
    pub(super) fn acquired(&self, op: u64, known: Known, session: u64) -> Result<(), String> {
        let line = json!({"ev": "complete", "op": op, "outcome": "ok", "session": session});
        self.write(line, known, None)
    }

    /// Records what the resource answered, with the version that it returned for a read.
    pub(super) fn decided(&self, op: u64, accepted: bool, read: Option<u64>) -> Result<(), String> {
        let outcome = if accepted { "ok" } else { "refused" };
        let line = json!({"ev": "complete", "op": op, "outcome": outcome, "value": read});
        self.write(line, Known::default(), None)
    }

    /// Records that its outcome is unknown, since the worker gave it up in this way.
    pub(super) fn unknown(&self, op: u64, why: &str) -> Result<(), String> {
        let line = json!({"ev": "complete", "op": op, "outcome": "unknown"});
        self.write(line, Known::default(), Some(why))
    }

    /// Records that the store gave no answer, with its error.
    pub(super) fn unanswered(&self, op: u64, error: &str) -> Result<(), String> {
        let line = json!({"ev": "complete", "op": op, "outcome": "unknown", "no_answer": true});
        self.write(line, Known::default(), Some(error))
    }

    /// Records that the lease reported its loss, with the reason.
    pub(super) fn told_lost(
        &self,
        name: &LeaseName,
        known: Known,
        why: &str,
    ) -> Result<(), String> {
        let line = json!({"ev": "told-lost", "lock": name.lock, "owner": name.owner});
        self.write(line, known, Some(why))
    }

    /// Adds what all lines have. The reason is for people: the judge reads none.
    fn write(&self, mut line: Value, known: Known, why: Option<&str>) -> Result<(), String> {
        line["proc"] = self.proc.into();
        line["at_ns"] = host_time::up_ns().into();
        line["fence"] = known.fence.into();
        line["slot"] = known.slot.into();
        line["valid_until_ns"] = known.valid_until_ns.into();
        line["renews"] = known.renews.then_some(true).into();
        line["why"] = why.into();
        append(&self.file, line)
    }
}

/// Writes a whole line with one call, so that lines of processes do not mix. A field without a value is left out.
pub(crate) fn append(mut file: &File, mut line: Value) -> Result<(), String> {
    if let Some(fields) = line.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    file.write_all(format!("{line}\n").as_bytes())
        .map_err(|error| format!("cannot write the history: {error}"))
}

/// The session of an owner in histories.
pub(crate) fn session(owner: &Owner) -> u64 {
    // The last digits differ in all owners of a client.
    let digits = owner.id().get(16..).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}
