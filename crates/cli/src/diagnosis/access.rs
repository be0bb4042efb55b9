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

/// The forbidden commands with one consequence, as part of an ACL rule.
fn denied(facts: &ServerFacts, without: Without) -> String {
    let denied = facts.probe.denied.iter();
    let parts: Vec<String> = denied
        .filter(|part| part.without == without)
        .map(|part| format!("+{}", part.name))
        .collect();
    parts.join(" ")
}

fn probe(facts: &ServerFacts) -> Option<Judgement> {
    let probe = &facts.probe;
    let lacks = denied(facts, Without::NoLocks);
    if !lacks.is_empty() {
        return Some(Judgement::fail(format!("this user lacks {lacks}: no locks")).fix(&facts.acl));
    }
    let is_told = |said: &str| TOLD_ELSEWHERE.iter().any(|word| said.contains(word));
    let worse = denied(facts, Without::Worse);
    // Writing the index needs what only it uses.
    let is_worse = |what: &str| what == "index" && !worse.is_empty();
    let mut failed = probe
        .failed
        .iter()
        .filter(|(what, _, said)| !is_told(said) && !is_worse(what));
    // A command that does not exist is told by cap.lua.
    if let (Some((what, kind, said)), true) = (failed.next(), probe.missing.is_empty()) {
        let verdict = Judgement::fail(format!(
            "{what} failed on a scratch lock leasehold:doctor:*: {said}"
        ));
        return Some(match kind {
            StoreErrorKind::Denied => verdict.fix(&facts.acl),
            _ => verdict
                .fix("this should not be: please report it, with what the server says of itself"),
        });
    }
    if !worse.is_empty() {
        return Some(
            Judgement::warn(format!(
                "this user lacks {worse}: waiters poll, scripts are sent in full, or inspect and the list of names fail"
            ))
            .fix(&facts.acl),
        );
    }
    if !probe.failed.is_empty() || !probe.missing.is_empty() {
        return Some(Judgement::unknown(
            "not all could be tried, for a reason that another check tells",
        ));
    }
    let of_entries = denied(facts, Without::NoCache);
    if probe.heard && !of_entries.is_empty() {
        return Some(
            Judgement::info(format!(
                "locks work, wakes arrive; for cache entries, this user lacks {of_entries}"
            ))
            .fix(&facts.acl),
        );
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
