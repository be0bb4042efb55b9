//! Rules for one store. Of a server: its role, its commands, its memory, its disk, its replicas, delays and clocks, its
//! users, connections and keys. The version number decides nothing. An unknown setting is no fault, and neither is a
//! missing replica where none is configured. A clock that is far away is no fault either: each lease is counted on one
//! clock. No text shows a password or a value.

use std::time::Duration;

use leasehold::StoreErrorKind;
use leasehold::doctor::{Facts, FileFacts, IndexedKey, Part, ServerFacts, Without};

use super::finding::Unjudged::{self, NotApplicable, Unknown};
use super::finding::{FAIL, HINT, INFO, Judged, OK, RISK, WARN, graded, info, ok};

/// The server does not answer `INFO`, or not with this field.
const NO_INFO: Unjudged = Unknown(
    "INFO is not permitted here",
    Some("allow +info to this user"),
);

const NO_COMMAND: Unjudged = Unknown("COMMAND is not permitted here", None);

/// Answers take a large share of the TTL.
pub(super) fn ping(facts: &ServerFacts) -> Judged {
    let untimed = "PING is refused, so round trips were not timed";
    let p99 = facts.ping.ok_or(Unknown(untimed, None))?;
    let (tenth, third) = (facts.ttl / 10, facts.ttl / 3);
    let text = format!("99 % of answers within {p99:.1?}; a renewal may take {third:.1?}");
    let enough = p99 * 10;
    let fix = format!("raise --ttl above {enough:.0?}, or move closer to the server");
    let grade = match p99 {
        _ if p99 > third => RISK,
        _ if p99 > tenth => WARN,
        _ => OK,
    };
    graded(grade, text, fix)
}

/// It is a replica, which refuses every lock.
pub(super) fn role(facts: &ServerFacts) -> Judged {
    let fix = "give the URL of the primary";
    match facts.role() {
        None if facts.probe.refused_by("READONLY").is_some() => {
            graded(FAIL, "it refuses writes (READONLY): a replica?", fix)
        }
        None => Err(Unknown("neither ROLE nor INFO is permitted", None)),
        Some("sentinel") => Err(NotApplicable),
        Some("master") => ok("it is the primary"),
        Some(_) => {
            let place = facts.info("master_host").zip(facts.info("master_port"));
            let place = place.map_or_else(String::new, |(host, port)| format!(": {host}:{port}"));
            let text = "it is a replica; every lock is refused (READONLY)";
            graded(FAIL, text, format!("{fix}{place}"))
        }
    }
}

/// It is loading its data.
pub(super) fn loading(facts: &ServerFacts) -> Judged {
    let is_on = |field: &&str| facts.info(field) == Some("1");
    let is_loading = ["loading", "async_loading"].iter().any(is_on);
    if is_loading || facts.probe.refused_by("LOADING").is_some() {
        let text = "it is loading its data and takes no requests";
        return graded(FAIL, text, "wait until it has loaded");
    }
    if facts.info.is_none() && (facts.probe.left_out || !facts.probe.failed.is_empty()) {
        return Err(NO_INFO);
    }
    ok("its data are loaded")
}

/// The software and its version.
pub(super) fn engine(facts: &ServerFacts) -> Judged {
    let untold = Unknown("it does not say what it is (INFO)", None);
    let (engine, version) = facts.engine().ok_or(untold)?;
    info(format!("{engine} {version}"))
}

/// It is part of a cluster, or a sentinel.
pub(super) fn mode(facts: &ServerFacts) -> Judged {
    let untold = "it does not say whether it is part of a cluster (INFO)";
    match facts.mode().ok_or(Unknown(untold, None))? {
        "cluster" => {
            let text =
                "it is a node of a cluster, and a node of a quorum must be a server of its own";
            graded(FAIL, text, "use one with cluster-enabled no")
        }
        "sentinel" => {
            let text = "it is a sentinel, which keeps no locks";
            let fix = "write redis+sentinel://host[:26379]/NAME, with its name of the primary";
            graded(FAIL, text, fix)
        }
        mode => ok(mode),
    }
}

/// `ElastiCache` for Valkey 9.0 or newer in cluster mode may write each change to a log before it answers. `INFO` and `CONFIG` do not show it.
fn may_have_log(facts: &ServerFacts) -> bool {
    let version = facts.info("valkey_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|text| text.parse().ok());
    facts.info("os") == Some("Amazon ElastiCache")
        && facts.mode() == Some("cluster")
        && major.is_some_and(|major: u32| major >= 9)
}

/// Where a user of `ElastiCache` looks up the log.
const EFFECTIVE_DURABILITY: &str = "aws elasticache describe-replication-groups shows EffectiveDurability: with \"sync\" no granted lock is forgotten, with \"async\" up to 10 s of them are, with \"disabled\" all that no replica has. A serverless cache has no such log";

/// The log of `ElastiCache` decides, which no reply shows.
const HIDDEN_LOG: Unjudged = Unknown(
    "this is ElastiCache, which does not tell its clients whether it writes locks to its log before it answers",
    Some(EFFECTIVE_DURABILITY),
);

/// It came up within the TTL, so it may have forgotten locks that are still held.
pub(super) fn restart(facts: &ServerFacts) -> Judged {
    if facts.mode() == Some("cluster") && facts.role() != Some("master") {
        // It keeps no lock, and its primary does.
        return Err(NotApplicable);
    }
    let uptime = facts.info_number("uptime_in_seconds").ok_or(NO_INFO)?;
    let is_durable =
        facts.info("aof_enabled") == Some("1") && facts.config("appendfsync") == Some("always");
    if uptime >= facts.ttl.as_secs() || is_durable {
        return ok(format!("up for {uptime} s"));
    }
    if may_have_log(facts) {
        return Err(HIDDEN_LOG);
    }
    let text = format!(
        "restarted {uptime} s ago: locks granted before may be forgotten while their holders work on"
    );
    let fix = "wait for the longest TTL after a restart; see dur.mode";
    graded(RISK, text, fix)
}

/// The commands by which waiters in a cluster are woken.
const SHARDED: [&str; 3] = ["spublish", "pubsub|shardnumsub", "ssubscribe"];

/// A command of the scripts does not exist.
pub(super) fn scripts(facts: &ServerFacts) -> Judged {
    if facts.probe.left_out {
        return Err(NotApplicable);
    }
    let (missing, denied) = (&facts.probe.missing, &facts.probe.denied);
    let names: Vec<&str> = missing.iter().map(|part| part.name).collect();
    let names = names.join(", ").to_uppercase();
    let is_vital = |part: &Part| part.without == Without::NoLocks;
    let fix = "undo rename-command for these";
    if missing.iter().any(is_vital) {
        let text = format!("unknown here (renamed?): {names}; locks are scripts that need it");
        return graded(FAIL, text, fix);
    }
    let is_sharded = |part: &Part| SHARDED.contains(&part.name);
    let is_old = facts
        .redis_version()
        .is_some_and(|version| version < (7, 0));
    if !missing.is_empty() && is_old && missing.iter().all(is_sharded) {
        let text = "Redis before 7.0 has no channels of slots: waiters in a cluster poll";
        return graded(WARN, text, "upgrade to Redis 7.0 or Valkey");
    }
    if !missing.is_empty() {
        let text = format!(
            "unknown here (renamed?): {names}; waiters poll, a replica is found late, scripts are sent in full, or there are no cache entries"
        );
        return graded(WARN, text, fix);
    }
    if denied.iter().any(|part| part.name == "eval") {
        return Err(Unknown("this user may run no scripts; see acl.probe", None));
    }
    ok("scripts run")
}

/// Whether it has commands that compare and delete.
pub(super) fn compare_and_delete(facts: &ServerFacts) -> Judged {
    let known = facts.commands.as_ref().ok_or(NO_COMMAND)?;
    let is_known = |name: &&str| known.iter().any(|known| known == name);
    let Some(name) = ["delex", "delifeq"].into_iter().find(is_known) else {
        return info("no compare-and-delete command; locks use scripts");
    };
    info(format!(
        "{} frees a lock that nobody waits for; all else is done by scripts: they renew also when memory is full",
        name.to_uppercase()
    ))
}

/// Whether it has WAIT and WAITAOF.
pub(super) fn wait(facts: &ServerFacts) -> Judged {
    let known = facts.commands.as_ref().ok_or(NO_COMMAND)?;
    let waits = known.iter().filter(|name| name.starts_with("wait"));
    let waits: Vec<String> = waits.map(|name| name.to_uppercase()).collect();
    if waits.is_empty() {
        return info("neither WAIT nor WAITAOF");
    }
    let waits = waits.join(" and ");
    info(format!(
        "it knows {waits}; locks wait for replicas with replicas=1 in the URL"
    ))
}

const NO_POLICY: Unjudged = Unknown(
    "it does not say which keys it deletes when memory is full",
    Some("look up maxmemory-policy where the server is set up; it should be noeviction"),
);

const NO_EVICTION: &str =
    "CONFIG SET maxmemory-policy noeviction, or give the locks a server of their own";

/// When memory is full, it deletes keys, and held locks among them.
pub(super) fn eviction_policy(facts: &ServerFacts) -> Judged {
    let policy = facts.info("maxmemory_policy");
    let policy = policy.or_else(|| facts.config("maxmemory-policy"));
    let policy = policy.unwrap_or_default();
    let danger = match policy {
        "" => return Err(NO_POLICY),
        "noeviction" => {
            return ok("maxmemory_policy=noeviction: nothing is deleted for want of memory");
        }
        _ if policy.starts_with("volatile") => {
            "deletes keys with a TTL, and locks may be the only ones: a held lock goes first, silently"
        }
        _ if policy.ends_with("random") => "deletes any key, a held lock as well, silently",
        _ => "deletes what is seldom used: a held lock that is renewed seldom goes, silently",
    };
    let text = format!("maxmemory_policy={policy} {danger}");
    if facts.info_number("maxmemory") == Some(0) {
        let text = text + " (once maxmemory is set; it is 0 now)";
        return graded(HINT, text, NO_EVICTION);
    }
    graded(RISK, text, NO_EVICTION)
}

/// Memory is full, or soon will be.
pub(super) fn full_memory(facts: &ServerFacts) -> Judged {
    if let Some(said) = facts.probe.refused_by("OOM") {
        let text = format!("memory is full, and new locks are refused: {said}");
        let fix = "free memory or raise maxmemory; held locks are renewed meanwhile";
        return graded(FAIL, text, fix);
    }
    facts.info.as_ref().ok_or(NO_INFO)?;
    let used = facts.info_number("used_memory");
    let used = used.zip(facts.info_number("maxmemory"));
    let untold = Unknown("it does not say how much memory it uses", None);
    let (used, most) = used.ok_or(untold)?;
    if most == 0 {
        return ok("maxmemory=0: no limit of its own");
    }
    let percent = used.saturating_mul(100) / most;
    let text = format!("used_memory is {percent} % of maxmemory");
    let fix = "free memory or raise maxmemory; at 100 % new locks are refused (OOM)";
    let grade = match percent {
        96.. => RISK,
        86.. => WARN,
        _ => OK,
    };
    graded(grade, text, fix)
}

/// It deletes keys for want of memory. Only while it happens: the counter since the start says nothing of today.
pub(super) fn evictions(facts: &ServerFacts) -> Judged {
    let before = facts.info_number("evicted_keys").ok_or(NO_INFO)?;
    let rise = facts.rise("evicted_keys").ok_or(NotApplicable)?;
    if rise == 0 {
        return ok(format!("no key was evicted in 2 s (evicted_keys={before})"));
    }
    let text = format!("it is deleting keys now for want of memory ({rise} in 2 s)");
    graded(RISK, text, NO_EVICTION)
}

const NO_PERSISTENCE: Unjudged = Unknown(
    "it does not say what it writes to disk",
    Some("look up \"appendonly\" and \"appendfsync\" where the server is set up"),
);

const NO_FSYNC: Unjudged = Unknown(
    "there is an append-only file; how often it is written to disk, it does not say",
    Some("look up \"appendfsync\" where the server is set up; it should be always"),
);

const KEEP: &str = "appendonly yes and appendfsync always; or start it again only after the longest TTL; or check fences at the resource";

/// A restart forgets locks.
pub(super) fn persistence(facts: &ServerFacts) -> Judged {
    if may_have_log(facts) {
        return Err(HIDDEN_LOG);
    }
    let has_log = facts.info("aof_enabled").map(|on| on == "1");
    let has_log = has_log.or_else(|| Some(facts.config("appendonly")? == "yes"));
    if !has_log.ok_or(NO_PERSISTENCE)? {
        let text = match facts.config("save") {
            Some("") => "nothing is written to disk: a restart forgets all locks",
            _ => {
                "no append-only file: a restart forgets the locks since the last snapshot, which may be all of them"
            }
        };
        return graded(RISK, text, KEEP);
    }
    match facts.config("appendfsync").ok_or(NO_FSYNC)? {
        "always" => ok("appendfsync=always: a restart forgets nothing"),
        "everysec" => {
            let text = "appendfsync=everysec: a crash forgets up to 1 s of locks";
            graded(HINT, text, KEEP)
        }
        other => {
            let text = format!("appendfsync={other}: a crash forgets many seconds of locks");
            graded(RISK, text, KEEP)
        }
    }
}

/// The last save failed, so it may refuse writes.
pub(super) fn last_save(facts: &ServerFacts) -> Judged {
    let fix = "look at the server's log and its disk; with stop-writes-on-bgsave-error no, locks go on meanwhile";
    if let Some(said) = facts.probe.refused_by("MISCONF") {
        let text = format!("it refuses locks, renewals and releases, since saving failed: {said}");
        return graded(FAIL, text, fix);
    }
    facts.info.as_ref().ok_or(NO_INFO)?;
    let mut failed = Vec::new();
    for field in [
        "rdb_last_bgsave_status",
        "aof_last_write_status",
        "aof_last_bgrewrite_status",
    ] {
        if let Some(status) = facts.info(field).filter(|status| *status != "ok") {
            failed.push(format!("{field}={status}"));
        }
    }
    if failed.is_empty() {
        return ok("the last save worked");
    }
    let failed = failed.join(" ");
    let text = format!("{failed}: it may refuse locks, renewals and releases (MISCONF)");
    graded(RISK, text, fix)
}

/// The disk does not keep up with the append-only file.
pub(super) fn slow_disk(facts: &ServerFacts) -> Judged {
    if facts.info("aof_enabled") != Some("1") {
        return Err(NotApplicable);
    }
    let delayed = facts.rise("aof_delayed_fsync").ok_or(NotApplicable)?;
    if delayed == 0 {
        return ok("the disk keeps up");
    }
    let text = format!("the disk does not keep up ({delayed} delayed in 2 s): answers are late");
    graded(WARN, text, "a faster disk, or less else on it")
}

/// How many replicas a primary has.
fn connected(facts: &ServerFacts) -> Result<u64, Unjudged> {
    if facts.role().is_some_and(|role| role != "master") {
        return Err(NotApplicable);
    }
    facts.info_number("connected_slaves").ok_or(NO_INFO)
}

/// It has no replica, or one that is out of step.
pub(super) fn replicas(facts: &ServerFacts) -> Judged {
    let count = connected(facts)?;
    if count == 0 {
        let text = "no replica: while this server is down there are no locks";
        let fix = "add a replica and min-replicas-to-write 1, or live with the outage";
        return graded(HINT, text, fix);
    }
    let states = (0..count).filter_map(|number| facts.info(&format!("slave{number}")));
    let late = states.filter(|state| !state.contains("state=online"));
    let late = late.count();
    if late == 0 {
        return ok(format!("{count} replicas, in step"));
    }
    let text = format!("{late} of {count} replicas are not in step");
    let fix = "wait for their first synchronisation, or look at their logs";
    graded(HINT, text, fix)
}

/// Writes do not wait for replicas. `INFO` shows the number of good replicas only where writes depend on it.
pub(super) fn unconfirmed_writes(facts: &ServerFacts) -> Judged {
    let count = connected(facts)?;
    if count == 0 {
        return Err(NotApplicable);
    }
    if facts.info("min_slaves_good_slaves").is_some() {
        return ok("writes stop when replicas are missing (min-replicas-to-write)");
    }
    if may_have_log(facts) {
        return Err(HIDDEN_LOG);
    }
    let text = format!(
        "connected_slaves={count}, and writes do not wait for them: a failover may forget the newest locks"
    );
    let fix = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10 narrow the gap; only fences close it";
    graded(HINT, text, fix)
}

/// It refuses writes, since replicas are missing.
pub(super) fn too_few_replicas(facts: &ServerFacts) -> Judged {
    let refused = |why: String| {
        let text = format!("{why}: locks are not granted, renewed or released (NOREPLICAS)");
        let fix = "bring the replicas back, or lower min-replicas-to-write";
        graded(FAIL, text, fix)
    };
    let good = facts.info_number("min_slaves_good_slaves");
    if facts.probe.refused_by("NOREPLICAS").is_some() {
        let good = good.map_or_else(String::new, |good| format!(" ({good} good ones)"));
        return refused(format!("too few replicas{good}"));
    }
    let good = good.ok_or(NotApplicable)?;
    match facts.config_number("min-replicas-to-write") {
        Some(wanted) if good < wanted => refused(format!("{good} good replicas of {wanted}")),
        Some(wanted) => ok(format!("{good} good replicas, {wanted} are needed")),
        None if facts.probe.left_out => Err(NotApplicable),
        None => ok(format!("{good} good replicas, and writes are taken")),
    }
}

/// The last fork stopped the server for long.
pub(super) fn fork(facts: &ServerFacts) -> Judged {
    let micros = facts.info_number("latest_fork_usec").ok_or(NO_INFO)?;
    let took = Duration::from_micros(micros);
    if micros == 0 {
        return ok("it has not forked yet");
    }
    let is_long = took > Duration::from_millis(100).min(facts.ttl / 10);
    let text = format!("the last fork held it up for {took:.1?}");
    let fix = "disable transparent huge pages; keep less data beside the locks";
    graded(if is_long { WARN } else { OK }, text, fix)
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
        return graded(WARN, text, "LATENCY DOCTOR says more; raise --ttl");
    }
    match facts.config_number("latency-monitor-threshold") {
        None if facts.latency.is_none() => {
            Err(Unknown("CONFIG and LATENCY are not permitted here", None))
        }
        Some(0) => {
            let text = "it does not record when it stands still";
            graded(INFO, text, "CONFIG SET latency-monitor-threshold 100")
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
    graded(WARN, text, fix)
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
    graded(HINT, text, "synchronise both (NTP)")
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
    graded(RISK, text, fix)
}

/// This host stalls.
pub(super) fn host_stalls(facts: &ServerFacts) -> Judged {
    let stall = facts.stall.ok_or(NotApplicable)?;
    let text = format!("in 1 s this host stood still for {stall:.1?} at most");
    if stall <= facts.ttl / 20 {
        return ok(text);
    }
    let fix = "give it more CPU (look for throttling), or raise --ttl";
    graded(WARN, format!("{text}: renewals may be late"), fix)
}

/// The server removes expired keys late.
pub(super) fn late_expiry(facts: &ServerFacts) -> Judged {
    let rise = facts.rise("expired_time_cap_reached_count");
    if rise.ok_or(NotApplicable)? == 0 {
        return ok("expired keys are removed in time");
    }
    info("it is behind with removing expired keys: they still show in SCAN; locks are not affected")
}

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
        let mut cost =
            "waiters poll, scripts are sent in full, or inspect and the list of names fail"
                .to_owned();
        if lacks.contains("+cluster|slots") || lacks.contains("+asking") {
            cost += ", requests take detours, or fail while a slot moves";
        }
        costs.push(format!("this user lacks {lacks}: {cost}"));
    }
    for (part, said) in &facts.probe.refused {
        let name = part.name.replace('|', " ").to_uppercase();
        let cost = match part.name {
            // Without RESP3, nobody listens in a cluster.
            "subscribe" | "ssubscribe" | "hello" => "waiters poll",
            "cluster|slots" => "requests take detours",
            "asking" => "requests fail while a slot moves",
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
    if probe.left_out {
        return Err(NotApplicable);
    }
    let vital = lacks(facts, Without::NoLocks);
    if !vital.is_empty() {
        return graded(FAIL, format!("this user lacks {vital}: no locks"), acl);
    }
    if let Some(pattern) = &probe.barred {
        let text = format!(
            "this user may not read and write the keys ~{pattern} and those beside them: no such locks"
        );
        return graded(FAIL, text, acl);
    }
    // Writing the index needs what only it uses.
    let lacks_index = !lacks(facts, Without::Worse).is_empty();
    let is_index = |what: &str| what == "index" && lacks_index;
    // The role and the mode of the server have checks of their own.
    let is_told = |what: &str, kind: StoreErrorKind, said: &str| {
        let is_replica = kind == StoreErrorKind::ReadOnly;
        TOLD_ELSEWHERE.iter().any(|word| said.contains(word)) || what == "connect" && is_replica
    };
    let mut failed = probe.failed.iter();
    let failed = failed.find(|(what, kind, said)| !is_told(what, *kind, said) && !is_index(what));
    // A command that does not exist is told by cap.lua.
    if let (Some((what, kind, said)), true) = (failed, probe.missing.is_empty()) {
        let text = match *what {
            "connect" => format!("no client can connect: {said}"),
            what => format!("{what} failed on a scratch lock leasehold:doctor:*: {said}"),
        };
        let fix = match kind {
            StoreErrorKind::Denied => acl,
            StoreErrorKind::Misconfigured => "change what the message names",
            _ => "this should not be: please report it, with what the server says of itself",
        };
        return graded(FAIL, text, fix);
    }
    let costs = costs(facts);
    if !costs.is_empty() && probe.failed.iter().all(|(what, ..)| is_index(what)) {
        let fix = match &probe.refused[..] {
            [] => acl,
            _ => "allow these commands where the service or proxy is set up, or do without",
        };
        return graded(WARN, costs.join("; "), fix);
    }
    if !probe.failed.is_empty() || !probe.missing.is_empty() {
        let text = "not all could be tried, for a reason that another check tells";
        return Err(Unknown(text, None));
    }
    if !probe.heard && !probe.untried {
        return graded(WARN, "no wake arrived: waiters poll", acl);
    }
    let mut less = Vec::new();
    let of_entries = lacks(facts, Without::NoCache);
    if !of_entries.is_empty() {
        less.push(format!("for cache entries, this user lacks {of_entries}"));
    }
    if facts.info.is_none() {
        less.push(UNNAMED.into());
    }
    if less.is_empty() && probe.untried {
        return ok(
            "this user may do what locks need; none was tried, since this node has no slot for it",
        );
    }
    if less.is_empty() {
        return ok(
            "a scratch lock was taken, waited for, renewed, handed over and freed; wakes arrive",
        );
    }
    let works = if probe.untried {
        "this user may do what locks need"
    } else {
        "locks work, wakes arrive"
    };
    let text = format!("{works}; {}", less.join("; "));
    graded(INFO, text, acl)
}

/// This user may do more than locks need.
pub(super) fn wide_user(facts: &ServerFacts) -> Judged {
    let fix = format!("use a user for locks only:\n{}", facts.acl);
    match facts.user.as_deref() {
        Some("default") => {
            let text = "this is the default user, who may do almost anything";
            graded(HINT, text, fix)
        }
        _ if facts.config.is_some() => {
            let text = "this user may use CONFIG, and so rewrite the server's settings";
            graded(HINT, text, fix)
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
        graded(WARN, text, "use rediss:// (TLS)")
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
    graded(WARN, text, "CONFIG SET timeout 0")
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
    graded(WARN, format!("{text}: new ones may be refused"), fix)
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
    let text = format!("without a TTL, nobody will ever free: {listed}");
    graded(FAIL, text, fix)
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
    graded(WARN, text, fix)
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
    graded(
        INFO,
        text,
        "a server for locks only, if waiting times matter",
    )
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
        return graded(FAIL, text, fix);
    };
    let fix = "free space there (df shows it), give this user the right to write, or choose another with local:/path/to/file";
    graded(FAIL, format!("{text}: {why}"), fix)
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
    graded(INFO, text, "for several hosts: redis://host:6379/")
}

/// Locks in memory are for one client.
pub(super) fn one_client(_: &Facts) -> Judged {
    let text = "these locks are for one client; nobody else sees them";
    graded(INFO, text, "for the processes of this host: local:")
}
