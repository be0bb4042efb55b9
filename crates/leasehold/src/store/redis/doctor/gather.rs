//! Sends the requests of an examination. Only `probe` writes.

use std::net::IpAddr;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, Value, cmd, pipe};

use super::super::address::Address;
use super::super::codec::words::INDEX;
use super::super::connection::refusal::closed;
use super::access::{self, For};
use super::talk::{Conversation, Talk, open};
use super::{probe, watch};
use crate::clock::Clock;
use crate::doctor::{Examination, Fields, IndexedKey, ServerFacts, Transport};
use crate::error::StoreError;

/// The pause between two readings of the counters.
const BETWEEN: Duration = Duration::from_secs(2);

/// The number of index entries that are read: the newest.
const NAMES: isize = 1000;

/// Settings that INFO does not show.
const SETTINGS: [&str; 12] = [
    "appendfsync",
    "appendonly",
    "busy-reply-threshold",
    "latency-monitor-threshold",
    "lua-time-limit",
    "maxclients",
    "maxmemory-policy",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "save",
    "tcp-keepalive",
    "timeout",
];

/// Commands that only some servers have.
const SOME_HAVE: [&str; 4] = ["wait", "waitaof", "delex", "delifeq"];

/// All facts, over a connection of their own.
pub(super) async fn gather(
    address: &Address,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<ServerFacts, StoreError> {
    let Conversation {
        talk,
        mut driver,
        mut messages,
    } = open(address, clock, limit).await?;
    let seconds = async {
        if how.quick {
            return Ok((None, None));
        }
        tokio::try_join!(watch::step(&talk), async {
            Ok(Some(watch::stall(clock).await))
        })
    };
    let all = async {
        let (mut facts, (step, stall)) =
            tokio::try_join!(at_once(&talk, address, how, &mut messages), seconds)?;
        (facts.step, facts.stall) = (step, stall);
        Ok(facts)
    };
    let mut facts = tokio::select! {
        facts = all => facts?,
        () = &mut driver => return Err(closed(address)),
    };
    facts.ttl = how.ttl;
    facts.transport = transport(address);
    facts.acl = access::line(&For {
        version: facts.redis_version(),
        database: address.info().redis_settings().db(),
        keys: &how.keys,
    });
    Ok(facts)
}

fn transport(address: &Address) -> Transport {
    let info = address.info();
    let is_loopback = match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            let host = host.trim_matches(['[', ']']);
            let is_loopback = |ip: IpAddr| ip.is_loopback();
            host == "localhost" || host.parse().is_ok_and(is_loopback)
        }
        _ => true,
    };
    Transport {
        is_private: address.is_private(),
        is_loopback,
        has_password: address.has_password(),
    }
}

/// The facts that need no measurement over time, except the counters.
async fn at_once(
    talk: &Talk,
    address: &Address,
    how: &Examination,
    messages: &mut tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<ServerFacts, StoreError> {
    let info = info(talk).await?;
    if how.glance {
        return Ok(ServerFacts {
            info,
            ..ServerFacts::default()
        });
    }
    let mut facts = ServerFacts {
        info,
        role: role(talk).await?,
        config: config(talk).await?,
        user: talk.told(cmd("ACL").arg("WHOAMI")).await?,
        commands: commands(talk).await?,
        latency: latency(talk).await?,
        ping: watch::ping(talk, how.quick).await?,
        offset: watch::offset(talk).await?,
        ..ServerFacts::default()
    };
    if let Some((locks, hidden)) = locks(talk).await? {
        (facts.locks, facts.hidden_locks) = (Some(locks), hidden);
    }
    let begun = talk.clock.now();
    facts.probe = probe::probe(talk, address, &how.keys, messages).await?;
    if !how.quick && facts.info.is_some() {
        talk.clock.sleep_until(begun.after(BETWEEN)).await;
        facts.later = self::info(talk).await?;
    }
    Ok(facts)
}

async fn info(talk: &Talk) -> Result<Option<Fields>, StoreError> {
    let text: Option<String> = talk.told(&cmd("INFO")).await?;
    Ok(text.map(|text| Fields::of_info(&text)))
}

async fn role(talk: &Talk) -> Result<Option<String>, StoreError> {
    let role: Option<Vec<Value>> = talk.told(&cmd("ROLE")).await?;
    Ok(role.and_then(|role| redis::from_redis_value_ref(role.first()?).ok()))
}

/// One by one: older servers take no more at once. The first refusal is one of all.
async fn config(talk: &Talk) -> Result<Option<Fields>, StoreError> {
    let mut settings = Fields::default();
    for name in SETTINGS {
        let Some(told) = talk
            .told::<std::collections::BTreeMap<String, String>>(cmd("CONFIG").arg("GET").arg(name))
            .await?
        else {
            return Ok(None);
        };
        settings.0.extend(told);
    }
    Ok(Some(settings))
}

async fn commands(talk: &Talk) -> Result<Option<Vec<String>>, StoreError> {
    let told: Option<Vec<Value>> = talk
        .told(cmd("COMMAND").arg("INFO").arg(&SOME_HAVE))
        .await?;
    Ok(told.map(|told| {
        SOME_HAVE
            .iter()
            .zip(told)
            .filter(|(_, about)| matches!(about, Value::Array(parts) if !parts.is_empty()))
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }))
}

/// Event, when, its latest and its longest in ms; newer servers say more after that.
async fn latency(talk: &Talk) -> Result<Option<Vec<(String, u64)>>, StoreError> {
    let told: Option<Vec<Vec<Value>>> = talk.told(cmd("LATENCY").arg("LATEST")).await?;
    let event = |event: Vec<Value>| {
        let name = redis::from_redis_value_ref(event.first()?).ok()?;
        Some((name, redis::from_redis_value_ref(event.get(3)?).ok()?))
    };
    Ok(told.map(|events| events.into_iter().filter_map(event).collect()))
}

/// The keys of the index that this user may read.
async fn locks(talk: &Talk) -> Result<Option<(Vec<IndexedKey>, usize)>, StoreError> {
    let newest = cmd("ZRANGE").arg(INDEX).arg(-NAMES).arg(-1).to_owned();
    let Some(names) = talk.told::<Vec<Vec<u8>>>(&newest).await? else {
        return Ok(None);
    };
    if names.is_empty() {
        return Ok(Some((Vec::new(), 0)));
    }
    let mut look = pipe();
    look.ignore_errors();
    for name in &names {
        look.add_command(Cmd::new().arg("TYPE").arg(name).to_owned());
        look.add_command(Cmd::new().arg("PTTL").arg(name).to_owned());
    }
    let mut connection = talk.connection.clone();
    let answers = talk
        .answered(look.query_async::<Vec<Value>>(&mut connection))
        .await?
        .unwrap_or_default();
    let count = names.len();
    let locks = names.into_iter().zip(answers.chunks_exact(2));
    let seen = |(name, answer): (Vec<u8>, &[Value])| {
        Some(IndexedKey {
            // Anything may stand in the index; one odd name must not hide the others.
            name: String::from_utf8_lossy(&name).into_owned(),
            kind: redis::from_redis_value_ref(&answer[0]).ok()?,
            left: redis::from_redis_value_ref(&answer[1]).ok()?,
        })
    };
    let seen: Vec<IndexedKey> = locks.filter_map(seen).collect();
    let hidden = count - seen.len();
    let locks = seen.into_iter().filter(|lock| lock.kind != "none");
    Ok(Some((locks.collect(), hidden)))
}
