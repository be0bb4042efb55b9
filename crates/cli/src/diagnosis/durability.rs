//! Rules for persistence: the loss of locks by a restart, and the cost of keeping them. An unknown setting is no fault.

use super::report::State::{Fail, Info, Ok, Warn};
use super::rule::{Judgement, Rule, no_info, share};
use leasehold::doctor::ServerFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "dur.mode",
        judge: mode,
    },
    Rule {
        id: "dur.health",
        judge: health,
    },
    Rule {
        id: "dur.fsync",
        judge: fsync,
    },
    Rule {
        id: "fork.stall",
        judge: fork,
    },
    Rule {
        id: "lat.monitor",
        judge: monitor,
    },
    Rule {
        id: "lat.script",
        judge: script,
    },
];

const KEEP: &str = "appendonly yes and appendfsync always; or start it again only after the longest TTL; or check fences at the resource";

fn has_aof(facts: &ServerFacts) -> Option<bool> {
    match (facts.info("aof_enabled"), facts.config("appendonly")) {
        (Some(on), _) => Some(on == "1"),
        (None, on) => on.map(|on| on == "yes"),
    }
}

fn mode(facts: &ServerFacts) -> Option<Judgement> {
    let Some(aof) = has_aof(facts) else {
        return Some(
            Judgement::unknown("it does not say what it writes to disk")
                .fix("look up \"appendonly\" and \"appendfsync\" where the server is set up"),
        );
    };
    if !aof {
        let kept = match facts.config("save") {
            Some("") => "nothing is written to disk: a restart forgets all locks",
            _ => {
                "no append-only file: a restart forgets the locks since the last snapshot, which may be all of them"
            }
        };
        return Some(Judgement::of(Warn, Fail, kept).fix(KEEP));
    }
    Some(match facts.config("appendfsync") {
        None => Judgement::unknown(
            "there is an append-only file; how often it is written to disk, it does not say",
        )
        .fix("look up \"appendfsync\" where the server is set up; it should be always"),
        Some("always") => Judgement::ok("appendfsync=always: a restart forgets nothing"),
        Some("everysec") => Judgement::of(
            Info,
            Warn,
            "appendfsync=everysec: a crash forgets up to 1 s of locks",
        )
        .fix(KEEP),
        Some(other) => Judgement::of(
            Warn,
            Fail,
            format!("appendfsync={other}: a crash forgets many seconds of locks"),
        )
        .fix(KEEP),
    })
}

fn health(facts: &ServerFacts) -> Option<Judgement> {
    let fix = "look at the server's log and its disk; with stop-writes-on-bgsave-error no, locks go on meanwhile";
    if let Some(said) = facts.probe.refused_by("MISCONF") {
        return Some(
            Judgement::fail(format!(
                "it refuses locks, renewals and releases, since saving failed: {said}"
            ))
            .fix(fix),
        );
    }
    if facts.info.is_none() {
        return Some(no_info());
    }
    let failed: Vec<String> = [
        "rdb_last_bgsave_status",
        "aof_last_write_status",
        "aof_last_bgrewrite_status",
    ]
    .into_iter()
    .filter_map(|field| {
        facts
            .info(field)
            .filter(|status| *status != "ok")
            .map(|status| format!("{field}={status}"))
    })
    .collect();
    Some(if failed.is_empty() {
        Judgement::ok("the last save worked")
    } else {
        Judgement::of(
            Warn,
            Fail,
            format!(
                "{}: it may refuse locks, renewals and releases (MISCONF)",
                failed.join(" ")
            ),
        )
        .fix(fix)
    })
}

fn fsync(facts: &ServerFacts) -> Option<Judgement> {
    if facts.info("aof_enabled") != Some("1") {
        return None;
    }
    let delayed = facts.rise("aof_delayed_fsync")?;
    Some(if delayed > 0 {
        Judgement::warn(format!(
            "the disk does not keep up ({delayed} delayed in 2 s): answers are late"
        ))
        .fix("a faster disk, or less else on it")
    } else {
        Judgement::ok("the disk keeps up")
    })
}

fn fork(facts: &ServerFacts) -> Option<Judgement> {
    let Some(micros) = facts.info_number("latest_fork_usec") else {
        return Some(no_info());
    };
    let took = std::time::Duration::from_micros(micros);
    let text = format!("the last fork held it up for {took:.1?}");
    Some(
        if took > share(facts, 10).min(std::time::Duration::from_millis(100)) {
            Judgement::warn(text)
                .fix("disable transparent huge pages; keep less data beside the locks")
        } else {
            Judgement::ok(if micros == 0 {
                "it has not forked yet".to_owned()
            } else {
                text
            })
        },
    )
}

fn monitor(facts: &ServerFacts) -> Option<Judgement> {
    let long = share(facts, 10);
    let slow = facts
        .latency
        .iter()
        .flatten()
        .filter(|(_, millis)| std::time::Duration::from_millis(*millis) > long);
    let slow: Vec<String> = slow
        .map(|(event, millis)| format!("{event} {millis} ms"))
        .collect();
    if !slow.is_empty() {
        return Some(
            Judgement::warn(format!(
                "it stood still longer than a tenth of the TTL: {}",
                slow.join(", ")
            ))
            .fix("LATENCY DOCTOR says more; raise --ttl"),
        );
    }
    Some(match facts.config_number("latency-monitor-threshold") {
        None if facts.latency.is_none() => {
            Judgement::unknown("CONFIG and LATENCY are not permitted here")
        }
        Some(0) => Judgement::info("it does not record when it stands still")
            .fix("CONFIG SET latency-monitor-threshold 100"),
        _ => Judgement::of(Ok, Ok, "no event longer than a tenth of the TTL"),
    })
}

/// From this time on a slow script of anyone can be stopped, and others hear BUSY; until then they hear nothing.
fn script(facts: &ServerFacts) -> Option<Judgement> {
    let limit = facts
        .config_number("busy-reply-threshold")
        .or_else(|| facts.config_number("lua-time-limit"));
    let Some(millis) = limit else {
        return Some(Judgement::unknown("CONFIG is not permitted here"));
    };
    let text = format!("a slow script of anyone may hold up renewals for {millis} ms and more");
    Some(
        if std::time::Duration::from_millis(millis) >= share(facts, 3) {
            Judgement::warn(text).fix("CONFIG SET busy-reply-threshold 1000 (lua-time-limit before Redis 7), or raise --ttl; SLOWLOG GET 5 names the slow ones")
        } else {
            Judgement::ok(format!("{text}, less than a third of the TTL"))
        },
    )
}
