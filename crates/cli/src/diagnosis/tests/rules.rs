//! Each rule on facts that were made for it, also on facts that real servers seldom show.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::rows;

use crate::diagnosis::{
    CLUSTER, FILE, Finding, MEMORY, NOT_OF_A_CLUSTER, NOT_OF_A_NODE, Purpose, QUORUM, SERVER,
    State, findings,
};
use leasehold::StoreErrorKind;
use leasehold::doctor::{
    Facts, Fields, FileFacts, IndexedKey, Part, Probe, ServerFacts, Transport, Without,
};

/// A server on which all is well.
const WELL: &str = "redis_version:7.0.15\nredis_mode:standalone\nrole:master\nuptime_in_seconds:90000\n\
    loading:0\nasync_loading:0\nconnected_clients:5\nmaxclients:10000\nrejected_connections:0\nused_memory:1000\n\
    maxmemory:0\nmaxmemory_policy:noeviction\nevicted_keys:0\nexpired_time_cap_reached_count:0\naof_enabled:1\n\
    aof_delayed_fsync:0\naof_last_write_status:ok\naof_last_bgrewrite_status:ok\nrdb_last_bgsave_status:ok\n\
    latest_fork_usec:500\nconnected_slaves:1\nslave0:ip=127.0.0.1,port=1,state=online,offset=0,lag=0\n\
    min_slaves_good_slaves:1\ncluster_enabled:0\ndb0:keys=5,expires=5,avg_ttl=0\n";

const SETTINGS: &str = "appendfsync:always\ntimeout:0\nbusy-reply-threshold:5000\n\
    latency-monitor-threshold:100\nmin-replicas-to-write:1\nsave:\n";

/// A password in clear text, which others can read on the way.
const ON_THE_WAY: Transport = Transport {
    is_private: false,
    is_loopback: false,
    has_password: true,
};

fn well() -> ServerFacts {
    let mut facts = ServerFacts::default();
    facts.ttl = Duration::from_secs(30);
    facts.transport = Transport {
        is_private: true,
        is_loopback: true,
        has_password: true,
    };
    facts.info = Some(Fields::of_info(WELL));
    facts.later = Some(Fields::of_info(WELL));
    facts.config = Some(Fields::of_info(SETTINGS));
    facts.role = Some("master".into());
    facts.user = Some("leasehold".into());
    facts.commands = Some(vec!["wait".into()]);
    facts.latency = Some(Vec::new());
    facts.ping = Some(Duration::from_millis(1));
    facts.offset = Some((Duration::from_millis(1), Duration::ZERO));
    facts.step = Some(Duration::ZERO);
    facts.stall = Some(Duration::ZERO);
    facts.probe.heard = true;
    facts.locks = Some(Vec::new());
    facts.acl = "ACL SETUSER leasehold".into();
    facts
}

/// A good server, with these fields of INFO or of the settings.
fn with(change: &str) -> ServerFacts {
    let mut facts = well();
    for fields in [&mut facts.info, &mut facts.config] {
        let fields = fields.as_mut().unwrap();
        fields.0.extend(Fields::of_info(change).0);
    }
    facts
}

fn judge(facts: &ServerFacts) -> Vec<Finding> {
    findings(SERVER, facts, Purpose::Efficiency)
}

fn found(facts: &ServerFacts, id: &str) -> Finding {
    let finding = judge(facts).into_iter().find(|finding| finding.id == id);
    finding.unwrap_or_else(|| panic!("{id} says nothing"))
}

/// The two states of a finding: `efficiency/correctness`.
fn states(facts: &ServerFacts, id: &str) -> String {
    let finding = found(facts, id);
    let states = [finding.efficiency, finding.correctness];
    let is_bad = states.iter().any(|state| *state >= Warn);
    assert!(!is_bad || finding.remedy.is_some(), "{finding:?}");
    states
        .map(|state| format!("{state:?}").to_lowercase())
        .join("/")
}

fn text(facts: &ServerFacts, id: &str) -> String {
    found(facts, id).text
}

use State::{Fail, Info, Unknown, Warn};

#[test]
fn a_good_server_has_nothing_against_it() {
    let bad: Vec<_> = judge(&well())
        .into_iter()
        .filter(|finding| {
            finding.efficiency.max(finding.correctness) > Info && finding.id != "acl.wide"
        })
        .collect();
    assert_eq!(bad, []);
}

#[test]
fn each_field_is_judged() {
    // Redis Enterprise and others name no policy.
    let table = "
        maxmemory_policy:volatile-lru maxmemory:5000   | mem.policy    | warn/fail
        maxmemory_policy:allkeys-random maxmemory:5000 | mem.policy    | warn/fail
        maxmemory_policy:allkeys-lru                   | mem.policy    | info/warn
        maxmemory_policy:                              | mem.policy    | unknown/unknown
        used_memory:86 maxmemory:100                   | mem.full      | warn/warn
        used_memory:96 maxmemory:100                   | mem.full      | warn/fail
        used_memory:85 maxmemory:100                   | mem.full      | ok/ok
        aof_enabled:0                                  | dur.mode      | warn/fail
        appendfsync:everysec                           | dur.mode      | info/warn
        appendfsync:no                                 | dur.mode      | warn/fail
        rdb_last_bgsave_status:err                     | dur.health    | warn/fail
        aof_last_write_status:err                      | dur.health    | warn/fail
        latest_fork_usec:150000                        | fork.stall    | warn/warn
        latency-monitor-threshold:0                    | lat.monitor   | info/info
        busy-reply-threshold:10000                     | lat.script    | warn/warn
        connected_slaves:0                             | rep.count     | info/warn
        slave0:ip=1,port=1,state=wait_bgsave           | rep.count     | info/warn
        min_slaves_good_slaves:                        | rep.ack       | info/warn
        min_slaves_good_slaves:0                       | rep.short     | fail/fail
        timeout:9                                      | net.timeout   | warn/warn
        timeout:10                                     | net.timeout   | ok/ok
        connected_clients:8001                         | net.clients   | warn/warn
        rejected_connections:1                         | net.clients   | warn/warn
        loading:1                                      | reach.loading | fail/fail
        async_loading:1                                | reach.loading | fail/fail
        redis_mode:sentinel                            | id.mode       | fail/fail
        cluster_enabled:1                              | id.mode       | fail/fail
        uptime_in_seconds:29 aof_enabled:0             | id.restart    | warn/fail
        uptime_in_seconds:29                           | id.restart    | ok/ok
        db0:keys=100001,expires=5,avg_ttl=0            | key.shared    | info/info
    ";
    for [change, id, expected] in rows(table) {
        let facts = with(&change.replace(' ', "\n"));
        assert_eq!(states(&facts, id), expected, "{change}");
    }
}

/// Its writes may be synchronous, which only its administration shows. An older one, or one that is no cluster, has no such log.
#[test]
fn log_of_elasticache_has_to_be_looked_up() {
    let hidden = "os:Amazon ElastiCache\nredis_mode:cluster\ncluster_enabled:1\nvalkey_version:9.0.1\n\
        uptime_in_seconds:5\naof_enabled:0\n";
    let mut facts = with(hidden);
    let info = facts.info.as_mut().unwrap();
    // Not told where writes do not depend on it.
    info.0.remove("min_slaves_good_slaves");
    for id in ["dur.mode", "rep.ack", "id.restart"] {
        assert_eq!(states(&facts, id), "unknown/unknown");
        let finding = found(&facts, id);
        assert!(finding.text.contains("ElastiCache"), "{finding:?}");
        let remedy = finding.remedy.unwrap();
        assert!(remedy.contains("EffectiveDurability"), "{remedy}");
    }
    for older in [
        "valkey_version:8.2.0\n",
        "cluster_enabled:0\nredis_mode:standalone\n",
    ] {
        let facts = with(&format!("{hidden}{older}"));
        assert_eq!(states(&facts, "dur.mode"), "warn/fail", "{older}");
    }
}

#[test]
fn what_rises_is_judged_by_its_rise() {
    for (change, id, expected) in [
        ("evicted_keys:3", "mem.evicted", "warn/fail"),
        ("aof_delayed_fsync:1", "dur.fsync", "warn/warn"),
        ("expired_time_cap_reached_count:4", "hz", "info/info"),
    ] {
        let mut facts = well();
        let later = facts.later.as_mut().unwrap();
        later.0.extend(Fields::of_info(change).0);
        assert_eq!(states(&facts, id), expected, "{change}");
        // High for long is no news.
        let mut high = with(change);
        high.later.clone_from(&high.info);
        assert_eq!(states(&high, id), "ok/ok", "{change}");
    }
}

#[test]
fn what_was_measured_is_judged_by_the_ttl() {
    const MS: fn(u64) -> Duration = Duration::from_millis;
    type Change = fn(&mut ServerFacts);
    let cases: [(Change, &str, &str); 12] = [
        (|it| it.ping = Some(MS(3_001)), "reach.ping", "warn/warn"),
        (|it| it.ping = Some(MS(10_001)), "reach.ping", "warn/fail"),
        (|it| it.ping = None, "reach.ping", "unknown/unknown"),
        (
            |it| it.offset = Some((MS(9_000), MS(0))),
            "clk.offset",
            "info/warn",
        ),
        (
            |it| it.offset = Some((MS(9_000), MS(9_000))),
            "clk.offset",
            "ok/ok",
        ),
        (|it| it.step = Some(MS(51)), "clk.step", "warn/fail"),
        (|it| it.stall = Some(MS(1_501)), "clk.self", "warn/warn"),
        (
            |it| it.latency = Some(vec![("command".into(), 3_001)]),
            "lat.monitor",
            "warn/warn",
        ),
        (
            |it| it.role = Some("slave".into()),
            "reach.role",
            "fail/fail",
        ),
        (
            |it| it.user = Some("default".into()),
            "acl.wide",
            "info/warn",
        ),
        (|it| it.probe.heard = false, "acl.probe", "warn/warn"),
        (|it| it.transport = ON_THE_WAY, "sec.tls", "warn/warn"),
    ];
    for (change, id, expected) in cases {
        let mut facts = well();
        change(&mut facts);
        assert_eq!(states(&facts, id), expected, "{id}");
    }
    let mut short = well();
    (short.ttl, short.ping) = (MS(100), Some(MS(11)));
    assert_eq!(states(&short, "reach.ping"), "warn/warn");
}

#[test]
fn what_the_lock_was_refused_by_is_told_once_and_by_its_name() {
    for (said, id) in [
        ("OOM command not allowed", "mem.full"),
        ("MISCONF Redis is configured to save", "dur.health"),
        ("NOREPLICAS Not enough good replicas", "rep.short"),
        ("LOADING Redis is loading", "reach.loading"),
        ("CROSSSLOT Keys in request", "acl.probe"),
        ("NOPERM No permissions to access a key", "acl.probe"),
    ] {
        let mut facts = well();
        let failed = ("acquire", StoreErrorKind::Unavailable, said.to_owned());
        facts.probe.failed.push(failed);
        if id == "acl.probe" {
            facts.probe.failed[0].1 = StoreErrorKind::Denied;
        }
        assert_eq!(states(&facts, id), "fail/fail", "{said}");
        let fails = judge(&facts)
            .into_iter()
            .filter(|finding| finding.efficiency == Fail);
        assert_eq!(fails.count(), 1, "{said}");
    }
    let mut facts = well();
    facts.role = None;
    facts.info = None;
    facts
        .probe
        .failed
        .push(("acquire", StoreErrorKind::ReadOnly, "READONLY".into()));
    assert_eq!(states(&facts, "reach.role"), "fail/fail");
}

fn part(name: &'static str, without: Without) -> Part {
    Part { name, without }
}

#[test]
fn what_a_user_lacks_is_named() {
    let mut facts = well();
    facts.probe.denied.push(part("publish", Without::Worse));
    assert_eq!(states(&facts, "acl.probe"), "warn/warn");
    facts.probe.denied.push(part("hset", Without::NoLocks));
    assert_eq!(states(&facts, "acl.probe"), "fail/fail");
    facts.probe.denied = vec![part("~leasehold:fence", Without::NoLocks)];
    assert!(text(&facts, "acl.probe").contains("lacks ~leasehold:fence: no locks"));
    facts.probe.denied.clear();
    facts.probe.barred = Some("jobs:*".into());
    assert_eq!(states(&facts, "acl.probe"), "fail/fail");
    assert!(text(&facts, "acl.probe").contains("~jobs:*"));
    facts.probe.barred = None;
    facts.probe.refused = vec![(part("script|load", Without::Worse), "ERR not here".into())];
    assert_eq!(states(&facts, "acl.probe"), "warn/warn");
    let told = text(&facts, "acl.probe");
    assert!(
        told.contains("SCRIPT LOAD is refused (\"ERR not here\"): scripts are sent"),
        "{told}"
    );
    facts.probe.denied = vec![part("eval", Without::NoLocks)];
    assert_eq!(states(&facts, "cap.lua"), "unknown/unknown");
    facts.probe.denied.clear();
    facts.probe.missing = vec![part("eval", Without::NoLocks)];
    assert_eq!(states(&facts, "cap.lua"), "fail/fail");
}

#[test]
fn locks_of_other_programs() {
    let lock = |kind: &str, left| IndexedKey {
        name: "x".into(),
        kind: kind.into(),
        left,
    };
    let mut facts = well();
    facts.locks = Some(vec![lock("string", 5), lock("zset", 5)]);
    assert_eq!(states(&facts, "key.type"), "warn/warn");
    assert_eq!(states(&facts, "key.immortal"), "ok/ok");
    facts.locks = Some(vec![lock("string", -1)]);
    assert_eq!(states(&facts, "key.immortal"), "fail/fail");
    facts.locks = None;
    assert_eq!(states(&facts, "key.immortal"), "unknown/unknown");
}

#[test]
fn who_tells_nothing_is_never_failed() {
    let mut silent = ServerFacts::default();
    silent.ttl = Duration::from_secs(30);
    silent.probe.heard = true;
    for left_out in [false, true] {
        silent.probe.left_out = left_out;
        for finding in judge(&silent) {
            let worst = finding.efficiency.max(finding.correctness);
            assert!(worst <= Unknown, "{finding:?}");
        }
    }
}

#[test]
fn what_only_reads_says_nothing_of_writes() {
    let mut facts = well();
    let all = judge(&facts).len();
    facts.probe = Probe::default();
    facts.probe.left_out = true;
    let ids: Vec<_> = judge(&facts).iter().map(|finding| finding.id).collect();
    assert_eq!(ids.len(), all - 2, "{ids:?}");
    assert!(
        !ids.contains(&"cap.lua") && !ids.contains(&"acl.probe"),
        "{ids:?}"
    );
    // Without the setting, only a write could tell.
    facts.config = None;
    assert!(
        judge(&facts)
            .iter()
            .all(|finding| finding.id != "rep.short")
    );
    facts.info = None;
    assert_eq!(states(&facts, "reach.loading"), "unknown/unknown");
}

#[test]
fn the_document_has_every_check() {
    let text = include_str!("../../../../../docs/reference/doctor.md");
    let ids = |mark: &str| -> Vec<String> {
        let table = text.split(mark).nth(1).unwrap();
        let table = table.split("<!-- end -->").next().unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
            .collect()
    };
    let known: Vec<&str> = SERVER.iter().map(|check| check.id).collect();
    assert_eq!(ids("<!-- checks:redis -->"), known);
    let unique: BTreeSet<_> = known.iter().collect();
    assert_eq!(unique.len(), known.len());
    let over_all: Vec<&str> = QUORUM.iter().map(|check| check.id).collect();
    assert_eq!(ids("<!-- checks:quorum -->"), over_all);
    let over_all: Vec<&str> = CLUSTER.iter().map(|check| check.id).collect();
    assert_eq!(ids("<!-- checks:cluster -->"), over_all);
    let file = FileFacts::new("/tmp/locks.db", "3");
    let mut made = findings(FILE, &file, Purpose::Efficiency);
    made.extend(findings(MEMORY, &Facts::Memory, Purpose::Efficiency));
    let made: Vec<&str> = made.iter().map(|finding| finding.id).collect();
    assert_eq!(ids("<!-- checks:embedded -->"), made);
}

#[test]
fn the_state_is_the_one_for_the_purpose() {
    let facts = with("maxmemory_policy:allkeys-lru");
    for (purpose, state) in [(Purpose::Efficiency, Info), (Purpose::Correctness, Warn)] {
        let mut findings = findings(SERVER, &facts, purpose).into_iter();
        let policy = findings.find(|finding| finding.id == "mem.policy");
        assert_eq!(policy.map(|finding| finding.state), Some(state));
    }
}

#[test]
fn what_is_left_out_for_a_node_is_a_check_of_a_server() {
    for id in NOT_OF_A_NODE.into_iter().chain(NOT_OF_A_CLUSTER) {
        assert!(SERVER.iter().any(|rule| rule.id == id), "{id}");
    }
}
