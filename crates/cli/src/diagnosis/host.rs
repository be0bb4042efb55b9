//! Rules for delays and clocks, of the server and of this host, and for the stores of one host. A clock that is far away is no fault: each
//! lease is counted on one clock.

use std::time::Duration;

use leasehold::doctor::{Facts, FileFacts, ServerFacts};

use super::finding::State::{Fail, Info, Warn};
use super::finding::Unjudged::{NotApplicable, Unknown};
use super::finding::{Judged, NO_INFO, advise, fail, graded, info, ok, warn};

/// The last fork stopped the server for long.
pub(super) fn fork(facts: &ServerFacts) -> Judged {
    let micros = facts.info_number("latest_fork_usec").ok_or(NO_INFO)?;
    let took = Duration::from_micros(micros);
    let text = format!("the last fork held it up for {took:.1?}");
    if took > Duration::from_millis(100).min(facts.ttl / 10) {
        let fix = "disable transparent huge pages; keep less data beside the locks";
        warn(text, fix)
    } else if micros == 0 {
        ok("it has not forked yet")
    } else {
        ok(text)
    }
}

/// The server recorded long stalls, or records none.
pub(super) fn server_stalls(facts: &ServerFacts) -> Judged {
    let mut long = Vec::new();
    for (event, millis) in facts.latency.iter().flatten() {
        if Duration::from_millis(*millis) > facts.ttl / 10 {
            long.push(format!("{event} {millis} ms"));
        }
    }
    if !long.is_empty() {
        let long = long.join(", ");
        let text = format!("it stood still longer than a tenth of the TTL: {long}");
        return warn(text, "LATENCY DOCTOR says more; raise --ttl");
    }
    match facts.config_number("latency-monitor-threshold") {
        None if facts.latency.is_none() => {
            Err(Unknown("CONFIG and LATENCY are not permitted here", None))
        }
        Some(0) => {
            let text = "it does not record when it stands still";
            advise(text, "CONFIG SET latency-monitor-threshold 100")
        }
        _ => ok("no event longer than a tenth of the TTL"),
    }
}

/// A slow script of anyone holds up renewals. It can be stopped only after this time; until then others hear nothing.
pub(super) fn slow_scripts(facts: &ServerFacts) -> Judged {
    let limit = facts.config_number("busy-reply-threshold");
    let limit = limit.or_else(|| facts.config_number("lua-time-limit"));
    let millis = limit.ok_or(Unknown("CONFIG is not permitted here", None))?;
    let text = format!("a slow script of anyone may hold up renewals for {millis} ms and more");
    if Duration::from_millis(millis) < facts.ttl / 3 {
        return ok(format!("{text}, less than a third of the TTL"));
    }
    let fix = "CONFIG SET busy-reply-threshold 1000 (lua-time-limit before Redis 7), or raise --ttl; SLOWLOG GET 5 names the slow ones";
    warn(text, fix)
}

/// The clocks of server and host are far apart.
pub(super) fn clock_offset(facts: &ServerFacts) -> Judged {
    let untold = Unknown("TIME is not permitted here", None);
    let (apart, error) = facts.offset.ok_or(untold)?;
    let text = format!("the server's clock and this host's are {apart:.1?} apart (±{error:.1?})");
    if apart.saturating_sub(error) <= Duration::from_millis(500) {
        return ok(text);
    }
    let text = format!("{text}; leases do not depend on it, log lines do");
    graded(Info, Warn, text, "synchronise both (NTP)")
}

/// The clock of the server jumps.
pub(super) fn clock_steps(facts: &ServerFacts) -> Judged {
    let apart = facts.step.ok_or(NotApplicable)?;
    let text = format!("in 5 s the server's clock ran {apart:.1?} off this host's");
    if apart <= Duration::from_millis(50) {
        return ok(text);
    }
    let text = format!("{text}: it jumps, and leases end early or late by that");
    let fix = "let NTP slew the server's clock and not step it; pause no virtual machine";
    graded(Warn, Fail, text, fix)
}

/// This host stalls.
pub(super) fn host_stalls(facts: &ServerFacts) -> Judged {
    let stall = facts.stall.ok_or(NotApplicable)?;
    let text = format!("in 1 s this host stood still for {stall:.1?} at most");
    if stall <= facts.ttl / 20 {
        return ok(text);
    }
    let fix = "give it more CPU (look for throttling), or raise --ttl";
    warn(format!("{text}: renewals may be late"), fix)
}

/// The server removes expired keys late.
pub(super) fn late_expiry(facts: &ServerFacts) -> Judged {
    let rise = facts.rise("expired_time_cap_reached_count");
    if rise.ok_or(NotApplicable)? == 0 {
        return ok("expired keys are removed in time");
    }
    let text =
        "it is behind with removing expired keys: they still show in SCAN; locks are not affected";
    info(text)
}

/// This user cannot write the file.
pub(super) fn writable_file(facts: &FileFacts) -> Judged {
    let not = if facts.is_writable { "" } else { "not " };
    let text = format!(
        "the file can be read ({} locks) and, with its directory, {not}be written",
        facts.locks
    );
    if facts.is_writable {
        return ok(text);
    }
    let Some(why) = &facts.refusal else {
        let fix = "give this user the right to write the file and its directory, or choose another with local:/path/to/file";
        return fail(text, fix);
    };
    let fix = "free space there (df shows it), give this user the right to write, or choose another with local:/path/to/file";
    fail(format!("{text}: {why}"), fix)
}

/// The file may be on a file system that hosts share.
pub(super) fn file_system(facts: &FileFacts) -> Judged {
    let untold = "the kind of its file system is not known; on one that hosts share, locks break";
    let kind = facts.file_system.as_ref().ok_or(Unknown(untold, None))?;
    ok(format!("it is on {kind}, which no other host shares"))
}

/// Locks in a file are for one host.
pub(super) fn one_host(_: &FileFacts) -> Judged {
    let text = "these locks are for the processes of this host; others do not see them";
    advise(text, "for several hosts: redis://host:6379/")
}

/// Locks in memory are for one client.
pub(super) fn one_client(_: &Facts) -> Judged {
    let text = "these locks are for one client; nobody else sees them";
    advise(text, "for the processes of this host: local:")
}
