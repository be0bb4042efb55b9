//! Rules over all nodes of a cluster.

use std::time::Duration;

use leasehold::doctor::{ClusterFacts, NodeFacts};

use super::finding::Unjudged::{NotApplicable, Unknown};
use super::finding::{FAIL, HINT, INFO, Judged, RISK, WARN, graded, ok};
use super::quorum::{Answered, NTP, answered, apart, named};
use crate::messages::span;

/// The number of slots of a cluster.
const SLOTS: u32 = 16_384;

/// How long a replica waits at most before it takes over, after the node timeout: it gathers votes for up to a second.
const ELECTION: Duration = Duration::from_secs(1);

/// Whether all nodes answer, and are known.
pub(super) fn nodes(facts: &ClusterFacts) -> Judged {
    let is_told = facts.nodes.iter().any(|node| node.slots.is_some());
    if !is_told {
        let text = "the nodes do not tell which ones there are (CLUSTER SLOTS): only those of the URL were examined";
        return Err(Unknown(text, Some("allow +cluster|slots to this user")));
    }
    let is_silent = |node: &&NodeFacts| node.facts.is_err();
    let has_slots = |node: &NodeFacts| node.slots > Some(0);
    let primaries = facts.nodes.iter().filter(|node| has_slots(node)).count();
    if primaries == 0 {
        let text = "no node has slots: the cluster was not formed";
        return graded(
            FAIL,
            text,
            "redis-cli --cluster create HOST:PORT HOST:PORT HOST:PORT",
        );
    }
    let silent: Vec<&NodeFacts> = facts.nodes.iter().filter(is_silent).collect();
    let count = facts.nodes.len();
    if silent.is_empty() {
        let replicas = count - primaries;
        let text = format!("all nodes answer: {primaries} primaries, {replicas} replicas");
        let nodes = answered(&facts.nodes).into_iter();
        let known =
            nodes.filter_map(|(_, server)| server.cluster.as_ref()?.number("cluster_known_nodes"));
        let known = known.max().unwrap_or_default();
        if known <= count as u64 {
            return ok(text);
        }
        let text = format!(
            "{text}; the cluster knows {known} nodes: others have failed, are not in step yet, or have no slots"
        );
        return graded(HINT, text, "CLUSTER NODES names them");
    }
    let errors = silent.iter().filter_map(|node| node.facts.as_ref().err());
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    let left = count - silent.len();
    let text = format!("{left} of {count} nodes answer: {}", errors.join("; "));
    let fix = "bring the nodes back; the client must reach each one at the address that CLUSTER SLOTS tells, with the same user";
    if silent.into_iter().any(has_slots) {
        graded(
            FAIL,
            format!("{text}; the locks in their slots cannot be used"),
            fix,
        )
    } else {
        graded(WARN, format!("{text}; no replica there can take over"), fix)
    }
}

/// Whether the nodes take requests, and for all slots.
pub(super) fn state(facts: &ClusterFacts) -> Judged {
    let nodes = answered(&facts.nodes);
    let is_down = |(_, server): &Answered<'_>| {
        let told = server.cluster.as_ref();
        told.and_then(|told| told.text("cluster_state")) == Some("fail")
            || server.probe.refused_by("CLUSTERDOWN").is_some()
    };
    let down = named(&nodes, is_down);
    let slots = facts.nodes.iter().filter_map(|node| node.slots);
    let covered = slots.map(u32::from).sum::<u32>();
    let is_told = facts.nodes.iter().any(|node| node.slots.is_some());
    let mut wrong = Vec::new();
    if !down.is_empty() {
        wrong.push(format!("{}: cluster_state:fail", down.join(", ")));
    }
    if is_told && covered < SLOTS {
        let missing = SLOTS - covered;
        wrong.push(format!("{missing} of {SLOTS} slots have no node"));
    }
    if !wrong.is_empty() {
        let text = format!(
            "{}: locks there are refused (CLUSTERDOWN)",
            wrong.join("; ")
        );
        let fix =
            "redis-cli --cluster check HOST:PORT says what is missing; --cluster fix repairs it";
        return graded(FAIL, text, fix);
    }
    let is_known = |(_, server): &Answered<'_>| server.cluster.is_some() || server.probe.heard;
    if !nodes.iter().any(is_known) {
        return Err(Unknown("no node tells its state (CLUSTER INFO)", None));
    }
    ok("cluster_state:ok, and each slot has a node")
}

/// Whether all nodes have one version.
pub(super) fn versions(facts: &ClusterFacts) -> Judged {
    let mut versions = Vec::new();
    for (_, server) in answered(&facts.nodes) {
        if let Some((engine, version)) = server.engine() {
            versions.push(format!("{engine} {version}"));
        }
    }
    versions.sort_unstable();
    versions.dedup();
    match &versions[..] {
        [] => Err(Unknown("no node says what it is (INFO)", None)),
        [one] => ok(format!("each node is {one}")),
        several => {
            let text = format!(
                "the nodes have several versions: {}; a replica of an older one cannot follow a newer primary",
                several.join(", ")
            );
            graded(
                WARN,
                text,
                "finish the upgrade: replicas first, then primaries",
            )
        }
    }
}

/// The longest of a setting of all nodes, in milliseconds.
fn longest(facts: &ClusterFacts, setting: &str) -> Option<Duration> {
    let nodes = answered(&facts.nodes).into_iter();
    let set = nodes.filter_map(|(_, server)| server.config_number(setting));
    set.max().map(Duration::from_millis)
}

/// Whether a lease lives until a replica has taken over: it was renewed a third of the TTL ago at most.
pub(super) fn failover(facts: &ClusterFacts) -> Judged {
    let untold = Unknown(
        "CONFIG is not permitted here",
        Some(
            "look up \"cluster-node-timeout\" where the cluster is set up; it should be below two thirds of the TTL",
        ),
    );
    let timeout = longest(facts, "cluster-node-timeout").ok_or(untold)?;
    let takes = timeout + ELECTION;
    let (timeout, left) = (timeout.as_millis(), facts.ttl * 2 / 3);
    let text = format!(
        "cluster-node-timeout={timeout}: a replica takes over {} after its primary fails, and a lease lives for another {} then",
        span(takes),
        span(left)
    );
    if takes <= left {
        return ok(text);
    }
    let fix = format!(
        "raise --ttl to {} or more, or lower cluster-node-timeout on each node",
        span(takes * 3 / 2)
    );
    graded(WARN, format!("{text}: leases may end meanwhile"), fix)
}

/// Whether the loss of some slots stops all locks.
pub(super) fn coverage(facts: &ClusterFacts) -> Judged {
    let nodes = answered(&facts.nodes);
    let setting = |(_, server): &Answered<'_>| {
        let setting = server.config("cluster-require-full-coverage");
        setting.map(|setting| setting == "yes")
    };
    let untold = Unknown("CONFIG is not permitted here", None);
    nodes.iter().find_map(setting).ok_or(untold)?;
    let needs_all = named(&nodes, |node| setting(node) == Some(true));
    if needs_all.is_empty() {
        return ok(
            "cluster-require-full-coverage=no: while some slots have no node, the locks in all others work",
        );
    }
    let text = "cluster-require-full-coverage=yes: while some slots have no node, no lock works";
    graded(
        INFO,
        text,
        "CONFIG SET cluster-require-full-coverage no on each node",
    )
}

/// Whether the clocks of the nodes are near each other: a replica that takes over ends the leases by its own clock.
pub(super) fn clocks(facts: &ClusterFacts) -> Judged {
    if facts.nodes.len() < 2 {
        return Err(NotApplicable);
    }
    let (apart, ends) = apart(&facts.nodes)?;
    let text = format!("the clocks are {apart:.1?} apart: {ends}");
    let text = format!("{text}; after a failover, leases end early or late by that");
    match apart {
        _ if apart >= facts.ttl / 3 => graded(RISK, text, NTP),
        _ if apart >= Duration::from_secs(1) => graded(HINT, text, NTP),
        _ => ok(format!(
            "the clocks are at most {:.1?} apart",
            apart.max(Duration::from_millis(1))
        )),
    }
}
