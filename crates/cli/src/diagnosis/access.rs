//! Rules for users, connections and keys. No text shows a password or a value.

use std::time::Duration;

use leasehold::StoreErrorKind;
use leasehold::doctor::{IndexedKey, ServerFacts, Without};

use super::finding::State::{Info, Warn};
use super::finding::Unjudged::{self, NotApplicable, Unknown};
use super::finding::{Judged, advise, fail, graded, ok, warn};

/// Refusals that other checks tell.
const TOLD_ELSEWHERE: [&str; 5] = ["OOM", "MISCONF", "NOREPLICAS", "READONLY", "LOADING"];

/// The cost of a server that does not say which one it is.
const UNNAMED: &str = "INFO is refused: each new connection counts as one to another server";

/// What this user lacks with one consequence, as part of an ACL rule.
fn lacks(facts: &ServerFacts, without: Without) -> String {
    let mut lacks = Vec::new();
    for part in &facts.probe.denied {
        if part.without == without {
            let is_place = part.name.starts_with(['~', '&']);
            let sign = if is_place { "" } else { "+" };
            lacks.push(format!("{sign}{}", part.name));
        }
    }
    lacks.join(" ")
}

/// What this user or this server refuses, and locks can do without: what that costs.
fn costs(facts: &ServerFacts) -> Vec<String> {
    let mut costs = Vec::new();
    let lacks = lacks(facts, Without::Worse);
    if !lacks.is_empty() {
        costs.push(format!(
            "this user lacks {lacks}: waiters poll, scripts are sent in full, or inspect and the list of names fail"
        ));
    }
    for (part, said) in &facts.probe.refused {
        let name = part.name.replace('|', " ").to_uppercase();
        let cost = match part.name {
            "subscribe" => "waiters poll",
            "role" => "a replica is known only by its first refusal",
            "client|tracking" | "client|caching" => {
                "values in a process stay until they are too old"
            }
            _ => "scripts are sent in full",
        };
        costs.push(format!("{name} is refused (\"{said}\"): {cost}"));
    }
    if facts.info.is_none() && !costs.is_empty() {
        costs.push(UNNAMED.into());
    }
    costs
}

/// This user or this server refuses what a lock needs.
pub(super) fn scratch_lock(facts: &ServerFacts) -> Judged {
    let (probe, acl) = (&facts.probe, facts.acl.as_str());
    let vital = lacks(facts, Without::NoLocks);
    if !vital.is_empty() {
        return fail(format!("this user lacks {vital}: no locks"), acl);
    }
    if let Some(pattern) = &probe.barred {
        let text = format!(
            "this user may not read and write the keys ~{pattern} and those beside them: no such locks"
        );
        return fail(text, acl);
    }
    // Writing the index needs what only it uses.
    let lacks_index = !lacks(facts, Without::Worse).is_empty();
    let is_index = |what: &str| what == "index" && lacks_index;
    // The role and the mode of the server have checks of their own.
    let is_told = |what: &str, kind: StoreErrorKind, said: &str| {
        let is_replica = kind == StoreErrorKind::ReadOnly;
        TOLD_ELSEWHERE.iter().any(|word| said.contains(word))
            || what == "connect" && (is_replica || said.contains("Redis Cluster"))
    };
    let mut failed = probe.failed.iter();
    let failed = failed.find(|(what, kind, said)| !is_told(what, *kind, said) && !is_index(what));
    // A command that does not exist is told by cap.lua.
    if let (Some((what, kind, said)), true) = (failed, probe.missing.is_empty()) {
        let text = match *what {
            "connect" => format!("no client can connect: {said}"),
            what => format!("{what} failed on a scratch lock leasehold:doctor:*: {said}"),
        };
        if *kind == StoreErrorKind::Denied {
            return fail(text, acl);
        }
        let fix = "this should not be: please report it, with what the server says of itself";
        return fail(text, fix);
    }
    let costs = costs(facts);
    if !costs.is_empty() && probe.failed.iter().all(|(what, ..)| is_index(what)) {
        let fix = match &probe.refused[..] {
            [] => acl,
            _ => "allow these commands where the service or proxy is set up, or do without",
        };
        return warn(costs.join("; "), fix);
    }
    if !probe.failed.is_empty() || !probe.missing.is_empty() {
        let text = "not all could be tried, for a reason that another check tells";
        return Err(Unknown(text, None));
    }
    if !probe.heard {
        return warn("no wake arrived: waiters poll", acl);
    }
    let mut less = Vec::new();
    let of_entries = lacks(facts, Without::NoCache);
    if !of_entries.is_empty() {
        less.push(format!("for cache entries, this user lacks {of_entries}"));
    }
    if facts.info.is_none() {
        less.push(UNNAMED.into());
    }
    if less.is_empty() {
        let text =
            "a scratch lock was taken, waited for, renewed, handed over and freed; wakes arrive";
        return ok(text);
    }
    advise(
        format!("locks work, wakes arrive; {}", less.join("; ")),
        acl,
    )
}

/// This user may do more than locks need.
pub(super) fn wide_user(facts: &ServerFacts) -> Judged {
    let fix = format!("use a user for locks only:\n{}", facts.acl);
    match facts.user.as_deref() {
        Some("default") => {
            let text = "this is the default user, who may do almost anything";
            graded(Info, Warn, text, fix)
        }
        _ if facts.config.is_some() => {
            let text = "this user may use CONFIG, and so rewrite the server's settings";
            graded(Info, Warn, text, fix)
        }
        Some(user) => {
            let user = user.escape_debug();
            ok(format!("the user \"{user}\", who may not use CONFIG"))
        }
        None => {
            let text = "ACL is not permitted here, which speaks for a narrow user";
            Err(Unknown(text, None))
        }
    }
}

/// The password goes over the network in clear.
pub(super) fn clear_text(facts: &ServerFacts) -> Judged {
    let transport = &facts.transport;
    if transport.is_private {
        ok("nobody on the way can read along")
    } else if transport.has_password && !transport.is_loopback {
        let text = "the password goes over the network in clear";
        warn(text, "use rediss:// (TLS)")
    } else {
        ok("no TLS, and no password that leaves this host")
    }
}

const NO_TIMEOUT: Unjudged = Unknown(
    "CONFIG is not permitted here",
    Some("look up \"timeout\" where the server is set up; it should be 0"),
);

/// It drops clients between their renewals.
pub(super) fn idle_timeout(facts: &ServerFacts) -> Judged {
    let seconds = facts.config_number("timeout").ok_or(NO_TIMEOUT)?;
    if seconds == 0 || Duration::from_secs(seconds) >= facts.ttl / 3 {
        return ok(format!(
            "timeout={seconds}: no client is dropped between renewals"
        ));
    }
    let text = format!(
        "timeout={seconds}: it drops clients that are silent for {seconds} s, less than the time between renewals"
    );
    warn(text, "CONFIG SET timeout 0")
}

const NO_CLIENTS: Unjudged = Unknown("it does not say how many clients it has (INFO)", None);

/// It has almost as many clients as it takes.
pub(super) fn clients(facts: &ServerFacts) -> Judged {
    let most = facts.info_number("maxclients");
    let most = most.or_else(|| facts.config_number("maxclients"));
    let now = facts.info_number("connected_clients");
    let (now, most) = now.zip(most).ok_or(NO_CLIENTS)?;
    let rejected = facts.info_number("rejected_connections").unwrap_or(0);
    let text = format!("{now} clients of {most}, {rejected} rejected since its start");
    if now.saturating_mul(100) <= most.saturating_mul(80) && rejected == 0 {
        return ok(text);
    }
    let fix = "raise maxclients (and the server's ulimit -n), or find who keeps connections";
    warn(format!("{text}: new ones may be refused"), fix)
}

const NO_INDEX: Unjudged = Unknown("this user may not read the index of names", None);

/// Some of the keys, as many as fit into a line.
fn listed(keys: &[&IndexedKey]) -> String {
    const SHOWN: usize = 3;
    let mut listed = Vec::new();
    for key in keys.iter().take(SHOWN) {
        listed.push(format!("\"{}\" ({})", key.name.escape_debug(), key.kind));
    }
    let listed = listed.join(", ");
    match keys.len().saturating_sub(SHOWN) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// A lock has no TTL.
pub(super) fn immortal_keys(facts: &ServerFacts) -> Judged {
    let locks = facts.locks.as_ref().ok_or(NO_INDEX)?;
    let immortal: Vec<&IndexedKey> = locks.iter().filter(|lock| lock.left == -1).collect();
    let Some(first) = immortal.first() else {
        let hidden = match facts.hidden_locks {
            0 => String::new(),
            hidden => format!("; {hidden} more, which this user may not read"),
        };
        let count = locks.len();
        return ok(format!(
            "{count} locks in the index, all with a TTL{hidden}"
        ));
    };
    let listed = listed(&immortal);
    let name = first.name.escape_debug();
    let fix = format!(
        "leasehold inspect \"{name}\" says who has it; then leasehold break \"{name}\" --if-fence N, or DEL if it is foreign"
    );
    fail(
        format!("without a TTL, nobody will ever free: {listed}"),
        fix,
    )
}

/// Another program keeps data under the name of a lock.
pub(super) fn foreign_keys(facts: &ServerFacts) -> Judged {
    let locks = facts.locks.as_ref().ok_or(NO_INDEX)?;
    let foreign: Vec<&IndexedKey> = locks.iter().filter(|lock| lock.kind != "string").collect();
    if foreign.is_empty() {
        return ok("no lock of another program's form in the index");
    }
    let text = format!("kept by another program: {}", listed(&foreign));
    let fix = "a hash is Redisson's, a sorted set Symfony's: leasehold sees it as held and never breaks it; use another name";
    warn(text, fix)
}

/// More than these keys are more than locks.
const MANY: u64 = 100_000;

/// It serves more than locks.
pub(super) fn other_data(facts: &ServerFacts) -> Judged {
    let info = facts.info.as_ref().ok_or(NotApplicable)?;
    let count = |(name, about): (&String, &String)| {
        let number = name.strip_prefix("db")?;
        let count = about.strip_prefix("keys=")?.split(',').next()?;
        let is_database = number.bytes().all(|byte| byte.is_ascii_digit());
        is_database.then(|| count.parse::<u64>().ok())?
    };
    let keys: u64 = info.0.iter().filter_map(count).sum();
    if keys <= MANY {
        return ok(format!("{keys} keys"));
    }
    let text = format!("{keys} keys: shared with other data, whose slow commands hold up locks");
    advise(text, "a server for locks only, if waiting times matter")
}
