//! The format of a history: the grammar of its lines, which serde reads into these records.
//!
//! This page is the normative text. A campaign writes a directory; each process appends lines of JSON to a file of its own,
//! each line whole, with one call. All `at_ns`, `until_ns` and `valid_until_ns` are nanoseconds of `CLOCK_BOOTTIME`: one
//! host, one clock. Unknown fields are ignored; an unknown `ev`, kind or outcome makes the history unreadable.
//!
//! A process that was killed may leave a torn last line. It is skipped if a `kill-worker` line names its process as the target.
//! Any other line that cannot be read makes the history unreadable.
//!
//! # `campaign.json`
//!
//! Written before anything starts; the fields are those of [`Campaign`](crate::history::Campaign).
//!
//! ```json
//! {"format":2,"run":"storm-7","seed":7,"ttl_ms":150,"workers":8,"locks":4,"resource":"fenced","control":false,
//!  "system":"leasehold","planned":{"stop-worker":20,"kill-server":2},
//!  "bounds":{"acquire_after_calm_ms":2000,"orphan_ms":500,"scheduling_ms":25}}
//! ```
//!
//! In format 1, each lease is exclusive: it has no `mode`, `slot` and `session`, and no lock is broken.
//! `resource` is `unfenced`, `write-fenced` or `fenced`. `planned` has minimum numbers. `control` marks a run that must show
//! violations; `system` is `leasehold` or the name of a rung. Without `acquire_after_calm_ms` liveness is not judged.
//!
//! # `worker-<proc>.jsonl`
//!
//! One file per process; a worker that is started again has a new number. `proc` is the number in the file's name.
//!
//! ```json
//! {"ev":"invoke","proc":3,"pid":123,"op":17,"what":"acquire","lock":"m1","owner":"9f3c","at_ns":1000,"fence":640}
//! {"ev":"complete","proc":3,"op":17,"at_ns":2000,"outcome":"ok","fence":640,"valid_until_ns":150000000,"renews":true}
//! {"ev":"complete","proc":3,"op":18,"at_ns":2500,"outcome":"unknown","no_answer":true}
//! {"ev":"invoke","proc":3,"pid":123,"op":19,"what":"acquire","mode":"slot/4","lock":"m2","owner":"a07d","at_ns":2600}
//! {"ev":"complete","proc":3,"op":19,"at_ns":2700,"outcome":"ok","slot":2,"session":20936,"fence":704,"valid_until_ns":152000000}
//! {"ev":"complete","proc":3,"op":20,"at_ns":2900,"outcome":"ok","value":4}
//! {"ev":"told-lost","proc":3,"lock":"m1","owner":"9f3c","at_ns":150000100,"valid_until_ns":150000000}
//! ```
//!
//! - `what` is `acquire`, `extend`, `release`, or `read` and `write`: operations on the resource under the lease.
//! - `outcome` is `ok`, `refused` (busy, timed out, or not taken by the resource), `lost` (of an extend or a release: the
//!   lease was over) or `unknown` (it may have taken effect, for example a cancelled acquire).
//! - `mode`: how an acquire asks for its lock: `exclusive` (the default), `shared` as a reader, or `slot/N` for one of N slots. An ok
//!   acquire of a slot names its `slot`, from 1 on; no other does.
//! - `session`: the store's grant. A process may hand it on from lease to lease, and readers share it. Optional: a break names it.
//! - `value`: the version that an ok read returned. Optional.
//! - `renews`: the lease renews itself. `no_answer`: the outcome is unknown because the store did not answer, and not because the
//!   worker gave up. Both are false by default.
//! - `owner` names one acquisition and is new for each. An operation belongs to the lease that its process acquired last as
//!   this owner. A repeated acquire of an owner that answers the same fence is the same lease.
//! - The lines of a file are in order of their `at_ns`. Each owner belongs to one process.
//! - The `at_ns` of an `invoke` is read before the operation starts, that of a `complete` after it ended. An `invoke`
//!   without `complete` means that the process died in it.
//! - `fence`: required on an ok acquire, except of a reader on a quorum; optional on the `invoke` of a later operation.
//! - `valid_until_ns` is the deadline of the lease as its holder knew it then: required on an ok acquire or extend, optional
//!   on the `invoke` of a read or write and on `told-lost`. A library that renews by itself moves the deadline without a line.
//!   So a worker writes the latest deadline in its next line, at the latest in `told-lost`.
//!
//! # `resource.jsonl`
//!
//! The decisions of the resource in the order in which it made them; `seq` rises.
//!
//! ```json
//! {"ev":"decision","seq":8,"lock":"m1","proc":3,"what":"read","fence":640,"base":null,"value":4,"accepted":true,"highest":640,"at_ns":3000}
//! {"ev":"decision","seq":9,"lock":"m1","proc":3,"what":"write","fence":640,"base":4,"value":5,"accepted":true,"highest":640,"at_ns":4000}
//! ```
//!
//! A read's `value` is the version that it returned. A write's `base` is the version that the writer had read; its `value` is
//! the version after it. The versions of a lock's datum count up from 0, by one per accepted write. `highest` is the highest
//! fence presented so far, this one included. A read presents no fence to a write-fenced resource.
//! With a `slot`, all of this concerns the datum of that slot of the lock alone.
//!
//! # `nemesis.jsonl`
//!
//! ```json
//! {"ev":"fault","kind":"stop-worker","target":"worker-3","at_ns":5000,"until_ns":9000}
//! {"ev":"fault","kind":"break-lock","target":"server","at_ns":5100,"until_ns":5200,"lock":"m2","fence":704,"session":20936,"mode":"slot/4"}
//! {"ev":"server-start","epoch":0,"at_ns":6000}
//! {"ev":"server-start","epoch":1,"since_ns":6200,"at_ns":6400,"locks":["m1","m4"]}
//! {"ev":"unwell","target":"node-2","at_ns":6500,"until_ns":8000}
//! {"ev":"calm","at_ns":10000}
//! ```
//!
//! - A `fault` is written after it was done. Kinds are those of [`FaultKind`]; the target is `worker-<proc>` for `stop-worker`
//!   and `kill-worker`, otherwise `server`, or `node-<n>` for one of several servers. `until_ns` is the time when the stopped process continued; for a worker, both times
//!   are read while it is stopped. A `failover` begins when the replica stops following, and ends when clients are redirected
//!   to it: a `server-start` with a new epoch has the same time. `clock-forward` and `clock-back` have `by_ns`, the size of the
//!   jump, which happened between `at_ns` and `until_ns`. `break-lock` has the `lock`, and the `fence` and `session` of its grant: leases with
//!   one of them are broken from `at_ns` on, those included that its process hands on later. A reader whose process asked for the phase
//!   after `until_ns` is not. It is also written if nobody knows whether the lock was broken. It has the `mode` of the holder; so has a `kill-worker` if the worker held a lock then, as far as the store knows.
//!   `evict` has the `lock` beside which a key was deleted, unless it was the counter.
//! - `server-start`: `epoch` counts how often the store lost its data; it is 0 until the first loss. `at_ns` is read when
//!   the old server is dead or unreachable, and the new one is not started or not reachable yet. If both granted locks for a while,
//!   that was from `since_ns` to `at_ns`: what was acquired or known in that time belongs to no epoch. With `locks`, it concerns only those.
//! - `unwell`: until when a fault may have kept a node from its votes: it is written when the fault is over. After a loss of data that
//!   is the end of the quarantine, and after a `clock-forward` the time that its clock has shown.
//! - `calm`: the faults are over. The last one counts, and no fault may follow it.
//!
//! # `store.jsonl`
//!
//! Optional, for I6. A process that can know writes it, such as a wrapper whose script removes a key and returns the old value.
//!
//! ```json
//! {"ev":"removed","lock":"m1","by":"9f3c","whose":"9f3c","at_ns":7000}
//! ```
//!
//! `whose` is the owner of the removed lock, or `none`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::campaign::FaultKind;

/// One line of one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// The kind of a worker's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperationKind {
    Acquire,
    Extend,
    Release,
    Read,
    Write,
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How an acquire asks for its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum LeaseMode {
    #[default]
    Exclusive,
    Shared,
    /// For one of so many slots.
    Slot(u16),
}

impl TryFrom<String> for LeaseMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let slots = text.strip_prefix("slot/").and_then(number_of);
        let slots = slots.and_then(|slots| u16::try_from(slots).ok());
        match (text.as_str(), slots) {
            ("exclusive", _) => Ok(Self::Exclusive),
            ("shared", _) => Ok(Self::Shared),
            (_, Some(slots)) => Ok(Self::Slot(slots)),
            _ => Err(format!("unknown mode `{text}`")),
        }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Ok,
    Refused,
    Unknown,
    Lost,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One line, of any file.
#[derive(Debug, Deserialize)]
#[serde(tag = "ev", rename_all = "kebab-case")]
pub(crate) enum Line {
    Invoke(Operation),
    Complete(Completion),
    ToldLost(LossReport),
    Decision(Decision),
    Fault(Fault),
    Calm { at_ns: u64 },
    ServerStart(ServerStart),
    Unwell(Unwell),
    Removed(Removal),
}

/// An operation of a worker, and its outcome.
#[derive(Debug, Deserialize)]
pub(crate) struct Operation {
    pub(crate) proc: u64,
    pub(crate) op: u64,
    pub(crate) what: OperationKind,
    pub(crate) lock: String,
    pub(crate) owner: String,
    /// Of an acquire.
    #[serde(default)]
    pub(crate) mode: LeaseMode,
    #[serde(rename = "at_ns")]
    pub(crate) invoked_ns: u64,
    pub(crate) fence: Option<u64>,
    /// The deadline that its holder knew then.
    pub(crate) valid_until_ns: Option<u64>,
    #[serde(skip)]
    pub(crate) invoked: Source,
    #[serde(skip)]
    pub(crate) done: Option<Completion>,
    /// The index of its lease.
    #[serde(skip)]
    pub(crate) lease: Option<usize>,
}

impl Operation {
    pub(crate) fn is(&self, outcome: Outcome) -> bool {
        self.done.is_some_and(|done| done.outcome == outcome)
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Completion {
    pub(crate) proc: u64,
    pub(crate) op: u64,
    pub(crate) at_ns: u64,
    pub(crate) outcome: Outcome,
    pub(crate) fence: Option<u64>,
    pub(crate) valid_until_ns: Option<u64>,
    /// The lease renews itself.
    #[serde(default)]
    pub(crate) renews: bool,
    /// The store did not answer.
    #[serde(default)]
    pub(crate) no_answer: bool,
    pub(crate) slot: Option<u16>,
    pub(crate) session: Option<u64>,
    /// The version that a read returned.
    pub(crate) value: Option<u64>,
    #[serde(skip)]
    pub(crate) source: Source,
}

/// A loss report: the holder was told that its lease is over.
#[derive(Debug, Deserialize)]
pub(crate) struct LossReport {
    pub(crate) proc: u64,
    pub(crate) lock: String,
    pub(crate) owner: String,
    pub(crate) at_ns: u64,
    pub(crate) valid_until_ns: Option<u64>,
    #[serde(skip)]
    pub(crate) source: Source,
    /// The index of its lease.
    #[serde(skip)]
    pub(crate) lease: Option<usize>,
}

/// A decision of the resource.
#[derive(Debug, Deserialize)]
pub(crate) struct Decision {
    pub(crate) seq: u64,
    pub(crate) lock: String,
    pub(crate) slot: Option<u16>,
    pub(crate) proc: u64,
    pub(crate) what: OperationKind,
    pub(crate) fence: Option<u64>,
    pub(crate) base: Option<u64>,
    pub(crate) value: u64,
    pub(crate) accepted: bool,
    pub(crate) highest: Option<u64>,
    pub(crate) at_ns: u64,
    #[serde(skip)]
    pub(crate) source: Source,
}

impl Decision {
    pub(crate) fn is_write(&self) -> bool {
        self.what == OperationKind::Write
    }

    /// What it concerns: a lock, or a slot of one.
    pub(crate) fn datum(&self) -> (&str, Option<u16>) {
        (&self.lock, self.slot)
    }
}

/// The removal of a lock from the store.
#[derive(Debug, Deserialize)]
pub(crate) struct Removal {
    pub(crate) lock: String,
    pub(crate) by: String,
    /// The owner of the lock, or `none`.
    pub(crate) whose: String,
    pub(crate) at_ns: u64,
    #[serde(skip)]
    pub(crate) source: Source,
}

/// A fault that the nemesis caused.
#[derive(Debug, Deserialize)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) target: String,
    pub(crate) at_ns: u64,
    pub(crate) until_ns: Option<u64>,
    /// How far a clock jumped.
    pub(crate) by_ns: Option<u64>,
    /// The lock that was broken, or beside which a key was evicted.
    pub(crate) lock: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) session: Option<u64>,
    /// That of the holder.
    pub(crate) mode: Option<LeaseMode>,
    #[serde(skip)]
    pub(crate) source: Source,
}

impl Fault {
    /// The time in which it happened.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.at_ns, self.until_ns.unwrap_or(self.at_ns))
    }

    /// The worker that it names.
    pub(crate) fn worker(&self) -> Option<u64> {
        number_of(self.target.strip_prefix("worker-")?)
    }

    /// Whether it names the server, or a node of a quorum.
    pub(crate) fn is_at_a_server(&self) -> bool {
        let node = self.target.strip_prefix("node-");
        self.target == "server" || node.and_then(number_of).is_some()
    }
}

/// A start of the store, with the number of its losses of data.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerStart {
    pub(crate) epoch: u32,
    pub(crate) at_ns: u64,
    /// From then on until the start, two servers may have granted the same lock.
    pub(crate) since_ns: Option<u64>,
    /// The locks that it concerns; without them, all.
    pub(crate) locks: Option<Vec<String>>,
}

impl ServerStart {
    pub(crate) fn concerns(&self, lock: &str) -> bool {
        let locks = self.locks.as_ref();
        locks.is_none_or(|locks| locks.iter().any(|it| it == lock))
    }
}

/// The time in which a node of a quorum was unwell.
#[derive(Debug, Deserialize)]
pub(crate) struct Unwell {
    pub(crate) target: String,
    pub(crate) at_ns: u64,
    pub(crate) until_ns: u64,
}

/// Parses a number in its only notation: otherwise two files could belong to one process.
pub(crate) fn number_of(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
