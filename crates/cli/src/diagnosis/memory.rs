//! Rules for memory: whether the server can delete a held lock or refuse a new one. An unknown policy is no fault.

use super::report::State::{Fail, Info, Warn};
use super::rule::{Judgement, Rule, no_info};
use leasehold::doctor::ServerFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "mem.policy",
        judge: policy,
    },
    Rule {
        id: "mem.full",
        judge: full,
    },
    Rule {
        id: "mem.evicted",
        judge: evicted,
    },
];

const NO_EVICTION: &str =
    "CONFIG SET maxmemory-policy noeviction, or give the locks a server of their own";

fn policy(facts: &ServerFacts) -> Option<Judgement> {
    let policy = facts
        .info("maxmemory_policy")
        .or_else(|| facts.config("maxmemory-policy"))
        .unwrap_or_default();
    if policy.is_empty() {
        return Some(
            Judgement::unknown("it does not say which keys it deletes when memory is full").fix(
                "look up maxmemory-policy where the server is set up; it should be noeviction",
            ),
        );
    }
    if policy == "noeviction" {
        return Some(Judgement::ok(
            "maxmemory_policy=noeviction: nothing is deleted for want of memory",
        ));
    }
    let danger = if policy.starts_with("volatile") {
        "deletes keys with a TTL, and locks may be the only ones: a held lock goes first, silently"
    } else if policy.ends_with("random") {
        "deletes any key, a held lock as well, silently"
    } else {
        "deletes what is seldom used: a held lock that is renewed seldom goes, silently"
    };
    let (states, when) = match facts.info_number("maxmemory") {
        Some(0) => ((Info, Warn), " (once maxmemory is set; it is 0 now)"),
        _ => ((Warn, Fail), ""),
    };
    Some(
        Judgement::of(
            states.0,
            states.1,
            format!("maxmemory_policy={policy} {danger}{when}"),
        )
        .fix(NO_EVICTION),
    )
}

fn full(facts: &ServerFacts) -> Option<Judgement> {
    if let Some(said) = facts.probe.refused_by("OOM") {
        return Some(
            Judgement::fail(format!("memory is full, and new locks are refused: {said}"))
                .fix("free memory or raise maxmemory; held locks are renewed meanwhile"),
        );
    }
    if facts.info.is_none() {
        return Some(no_info());
    }
    let (Some(used), Some(most)) = (
        facts.info_number("used_memory"),
        facts.info_number("maxmemory"),
    ) else {
        return Some(Judgement::unknown(
            "it does not say how much memory it uses",
        ));
    };
    if most == 0 {
        return Some(Judgement::ok("maxmemory=0: no limit of its own"));
    }
    let percent = used.saturating_mul(100) / most;
    let text = format!("used_memory is {percent} % of maxmemory");
    let fix = "free memory or raise maxmemory; at 100 % new locks are refused (OOM)";
    Some(match percent {
        96.. => Judgement::of(Warn, Fail, text).fix(fix),
        86.. => Judgement::warn(text).fix(fix),
        _ => Judgement::ok(text),
    })
}

/// Only while it happens: the counter since the start says nothing of today.
fn evicted(facts: &ServerFacts) -> Option<Judgement> {
    let Some(before) = facts.info_number("evicted_keys") else {
        return Some(no_info());
    };
    let rise = facts.rise("evicted_keys")?;
    Some(if rise > 0 {
        Judgement::of(
            Warn,
            Fail,
            format!("it is deleting keys now for want of memory ({rise} in 2 s)"),
        )
        .fix(NO_EVICTION)
    } else {
        Judgement::ok(format!("no key was evicted in 2 s (evicted_keys={before})"))
    })
}
