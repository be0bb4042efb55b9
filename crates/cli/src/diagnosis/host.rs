//! Rules for clocks and delays, on both sides. A clock that is far away is no fault: each lease is counted on one clock.

use std::time::Duration;

use super::report::State::{Fail, Info, Warn};
use super::rule::{Judgement, Rule, share};
use leasehold::doctor::ServerFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "clk.offset",
        judge: offset,
    },
    Rule {
        id: "clk.step",
        judge: step,
    },
    Rule {
        id: "clk.self",
        judge: stall,
    },
    Rule {
        id: "hz",
        judge: hz,
    },
];

fn offset(facts: &ServerFacts) -> Option<Judgement> {
    let Some((apart, give)) = facts.offset else {
        return Some(Judgement::unknown("TIME is not permitted here"));
    };
    let text = format!("the server's clock and this host's are {apart:.1?} apart (±{give:.1?})");
    Some(if apart.saturating_sub(give) > Duration::from_millis(500) {
        Judgement::of(
            Info,
            Warn,
            format!("{text}; leases do not depend on it, log lines do"),
        )
        .fix("synchronise both (NTP)")
    } else {
        Judgement::ok(text)
    })
}

fn step(facts: &ServerFacts) -> Option<Judgement> {
    let apart = facts.step?;
    let text = format!("in 5 s the server's clock ran {apart:.1?} off this host's");
    Some(if apart > Duration::from_millis(50) {
        Judgement::of(
            Warn,
            Fail,
            format!("{text}: it jumps, and leases end early or late by that"),
        )
        .fix("let NTP slew the server's clock and not step it; pause no virtual machine")
    } else {
        Judgement::ok(text)
    })
}

fn stall(facts: &ServerFacts) -> Option<Judgement> {
    let stall = facts.stall?;
    let text = format!("in 1 s this host stood still for {stall:.1?} at most");
    Some(if stall > share(facts, 20) {
        Judgement::warn(format!("{text}: renewals may be late"))
            .fix("give it more CPU (look for throttling), or raise --ttl")
    } else {
        Judgement::ok(text)
    })
}

fn hz(facts: &ServerFacts) -> Option<Judgement> {
    let rise = facts.rise("expired_time_cap_reached_count")?;
    Some(if rise > 0 {
        Judgement::info(
            "it is behind with removing expired keys: they still show in SCAN; locks are not affected",
        )
    } else {
        Judgement::ok("expired keys are removed in time")
    })
}
