//! Drives the machine of a client of a quorum: passes events to it and carries out its effects. It decides nothing about a
//! lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{LockName, Step};

use super::effects::{EventTime, Purpose, QuorumEffect, QuorumEvent, QuorumTimer, relay};
use super::machine::QuorumMachine;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::store::contract::{Done, Listener, Store};

/// The nodes, and the machine of this client.
pub(super) struct Quorum {
    pub(super) nodes: Vec<Arc<dyn Store>>,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(super) machine: Mutex<QuorumMachine<Done>>,
}

impl Quorum {
    /// Handles an event.
    pub(super) fn handle(self: &Arc<Self>, event: QuorumEvent<Done>) {
        let at = EventTime {
            now: self.clock.now(),
            wall_us: self.clock.store_now().wall_us,
        };
        let mut effects = Vec::new();
        self.lock().handle(at, event, &mut effects);
        // The machine is unlocked: a store and a caller may call this method again.
        for effect in effects {
            match effect {
                QuorumEffect::Send {
                    node,
                    name,
                    step,
                    purpose,
                } => self.send(node, &name, step, purpose),
                QuorumEffect::Answer(caller, answer) => caller.answer(answer),
                QuorumEffect::Wake(after, timer) => self.wake(after, timer),
            }
        }
    }

    /// Sends a step to a node. A client that is closed waits for the answers of all nodes, not only of a majority: a process
    /// that ends sooner would leave votes behind. It does not wait for repeated steps, which may take long.
    fn send(self: &Arc<Self>, node: usize, name: &LockName, step: Step, purpose: Purpose) {
        let under_way = (!purpose.is_repeated()).then(|| self.tasks.token());
        let quorum = self.clone();
        let answered = move |answer| {
            quorum.handle(QuorumEvent::Answered {
                node,
                purpose,
                answer,
            });
            drop(under_way);
        };
        self.nodes[node].send(name, step, Done::new(answered));
    }

    fn wake(self: &Arc<Self>, after: Duration, timer: QuorumTimer) {
        let quorum = self.clone();
        self.tasks.spawn_aside(async move {
            quorum.clock.sleep(after).await;
            quorum.handle(QuorumEvent::Passed(timer));
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QuorumMachine<Done>> {
        // The machine only counts and collects effects; a panic is a bug, and the votes expire.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes the notices of a node on.
pub(super) fn relayed(quorum: Weak<Quorum>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let (event, notice) = relay(notice);
        if let (Some(event), Some(quorum)) = (event, quorum.upgrade()) {
            quorum.handle(event);
        }
        if let Some(notice) = notice {
            listener(notice);
        }
    })
}
