//! Rules over all servers of a quorum.

use std::time::Duration;

use leasehold::doctor::{ClockFacts, MarkFacts, NodeFacts, QuorumFacts, ServerFacts};

use super::finding::Unjudged::{self, Unknown};
use super::finding::{FAIL, HINT, Judged, WARN, graded, info, ok};
use crate::messages::span;

/// A node that answered.
pub(super) type Answered<'a> = (&'a NodeFacts, &'a ServerFacts);

pub(super) fn answered(nodes: &[NodeFacts]) -> Vec<Answered<'_>> {
    nodes
        .iter()
        .filter_map(|node| Some((node, &**node.facts.as_ref().ok()?)))
        .collect()
}

/// The addresses of the nodes of this kind.
pub(super) fn named<'a>(
    nodes: &[Answered<'a>],
    is: impl Fn(&Answered<'_>) -> bool,
) -> Vec<&'a str> {
    let named = nodes.iter().filter(|node| is(node));
    named.map(|(node, _)| node.server.as_str()).collect()
}

/// Whether enough nodes answer.
pub(super) fn nodes(facts: &QuorumFacts) -> Judged {
    let count = facts.nodes.len();
    let errors = facts
        .nodes
        .iter()
        .filter_map(|node| node.facts.as_ref().err());
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    let left = count - errors.len();
    let spare = left.saturating_sub(count / 2 + 1);
    if errors.is_empty() {
        let text = format!("{count} servers answer; {spare} of them may fail");
        if !count.is_multiple_of(2) {
            return ok(text);
        }
        return info(format!(
            "{text}; an odd number bears as many failures with one server less"
        ));
    }
    let text = format!("{left} of {count} servers answer: {}", errors.join("; "));
    let fix = "bring the servers back; a majority of them decides about each lock";
    if left > count / 2 {
        graded(WARN, format!("{text}; {spare} more may fail"), fix)
    } else {
        graded(FAIL, format!("{text}; no lock is granted"), fix)
    }
}

/// Whether all nodes belong to this quorum, and vote.
pub(super) fn marks(facts: &QuorumFacts) -> Judged {
    let (count, nodes) = (facts.nodes.len(), answered(&facts.nodes));
    let is_other = |mark: &MarkFacts| {
        usize::from(mark.nodes) != count || mark.longest_ttl != facts.longest_ttl
    };
    if let Some(other) = nodes.iter().filter_map(mark).find(is_other) {
        let others = named(&nodes, |node| mark(node).as_ref().is_some_and(is_other));
        let text = format!(
            "{}: marked for a quorum of {} servers with leases of at most {:?}; this client counts {count} servers and {:?}",
            others.join(", "),
            other.nodes,
            other.longest_ttl,
            facts.longest_ttl
        );
        let fix = "use the URL that all clients use; to change the quorum, stop all clients and run leasehold quorum init --again";
        return graded(FAIL, text, fix);
    }
    if nodes.iter().all(is_unmarked) && !nodes.is_empty() {
        let text = "no server has a mark: for a new quorum, each keeps out until all leases from before could have ended";
        return graded(FAIL, text, "leasehold quorum init");
    }
    let mut silent = silent(facts, &nodes);
    silent.retain(|silent| !silent.nodes.is_empty());
    if silent.is_empty() {
        return ok("each server has the mark of this quorum");
    }
    let texts = silent.iter();
    let texts = texts.map(|silent| format!("{}: {}", silent.nodes.join(", "), silent.why));
    let text = texts.collect::<Vec<_>>().join("; ");
    let fixes: Vec<&str> = silent.iter().map(|silent| silent.fix).collect();
    let fix = fixes.join("\n");
    // Those that cannot be reached vote no more than those.
    let votes = |node: &&Answered<'_>| {
        let address = node.0.server.as_str();
        silent.iter().all(|silent| !silent.nodes.contains(&address))
    };
    let votes = nodes.iter().filter(votes).count();
    if votes > count / 2 {
        return graded(WARN, text, fix);
    }
    let needed = count / 2 + 1;
    let text = format!("{text}: {votes} of {count} vote, and a lock needs {needed}");
    graded(FAIL, text, fix)
}

/// The mark of a node that has one.
fn mark((node, _): &Answered<'_>) -> Option<MarkFacts> {
    node.mark.ok().flatten()
}

fn is_unmarked((node, _): &Answered<'_>) -> bool {
    node.mark == Ok(None)
}

/// Nodes that give no vote for one reason.
struct Silent<'a> {
    nodes: Vec<&'a str>,
    why: String,
    fix: &'a str,
}

/// The reasons for which a node gives no vote, with the nodes of each, which may be none.
fn silent<'a>(facts: &QuorumFacts, nodes: &[Answered<'a>]) -> Vec<Silent<'a>> {
    let is_out = |mark: &MarkFacts| !mark.of_another_start && !mark.votes_in.is_zero();
    let longest = nodes.iter().filter_map(mark).filter(is_out);
    let longest = span(longest.map(|mark| mark.votes_in).max().unwrap_or_default());
    let quarantine = span(facts.quarantine);
    let is_unnamed = |(_, server): &Answered<'_>| server.info.is_none();
    let unnamed = nodes.iter().find(|node| is_unnamed(node));
    let of = |is: &dyn Fn(&Answered<'_>) -> bool, why: String, fix: &'a str| Silent {
        nodes: named(nodes, is),
        why,
        fix,
    };
    vec![
        of(
            &is_unnamed,
            "does not say which server it is, so all clients with this user refuse it".into(),
            unnamed.map_or("", |(_, server)| &server.acl),
        ),
        of(
            &|(node, _)| node.mark.is_err(),
            "its key leasehold:quorum holds no mark".into(),
            "find out what wrote the key, and DEL leasehold:quorum there; the server votes a quarantine after that",
        ),
        of(
            &is_unmarked,
            "without a mark, so it is new or has lost its data; it votes a quarantine after the first request".into(),
            "wait; if it loses its data at each restart, give it persistence",
        ),
        of(
            &|node| mark(node).is_some_and(|mark| mark.of_another_start),
            format!("was started again, or has the data of another server; it votes {quarantine} after the next request"),
            "ask for any lock, and wait; a restart needs no wait with appendfsync always at each server and durable=1 in the URL",
        ),
        of(
            &|node| mark(node).as_ref().is_some_and(is_out),
            format!("may have lost its data, and keeps out for another {longest}"),
            "wait",
        ),
    ]
}

/// Whether the clocks of the nodes are near each other. Fences are near their clocks, and 10 s apart is too far.
pub(super) fn clocks(facts: &QuorumFacts) -> Judged {
    let (apart, ends) = apart(&facts.nodes)?;
    let (grade, what) = match apart.as_secs() {
        10.. => (FAIL, "no number is acceptable to all servers"),
        1.. => (WARN, "above 10 s, servers shut each other out"),
        _ => {
            let most = apart.max(Duration::from_millis(1));
            return ok(format!("the clocks are at most {most:.1?} apart"));
        }
    };
    let text = format!("the clocks are {apart:.1?} apart: {ends}; {what}");
    graded(grade, text, NTP)
}

/// The advice for clocks that differ.
pub(super) const NTP: &str = "NTP on each server: slew its clock, do not step it";

/// How far the clocks of nodes are apart at least, and those of which ones.
pub(super) fn apart(nodes: &[NodeFacts]) -> Result<(Duration, String), Unjudged> {
    let known: Vec<(&str, ClockFacts)> = nodes
        .iter()
        .filter_map(|node| Some((node.server.as_str(), node.clock?)))
        .collect();
    let last = known.iter().min_by_key(|(_, clock)| clock.ahead_us);
    let first = known.iter().max_by_key(|(_, clock)| clock.ahead_us);
    let untold = Unknown("no server tells its time", None);
    let ((last, behind), (first, ahead)) = last.zip(first).ok_or(untold)?;
    let apart = Duration::from_micros(ahead.ahead_us.abs_diff(behind.ahead_us));
    let apart = apart.saturating_sub(behind.error + ahead.error);
    Ok((apart, format!("{last} is the last, {first} is the first")))
}

/// Whether the nodes are independent: each a primary of its own, and each once.
pub(super) fn alone(facts: &QuorumFacts) -> Judged {
    let nodes = answered(&facts.nodes);
    for (at, (node, server)) in nodes.iter().enumerate() {
        let run = server.info("run_id");
        let is_same = |(_, other): &&Answered<'_>| run.is_some() && other.info("run_id") == run;
        if let Some((first, _)) = nodes[..at].iter().find(is_same) {
            let text = format!("{} and {} are one server", first.server, node.server);
            let fix = "name each server once; each vote must come from a server of its own";
            return graded(FAIL, text, fix);
        }
    }
    let replicas = named(&nodes, |(_, server)| {
        server.role().is_some_and(|role| role != "master")
    });
    if let Some(replica) = replicas.first() {
        let fix = "REPLICAOF NO ONE; the servers of a quorum replicate no other one";
        let text = format!("{replica}: a replica, which gives no vote");
        return graded(FAIL, text, fix);
    }
    let is_followed = |server: &ServerFacts| server.info_number("connected_slaves") > Some(0);
    let followed = named(&nodes, |(_, server)| is_followed(server)).join(", ");
    if followed.is_empty() {
        return ok("each server is a primary without replicas");
    }
    let text = format!("{followed}: has replicas; one that takes over may lack votes that counted");
    let fix =
        "let no replica take over (no Sentinel): a quorum bears the loss of a server as it is";
    graded(HINT, text, fix)
}

/// Whether a restart of a node loses votes.
pub(super) fn restart(facts: &QuorumFacts) -> Judged {
    let nodes = answered(&facts.nodes);
    let writes_always = |server: &ServerFacts| {
        Some(server.config("appendonly")? == "yes" && server.config("appendfsync")? == "always")
    };
    let lossy = named(&nodes, |(_, server)| writes_always(server) == Some(false));
    let durable = "each server writes a change to its disk before it answers";
    if facts.durable && lossy.is_empty() {
        ok(durable)
    } else if facts.durable {
        let lossy = lossy.join(", ");
        let text = format!(
            "{lossy}: the URL says durable=1, and this server may lose its last changes at a restart"
        );
        let fix = "CONFIG SET appendonly yes and appendfsync always, or leave durable=1 out";
        graded(FAIL, text, fix)
    } else if lossy.is_empty() && !nodes.is_empty() {
        info(format!(
            "{durable}: with durable=1 in the URL, it votes at once after a restart"
        ))
    } else {
        let time = span(facts.quarantine);
        ok(format!(
            "a server that was started again keeps out for {time}"
        ))
    }
}
