//! The rules over all servers of a quorum.

use std::time::Duration;

use leasehold::StoreError;
use leasehold::doctor::{ClockFacts, Fields, MarkFacts, NodeFacts, QuorumFacts, ServerFacts};
use leasehold_core::Ttl;

use crate::diagnosis::{Finding, Purpose, State, of_quorum};

const LONGEST: Duration = Duration::from_secs(60);

fn node(number: usize) -> NodeFacts {
    let mut facts = ServerFacts::default();
    facts.ttl = Duration::from_secs(30);
    facts.probe.heard = true;
    facts.role = Some("master".into());
    let info = format!("role:master\nrun_id:run-{number}\nconnected_slaves:0\n");
    facts.info = Some(Fields::of_info(&info));
    facts.config = Some(Fields::of_info("appendonly:no\nappendfsync:everysec\n"));
    let mut node = NodeFacts::new(format!("redis://n{number}:6379"), Ok(Box::new(facts)));
    node.mark = Some(MarkFacts {
        nodes: 3,
        longest_ttl: LONGEST,
        votes_in: Duration::ZERO,
    });
    node.clock = Some(ClockFacts {
        ahead_us: 0,
        error: Duration::from_millis(1),
    });
    node
}

fn quorum(change: impl FnOnce(&mut Vec<NodeFacts>)) -> QuorumFacts {
    let mut nodes: Vec<_> = (1..=3).map(node).collect();
    change(&mut nodes);
    QuorumFacts::new(Ttl::new(LONGEST).unwrap(), false, nodes)
}

fn findings(facts: &QuorumFacts) -> Vec<Finding> {
    of_quorum(facts, Purpose::Efficiency)
}

fn found(facts: &QuorumFacts, id: &str) -> Finding {
    let mut findings = findings(facts).into_iter();
    findings.find(|finding| finding.id == id).unwrap()
}

#[track_caller]
fn says(facts: &QuorumFacts, id: &str, worst: State, text: &str) {
    let finding = found(facts, id);
    let state = finding.efficiency.max(finding.correctness);
    assert_eq!(state, worst, "{finding:?}");
    assert!(finding.text.contains(text), "{}", finding.text);
    assert_eq!(finding.remedy.is_none(), worst < State::Warn, "{finding:?}");
}

fn silent(node: &mut NodeFacts) {
    let error = || {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        refused.to_string()
    };
    let mut gone = StoreError::clone(&example());
    (gone.store, gone.detail) = (node.server.clone(), error());
    node.facts = Err(gone);
    (node.mark, node.clock) = (None, None);
}

/// Any error of a store.
fn example() -> StoreError {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let refused = runtime.block_on(leasehold::Client::connect("redis://127.0.0.1:1/"));
    match refused.map(drop) {
        Err(leasehold::Error::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_quorum_has_no_fault() {
    let facts = quorum(|_| {});
    for id in ["q.nodes", "q.marks", "q.clocks", "q.alone", "q.restart"] {
        says(&facts, id, State::Ok, "");
    }
    assert!(found(&facts, "q.nodes").text.contains("1 of them may fail"));
    assert!(
        found(&facts, "q.restart")
            .text
            .contains("keeps out for 1m01s")
    );
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let one = quorum(|nodes| silent(&mut nodes[1]));
    says(&one, "q.nodes", State::Warn, "redis://n2:6379");
    let two = quorum(|nodes| nodes[1..].iter_mut().for_each(silent));
    says(&two, "q.nodes", State::Fail, "1 of 3 servers answer");
}

#[test]
fn marks_tell_new_lost_and_other_servers() {
    let unmarked = quorum(|nodes| nodes.iter_mut().for_each(|node| node.mark = None));
    says(&unmarked, "q.marks", State::Fail, "no server has a mark");
    let lost = quorum(|nodes| nodes[2].mark = None);
    says(
        &lost,
        "q.marks",
        State::Warn,
        "redis://n3:6379: without a mark",
    );
    let out = quorum(|nodes| {
        nodes[0].mark.as_mut().unwrap().votes_in = Duration::from_secs(9);
    });
    says(
        &out,
        "q.marks",
        State::Warn,
        "redis://n1:6379: lost its data, and keeps out",
    );
    // Every request fails (69) until one of them votes again.
    let few = quorum(|nodes| {
        nodes[0].mark.as_mut().unwrap().votes_in = Duration::from_secs(9);
        nodes[1].mark.as_mut().unwrap().votes_in = Duration::from_secs(8);
    });
    let needs = "keeps out for another 9.0s: 1 of 3 vote, and a lock needs 2";
    says(&few, "q.marks", State::Fail, needs);
    for change in [
        |mark: &mut MarkFacts| mark.nodes = 5,
        |mark: &mut MarkFacts| mark.longest_ttl = Duration::from_secs(9),
    ] {
        let other = quorum(|nodes| change(nodes[1].mark.as_mut().unwrap()));
        says(
            &other,
            "q.marks",
            State::Fail,
            "redis://n2:6379: marked for a quorum of",
        );
    }
}

#[test]
fn clocks_far_apart_are_named() {
    let apart = |ahead_us| quorum(|nodes| nodes[1].clock.as_mut().unwrap().ahead_us = ahead_us);
    says(&apart(500_000), "q.clocks", State::Ok, "apart");
    says(
        &apart(2_000_000),
        "q.clocks",
        State::Warn,
        "redis://n2:6379 is the first",
    );
    says(
        &apart(-20_000_000),
        "q.clocks",
        State::Fail,
        "redis://n2:6379 is the last",
    );
}

#[test]
fn servers_of_a_quorum_are_independent() {
    let with = |node: &mut NodeFacts, change: &str| {
        let facts = node.facts.as_mut().unwrap();
        facts
            .info
            .as_mut()
            .unwrap()
            .0
            .extend(Fields::of_info(change).0);
    };
    let twice = quorum(|nodes| with(&mut nodes[1], "run_id:run-1\n"));
    says(&twice, "q.alone", State::Fail, "are one server");
    let replica = quorum(|nodes| nodes[1].facts.as_mut().unwrap().role = Some("slave".into()));
    says(
        &replica,
        "q.alone",
        State::Fail,
        "redis://n2:6379: a replica",
    );
    let followed = quorum(|nodes| with(&mut nodes[1], "connected_slaves:1\n"));
    says(
        &followed,
        "q.alone",
        State::Warn,
        "redis://n2:6379: has replicas",
    );
}

#[test]
fn durable_servers_write_always() {
    let mut facts = quorum(|_| {});
    facts.durable = true;
    says(
        &facts,
        "q.restart",
        State::Fail,
        "redis://n1:6379, redis://n2:6379",
    );
    let mut safe = quorum(|nodes| {
        for node in nodes {
            let fields = Fields::of_info("appendonly:yes\nappendfsync:always\n");
            node.facts.as_mut().unwrap().config = Some(fields);
        }
    });
    says(&safe, "q.restart", State::Info, "with durable=1");
    safe.durable = true;
    says(&safe, "q.restart", State::Ok, "before it answers");
}

#[test]
fn a_finding_of_all_servers_stands_there_once() {
    let facts = quorum(|_| {});
    let all = findings(&facts);
    let role: Vec<_> = all
        .iter()
        .filter(|finding| finding.id == "reach.role")
        .collect();
    assert_eq!(role.len(), 1);
    assert!(
        role[0].text.starts_with("each server: "),
        "{}",
        role[0].text
    );
    assert!(all.iter().all(|finding| finding.id != "rep.count"));
    let one = quorum(|nodes| nodes[1].facts.as_mut().unwrap().role = Some("slave".into()));
    let of_two = findings(&one);
    let of_two: Vec<_> = of_two
        .iter()
        .filter(|finding| finding.id == "reach.role")
        .collect();
    assert_eq!(of_two.len(), 3);
    assert!(
        of_two[1].text.starts_with("redis://n2:6379: "),
        "{}",
        of_two[1].text
    );
}
