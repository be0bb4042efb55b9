//! Rules for replicas: the loss of locks by a failover, and writes that stop for want of replicas. No replica is no fault
//! where none is configured.

use super::report::State::{Info, Warn};
use super::rule::{Judgement, Rule, no_info};
use leasehold::doctor::ServerFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "rep.count",
        judge: count,
    },
    Rule {
        id: "rep.ack",
        judge: ack,
    },
    Rule {
        id: "rep.short",
        judge: short,
    },
];

fn is_replica(facts: &ServerFacts) -> bool {
    facts.role().is_some_and(|role| role != "master")
}

fn count(facts: &ServerFacts) -> Option<Judgement> {
    if is_replica(facts) {
        return None;
    }
    let Some(replicas) = facts.info_number("connected_slaves") else {
        return Some(no_info());
    };
    if replicas == 0 {
        return Some(
            Judgement::of(
                Info,
                Warn,
                "no replica: while this server is down there are no locks",
            )
            .fix("add a replica and min-replicas-to-write 1, or live with the outage"),
        );
    }
    let states = (0..replicas).filter_map(|number| facts.info(&format!("slave{number}")));
    let late = states
        .filter(|about| !about.contains("state=online"))
        .count();
    Some(if late > 0 {
        Judgement::of(
            Info,
            Warn,
            format!("{late} of {replicas} replicas are not in step"),
        )
        .fix("wait for their first synchronisation, or look at their logs")
    } else {
        Judgement::ok(format!("{replicas} replicas, in step"))
    })
}

/// INFO shows the number of good replicas only where writes depend on it.
fn ack(facts: &ServerFacts) -> Option<Judgement> {
    if is_replica(facts) {
        return None;
    }
    let Some(replicas) = facts.info_number("connected_slaves") else {
        return Some(no_info());
    };
    if replicas == 0 {
        return None;
    }
    Some(if facts.info("min_slaves_good_slaves").is_some() {
        Judgement::ok("writes stop when replicas are missing (min-replicas-to-write)")
    } else {
        Judgement::of(Info, Warn, format!("connected_slaves={replicas}, and writes do not wait for them: a failover may forget the newest locks"))
            .fix("CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10 narrow the gap; only fences close it")
    })
}

fn short(facts: &ServerFacts) -> Option<Judgement> {
    let fix = "bring the replicas back, or lower min-replicas-to-write";
    let refused = |why: String| {
        Judgement::fail(format!(
            "{why}: locks are not granted, renewed or released (NOREPLICAS)"
        ))
        .fix(fix)
    };
    if facts.probe.refused_by("NOREPLICAS").is_some() {
        let good = facts
            .info_number("min_slaves_good_slaves")
            .map_or_else(String::new, |good| format!(" ({good} good ones)"));
        return Some(refused(format!("too few replicas{good}")));
    }
    let good = facts.info_number("min_slaves_good_slaves")?;
    Some(match facts.config_number("min-replicas-to-write") {
        Some(wanted) if good < wanted => refused(format!("{good} good replicas of {wanted}")),
        Some(wanted) => Judgement::ok(format!("{good} good replicas, {wanted} are needed")),
        None => Judgement::ok(format!("{good} good replicas, and writes are taken")),
    })
}
