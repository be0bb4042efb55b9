//! The invariants of a simulation, after every event and at its end.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Holder, LockName, Mode, Owner, Step, Wake, World};

use super::super::client::{Client, Stays};
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
        let mut in_use: HashMap<_, Vec<_>> = HashMap::new();
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

    /// Checks that the server has granted a lease on which its user relies, and that others who rely on this lock admit it. Fences rise.
    fn check_lease(
        &mut self,
        world: &World,
        at: usize,
        hold: &Arc<Hold>,
        in_use: &mut HashMap<LockName, Vec<Arc<Hold>>>,
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
        let others = in_use.entry(hold.name.clone()).or_default();
        if let Some(other) = others.iter().find(|other| !are_beside(hold, other)) {
            let other = other.owner.id();
            return Err(format!("L1: {who} and {other} rely on one lock"));
        }
        others.push(hold.clone());
        let slots = others.iter().filter_map(|hold| slots(hold.mode)).max();
        if slots.is_some_and(|slots| others.len() > slots.into()) {
            return Err(format!("C1: {who} is one too many"));
        }
        if hold.slot > self::slots(hold.mode) {
            return Err(format!("C9: {who} has a slot that is not there"));
        }
        let seen = self.seen.entry(hold.name.clone()).or_default();
        if seen.iter().any(|other| Arc::ptr_eq(other, hold)) {
            return Ok(());
        }
        if let Some(before) = seen.iter().find(|before| !is_above(hold, before)) {
            return Err(format!("fence {} after {}", hold.fence, before.fence));
        }
        seen.push(hold.clone());
        Ok(())
    }

    /// Checks a lease that has just begun with a wake: the server that sent the wake keeps the lock for at least as long (W4).
    pub(super) fn check_grant(&mut self, at: usize, wake: &Wake) {
        let (client, owner) = (&self.clients[at], &wake.owner);
        let holds = client.users.iter().filter_map(User::hold);
        let now = client.clock.now();
        let is_of_it = |hold: &Hold| hold.owner == *owner && wake.fence == Some(hold.grant);
        let begun = holds.filter(|hold| is_of_it(hold) && hold.since == now);
        let begun: Vec<_> = begun
            .map(|hold| {
                (
                    hold.name.clone(),
                    client.pace.at(hold.valid_until()),
                    hold.slot,
                )
            })
            .collect();
        if self.server.broken.contains(owner) {
            return;
        }
        for (name, ends_at, slot) in begun {
            let holder = holder(self.server.look(self.at), &name, owner).cloned();
            let is_right = holder.is_some_and(|holder| {
                ends_at <= self.server.expiry(&holder) && slot == holder.slot
            });
            if !is_right {
                let fault = format!("W4: the grant of {} counts for too long", owner.id());
                self.clients[at].fault = Some(fault);
            }
        }
    }

    /// Checks that a lock stays taken if its release said so (U3). Excused are broken locks, late requests, and all locks after a failover.
    fn check_kept(&self, world: &World, at: usize) -> Result<(), String> {
        let client = &self.clients[at];
        for Stays {
            name,
            owner,
            until,
            stay,
        } in &client.stays
        {
            let is_over = client.pace.at(*until) <= self.at;
            let server = &self.server;
            let excused = self.failed_over_at.is_some()
                || server.broken.contains(owner)
                || server.overtaken.contains(owner)
                || stay.is_some() && !server.kept.contains(owner);
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

    /// Checks that a lock gets one more user if any of its waiters could use it (Q2). A client that hears no hint polls.
    fn check_served(&mut self, world: &World) -> Result<(), String> {
        for at in 0..self.names.len() {
            let name = &self.names[at];
            if self.at < self.calm_at || !self.is_of_use(world, name) {
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

    /// True if somebody waits for this lock, and each of the waiters would be admitted now. The first of them has to be served then,
    /// whoever that is.
    fn is_of_use(&self, world: &World, name: &LockName) -> bool {
        let waits: Vec<_> = self.waiting(name).collect();
        if waits.is_empty() {
            return false;
        }
        let Some(uses) = self.uses(world, name) else {
            return false;
        };
        waits.into_iter().all(|mode| match mode {
            Mode::Exclusive => uses.is_empty(),
            Mode::Shared => uses.iter().all(|used| *used == Mode::Shared),
            Mode::Slot(of) => {
                uses.len() < of.get().into() && uses.iter().all(|used| slots(*used).is_some())
            }
        })
    }

    /// The modes of those who wait for this lock and could be served by now.
    fn waiting(&self, name: &LockName) -> impl Iterator<Item = Mode> {
        let clients = self.clients.iter().zip(&self.links);
        let able = clients.filter(|(client, link)| {
            let since = link.connected_at.max(link.told_at).max(client.paused_until) + TOLD;
            !client.is_dead && link.connected && since <= self.at
        });
        able.flat_map(|(client, _)| &client.users)
            .filter_map(move |user| match &user.stage {
                Stage::Asks {
                    waits: true,
                    leaves: false,
                    mode,
                    ..
                } if user.name == *name => Some(*mode),
                _ => None,
            })
    }

    /// The modes of those who rely on this lock, or have taken it on purpose, or cannot be told. `None` if one that cannot be told, or has
    /// gone, is in the line.
    fn uses(&self, world: &World, name: &LockName) -> Option<Vec<Mode>> {
        let users = self.clients.iter().flat_map(|client| &client.users);
        let in_use = users.filter_map(User::hold);
        let in_use: Vec<_> = in_use
            .filter(|hold| hold.name == *name && hold.loss().is_none())
            .collect();
        let is_out = |owner: &Owner| {
            let of = |client: &Client| client.id == owner.client();
            let is_away = |at: usize| {
                let client = &self.clients[at];
                client.is_dead
                    || client.paused_until > self.at
                    || !self.links[at].connected
                    || client.is_left_with(owner)
            };
            let at = self.clients.iter().position(of);
            self.stale.contains(owner) || at.is_none_or(is_away)
        };
        let mut modes: Vec<_> = in_use.iter().map(|hold| hold.mode).collect();
        if let Some(lock) = world.get(name) {
            let taken = lock.holders.iter().filter(|holder| {
                let is_used = in_use.iter().any(|hold| hold.owner == holder.owner);
                !is_used && (holder.kept || is_out(&holder.owner))
            });
            modes.extend(taken.map(|holder| holder.mode));
            let mut queue = lock.queue.iter();
            if self.rare.kinds.is_some() && queue.any(|waiter| is_out(&waiter.owner)) {
                return None;
            }
        }
        Some(modes)
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

/// Whether two may rely on one lock at a time.
fn are_beside(one: &Hold, other: &Hold) -> bool {
    match (one.mode, other.mode) {
        (Mode::Shared, Mode::Shared) => one.fence == other.fence,
        (Mode::Slot(_), Mode::Slot(_)) => one.slot != other.slot,
        _ => false,
    }
}

/// Whether the fence of a lease is right after one that began before.
fn is_above(hold: &Hold, before: &Hold) -> bool {
    match (hold.mode, before.mode) {
        (Mode::Shared, Mode::Shared) => hold.fence >= before.fence,
        // Those of different slots say nothing about each other.
        (Mode::Slot(_), Mode::Slot(_)) if hold.slot != before.slot => true,
        _ => hold.fence > before.fence,
    }
}

fn slots(mode: Mode) -> Option<u16> {
    match mode {
        Mode::Slot(slots) => Some(slots.get()),
        Mode::Exclusive | Mode::Shared => None,
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
