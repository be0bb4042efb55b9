//! The invariants of a history of a quorum, after every event and at its end.

use std::sync::Arc;

use leasehold_core::{Mode, Owner, Step};

use super::node::{majority, votes};
use super::parts::{Flight, Member, What};
use super::sim::QuorumSimulation;
use crate::lease::hold::Hold;
use crate::lease::tests::simulation::left_in;
use crate::lease::tests::simulation::sim::{MS, SECOND};
use crate::lease::tests::simulation::user::{Stage, User};
use crate::store::Notice;

/// How often a client is asked what it knows (V1). A node keeps a vote that no client knows until its TTL is over.
const LOOK_EVERY: u64 = 5 * MS;

/// The part of a history that an event has changed, beside messages on their way. The rest was checked after the event before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    All,
    Client(usize),
    Nodes,
}

impl Changed {
    fn has_client(self, client: usize) -> bool {
        self == Self::All || self == Self::Client(client)
    }
}

impl QuorumSimulation {
    pub(super) fn check(&mut self, changed: Changed) -> Result<(), String> {
        let mut in_use = Vec::new();
        for at in 0..self.members.len() {
            let client = &mut self.members[at].client;
            if !changed.has_client(at) && client.users.iter().all(|user| user.hold().is_none()) {
                continue;
            }
            client.tick(self.at);
            if changed.has_client(at) {
                if let Some(fault) = &client.fault {
                    return Err(fault.clone());
                }
                client.check_leases()?;
            }
            let holds: Vec<_> = client
                .users
                .iter()
                .filter_map(User::hold)
                .cloned()
                .collect();
            for hold in holds {
                self.check_kept(at, &hold)?;
                if hold.loss().is_none() {
                    self.check_lease(at, &hold, &mut in_use)?;
                }
            }
            if changed.has_client(at) {
                self.check_answered(at)?;
            }
        }
        if self.at >= self.known_at + LOOK_EVERY {
            self.known_at = self.at;
            self.check_known()?;
        }
        Ok(())
    }

    /// Checks that no other user relies on this lock, and that its fence is new, and above those of former leases.
    fn check_lease(
        &mut self,
        client: usize,
        hold: &Arc<Hold>,
        in_use: &mut Vec<Arc<Hold>>,
    ) -> Result<(), String> {
        let who = hold.owner.id();
        let is_broken = self.broken.contains(&hold.owner);
        if !is_broken {
            let excludes = |other: &&Arc<Hold>| {
                let are_readers = hold.mode == Mode::Shared && other.mode == Mode::Shared;
                other.name == hold.name && !are_readers
            };
            if let Some(other) = in_use.iter().find(excludes) {
                return Err(format!(
                    "QR1: {who} and {} rely on one lock",
                    other.owner.id()
                ));
            }
            in_use.push(hold.clone());
            self.check_majority(hold)?;
        }
        if hold.mode == Mode::Shared {
            let is_fenced = hold.fenced().is_some();
            return (!is_fenced)
                .then_some(())
                .ok_or(format!("QR10: {who} has a fence"));
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
    fn check_majority(&self, hold: &Hold) -> Result<(), String> {
        let votes = votes(&self.nodes, self.at, hold);
        if !self.has_lost && votes < majority(&self.nodes) {
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
        let (now, members) = (self.at, &mut self.members);
        for (node, it) in self.nodes.iter_mut().enumerate() {
            for owner in left_in(it.look(now)) {
                let is_its = |member: &Member| member.client.id == owner.client();
                let of = members.iter().position(is_its);
                let Some(client) = of else {
                    continue;
                };
                let member = &mut members[client];
                let is_away = member.client.is_dead
                    || member.client.paused_until > now
                    || !member.links[node].connected;
                // Where the release that keeps its lock did not arrive, its hold ends by itself.
                if is_away
                    || member.client.knows(owner)
                    || member.quorum.knows(owner)
                    || self.stale.contains(owner)
                    || self.kept.contains(owner)
                {
                    continue;
                }
                let comes = |what: &What| match what {
                    What::QuorumTimer(to, timer) => *to == client && timer.is_of(owner),
                    What::Notice(link, _, notice) if *link == (client, node) => match notice {
                        Notice::Granted { wake, .. } => wake.owner == *owner,
                        Notice::Reconnected { .. } => true,
                        _ => false,
                    },
                    _ => false,
                };
                let is_under_way =
                    |flight: &Flight| flight.link == (client, node) && is_of(&flight.step, owner);
                if !self.flights.values().any(is_under_way)
                    && !self.planned.values().any(|what| comes(what))
                {
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
