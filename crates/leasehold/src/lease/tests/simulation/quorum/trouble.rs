//! The random faults of a simulated quorum: cuts, pauses, crashes, nodes that stop or lose data, broken locks.

use leasehold_core::{Fence, Holder, Step};

use super::parts::What;
use super::sim::QuorumSimulation;
use crate::lease::tests::simulation::left_in;
use crate::lease::tests::simulation::sim::{MS, SECOND};

impl QuorumSimulation {
    pub(super) fn trouble(&mut self) {
        if self.at >= self.calm_at {
            return;
        }
        let client = self.rng.usize(0..self.members.len());
        let node = self.rng.usize(0..self.nodes.len());
        match self.rng.u32(0..16) {
            0..=2 if self.members[client].links[node].connected => self.cut((client, node)),
            3 => {
                let until = self.at + self.rng.u64(MS..4 * SECOND);
                self.stands_still(client, until);
            }
            4 if self.rng.bool() => self.crash(client),
            5 | 6 => {
                let until = self.at + self.rng.u64(10 * MS..5 * SECOND);
                self.nodes[node].down_until = until;
                self.tell(|| format!("node {node} stands still until {until}"));
            }
            7 => {
                self.tell(|| format!("node {node} loses its data"));
                let rules = self.rules;
                self.nodes[node].lose_data(rules);
                self.has_lost = true;
                self.cut_all(node);
            }
            8 => {
                self.tell(|| format!("node {node} starts again with old data"));
                let rules = self.rules;
                self.nodes[node].load_from_disk(rules);
                self.loaded(node);
            }
            9 if self.rng.bool() => {
                self.tell(|| format!("node {node} starts again"));
                self.nodes[node].restart();
                self.cut_all(node);
            }
            9 => {
                let other = self.rng.usize(0..self.nodes.len());
                self.tell(|| format!("node {node} gets the data of node {other}"));
                let (data, rules) = (self.nodes[other].world.clone(), self.rules);
                self.nodes[node].load(data, rules);
                self.loaded(node);
            }
            10 if self.rng.bool() => self.break_lock(node),
            11 => {
                let ahead = self.rng.u64(0..10 * SECOND);
                let name = self.names[0].clone();
                let at = self.at;
                self.nodes[node].lock_other_name(at, &name, ahead);
            }
            12 if self.rng.bool() && self.members[client].client.paused_until <= self.at => {
                self.close(client);
            }
            _ => self.nodes[node].save(),
        }
        let after = self.rng.u64(MS..SECOND);
        self.plan(after, What::Trouble);
    }

    /// A client handles no event before `until`.
    pub(super) fn stands_still(&mut self, client: usize, until: u64) {
        let until = until.max(self.members[client].client.paused_until);
        self.members[client].client.paused_until = until;
        self.tell(|| format!("{client} stands still until {until}"));
        // After the pause, the client handles the timers that are overdue.
        self.plan_at(until, What::Timer(client));
    }

    /// A node has other data than before.
    pub(super) fn loaded(&mut self, node: usize) {
        let owners = left_in(&self.nodes[node].world).cloned();
        self.stale.extend(owners);
        self.has_lost = true;
        self.cut_all(node);
    }

    pub(super) fn cut_all(&mut self, node: usize) {
        for client in 0..self.members.len() {
            if self.members[client].links[node].connected {
                self.cut((client, node));
            }
        }
    }

    fn crash(&mut self, client: usize) {
        self.tell(|| format!("{client} crashes"));
        for node in 0..self.nodes.len() {
            if self.members[client].links[node].connected {
                self.cut((client, node));
            }
        }
        let client = &mut self.members[client].client;
        client.is_dead = true;
        client.users.clear();
    }

    /// An operator breaks a lock by the fence that this node shows, at all nodes.
    fn break_lock(&mut self, node: usize) {
        let name = self.names[self.rng.usize(0..self.names.len())].clone();
        let at = self.at;
        let lock = self.nodes[node].look(at).get(&name);
        let Some(holder) = lock.and_then(|lock| lock.holders.first()) else {
            return;
        };
        let (owner, fence) = (holder.owner.clone(), number(holder));
        self.tell(|| format!("{} is broken", owner.id()));
        self.broken.insert(owner);
        for node in 0..self.nodes.len() {
            let lock = self.nodes[node].look(at).get(&name);
            let holders = lock.into_iter().flat_map(|lock| &lock.holders);
            let meant = holders.filter(|holder| match holder.vote {
                Some(vote) => vote == fence,
                None => holder.fences.contains(fence),
            });
            self.broken.extend(meant.map(|holder| holder.owner.clone()));
            self.carry_out(node, &name, &Step::Break { fence });
        }
    }
}

/// The fence by which an operator breaks a hold.
fn number(holder: &Holder) -> Fence {
    holder.vote.unwrap_or(holder.fences.first)
}
