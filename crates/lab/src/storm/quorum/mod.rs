//! A storm on five servers that vote on each lock, the *nodes*. None of them keeps its data over a restart.
//!
//! At most two nodes are unwell at a time, counting those that have lost their memory and give no vote yet. Between these
//! times a majority is stopped or cut off at once, and may lose its memory: then no lock is granted, and all holders must
//! learn in time that they have lost theirs.
//!
//! The two controls break a rule from outside of the library:
//!
//! - *no-quarantine*: a node that lost its memory is marked as one of a new quorum at once, so it votes at once.
//! - *no-majority*: each worker knows three of the nodes only, as a quorum of three, so two of five votes are enough for it.
//!
//! | module | purpose |
//! |---|---|
//! | `nodes` | the servers, the network path to each, their clocks and marks |
//! | `schedule` | the faults, drawn from a seed |
//! | `nemesis` | causes the faults |

mod nemesis;
mod nodes;
mod schedule;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use self::nemesis::QuorumNemesis;
use self::nodes::{NODES, Nodes};
use super::args::Storm;
use super::campaign::{Campaign, Ground, Setting};
use super::report::CampaignFindings;
use super::stage::{Stage, planned};
use super::worker::System;
use crate::history::{FaultKind, Invariant};
use crate::host_time;

/// The longest time of an acquire after the calm, for itself and for each one ahead of it. A node alone that keeps the vote
/// of a dead client delays the others by some seconds.
const LIVELY: Duration = Duration::from_secs(8);

/// The longest calm.
const CALM: Duration = Duration::from_secs(8);

/// The campaigns of a run: the two controls, and the storm.
pub(super) fn campaigns(settings: &Storm) -> [Campaign; 3] {
    let control = settings.time / 12;
    let rest = settings.time / 6 * 5;
    let calm = (rest / 7).min(CALM);
    let no_quarantine = Campaign {
        name: "no-quarantine",
        system: System::Leasehold,
        resource: settings.resource,
        shows: Some(Invariant::Exclusion),
        storm: control * 6 / 7,
        calm: control / 7,
        // Their leases last for a TTL, so a second holder is never too late.
        outlived: 30,
        ground: Ground::NoQuarantine,
    };
    [
        no_quarantine,
        Campaign {
            name: "no-majority",
            ground: Ground::NoMajority,
            ..no_quarantine
        },
        Campaign {
            name: "storm",
            shows: None,
            storm: rest.saturating_sub(calm),
            calm,
            outlived: 1,
            ground: Ground::Quorum,
            ..no_quarantine
        },
    ]
}

/// Runs a campaign on a quorum, with its history in `directory`, which exists and is empty.
pub(super) fn run(
    campaign: &Campaign,
    settings: &Storm,
    directory: &Path,
) -> Result<CampaignFindings, String> {
    let ground = campaign.ground;
    let mut nodes = Nodes::start(settings.ttl(), ground == Ground::Quorum)?;
    let plan = schedule::storm(
        settings.seed,
        campaign.storm,
        settings.ttl(),
        nodes.why_no_clock(),
    );
    let setting = Setting {
        system: match ground {
            Ground::Server | Ground::Quorum => "leasehold",
            Ground::NoQuarantine => "no-quarantine",
            Ground::NoMajority => "no-majority",
        },
        planned: match ground {
            Ground::Server | Ground::Quorum => planned(&plan),
            Ground::NoQuarantine => BTreeMap::from([(FaultKind::Flush, 3)]),
            Ground::NoMajority => BTreeMap::new(),
        },
        left_out: nodes
            .why_no_clock()
            .map(|why| format!("clock-forward, clock-back: {why}")),
        urls: match ground {
            Ground::NoMajority => vec![nodes.url(&[0, 1, 2]), nodes.url(&[2, 3, 4])],
            _ => vec![nodes.url(&[0, 1, 2, 3, 4])],
        },
        lively: LIVELY,
    };
    nodes.mark_all(if ground == Ground::NoMajority {
        3
    } else {
        NODES
    })?;
    campaign.carry_out(settings, directory, setting, |stage| {
        stage.server_starts(0, host_time::up_ns())?;
        let until = host_time::up() + campaign.storm;
        match ground {
            Ground::Server | Ground::Quorum => QuorumNemesis::new(&mut nodes, stage).act(&plan)?,
            Ground::NoQuarantine => forget_and_vote(&nodes, stage, until)?,
            Ground::NoMajority => stage.rest(until)?,
        }
        stage.resume_workers()?;
        stage.calm()
    })
}

/// Flushes three nodes, one after the other, again and again. Each votes at once.
fn forget_and_vote(nodes: &Nodes, stage: &mut Stage, until: Duration) -> Result<(), String> {
    while host_time::up() < until {
        for node in 0..3 {
            let from = host_time::up_ns();
            nodes.flush_and_mark(node)?;
            let to = host_time::up_ns();
            stage.fault(FaultKind::Flush, &nodes::name(node), from, Some(to))?;
            stage.tick()?;
        }
        stage.rest(host_time::up() + Duration::from_millis(100))?;
    }
    Ok(())
}
