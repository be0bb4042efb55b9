//! A rolling restart of all nodes, one at a time, while a lease is held.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::quorum::quarantine;

use super::Rules;
use super::network::micros;
use super::sim::{LONGEST_TTL, QuorumSimulation};
use crate::lease::hold::Hold;
use crate::lease::tests::simulation::rare::Rare;
use crate::lease::tests::simulation::sim::SECOND;
use crate::lease::tests::simulation::user::Stage;

/// The data with which a node comes back.
#[derive(Debug, Clone, Copy)]
enum Data {
    /// All, and it knows that.
    Durable,
    /// Those at the begin of the outage. It has to keep out.
    Kept,
    None,
}

/// Each outage is longer than any TTL, so the votes of the node expire.
const OUTAGE: u64 = 12 * SECOND;

impl QuorumSimulation {
    /// Runs until a user has a lease that renews itself, which that user then keeps. Some messages are late by more than the shortest TTL.
    fn long_lease(&mut self) -> Result<Option<Arc<Hold>>, String> {
        while let Some(((at, _), _)) = self.planned.first_key_value() {
            self.run_until(*at)?;
            let mut users = self.members.iter_mut().flat_map(|it| &mut it.client.users);
            let found = users.find_map(|user| match &user.stage {
                Stage::Works(hold)
                    if hold.auto_renew
                        && hold.max_until.is_none()
                        && hold.ttl.get() >= Duration::from_secs(2) =>
                {
                    // The move that was planned is not made.
                    user.turn += 1;
                    Some(hold.clone())
                }
                _ => None,
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn outage(&mut self, node: usize, data: Data) -> Result<(), String> {
        let until = self.at + OUTAGE;
        self.nodes[node].save();
        self.nodes[node].down_until = until;
        self.cut_all(node);
        self.run_until(until)?;
        match data {
            Data::Durable => self.nodes[node].restart(),
            Data::Kept => {
                self.nodes[node].load_from_disk(Rules::Sound);
                self.loaded(node);
            }
            Data::None => {
                self.nodes[node].lose_data(Rules::Sound);
                self.has_lost = true;
            }
        }
        self.cut_all(node);
        let keeps_out = match data {
            Data::Durable => Duration::ZERO,
            Data::Kept | Data::None => quarantine(Ttl::new(LONGEST_TTL).unwrap()),
        };
        // A renewal asks it for its vote, and after the quarantine another one does.
        self.run_until(until + micros(keeps_out + 2 * LONGEST_TTL))
    }
}

#[test]
fn a_rolling_restart_of_all_nodes_ends_no_lease() {
    for data in [Data::Durable, Data::Kept, Data::None] {
        let mut leases = 0;
        for seed in 0..20 {
            let mut simulation = QuorumSimulation::new(seed, Rules::Sound, Rare::default(), true);
            simulation.calm_at = 0;
            let Some(hold) = simulation.long_lease().unwrap() else {
                continue;
            };
            leases += 1;
            // A renewal has asked each node that lacks the vote by then.
            let renewed = simulation.at + micros(hold.ttl.get());
            simulation.run_until(renewed).unwrap();
            for outage in 0..5 {
                let node = outage % simulation.nodes.len();
                let kept = simulation
                    .outage(node, data)
                    .and_then(|()| match hold.loss() {
                        Some(lost) => Err(lost.to_string()),
                        None => Ok(()),
                    });
                if let Err(fault) = kept {
                    let story = simulation.story().join("\n");
                    panic!("{story}\nseed {seed}, {data:?}, outage {outage}: {fault}");
                }
            }
        }
        assert!(leases > 10, "{leases}");
    }
}
