//! Causes the faults of nodes. It records each fault that had an effect, and no other.
//!
//! A node is well again when its fault is over. After a loss of memory that is when its quarantine is over. A node whose clock
//! is ever set does not lose its memory.

use std::time::Duration;

use super::nodes::{NODES, Nodes, name};
use super::schedule::is_a_loss;
use crate::history::FaultKind;
use crate::host_time;
use crate::storm::network::Hole;
use crate::storm::stage::{PlannedFault, Stage};

/// How long a node may take to reach a state that it reaches by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fault that has begun: its nodes, and when it took effect.
struct Begun {
    nodes: Vec<usize>,
    from_ns: u64,
}

/// An event of a plan.
#[derive(Clone, Copy)]
enum Event {
    Begin,
    End,
}

/// Causes the faults of a storm.
pub(super) struct QuorumNemesis<'a> {
    nodes: &'a mut Nodes,
    stage: &'a mut Stage,
}

impl<'a> QuorumNemesis<'a> {
    pub(super) const fn new(nodes: &'a mut Nodes, stage: &'a mut Stage) -> Self {
        Self { nodes, stage }
    }

    /// Causes all faults at their times, or as soon after them as the machine allows. All are over when it returns.
    pub(super) fn act(&mut self, plan: &[PlannedFault]) -> Result<(), String> {
        let mut events: Vec<(Duration, usize, Event)> = Vec::new();
        for (at, fault) in plan.iter().enumerate() {
            events.push((fault.at, at, Event::Begin));
            if fault.nodes > 0 {
                events.push((fault.at + fault.lasts, at, Event::End));
            }
        }
        events.sort_by_key(|(time, ..)| *time);
        let mut begun: Vec<Option<Begun>> = plan.iter().map(|_| None).collect();
        let from = host_time::up();
        for (time, at, event) in events {
            self.stage.rest(from + time)?;
            let fault = &plan[at];
            match event {
                Event::Begin => begun[at] = self.begin(fault)?,
                Event::End => {
                    if let Some(begun) = begun[at].take() {
                        self.end(fault, &begun)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a fault; `None` if it needs no end.
    fn begin(&mut self, fault: &PlannedFault) -> Result<Option<Begun>, String> {
        match fault.kind {
            FaultKind::StopWorker => {
                self.stage.stop_worker(fault.whom, fault.lasts)?;
                return Ok(None);
            }
            FaultKind::KillWorker => {
                self.stage.kill_worker(fault.whom)?;
                return Ok(None);
            }
            _ => {}
        }
        let nodes = self.choose(fault)?;
        let from_ns = host_time::up_ns();
        for &node in &nodes {
            self.nodes.at(node).is_unwell = true;
        }
        for &node in &nodes {
            self.begin_at(node, fault)?;
        }
        Ok(Some(Begun { nodes, from_ns }))
    }

    /// Chooses nodes that are well and may have this fault.
    fn choose(&mut self, fault: &PlannedFault) -> Result<Vec<usize>, String> {
        let is_clock = matches!(fault.kind, FaultKind::ClockForward | FaultKind::ClockBack);
        let mut able: Vec<usize> = (0..NODES)
            .filter(|&node| {
                let node = self.nodes.at(node);
                let has_clock = node.clock.is_some();
                let may_have_it = if has_clock {
                    !is_a_loss(fault.kind)
                } else {
                    !is_clock
                };
                !node.is_unwell && may_have_it
            })
            .collect();
        let mut chosen = Vec::new();
        for turn in 0..fault.nodes {
            let drawn = (fault.whom >> (4 * turn)).checked_rem(able.len() as u64);
            let drawn = drawn.ok_or_else(|| format!("no node is well for {:?}", fault.kind))?;
            chosen.push(able.swap_remove(usize::try_from(drawn).unwrap_or_default()));
        }
        Ok(chosen)
    }

    /// Begins a fault at a node. A loss of memory and a jump are recorded at once, another fault at its end.
    fn begin_at(&mut self, node: usize, fault: &PlannedFault) -> Result<(), String> {
        let from = host_time::up_ns();
        let at = self.nodes.at(node);
        match fault.kind {
            FaultKind::StopServer => return at.server.try_pause(),
            // Another one starts at its address, without data.
            FaultKind::KillServer => at.server.try_restart()?,
            FaultKind::Flush => self.nodes.flush(node)?,
            FaultKind::Copy => self.copy_another(node, fault.whom)?,
            FaultKind::Slow => {
                let by = 5 + fault.whom % 40;
                at.network.slow_down(Duration::from_millis(by));
                return Ok(());
            }
            FaultKind::ClockForward | FaultKind::ClockBack => {
                return self.jump(fault.kind, node, distance(fault.whom));
            }
            kind => {
                at.network.block(Hole {
                    requests: kind != FaultKind::BlackHoleReplies,
                    replies: kind != FaultKind::BlackHoleRequests,
                    half: None,
                });
                return Ok(());
            }
        }
        let until = host_time::up_ns();
        self.stage.fault(fault.kind, &name(node), from, Some(until))
    }

    fn end(&mut self, fault: &PlannedFault, begun: &Begun) -> Result<(), String> {
        for &node in &begun.nodes {
            self.end_at(node, fault, begun.from_ns)?;
        }
        for &node in &begun.nodes {
            self.nodes.at(node).is_unwell = false;
        }
        Ok(())
    }

    fn end_at(&mut self, node: usize, fault: &PlannedFault, from_ns: u64) -> Result<(), String> {
        let port = self.nodes.at(node).server.port();
        let network = &self.nodes.at(node).network;
        // The end is read first: a request that was held up is executed after it.
        let until_ns = host_time::up_ns();
        match fault.kind {
            FaultKind::StopServer => self.nodes.at(node).server.try_resume()?,
            FaultKind::KillServer | FaultKind::Flush | FaultKind::Copy => {
                return self.until("a node that votes again", |nodes| nodes.votes_again(node));
            }
            FaultKind::Slow => network.slow_down(Duration::ZERO),
            FaultKind::ClockForward => {
                return self.jump(FaultKind::ClockBack, node, distance(fault.whom));
            }
            FaultKind::ClockBack => {
                return self.jump(FaultKind::ClockForward, node, distance(fault.whom));
            }
            FaultKind::HalfOpen => {
                network.close();
                network.clear();
                network.lead_to(port);
            }
            _ => network.clear(),
        }
        let name = name(node);
        self.stage.fault(fault.kind, &name, from_ns, Some(until_ns))
    }

    /// A node follows another one for a moment by mistake, and so has the other's locks, counters and mark.
    fn copy_another(&mut self, node: usize, whom: u64) -> Result<(), String> {
        let mut others: Vec<usize> = (0..NODES)
            .filter(|&other| other != node && !self.nodes.at(other).is_unwell)
            .collect();
        let drawn = whom.checked_rem(others.len() as u64).unwrap_or_default();
        let other = others.swap_remove(usize::try_from(drawn).unwrap_or_default());
        self.nodes.follow(node, Some(other))?;
        self.until("a copy", |nodes| nodes.has_followed(node))?;
        self.nodes.follow(node, None)
    }

    fn jump(&mut self, kind: FaultKind, node: usize, by: Duration) -> Result<(), String> {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or_default();
        let signed = i64::try_from(by_ns).unwrap_or_default();
        let clock = self.nodes.at(node).clock.as_mut();
        let clock = clock.ok_or("a node whose clock cannot be set")?;
        let from = host_time::up_ns();
        clock.jump(if kind == FaultKind::ClockBack {
            -signed
        } else {
            signed
        })?;
        let until = host_time::up_ns();
        if !self.nodes.shows_its_clock(node)? {
            return Err("a node does not show that its clock has jumped".into());
        }
        let name = name(node);
        self.stage.jump(kind, &name, [from, until], by_ns)
    }

    /// Waits until this is so.
    fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Nodes) -> Result<bool, String>,
    ) -> Result<(), String> {
        let began = host_time::up();
        while !is_so(self.nodes)? {
            if host_time::up().saturating_sub(began) > PATIENCE {
                return Err(format!("there is no sign of {what}"));
            }
            self.stage.tick()?;
        }
        Ok(())
    }
}

/// How far a clock jumps: a minute to ten.
fn distance(drawn: u64) -> Duration {
    Duration::from_secs(60 + drawn / 64 % 540)
}
