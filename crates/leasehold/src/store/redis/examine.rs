//! Gathers the facts about a server that decide whether it is fit for locks. It changes nothing but a scratch lock under
//! `leasehold:doctor:`, which it removes. A refusal is a fact, not an error.
//!
//! [`probe`] asks over one connection and uses a scratch lock as this user; nothing else writes.

mod probe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, Value, cmd, from_redis_value_ref, pipe};
use tokio::sync::mpsc;

use self::probe::{Messages, Talk, Told};
use super::address::Address;
use super::address::quorum::QuorumAddress;
use super::connection::dial::Dial;
use super::fault::refusal;
use super::init;
use super::protocol::INDEX;
use crate::clock::Clock;
use crate::doctor::{
    Examination, Examined, Facts, Fields, IndexedKey, NodeFacts, QuorumFacts, ServerFacts,
    Transport,
};
use crate::error::StoreError;
use crate::store::contract::Listener;

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

/// Examines the server at `address`; each request may take `limit`.
///
/// # Errors
/// The server cannot be reached or does not answer. A refusal by a server that answers is a fact.
pub(crate) async fn examine(
    address: &Address,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let facts = gather(address, how, clock, limit).await?;
    let facts = Facts::Server(Box::new(facts));
    Ok(Examined::new(address.to_string(), facts))
}

/// Examines the servers of a quorum at once; each request may take `limit`. A server that cannot be reached is a fact.
///
/// # Errors
/// No server answers.
pub(crate) async fn examine_quorum(
    address: &QuorumAddress,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<Examined, StoreError> {
    let nodes = address.nodes.iter().map(async |node| {
        let (facts, peeked) = futures_util::join!(
            gather(node, how, clock, limit),
            init::peek(node, clock, limit)
        );
        let facts = facts.map(|mut facts| {
            facts.acl = probe::of_node(&facts.acl);
            Box::new(facts)
        });
        let mut found = NodeFacts::new(node.to_string(), facts);
        // A user that may not read the mark fails the probe as well.
        if let Ok((mark, clock)) = peeked {
            (found.mark, found.clock) = (mark, Some(clock));
        }
        found
    });
    let nodes = futures_util::future::join_all(nodes).await;
    if let Some(Err(error)) = nodes.first().map(|node| &node.facts)
        && nodes.iter().all(|node| node.facts.is_err())
    {
        return Err(error.clone());
    }
    let facts = QuorumFacts::new(address.longest_ttl, address.durable, nodes);
    let facts = Facts::Quorum(Box::new(facts));
    Ok(Examined::new(address.to_string(), facts))
}

/// All facts, over a connection of their own, to whatever it is: a replica and a sentinel are judged like all others.
async fn gather(
    address: &Address,
    how: &Examination,
    clock: &Clock,
    limit: Duration,
) -> Result<ServerFacts, StoreError> {
    let (sender, mut messages) = mpsc::unbounded_channel();
    // Sending fails after the receiver is gone.
    let listener: Listener = Arc::new(move |notice| drop(sender.send(notice)));
    let scripts = Arc::default();
    let dial = Dial {
        address,
        limit,
        clock,
        scripts: &scripts,
        listener: &listener,
        placement: None,
    };
    let (mut link, wire) = dial.open().await?;
    let talk = Talk {
        wire,
        scripts,
        address,
        clock,
        limit,
    };
    let measured = async {
        if how.quick {
            return Ok((None, None));
        }
        let stall = async { Ok(Some(probe::stall(clock).await)) };
        tokio::try_join!(talk.step(), stall)
    };
    let all = async { tokio::try_join!(ask(&talk, how, &mut messages), measured) };
    let facts = link.until(all).await;
    let (mut facts, (step, stall)) = facts.map_err(|error| refusal(address, &error))??;
    (facts.step, facts.stall) = (step, stall);
    facts.ttl = how.ttl;
    facts.transport = transport(address);
    let database = address.settings().db();
    facts.acl = probe::line(facts.redis_version(), database, &how.keys);
    Ok(facts)
}

fn transport(address: &Address) -> Transport {
    let is_loopback = match address.addr() {
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
async fn ask(
    talk: &Talk<'_>,
    how: &Examination,
    messages: &mut Messages,
) -> Result<ServerFacts, StoreError> {
    let mut facts = ServerFacts {
        info: info(talk).await?,
        ..ServerFacts::default()
    };
    if how.glance {
        return Ok(facts);
    }
    let role: Option<Vec<Value>> = talk.told(&cmd("ROLE")).await?;
    facts.role = role.and_then(|role| from_redis_value_ref(role.first()?).ok());
    facts.config = config(talk).await?;
    facts.user = talk.told(cmd("ACL").arg("WHOAMI")).await?;
    facts.commands = commands(talk).await?;
    facts.latency = latency(talk).await?;
    facts.ping = talk.ping(how.quick).await?;
    facts.offset = talk.offset().await?;
    locks(talk, &mut facts).await?;
    let begun = talk.clock.now();
    facts.probe = probe::probe(talk, &how.keys, messages).await?;
    if !how.quick && facts.info.is_some() {
        talk.clock.sleep_until(begun.after(BETWEEN)).await;
        facts.later = info(talk).await?;
    }
    Ok(facts)
}

async fn info(talk: &Talk<'_>) -> Told<Fields> {
    let text: Option<String> = talk.told(&cmd("INFO")).await?;
    Ok(text.map(|text| Fields::of_info(&text)))
}

/// One by one: older servers take no more at once. The first refusal is one of all.
async fn config(talk: &Talk<'_>) -> Told<Fields> {
    let mut settings = Fields::default();
    for name in SETTINGS {
        let told = talk.told(cmd("CONFIG").arg("GET").arg(name)).await?;
        let Some(told): Option<BTreeMap<String, String>> = told else {
            return Ok(None);
        };
        settings.0.extend(told);
    }
    Ok(Some(settings))
}

async fn commands(talk: &Talk<'_>) -> Told<Vec<String>> {
    let about: Option<Vec<Value>> = talk
        .told(cmd("COMMAND").arg("INFO").arg(&SOME_HAVE))
        .await?;
    let is_known = |about: &Value| matches!(about, Value::Array(parts) if !parts.is_empty());
    Ok(about.map(|about| {
        let known = SOME_HAVE.iter().zip(&about);
        let known = known.filter(|(_, about)| is_known(about));
        known.map(|(name, _)| (*name).to_owned()).collect()
    }))
}

/// Event, when, its latest and its longest in ms; newer servers say more after that.
async fn latency(talk: &Talk<'_>) -> Told<Vec<(String, u64)>> {
    let told: Option<Vec<Vec<Value>>> = talk.told(cmd("LATENCY").arg("LATEST")).await?;
    let event = |event: Vec<Value>| {
        let name = from_redis_value_ref(event.first()?).ok()?;
        Some((name, from_redis_value_ref(event.get(3)?).ok()?))
    };
    Ok(told.map(|events| events.into_iter().filter_map(event).collect()))
}

/// The newest keys of the index that this user may read, and how many more there are.
async fn locks(talk: &Talk<'_>, facts: &mut ServerFacts) -> Result<(), StoreError> {
    let newest = cmd("ZRANGE").arg(INDEX).arg(-NAMES).arg(-1).to_owned();
    let Some(names) = talk.told::<Vec<Vec<u8>>>(&newest).await? else {
        return Ok(());
    };
    let mut look = pipe();
    look.ignore_errors();
    for name in &names {
        look.cmd("TYPE").arg(name);
        look.cmd("PTTL").arg(name);
    }
    let mut wire = talk.wire.clone();
    let answers = if names.is_empty() {
        Vec::new()
    } else {
        let answers = look.query_async::<Vec<Value>>(&mut wire);
        talk.answered(answers).await?.unwrap_or_default()
    };
    let seen = |(name, answer): (&Vec<u8>, &[Value])| {
        Some(IndexedKey {
            // Anything may stand in the index; one odd name must not hide the others.
            name: String::from_utf8_lossy(name).into_owned(),
            kind: from_redis_value_ref(&answer[0]).ok()?,
            left: from_redis_value_ref(&answer[1]).ok()?,
        })
    };
    let seen = names.iter().zip(answers.chunks_exact(2)).filter_map(seen);
    let mut locks: Vec<IndexedKey> = seen.collect();
    facts.hidden_locks = names.len() - locks.len();
    locks.retain(|lock| lock.kind != "none");
    facts.locks = Some(locks);
    Ok(())
}
