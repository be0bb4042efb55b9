//! Rules for a quorum: those of each server, and those over all of them.

use std::time::Duration;

use leasehold::doctor::{NodeFacts, QuorumFacts, ServerFacts};

use super::judge;
use super::report::Finding;
use super::report::State::{Info, Warn};
use super::rule::Judgement;
use crate::messages::span;

/// The checks of a server that mean nothing for a node: it has no replica, and after a restart it keeps out.
const NOT_OF_A_NODE: [&str; 4] = ["id.restart", "dur.mode", "rep.count", "rep.ack"];

/// A rule over all nodes.
pub(super) type OverAll = (&'static str, fn(&QuorumFacts) -> Judgement);

pub(super) const RULES: [OverAll; 5] = [
    ("q.nodes", nodes),
    ("q.marks", marks),
    ("q.clocks", clocks),
    ("q.alone", alone),
    ("q.restart", restart),
];

/// The findings over all nodes, then those of each node. A finding that all nodes share stands there once.
pub(super) fn findings(facts: &QuorumFacts) -> Vec<Finding> {
    let over_all = RULES.iter().map(|(id, rule)| rule(facts).of_check(id));
    over_all.chain(of_nodes(facts)).collect()
}

fn of_nodes(facts: &QuorumFacts) -> Vec<Finding> {
    let servers = servers(facts);
    let judged: Vec<(&str, Vec<Finding>)> = servers
        .iter()
        .map(|(node, server)| (node.server.as_str(), judge(server)))
        .collect();
    let mut all: Vec<Finding> = Vec::new();
    for rule in super::rules() {
        if NOT_OF_A_NODE.contains(&rule.id) {
            continue;
        }
        let of_rule = judged.iter().flat_map(|(server, findings)| {
            let of_rule = findings.iter().filter(|finding| finding.id == rule.id);
            of_rule.map(|finding| (*server, finding))
        });
        let of_rule: Vec<(&str, &Finding)> = of_rule.collect();
        let is_shared =
            of_rule.len() > 1 && of_rule.iter().all(|(_, other)| *other == of_rule[0].1);
        if is_shared {
            let finding = of_rule[0].1;
            all.push(Finding {
                text: format!("each server: {}", finding.text),
                ..finding.clone()
            });
        } else {
            all.extend(of_rule.into_iter().map(|(server, finding)| Finding {
                text: format!("{server}: {}", finding.text),
                ..finding.clone()
            }));
        }
    }
    all
}

/// The nodes that answered.
fn servers(facts: &QuorumFacts) -> Vec<(&NodeFacts, &ServerFacts)> {
    let answered = |node: &'_ NodeFacts| node.facts.is_ok();
    let nodes = facts.nodes.iter().filter(|node| answered(node));
    nodes
        .filter_map(|node| Some((node, &**node.facts.as_ref().ok()?)))
        .collect()
}

fn listed<'a>(nodes: impl Iterator<Item = &'a NodeFacts>) -> String {
    let names: Vec<&str> = nodes.map(|node| node.server.as_str()).collect();
    names.join(", ")
}

/// Whether enough nodes answer.
fn nodes(facts: &QuorumFacts) -> Judgement {
    let count = facts.nodes.len();
    let failed: Vec<String> = facts
        .nodes
        .iter()
        .filter_map(|node| node.facts.as_ref().err())
        .map(ToString::to_string)
        .collect();
    let left = count - failed.len();
    let spare = left.saturating_sub(count / 2 + 1);
    if failed.is_empty() {
        let even = if count.is_multiple_of(2) {
            "; an odd number bears as many failures with one server less"
        } else {
            ""
        };
        let text = format!("{count} servers answer; {spare} of them may fail{even}");
        return if even.is_empty() {
            Judgement::ok(text)
        } else {
            Judgement::info(text)
        };
    }
    let text = format!("{left} of {count} servers answer: {}", failed.join("; "));
    let fix = "bring the servers back; a majority of them decides about each lock";
    if left > count / 2 {
        Judgement::warn(format!("{text}; {spare} more may fail")).fix(fix)
    } else {
        Judgement::fail(format!("{text}; no lock is granted")).fix(fix)
    }
}

/// Whether all nodes belong to this quorum, and vote.
fn marks(facts: &QuorumFacts) -> Judgement {
    let servers = servers(facts);
    let count = facts.nodes.len();
    let is_other = |node: &&NodeFacts| {
        node.mark.is_some_and(|mark| {
            usize::from(mark.nodes) != count || mark.longest_ttl != facts.longest_ttl
        })
    };
    let nodes = || servers.iter().map(|(node, _)| *node);
    if let Some(mark) = nodes().find(is_other).and_then(|node| node.mark) {
        return Judgement::fail(format!(
            "{}: marked for a quorum of {} servers with leases of at most {:?}; this client counts {count} servers and {:?}",
            listed(nodes().filter(is_other)),
            mark.nodes,
            mark.longest_ttl,
            facts.longest_ttl
        ))
        .fix("use the URL that all clients use; to change the quorum, stop all clients and run leasehold quorum init --again");
    }
    let unmarked = || nodes().filter(|node| node.mark.is_none());
    let out = || nodes().filter(|node| node.mark.is_some_and(|mark| !mark.votes_in.is_zero()));
    // Those that cannot be reached vote no more than those.
    let votes = servers.len() - unmarked().count() - out().count();
    let keeps_out = |node: &str| {
        if votes > count / 2 {
            Judgement::warn(node)
        } else {
            let needed = count / 2 + 1;
            Judgement::fail(format!(
                "{node}: {votes} of {count} vote, and a lock needs {needed}"
            ))
        }
    };
    if unmarked().count() == servers.len() && !servers.is_empty() {
        return Judgement::fail("no server has a mark: for a new quorum, each keeps out until all leases from before could have ended")
            .fix("leasehold quorum init");
    }
    if unmarked().next().is_some() {
        return keeps_out(&format!(
            "{}: without a mark, so it is new or has lost its data; it votes a quarantine after the first request",
            listed(unmarked())
        ))
        .fix("wait; if it loses its data at each restart, give it persistence");
    }
    if let Some(longest) = out()
        .filter_map(|node| node.mark)
        .map(|mark| mark.votes_in)
        .max()
    {
        return keeps_out(&format!(
            "{}: lost its data, and keeps out for another {}",
            listed(out()),
            span(longest)
        ))
        .fix("wait");
    }
    Judgement::ok("each server has the mark of this quorum")
}

/// Whether the clocks of the nodes are near each other. Fences are near their clocks, and 10 s apart is too far.
fn clocks(facts: &QuorumFacts) -> Judgement {
    let known: Vec<(&NodeFacts, i64, Duration)> = facts
        .nodes
        .iter()
        .filter_map(|node| {
            let clock = node.clock?;
            Some((node, clock.ahead_us, clock.error))
        })
        .collect();
    let (Some(first), Some(last)) = (
        known.iter().min_by_key(|(_, ahead, _)| *ahead),
        known.iter().max_by_key(|(_, ahead, _)| *ahead),
    ) else {
        return Judgement::unknown("no server tells its time");
    };
    let apart = Duration::from_micros(last.1.abs_diff(first.1)).saturating_sub(first.2 + last.2);
    let text = format!(
        "the clocks are {apart:.1?} apart: {} is the last, {} is the first",
        first.0.server, last.0.server
    );
    let fix = "NTP on each server: slew its clock, do not step it";
    if apart >= Duration::from_secs(10) {
        Judgement::fail(format!("{text}; no number is acceptable to all servers")).fix(fix)
    } else if apart >= Duration::from_secs(1) {
        Judgement::warn(format!("{text}; above 10 s, servers shut each other out")).fix(fix)
    } else {
        let most = apart.max(Duration::from_millis(1));
        Judgement::ok(format!("the clocks are at most {most:.1?} apart"))
    }
}

/// Whether the nodes are independent: each a primary of its own, and each once.
fn alone(facts: &QuorumFacts) -> Judgement {
    let servers = servers(facts);
    let run = |server: &ServerFacts| server.info("run_id").map(str::to_owned);
    for (at, (node, server)) in servers.iter().enumerate() {
        let again = servers[..at]
            .iter()
            .find(|(_, other)| run(other) == run(server));
        if let (Some((first, _)), Some(_)) = (again, run(server)) {
            return Judgement::fail(format!(
                "{} and {} are one server",
                first.server, node.server
            ))
            .fix("name each server once; each vote must come from a server of its own");
        }
    }
    let replica = servers
        .iter()
        .find(|(_, server)| server.role().is_some_and(|role| role != "master"));
    if let Some((node, _)) = replica {
        return Judgement::fail(format!("{}: a replica, which gives no vote", node.server))
            .fix("REPLICAOF NO ONE; the servers of a quorum replicate no other one");
    }
    let followed = |server: &&(&NodeFacts, &ServerFacts)| {
        server
            .1
            .info_number("connected_slaves")
            .is_some_and(|replicas| replicas > 0)
    };
    let with_replicas = listed(servers.iter().filter(followed).map(|(node, _)| *node));
    if !with_replicas.is_empty() {
        return Judgement::of(
            Info,
            Warn,
            format!(
                "{with_replicas}: has replicas; one that takes over may lack votes that counted"
            ),
        )
        .fix(
            "let no replica take over (no Sentinel): a quorum bears the loss of a server as it is",
        );
    }
    Judgement::ok("each server is a primary without replicas")
}

/// Whether a restart of a node loses votes.
fn restart(facts: &QuorumFacts) -> Judgement {
    let servers = servers(facts);
    let writes_always = |server: &ServerFacts| {
        let is = |name, wanted| server.config(name).map(|value| value == wanted);
        Some(is("appendonly", "yes")? && is("appendfsync", "always")?)
    };
    let not_durable: Vec<&NodeFacts> = servers
        .iter()
        .filter(|(_, server)| writes_always(server) == Some(false))
        .map(|(node, _)| *node)
        .collect();
    let list = listed(not_durable.iter().copied());
    match (facts.durable, not_durable.is_empty()) {
        (true, false) => Judgement::fail(format!(
            "{list}: the URL says durable=1, and this server may lose its last changes at a restart"
        ))
        .fix("CONFIG SET appendonly yes and appendfsync always, or leave durable=1 out"),
        (true, true) => Judgement::ok("each server writes a change to its disk before it answers"),
        (false, true) if !servers.is_empty() => Judgement::info(
            "each server writes a change to its disk before it answers: with durable=1 in the URL, it votes at once after a restart",
        ),
        (false, _) => Judgement::ok(format!(
            "a server that was started again keeps out for {}",
            span(facts.quarantine)
        )),
    }
}
