//! The rules over all servers of a quorum.

use std::time::Duration;

use leasehold::StoreError;
use leasehold::doctor::{
    ClockFacts, Fields, MarkFacts, NodeFacts, NotAMark, QuorumFacts, ServerFacts,
};
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
    node.mark = Ok(Some(MarkFacts {
        nodes: 3,
        longest_ttl: LONGEST,
        of_another_start: false,
        votes_in: Duration::ZERO,
    }));
    node.clock = Some(ClockFacts {
        ahead_us: 0,
        error: Duration::from_millis(1),
    });
    node
}

fn mark(node: &mut NodeFacts) -> &mut MarkFacts {
    node.mark.as_mut().unwrap().as_mut().unwrap()
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

#[track_caller]
fn fails(facts: &QuorumFacts, id: &str, text: &str) {
    says(facts, id, State::Fail, text);
}

#[track_caller]
fn warns(facts: &QuorumFacts, id: &str, text: &str) {
    says(facts, id, State::Warn, text);
}

fn silent(node: &mut NodeFacts) {
    let mut gone = example();
    (gone.store, gone.detail) = (node.server.clone(), "connection refused".into());
    node.facts = Err(gone);
    (node.mark, node.clock) = (Ok(None), None);
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
    warns(&one, "q.nodes", "redis://n2:6379");
    let two = quorum(|nodes| nodes[1..].iter_mut().for_each(silent));
    fails(&two, "q.nodes", "1 of 3 servers answer");
}

#[test]
fn marks_tell_new_lost_and_other_servers() {
    let unmarked = quorum(|nodes| nodes.iter_mut().for_each(|node| node.mark = Ok(None)));
    fails(&unmarked, "q.marks", "no server has a mark");
    let lost = quorum(|nodes| nodes[2].mark = Ok(None));
    warns(&lost, "q.marks", "redis://n3:6379: without a mark");
    let out = quorum(|nodes| mark(&mut nodes[0]).votes_in = Duration::from_secs(9));
    warns(
        &out,
        "q.marks",
        "redis://n1:6379: may have lost its data, and keeps out",
    );
    // Every request fails (69) until one of them votes again.
    let few = quorum(|nodes| {
        mark(&mut nodes[0]).votes_in = Duration::from_secs(9);
        mark(&mut nodes[1]).votes_in = Duration::from_secs(8);
    });
    let needs = "keeps out for another 9.0s: 1 of 3 vote, and a lock needs 2";
    fails(&few, "q.marks", needs);
    for change in [
        |mark: &mut MarkFacts| mark.nodes = 5,
        |mark: &mut MarkFacts| mark.longest_ttl = Duration::from_secs(9),
    ] {
        let other = quorum(|nodes| change(mark(&mut nodes[1])));
        fails(&other, "q.marks", "redis://n2:6379: marked for a quorum of");
    }
}

#[test]
fn marks_of_former_starts_keep_out_before_any_request() {
    let again = |node: &mut NodeFacts| {
        mark(node).of_another_start = true;
        mark(node).votes_in = Duration::from_secs(61);
    };
    let one = quorum(|nodes| again(&mut nodes[1]));
    let says = "redis://n2:6379: was started again, or has the data of another server; it votes 1m01s after the next request";
    warns(&one, "q.marks", says);
    let all = quorum(|nodes| nodes.iter_mut().for_each(again));
    fails(&all, "q.marks", "0 of 3 vote, and a lock needs 2");
}

#[test]
fn what_is_no_mark_and_who_says_no_name_have_an_advice() {
    let garbage = |node: &mut NodeFacts| node.mark = Err(NotAMark);
    let one = quorum(|nodes| garbage(&mut nodes[1]));
    let says = "redis://n2:6379: its key leasehold:quorum holds no mark";
    warns(&one, "q.marks", says);
    let advice = found(&one, "q.marks").remedy;
    assert!(advice.unwrap().contains("DEL leasehold:quorum there"));

    // One server has both faults, and its one vote is missing.
    let two = quorum(|nodes| {
        garbage(&mut nodes[1]);
        nodes[1].facts.as_mut().unwrap().info = None;
        nodes[2].facts.as_mut().unwrap().info = None;
        // What a server does not permit, another one may.
        nodes[0].facts.as_mut().unwrap().acl = "ACL of another".into();
        nodes[1].facts.as_mut().unwrap().acl = "ACL SETUSER".into();
    });
    fails(&two, "q.marks", "1 of 3 vote, and a lock needs 2");
    fails(
        &two,
        "q.marks",
        "redis://n2:6379, redis://n3:6379: does not say which server it is",
    );
    let advice = found(&two, "q.marks").remedy.unwrap();
    assert!(advice.starts_with("ACL SETUSER\nfind out"), "{advice}");
}

#[test]
fn clocks_far_apart_are_named() {
    let apart = |ahead_us| quorum(|nodes| nodes[1].clock.as_mut().unwrap().ahead_us = ahead_us);
    says(&apart(500_000), "q.clocks", State::Ok, "apart");
    warns(
        &apart(2_000_000),
        "q.clocks",
        "redis://n2:6379 is the first",
    );
    fails(
        &apart(-20_000_000),
        "q.clocks",
        "redis://n2:6379 is the last",
    );
}

#[test]
fn servers_of_a_quorum_are_independent() {
    let with = |node: &mut NodeFacts, change: &str| {
        let info = node.facts.as_mut().unwrap().info.as_mut();
        info.unwrap().0.extend(Fields::of_info(change).0);
    };
    let twice = quorum(|nodes| with(&mut nodes[1], "run_id:run-1\n"));
    fails(&twice, "q.alone", "are one server");
    let replica = quorum(|nodes| nodes[1].facts.as_mut().unwrap().role = Some("slave".into()));
    fails(&replica, "q.alone", "redis://n2:6379: a replica");
    let followed = quorum(|nodes| with(&mut nodes[1], "connected_slaves:1\n"));
    warns(&followed, "q.alone", "redis://n2:6379: has replicas");
}

#[test]
fn durable_servers_write_always() {
    let mut facts = quorum(|_| {});
    facts.durable = true;
    fails(&facts, "q.restart", "redis://n1:6379, redis://n2:6379");
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
    let texts = |facts: &QuorumFacts, id: &str| -> Vec<String> {
        let found = findings(facts).into_iter();
        let found = found.filter(|finding| finding.id == id);
        found.map(|finding| finding.text).collect()
    };
    let roles = texts(&facts, "reach.role");
    assert_eq!(roles.len(), 1);
    assert!(roles[0].starts_with("each server: "), "{roles:?}");
    assert!(texts(&facts, "rep.count").is_empty());
    let one = quorum(|nodes| nodes[1].facts.as_mut().unwrap().role = Some("slave".into()));
    let roles = texts(&one, "reach.role");
    assert_eq!(roles.len(), 3);
    assert!(roles[1].starts_with("redis://n2:6379: "), "{roles:?}");
}
