//! Rules for the server itself: its role, its software and its commands. The version number decides nothing.

use super::report::State::{Fail, Warn};
use super::rule::{Judgement, Rule, no_info, share};
use leasehold::doctor::{Part, ServerFacts, Without};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "reach.ping",
        judge: ping,
    },
    Rule {
        id: "reach.role",
        judge: role,
    },
    Rule {
        id: "reach.loading",
        judge: loading,
    },
    Rule {
        id: "id.engine",
        judge: engine,
    },
    Rule {
        id: "id.mode",
        judge: mode,
    },
    Rule {
        id: "id.restart",
        judge: restart,
    },
    Rule {
        id: "cap.lua",
        judge: lua,
    },
    Rule {
        id: "cap.cas",
        judge: cas,
    },
    Rule {
        id: "cap.wait",
        judge: wait,
    },
];

fn ping(facts: &ServerFacts) -> Option<Judgement> {
    let Some(p99) = facts.ping else {
        return Some(Judgement::unknown(
            "PING is refused, so round trips were not timed",
        ));
    };
    let text = format!(
        "99 % of answers within {p99:.1?}; a renewal may take {:.1?}",
        share(facts, 3)
    );
    let fix = format!(
        "raise --ttl above {:.0?}, or move closer to the server",
        p99 * 10
    );
    Some(if p99 > share(facts, 3) {
        Judgement::of(Warn, Fail, text).fix(fix)
    } else if p99 > share(facts, 10) {
        Judgement::warn(text).fix(fix)
    } else {
        Judgement::ok(text)
    })
}

fn role(facts: &ServerFacts) -> Option<Judgement> {
    match facts.role() {
        None if facts.probe.refused_by("READONLY").is_some() => Some(
            Judgement::fail("it refuses writes (READONLY): a replica?")
                .fix("give the URL of the primary"),
        ),
        None => Some(Judgement::unknown("neither ROLE nor INFO is permitted")),
        Some("sentinel") => None,
        Some("master") => Some(Judgement::ok("it is the primary")),
        Some(_) => {
            let primary = facts.info("master_host").zip(facts.info("master_port"));
            let primary =
                primary.map_or_else(String::new, |(host, port)| format!(": {host}:{port}"));
            Some(
                Judgement::fail("it is a replica; every lock is refused (READONLY)")
                    .fix(format!("give the URL of the primary{primary}")),
            )
        }
    }
}

fn loading(facts: &ServerFacts) -> Option<Judgement> {
    let loading = ["loading", "async_loading"]
        .into_iter()
        .any(|field| facts.info(field) == Some("1"));
    if loading || facts.probe.refused_by("LOADING").is_some() {
        return Some(
            Judgement::fail("it is loading its data and takes no requests")
                .fix("wait until it has loaded"),
        );
    }
    Some(if facts.info.is_some() || facts.probe.failed.is_empty() {
        Judgement::ok("its data are loaded")
    } else {
        no_info()
    })
}

fn engine(facts: &ServerFacts) -> Option<Judgement> {
    Some(match facts.engine() {
        Some((engine, version)) => Judgement::info(format!("{engine} {version}")),
        None => Judgement::unknown("it does not say what it is (INFO)"),
    })
}

fn mode(facts: &ServerFacts) -> Option<Judgement> {
    Some(match facts.mode() {
        None => Judgement::unknown("it does not say whether it is part of a cluster (INFO)"),
        Some("cluster") => Judgement::fail("it is in cluster mode, which leasehold does not speak yet: locks on other nodes are refused (MOVED)")
            .fix("use a server that is not part of a cluster"),
        Some("sentinel") => Judgement::fail("it is a sentinel, which keeps no locks").fix("give the URL of the primary that it watches"),
        Some(mode) => Judgement::ok(mode),
    })
}

/// A server that came up within the TTL may have forgotten locks that are still held.
fn restart(facts: &ServerFacts) -> Option<Judgement> {
    let Some(uptime) = facts.info_number("uptime_in_seconds") else {
        return Some(no_info());
    };
    let safe =
        facts.info("aof_enabled") == Some("1") && facts.config("appendfsync") == Some("always");
    let text = format!("up for {uptime} s");
    Some(if uptime >= facts.ttl.as_secs() || safe {
        Judgement::ok(text)
    } else {
        Judgement::of(Warn, Fail, format!("restarted {uptime} s ago: locks granted before may be forgotten while their holders work on"))
            .fix("wait for the longest TTL after a restart; see dur.mode")
    })
}

fn lua(facts: &ServerFacts) -> Option<Judgement> {
    let probe = &facts.probe;
    let missing: Vec<&str> = probe.missing.iter().map(|part| part.name).collect();
    let missing = missing.join(", ").to_uppercase();
    let is_vital = |part: &Part| part.without == Without::NoLocks;
    if probe.missing.iter().any(is_vital) {
        return Some(
            Judgement::fail(format!(
                "unknown here (renamed?): {missing}; locks are scripts that need it"
            ))
            .fix("undo rename-command for these"),
        );
    }
    if !missing.is_empty() {
        return Some(
            Judgement::warn(format!(
                "unknown here (renamed?): {missing}; waiters poll, a replica is found late, scripts are sent in full, or there are no cache entries"
            ))
            .fix("undo rename-command for these"),
        );
    }
    let denied = probe.denied.iter().any(|part| part.name == "eval");
    Some(if denied {
        Judgement::unknown("this user may run no scripts; see acl.probe")
    } else {
        Judgement::ok("scripts run")
    })
}

fn cas(facts: &ServerFacts) -> Option<Judgement> {
    let Some(known) = &facts.commands else {
        return Some(Judgement::unknown("COMMAND is not permitted here"));
    };
    let has = |name: &str| known.iter().any(|command| command == name);
    Some(Judgement::info(if has("delex") {
        "SET IFEQ and DELEX exist; locks use scripts all the same: they renew also when memory is full"
    } else if has("delifeq") {
        "SET IFEQ and DELIFEQ exist; locks use scripts all the same: they renew also when memory is full"
    } else {
        "no compare-and-delete command; locks use scripts"
    }))
}

fn wait(facts: &ServerFacts) -> Option<Judgement> {
    let Some(known) = &facts.commands else {
        return Some(Judgement::unknown("COMMAND is not permitted here"));
    };
    let known: Vec<String> = known
        .iter()
        .filter(|name| name.starts_with("wait"))
        .map(|name| name.to_uppercase())
        .collect();
    Some(Judgement::info(match known.as_slice() {
        [] => "neither WAIT nor WAITAOF".to_owned(),
        known => format!(
            "it knows {}; locks do not wait for replicas",
            known.join(" and ")
        ),
    }))
}
