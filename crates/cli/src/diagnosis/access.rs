//! Rules for permissions, encryption and connection limits. No text shows a password.

use super::report::State::{Info, Warn};
use super::rule::{Judgement, Rule, share};
use leasehold::StoreErrorKind;
use leasehold::doctor::{ServerFacts, Without};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "acl.probe",
        judge: probe,
    },
    Rule {
        id: "acl.wide",
        judge: wide,
    },
    Rule {
        id: "sec.tls",
        judge: tls,
    },
    Rule {
        id: "net.timeout",
        judge: timeout,
    },
    Rule {
        id: "net.clients",
        judge: clients,
    },
];

/// Refusals that other checks tell.
const TOLD_ELSEWHERE: [&str; 5] = ["OOM", "MISCONF", "NOREPLICAS", "READONLY", "LOADING"];

/// What is forbidden with one consequence, as part of an ACL rule.
fn denied(facts: &ServerFacts, without: Without) -> String {
    let denied = facts.probe.denied.iter();
    let parts: Vec<String> = denied
        .filter(|part| part.without == without)
        .map(|part| {
            let is_command = !part.name.starts_with(['~', '&']);
            format!("{}{}", if is_command { "+" } else { "" }, part.name)
        })
        .collect();
    parts.join(" ")
}

/// The cost of a refused request that locks can do without.
fn cost(name: &str) -> &'static str {
    match name {
        "subscribe" => "waiters poll",
        "role" => "a replica is known only by its first refusal",
        "client|tracking" | "client|caching" => "values in a process stay until they are too old",
        _ => "scripts are sent in full",
    }
}

/// The cost of a server that does not say which one it is.
const NO_INFO: &str = "INFO is refused: each new connection counts as one to another server";

/// What this user or this server refuses, and locks can do without: what that costs, and what to do.
fn worse(facts: &ServerFacts) -> Option<Judgement> {
    let mut costs = Vec::new();
    let lacks = denied(facts, Without::Worse);
    if !lacks.is_empty() {
        costs.push(format!(
            "this user lacks {lacks}: waiters poll, scripts are sent in full, or inspect and the list of names fail"
        ));
    }
    for (part, said) in &facts.probe.refused {
        let name = part.name.replace('|', " ").to_uppercase();
        costs.push(format!(
            "{name} is refused (\"{said}\"): {}",
            cost(part.name)
        ));
    }
    if facts.info.is_none() && !costs.is_empty() {
        costs.push(NO_INFO.into());
    }
    let by_the_service = "allow these commands where the service or proxy is set up, or do without";
    let fix = if facts.probe.refused.is_empty() {
        &facts.acl
    } else {
        by_the_service
    };
    (!costs.is_empty()).then(|| Judgement::warn(costs.join("; ")).fix(fix))
}

fn probe(facts: &ServerFacts) -> Option<Judgement> {
    let probe = &facts.probe;
    let lacks = denied(facts, Without::NoLocks);
    if !lacks.is_empty() {
        return Some(Judgement::fail(format!("this user lacks {lacks}: no locks")).fix(&facts.acl));
    }
    if let Some(pattern) = &probe.barred {
        let text = format!(
            "this user may not read and write the keys ~{pattern} and those beside them: no such locks"
        );
        return Some(Judgement::fail(text).fix(&facts.acl));
    }
    let is_told = |said: &str| TOLD_ELSEWHERE.iter().any(|word| said.contains(word));
    // The role and the mode of the server.
    let is_told_by_others = |what: &str, kind: StoreErrorKind, said: &str| {
        is_told(said)
            || what == "connect"
                && (kind == StoreErrorKind::ReadOnly || said.contains("Redis Cluster"))
    };
    let worse = worse(facts);
    // Writing the index needs what only it uses.
    let is_worse = |what: &str| what == "index" && !denied(facts, Without::Worse).is_empty();
    let mut failed = probe
        .failed
        .iter()
        .filter(|(what, kind, said)| !is_told_by_others(what, *kind, said) && !is_worse(what));
    // A command that does not exist is told by cap.lua.
    if let (Some((what, kind, said)), true) = (failed.next(), probe.missing.is_empty()) {
        let verdict = Judgement::fail(if *what == "connect" {
            format!("no client can connect: {said}")
        } else {
            format!("{what} failed on a scratch lock leasehold:doctor:*: {said}")
        });
        return Some(match kind {
            StoreErrorKind::Denied => verdict.fix(&facts.acl),
            _ => verdict
                .fix("this should not be: please report it, with what the server says of itself"),
        });
    }
    if let (Some(worse), true) = (worse, probe.failed.iter().all(|(what, ..)| is_worse(what))) {
        return Some(worse);
    }
    if !probe.failed.is_empty() || !probe.missing.is_empty() {
        return Some(Judgement::unknown(
            "not all could be tried, for a reason that another check tells",
        ));
    }
    let of_entries = denied(facts, Without::NoCache);
    let of_entries = (!of_entries.is_empty())
        .then(|| format!("for cache entries, this user lacks {of_entries}"));
    let no_info = facts.info.is_none().then(|| NO_INFO.to_owned());
    let less: Vec<String> = of_entries.into_iter().chain(no_info).collect();
    if probe.heard && !less.is_empty() {
        let text = format!("locks work, wakes arrive; {}", less.join("; "));
        return Some(Judgement::info(text).fix(&facts.acl));
    }
    Some(if probe.heard {
        Judgement::ok(
            "a scratch lock was taken, waited for, renewed, handed over and freed; wakes arrive",
        )
    } else {
        Judgement::warn("no wake arrived: waiters poll").fix(&facts.acl)
    })
}

fn wide(facts: &ServerFacts) -> Option<Judgement> {
    let fix = || format!("use a user for locks only:\n{}", facts.acl);
    Some(match (facts.user.as_deref(), facts.config.is_some()) {
        (Some("default"), _) => Judgement::of(
            Info,
            Warn,
            "this is the default user, who may do almost anything",
        )
        .fix(fix()),
        (_, true) => Judgement::of(
            Info,
            Warn,
            "this user may use CONFIG, and so rewrite the server's settings",
        )
        .fix(fix()),
        (Some(user), false) => Judgement::ok(format!(
            "the user \"{}\", who may not use CONFIG",
            user.escape_debug()
        )),
        (None, false) => {
            Judgement::unknown("ACL is not permitted here, which speaks for a narrow user")
        }
    })
}

fn tls(facts: &ServerFacts) -> Option<Judgement> {
    let transport = &facts.transport;
    Some(if transport.is_private {
        Judgement::ok("nobody on the way can read along")
    } else if transport.has_password && !transport.is_loopback {
        Judgement::warn("the password goes over the network in clear").fix("use rediss:// (TLS)")
    } else {
        Judgement::ok("no TLS, and no password that leaves this host")
    })
}

fn timeout(facts: &ServerFacts) -> Option<Judgement> {
    let Some(seconds) = facts.config_number("timeout") else {
        return Some(
            Judgement::unknown("CONFIG is not permitted here")
                .fix("look up \"timeout\" where the server is set up; it should be 0"),
        );
    };
    let drops = seconds > 0 && std::time::Duration::from_secs(seconds) < share(facts, 3);
    Some(if drops {
        Judgement::warn(format!("timeout={seconds}: it drops clients that are silent for {seconds} s, less than the time between renewals")).fix("CONFIG SET timeout 0")
    } else {
        Judgement::ok(format!(
            "timeout={seconds}: no client is dropped between renewals"
        ))
    })
}

fn clients(facts: &ServerFacts) -> Option<Judgement> {
    let most = facts
        .info_number("maxclients")
        .or_else(|| facts.config_number("maxclients"));
    let (Some(now), Some(most)) = (facts.info_number("connected_clients"), most) else {
        return Some(Judgement::unknown(
            "it does not say how many clients it has (INFO)",
        ));
    };
    let rejected = facts.info_number("rejected_connections").unwrap_or(0);
    let text = format!("{now} clients of {most}, {rejected} rejected since its start");
    Some(
        if now.saturating_mul(100) > most.saturating_mul(80) || rejected > 0 {
            Judgement::warn(format!("{text}: new ones may be refused"))
                .fix("raise maxclients (and the server's ulimit -n), or find who keeps connections")
        } else {
            Judgement::ok(text)
        },
    )
}
