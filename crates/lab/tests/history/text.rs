//! Histories as text. No type of the crate that reads them is used.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use leasehold_lab::history::{Unreadable, Verdict, judge, parse};
use serde_json::{Value, json};

/// The files of a history, as lines.
#[derive(Clone, Default)]
pub(crate) struct Text(pub(crate) BTreeMap<String, Vec<Value>>);

impl Text {
    pub(crate) fn new(campaign: Value) -> Self {
        Self(BTreeMap::from([(
            "campaign.json".to_owned(),
            vec![campaign],
        )]))
    }

    pub(crate) fn add(&mut self, file: &str, line: Value) {
        self.0.entry(file.to_owned()).or_default().push(line);
    }

    pub(crate) fn worker(&mut self, proc: u64, line: Value) {
        self.add(&format!("worker-{proc}.jsonl"), line);
    }

    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let text = |lines: &Vec<Value>| {
            lines.iter().fold(String::new(), |mut text, line| {
                writeln!(text, "{line}").unwrap();
                text
            })
        };
        self.0
            .iter()
            .map(|(name, lines)| (name.clone(), text(lines)))
            .collect()
    }

    pub(crate) fn judge(&self) -> Result<Verdict, Unreadable> {
        judged(&self.files())
    }
}

pub(crate) fn judged(files: &BTreeMap<String, String>) -> Result<Verdict, Unreadable> {
    parse(files).map(|history| judge(&history))
}

pub(crate) fn campaign(ttl_ms: u64) -> Value {
    json!({"format": 1, "run": "test", "seed": 1, "ttl_ms": ttl_ms, "workers": 1, "locks": 1, "resource": "fenced",
        "control": false, "system": "leasehold", "planned": {}, "bounds": {"orphan_ms": 0, "scheduling_ms": 5}})
}

pub(crate) fn invoke(proc: u64, op: u64, what: &str, lock: &str, owner: &str, at_ns: u64) -> Value {
    json!({"ev": "invoke", "proc": proc, "pid": proc, "op": op, "what": what, "lock": lock, "owner": owner, "at_ns": at_ns})
}

pub(crate) fn complete(proc: u64, op: u64, outcome: &str, at_ns: u64) -> Value {
    json!({"ev": "complete", "proc": proc, "op": op, "outcome": outcome, "at_ns": at_ns})
}

/// An ok acquire or extend.
pub(crate) fn held(proc: u64, op: u64, fence: u64, until_ns: u64, at_ns: u64) -> Value {
    let mut line = complete(proc, op, "ok", at_ns);
    line["fence"] = fence.into();
    line["valid_until_ns"] = until_ns.into();
    line
}
