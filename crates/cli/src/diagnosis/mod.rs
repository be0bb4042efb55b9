//! Judges whether a store is fit for locks, from facts that the library gathered. The checks are tables: a row has an id and a rule, in
//! the order of `docs/reference/doctor.md`. The rules do no I/O.
//!
//! | module | what it is |
//! |---|---|
//! | [`server`] | rules for one store |
//! | [`quorum`] | rules over all servers of a quorum |
//! | [`cluster`] | rules over all nodes of a cluster |
//! | [`finding`] | the form of a check, and what it finds |

#![allow(
    clippy::unnecessary_wraps,
    reason = "a rule that always applies has the form of all others"
)]

mod cluster;
mod finding;
mod quorum;
mod server;
#[cfg(test)]
mod tests;

use leasehold::doctor::{ClusterFacts, Facts, FileFacts, NodeFacts, QuorumFacts, ServerFacts};

pub(crate) use self::finding::{Finding, Purpose, State};
use self::finding::{Rule, rule};

/// The checks of a server.
static SERVER: &[Rule<ServerFacts>] = &[
    rule("reach.ping", server::ping),
    rule("reach.role", server::role),
    rule("reach.loading", server::loading),
    rule("id.engine", server::engine),
    rule("id.mode", server::mode),
    rule("id.restart", server::restart),
    rule("cap.lua", server::scripts),
    rule("cap.cas", server::compare_and_delete),
    rule("cap.wait", server::wait),
    rule("mem.policy", server::eviction_policy),
    rule("mem.full", server::full_memory),
    rule("mem.evicted", server::evictions),
    rule("dur.mode", server::persistence),
    rule("dur.health", server::last_save),
    rule("dur.fsync", server::slow_disk),
    rule("fork.stall", server::fork),
    rule("lat.monitor", server::server_stalls),
    rule("lat.script", server::slow_scripts),
    rule("rep.count", server::replicas),
    rule("rep.ack", server::unconfirmed_writes),
    rule("rep.short", server::too_few_replicas),
    rule("acl.probe", server::scratch_lock),
    rule("acl.wide", server::wide_user),
    rule("sec.tls", server::clear_text),
    rule("net.timeout", server::idle_timeout),
    rule("net.clients", server::clients),
    rule("clk.offset", server::clock_offset),
    rule("clk.step", server::clock_steps),
    rule("clk.self", server::host_stalls),
    rule("hz", server::late_expiry),
    rule("key.immortal", server::immortal_keys),
    rule("key.type", server::foreign_keys),
    rule("key.shared", server::other_data),
];

/// The checks of a server that mean nothing for a node of a quorum: it has no replica, and after a restart it keeps out.
const NOT_OF_A_NODE: [&str; 4] = ["id.restart", "dur.mode", "rep.count", "rep.ack"];

/// The checks of a server that mean nothing for a node of a cluster: it may be a replica.
const NOT_OF_A_CLUSTER: [&str; 2] = ["reach.role", "id.mode"];

/// The checks over all servers of a quorum.
static QUORUM: &[Rule<QuorumFacts>] = &[
    rule("q.nodes", quorum::nodes),
    rule("q.marks", quorum::marks),
    rule("q.clocks", quorum::clocks),
    rule("q.alone", quorum::alone),
    rule("q.restart", quorum::restart),
];

/// The checks over all nodes of a cluster.
static CLUSTER: &[Rule<ClusterFacts>] = &[
    rule("c.nodes", cluster::nodes),
    rule("c.state", cluster::state),
    rule("c.versions", cluster::versions),
    rule("c.failover", cluster::failover),
    rule("c.coverage", cluster::coverage),
    rule("c.clocks", cluster::clocks),
];

/// The checks of a file.
static FILE: &[Rule<FileFacts>] = &[
    rule("file.write", server::writable_file),
    rule("file.system", server::file_system),
    rule("scope.host", server::one_host),
];

/// The check of the memory of a client.
static MEMORY: &[Rule<Facts>] = &[rule("scope.process", server::one_client)];

/// Judges a store, for locks of this purpose. The findings stand in the order of the tables.
pub(crate) fn diagnose(facts: &Facts, purpose: Purpose) -> Vec<Finding> {
    match facts {
        Facts::Server(facts) => findings(SERVER, facts, purpose),
        Facts::Quorum(facts) => of_quorum(facts, purpose),
        Facts::Cluster(facts) => of_cluster(facts, purpose),
        Facts::File(facts) => findings(FILE, facts, purpose),
        Facts::Memory => findings(MEMORY, facts, purpose),
    }
}

fn findings<F>(checks: &[Rule<F>], facts: &F, purpose: Purpose) -> Vec<Finding> {
    let found = checks.iter().map(|check| check.finding(facts, purpose));
    found.flatten().collect()
}

/// The findings over all servers, then those of each server that answered. A finding that all servers share stands there once.
fn of_quorum(quorum: &QuorumFacts, purpose: Purpose) -> Vec<Finding> {
    let mut all = findings(QUORUM, quorum, purpose);
    all.extend(of_nodes(&quorum.nodes, &NOT_OF_A_NODE, purpose));
    all
}

/// The findings over all nodes, then those of each node that answered.
fn of_cluster(cluster: &ClusterFacts, purpose: Purpose) -> Vec<Finding> {
    let mut all = findings(CLUSTER, cluster, purpose);
    all.extend(of_nodes(&cluster.nodes, &NOT_OF_A_CLUSTER, purpose));
    all
}

/// The findings of each server, but for those of these checks. A finding that all servers share stands there once.
fn of_nodes(nodes: &[NodeFacts], left_out: &[&str], purpose: Purpose) -> Vec<Finding> {
    let mut all = Vec::new();
    for check in SERVER {
        if left_out.contains(&check.id) {
            continue;
        }
        let of_node = nodes.iter().filter_map(|node| {
            let finding = check.finding(node.facts.as_ref().ok()?, purpose)?;
            Some((node.server.as_str(), finding))
        });
        let mut found: Vec<(&str, Finding)> = of_node.collect();
        if found.len() > 1 && found.iter().all(|(_, other)| *other == found[0].1) {
            found.truncate(1);
            found[0].0 = "each server";
        }
        all.extend(found.into_iter().map(|(server, finding)| Finding {
            text: format!("{server}: {}", finding.text),
            ..finding
        }));
    }
    all
}
