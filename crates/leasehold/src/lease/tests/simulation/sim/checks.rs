//! The invariants of a simulation, after every event and at its end.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Holder, LockName, Owner, Step, Wake, World};

use super::super::client::Client;
use super::super::left_in;
use super::super::user::{Stage, User};
use super::{SECOND, Simulation, What};
use crate::lease::hold::Hold;
use crate::store::Notice;

/// A lock that nobody uses goes to a waiter within this time, also if no hint arrives: its client polls, or the claim window of another
/// client ends first.
const SERVED: u64 = 10 * SECOND;

/// A client learns within this time from a new server that it has lost a lease.
const TOLD: u64 = 2 * SECOND;

impl Simulation {
    pub(super) fn check(&mut self) -> Result<(), String> {
        let world = self.server.look(self.at).clone();
        let mut in_use = HashMap::new();
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            client.tick(self.at);
            if let Some(fault) = &client.fault {
                return Err(fault.clone());
            }
            client.check_leases()?;
            let holds: Vec<_> = client
                .users
                .iter()
                .filter_map(User::hold)
                .cloned()
                .collect();
            for hold in holds {
                if hold.loss().is_none() && !self.is_excused(at, &hold) {
                    self.check_lease(&world, at, &hold, &mut in_use)?;
                }
            }
            self.check_kept(&world, at)?;
            self.check_answered(at)?;
            self.check_known(&world, at)?;
        }
        self.check_served(&world)
    }

    /// True if the lease was broken, or if a replica took over and the client has had no time to learn of the loss.
    fn is_excused(&self, at: usize, hold: &Hold) -> bool {
        let (client, link) = (&self.clients[at], &self.links[at]);
        let asked_at = client.pace.at(hold.asked_at);
        let failed_over = self.failed_over_at.is_some_and(|failed| asked_at <= failed);
        let cannot_know = !link.connected
            || link.lineage != self.server.lineage
            || client.paused_until.max(link.connected_at).max(link.told_at) + TOLD > self.at;
        self.server.broken.contains(&hold.owner) || failed_over && cannot_know
    }

    /// Checks that the server has granted a lease on which its user relies, and that no other user relies on this lock. Fences rise.
    fn check_lease(
        &mut self,
        world: &World,
        at: usize,
        hold: &Arc<Hold>,
        in_use: &mut HashMap<LockName, Owner>,
    ) -> Result<(), String> {
        let who = hold.owner.id();
        let Some(holder) = holder(world, &hold.name, &hold.owner) else {
            return Err(format!("L1: {who} relies on what it does not hold"));
        };
        // A replica may have the lock for a shorter time, until it has confirmed the lease (L4).
        let knows = self.links[at].lineage == self.server.lineage;
        let is_confirmed = self.failed_over_at.is_none() || knows && hold.doubted().is_none();
        let ends_at = self.clients[at].pace.at(hold.valid_until());
        if is_confirmed && ends_at > self.server.expiry(holder) {
            return Err(format!("L1: {who} ends after its lock"));
        }
        if let Some(other) = in_use.insert(hold.name.clone(), hold.owner.clone()) {
            return Err(format!("L1: {who} and {} rely on one lock", other.id()));
        }
        let last = self.last_lease.insert(hold.name.clone(), hold.clone());
        match last {
            Some(last) if !Arc::ptr_eq(&last, hold) && hold.fence <= last.fence => {
                Err(format!("fence {} after {}", hold.fence, last.fence))
            }
            _ => Ok(()),
        }
    }

    /// Checks a lease that has just begun with a wake: the server that sent the wake keeps the lock for at least as long (W4).
    pub(super) fn check_grant(&mut self, at: usize, wake: &Wake) {
        let (client, owner) = (&self.clients[at], &wake.owner);
        let mut holds = client.users.iter().filter_map(User::hold);
        let now = client.clock.now();
        let is_of_it = |hold: &Hold| hold.owner == *owner && wake.fence == Some(hold.grant);
        let begun = holds.find(|hold| is_of_it(hold) && hold.since == now);
        let Some(hold) = begun.filter(|_| !self.server.broken.contains(owner)) else {
            return;
        };
        let (ends_at, name) = (client.pace.at(hold.valid_until()), hold.name.clone());
        let holder = holder(self.server.look(self.at), &name, owner).cloned();
        if holder.is_none_or(|holder| ends_at > self.server.expiry(&holder)) {
            let fault = format!("W4: the grant of {} counts for too long", owner.id());
            self.clients[at].fault = Some(fault);
        }
    }

    /// Checks that a lock stays taken if its release said so (U3). Excused are broken locks, late requests, and all locks after a failover.
    fn check_kept(&self, world: &World, at: usize) -> Result<(), String> {
        let client = &self.clients[at];
        for (name, owner, until) in &client.stays {
            let is_over = client.pace.at(*until) <= self.at;
            let server = &self.server;
            let excused = self.failed_over_at.is_some()
                || server.broken.contains(owner)
                || server.overtaken.contains(owner);
            if !is_over && !excused && holder(world, name, owner).is_none() {
                return Err(format!("U3: {} does not stay taken", owner.id()));
            }
        }
        Ok(())
    }

    /// Checks that every user with a time limit gets its reply in time (Q4).
    fn check_answered(&self, at: usize) -> Result<(), String> {
        let client = &self.clients[at];
        // After a pause, a client asks for as long as at first.
        if client.is_dead || client.paused_until + 6 * SECOND > self.at {
            return Ok(());
        }
        for user in &client.users {
            let asks = matches!(user.stage, Stage::Asks { leaves: false, .. });
            if asks && user.due.is_some_and(|due| due < client.clock.now()) {
                return Err(format!("Q4: a user of {at} is not answered in time"));
            }
        }
        Ok(())
    }

    /// Checks that no lock is without a user while a client waits for it (Q2). A client that hears no hint polls.
    fn check_served(&mut self, world: &World) -> Result<(), String> {
        for at in 0..self.names.len() {
            let name = &self.names[at];
            if self.at < self.calm_at || !self.is_waited_for(name) || self.is_used(world, name) {
                self.unserved_since[at] = None;
                continue;
            }
            let since = *self.unserved_since[at].get_or_insert(self.at);
            if since + SERVED < self.at {
                return Err(format!("Q2: nobody uses {name:?}, and somebody waits"));
            }
        }
        Ok(())
    }

    /// True if a client waits for this lock that could be served by now.
    fn is_waited_for(&self, name: &LockName) -> bool {
        let mut clients = self.clients.iter().zip(&self.links);
        clients.any(|(client, link)| {
            let since = link.connected_at.max(link.told_at).max(client.paused_until) + TOLD;
            let waits = |user: &User| {
                let asks = matches!(
                    &user.stage,
                    Stage::Asks {
                        waits: true,
                        leaves: false,
                        ..
                    }
                );
                asks && user.name == *name
            };
            let is_able = !client.is_dead && link.connected && since <= self.at;
            is_able && client.users.iter().any(waits)
        })
    }

    /// True if a user relies on this lock, or if it is taken on purpose or by a client that cannot be told.
    fn is_used(&self, world: &World, name: &LockName) -> bool {
        let relies = |user: &User| {
            let hold = user.hold().filter(|hold| hold.name == *name);
            hold.is_some_and(|hold| hold.loss().is_none())
        };
        let mut users = self.clients.iter().flat_map(|client| &client.users);
        let holders = world.get(name).into_iter().flat_map(|lock| &lock.holders);
        let is_taken = |holder: &Holder| {
            let of = |client: &Client| client.id == holder.owner.client();
            let is_away = |at: usize| {
                let client = &self.clients[at];
                client.is_dead
                    || client.paused_until > self.at
                    || !self.links[at].connected
                    || client.is_left_with(&holder.owner)
            };
            let is_stale = self.stale.contains(&holder.owner);
            holder.kept || is_stale || self.clients.iter().position(of).is_none_or(is_away)
        };
        users.any(relies) || holders.into_iter().any(is_taken)
    }

    /// Checks that a client knows every owner that the server keeps for it, or that a message about it is on its way (E1). A late
    /// request of the owner is no excuse, because a settlement waits for it (U1).
    fn check_known(&mut self, world: &World, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        if client.is_dead || client.paused_until > self.at || !self.links[at].connected {
            return Ok(());
        }
        for owner in left_in(world) {
            if client.id != owner.client() || client.knows(owner) || self.stale.contains(owner) {
                continue;
            }
            let epoch = self.links[at].epoch;
            let comes = |what: &What| match what {
                What::Notice(to, sent, notice) if *to == at && sent.epoch == epoch => {
                    match notice {
                        Notice::Granted { wake, .. } => wake.owner == *owner,
                        Notice::Reconnected { .. } => true,
                        _ => false,
                    }
                }
                _ => false,
            };
            let is_under_way = self
                .flights
                .values()
                .any(|flight| is_of(&flight.step, owner));
            if !is_under_way && !self.planned.values().any(comes) {
                return Err(format!("E1: {at} does not know {}", owner.id()));
            }
        }
        Ok(())
    }

    /// Checks that the clients and the server keep nothing at the end.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        let world = self.server.look(self.at).clone();
        for (at, client) in self.clients.iter_mut().enumerate() {
            if client.is_dead {
                continue;
            }
            if !client.is_closed {
                return Err(format!("Q2: a user of {at} was never served"));
            }
            if !client.machine.is_empty() || client.machine.is_settling() {
                return Err(format!("{at} remembers something"));
            }
            let id = client.id;
            let mut left = left_in(&world).filter(|owner| owner.client() == id);
            let forgot = |owner: &&Owner| !self.stale.contains(*owner) && !client.knows(owner);
            if let Some(owner) = left.find(forgot) {
                return Err(format!("{} is left", owner.id()));
            }
        }
        Ok(())
    }
}

impl Client {
    /// True if the machine or a user knows this owner, or if its lease is detached: then the holder of the token must release it.
    pub(crate) fn knows(&mut self, owner: &Owner) -> bool {
        self.machine.knows(owner) || self.is_left_with(owner)
    }

    /// True if a user has to release this owner, or the holder of its token.
    fn is_left_with(&self, owner: &Owner) -> bool {
        // A user releases a lost lease when it notices the loss.
        let has = |hold: &Arc<Hold>| hold.owner == *owner;
        let in_hand = |user: &User| match &user.stage {
            Stage::Detaches(hold, ..) => has(hold),
            _ => user.hold().is_some_and(has),
        };
        self.detached.contains(owner) || self.users.iter().any(in_hand)
    }
}

fn holder<'a>(world: &'a World, name: &LockName, owner: &Owner) -> Option<&'a Holder> {
    let mut holders = world.get(name)?.holders.iter();
    holders.find(|holder| holder.owner == *owner)
}

fn is_of(step: &Step, owner: &Owner) -> bool {
    match step {
        Step::Acquire { owner: of, .. }
        | Step::Extend { owner: of, .. }
        | Step::Release { owner: of, .. } => of == owner,
        _ => false,
    }
}
