//! A perfect lock and a fenced resource under faults, in virtual time, and the history that they leave. The history is sound by
//! construction, so each violation that the judge reports is a mistake of the judge.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fastrand::Rng;
use serde_json::json;

use crate::text::{Text, campaign, complete, held, invoke};

const MS: u64 = 1_000_000;
const TTL: u64 = 100 * MS;
const CALM: u64 = 2_000 * MS;
const LOCKS: u64 = 2;

/// A sound history. Workers are stopped and killed, replies are lost, commands are executed late, leases expire.
pub(crate) fn simulate(seed: u64) -> Text {
    let mut settings = campaign(100);
    settings["workers"] = 3.into();
    settings["bounds"] =
        json!({"orphan_ms": 120, "scheduling_ms": 5, "acquire_after_calm_ms": 400});
    let mut world = World {
        rng: Rng::with_seed(seed),
        text: Text::new(settings),
        due: BinaryHeap::new(),
        workers: BTreeMap::new(),
        locks: BTreeMap::new(),
        resource: BTreeMap::new(),
        seq: 0,
        faults: BTreeMap::new(),
    };
    for proc in 1..=3 {
        world.start(proc, proc * MS);
    }
    while let Some(Reverse((at, _, proc, todo))) = world.due.pop() {
        if at > CALM + 400 * MS && todo == Todo::Ask {
            continue;
        }
        world.step(at, proc, todo);
    }
    world
        .text
        .add("nemesis.jsonl", json!({"ev": "calm", "at_ns": CALM}));
    let planned = json!(world.faults);
    world.text.0.get_mut("campaign.json").unwrap()[0]["planned"] = planned;
    world.text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Todo {
    /// Begin to acquire.
    Ask,
    /// The acquire arrives at the store; the reply may be lost.
    Grant(bool),
    /// The acquire of a worker that has given up arrives at the store.
    LateGrant,
    /// Use the lease.
    Use,
    /// A read or a write arrives at the resource.
    Access(bool),
    /// An extend arrives at the store.
    Extend,
    /// A release arrives at the store.
    Release,
}

#[derive(Default)]
struct Worker {
    op: u64,
    lock: u64,
    owner: String,
    fence: u64,
    sent: u64,
    until: u64,
    base: Option<u64>,
    told: bool,
    /// The worker ignores its deadline.
    careless: bool,
}

#[derive(Default)]
struct Lock {
    owner: String,
    expires: u64,
    fence: u64,
}

struct World {
    rng: Rng,
    text: Text,
    due: BinaryHeap<Reverse<(u64, u64, u64, Todo)>>,
    workers: BTreeMap<u64, Worker>,
    locks: BTreeMap<u64, Lock>,
    /// Version and highest fence of each lock's datum.
    resource: BTreeMap<u64, (u64, u64)>,
    seq: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl World {
    fn start(&mut self, proc: u64, at: u64) {
        self.workers.insert(proc, Worker::default());
        self.later(at, proc, Todo::Ask);
    }

    fn later(&mut self, at: u64, proc: u64, todo: Todo) {
        self.seq += 1;
        // No two events at one time.
        let at = at / 10_000 * 10_000 + self.seq % 10_000;
        self.due.push(Reverse((at, self.seq, proc, todo)));
    }

    fn soon(&mut self, at: u64) -> u64 {
        at + 20_000 + self.rng.u64(..2 * MS)
    }

    /// When a reply is written down: late if the process is stopped in it.
    fn answered(&mut self, at: u64, proc: u64) -> u64 {
        let answered = self.soon(at);
        if answered > CALM - 3 * TTL || self.rng.u64(..100) >= 5 {
            return answered;
        }
        let until = answered + self.rng.u64(..2 * TTL) + 1;
        self.fault("stop-worker", proc, answered, Some(until));
        until
    }

    fn begin(&mut self, proc: u64, what: &str, at: u64) {
        let worker = self.workers.get_mut(&proc).unwrap();
        worker.op += 1;
        let lock = format!("m{}", worker.lock);
        let line = invoke(proc, worker.op, what, &lock, &worker.owner, at);
        self.text.worker(proc, line);
    }

    fn end(&mut self, proc: u64, outcome: &str, at: u64) {
        let op = self.workers[&proc].op;
        self.text.worker(proc, complete(proc, op, outcome, at));
    }

    fn fault(&mut self, kind: &'static str, proc: u64, at: u64, until: Option<u64>) {
        *self.faults.entry(kind).or_default() += 1;
        let target = format!("worker-{proc}");
        let line =
            json!({"ev": "fault", "kind": kind, "target": target, "at_ns": at, "until_ns": until});
        self.text.add("nemesis.jsonl", line);
    }

    fn step(&mut self, at: u64, proc: u64, todo: Todo) {
        match todo {
            Todo::Ask => self.ask(at, proc),
            Todo::Grant(lost) => self.grant(at, proc, lost),
            Todo::LateGrant => {
                let worker = &self.workers[&proc];
                let (lock, owner) = (worker.lock, format!("{}-late", worker.owner));
                self.take(lock, &owner, at);
            }
            Todo::Use => self.make_use(at, proc),
            Todo::Access(write) => self.access(at, proc, write),
            Todo::Extend => self.extend(at, proc),
            Todo::Release => self.release(at, proc),
        }
    }

    fn ask(&mut self, at: u64, proc: u64) {
        let lock = self.rng.u64(..LOCKS);
        let careless = self.rng.u64(..100) < 20 && at < CALM;
        let worker = self.workers.get_mut(&proc).unwrap();
        worker.lock = lock;
        worker.owner = format!("{proc}.{}", worker.op);
        worker.sent = at;
        worker.base = None;
        worker.told = false;
        worker.careless = careless;
        self.begin(proc, "acquire", at);
        if at < CALM && self.rng.u64(..100) < 4 {
            // The worker dies in it; its command may or may not arrive.
            return self.die(proc, at + 1);
        }
        let lost = at < CALM && self.rng.u64(..100) < 8;
        if lost && self.rng.u64(..100) < 50 {
            // The worker gives up before its command arrives, which may be much later, and sends nothing meanwhile.
            let given_up = self.soon(at);
            self.end(proc, "unknown", given_up);
            let arrives = given_up + self.rng.u64(..100 * MS);
            self.later(arrives, proc, Todo::LateGrant);
            return self.later(arrives + MS, proc, Todo::Ask);
        }
        let arrives = self.soon(at);
        self.later(arrives, proc, Todo::Grant(lost));
    }

    fn die(&mut self, proc: u64, at: u64) {
        self.fault("kill-worker", proc, at, None);
        let next = self.workers.keys().max().unwrap() + 1;
        self.start(next, at + 5 * MS);
    }

    /// The rule of the lock.
    fn take(&mut self, lock: u64, owner: &str, at: u64) -> Option<u64> {
        let lock = self.locks.entry(lock).or_default();
        if at <= lock.expires {
            return None;
        }
        owner.clone_into(&mut lock.owner);
        lock.expires = at + TTL;
        lock.fence += 64;
        Some(lock.fence)
    }

    fn grant(&mut self, at: u64, proc: u64, lost: bool) {
        let (lock, owner) = (self.workers[&proc].lock, self.workers[&proc].owner.clone());
        let given = self.take(lock, &owner, at);
        let answered = self.answered(at, proc);
        let next = self.soon(answered);
        let worker = self.workers.get_mut(&proc).unwrap();
        match given {
            _ if lost => self.end(proc, "unknown", answered),
            None => self.end(proc, "refused", answered),
            Some(fence) => {
                worker.fence = fence;
                worker.until = worker.sent + TTL - 3 * MS;
                let line = held(proc, worker.op, fence, worker.until, answered);
                self.text.worker(proc, line);
                return self.later(next, proc, Todo::Use);
            }
        }
        self.later(next + 20 * MS, proc, Todo::Ask);
    }

    fn make_use(&mut self, mut at: u64, proc: u64) {
        if at < CALM && self.rng.u64(..100) < 5 {
            return self.die(proc, at);
        }
        if at < CALM - 3 * TTL && self.rng.u64(..100) < 8 {
            let until = at + self.rng.u64(..2 * TTL) + 1;
            self.fault("stop-worker", proc, at, Some(until));
            at = until;
        } else if at < CALM && self.workers[&proc].careless {
            // The worker sleeps past its deadline, and is told then.
            at = at.max(self.workers[&proc].until);
        }
        let worker = self.workers.get_mut(&proc).unwrap();
        if at >= worker.until && !worker.told {
            worker.told = true;
            let lock = format!("m{}", worker.lock);
            let told = json!({"ev": "told-lost", "proc": proc, "lock": lock, "owner": worker.owner, "at_ns": at});
            self.text.worker(proc, told);
        }
        let (told, base, careless) = (worker.told, worker.base, worker.careless);
        let begins = at + 10_000;
        let arrives = self.soon(begins);
        let todo = match base {
            _ if told && !careless => Todo::Release,
            None => Todo::Access(false),
            Some(_) if !told && self.rng.u64(..100) < 30 => Todo::Extend,
            Some(_) if self.rng.u64(..100) < 70 => Todo::Access(true),
            Some(_) => Todo::Release,
        };
        let what = match todo {
            Todo::Access(false) => "read",
            Todo::Access(true) => "write",
            Todo::Extend => "extend",
            _ => "release",
        };
        self.begin(proc, what, begins);
        self.workers.get_mut(&proc).unwrap().sent = begins;
        self.later(arrives, proc, todo);
    }

    fn access(&mut self, at: u64, proc: u64, write: bool) {
        self.seq += 1;
        let worker = &self.workers[&proc];
        let (version, highest) = self.resource.entry(worker.lock).or_default();
        let accepted = worker.fence >= *highest;
        *highest = worker.fence.max(*highest);
        *version += u64::from(write && accepted);
        let line = json!({"ev": "decision", "seq": self.seq, "lock": format!("m{}", worker.lock), "proc": proc,
            "what": if write { "write" } else { "read" }, "fence": worker.fence, "base": worker.base.filter(|_| write),
            "value": *version, "accepted": accepted, "highest": *highest, "at_ns": at});
        let version = *version;
        self.text.add("resource.jsonl", line);
        self.workers.get_mut(&proc).unwrap().base = Some(version);
        let answered = self.answered(at, proc);
        self.end(proc, if accepted { "ok" } else { "refused" }, answered);
        let next = self.soon(answered);
        if accepted {
            self.later(next, proc, Todo::Use);
        } else {
            self.begin(proc, "release", next);
            let arrives = self.soon(next);
            self.later(arrives, proc, Todo::Release);
        }
    }

    fn extend(&mut self, at: u64, proc: u64) {
        let answered = self.answered(at, proc);
        let worker = self.workers.get_mut(&proc).unwrap();
        let lock = self.locks.entry(worker.lock).or_default();
        let next = answered + 50_000;
        if lock.owner == worker.owner && at <= lock.expires {
            lock.expires = at + TTL;
            worker.until = worker.sent + TTL - 3 * MS;
            let line = held(proc, worker.op, worker.fence, worker.until, answered);
            self.text.worker(proc, line);
            self.later(next, proc, Todo::Use);
        } else {
            self.end(proc, "lost", answered);
            self.later(next + 20 * MS, proc, Todo::Ask);
        }
    }

    fn release(&mut self, at: u64, proc: u64) {
        let worker = &self.workers[&proc];
        let (name, owner, told) = (worker.lock, worker.owner.clone(), worker.told);
        let lock = self.locks.entry(name).or_default();
        let held = lock.owner == owner && at <= lock.expires;
        if held {
            lock.expires = 0;
        }
        let whose = if held { owner.as_str() } else { "none" };
        let line = json!({"ev": "removed", "lock": format!("m{name}"), "by": owner, "whose": whose, "at_ns": at});
        self.text.add("store.jsonl", line);
        let answered = self.answered(at, proc);
        // A worker that was told of the loss reports it, even if the store kept the lock a little longer.
        self.end(proc, if held && !told { "ok" } else { "lost" }, answered);
        let next = self.soon(answered);
        self.later(next + 20 * MS, proc, Todo::Ask);
    }
}
