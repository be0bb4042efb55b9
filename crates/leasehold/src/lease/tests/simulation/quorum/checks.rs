//! The invariants of a history of a quorum, after every event and at its end.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{LockName, Owner, Step};

use super::parts::{Flight, What};
use super::sim::QuorumSimulation;
use crate::lease::hold::Hold;
use crate::lease::tests::simulation::client::Fate;
use crate::lease::tests::simulation::left_in;
use crate::lease::tests::simulation::sim::SECOND;
use crate::lease::tests::simulation::user::{Stage, User};
use crate::store::Notice;

impl QuorumSimulation {
    /// The fates of a client's leases at the nodes.
    pub(super) fn fates(&mut self, client: usize) -> impl Fn(&Hold) -> Fate + use<> {
        let holders = self.holders();
        let (broken, has_lost) = (self.broken.clone(), self.has_lost);
        let needed = self.nodes.len() / 2 + 1;
        let _ = client;
        move |hold: &Hold| {
            let votes = holders
                .iter()
                .filter(|(name, owner)| *name == hold.name && *owner == hold.owner);
            Fate {
                was_freed: votes.count() < needed,
                is_excused: has_lost || broken.contains(&hold.owner),
                was_set: false,
            }
        }
    }

    /// The owner of each vote, at all nodes.
    fn holders(&mut self) -> Vec<(LockName, Owner)> {
        let at = self.at;
        let mut holders = Vec::new();
        for node in &mut self.nodes {
            let world = node.look(at);
            for name in world.names() {
                let lock = world.get(name).into_iter();
                holders.extend(
                    lock.flat_map(|lock| &lock.holders)
                        .map(|holder| (name.clone(), holder.owner.clone())),
                );
            }
        }
        holders
    }

    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut in_use: HashMap<LockName, Arc<Hold>> = HashMap::new();
        for at in 0..self.members.len() {
            let client = &mut self.members[at].client;
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
                if hold.loss().is_none() {
                    self.check_lease(at, &hold, &mut in_use)?;
                }
            }
            self.check_answered(at)?;
        }
        self.check_known()
    }

    /// Checks that no other user relies on this lock, and that its fence is new, and above those of former leases.
    fn check_lease(
        &mut self,
        client: usize,
        hold: &Arc<Hold>,
        in_use: &mut HashMap<LockName, Arc<Hold>>,
    ) -> Result<(), String> {
        let who = hold.owner.id();
        let is_broken = self.broken.contains(&hold.owner);
        if !is_broken {
            if let Some(other) = in_use.insert(hold.name.clone(), hold.clone()) {
                return Err(format!(
                    "QR1: {who} and {} rely on one lock",
                    other.owner.id()
                ));
            }
            self.check_majority(hold)?;
        }
        if self
            .last_lease
            .get(&hold.name)
            .is_some_and(|last| Arc::ptr_eq(last, hold))
        {
            return Ok(());
        }
        let used = self
            .fences
            .entry((hold.name.clone(), hold.fence))
            .or_insert_with(|| hold.clone());
        if !Arc::ptr_eq(used, hold) {
            return Err(format!(
                "QR2: {who} and {} share the fence {}",
                used.owner.id(),
                hold.fence
            ));
        }
        let Some(last) = self.last_lease.get(&hold.name) else {
            self.last_lease.insert(hold.name.clone(), hold.clone());
            return Ok(());
        };
        // A lease that was broken may still be used, beside a later one.
        let was_broken = is_broken || self.broken.contains(&last.owner);
        if hold.fence < last.fence && !was_broken {
            return Err(format!(
                "QR3: fence {} of {who}, client {client}, after {} of {}",
                hold.fence,
                last.fence,
                last.owner.id()
            ));
        }
        if hold.fence > last.fence {
            self.last_lease.insert(hold.name.clone(), hold.clone());
        }
        Ok(())
    }

    /// Checks that a majority holds the lock for a lease in use, unless nodes have lost data.
    fn check_majority(&mut self, hold: &Hold) -> Result<(), String> {
        if self.has_lost {
            return Ok(());
        }
        let (at, needed) = (self.at, self.nodes.len() / 2 + 1);
        let mut votes = 0;
        for node in &mut self.nodes {
            let lock = node.look(at).get(&hold.name);
            let holders = lock.into_iter().flat_map(|lock| &lock.holders);
            votes += holders.filter(|holder| holder.owner == hold.owner).count();
        }
        if votes < needed {
            return Err(format!("QR6: {} relies on {votes} votes", hold.owner.id()));
        }
        Ok(())
    }

    /// Checks that every user with a time limit gets its reply in time (Q4).
    fn check_answered(&self, at: usize) -> Result<(), String> {
        let client = &self.members[at].client;
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

    /// Checks that a client knows every owner that a node keeps for it, or that a message about it is on its way (V1).
    fn check_known(&mut self) -> Result<(), String> {
        let now = self.at;
        for node in 0..self.nodes.len() {
            let world = self.nodes[node].look(now);
            let kept: Vec<_> = left_in(world).cloned().collect();
            for owner in kept {
                let Some(client) = self
                    .members
                    .iter()
                    .position(|member| member.client.id == owner.client())
                else {
                    continue;
                };
                let member = &mut self.members[client];
                let is_away = member.client.is_dead
                    || member.client.paused_until > now
                    || !member.links[node].connected;
                let is_stale = self.stale.contains(&owner);
                // Where the release that keeps its lock did not arrive, its hold ends by itself.
                let is_kept = self.kept.contains(&owner);
                if is_away
                    || is_stale
                    || is_kept
                    || member.client.knows(&owner)
                    || member.quorum.knows(&owner)
                {
                    continue;
                }
                let comes = |what: &What| match what {
                    What::QuorumTimer(to, timer) => *to == client && timer.is_of(&owner),
                    What::Notice(link, _, notice) if *link == (client, node) => match notice {
                        Notice::Granted { wake, .. } => wake.owner == owner,
                        Notice::Reconnected { .. } => true,
                        _ => false,
                    },
                    _ => false,
                };
                let is_under_way =
                    |flight: &Flight| flight.link == (client, node) && is_of(&flight.step, &owner);
                if !self.flights.values().any(is_under_way) && !self.planned.values().any(comes) {
                    return Err(format!(
                        "V1: {client} does not know {}, which node {node} keeps",
                        owner.id()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that the clients and the nodes keep nothing at the end.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        self.check_known()?;
        for (at, member) in self.members.iter_mut().enumerate() {
            let client = &mut member.client;
            if client.is_dead {
                continue;
            }
            if !client.is_closed {
                return Err(format!("Q2: a user of {at} was never served"));
            }
            if !client.machine.is_empty() || client.machine.is_settling() {
                return Err(format!("{at} remembers something"));
            }
            let detached = client.detached.len();
            if member.quorum.unsettled() > detached {
                return Err(format!("V1: the votes of {at} are never settled"));
            }
        }
        Ok(())
    }
}

fn is_of(step: &Step, owner: &Owner) -> bool {
    match step {
        Step::Extend { owner: of, .. }
        | Step::Release { owner: of, .. }
        | Step::GiveBack { owner: of, .. } => of == owner,
        Step::Propose(proposal) => proposal.owner == *owner,
        _ => false,
    }
}
