//! The random faults of a simulation: cuts, pauses, crashes, failovers, clock changes, broken locks, early closing.

use std::time::Duration;

use leasehold_core::slot;

use super::{MS, SECOND, Simulation, What};
use crate::error::Replaced;
use crate::store::{Notice, Scope};

impl Simulation {
    pub(super) fn trouble(&mut self) {
        if self.at >= self.calm_at {
            return;
        }
        let client = self.rng.usize(0..self.clients.len());
        match self.rng.u32(0..12) {
            0 | 1 if !self.clients[client].is_dead && self.links[client].connected => {
                self.cut(client);
            }
            2 => {
                let until = self.at + self.rng.u64(MS..4 * SECOND);
                self.stands_still(client, until);
            }
            3 if self.rng.bool() => self.crash(client),
            4 => self.fail_over(),
            5 => {
                let (by, back) = (
                    Duration::from_millis(self.rng.u64(0..5_000)),
                    self.rng.bool(),
                );
                self.server.step_wall(by, back);
                self.seen.clear();
                self.tell(|| format!("the time of day is set by {by:?}, back: {back}"));
            }
            6 => {
                let name = self.names[self.rng.usize(0..self.names.len())].clone();
                if let Some(outcome) = self.server.break_lock(self.at, &name) {
                    self.tell(|| format!("{name:?} is broken"));
                    self.notify(&name, outcome);
                }
            }
            7 if self.rng.bool() && self.clients[client].paused_until <= self.at => {
                self.close(client);
            }
            _ => self.server.replicate(),
        }
        let after = self.rng.u64(MS..SECOND);
        self.plan(after, What::Trouble);
    }

    /// A client handles no event before `until`.
    pub(super) fn stands_still(&mut self, client: usize, until: u64) {
        // All events of a pause come after it, in their order.
        let until = until.max(self.clients[client].paused_until);
        self.clients[client].paused_until = until;
        self.tell(|| format!("{client} stands still until {until}"));
        // After the pause, the client handles the timers that are overdue.
        self.plan_at(until, What::Timer(client));
    }

    pub(super) fn crash(&mut self, client: usize) {
        self.tell(|| format!("{client} crashes"));
        if self.links[client].connected {
            self.cut(client);
        }
        self.clients[client].is_dead = true;
        self.clients[client].users.clear();
    }

    pub(super) fn fail_over(&mut self) {
        let offset = if self.rng.bool() {
            self.server.offset() + self.rng.u64(0..SECOND)
        } else {
            self.rng.u64(0..10 * SECOND)
        };
        let before = self.server.lineage;
        self.server.fail_over(offset);
        self.tell(|| format!("a replica takes over, lineage {}", before + 1));
        self.failed_over_at = Some(self.at);
        self.seen.clear();
        let state = self.server.look(self.at).clone();
        for name in state.names() {
            let Some(lock) = state.get(name) else {
                continue;
            };
            let holders = lock.holders.iter().map(|holder| holder.owner.clone());
            let waiters = lock.queue.iter().map(|waiter| waiter.owner.clone());
            self.stale.extend(holders.chain(waiters));
        }
        for client in 0..self.clients.len() {
            if !self.links[client].connected {
                continue;
            }
            let Some(after) = self.rare.learns_after() else {
                self.cut(client);
                continue;
            };
            let slots = self.names.iter().map(|name| {
                let slot = slot(name.key());
                slot..=slot
            });
            let slots = Scope::Slots(slots.collect());
            let replaced = Notice::Replaced(Replaced::Slot, slots);
            let sent = self.sent(client);
            for notice in [replaced, Notice::Missed] {
                self.plan(after, What::Notice(client, sent, notice));
            }
        }
    }
}
