//! The nemesis: causes the planned faults. It records each fault that had an effect, and no other.
//!
//! A lock itself is lost only by a failover, or broken on purpose. No fence is forgotten before the clock of its server has passed it, since fences then
//! fall, as documented.
//!
//! A node of a quorum is well again when its fault is over. After a loss of memory that is when its quarantine is over. It is recorded then
//! how long the node was not well: the judge asks nothing of a quorum while too many nodes are. A node
//! whose clock is ever set does not lose its memory.

mod failover;
mod holders;

use std::collections::HashMap;
use std::time::Duration;

use testkit::Hole;

use super::fleet::Fleet;
use super::schedule::{AGAIN, PlannedFault, is_a_loss, is_of_a_clock, take};
use super::servers::{COUNTER, Servers};
use super::stage::Stage;
use crate::history::FaultKind;
use crate::host_time;

/// How long a state may take that is reached without the nemesis: a clock may have been set back more than once.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a waiter is looked for, before the keys of all are good enough.
const WAITERS: Duration = Duration::from_millis(2_500);

/// The keys beside a lock, without the fence counter.
const BESIDE: [&str; 2] = ["lh-queue", "lh-waiters"];

/// Deletes the counter if the clock has passed it.
const FORGET: &str = "local last, time = redis.call('GET', KEYS[1]), redis.call('TIME')
    local passed = last and tonumber(last) < time[1] * 1000000 + time[2]
    return passed and redis.call('DEL', KEYS[1]) or 0";

/// A fault that has begun: its servers, each with the time from which it has an effect.
type Begun = Vec<(usize, u64)>;

/// What is due in the course of a fault.
#[derive(Debug, Clone, Copy)]
enum Due {
    Begin,
    /// The node forgets once more, in this way.
    Again(FaultKind),
    End,
}

/// Causes the faults of a storm.
#[derive(Debug)]
pub(super) struct Nemesis<'a> {
    servers: &'a mut Servers,
    stage: &'a mut Stage,
    /// How many locks there are.
    locks: u64,
    /// The last fence that was drawn before the counter was lost, if none was drawn since.
    lost: Option<i64>,
    /// How often the server lost its data.
    epoch: u32,
    /// The primaries of the locks of a fleet when they were last looked at, and when that was.
    known: (u64, Vec<usize>),
}

impl<'a> Nemesis<'a> {
    /// Records that the servers have started.
    pub(super) fn new(
        servers: &'a mut Servers,
        stage: &'a mut Stage,
        locks: u64,
    ) -> Result<Self, String> {
        let now = host_time::up_ns();
        stage.server_starts(0, now)?;
        let fleet = servers.fleet.as_ref();
        let known = fleet.map_or_else(|| Ok(Vec::new()), Fleet::primaries)?;
        Ok(Self {
            known: (now, known),
            servers,
            stage,
            locks,
            lost: None,
            epoch: 0,
        })
    }

    /// Causes all faults at their times, or as soon after them as the machine allows. Each lasts as long as planned, and all are over
    /// when it returns, after `time`.
    pub(super) fn act(&mut self, plan: &[PlannedFault], time: Duration) -> Result<(), String> {
        let mut events: Vec<(Duration, usize, Due)> = Vec::new();
        for (at, fault) in plan.iter().enumerate() {
            events.push((fault.at, at, Due::Begin));
            let again = fault
                .again
                .map(|kind| (fault.at + AGAIN, at, Due::Again(kind)));
            events.extend(again);
            events.push((fault.at + fault.lasts, at, Due::End));
        }
        events.sort_by_key(|(time, ..)| *time);
        let mut under_way: HashMap<usize, Begun> = HashMap::new();
        let from = host_time::up();
        for (time, at, due) in events {
            self.stage.rest(from + time)?;
            let fault = &plan[at];
            match due {
                Due::Begin => {
                    let begun = self.begin(fault)?;
                    under_way.insert(at, begun);
                }
                Due::Again(kind) => {
                    let again = PlannedFault {
                        kind,
                        ..fault.clone()
                    };
                    for &(node, _) in under_way.get(&at).into_iter().flatten() {
                        self.begin_at(node, &again)?;
                    }
                }
                Due::End => {
                    if let Some(begun) = under_way.remove(&at) {
                        self.end(fault, begun)?;
                    }
                }
            }
        }
        self.stage.rest(from + time)
    }

    /// Flushes three nodes, one after the other, again and again. Each votes at once.
    pub(super) fn forget_and_vote(&mut self, time: Duration) -> Result<(), String> {
        let until = host_time::up() + time;
        while host_time::up() < until {
            for node in 0..3 {
                let from = host_time::up_ns();
                self.servers.flush_and_mark(node)?;
                self.record(FaultKind::Flush, node, from, host_time::up_ns())?;
                self.stage.tick()?;
            }
            self.stage
                .rest(host_time::up() + Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Ends the faults: all stopped processes are resumed, and the servers are in order from here on.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.stage.resume_workers()?;
        self.look_at_primaries()?;
        // Writes made before a clock was set back last longer by that much.
        while self.servers.clock_is_behind() {
            self.stage.tick()?;
        }
        self.stage.calm()
    }

    fn begin(&mut self, fault: &PlannedFault) -> Result<Begun, String> {
        match fault.kind {
            FaultKind::StopWorker => {
                self.stage.stop_worker(fault.whom, fault.lasts)?;
            }
            FaultKind::KillWorker => self.kill_holder(fault)?,
            _ => {}
        }
        if self.servers.fleet.is_some() && fault.servers > 0 {
            self.strike(fault)?;
            return Ok(Begun::new());
        }
        let nodes = self.choose(fault)?;
        for &node in &nodes {
            self.servers.at(node).is_unwell = true;
        }
        let begun = nodes.into_iter().map(|node| {
            let from_ns = self.begin_at(node, fault)?;
            Ok((node, from_ns))
        });
        begun.collect()
    }

    /// Chooses servers that are well and may have this fault.
    fn choose(&mut self, fault: &PlannedFault) -> Result<Vec<usize>, String> {
        let is_quorum = self.servers.is_quorum();
        let mut able: Vec<usize> = (0..self.servers.count())
            .filter(|&node| {
                let node = self.servers.at(node);
                let may_have_it = match node.clock {
                    Some(_) => !(is_quorum && is_a_loss(fault.kind)),
                    None => !is_of_a_clock(fault.kind),
                };
                !node.is_unwell && may_have_it
            })
            .collect();
        let chosen = (0..fault.servers).map(|turn| {
            let drawn = take(&mut able, fault.whom >> (4 * turn));
            drawn.ok_or_else(|| format!("no server is well for {:?}", fault.kind))
        });
        chosen.collect()
    }

    /// Begins a fault at a server. Returns the time from which it has an effect.
    fn begin_at(&mut self, node: usize, fault: &PlannedFault) -> Result<u64, String> {
        let mut from = host_time::up_ns();
        let is_quorum = self.servers.is_quorum();
        let at = self.servers.at(node);
        match fault.kind {
            FaultKind::StopServer => at.server.try_pause()?,
            FaultKind::Slow => at.network.delay(Duration::from_millis(5 + fault.whom % 40)),
            FaultKind::BlackHole
            | FaultKind::BlackHoleRequests
            | FaultKind::BlackHoleReplies
            | FaultKind::HalfOpen => from = self.hold_up(node, fault)?,
            FaultKind::Memory => {
                // Less memory than an empty server uses.
                self.command::<()>(node, &["CONFIG", "SET", "maxmemory", "100kb"])?;
                let written = self.command::<()>(node, &["SET", "nemesis", "writes"]);
                if !written.is_err_and(|why| why.contains("maxmemory")) {
                    return Err("a server without memory does not refuse to write".into());
                }
            }
            FaultKind::Failover => from = self.part()?,
            FaultKind::ClockForward => self.jump(node, fault, false)?,
            FaultKind::ClockBack => self.jump(node, fault, true)?,
            FaultKind::KillServer if is_quorum => self.servers.restart(node, false)?,
            FaultKind::KillServer => {
                at.server.kill();
                self.stage.server_starts(self.epoch, host_time::up_ns())?;
                self.servers.at(node).server.try_restart()?;
            }
            FaultKind::RestartServer => {
                // So the snapshot lacks nothing that the node confirms.
                self.command::<()>(node, &["CLIENT", "PAUSE", "5000", "WRITE"])?;
                self.save(node)?;
                self.servers.restart(node, true)?;
            }
            FaultKind::Rollback => {
                self.save(node)?;
                // The votes of this time are lost, and those that were given back in it are there again.
                let age = Duration::from_millis(50 + fault.whom % 450);
                self.stage.rest(host_time::up() + age)?;
                from = host_time::up_ns();
                self.servers.restart(node, true)?;
            }
            FaultKind::ScriptFlush => self.command(node, &["SCRIPT", "FLUSH"])?,
            FaultKind::ClientKill => self.cut(node)?,
            FaultKind::Evict => self.evict(fault.whom)?,
            FaultKind::Flush => self.command(node, &["FLUSHALL"])?,
            FaultKind::Copy => self.copy_another(node, fault.whom)?,
            FaultKind::BreakLock => self.break_lock(fault)?,
            FaultKind::StopWorker | FaultKind::KillWorker | FaultKind::MoveSlot => {
                return Err(format!("{} is no fault of this server", fault.kind));
            }
        }
        // Another fault is recorded at its end, or where it is made.
        if is_over_at_once(fault.kind) {
            self.record(fault.kind, node, from, host_time::up_ns())?;
        }
        Ok(from)
    }

    fn end(&mut self, fault: &PlannedFault, begun: Begun) -> Result<(), String> {
        for &(node, from_ns) in &begun {
            self.stage
                .rest(Duration::from_nanos(from_ns) + fault.lasts)?;
            self.end_at(node, fault, from_ns)?;
            if self.servers.is_quorum() {
                let until = host_time::up() + fault.refused();
                let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
                let name = self.servers.name(node);
                self.stage.unwell(&name, from_ns, until_ns)?;
            }
        }
        for (node, _) in begun {
            self.servers.at(node).is_unwell = false;
        }
        Ok(())
    }

    fn end_at(&mut self, node: usize, fault: &PlannedFault, from_ns: u64) -> Result<(), String> {
        let is_quorum = self.servers.is_quorum();
        let at = self.servers.at(node);
        // The end is read first: a request that was held up is executed after it.
        let mut until_ns = host_time::up_ns();
        match fault.kind {
            FaultKind::StopServer => at.server.try_resume()?,
            FaultKind::Slow => at.network.delay(Duration::ZERO),
            FaultKind::HalfOpen => {
                at.close();
                at.network.blackhole(false);
                at.open();
            }
            FaultKind::BlackHole | FaultKind::BlackHoleRequests | FaultKind::BlackHoleReplies => {
                at.network.blackhole(false);
            }
            FaultKind::Memory => self.command(node, &["CONFIG", "SET", "maxmemory", "0"])?,
            FaultKind::Failover => until_ns = self.fail_over()?,
            kind if is_quorum && is_of_a_clock(kind) => {
                return self.jump(node, fault, kind == FaultKind::ClockForward);
            }
            kind if is_quorum && is_a_loss(kind) => {
                return self.until("a node that votes again", |nemesis| {
                    nemesis.servers.votes_again(node)
                });
            }
            _ => return Ok(()),
        }
        self.record(fault.kind, node, from_ns, until_ns)
    }

    fn record(&self, kind: FaultKind, node: usize, from: u64, until: u64) -> Result<(), String> {
        let name = self.servers.name(node);
        self.stage.fault(kind, &name, from, Some(until), None)
    }

    /// Delays the bytes of a node, or of every second connection of the only server.
    fn hold_up(&mut self, node: usize, fault: &PlannedFault) -> Result<u64, String> {
        let is_quorum = self.servers.is_quorum();
        let hole = Hole {
            requests: fault.kind != FaultKind::BlackHoleReplies,
            replies: fault.kind != FaultKind::BlackHoleRequests,
            half: (!is_quorum).then_some(fault.whom),
        };
        let mut from = 0;
        self.until("a connection", |nemesis| {
            from = host_time::up_ns();
            let network = &nemesis.servers.at(node).network;
            let is_on = network.hold_up(Some(hole)) > 0 || is_quorum;
            if !is_on {
                network.blackhole(false);
            }
            Ok(is_on)
        })?;
        Ok(from)
    }

    /// Cuts all connections to a server, including subscriptions.
    fn cut(&mut self, node: usize) -> Result<(), String> {
        // Right after a restart there may be none, on a busy machine for a long time.
        self.until("a client", |nemesis| {
            let mut cut = 0;
            for kind in ["normal", "pubsub"] {
                let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
                cut += nemesis.command::<u64>(node, &kill)?;
            }
            Ok(cut > 0)
        })
    }

    /// A node follows another one for a moment by mistake, and so has the other's locks, counters and mark.
    fn copy_another(&mut self, node: usize, whom: u64) -> Result<(), String> {
        let mut others: Vec<usize> = (0..self.servers.count())
            .filter(|&other| other != node && !self.servers.at(other).is_unwell)
            .collect();
        let other = take(&mut others, whom).ok_or("no other node is well")?;
        self.servers.follow(node, Some(other))?;
        self.until("a copy", |nemesis| nemesis.servers.has_followed(node))?;
        self.servers.follow(node, None)
    }

    /// Writes a snapshot of a node.
    fn save(&mut self, node: usize) -> Result<(), String> {
        self.until("a snapshot", |nemesis| Ok(nemesis.servers.snapshot(node)))
    }

    /// The replica stops following. It is promoted some time after.
    fn part(&mut self) -> Result<u64, String> {
        let mut from = 0;
        self.let_clock_pass_all_fences()?;
        self.until("a replica that follows", |nemesis| {
            from = host_time::up_ns();
            nemesis.servers.is_followed()
        })?;
        self.servers.part()?;
        Ok(from)
    }

    /// Promotes the replica. Returns the time at which no client reached the old server any more, nor yet the new one.
    fn fail_over(&mut self) -> Result<u64, String> {
        self.servers.at(0).close();
        // The last block of fences may end some time ahead.
        self.let_clock_pass_all_fences()?;
        let had = self.servers.counter()?;
        if had != self.servers.counter_that_follows()? {
            self.lost = self.lost.max(had);
        }
        let until = host_time::up_ns();
        self.epoch += 1;
        self.stage.server_starts(self.epoch, until)?;
        self.servers.promote_replica()?;
        Ok(until)
    }

    /// Deletes the keys beside some lock: one kind of key, or all. Several holders of a lock are in them.
    fn evict(&mut self, whom: u64) -> Result<(), String> {
        let which = usize::try_from(whom % (BESIDE.len() as u64 + 2)).unwrap_or_default();
        let (began, locks) = (host_time::up(), self.locks);
        let (mut from, mut of) = (0, None);
        self.until("a key beside a lock", |nemesis| {
            // There may be no waiter for a while.
            let anything = host_time::up() > began + WAITERS;
            if anything {
                nemesis.let_clock_pass_all_fences()?;
            }
            let (counter, beside) = match BESIDE.get(which) {
                Some(one) if !anything => (false, std::slice::from_ref(one)),
                None if which == BESIDE.len() && !anything => (true, &[][..]),
                _ => (true, &BESIDE[..]),
            };
            from = host_time::up_ns();
            let mut gone = counter && nemesis.evict_counter()?;
            for lock in (0..locks).map(|step| 1 + (whom / 4 + step) % locks) {
                let keys = beside.iter().map(|beside| format!("{{m{lock}}}:{beside}"));
                let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(keys).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if words.len() > 1 && nemesis.command::<u64>(0, &words)? > 0 {
                    gone = true;
                    of = Some(format!("m{lock}"));
                    break;
                }
            }
            Ok(gone)
        })?;
        self.stage
            .evicted(of.as_deref(), (from, host_time::up_ns()))
    }

    /// Deletes the counter if it exists and the clock has passed it. Returns whether it did.
    fn evict_counter(&mut self) -> Result<bool, String> {
        if !self.servers.may_forget()? {
            return Ok(false);
        }
        // Tried again if no fence was drawn between the check and the deletion.
        let gone = self.command::<u64>(0, &["EVAL", FORGET, "1", COUNTER])? > 0;
        if gone {
            self.lost = self.lost.max(Some(self.servers.time_us(0)?));
        }
        Ok(gone)
    }

    /// Sets the clock of a server forward or back.
    fn jump(&mut self, node: usize, fault: &PlannedFault, back: bool) -> Result<(), String> {
        if back {
            self.let_fence_be_drawn()?;
        }
        let by = fault.distance();
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or_default();
        let signed = i64::try_from(by_ns).unwrap_or_default();
        let clock = self.servers.at(node).clock.as_mut();
        let clock = clock.ok_or("a server whose clock cannot be set")?;
        let from = host_time::up_ns();
        clock.jump(if back { -signed } else { signed })?;
        let until = host_time::up_ns();
        if !self.servers.shows_its_clock(node)? {
            return Err("a server does not show that its clock has jumped".into());
        }
        let kind = if back {
            FaultKind::ClockBack
        } else {
            FaultKind::ClockForward
        };
        let name = self.servers.name(node);
        self.stage
            .fault(kind, &name, from, Some(until), Some(by_ns))
    }

    /// Waits until a fence is drawn, if the counter was lost.
    fn let_fence_be_drawn(&mut self) -> Result<(), String> {
        let Some(lost) = self.lost.take() else {
            return Ok(());
        };
        self.until("a fence since the counter was lost", |nemesis| {
            Ok(nemesis.servers.counter()? > Some(lost))
        })
    }

    /// Waits until the server's clock has passed all fences, so that none falls when they are forgotten.
    fn let_clock_pass_all_fences(&mut self) -> Result<(), String> {
        self.until("a clock that has passed all fences", |nemesis| {
            nemesis.servers.may_forget()
        })
    }

    /// Waits until this is so.
    fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let limit = host_time::up() + PATIENCE;
        while !is_so(self)? {
            if host_time::up() > limit {
                return Err(format!("there is no sign of {what}"));
            }
            self.stage.tick()?;
        }
        Ok(())
    }

    fn command<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> Result<T, String> {
        self.servers.ask(node, words)
    }
}

fn is_over_at_once(kind: FaultKind) -> bool {
    is_a_loss(kind) || matches!(kind, FaultKind::ScriptFlush | FaultKind::ClientKill)
}
