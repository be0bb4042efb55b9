//! The rules over all nodes of a cluster.

use std::time::Duration;

use leasehold::doctor::{ClockFacts, ClusterFacts, Fields, NodeFacts, Part, ServerFacts, Without};

use crate::diagnosis::{Finding, Purpose, State, of_cluster};

const TTL: Duration = Duration::from_secs(30);

const INFO: &str = "redis_version:7.0.15\ncluster_enabled:1\nrole:master\nuptime_in_seconds:90000\n\
    connected_slaves:1\nslave0:state=online\n";

fn node(number: u16) -> NodeFacts {
    let mut facts = ServerFacts::default();
    facts.ttl = TTL;
    facts.probe.heard = true;
    facts.info = Some(Fields::of_info(INFO));
    facts.config = Some(Fields::of_info(
        "cluster-node-timeout:15000\ncluster-require-full-coverage:no\n",
    ));
    let told = "cluster_state:ok\ncluster_known_nodes:3\n";
    facts.cluster = Some(Fields::of_info(told));
    let mut node = NodeFacts::new(format!("redis://n{number}:6379"), Ok(Box::new(facts)));
    node.slots = Some(if number == 1 { 8_192 } else { 4_096 });
    node.clock = Some(ClockFacts {
        ahead_us: 0,
        error: Duration::from_millis(1),
    });
    node
}

fn judged(ttl: Duration, change: impl FnOnce(&mut Vec<NodeFacts>)) -> Vec<Finding> {
    let mut nodes: Vec<_> = (1..=3).map(node).collect();
    change(&mut nodes);
    of_cluster(&ClusterFacts::new(ttl, nodes), Purpose::Efficiency)
}

fn of(node: &mut NodeFacts) -> &mut ServerFacts {
    node.facts.as_mut().unwrap()
}

#[track_caller]
fn says(findings: &[Finding], id: &str, worst: State, text: &str) {
    let finding = findings.iter().find(|finding| finding.id == id).unwrap();
    let state = finding.efficiency.max(finding.correctness);
    assert_eq!(state, worst, "{finding:?}");
    assert!(finding.text.contains(text), "{finding:?}");
    assert_eq!(finding.remedy.is_none(), worst == State::Ok, "{finding:?}");
}

#[test]
fn a_good_cluster_has_no_fault() {
    let findings = judged(TTL, |_| {});
    for id in [
        "c.nodes",
        "c.state",
        "c.versions",
        "c.failover",
        "c.coverage",
    ] {
        says(&findings, id, State::Ok, "");
    }
    says(&findings, "c.failover", State::Ok, "takes over 16s after");
    says(&findings, "c.clocks", State::Ok, "");
    // A replica is no fault here.
    assert!(findings.iter().all(|finding| finding.id != "reach.role"));
}

#[test]
fn what_differs_between_nodes_is_told() {
    let findings = judged(TTL, |nodes| {
        let newer = INFO.replace("7.0.15", "7.2.4");
        of(&mut nodes[1]).info = Some(Fields::of_info(&newer));
    });
    let both = "Redis 7.0.15, Redis 7.2.4";
    says(&findings, "c.versions", State::Warn, both);
    for (seconds, worst) in [(1, State::Warn), (10, State::Fail)] {
        let findings = judged(TTL, |nodes| {
            let clock = nodes[2].clock.as_mut().unwrap();
            clock.ahead_us = seconds * 1_000_000 + 2_000;
        });
        says(&findings, "c.clocks", worst, "n3:6379 is the first");
    }
}

#[test]
fn an_old_server_without_channels_of_slots_is_told_so() {
    for (version, text) in [
        ("6.2.14", "waiters in a cluster poll"),
        ("7.0.15", "renamed?"),
    ] {
        let findings = judged(TTL, |nodes| {
            for node in nodes {
                let info = INFO.replace("7.0.15", version);
                of(node).info = Some(Fields::of_info(&info));
                of(node).probe.missing = vec![Part {
                    name: "spublish",
                    without: Without::Worse,
                }];
            }
        });
        says(&findings, "cap.lua", State::Warn, text);
    }
}

#[test]
fn a_failover_that_outlasts_a_lease_is_told() {
    // Two thirds of the TTL are 16 s.
    says(&judged(TTL * 4 / 5, |_| {}), "c.failover", State::Ok, "");
    let short = judged(Duration::from_secs(23), |_| {});
    says(
        &short,
        "c.failover",
        State::Warn,
        "leases may end meanwhile",
    );
    let remedy = short.into_iter().find(|finding| finding.id == "c.failover");
    assert!(remedy.unwrap().remedy.unwrap().contains("--ttl to 24s"));
}

#[test]
fn slots_without_a_node_are_told() {
    let findings = judged(TTL, |nodes| nodes[2].slots = Some(4_095));
    says(&findings, "c.state", State::Fail, "1 of 16384 slots");
    let findings = judged(TTL, |nodes| {
        of(&mut nodes[0]).cluster = Some(Fields::of_info("cluster_state:fail\n"));
    });
    says(
        &findings,
        "c.state",
        State::Fail,
        "n1:6379: cluster_state:fail",
    );
}

#[test]
fn what_no_node_tells_is_unknown() {
    let findings = judged(TTL, |nodes| {
        for node in nodes {
            let silent = ServerFacts::default();
            (*of(node), node.slots, node.clock) = (silent, None, None);
        }
    });
    let ids = [
        "c.nodes",
        "c.state",
        "c.versions",
        "c.failover",
        "c.coverage",
    ];
    for id in ids.into_iter().chain(["c.clocks"]) {
        let finding = findings.iter().find(|finding| finding.id == id).unwrap();
        assert_eq!(finding.state, State::Unknown, "{finding:?}");
    }
}
